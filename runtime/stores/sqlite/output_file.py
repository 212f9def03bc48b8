"""Files that a command writes where its user says.

    a regular file, or none yet   replaced as a whole: it has all lines, or is as it was before
    a link                        followed: what it leads to is written
    a device, a pipe              written through, and never replaced
    a folder, a part of a store   refused

Whatever is replaced is written beside it first, under a name that nobody else can have taken.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.sqlite.folder import BESIDE, DATABASE, DataFolder
from hubbub.runtime.stores.sqlite.private_files import open_scratch
from hubbub.runtime.stores.sqlite.regular_files import open_regular

__all__ = ["check_output", "check_outside_stores", "is_standard_output", "write_output"]

_SQLITE: Final = b"SQLite format 3\x00"
"""How every database of SQLite begins."""


def write_output(
    path: Path, lines: Iterable[bytes], *, remedy: str, store: DataFolder | None = None
) -> int:
    """Write ``lines`` to the file that a user names; returns how many there were.

    A regular file is readable by its owner alone, and is there whole or as it was before.  A pipe
    is waited for, as a shell does.  Raises ``OperatorError``, which ends in ``remedy``, where
    nothing can be written, and for what ``check_output`` refuses.
    """
    check_output(path, remedy=remedy, store=store)
    try:
        if _is_written_through(path):
            flags = os.O_WRONLY | getattr(os, "O_NOCTTY", 0)
            with os.fdopen(os.open(path, flags), "wb") as file:
                return _count(file.write(line) for line in lines)
        return _replace(Path(os.path.realpath(path)), lines)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise _refused(path, problem, remedy) from error


def check_output(path: Path, *, remedy: str, store: DataFolder | None = None) -> None:
    """Raise ``OperatorError``, which ends in ``remedy``, for a folder, and for a part of a store.

    Nothing in the folder of ``store`` is written, and no database, and nothing that belongs to one,
    of any other store.
    """
    if _is_folder(path):
        raise _refused(path, "is a folder", remedy)
    check_outside_stores(path, remedy=remedy, store=store)


def check_outside_stores(path: Path, *, remedy: str, store: DataFolder | None = None) -> None:
    """Raise ``OperatorError``, which ends in ``remedy``, for a path that is part of a store, or
    that lies in the folder of ``store``; links are followed."""
    try:
        place = Path(os.path.realpath(path))
        database = _database_of(place) or _database_above(place, store)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise _refused(path, problem, remedy) from error
    if database is not None:
        raise _refused(path, f"belongs to the store of {database}", remedy)


def is_standard_output(path: Path) -> bool:
    """Whether a path names what this process prints to."""
    with suppress(OSError, ValueError):
        return os.path.samestat(os.stat(path), os.fstat(1))
    return False


def _is_folder(path: Path) -> bool:
    with suppress(OSError, ValueError):
        return stat.S_ISDIR(os.stat(path).st_mode)
    return False


def _is_written_through(path: Path) -> bool:
    """Whether something is there that is no regular file.  Raises ``OSError``."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def _replace(place: Path, lines: Iterable[bytes]) -> int:
    file, scratch = open_scratch(place.parent)
    try:
        with file:
            count = _count(file.write(line) for line in lines)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(place)
    except BaseException:
        with suppress(OSError):
            scratch.unlink()
        raise
    return count


def _count(written: Iterable[int]) -> int:
    return sum(1 for _ in written)


def _refused(path: Path, problem: str, remedy: str) -> OperatorError:
    return OperatorError(f"{path}: {problem}; {remedy}")


# ── what belongs to a store ──────────────────────────────────────────────────────────────────


def _database_of(place: Path) -> Path | None:
    """The database that ``place`` is, or is a file of."""
    for end in ("", "-lock", *BESIDE):
        if place.name.endswith(end):
            database = place.with_name(place.name.removesuffix(end))
            if _is_database(database):
                return database
    return None


def _database_above(place: Path, store: DataFolder | None) -> Path | None:
    """The database of a store in one of whose folders ``place`` lies."""
    own = [] if store is None else [*_known(store.root, store.agents, store.blobs)]
    for folder in (place, *place.parents):
        if store is not None and any(os.path.samestat(x, y) for x in _known(folder) for y in own):
            return store.database
        if folder.name in ("agents", "blobs") and (folder.parent / DATABASE).is_file():
            return folder.parent / DATABASE
        if folder.name.endswith(".db.d") and _is_database(beside := folder.with_suffix("")):
            return beside
    return None


def _known(*folders: Path) -> Iterator[os.stat_result]:
    for folder in folders:
        with suppress(FileNotFoundError, NotADirectoryError):
            yield os.stat(folder)


def _is_database(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            return path.name == DATABASE or file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False
