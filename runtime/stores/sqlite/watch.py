"""``StoreWatch``: whether the files of an open store are still the files in its folder.

SQLite keeps writing to a file that was removed, renamed or replaced, and no other process would
find what it writes.  The watch compares the device and inode of each name; it opens nothing.

A truncated file keeps its inode, so its size is checked, too: neither the database nor its log
becomes shorter while the store is open, except for a log that was longer than its limit.  A file
overwritten with contents of the same length is detected when it is read.
"""

import os
from pathlib import Path
from typing import Final

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.sqlite.lock import StoreLock, identity_of
from hubbub.runtime.stores.sqlite.schema import MAX_LOG_BYTES

__all__ = ["StoreFileLost", "StoreWatch"]


_UNBOUNDED: Final = 1 << 63


class StoreFileLost(OperatorError):
    """A file of an open store was removed, replaced or truncated."""


class StoreWatch:
    """Compares files with what it found when it was made: the database, its log and its lock."""

    __slots__ = ("_files", "_is_cut", "_kept", "_known", "_owned", "_sizes")

    def __init__(self, database: Path, lock: StoreLock) -> None:
        self._owned = (str(database), str(lock.path))
        logs = [str(database.with_name(f"{database.name}{end}")) for end in ("-wal", "-shm")]
        found = ((name, identity_of(Path(name))) for name in (*self._owned, *logs))
        self._known = {name: identity for name, identity in found if identity is not None}
        for name in self._owned:
            if name not in self._known:
                raise _lost(name, "it is gone")
        self._files = tuple(self._known.items())
        self._kept = {str(database): _UNBOUNDED, logs[0]: MAX_LOG_BYTES}
        """The size up to which a file never becomes shorter."""
        self._sizes = dict.fromkeys(self._kept, 0)
        self._is_cut = False
        self.check()

    def check(self) -> None:
        """Raise ``StoreFileLost`` for a file that is missing, replaced or truncated."""
        for name, known in self._files:
            try:
                found = os.stat(name)
            except OSError as error:
                raise _lost(name, error.strerror or str(error)) from None
            if (found.st_dev, found.st_ino) != known:
                raise _lost(name, "another file has its name")
            if (kept := self._kept.get(name)) is not None:
                if found.st_size < self._sizes[name]:
                    self._is_cut = True
                    raise _lost(name, f"it was cut to {found.st_size:,} bytes")
                self._sizes[name] = min(found.st_size, kept)

    def is_owned(self) -> bool:
        """Whether the database and its lock are in place and not truncated."""
        return not self._is_cut and all(
            identity_of(Path(name)) == self._known.get(name) for name in self._owned
        )


def _lost(name: str, what: str) -> StoreFileLost:
    return StoreFileLost(
        f"{name}: was removed or replaced while the store was open ({what}); put it back, or "
        "restore the whole store from a backup, and start again"
    )
