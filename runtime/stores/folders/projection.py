"""``Projection``: the agents' folders follow the store, on a thread of their own.

    commit ─► acknowledged ─► dispatched
         └──► merged by run ─► written into agents/<id>/

* The folders are behind the store by moments, never ahead of it; closing the store waits for them.
* Folders that a crash left behind are rebuilt when the store is next opened: ``safe`` is the
  position up to which folders were written so long ago that the system has put them on the disk.
* All others are looked over in the background: those that are not where the database is, because
  one of the two was put back, or that are not there, as beside a copy, are rebuilt, too.
* Folders of runs that the store does not know are adopted when it is opened.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import anyio

from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.store.intake import RunIntake
from hubbub.hub.store.journal import RunInfo
from hubbub.hub.store.reader import StoreReader, events_in
from hubbub.runtime.stores.folders.adopt import adopt, problems_of
from hubbub.runtime.stores.folders.conversation_reader import ConversationReader
from hubbub.runtime.stores.folders.disk import Disk, RealDisk
from hubbub.runtime.stores.folders.files import FolderFiles
from hubbub.runtime.stores.folders.run_files import RunFiles
from hubbub.runtime.stores.folders.write import AgentFolders, Projected, folder_name
from hubbub.runtime.stores.sqlite.blobs import sync_folder
from hubbub.runtime.stores.sqlite.folder import DataFolder

__all__ = ["Projection", "agent_folders"]

SETTLED: Final = 60.0
"""Seconds after which the system has put on the disk what was written."""

GATHER: Final = 0.1
"""Seconds for which what was committed is gathered before it is written here."""

SLICE: Final = 20
"""Folders of which is looked together how far they have come."""

MAX_BEHIND: Final = 50_000
"""Events by which the folders may be behind before commits wait for them."""


def agent_folders(
    folder: DataFolder, disk: Disk, reader: StoreReader, tip: int | None = None
) -> AgentFolders:
    """The agents' folders of the store that ``reader`` reads; ``tip`` is the last position that it
    had when it was opened, if work goes on beside."""

    def events_of(run_id: str) -> Sequence[Event]:
        return [x.event for x in events_in(reader, run_id) if x.event.lane in ("own", "in")]

    def count_new(run_id: str) -> tuple[int, int]:
        lanes = [row.lane for row in reader.event_rows((run_id,), after=tip or 0)]
        return lanes.count("own"), lanes.count("in")

    return AgentFolders(
        folder.agents, disk, events_of, folder.blobs, conversations=ConversationReader(reader),
        runs=RunFiles(disk, reader), count_new=None if tip is None else count_new,
    )  # fmt: skip


class Projection:
    """Writes what was committed into the agents' folders: the ``Mirror`` of a store."""

    def __init__(self, folder: DataFolder, ports: Ports, *, disk: Disk | None = None) -> None:
        self._folder = folder
        self._disk = disk or RealDisk()
        self._clock = ports.clock
        self._worker = ports.make_worker()
        self._reader: StoreReader | None = None
        self._folders: AgentFolders | None = None
        self._behind: dict[str, tuple[RunInfo, list[Event]]] = {}
        self._count = 0
        self._position = 0
        self._shown = 0
        """The position up to which everything committed since the opening is shown."""
        self._work: anyio.Event | None = None
        self._caught_up: anyio.Event | None = None
        self._hurry: anyio.Event | None = None
        self._settling: deque[tuple[float, int]] = deque()
        self._unseen: deque[str] = deque()
        """Runs of whose folders it is not known how far they have come."""
        self._put_by: set[str] = set()
        """Those of them that are about to go."""
        self._is_healing = False
        self._is_at_work = False
        self._is_closed = False
        self.begun = anyio.Event()
        self.safe = 0

    def adopt(self, intake: RunIntake) -> Sequence[str]:
        """See ``Mirror``."""
        folders = agent_folders(self._folder, self._disk, intake.reader)
        files = FolderFiles(self._disk, self._folder.blobs)
        return problems_of(adopt(intake, folders, self._disk, files, str(self._folder.agents)))

    async def open(self, read: Callable[[], StoreReader], safe: int, tip: int) -> None:
        """Begin; folders of what was committed after ``safe`` are looked at first."""
        self.safe, self._position, self._shown = safe, tip, tip
        behind = await self._worker.run(partial(self._open, read, safe))
        self._to_heal = deque(behind)

    def _open(self, read: Callable[[], StoreReader], safe: int) -> Sequence[RunInfo]:
        self._reader = reader = read()
        self._folders = agent_folders(self._folder, self._disk, reader, self._position)
        self._unseen = deque(reader.described())
        found = map(ConversationReader(reader).info, reader.described(safe))
        return [info for info in found if info is not None]

    def committed(self, batch: Iterable[tuple[RunInfo, Sequence[Event]]], position: int) -> None:
        """These events are on record, up to ``position``; their runs have descriptors."""
        for info, events in batch:
            known = self._behind.get(info.run_id)
            self._behind[info.run_id] = (info, [*known[1], *events] if known else list(events))
            self._count += len(events)
        self._position = position
        if self._work is not None:
            self._work.set()
        if self.is_far_behind and self._hurry is not None:
            self._hurry.set()

    async def forget(self, run_ids: Sequence[str]) -> None:
        """Remove the folders of runs that are about to go; see ``Mirror``."""
        gone = {*run_ids}
        for run_id in gone & {*self._behind}:
            self._count -= len(self._behind.pop(run_id)[1])
        self._to_heal = deque(info for info in self._to_heal if info.run_id not in gone)
        if self._unseen:
            self._put_by |= gone
        await self._worker.run(partial(self._remove, run_ids))

    def _remove(self, run_ids: Sequence[str]) -> None:
        place = self._folder.agents
        for run_id in run_ids:
            self._disk.remove_tree(str(place / folder_name(run_id)))
        if place.is_dir():
            sync_folder(place)

    async def run(self) -> None:
        """Write, for as long as the store is open."""
        self._is_at_work = True
        self.begun.set()
        try:
            await self._follow()
        finally:
            self._is_at_work = False
            self._tell_caught_up()

    def _tell_caught_up(self) -> None:
        if self._caught_up is not None:
            self._caught_up.set()
            self._caught_up = None

    async def _follow(self) -> None:
        assert self._folders is not None
        while True:
            if self._to_heal:
                self._is_healing = True
                # Before anything is added to it, which would rest on what stands there.
                info = self._to_heal.popleft()
                await self._worker.run(partial(self._folders.repair, info))
                self._is_healing = False
                self._tell_caught_up()
            elif self._behind:
                await self._gather()
                await self._write(self._folders.project)
            elif self._unseen:
                # Not waited for: what is not done when the store is closed is done later.
                self._tell_caught_up()
                count = min(SLICE, len(self._unseen))
                run_ids = [self._unseen.popleft() for _ in range(count)]
                run_ids = [run_id for run_id in run_ids if run_id not in self._put_by]
                if not self._unseen:
                    self._put_by.clear()
                await self._worker.run(partial(self._look_over, run_ids))
            else:
                self._tell_caught_up()
                self._work = anyio.Event()
                await self._work.wait()
                self._work = None

    def _look_over(self, run_ids: Sequence[str]) -> None:
        assert self._folders is not None and self._reader is not None
        self._folders.look_over(run_ids, self._reader.row)

    async def _gather(self) -> None:
        """Let more come together: a run's commits follow each other closely."""
        self._hurry = anyio.Event()
        if self._caught_up is None and not self.is_far_behind:
            with anyio.move_on_after(GATHER):
                await self._hurry.wait()

    async def _write(self, project: Callable[[Sequence[Projected]], None]) -> None:
        behind, self._behind = self._behind, {}
        position, self._count = self._position, 0
        batch = [Projected(info, events) for info, events in behind.values()]
        await self._worker.run(partial(project, batch))
        self._shown = position
        self._tell_caught_up()
        now = self._clock.monotonic()
        self._settling.append((now, position))
        while self._settling[0][0] < now - SETTLED:
            self.safe = self._settling.popleft()[1]

    @property
    def is_far_behind(self) -> bool:
        return self._count > MAX_BEHIND

    async def catch_up(self) -> None:
        """Return when the folders show everything that was committed before.

        Those of a task that was cut off stay behind: the next opening makes up for it.
        """
        position = self._position
        while self._is_at_work and (self._shown < position or self._to_heal or self._is_healing):
            if self._caught_up is None:
                self._caught_up = anyio.Event()
            if self._hurry is not None:
                self._hurry.set()
            await self._caught_up.wait()

    async def aclose(self) -> None:
        """Release the store; idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._worker.run(self._close)
        finally:
            self._worker.close()

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
