"""Copies of a store as of one moment, beside a runtime at work or without one.

The copy holds everything that the store holds, **values of secrets included** (an export never
does): keep it as safe as the store itself.  ``agents/`` is not copied: a runtime that opens the
copy writes it again from the database.
"""

import errno
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from hubbub.hub.errors import OperatorError, StoreFailed
from hubbub.hub.store.reader import Backup
from hubbub.runtime.stores.sqlite.blobs import contents_in
from hubbub.runtime.stores.sqlite.folder import DATABASE, DataFolder
from hubbub.runtime.stores.sqlite.output_file import check_outside_stores
from hubbub.runtime.stores.sqlite.private_files import (
    make_private_file,
    make_private_folder,
    open_private,
)
from hubbub.runtime.stores.sqlite.regular_files import open_regular
from hubbub.runtime.stores.sqlite.schema import connect_read_only, drops_of, store_failure

__all__ = ["back_up"]

PAGES: Final = 2_000
"""Pages of the database that are copied at a time."""

Tell = Callable[[str], object]


def back_up(
    db: sqlite3.Connection, folder: DataFolder, destination: Path, tell: Tell | None = None
) -> Backup:
    """Copy the store in ``folder`` as ``db``, which is in a transaction, sees it.

    See ``StoreReader.back_up``.  ``sqlite:DESTINATION`` opens the copy, whose database gets its
    name last.
    """
    if destination.suffix == ".db":
        raise OperatorError(f"{destination}: a backup is a folder; name one without .db")
    remedy = "name a new folder for the backup"
    copy = DataFolder(destination)
    scratch = copy.database.with_name(f"{DATABASE}.part")
    is_new = _check_free(destination)
    check_outside_stores(destination, remedy=remedy)
    is_ours = True
    try:
        copy.make()
        if not (is_ours := make_private_file(scratch)):
            what = "another backup is being written there"
            raise OperatorError(f"{destination}: {what}; {remedy}")
        return _copy(db, folder, copy, scratch, tell)
    except OSError as error:
        where = error.filename or destination
        remedy = "free some space or name another folder"
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            remedy = "make it accessible, or have its owner make the copy"
        raise OperatorError(f"{where}: {error.strerror or error}; {remedy}") from error
    finally:
        if is_ours and not copy.database.exists():
            _clear(destination, is_new)


def _copy(
    db: sqlite3.Connection, source: DataFolder, copy: DataFolder, scratch: Path, tell: Tell | None
) -> Backup:
    copy.root.chmod(0o700)
    runs, events = _copy_database(db, scratch, tell)
    # Contents are on disk before what names them, and never change: every content that the copied
    # database names is there by now.  Only those go that are no longer named there.
    try:
        contents, size = _copy_contents(source.blobs, copy.blobs)
    finally:
        _check_unpruned(db, source)
    size += scratch.stat().st_size
    scratch.replace(copy.database)
    _sync(copy.root)
    return Backup(folder=str(copy.root), runs=runs, events=events, contents=contents, size=size)


def _check_unpruned(db: sqlite3.Connection, source: DataFolder) -> None:
    """Raise ``OperatorError`` if contents were removed that the copied database may name."""
    with closing(connect_read_only(source.database)) as now:
        if drops_of(now) != drops_of(db):
            raise OperatorError(
                f"{source.database}: was pruned while it was copied; make the backup again"
            )


def _clear(destination: Path, is_new: bool) -> None:
    """Leave nothing of a copy that came to nothing; the folder was empty before, or not there."""
    if not destination.is_dir():
        return
    for place in [*destination.iterdir()]:
        if place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)
    if is_new:
        destination.rmdir()


def _check_free(destination: Path) -> bool:
    """Whether the folder is still to be made; raises ``OperatorError`` where something lies."""
    try:
        is_free = not [*destination.iterdir()]
    except FileNotFoundError:
        return True
    except OSError as error:
        raise OperatorError(f"{destination}: {error.strerror}; name another folder") from error
    if not is_free:
        raise OperatorError(f"{destination}: is not empty; name a new folder for the backup")
    return False


def _copy_database(source: sqlite3.Connection, path: Path, tell: Tell | None) -> tuple[int, int]:
    """Copy the database; returns how many runs and events it has."""

    def progress(status: int, remaining: int, total: int) -> None:
        if tell is not None and remaining and (total - remaining) % (PAGES * 50) == 0:
            tell(f"{100 * (total - remaining) // total} % of the database copied")

    try:
        copy = sqlite3.connect(path)
        try:
            source.backup(copy, pages=PAGES, progress=progress)
            _check_copy(copy, path)
            (runs,) = copy.execute("SELECT count(*) FROM run").fetchone()
            (events,) = copy.execute("SELECT count(*) FROM event").fetchone()
        finally:
            copy.close()
    except sqlite3.Error as error:
        raise OperatorError(store_failure(path, error)) from error
    _sync(path)
    return runs, events


def _check_copy(copy: sqlite3.Connection, path: Path) -> None:
    """A copy of something damaged is no backup."""
    (text,) = copy.execute("PRAGMA quick_check(1)").fetchone()
    if text != "ok":
        words = " ".join(str(text).split())
        raise StoreFailed(str(path), f"{words}; the store is damaged, see hubbub fsck")


def _copy_contents(source: Path, target: Path) -> tuple[int, int]:
    """Copy the contents of files; returns how many there are and their size."""
    count = size = 0
    for place in contents_in(source):
        copy = target / place.parent.name / place.name
        make_private_folder(copy.parent)
        with open_regular(place) as content, open_private(copy) as file:
            shutil.copyfileobj(content, file)
        if _digest(copy) != place.name:
            raise StoreFailed(str(place), "its content has changed; see hubbub fsck")
        copy.chmod(0o400)  # As in a store: an agent's folder shows the very file.
        _sync(copy)
        count += 1
        size += copy.stat().st_size
    if count:
        for folder in (*target.iterdir(), target):
            _sync(folder)
    return count, size


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows knows no such thing.
        return
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
