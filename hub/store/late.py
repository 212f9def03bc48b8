"""``LateJournal``: any store, committing a little later, as a disk or a server does.

Every test of hub and runs is also run over one of these, so that nothing relies on a commit
being done when ``submit`` returns.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import anyio
import anyio.lowlevel

from hubbub.hub.events import Event
from hubbub.hub.ports import Blobs, Secrets
from hubbub.hub.snapshots.draft import SnapshotDraft
from hubbub.hub.store.journal import Addressing, Commit, LoadedRun, RunInfo, Selection
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.store.sharing import Sharing, sharing_of
from hubbub.hub.store.store import RemovesTrees, Store, cuts_lanes, removals_of, snapshots_of
from hubbub.hub.task_host import TaskHost

__all__ = ["LateJournal"]

T = TypeVar("T")


class LateJournal:
    """Commits in order, ``turns`` turns of the event loop after ``submit``."""

    def __init__(self, inner: Store, *, turns: int = 1) -> None:
        self._inner = inner
        self._turns = turns
        self._queue: deque[Commit] = deque()
        self._work = anyio.Event()
        self._told = anyio.Event()
        self._over = 0
        """Commits that were handed on or forgotten since the store was made."""
        self._is_attended = False
        self._tasks = TaskHost()

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def sharing(self) -> Sharing | None:
        """The inner store's; what comes by it does not wait."""
        return sharing_of(self._inner)

    @property
    def removals(self) -> RemovesTrees | None:
        """The inner store's; that trees go is a commit, which waits as any other."""
        return removals_of(self._inner)

    @property
    def cuts_lanes(self) -> bool:
        return cuts_lanes(self._inner)

    @property
    def tip(self) -> int:
        return self._inner.tip

    @property
    def failure(self) -> str:
        return self._inner.failure

    @property
    def problems(self) -> Sequence[str]:
        return self._inner.problems

    @property
    def secrets(self) -> Secrets | None:
        return self._inner.secrets

    @property
    def blobs(self) -> Blobs | None:
        return self._inner.blobs

    def reader(self) -> StoreReader:
        return self._inner.reader()

    def publish(self, notes: Mapping[str, str]) -> None:
        self._inner.publish(notes)

    async def inspect(self, look: Callable[[StoreReader], T]) -> T:
        return await self._inner.inspect(look)

    async def open(self) -> None:
        self._work, self._told = anyio.Event(), anyio.Event()
        await self._inner.open()
        await self._tasks.open()
        self._tasks.start(self._commit_late(), name="late journal", lives_on=True)

    async def aclose(self) -> None:
        try:
            await self._tasks.aclose()
        finally:
            self._hand_on()
            await self._inner.aclose()

    def submit(self, commit: Commit) -> None:
        self._queue.append(commit)
        self._work.set()

    def forget_submitted(self) -> None:
        """Drop what is submitted and not handed on yet, and have the inner store do so, too."""
        self._over += len(self._queue)
        self._queue.clear()
        self._inner.forget_submitted()

    async def _commit_late(self) -> None:
        self._is_attended = True
        try:
            await self._commit_on()
        finally:
            self._is_attended = False
            self._told.set()

    async def _commit_on(self) -> None:
        while True:
            await self._work.wait()
            self._work = anyio.Event()
            while self._queue:
                for _ in range(self._turns):
                    await anyio.lowlevel.checkpoint()
                self._hand_on()

    def _hand_on(self) -> None:
        """One group commit: whatever was submitted meanwhile is done together."""
        for _ in range(len(self._queue)):
            self._over += 1
            self._inner.submit(self._queue.popleft())
        told, self._told = self._told, anyio.Event()
        told.set()

    async def flush(self) -> None:
        last = self._over + len(self._queue)
        while self._over < last:
            if self._is_attended:
                await self._told.wait()
            else:
                self._hand_on()
        await self._inner.flush()

    async def load(self, run_id: str, *, after: int = 0) -> LoadedRun | None:
        await anyio.lowlevel.checkpoint()
        return await self._inner.load(run_id, after=after)

    def keep_snapshot(self, draft: SnapshotDraft) -> None:
        if (inner := snapshots_of(self._inner)) is not None:
            inner.keep_snapshot(draft)

    async def load_kept(self, run_id: str, version: str) -> LoadedRun | None:
        if (inner := snapshots_of(self._inner)) is None:
            return await self.load(run_id)
        await anyio.lowlevel.checkpoint()
        return await inner.load_kept(run_id, version)

    async def latest(self, run_id: str, types: Sequence[str]) -> Event | None:
        await anyio.lowlevel.checkpoint()
        return await self._inner.latest(run_id, types)

    async def info(self, run_id: str) -> RunInfo | None:
        await anyio.lowlevel.checkpoint()
        return await self._inner.info(run_id)

    async def runs(self, *, live: bool = True, root_run_id: str | None = None) -> Sequence[RunInfo]:
        await anyio.lowlevel.checkpoint()
        return await self._inner.runs(live=live, root_run_id=root_run_id)

    async def ready(self) -> Sequence[str]:
        return await self._inner.ready()

    async def timed(self) -> Sequence[tuple[str, int]]:
        return await self._inner.timed()

    async def find(self, to: str, by: Addressing) -> Sequence[str]:
        await anyio.lowlevel.checkpoint()
        return await self._inner.find(to, by)

    async def notes(self, prefix: str = "") -> Mapping[str, str]:
        return await self._inner.notes(prefix)

    async def read(
        self, selection: Selection, *, after: int = 0, until: int | None = None, limit: int = 1000
    ) -> tuple[Sequence[Event], int]:
        await anyio.lowlevel.checkpoint()
        return await self._inner.read(selection, after=after, until=until, limit=limit)

    async def position(self, run_id: str, lane: str, seq: int) -> int | None:
        await anyio.lowlevel.checkpoint()
        return await self._inner.position(run_id, lane, seq)

    def depths(self) -> tuple[int, int, int]:
        return self._inner.depths()
