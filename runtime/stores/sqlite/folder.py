"""The folder of a store: its layout.

    hubbub.db         everything, in SQLite         hubbub.db-wal, -shm   its log
    hubbub.db-lock    held by the one runtime at work on the database (``lock.py``)
    hubbub.db-failed  a flush has failed, and the store has not been opened since
    agents/<id>/      each agent's descriptor, state and history, for people and other machines
    blobs/            contents of files, by digest

``sqlite:PATH`` names the folder, or the database in it.  A database of another name, which ends in
``.db``, keeps the last two in the folder ``NAME.db.d`` beside it.  Paths are resolved first: every
link to a database names the same store.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hubbub.hub.errors import BadValue, OperatorError
from hubbub.runtime.stores.sqlite.private_files import make_private_folder, narrow, open_private
from hubbub.runtime.stores.sqlite.regular_files import check_place

__all__ = ["BESIDE", "DATABASE", "DataFolder"]

DATABASE: Final = "hubbub.db"
"""The name of the database in a store's folder."""

BESIDE: Final = ("-wal", "-shm", "-journal", "-wal-copy", "-failed")
"""Suffixes of the files that belong to a database and are beside it."""

LONGEST: Final = DATABASE + max(BESIDE, key=len)
"""The longest name of a file that SQLite and we put into a store's folder."""

NETWORK: Final = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ncpfs", "fuse.sshfs", "glusterfs")
)
"""File systems on which SQLite's log of writes is not safe."""


class DataFolder:
    """The paths of a store's parts.

    Raises ``BadValue`` for an invalid path and ``OperatorError`` for one that cannot be resolved.
    """

    __slots__ = ("_former", "database", "root")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        given, found = Path(path), _resolved(Path(path))
        is_folder = os.path.isdir(found) or ".db" not in (given.suffix, found.suffix)
        self.database = _resolved(found / DATABASE) if is_folder else found
        """The file itself, with links resolved."""
        self.root = self.database.parent
        if not _is_same(self.database, self.root / DATABASE):
            self.root = self.database.with_name(f"{self.database.name}.d")
        former = given.with_name(f"{given.name}.d") if given.suffix == ".db" else given
        beside = self.database.with_name(f"{self.database.name}.d")
        self._former = (former.absolute(), beside)

    @property
    def agents(self) -> Path:
        return self.root / "agents"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    @property
    def files(self) -> tuple[Path, ...]:
        """The database and the files that belong to it, except the lock; they may be missing."""
        name = self.database.name
        return (self.database, *(self.database.with_name(f"{name}{end}") for end in BESIDE))

    def make(self) -> None:
        """Make the folder if it is missing, accessible only to its owner.

        Raises ``OperatorError`` if it cannot be made, and where ``check_files`` and
        ``check_former`` do.
        """
        self.check_files()
        self.check_former()
        try:
            # So that nobody commits a store to a repository by accident.
            if make_private_folder(self.root):
                with open_private(self.root / ".gitignore") as file:
                    file.write(b"*\n")
            make_private_folder(self.database.parent)
        except OSError as error:
            raise OperatorError(
                f"{self.root}: {error.strerror or error}; make it a folder that can be written, or "
                "give another path"
            ) from error
        if not self.blobs.is_dir() and os.path.lexists(self.blobs):
            raise OperatorError(
                f"{self.blobs}: is no folder, and contents of files are kept in it; move it away "
                "and start again"
            )
        narrow(self._wide())

    def check_files(self) -> None:
        """Raise ``OperatorError`` where something else is in the place of one of ``files``."""
        for file in self.files:
            check_place(file)

    def _wide(self) -> Iterator[Path]:
        """Folders made by older versions, which others can read."""
        for folder in (self.agents, self.blobs):
            # Folders that we made are private.  Others may be the user's, with other contents.
            if folder.is_dir() and folder.stat().st_mode & 0o077:
                yield from filter(_is_ours, folder.iterdir())

    def check_former(self) -> None:
        """Raise ``OperatorError`` if agents or contents are in a folder that is no longer used.

        Older versions derived the folder from the path as it was written.
        """
        for folder in self._former:
            if _is_same(folder, self.root):
                continue
            for name in ("agents", "blobs"):
                if _has_something(folder / name):
                    raise OperatorError(
                        f"{folder / name}: belongs to {self.database}, and is not looked for there "
                        f"any more; move what is in it into {self.root / name}, and start again"
                    )

    def check_file_system(self) -> None:
        """Raise ``OperatorError`` for a folder on a network file system."""
        kind = file_system_of(self.database.parent)
        if kind in NETWORK:
            raise OperatorError(
                f"{self.root}: is on a network file system ({kind}), where SQLite can lose what "
                "was acknowledged; give a path on a local disk"
            )


def _resolved(path: Path) -> Path:
    """A path with its links resolved; missing parts stay as they are written.

    Raises ``OperatorError`` for a path that the system cannot resolve, or that is too long for the
    files in it.  It makes nothing first: folders nested that deeply are hard to remove.
    """
    try:
        place = Path(os.path.realpath(path))
        (place / LONGEST).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return place
    except ValueError as error:  # A NUL, or text that no file system can store.
        raise BadValue("store", f"{str(path)!r} is not a path ({error})") from None
    except OSError as error:
        raise OperatorError(f"{path}: {error.strerror}; give another path") from error
    return place


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths name the same file, also on file systems that ignore case."""
    try:
        return one == other or one.samefile(other)
    except OSError:
        return False


def _is_ours(folder: Path) -> bool:
    """Whether a folder in ``agents/`` or ``blobs/`` was certainly made by hubbub."""
    is_of_blobs = len(folder.name) == 2 and folder.parent.name == "blobs"
    return folder.is_dir() and (is_of_blobs or (folder / "descriptor.json").exists())


def _has_something(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


def file_system_of(path: Path) -> str:
    """The system's name for the file system of ``path``; empty if unknown."""
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
