"""Lives of one store: runtimes that come and go on a folder, left in order or killed."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from hubbub import AgentDefinition, Hub, Runtime
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.stores.open import sqlite_store
from support.agents import Observer

__all__ = ["Lives", "last_outcome", "left_by_kill"]


class Lives:
    """A store in a folder, and one runtime after another on it.

    ``is_killed``: each next one finds the folder as it was when the body of ``life`` ended, log
    and all, which is what ``kill -9`` leaves.  Else the one before was left in order, without
    grace.
    """

    def __init__(self, place: Path, ports: Ports, *, is_killed: bool = False) -> None:
        self._place = place
        self._ports = ports
        self._number = 0
        self.folder = place / "store-0"
        self.is_killed = is_killed

    @asynccontextmanager
    async def life(
        self, *agents: AgentDefinition, default_agent: str = "", **options: Any
    ) -> AsyncIterator[Runtime]:
        """One process.  ``seen`` is what it dispatches, from its first event on."""
        self.store = store = sqlite_store(self.folder, ports=self._ports)
        hub = Hub(journal=store, ports=self._ports, **_of_hub(options))
        async with hub:
            self.seen = Observer(hub)
            async with Runtime(
                agents, hub=hub, grace=0, default_agent=default_agent, **options
            ) as rt:
                yield rt
                after = self.copy() if self.is_killed else self.folder
        self.folder = after

    def copy(self) -> Path:
        """The folder as it is at this moment, for whoever comes next."""
        self._number += 1
        return left_by_kill(self.store, self.folder, self._place / f"store-{self._number}")

    def forget_database(self) -> None:
        """Between two lives: the folders of agents and contents of files are all that is left."""
        for name in ("hubbub.db", "hubbub.db-wal", "hubbub.db-shm"):
            (self.folder / name).unlink(missing_ok=True)


def left_by_kill(store: Journal, folder: Path, after: Path) -> Path:
    """What ``kill -9`` leaves at this moment of a store in a folder: that is ``after``, as whoever
    is at work goes on in the other one."""
    shutil.copytree(folder, after)
    return after


def _of_hub(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options.pop(name) for name in ("max_inbox", "buffer") if name in options}


async def last_outcome(rt: Runtime, run_id: str) -> Any:
    """What a run's latest session came to, which must not take forever."""
    with anyio.fail_after(100_000):
        return await rt.result(run_id)
