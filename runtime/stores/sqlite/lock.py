"""``StoreLock``: at most one runtime, of this process or another one, is at work on a database.

    hubbub.db-lock    beside the database itself, wherever a link to it lies

* It is released by the system when its holder dies, however that comes about.
* It is a lock of the open file (``flock``), not of the process (``fcntl``): a second runtime in one
  process is refused like any other, and nobody loses it by reading the file, as a copy of the
  folder does.
* A child that is forked would hold such a lock with its parent and keep it when that dies, so it
  closes the file, which does not take the lock from the parent.
* A lock counts only while its file is in its place: one that was removed excludes no process.
"""

import os
import sys
from pathlib import Path
from typing import Final

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.sql.in_use import StoreInUse
from hubbub.runtime.stores.sqlite.private_files import make_private_file, narrow
from hubbub.runtime.stores.sqlite.regular_files import AT_ONCE, check_place, check_regular

__all__ = ["StoreLock", "identity_of"]

COMMANDS: Final = (
    "hubbub reply", "hubbub import", "hubbub compact", "hubbub migrate", "hubbub prune",
    "hubbub vacuum",
)  # fmt: skip
"""Commands that hold the lock for a moment, and say so in its file."""

TRIES: Final = 100
"""How often the file of a lock may be taken away in the moment in which it is locked."""


class StoreLock:
    """Held while a process works on a database.

    ``command`` is one of ``COMMANDS``; empty for a runtime.
    """

    __slots__ = ("_command", "_database", "_file", "path")

    def __init__(self, database: Path, command: str = "") -> None:
        self._database = database
        self._command = command
        self.path = database.with_name(f"{database.name}-lock")
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises ``StoreInUse``, which says who has it, and ``OperatorError`` where it cannot be made.
        """
        check_place(self.path)
        narrow((self.path,))
        for _ in range(TRIES):
            if self._try():
                return
        raise OperatorError(
            f"{self.path}: is removed as soon as it is created; leave it there, and start again"
        )

    def _try(self) -> bool:
        """Whether the lock was taken; not so if its file was taken away meanwhile."""
        try:
            make_private_file(self.path)
            check_regular(self.path, os.lstat(self.path))
            self._file = os.open(self.path, os.O_RDWR | AT_ONCE)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self.path.parent.is_dir():
                return False
            raise OperatorError(
                f"{self.path}: {error.strerror}; make the folder writable, or give another path"
            ) from error
        _HELD.add(self)
        file = self._file
        try:
            _lock(file)
        except OSError:
            holder, command = _holder(file)
            self.release()
            if command in COMMANDS:
                raise StoreInUse(
                    f"{self._database}: {command} is at work on this store (process {holder}); "
                    "do this again when it is done",
                    command,
                ) from None
            remedy = "stop it, or give another path"
            if holder == str(os.getpid()):
                remedy = "that is this one: a runtime was not left; leave it, or use that"
            raise StoreInUse(
                f"{self._database}: another runtime is at work on this store (process {holder}); "
                f"{remedy}"
            ) from None
        of_file = os.fstat(file)
        if identity_of(self.path) != (of_file.st_dev, of_file.st_ino):
            self.release()
            return False
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()} {self._command}".rstrip().encode() + b"\n", 0)
        return True

    def is_held(self) -> bool:
        """Whether a process holds the lock; changes nothing."""
        return self.holder() is not None

    def holder(self) -> tuple[str, str] | None:
        """The number of the process that holds the lock, and its command (empty for a runtime).

        ``None`` for nobody; changes nothing.
        """
        try:
            check_regular(self.path, os.lstat(self.path))
            file = os.open(self.path, os.O_RDONLY | AT_ONCE)
        except OSError:
            return None
        try:
            _lock(file)
        except OSError:
            return _holder(file)
        finally:
            os.close(file)
        return None

    def release(self) -> None:
        """Let go; idempotent."""
        file, self._file = self._file, None
        _HELD.discard(self)
        if file is not None:
            os.close(file)


def _holder(file: int) -> tuple[str, str]:
    """What the holder of a lock has written into its file: its number, and its command."""
    text = os.pread(file, 64, 0).decode(errors="replace").strip() or "unknown"
    holder, _, command = text.partition(" ")
    return holder, command


def identity_of(path: Path) -> tuple[int, int] | None:
    """Which file is there, whatever it is called; ``None`` for none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


_HELD: Final[set[StoreLock]] = set()
"""The locks of this process.  Open files are the process's, and a fork concerns them all at once,
which is why the module keeps this list and no runtime does."""


def _let_go_in_child() -> None:
    for lock in tuple(_HELD):
        lock.release()


if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        # Past the end of what is written there: others may read who holds the lock.
        os.lseek(file, 1 << 20, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    os.register_at_fork(after_in_child=_let_go_in_child)
