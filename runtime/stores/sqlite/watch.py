"""``StoreWatch``: whether the files of an open store are still the ones that lie in its folder.

SQLite goes on writing a file that was removed, renamed or replaced, and nobody would ever find
what it writes.  Names are compared with device and inode; nothing is opened.
"""

import os
from pathlib import Path

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.sqlite.lock import StoreLock, identity_of

__all__ = ["StoreWatch", "TakenAway"]


class TakenAway(OperatorError):
    """A file of a store that is open is not in its place any more."""


class StoreWatch:
    """Begins with what lies there now: the database, its log, and the lock that is held on it."""

    __slots__ = ("_files", "_known", "_owned")

    def __init__(self, database: Path, lock: StoreLock) -> None:
        self._owned = (str(database), str(lock.path))
        logs = (str(database.with_name(f"{database.name}{end}")) for end in ("-wal", "-shm"))
        found = ((name, identity_of(Path(name))) for name in (*self._owned, *logs))
        self._known = {name: identity for name, identity in found if identity is not None}
        for name in self._owned:
            if name not in self._known:
                raise _taken_away(name, "it is gone")
        self._files = tuple(self._known.items())

    def check(self) -> None:
        """Raise ``TakenAway`` for a file that is gone, or is another one."""
        for name, known in self._files:
            try:
                found = os.stat(name)
            except OSError as error:
                raise _taken_away(name, error.strerror or str(error)) from None
            if (found.st_dev, found.st_ino) != known:
                raise _taken_away(name, "another file has its name")

    def is_owned(self) -> bool:
        """Whether the database is in its place, and so is the lock on it."""
        return all(identity_of(Path(name)) == self._known.get(name) for name in self._owned)


def _taken_away(name: str, what: str) -> TakenAway:
    return TakenAway(
        f"{name}: was taken away while the store was open ({what}); put back what was there, or a "
        "backup of the whole store, and start again"
    )
