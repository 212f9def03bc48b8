"""``vacuum``: a database gives back the room that was freed in it.

    a file made by this version    its free pages move to its end and are cut off, some at a time
    an older file                  rewritten once, and from then on as above

* Nothing in the store changes.  Each part is a transaction: killed, or without space, it leaves the
  file as the last one did, and doing it again goes on.
* A rewriting needs room for two copies of what the file holds: a temporary file, and the log.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec import Struct

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.sqlite.folder import DataFolder
from hubbub.runtime.stores.sqlite.lock import StoreLock
from hubbub.runtime.stores.sqlite.schema import INCREMENTAL, connect, store_failure
from hubbub.runtime.stores.sqlite.store_reader import open_sqlite_reader

__all__ = ["Vacuumed", "vacuum"]

COMMAND: Final = "hubbub vacuum"

PAGES: Final = 2_000
"""Free pages that one transaction cuts off."""

OPERATIONS: Final = 2_000_000
"""Of SQLite's machine, after which a rewriting reports progress."""

Tell = Callable[[str], object]


class Vacuumed(Struct, frozen=True, kw_only=True):
    """What has become of a file."""

    file: str
    before: int
    """Its size in bytes."""
    after: int
    rewritten: bool
    """Whether it was an older file, which was written anew."""


def vacuum(folder: DataFolder, *, tell: Tell | None = None) -> Vacuumed:
    """Make the database in ``folder`` as small as what it holds.

    No runtime may be at work on it.  Readers see what they saw; one that stays keeps the file from
    getting smaller until it has ended.  Raises ``OperatorError`` where there is no store, where it
    is in use, where a rewriting has not enough room, and where the file cannot be written: it is
    then as it was.
    """
    with closing(open_sqlite_reader(folder)):  # Where there is none, nothing is made for it.
        pass
    path = folder.database
    lock = StoreLock(path, COMMAND)
    lock.acquire()
    try:
        with closing(connect(path)) as db:
            _checkpoint(db)
            before = path.stat().st_size
            is_older = _number(db, "auto_vacuum") != INCREMENTAL
            if is_older:
                _rewrite(db, folder, tell or (lambda _: None))
            else:
                _cut_off(db, tell or (lambda _: None))
            _checkpoint(db)
        after = path.stat().st_size
    except sqlite3.Error as error:
        raise OperatorError(store_failure(path, error)) from error
    finally:
        lock.release()
    return Vacuumed(file=str(path), before=before, after=after, rewritten=is_older)


def _cut_off(db: sqlite3.Connection, tell: Tell) -> None:
    free = left = _number(db, "freelist_count")
    while left:
        db.execute(f"PRAGMA incremental_vacuum({PAGES})").fetchall()
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        before, left = left, _number(db, "freelist_count")
        if left >= before:  # It gives up on a file that is damaged, and says nothing.
            break
        tell(f"{100 * (free - left) // free} % of {free:,} free pages given back")


def _rewrite(db: sqlite3.Connection, folder: DataFolder, tell: Tell) -> None:
    page = _number(db, "page_size")
    held = (_number(db, "page_count") - _number(db, "freelist_count")) * page
    _check_room(folder, held)
    log = folder.database.with_name(f"{folder.database.name}-wal")

    def report() -> None:
        written = log.stat().st_size if log.exists() else 0
        tell(f"{min(99, 50 * written // held + (50 if written else 10))} % rewritten")

    db.set_progress_handler(report, OPERATIONS)
    db.execute("PRAGMA temp_store=FILE")  # Memory may not hold a whole database.
    db.execute(f"PRAGMA auto_vacuum={INCREMENTAL}")
    db.execute("VACUUM")
    db.set_progress_handler(None, OPERATIONS)


def _check_room(folder: DataFolder, held: int) -> None:
    """Raise ``OperatorError`` where a rewriting would run out of room."""
    places = (folder.database.parent, _temporary())
    is_one = os.stat(places[0]).st_dev == os.stat(places[1]).st_dev
    for place in places[: 1 if is_one else 2]:
        needed, free = held * (2 if is_one else 1), shutil.disk_usage(place).free
        if free < needed:
            raise OperatorError(
                f"{folder.database}: is of an older hubbub, and rewritten, for which {place} needs "
                f"{needed:,} bytes of free room and has {free:,}; make room, and do this again"
            )


def _temporary() -> Path:
    """Where SQLite makes its temporary files."""
    named = [os.environ.get(name, "") for name in ("SQLITE_TMPDIR", "TMPDIR")]
    for place in (*named, "/var/tmp", "/usr/tmp", "/tmp"):
        if place and os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            return Path(place)
    return Path()


def _checkpoint(db: sqlite3.Connection) -> None:
    """Move what the log holds into the file, as far as no reader is in the way."""
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _number(db: sqlite3.Connection, pragma: str) -> int:
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])
