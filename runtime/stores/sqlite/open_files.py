"""The files of an open store: ``StoreWatch`` and ``LogRoom``.

The watch says whether they are still the files in the store's folder.  SQLite keeps writing to a
file that was removed, renamed or replaced, and no other process would find what it writes.  The
watch compares the device and inode of each name; it opens nothing.

A truncated file keeps its inode, so its size is checked, too: neither the database nor its log
becomes shorter while the store is open, except for a log that was longer than its limit.  A file
overwritten with contents of the same length is detected when it is read.

The room is at the end of the log, so that few commits make the file longer.  The flush of a file
that has become longer has the file system write down its new length, too, which takes about as long
again as the flush itself.  A log that SQLite begins again does not grow; one that does is made
longer ahead of what is written, by zeros.  SQLite reads a log up to the first frame that is none of
it: zeros are none, as little as what an earlier use has left there.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.sqlite.lock import StoreLock, identity_of
from hubbub.runtime.stores.sqlite.regular_files import AT_ONCE
from hubbub.runtime.stores.sqlite.schema import MAX_LOG_BYTES

__all__ = ["MOST", "LogRoom", "StoreFileLost", "StoreWatch"]


MOST: Final = 1024 * 1024
"""Bytes of room that are made at once, at most: the commit that flushes them takes longer."""

_UNBOUNDED: Final = 1 << 63

_REPLACED: Final = "another file has its name"


class StoreFileLost(OperatorError):
    """A file of an open store was removed, replaced or truncated."""


class StoreWatch:
    """Compares files with what it found when it was made: the database, its log and its lock."""

    __slots__ = ("_holding", "_is_cut", "_known", "_log", "_others", "_owned", "_sizes")

    def __init__(self, database: Path, lock: StoreLock) -> None:
        self._owned = (str(database), str(lock.path))
        self._log = str(database.with_name(f"{database.name}-wal"))
        names = (*self._owned, self._log, str(database.with_name(f"{database.name}-shm")))
        found = ((name, identity_of(Path(name))) for name in names)
        self._known = {name: identity for name, identity in found if identity is not None}
        for name in self._owned:
            if name not in self._known:
                raise _lost(name, "it is gone")
        kept = {str(database): _UNBOUNDED, self._log: MAX_LOG_BYTES}
        known = self._known.items()
        self._holding = tuple((name, *each, kept[name]) for name, each in known if name in kept)
        """The files that hold what was written: name, device, inode, and the size up to which it
        never becomes shorter."""
        self._others = tuple((name, *each) for name, each in known if name not in kept)
        self._sizes = dict.fromkeys(kept, 0)
        self._is_cut = False
        self.check()

    def check(self) -> None:
        """Raise ``StoreFileLost`` for a file that is missing, replaced or truncated."""
        for name, device, inode in self._others:
            found = _look_at(name)
            if found.st_ino != inode or found.st_dev != device:
                raise _lost(name, _REPLACED)
        self.check_written()

    def check_written(self) -> None:
        """The same of the files that hold what was written.

        Once a batch is written, it is nowhere else; without the others it is found all the same.
        """
        sizes = self._sizes
        for name, device, inode, kept in self._holding:
            found = _look_at(name)
            if found.st_ino != inode or found.st_dev != device:
                raise _lost(name, _REPLACED)
            size = found.st_size
            if size != sizes[name]:
                if size < sizes[name]:
                    self._is_cut = True
                    raise _lost(name, f"it was cut to {size:,} bytes")
                sizes[name] = min(size, kept)

    @property
    def log_size(self) -> int:
        """How long the log was when it was checked last, as far as it never becomes shorter."""
        return self._sizes[self._log]

    def is_owned(self) -> bool:
        """Whether the database and its lock are in place and not truncated."""
        return not self._is_cut and all(
            identity_of(Path(name)) == self._known.get(name) for name in self._owned
        )


class LogRoom:
    """Keeps room in the log of an open database.  In its writing thread, between transactions."""

    __slots__ = ("_end", "_log")

    def __init__(self, database: Path) -> None:
        self._log = database.with_name(f"{database.name}-wal")
        self._end = 0
        """Up to where there is room."""

    def keep(self, size: int) -> None:
        """Make room for as much again if the log, now of this size, has used up what there was.

        Where there is no place for it the log grows as it would without.
        """
        if size <= self._end:
            return
        self._end = size
        with suppress(OSError):
            # SQLite holds no lock on its log, which closing it here would take from SQLite.
            file = os.open(self._log, os.O_WRONLY | os.O_APPEND | AT_ONCE)
            with os.fdopen(file, "ab", buffering=0) as log:
                self._end += log.write(bytes(min(size, MOST)))


def _look_at(name: str) -> os.stat_result:
    try:
        return os.stat(name)
    except OSError as error:
        raise _lost(name, error.strerror or str(error)) from None


def _lost(name: str, what: str) -> StoreFileLost:
    return StoreFileLost(
        f"{name}: was removed or replaced while the store was open ({what}); put it back, or "
        "restore the whole store from a backup, and start again"
    )
