"""``QueuedStore``: a store that writes what is submitted in batches, in a thread of its own.

    submit ─► queue ─► one batch a turn ─► the writing thread: one transaction, durable
                                                        │
    done, in order of submission  ◄────────────────────┘   then dispatched

What is submitted while a batch is written makes up the next one: many runs share a transaction.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, TypeVar

import anyio

from hubbub.hub.logs import log
from hubbub.hub.masking import words_of
from hubbub.hub.ports import Ports, Worker
from hubbub.hub.snapshots.draft import SnapshotDraft
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.task_host import TaskHost
from hubbub.hub.tasks.raised import exit_in
from hubbub.runtime.stores.sql.reader import SqlReads
from hubbub.runtime.stores.sql.rows import Depths
from hubbub.runtime.stores.sql.secrets import StoredSecrets
from hubbub.runtime.stores.sql.writer import Operation

__all__ = ["QueuedStore"]

T = TypeVar("T")

GATHER: Final = 2
"""Turns of the event loop for which a batch is gathered once there is something to write."""

MAX_BATCH: Final = 1000
"""Operations in one transaction."""

MAX_DRAFTS: Final = 100
"""Snapshots that wait to be kept; the oldest is given up for a further one."""

PATIENCE: Final = 100
"""Batches for which a snapshot waits where there is always more to write."""

CUT_OFF: Final = (
    "the store's task was cancelled by a cancel scope that is not its own: a plain listener has "
    "left one open, as a timeout in a generator that it keeps; close it there, and open the store "
    "anew"
)


class QueuedStore(SqlReads):
    """The queue of a store, and the order in which it reports."""

    _reading: Worker
    _record: StoreReader

    def __init__(self, ports: Ports | None) -> None:
        self._ports = ports or Ports()
        self.secrets = StoredSecrets(self._enqueue)
        self.name = ""
        self.failure = ""
        self.problems: Sequence[str] = ()
        self.tip = 0
        self._depths: Depths = (0, 0, 0)
        self._workers: list[Worker] = []
        self._tasks = TaskHost()
        self._queue: deque[Operation] = deque()
        self._batch: Sequence[Operation] = ()
        """What is being written."""
        self._under_way = 0
        """Operations that have left the queue, and whose submitters are not told yet."""
        self._over = 0
        """Operations that were written, refused or forgotten since the store was made."""
        self._is_attended = False
        self._is_forgetful = False
        self._is_open = False
        self._published: dict[str, str] = {}
        self._drafts: dict[str, SnapshotDraft] = {}
        """Snapshots that are to be kept when nothing else is to be done, by run."""
        self._batches = 0
        """Batches since one was kept, or there was none."""
        self._work = anyio.Event()
        self._begun = anyio.Event()
        self._told: anyio.Event | None = None

    # ── what a store does in its own way ─────────────────────────────────────────────────────

    @abstractmethod
    async def _put(self, batch: Sequence[Operation]) -> None:
        """Have a batch written, all or nothing, durably.  What it raises fails the store."""

    @abstractmethod
    async def _fail(self, error: Exception) -> None:
        """Set ``failure``: nothing is accepted from now on."""

    @abstractmethod
    def _is_early(self, draft: SnapshotDraft) -> bool:
        """Whether it is known that no snapshot of its run is due yet."""

    @abstractmethod
    async def _keep(self, draft: SnapshotDraft) -> None:
        """Have a snapshot kept.  What it raises is told, and nothing else comes of it."""

    async def _announce(self, batch: Sequence[Operation]) -> None:
        """Have everybody told what has become of a batch."""
        self._tell_submitters(batch)

    async def _tidy(self) -> None:
        """What is to be done between two batches."""

    async def _prepare(self) -> None:
        """What is to be done before the next batch leaves the queue."""

    async def _catch_up(self) -> None:
        """What is to be done when everything is written, before the store is closed."""

    def _ends_first(self, ends: AsyncExitStack) -> None:
        """Have what else was opened closed, before the connections are."""

    @abstractmethod
    def _close_writer(self) -> None:
        """Close what writes, as far as it was opened.  In the writing thread."""

    @abstractmethod
    def _close_reader(self) -> None:
        """The same of what reads.  In the reading thread."""

    def _closings(self) -> Sequence[Callable[[], None]]:
        """What closes what each thread has opened, in their order."""
        return (self._close_writer, self._close_reader)

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def _begin(self) -> None:
        """Start the tasks, and return when they are at work: they say when they no longer are."""
        self._tasks.start(self._write(), name="hubbub store", lives_on=True)
        await self._begun.wait()

    async def aclose(self) -> None:
        """Write what was submitted, and release the store; idempotent."""
        if not self._is_open:
            return
        self._is_open = False
        if self._tasks.is_stranded:  # Nobody will be told of what is not written yet.
            await self._let_go()
            return
        try:
            with anyio.CancelScope(shield=True):
                await self.flush()
                while self._drafts and not self.failure:
                    await self._keep_one()
                await self._catch_up()
        finally:
            await self._end()

    async def _end(self) -> None:
        try:  # Not shielded: on Trio a task group nests with the caller's scopes.
            await self._tasks.aclose()
        finally:
            await self._let_go()

    async def _let_go(self) -> None:
        """Close what was opened, as far as it was; a part that fails keeps none from its end."""
        with anyio.CancelScope(shield=True):
            async with AsyncExitStack() as ends:  # The last comes first.
                for worker in self._workers:
                    ends.callback(worker.close)
                for worker, close in zip(self._workers, self._closings(), strict=False):
                    ends.push_async_callback(worker.run, close)
                self._ends_first(ends)

    def _make_worker(self) -> Worker:
        worker = self._ports.make_worker()
        self._workers.append(worker)
        return worker

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def submit(self, commit: Commit) -> None:
        """Have a commit written.  A store that has failed refuses it at once, with its words."""
        if self.failure:
            commit.error = self.failure
            if commit.done is not None:
                commit.done(commit)
            return
        self._enqueue(commit)

    def publish(self, notes: Mapping[str, str]) -> None:
        """Keep texts for who only reads the store; before it is open, with the opening."""
        if self._is_open:
            self._enqueue(Commit(notes=notes))
        self._published |= notes

    def forget_submitted(self) -> None:
        """Drop what is submitted, or will be, and is not being written yet, without a callback."""
        self._over += len(self._queue)
        self._queue.clear()
        self._drafts.clear()
        self._is_forgetful = True

    def keep_snapshot(self, draft: SnapshotDraft) -> None:
        """Keep a snapshot, if one is due, when nothing else is to be done."""
        if self._is_forgetful or self.failure or not self._is_open:
            return
        if self._is_early(draft):  # Nobody need be woken for that.
            return
        self._drafts.pop(draft.run_id, None)
        self._drafts[draft.run_id] = draft
        if len(self._drafts) > MAX_DRAFTS:  # Each holds a whole conversation in memory.
            del self._drafts[next(iter(self._drafts))]
        self._work.set()

    async def _keep_one(self) -> None:
        """Have the next snapshot kept.  Without it its run is read as it was before."""
        draft = self._drafts.pop(next(iter(self._drafts)))
        self._batches = 0
        try:
            await self._keep(draft)
        except Exception as error:
            log.warning("snapshot.not_kept", run_id=draft.run_id, problem=words_of(error))

    def _enqueue(self, operation: Operation) -> None:
        if self._is_forgetful:
            return
        self._queue.append(operation)
        self._work.set()

    async def _write(self) -> None:
        """Write, for as long as the store is open."""
        self._is_attended = True
        self._begun.set()
        try:
            await self._write_on()
        finally:  # Cut off or done: nobody waits for it any more.
            self._is_attended = False
            if self._is_open and not self._tasks.is_ending:
                self._cut_off()
            self._tell_written()

    def _cut_off(self) -> None:
        """A cancel scope that is not the library's has ended the task: nobody is to wait."""
        self.failure = CUT_OFF
        log.error("store.failed", problem=self.failure)
        batch, left = self._batch, tuple(self._queue)
        self._queue.clear()
        self._over += len(left)
        self._tell_submitters((*batch, *left))

    def _tell_written(self) -> None:
        if self._told is not None:
            self._told.set()
            self._told = None

    async def _write_on(self) -> None:
        """Write batch after batch."""
        while True:
            await self._tidy()
            has_time = not self._queue or self._batches >= PATIENCE
            if self._drafts and has_time and not self.failure:
                await self._keep_one()
                continue
            if not self._queue:
                self._work = self._tasks.home.make_event()
                await self._work.wait()
            # Who has just been told something says the rest of it in these turns.
            for _ in range(GATHER):
                await self._tasks.breathe()
            await self._prepare()
            if self._queue:
                self._batches += 1
                await self._write_batch()

    async def _write_batch(self) -> None:
        count = min(len(self._queue), MAX_BATCH)
        batch = [self._queue.popleft() for _ in range(count)]
        self._under_way += count
        try:
            self._batch = batch
            await self._apply(batch)
            self._batch = ()
            await self._announce(batch)
        finally:  # Cut off or done: who flushes waits for no other batch.
            self._under_way -= count
            self._over += count
            self._tell_written()

    async def _apply(self, batch: Sequence[Operation]) -> None:
        """Have a batch written, unless the store has failed or fails by it."""
        if self.failure:
            return
        try:
            await self._put(batch)
        except Exception as error:
            await self._fail(error)

    def _tell_submitters(self, batch: Sequence[Operation]) -> None:
        for operation in batch:
            if not isinstance(operation, Commit):
                continue
            if self.failure:
                operation.written = []
                operation.error = self.failure
            self.tip += len(operation.written)
            if operation.done is not None:
                try:
                    operation.done(operation)
                except BaseException as error:  # Others wait to be told of theirs.
                    if exit_in(error) is not None:
                        raise
                    log.error("commit.untold", run_id=operation.run_id, exc_info=error)

    async def flush(self) -> None:
        """Return when everything submitted so far is written; what comes later is not waited for.

        Where the writing task has ended, the caller does what it has left.
        """
        last = self._over + self._under_way + len(self._queue)
        while self._over < last:
            if not self._is_attended:
                await self._write_batch()
                continue
            self._told = self._told or self._tasks.home.make_event()
            await self._told.wait()

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    async def inspect(self, look: Callable[[StoreReader], T]) -> T:
        """What ``look`` finds in the whole record, in the reading thread."""
        return await self._read(lambda: look(self._record))

    async def _read(self, read: Callable[[], T]) -> T:
        found = await self._reading.run(read)
        if self._under_way:
            # Subscribers do not have the batch under way yet; readers must not be ahead.
            self._told = self._told or self._tasks.home.make_event()
            await self._told.wait()
        return found

    def depths(self) -> Depths:
        """Live runs, parked runs, and items waiting in all inboxes."""
        return self._depths
