"""``SqliteIntake``: ``RunIntake`` of a database on which no runtime is at work."""

import shutil
import sqlite3
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from hubbub.hub.errors import OperatorError
from hubbub.hub.events import Event
from hubbub.hub.store.reader import EventRow, RunRow
from hubbub.runtime.stores.sqlite.blobs import BlobFolder
from hubbub.runtime.stores.sqlite.folder import DataFolder
from hubbub.runtime.stores.sqlite.lock import StoreLock
from hubbub.runtime.stores.sqlite.schema import connect, store_failure
from hubbub.runtime.stores.sqlite.store_reader import SqliteStoreReader
from hubbub.runtime.stores.sqlite.watch import StoreWatch

__all__ = ["SqliteIntake", "open_sqlite_intake"]


class _Lane:
    """A run on its way in: its last checksum, its first position, those of its in lane."""

    __slots__ = ("born", "chain", "items")

    def __init__(self) -> None:
        self.born = 0
        self.chain = 0
        self.items = array("q")


class SqliteIntake:
    """Puts runs in by the store's writing connection.  See ``RunIntake``."""

    def __init__(self, db: sqlite3.Connection, folder: DataFolder) -> None:
        self._db = db
        self._folder = folder
        self._blobs = BlobFolder(folder.blobs)
        self.reader = SqliteStoreReader(folder, db)
        self._begin()

    def _begin(self) -> None:
        self.reader.forget_names()
        self._lanes: dict[str, _Lane] = {}
        self._numbers: dict[str, int] = {}
        self._made: list[str] = []
        self._tip = 0

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        self._begin()
        try:
            self._db.execute("BEGIN IMMEDIATE")
            # What is replaced gives no position free: cursors may point there.
            self._tip = self.reader.tip
            yield
            self._db.execute("COMMIT")
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            for digest in self._made:  # Nothing names them.
                self._blobs.place(digest).unlink(missing_ok=True)
            self._begin()
            if isinstance(error, sqlite3.Error):
                raise OperatorError(store_failure(self._folder.database, error)) from error
            raise
        self._begin()

    def remove(self, run_id: str) -> None:
        number = self._number(run_id)
        for statement in _REMOVE:
            self._db.execute(statement, (number,))
        self._lanes.pop(run_id, None)

    def put_event(self, event: Event, body: bytes) -> EventRow:
        run_id, root = event.run_id, event.root_run_id
        lane = self._lanes.setdefault(run_id, _Lane())
        self._tip += 1
        lane.chain = zlib.crc32(body, lane.chain)
        lane.born = lane.born or self._tip
        if event.lane == "in":
            lane.items.append(self._tip)
        self._db.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (
            self._tip, self._number(run_id), self._number(root), event.lane, event.seq, event.type,
            lane.chain, body.decode(),
        ))  # fmt: skip
        return EventRow(
            self._tip, run_id, root, event.lane, event.seq, event.type, lane.chain, body
        )

    def put_run(self, row: RunRow, waiting: Sequence[int]) -> None:
        number, lane = self._number(row.run_id), self._lanes[row.run_id]
        places = [(number, seq, lane.items[seq - 1]) for seq in waiting]
        self._db.executemany("INSERT INTO waiting VALUES (?, ?, ?)", places)
        self._db.execute(_INSERT_RUN, (
            number, row.run_id, row.root_run_id, row.parent_run_id, row.agent, row.name,
            row.session_key, row.kind, row.descriptor, row.status, row.inbox, row.ready, row.seq,
            row.in_seq, lane.chain, row.waiting, row.messages, lane.born, row.created_at,
            row.wake_at, row.recent,
        ))  # fmt: skip

    def put_key(self, run_id: str, source: str, key: str, seq: int) -> bool:
        position = self._lanes[run_id].items[seq - 1]
        insert = "INSERT OR IGNORE INTO accepted VALUES (?, ?, ?, ?)"
        values = (self._number(run_id), source, key, position)
        return self._db.execute(insert, values).rowcount > 0

    def put_note(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO note VALUES (?, ?)", (key, value))

    def put_content(self, digest: str, content: bytes) -> None:
        if not self._blobs.place(digest).exists():
            self._made.append(digest)
        self._blobs.take_in(digest, content)

    def _number(self, run_id: str) -> int:
        number = self._numbers.get(run_id)
        if number is None:
            insert = "INSERT INTO address (run_id) VALUES (?) ON CONFLICT DO NOTHING"
            self._db.execute(insert, (run_id,))
            select = "SELECT number FROM address WHERE run_id = ?"
            (number,) = self._db.execute(select, (run_id,)).fetchone()
            self._numbers[run_id] = number
        return int(number)


_REMOVE: Final = (
    "DELETE FROM event WHERE run = ? AND lane <> 'hub'",
    "DELETE FROM waiting WHERE run = ?",
    "DELETE FROM accepted WHERE run = ?",
    "DELETE FROM run WHERE number = ?",
)
_INSERT_RUN: Final = (
    "INSERT INTO run (number, run_id, root_run_id, parent_run_id, agent, name, session_key, kind, "
    "descriptor, status, inbox, ready, seq, in_seq, chain, waiting, messages, born, created_at, "
    f"wake_at, recent) VALUES ({', '.join('?' * 21)})"
)


@contextmanager
def open_sqlite_intake(folder: DataFolder, new_name: str) -> Iterator[SqliteIntake]:
    """What takes runs into the store in a folder, which is made if there is none.

    ``new_name`` is what a new store is called.  A store that was made for it goes again if what is
    inside raises.  Raises ``OperatorError`` where nothing can be written.
    """
    had_folder, had_blobs = folder.root.exists(), folder.blobs.exists()
    folder.make()
    folder.check_file_system()
    lock = StoreLock(folder.database)
    lock.acquire()
    is_new = not folder.database.exists()
    is_done = False
    try:
        db = connect(folder.database)
        try:
            watch = StoreWatch(folder.database, lock)
            db.execute("INSERT OR IGNORE INTO meta VALUES ('store', ?)", (new_name,))
            yield SqliteIntake(db, folder)
            watch.check()
        except sqlite3.Error as error:
            raise OperatorError(store_failure(folder.database, error)) from error
        finally:
            db.close()
        is_done = True
    finally:
        if is_new and not is_done:
            if not had_blobs:
                shutil.rmtree(folder.blobs, ignore_errors=True)
            _unmake(folder, lock, had_folder)
        lock.release()


def _unmake(folder: DataFolder, lock: StoreLock, had_folder: bool) -> None:
    """Leave no store where there was none; the lock is still held."""
    for place in folder.files:
        place.unlink(missing_ok=True)
    if not had_folder:
        (folder.root / ".gitignore").unlink(missing_ok=True)
    lock.path.unlink(missing_ok=True)
    if not had_folder:
        with suppress(OSError):  # Somebody has put something there meanwhile.
            folder.root.rmdir()
