"""``StoreFile``: a store as the command line reads it, beside a runtime at work or without one.

Only what is committed is read, nothing is written, and the table of secret values is never
touched.  What goes wrong, damage included, is an ``OperatorError`` in one line; nothing else of
the database's comes out.
"""

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from hubbub.hub.errors import BadValue, OperatorError, StoreFailed
from hubbub.hub.events import Event, FileRef
from hubbub.hub.events.codec import decode_event
from hubbub.runtime.stores.open import folder_of_store
from hubbub.runtime.stores.sqlite.folder import DataFolder
from hubbub.runtime.stores.sqlite.schema import connect_read_only, store_failure

__all__ = [
    "BY_ID", "IMPORTED", "MIN_PART", "UNREADABLE", "NoOneRun", "StoreFile", "Stored", "decoded",
    "failure_of", "files_of", "open_store_file",
]  # fmt: skip

IMPORTED: Final = "imported/"
"""Begins the notes that name the store where an imported run has been: its own parents and root
may be missing here."""

PAGE: Final = 1_000
"""Events that are read at a time."""

BY_ID: Final = "number = (SELECT number FROM address WHERE run_id = ?)"
"""Finds the row of a run by its id, with the one index that there is for that."""

MIN_PART: Final = 4
"""Characters of a run id that may stand for the whole of it."""

MAX_CANDIDATES: Final = 8

UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)
"""What reading a damaged database raises; the latter, where its error's words are damaged too."""


class Stored(Struct, frozen=True):
    """A durable event and where it stands in the store's one order."""

    position: int
    event: Event


class NoOneRun(OperatorError):
    """What was given as a run stands for none, or for several."""

    def __init__(self, given: str, candidates: tuple[str, ...]) -> None:
        self.candidates = candidates
        if not candidates:
            what = "no such run in this store; hubbub runs --all lists them"
        else:
            shown = ", ".join(candidates[:MAX_CANDIDATES])
            more = ", …" if len(candidates) > MAX_CANDIDATES else ""
            what = f"may be any of {shown}{more}; write more of it"
        super().__init__(f"run {given!r}: {what}")


