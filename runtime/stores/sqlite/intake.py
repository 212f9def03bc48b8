"""``SqliteIntake``: ``RunIntake`` of a database on which no runtime is at work."""

import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.sql.intake import SqlIntake
from hubbub.runtime.stores.sqlite.blobs import BlobFolder, contents_in
from hubbub.runtime.stores.sqlite.contents.named import COUNT_DROP, named_by_runs
from hubbub.runtime.stores.sqlite.folder import DataFolder
from hubbub.runtime.stores.sqlite.lock import StoreLock
from hubbub.runtime.stores.sqlite.open_files import StoreWatch
from hubbub.runtime.stores.sqlite.schema import connect, mark_failed, store_failure
from hubbub.runtime.stores.sqlite.store_reader import SqliteStoreReader

__all__ = ["SqliteIntake", "open_sqlite_intake"]


class SqliteIntake(SqlIntake):
    """Puts runs in by the store's writing connection.  See ``RunIntake``."""

    def __init__(self, db: sqlite3.Connection, folder: DataFolder) -> None:
        self._folder = folder
        self._blobs = BlobFolder(folder.blobs)
        super().__init__(db, SqliteStoreReader(folder, db))

    def _begin(self) -> None:
        super()._begin()
        self._made: list[str] = []

    def _begin_writing(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def _failure_of(self, error: BaseException) -> OperatorError | None:
        if not isinstance(error, sqlite3.Error):
            return None
        mark_failed(self._folder.database, error)
        return OperatorError(store_failure(self._folder.database, error))

    def _undo(self) -> None:
        for digest in self._made:  # Nothing names them.
            self._blobs.place(digest).unlink(missing_ok=True)

    def put_content(self, digest: str, content: bytes) -> None:
        if not self._blobs.place(digest).exists():
            self._made.append(digest)
        self._blobs.take_in(digest, content)

    def contents(self) -> Iterator[str]:
        named = named_by_runs(self._db)
        return (place.name for place in contents_in(self._folder.blobs) if place.name not in named)

    def drop_contents(self, digests: Iterable[str]) -> int:
        places = [self._blobs.place(digest) for digest in digests]
        if places:
            with self.all_or_nothing():
                self._db.execute(COUNT_DROP)  # First: a backup looks at it when it has copied.
        for place in places:
            try:
                place.unlink(missing_ok=True)
            except OSError as error:
                raise OperatorError(
                    f"{place}: {error.strerror}; make it removable, and do this again"
                ) from error
        return len(places)

    def settle(self) -> None:
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


@contextmanager
def open_sqlite_intake(folder: DataFolder, new_name: str, command: str) -> Iterator[SqliteIntake]:
    """What takes runs into the store in a folder, which is made if there is none.

    ``command`` is the command that does so, ``new_name`` is what a new store is called.  A store
    that was made for it goes again if what is inside raises.  Raises ``OperatorError`` where
    nothing can be written.
    """
    had_folder, had_blobs = folder.root.exists(), folder.blobs.exists()
    folder.make()
    folder.check_file_system()
    lock = StoreLock(folder.database, command)
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
