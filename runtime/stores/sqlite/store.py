"""``SqliteStore``: the store that ships, one SQLite file in a folder.  No server.

* Durable means: written and flushed to the disk (``synchronous=FULL``) before it is reported.
  Many runs share a flush (``runtime/stores/sql/queued.py``).
* One runtime at a time is at work on a database; others are refused, readers are not.
* An error of the disk is final: everything after it is refused with its words; nothing that was
  acknowledged is lost.  Nothing written into a removed or replaced file is acknowledged.
"""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from os import PathLike
from typing import Final, TypeAlias, TypeVar

import anyio
import anyio.lowlevel

from hubbub.hub.errors import OperatorError
from hubbub.hub.logs import log
from hubbub.hub.ports import Ports
from hubbub.hub.snapshots.draft import SnapshotDraft
from hubbub.hub.store.mirror import Mirror
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.store.store import DroppedContents
from hubbub.runtime.stores.sql.queued import QueuedStore
from hubbub.runtime.stores.sql.writer import Applied, Operation
from hubbub.runtime.stores.sqlite.blobs import BlobFolder
from hubbub.runtime.stores.sqlite.contents.held import HeldContents
from hubbub.runtime.stores.sqlite.contents.named import NamedContents, OnRecord
from hubbub.runtime.stores.sqlite.damage import opening, reading_on
from hubbub.runtime.stores.sqlite.folder import DataFolder
from hubbub.runtime.stores.sqlite.index_check import IndexCheck, check_indexes, is_small
from hubbub.runtime.stores.sqlite.intake import SqliteIntake
from hubbub.runtime.stores.sqlite.lock import StoreLock
from hubbub.runtime.stores.sqlite.open_files import LogRoom, StoreFileLost, StoreWatch
from hubbub.runtime.stores.sqlite.schema import (
    KEEP_NOTE,
    connect,
    connect_read_only,
    is_io_error,
    mark_failed,
    store_failure,
)
from hubbub.runtime.stores.sqlite.store_reader import SqliteStoreReader, open_sqlite_reader
from hubbub.runtime.stores.sqlite.writer import SqliteWriter

__all__ = ["MakeMirror", "SqliteStore"]

T = TypeVar("T")

MakeMirror: TypeAlias = Callable[[DataFolder, Ports], Mirror]
"""Makes what shows the runs of one opening of the store in a folder."""

CHECKPOINT: Final = 1_500
"""Events after which the log is moved into the file, as soon as nothing else is to be done."""

MAX_LOG: Final = 20_000
"""Events after which that is done though there is more to write: the log does not grow on."""

NOTHING: Final[tuple[DroppedContents, OnRecord]] = (DroppedContents(), ())
"""What goes of contents once the store has failed."""

LOOK: Final = 1.0
"""Seconds of idleness after which the writing thread looks whether its files are there."""


