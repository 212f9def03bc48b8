"""Lives of one store that hold conversations of ``little_programs``, and what they have come to."""

from pathlib import Path
from typing import Any

import anyio

from hubbub import Runtime
from hubbub.agents.state.commands import command_of
from hubbub.agents.state.fold import fold
from hubbub.agents.state.thread import EMPTY
from hubbub.hub import events as e
from hubbub.hub.events import InLane
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.stores.open import sqlite_store
from support.crash_journal import CrashJournal
from support.programs import Programs, label_of
from support.stored_runs import StoredRuns, read_stored_runs

__all__ = ["World", "traces"]


class World:
    """Lives of one store, in virtual time; each next one finds what the one before has written."""

    def __init__(
        self,
        store: str,
        folder: Path,
        *,
        latency: float = 0.0,
        idempotent: bool = True,
        **options: Any,
    ) -> None:
        self.kind = store
        self.folder = folder
        self._idempotent = idempotent
        self.ports: Ports = virtual_ports()
        self.programs = Programs(latency)
        self.letters: list[InLane] = []
        self._memory = MemoryJournal()
        self._options = options

    def journal(self) -> Journal:
        """The store itself, which survives its processes."""
        if self.kind == "sqlite":
            return sqlite_store(self.folder, ports=self.ports, mirror=False)
        return self._memory

    async def begin(self) -> None:
        """A process begins."""
        self._is_running = True
        self.inner = self.journal()
        self.store = CrashJournal(self.inner)
        journal: Any = self.store
        if self.kind == "late":
            journal = LateJournal(journal)
        self.runtime = Runtime(
            self.programs.agents(idempotent=self._idempotent), store=journal, ports=self.ports,
            grace=0, **self._options,
        )  # fmt: skip
        await self.runtime.__aenter__()
        self.hub = self.runtime.hub
        self.hub.subscribe("hub:dead_letter", self._dropped)

    def _dropped(self, event: Any) -> None:
        self.letters.append(event.message)

    async def rest(self) -> None:
        """Until nothing more happens by itself: retries and models take less."""
        await anyio.sleep(1000)

    def crash_after(self, commits: int) -> None:
        """After so many more commits the process is dead: nothing it writes is kept."""
        self.store._after = self.store.commits + commits

    async def end(self) -> None:
        """The process is gone, as it was."""
        await self.runtime.__aexit__(None, None, None)
        self._is_running = False

    async def tally(self) -> StoredRuns:
        """What the store holds just now."""
        if self._is_running:
            return await read_stored_runs(self.inner, self.letters)
        journal = self.journal()
        await journal.open()
        try:
            return await read_stored_runs(journal, self.letters)
        finally:
            await journal.aclose()


def traces(tally: StoredRuns) -> dict[str, list[str]]:
    """What each run did, by the label of what it was begun with."""
    found = {}
    for lane in tally.own.values():
        name, trace, thread = "", list[str](), EMPTY
        for event in lane:
            match event:
                case e.AgentStart():
                    name = label_of(event.input)
                case e.AgentText():
                    trace.append(f"say {event.text}")
                case e.AgentToolComplete(name=tool):
                    output = f" {event.output}" if tool == "use_agent" else ""
                    trace.append(f"{tool} error" if event.is_error else f"{tool} ok{output}")
                case e.SessionEnd():
                    trace.append(f"end {event.outcome}")
                case e.AgentComplete():
                    trace.append(f"over {event.outcome}")
                case e.SessionTaken():
                    is_stack = thread.frame is not None or thread.origin.frame > 0
                    trace += [
                        f"take {label_of(item.content)}" for item in event.items
                        if isinstance(item, e.SessionMessage)
                        and not (is_stack and command_of(item))
                    ]  # fmt: skip
            thread = fold(thread, event)
        found[name] = trace
    return found
