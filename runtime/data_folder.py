"""The folder of a store: what lies where in it, and who may use it.

    hubbub.db      everything, in SQLite            hubbub.db-wal, -shm   its log
    agents/<id>/   each agent's descriptor, state and history, for people and for other machines
    blobs/         contents of files, by digest
    hubbub.lock    held by the one runtime at work on the folder
    hubbub.db-failed    a flush has failed, and the store has not been opened since

``sqlite:PATH`` names the folder.  A PATH that ends in ``.db`` names the database file, and the
rest lies in the folder ``PATH.d`` beside it.
"""

import os
import sys
from pathlib import Path
from typing import Final

from hubbub.hub.errors import OperatorError

__all__ = ["DataFolder", "FolderLock"]

NETWORK: Final = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ncpfs", "fuse.sshfs", "glusterfs")
)
"""File systems on which SQLite's log of writes is not safe."""


class DataFolder:
    """Where the parts of a store lie."""

    __slots__ = ("database", "root")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        given = Path(path)
        is_file = given.suffix == ".db"
        self.root = given.with_name(given.name + ".d") if is_file else given
        self.database = given if is_file else given / "hubbub.db"

    @property
    def agents(self) -> Path:
        return self.root / "agents"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    def make(self) -> None:
        """Make the folder if it is missing; it is for its owner's eyes only.

        Raises ``OperatorError`` where nothing can be made.
        """
        try:
            is_new = not self.root.exists()
            self.root.mkdir(parents=True, exist_ok=True)
            self.database.parent.mkdir(parents=True, exist_ok=True)
            if is_new:
                self.root.chmod(0o700)
                # What a store holds is nobody's to commit by accident.
                (self.root / ".gitignore").write_text("*\n")
        except OSError as error:
            raise OperatorError(
                f"{self.root}: {error.strerror or error}; make it a folder that can be written, or "
                "give another path"
            ) from error

    def check_file_system(self) -> None:
        """Raise ``OperatorError`` for a folder on a network file system."""
        kind = file_system_of(self.database.parent)
        if kind in NETWORK:
            raise OperatorError(
                f"{self.root}: lies on a network file system ({kind}), where SQLite can lose what "
                "was acknowledged; give a path on a local disk"
            )


class FolderLock:
    """Held while a runtime is at work on a folder; let go of by the system when it dies."""

    __slots__ = ("_file", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise ``OperatorError`` that says who has it."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OperatorError(
                f"{self._path}: {error.strerror}; make the folder writable, or give another path"
            ) from error
        try:
            _lock(file)
        except OSError:
            holder = os.pread(file, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise OperatorError(
                f"{self._path.parent}: another runtime is at work on this store (process "
                f"{holder}); stop it, or give another path"
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def is_held(self) -> bool:
        """Whether somebody has the lock; changes nothing."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            _lock(file)
        except OSError:
            return True
        finally:
            os.close(file)
        return False

    def release(self) -> None:
        """Let go; idempotent."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


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


def file_system_of(path: Path) -> str:
    """The kind of file system that ``path`` lies on, as the system calls it; empty if unknown."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
        place = str(path.resolve())
    except OSError:
        return ""
    best, found = "", ""
    for line in mounts:
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        if (place == point or place.startswith(point.rstrip("/") + "/")) and len(point) >= len(
            best
        ):
            best, found = point, after.split()[0]
    return found