class StoreFile:
    """A store opened for reading.  ``db`` decodes texts leniently: damage is shown, not raised."""

    def __init__(self, folder: DataFolder, db: sqlite3.Connection) -> None:
        self.folder = folder
        self.db = db

    @property
    def name(self) -> str:
        """What the store is called in cursors and exports."""
        found = self.db.execute("SELECT value FROM meta WHERE key = 'store'").fetchone()
        return str(found[0]) if found is not None else ""

    @property
    def tip(self) -> int:
        """The position of the last committed event."""
        (tip,) = self.db.execute("SELECT coalesce(max(position), 0) FROM event").fetchone()
        return int(tip)

    @contextmanager
    def one_moment(self) -> Generator[None, None, None]:
        """What is read inside is of one moment, whatever is written meanwhile."""
        self.db.execute("BEGIN")
        try:
            # A transaction begins with its first read.
            self.db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            yield
        finally:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")

    def find(self, given: str) -> str:
        """The run that ``given`` stands for: its id, or a beginning or an end of it.

        Raises ``NoOneRun``, which lists the candidates.
        """
        if self.db.execute(f"SELECT 1 FROM run WHERE {BY_ID}", (given,)).fetchone():
            return given
        if len(given) < MIN_PART:
            known = "a part of a run's id has at least"
            raise OperatorError(f"run {given!r}: {known} {MIN_PART} characters; write more of it")
        select = (
            "SELECT run_id FROM run WHERE run_id >= ?1 AND run_id < ?2 "
            "UNION SELECT run_id FROM run WHERE substr(run_id, -length(?1)) = ?1 "
            "ORDER BY run_id LIMIT ?3"
        )
        values = (given, f"{given}\U0010ffff", MAX_CANDIDATES + 1)
        found = tuple(str(run_id) for (run_id,) in self.db.execute(select, values))
        if len(found) != 1:
            raise NoOneRun(given, found)
        return found[0]

    def number(self, run_id: str) -> int | None:
        """What stands for a run in the table of events."""
        select = "SELECT number FROM address WHERE run_id = ?"
        found = self.db.execute(select, (run_id,)).fetchone()
        return found[0] if found is not None else None

    def events(self, run_id: str | None = None, *, after: int = 0) -> Iterator[Stored]:
        """The events of a run, the hub's own about it included, or of the whole store, in order.

        Read page by page: what is committed while one reads is seen too, unless one reads in
        ``one_moment``.
        """
        for position, body in self.bodies(run_id, after=after):
            yield Stored(position, decoded(self.folder, position, body))

    def bodies(self, run_id: str | None = None, *, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """The same, as they are written."""
        where, values = "position > ?", [after]
        if run_id is not None:
            where, values = f"run = ? AND {where}", [self.number(run_id) or -1, after]
        select = (
            f"SELECT position, CAST(body AS BLOB) FROM event WHERE {where} "
            f"ORDER BY position LIMIT {PAGE}"
        )
        while rows := self.db.execute(select, values).fetchall():
            yield from rows
            values[-1] = rows[-1][0]

    def last_events(self, run_id: str | None = None) -> Iterator[Stored]:
        """The same events, the last one first."""
        where, values = "position <= ?", [self.tip]
        if run_id is not None:
            where, values = f"run = ? AND {where}", [self.number(run_id) or -1, self.tip]
        select = (
            f"SELECT position, CAST(body AS BLOB) FROM event WHERE {where} "
            f"ORDER BY position DESC LIMIT {PAGE}"
        )
        while rows := self.db.execute(select, values).fetchall():
            for position, body in rows:
                yield Stored(position, decoded(self.folder, position, body))
            values[-1] = rows[-1][0] - 1


def decoded(folder: DataFolder, position: int, body: Any) -> Event:
    """The event that stands at a position.  Raises ``StoreFailed`` for what is none."""
    try:
        return decode_event(body)
    except (BadValue, TypeError, ValueError, RecursionError) as error:
        raise StoreFailed(
            str(folder.database),
            f"what stands at position {position} is no event ({error}); hubbub fsck lists all "
            "damage, a backup undoes it",
        ) from error


def files_of(event: Event) -> Iterator[FileRef]:
    """Every file that an event names, in what it takes too."""
    yield from getattr(event, "files", ())
    for item in getattr(event, "items", ()):
        yield from getattr(item, "files", ())


@contextmanager
def open_store_file(store: str) -> Generator[StoreFile, None, None]:
    """Open the store that ``store`` (``sqlite:PATH``) names, for as long as one is inside.

    Raises ``BadValue`` for a text that names none and ``OperatorError`` where there is none, or
    where it cannot be read, then or later.
    """
    if store == "memory":
        raise OperatorError("a store in memory ends with its program; give --store sqlite:PATH")
    folder = folder_of_store(store)
    if not folder.database.is_file():
        raise OperatorError(
            f"{folder.database}: no such store; give the folder that a runtime has used: "
            "--store sqlite:PATH"
        )
    folder.check_former()
    try:
        db = connect_read_only(folder.database)
    except UNREADABLE as error:
        raise OperatorError(failure_of(folder.database, error)) from error
    db.text_factory = _text
    try:
        yield StoreFile(folder, db)
    except UNREADABLE as error:
        raise OperatorError(failure_of(folder.database, error)) from error
    finally:
        db.close()


def failure_of(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> str:
    """What is wrong with a database, and what to do, in one line."""
    if isinstance(error, sqlite3.Error):
        return store_failure(path, error)
    return f"{path}: its tables' names are garbled; put a backup in its place"


def _text(data: bytes) -> str:
    return data.decode(errors="backslashreplace")
