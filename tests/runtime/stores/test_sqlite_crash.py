"""Killed after any transaction of its store, everything comes to the same end (P-10, P-11).

The process is this one: its store writes nothing more from a certain transaction on, and what the
folder holds at that moment is all that the next life finds.
"""

import random
import shutil
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.profiles import portion
from torture.audit import Audit, read_runs
from torture.workload import ORDERS, SECRET, Effects, agents

from hubbub import Message, Runtime
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.stores.sqlite.schema import connect_read_only
from hubbub.runtime.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio

STRIDE = 5
"""Of the places where a story can be cut, each run of the test takes every fifth."""


class DyingStore(SqliteStore):
    """A store whose process is killed after some transactions.

    ``unacknowledged``: the last thing it does is one more, of which nobody is told.
    """

    def __init__(
        self, folder: Path, ports: Ports, after: int | None, *, unacknowledged: bool = False
    ) -> None:
        super().__init__(folder, ports=ports)
        self._after = after
        self._unacknowledged = unacknowledged
        self._grave = folder.with_name("grave")
        self.transactions = 0
        self.crashed = anyio.Event()

    async def open(self) -> None:
        await super().open()
        self._db.execute("PRAGMA synchronous=OFF")  # Here processes die, not machines.

    async def _write_batch(self) -> None:
        if self.transactions == self._after:
            if self._unacknowledged:
                await self._writing.run(partial(self._writer.apply, list(self._queue)))
            shutil.copytree(self.folder.root, self._grave)
            self.crashed.set()
            await anyio.sleep_forever()
        self.transactions += 1
        await super()._write_batch()

    async def flush(self) -> None:
        if not self.crashed.is_set():
            await super().flush()

    async def aclose(self) -> None:
        await super().aclose()
        if self.crashed.is_set():
            shutil.rmtree(self.folder.root)
            self._grave.rename(self.folder.root)


class Story:
    """What happens in a folder, until it is over; told anew by every life."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.ports = virtual_ports(seed)
        self.audit = Audit(folder)
        self.acknowledged: list[str] = []
        draw = random.Random(seed)
        whats = draw.sample(ORDERS, len(ORDERS))
        self.orders = [
            (f"m{at}", " ".join(f"{what}#m{at}o{n}" for n, what in enumerate(whats[at::3])))
            for at in range(3)
        ]
        self.clerk = self.ports.ids.run_id(0)
        folder.mkdir()

    def tell(self, *words: object) -> None:
        self.acknowledged.append(" ".join(map(str, words)))

    async def live(self, after: int | None, *, unacknowledged: bool = False) -> int | None:
        """One life: the transactions of the whole story, or ``None`` if it was cut."""
        store = DyingStore(self.folder / "store", self.ports, after, unacknowledged=unacknowledged)
        over = False
        everybody = agents(Effects(self.folder / "effects.log", flushes=False), self.tell)
        async with Runtime(everybody, store=store, ports=self.ports, grace=0) as rt:

            async def tell_on() -> None:
                nonlocal over
                await self._tell(rt)
                over = True
                group.cancel_scope.cancel()

            async with anyio.create_task_group() as group:
                group.start_soon(tell_on)
                with anyio.fail_after(10_000):
                    await store.crashed.wait()
                group.cancel_scope.cancel()
        lines, self.acknowledged = self.acknowledged, []
        assert self.audit.check(lines, is_quiet=over) == []
        return store.transactions if over else None

    async def _tell(self, rt: Runtime) -> None:
        await rt.hub.open("clerk", "k", run_id=self.clerk)
        run = await rt.start("lead", session_key="user", env={SECRET: "secret_of_user"})
        self.tell("started", run.run_id, "user")
        self.tell("secret", run.run_id, "secret_of_user")
        for name, text in self.orders:
            receipt = await rt.hub.send_to_run(run.run_id, Message(text, key=name))
            if receipt.accepted:
                self.tell("accepted", run.run_id, name)
            await anyio.sleep(0.015)
        await rt.finished(self.clerk)
        while not all(  # noqa: ASYNC110
            info.status == "parked" and not info.waiting for info in await rt.hub.journal.runs()
        ):
            await anyio.sleep(0.1)

    def facts(self) -> dict[str, Any]:
        """What must be the same, however often it was cut."""
        db = connect_read_only(self.folder / "store" / "hubbub.db")
        runs = list(read_runs(db).values())
        db.close()
        own = [(run.agent, x) for run in runs for x in run.own]
        taken = [(a, i) for a, x in own if isinstance(x, e.SessionTaken) for i in x.items]
        return {
            "runs": Counter((run.agent, run.status) for run in runs),
            "messages": [i.key for a, i in taken if isinstance(i, e.SessionMessage) and i.key],
            "results": sorted(i.content for _, i in taken if isinstance(i, e.SessionResult)),
            "calls": Counter((a, x.name) for a, x in own if isinstance(x, e.AgentToolComplete)),
            "sessions": Counter(
                (a, x.outcome, bytes(x.output_json)) for a, x in own if isinstance(x, e.SessionEnd)
                if a != "lead"
            ),
            "ends": Counter((a, x.outcome) for a, x in own if isinstance(x, e.AgentComplete)),
            "files": {f.path for _, x in own if isinstance(x, e.AgentFile) for f in x.files},
            "values": {x.key for _, x in own if isinstance(x, e.AgentKey)},
            "steps": sorted(x.name for _, x in own if isinstance(x, e.AgentRecord)),
        }  # fmt: skip


@pytest.mark.spec("P-10", "P-11", "P-17", "H-07", "H-09")
@pytest.mark.parametrize("offset", range(STRIDE))
async def test_killed_after_any_transaction_everything_comes_to_the_same_end(
    tmp_path: Path, offset: int
) -> None:
    whole = Story(tmp_path / "whole", offset)
    transactions = await whole.live(None)
    assert transactions is not None and transactions > 40
    expected = whole.facts()
    for after in portion(range(offset, transactions, STRIDE)):
        story = Story(tmp_path / f"killed-{after}", offset)
        # On Trio a story may come to its end in fewer transactions than the one before.
        if await story.live(after, unacknowledged=bool(after % 2)) is None:
            assert await story.live(None) is not None
        assert story.facts() == expected, f"killed after {after} transactions"
        shutil.rmtree(story.folder)


@pytest.mark.spec("P-10", "P-11")
@pytest.mark.parametrize("seed", range(3))
async def test_killed_again_and_again_everything_comes_to_the_same_end(
    tmp_path: Path, seed: int
) -> None:
    whole, story = Story(tmp_path / "whole", seed), Story(tmp_path / "killed", seed)
    await whole.live(None)
    draw, deaths = random.Random(seed), 0
    # Enough transactions to get on by a step, or a run fails as one that kills its process.
    while await story.live(draw.randint(12, 30), unacknowledged=draw.random() < 0.5) is None:
        deaths += 1
        assert deaths < 50
    assert deaths > 1
    assert story.facts() == whole.facts()