class SqliteStore(QueuedStore):
    """A ``Journal`` in a folder, which also keeps values of variables and contents of files.

    ``path`` is the folder, made if it is missing, or a file that ends in ``.db`` (see
    ``hubbub.runtime.stores.sqlite.folder``).  Give it to ``Runtime(store=…)``; ``"sqlite:PATH"``
    is short for it, with folders of agents.  ``mirror`` makes what shows the runs in files; see
    ``Mirror``.  ``command`` is the command that opens it for a moment.  ``open`` raises
    ``OperatorError`` for a folder that cannot be used.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        ports: Ports | None = None,
        mirror: MakeMirror | None = None,
        command: str = "",
    ) -> None:
        super().__init__(ports)
        self.folder = DataFolder(path)
        self._make_mirror = mirror
        self._mirror: Mirror | None = None
        self.blobs = BlobFolder(self.folder.blobs)
        self.name = "sqlite"
        self._lock = StoreLock(self.folder.database, command)
        self._moved = 0
        """The position up to which the log was moved into the file last."""
        self._check: IndexCheck | None = None

    def __repr__(self) -> str:
        return f"SqliteStore({str(self.folder.database)!r})"

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Take the folder, make or check the database, and begin to write."""
        if self._is_open:
            return
        self._workers = []
        for name in ("_db", "_reader"):  # Those of an earlier opening are closed.
            vars(self).pop(name, None)
        self._work, self._begun = anyio.Event(), anyio.Event()
        try:
            self._writing = self._make_worker()
            self._reading = self._make_worker()
            if self._make_mirror is not None:
                self._mirror = self._make_mirror(self.folder, self._ports)
            number = self._ports.ids.number()
            await self._writing.run(partial(self._open_writer, f"sqlite-{number:012x}"))
            await self._reading.run(self._open_reader)
            if self._mirror is not None:
                with opening(self.folder.database):
                    await self._mirror.open(self.reader, self._writer.safe, self.tip)
            await self._tasks.open()
            await self._begin()
        except BaseException:
            await self._end()
            raise
        self._is_open = True
        self._writing.when_idle(self._look, LOOK)
        self.blobs.worker, self.blobs.writing = self._reading, self._writing

    async def _begin(self) -> None:
        await super()._begin()
        if self._mirror is not None:
            mirroring = self._mirror.run()
            self._tasks.start(mirroring, name="hubbub mirror", lives_on=True)
            await self._mirror.begun.wait()
        if self._check is not None:
            self._tasks.start(
                self._check_indexes(self._check), name="hubbub index check", steady=True
            )
            self._check = None

    async def _check_indexes(self, check: IndexCheck) -> None:
        try:
            await self._ports.offload.run(check.run)
        except OperatorError as error:
            self._failed(error)
        finally:
            check.stop()

    def _open_writer(self, new_name: str) -> None:
        self.folder.make()
        self.folder.check_file_system()
        self._lock.acquire()
        path = self.folder.database
        self._db = connect(path)
        with opening(path):
            self._db.execute("INSERT OR IGNORE INTO meta VALUES ('store', ?)", (new_name,))
            select = "SELECT value FROM meta WHERE key = 'store'"
            self.name = self._db.execute(select).fetchone()[0]
            self._db.executemany(KEEP_NOTE, self._published.items())
            if is_small(self._db):
                check_indexes(self._db, path)
            else:
                self._check = IndexCheck(path)
            if self._mirror is not None:
                self.problems = self._mirror.adopt(SqliteIntake(self._db, self.folder))
            self._writer = SqliteWriter(self._db, self.blobs.take_in)
        self._watch = StoreWatch(path, self._lock)
        self._room = LogRoom(path)
        self.tip, self._depths = self._writer.tip, self._writer.depths
        self._moved = self.tip
        log.info("store.opened", path=str(path), sqlite=sqlite3.sqlite_version)

    def _open_reader(self) -> None:
        with opening(self.folder.database):
            self._record = SqliteStoreReader(self.folder, connect_read_only(self.folder.database))
            self._reader = self._record.runs
            self.secrets.restore(self._reader.secrets())

    async def _catch_up(self) -> None:
        if self._mirror is not None:
            await self._mirror.catch_up()
        if not (self._is_open or self.failure):
            with suppress(sqlite3.Error):  # The next opening takes longer.
                await self._writing.run(self._writer.keep_depths)

    def _ends_first(self, ends: AsyncExitStack) -> None:
        if self._mirror is not None:
            ends.push_async_callback(self._mirror.aclose)
            self._mirror = None

    def _close_reader(self) -> None:
        if (reader := getattr(self, "_reader", None)) is not None:
            reader.close()

    def _close_writer(self) -> None:
        try:
            if (db := getattr(self, "_db", None)) is not None:
                db.close()
        finally:
            self._lock.release()

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def write(self, batch: Sequence[Operation]) -> Applied:
        """Write a batch, all or nothing, durably.  In the writing thread."""
        self._demand_files()  # Else it would be written where it cannot be found,
        self._room.keep(self._watch.log_size)
        applied = self._writer.apply(batch)
        self._demand_files(self._watch.check_written)  # or be acknowledged though it was.
        return applied

    def _demand_files(self, check: Callable[[], None] | None = None) -> None:
        """Raise ``StoreFileLost`` if a file of the store is gone.  In the writing thread."""
        try:
            (check or self._watch.check)()
        except StoreFileLost:
            if self._watch.is_owned():  # Its log is gone: what is there is not, yet.
                with suppress(sqlite3.Error):
                    self._writer.checkpoint()
            raise

    def _look(self) -> None:
        """Notice that files were taken away though nothing is written."""
        if not self.failure:
            try:
                self._demand_files()
            except StoreFileLost as error:
                self._failed(error)

    async def _tidy(self) -> None:
        if self.tip - self._moved > (MAX_LOG if self._queue else CHECKPOINT):
            self._moved = self.tip
            await self._checkpoint()

    async def _prepare(self) -> None:
        if self._mirror is not None and self._mirror.is_far_behind:
            await self._mirror.catch_up()

    async def _put(self, batch: Sequence[Operation]) -> None:
        if self._mirror is not None:
            self._writer.safe = self._mirror.safe
        applied = await self._writing.run(partial(self.write, batch))
        self._depths = applied.depths
        if applied.described and self._mirror is not None:
            self._mirror.committed(applied.described, applied.tip)

    def _is_early(self, draft: SnapshotDraft) -> bool:
        return self._writer.snapshots.is_early(draft)

    async def _keep(self, draft: SnapshotDraft) -> None:
        try:
            await self._writing.run(partial(self._writer.snapshots.keep, draft))
        except sqlite3.Error as error:
            if is_io_error(error):  # What was flushed before may be lost, too.
                await self._fail(error)
                return
            raise

    # ── letting go ───────────────────────────────────────────────────────────────────────────

    keeps_all = True
    cuts_lanes = True

    async def prepare_removals(self) -> None:
        """See ``RemovesTrees``.  Nothing is written meanwhile."""
        self.hold_contents()
        assert self.blobs.held is not None
        contents = partial(NamedContents, folder=self.folder.blobs, held=self.blobs.held)
        await self._drop(lambda: self._writer.prepare_removals(contents), None)

    async def put_by(self, run_ids: Sequence[str]) -> None:
        """See ``RemovesTrees``."""
        if self._mirror is not None:
            await self._mirror.forget(run_ids)

    def hold_contents(self) -> None:
        """See ``DropsContents``."""
        self.blobs.held = self.blobs.held or HeldContents()

    async def look_at_contents(self) -> bool:
        """See ``DropsContents``."""
        contents = self._writer.contents
        if contents is None:
            return False
        return await self._drop(contents.look, False)

    async def drop_contents(self) -> DroppedContents:
        """See ``DropsContents``."""
        contents, held = self._writer.contents, self.blobs.held
        if contents is None or held is None:
            return DroppedContents()
        loose = held.take_loose()
        dropped, found = await self._drop(lambda: contents.drop(loose), NOTHING)
        held.on_record(found)
        return dropped

    async def _drop(self, step: Callable[[], T], otherwise: T) -> T:
        """Have a step done in the writing thread, as long as its files are in their place."""

        def work() -> T:
            self._demand_files()
            return step()

        try:
            if not self.failure:
                return await self._writing.run(work)
        except (sqlite3.Error, StoreFileLost) as error:
            await self._fail(error)
        return otherwise

    async def _checkpoint(self) -> None:
        try:
            if not self.failure:
                await self._writing.run(self._writer.checkpoint)
        except sqlite3.Error as error:
            await self._fail(error)

    async def _fail(self, error: Exception) -> None:
        self._failed(error)
        if isinstance(error, sqlite3.Error):
            await self._writing.run(partial(mark_failed, self.folder.database, error))

    def _failed(self, error: Exception) -> None:
        path = self.folder.database
        if isinstance(error, OperatorError):
            self.failure = str(error)
        elif isinstance(error, sqlite3.Error):
            self.failure = store_failure(path, error)
        else:
            self.failure = f"{path}: {type(error).__name__}: {error}; please report it"
        is_explained = isinstance(error, OperatorError)
        log.error("store.failed", problem=self.failure, exc_info=None if is_explained else error)

    async def projected(self) -> None:
        """Return when the mirror shows everything that was committed before."""
        await self.flush()
        await self._catch_up()

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def reader(self) -> StoreReader:
        """A reader with a connection of its own."""
        return open_sqlite_reader(self.folder, keeps_contents=False)

    async def _ask(self, read: Callable[[], T]) -> T:
        """What the reading thread finds; raises ``StoreFailed`` for a file that it cannot read."""
        with reading_on(self.folder.database):
            return await self._read(read)
