"""``vacuum``: a database gives back the room that was freed in it.

    a file made by this version    its free pages move to its end and are cut off
    an older file                  rewritten once, and from then on as above

* Nothing in the store changes.  Either is one transaction: killed, or without space, it leaves the
  file as it was.
* The first needs room for the log of what moves: twice what is free, or the size of the file where
  that is less.  A rewriting needs it for two copies of what the file holds: a temporary file, and
  the log.
"""

import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec import Struct

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.sqlite.folder import DataFolder
from hubbub.runtime.stores.sqlite.lock import StoreLock
from hubbub.runtime.stores.sqlite.schema import INCREMENTAL, connect, mark_failed, store_failure
from hubbub.runtime.stores.sqlite.store_reader import open_sqlite_reader

__all__ = ["Vacuumed", "vacuum"]

COMMAND: Final = "hubbub vacuum"

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
    is in use, where there is not enough room, and where the file cannot be written: it is
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
                _cut_off(db, folder, tell or (lambda _: None))
            _checkpoint(db)
        after = path.stat().st_size
    except sqlite3.Error as error:
        mark_failed(path, error)
        raise OperatorError(store_failure(path, error)) from error
    finally:
        lock.release()
    return Vacuumed(file=str(path), before=before, after=after, rewritten=is_older)


def _cut_off(db: sqlite3.Connection, folder: DataFolder, tell: Tell) -> None:
    free, size = _number(db, "freelist_count"), _number(db, "page_size")
    if not free:
        return
    _check_room(min(_number(db, "page_count"), 2 * free) * size, (folder.database.parent,))
    tell(f"{free:,} of {_number(db, 'page_count'):,} pages are free; they are cut off")
    # What cuts them off bit by bit (incremental_vacuum) looks for each page in the list of all that
    # are free: minutes for what this commit does in a second.
    db.execute("PRAGMA auto_vacuum=FULL")
    try:
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE meta SET value = value")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
        db.execute(f"PRAGMA auto_vacuum={INCREMENTAL}")


def _rewrite(db: sqlite3.Connection, folder: DataFolder, tell: Tell) -> None:
    page = _number(db, "page_size")
    held = (_number(db, "page_count") - _number(db, "freelist_count")) * page
    _check_room(held, (folder.database.parent, _temporary()))
    log = folder.database.with_name(f"{folder.database.name}-wal")

    def report() -> None:
        written = log.stat().st_size if log.exists() else 0
        tell(f"{min(99, 50 * written // held + (50 if written else 10))} % rewritten")

    db.set_progress_handler(report, OPERATIONS)
    db.execute("PRAGMA temp_store=FILE")  # Memory may not hold a whole database.
    db.execute(f"PRAGMA auto_vacuum={INCREMENTAL}")
    db.execute("VACUUM")
    db.set_progress_handler(None, OPERATIONS)


def _check_room(needed: int, places: Sequence[Path]) -> None:
    """Raise ``OperatorError`` unless each place has so much room; where they are on one disk, it
    is the sum."""
    devices = [os.stat(place).st_dev for place in places]
    for place, device in zip(places, devices, strict=True):
        wanted, free = needed * devices.count(device), shutil.disk_usage(place).free
        if free < wanted:
            raise OperatorError(
                f"{place}: to make a database smaller takes {wanted:,} bytes of free room there "
                f"meanwhile, and it has {free:,}; make room, and do this again"
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
