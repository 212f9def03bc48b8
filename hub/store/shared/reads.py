"""``SharedMemoryReads``: what one process reads of a ``SharedMemory``, by its link."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import anyio

from hubbub.hub.events import Event
from hubbub.hub.snapshots.draft import SnapshotDraft
from hubbub.hub.store.journal import Addressing, LoadedRun, RunInfo, Selection
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.store.shared.link import Link
from hubbub.hub.store.shared.memory import SharedMemory

__all__ = ["SharedMemoryReads"]

T = TypeVar("T")


class SharedMemoryReads(ABC):
    """The reading part of a ``SharedMemoryJournal``.  While the link is cut it waits."""

    def __init__(self, memory: SharedMemory, link: Link) -> None:
        self._memory = memory
        self._kept = memory.kept
        self.link = link
        self._tip = self._wanted = 0
        """Where the last event is that is told here, and the last one that is waited for."""
        self._work, self._told = anyio.Event(), anyio.Event()
        self._is_attended = False
        """Whether a task writes, and tells what others write."""

    @property
    def tip(self) -> int:
        """The position of the last event that is told here."""
        return self._tip

    @abstractmethod
    def owns(self, root_run_id: str) -> bool:
        """Whether a tree is this process's, as far as it knows."""

    @abstractmethod
    def _tell_removed(self) -> None:
        """Tell which trees have gone."""

    async def _reach(self) -> None:
        """Return when the store could be asked."""
        await self.link.ask(_nothing)

    async def load(self, run_id: str, *, after: int = 0) -> LoadedRun | None:
        await self._reach()
        loaded = await self._kept.load(run_id, after=after)
        await self._told_until(self._kept.tip)
        return loaded

    async def load_kept(self, run_id: str, version: str) -> LoadedRun | None:
        await self._reach()
        loaded = await self._kept.load_kept(run_id, version)
        await self._told_until(self._kept.tip)
        return loaded

    def keep_snapshot(self, draft: SnapshotDraft) -> None:
        """Keep it, unless the store cannot be reached: nobody waits for it."""
        if not self.link.is_cut:
            self._kept.keep_snapshot(draft)

    async def _told_until(self, tip: int) -> None:
        self._wanted = max(self._wanted, tip)
        self._work.set()
        while self._is_attended and self._tip < tip:
            await self._told.wait()

    async def latest(self, run_id: str, types: Sequence[str]) -> Event | None:
        await self._reach()
        return await self._kept.latest(run_id, types)

    async def info(self, run_id: str) -> RunInfo | None:
        await self._reach()
        return await self._kept.info(run_id)

    async def runs(self, *, live: bool = True, root_run_id: str | None = None) -> Sequence[RunInfo]:
        await self._reach()
        return await self._kept.runs(live=live, root_run_id=root_run_id)

    async def runs_of(self, root_run_ids: Collection[str]) -> Sequence[RunInfo]:
        roots = frozenset(root_run_ids)
        return [info for info in await self.runs() if info.root_run_id in roots]

    async def ready(self) -> Sequence[str]:
        """Of the trees that are owned; like ``timed``."""
        await self._reach()
        return [x for x in await self._kept.ready() if self.owns(self._memory.root_of(x))]

    async def timed(self) -> Sequence[tuple[str, int]]:
        await self._reach()
        return [x for x in await self._kept.timed() if self.owns(self._memory.root_of(x[0]))]

    async def find(self, to: str, by: Addressing) -> Sequence[str]:
        await self._reach()
        return await self._kept.find(to, by)

    async def notes(self, prefix: str = "") -> Mapping[str, str]:
        await self._reach()
        return await self._kept.notes(prefix)

    async def read(
        self, selection: Selection, *, after: int = 0, until: int | None = None, limit: int = 1000
    ) -> tuple[Sequence[Event], int]:
        await self._reach()
        until = self._tip if until is None else min(until, self._tip)
        found = await self._kept.read(selection, after=after, until=until, limit=limit)
        self._tell_removed()  # Before anybody sees what is not among it.
        return found

    async def position(self, run_id: str, lane: str, seq: int) -> int | None:
        await self._reach()
        return await self._kept.position(run_id, lane, seq)

    def depths(self) -> tuple[int, int, int]:
        """Of the whole store."""
        return self._kept.depths()

    async def inspect(self, look: Callable[[StoreReader], T]) -> T:
        await self._reach()
        return await self._kept.inspect(look)

    def reader(self) -> StoreReader:
        return self._kept.reader()


def _nothing() -> None:
    """What is asked of a store in order to reach it."""
