"""``SqliteStoreReader``: ``StoreReader`` of a database, beside a runtime at work or without one.

Texts are decoded leniently: damage is shown, not raised.  SQLite's own complaints come out as
``StoreUnreadable`` and in no other form.
"""

import sqlite3
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

from hubbub.hub.errors import OperatorError
from hubbub.hub.store.cursor import is_position
from hubbub.hub.store.reader import Backup, ProcessRow, StoreUnreadable
from hubbub.runtime.stores.sql.connection import SqlDialect
from hubbub.runtime.stores.sql.store_reader import SqlStoreReader
from hubbub.runtime.stores.sqlite.backup import back_up
from hubbub.runtime.stores.sqlite.contents.lock import ContentsLock
from hubbub.runtime.stores.sqlite.contents.named import LOOKED_AT
from hubbub.runtime.stores.sqlite.folder import DataFolder
from hubbub.runtime.stores.sqlite.lock import StoreLock
from hubbub.runtime.stores.sqlite.migrations import check_newest
from hubbub.runtime.stores.sqlite.regular_files import read_regular
from hubbub.runtime.stores.sqlite.schema import connect_read_only, store_failure

__all__ = ["SqliteStoreReader", "open_sqlite_reader", "reading"]

UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged database raises; the latter, where its error's words are damaged too."""

SQLITE: Final = SqlDialect(
    begin_reading="BEGIN",
    body="CAST(body AS BLOB)",
    body_of_e="CAST(e.body AS BLOB)",
    event_of_run="event INDEXED BY event_run",
    event_of_end="event",
    # Each row is read when it is asked for.
    page=(
        "SELECT position, run, lane, type, crc, body FROM event WHERE {where} "
        "ORDER BY position LIMIT {rows}"
    ),
    damage=UNREADABLE,
)


class SqliteStoreReader(SqlStoreReader):
    """Reads by a connection of its own, which it closes.  See ``StoreReader``."""

    _db: sqlite3.Connection

    def __init__(
        self, folder: DataFolder, db: sqlite3.Connection, *, keeps_contents: bool = False
    ) -> None:
        super().__init__(db, SQLITE)
        self._folder = folder
        self._keeps_contents = keeps_contents
        """Whether no content goes beside runs at work as long as it reads as of one moment."""

    @property
    def place(self) -> str:
        return str(self._folder.database)

    def _reading(self) -> AbstractContextManager[None]:
        return reading(self._folder.database)

    @contextmanager
    def one_moment(self) -> Generator[None, None, None]:
        stays = ContentsLock(self._folder.blobs).shared()
        with stays if self._keeps_contents else nullcontext(), super().one_moment():
            yield

    # ── contents of files ────────────────────────────────────────────────────────────────────

    def content(self, digest: str) -> bytes:
        return read_regular(self.place_of(digest))

    def place_of(self, digest: str) -> str:
        return str(self._folder.blobs / digest[:2] / digest)

    def check_newest(self) -> None:
        """Raise ``OperatorError`` for a database of an older format."""
        with self._reading():
            check_newest(self._db, self._folder.database)

    # ── the store itself ─────────────────────────────────────────────────────────────────────

    def is_at_work(self) -> bool:
        return StoreLock(self._folder.database).is_held()

    def processes(self) -> Sequence[ProcessRow]:
        if (holder := StoreLock(self._folder.database).holder()) is None:
            return []
        process, command = holder
        ((trees, running),) = self._all(_AT_WORK)
        name = f"{command} (process {process})" if command else f"process {process}"
        return [ProcessRow(name=name, is_worker=not command, trees=trees, running=running)]

    def free_trees(self) -> Mapping[str, int]:
        if StoreLock(self._folder.database).is_held():
            return {}
        return dict(self._all(_FREE))

    def faults(self, *, thorough: bool = False) -> Iterator[str]:
        pragma = "integrity_check" if thorough else "quick_check"
        for (text,) in self._all(f"PRAGMA {pragma}(100)"):
            if text != "ok":
                yield " ".join(str(text).split())
        for (place,) in self._all(LOOKED_AT):
            if not is_position(place):
                yield "meta: up to where contents were looked at cannot be read; it heals by itself"

    def back_up(self, destination: Path, tell: Callable[[str], object] | None = None) -> Backup:
        with self.one_moment():  # Else a writer would make it begin again and again.
            return back_up(self._db, self._folder, destination, tell)


_AT_WORK: Final = (
    "SELECT count(DISTINCT root_run_id), coalesce(sum(status = 'active'), 0) FROM run "
    "WHERE status <> 'ended'"
)
_FREE: Final = (
    "SELECT root.agent, count(*) FROM (SELECT DISTINCT root_run_id FROM run "
    "WHERE status <> 'ended') AS live JOIN run AS root ON root.run_id = live.root_run_id "
    "GROUP BY root.agent ORDER BY root.agent"
)


def open_sqlite_reader(folder: DataFolder, *, keeps_contents: bool = True) -> SqliteStoreReader:
    """A reader of the store in a folder; close it.  With ``keeps_contents`` what it sees as of one
    moment has its contents of files, also beside a runtime.

    Raises ``OperatorError`` where there is no store, or where it cannot be read.
    """
    folder.check_files()
    if not folder.database.is_file():
        raise OperatorError(
            f"{folder.database}: no such store; give the folder that a runtime has used: "
            "--store sqlite:PATH"
        )
    folder.check_former()
    with reading(folder.database):
        db = connect_read_only(folder.database)
    db.text_factory = _text
    return SqliteStoreReader(folder, db, keeps_contents=keeps_contents)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever SQLite complains of inside is a ``StoreUnreadable``."""
    try:
        yield
    except UNREADABLE as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> StoreUnreadable:
    if isinstance(error, UnicodeDecodeError):
        what, remedy = "its tables' names are garbled", "restore it from a backup"
    else:
        words = store_failure(path, error).removeprefix(f"{path}: ")
        what, _, remedy = words.partition("; ")
    return StoreUnreadable(str(path), what, remedy)


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")
