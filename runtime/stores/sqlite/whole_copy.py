"""The two ends of a copy of a whole store, where they are in a folder.

A copy is written into the database itself, which says until the end that it is none of a store.
What a process that was killed has left of one is removed by the next migration from the same store.
"""

import hashlib
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from hubbub.hub.errors import OperatorError, StoreFailed
from hubbub.runtime.stores.sql.tables import Table
from hubbub.runtime.stores.sql.whole_copy import (
    SqlCopy,
    SqlOriginal,
    target_in_use,
    unfinished_copy,
)
from hubbub.runtime.stores.sqlite.blobs import BlobFolder, contents_in
from hubbub.runtime.stores.sqlite.folder import DataFolder
from hubbub.runtime.stores.sqlite.lock import StoreLock
from hubbub.runtime.stores.sqlite.open_files import StoreWatch
from hubbub.runtime.stores.sqlite.output_file import check_outside_stores
from hubbub.runtime.stores.sqlite.regular_files import read_regular
from hubbub.runtime.stores.sqlite.schema import (
    begin_copy,
    complete_copy,
    connect_read_only,
    source_of_copy,
    store_failure,
)
from hubbub.runtime.stores.sqlite.store_reader import (
    SqliteStoreReader,
    open_sqlite_reader,
    reading,
)

__all__ = ["SqliteCopy", "SqliteOriginal", "open_sqlite_copy", "open_sqlite_original"]

COMMAND: Final = "hubbub migrate"

CHECKPOINT: Final = 20
"""Pages of rows after which the log is moved into the file: it does not grow on."""

REMEDY: Final = "name a new folder, or move away what is there"


class SqliteOriginal(SqlOriginal):
    """A store in a folder that is copied."""

    def __init__(self, folder: DataFolder, reader: SqliteStoreReader) -> None:
        self._folder = folder
        self.reader: SqliteStoreReader = reader

    def secrets(self) -> Iterator[tuple[str, str]]:
        with reading(self._folder.database):
            found = self.reader.runs.secrets()
        yield from found.items()

    def contents(self) -> Iterator[tuple[str, bytes]]:
        try:
            for place in contents_in(self._folder.blobs):
                content = read_regular(place)
                if hashlib.sha256(content).hexdigest() != place.name:
                    raise StoreFailed(str(place), "its content has changed; see hubbub fsck")
                yield place.name, content
        except OSError as error:
            where = error.filename or self._folder.blobs
            raise OperatorError(f"{where}: {error.strerror}; make it readable") from error


@contextmanager
def open_sqlite_original(folder: DataFolder) -> Iterator[SqliteOriginal]:
    """The store in a folder, on which nobody is at work as long as one is inside.

    Raises ``OperatorError`` where there is none, where it is of an older format, or at work.
    """
    with closing(open_sqlite_reader(folder)):  # Where there is none, nothing is made for it.
        lock = StoreLock(folder.database, COMMAND)
        had_lock = lock.path.exists()
        lock.acquire()
    try:
        with closing(open_sqlite_reader(folder)) as reader, reader.one_moment():
            reader.check_newest()
            yield SqliteOriginal(folder, reader)
    finally:
        if not had_lock:
            lock.path.unlink(missing_ok=True)
        lock.release()


class SqliteCopy(SqlCopy):
    """A store in the making in a folder."""

    def __init__(self, db: sqlite3.Connection, folder: DataFolder, name: str) -> None:
        self._db = db
        self._folder = folder
        self._name = name
        self._blobs = BlobFolder(folder.blobs)
        self._pages = 0
        self.reader: SqliteStoreReader = SqliteStoreReader(folder, db)
        self.is_complete = False

    def _put_rows(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        places = ", ".join("?" * len(table.columns))
        insert = f"INSERT INTO {table.name} ({table.names}) VALUES ({places})"
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(insert, rows)
        self._db.execute("COMMIT")
        self._pages += 1
        if self._pages % CHECKPOINT == 0:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _put_secret(self, key: str, value: str) -> None:
        self._db.execute("INSERT INTO secret VALUES (?, ?)", (key, value))

    def _put_content(self, digest: str, content: bytes) -> None:
        self._blobs.take_in(digest, content)

    def _settle(self) -> None:
        """Nothing is derived from the rows."""

    def _complete(self) -> None:
        complete_copy(self._db, self._name)
        self.is_complete = True

    def _failure_of(self, error: Exception, what: str) -> OperatorError | None:
        if isinstance(error, sqlite3.IntegrityError):
            return OperatorError(f"{self.place}: {what} cannot be kept ({error}); see hubbub fsck")
        if isinstance(error, sqlite3.Error):
            return OperatorError(store_failure(self._folder.database, error))
        return None


@contextmanager
def open_sqlite_copy(folder: DataFolder, source: str) -> Iterator[SqliteCopy]:
    """A store in the making in a folder, which is to be a copy of the store called ``source``.

    Raises ``OperatorError`` where the folder holds anything else than an empty store, or an
    unfinished copy of the same one.  If it is not complete when what is inside ends, it goes.
    """
    check_outside_stores(folder.database.parent, remedy=REMEDY)
    had_folder = folder.root.exists()
    folder.make()
    folder.check_file_system()
    lock = StoreLock(folder.database, COMMAND)
    lock.acquire()
    copy: SqliteCopy | None = None
    try:
        try:
            _check_free(folder, source)
            _clear(folder)
            with closing(begin_copy(folder.database, source)) as db:
                watch = StoreWatch(folder.database, lock)
                copy = SqliteCopy(db, folder, source)
                yield copy
                watch.check()
        except sqlite3.Error as error:
            raise OperatorError(store_failure(folder.database, error)) from error
    finally:
        if copy is not None and not copy.is_complete:
            _clear(folder)
        if (copy is None or not copy.is_complete) and not had_folder:
            _unmake(folder, lock)
        lock.release()


def _check_free(folder: DataFolder, source: str) -> None:
    """Raise ``OperatorError`` unless the folder holds nothing, or nothing that is to be kept."""
    found: str | None = ""
    if folder.database.exists():
        found = source_of_copy(folder.database)
    if found is None:
        _check_empty(folder, source)
    elif found not in ("", source):
        raise unfinished_copy(str(folder.database), found)
    log = folder.database.with_name(f"{folder.database.name}-wal")
    if not found and log.exists() and log.stat().st_size and not _size(folder.database):
        raise OperatorError(f"{log}: a log without its database; {REMEDY}")
    for place in (folder.agents, *(() if found else (folder.blobs,))):
        if place.is_dir() and next(place.iterdir(), None) is not None:
            raise OperatorError(f"{place}: is not empty; {REMEDY}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _check_empty(folder: DataFolder, source: str) -> None:
    with closing(connect_read_only(folder.database)) as db:
        reader = SqliteStoreReader(folder, db)
        if any(map(reader.count, ("event", "run", "secret"))):
            raise target_in_use(reader.place, is_copy=reader.name == source)


def _clear(folder: DataFolder) -> None:
    """Remove a copy that is none yet; what says so goes last."""
    shutil.rmtree(folder.blobs, ignore_errors=True)
    for place in reversed(folder.files):
        place.unlink(missing_ok=True)


def _unmake(folder: DataFolder, lock: StoreLock) -> None:
    """Remove the folder that was made for a copy; the lock is still held."""
    (folder.root / ".gitignore").unlink(missing_ok=True)
    lock.path.unlink(missing_ok=True)
    with suppress(OSError):  # Somebody has put something there meanwhile.
        folder.root.rmdir()
