"""Files and folders that are for their owner's eyes only, from the first byte on.

Whatever may hold values of variables is made here.  The mode that a file is made with decides, not
one that it gets later, and neither the umask nor the folder's mode has a say: SQLite gives its log
and its journal the mode of the database, so they follow.  What was there before, and is wider, is
narrowed and reported in the log.
"""

import os
import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from hubbub.hub.errors import OperatorError
from hubbub.hub.logs import log
from hubbub.runtime.stores.sqlite.regular_files import AT_ONCE, check_regular

__all__ = [
    "make_private_file", "make_private_folder", "narrow", "open_private", "open_scratch",
]  # fmt: skip

FILE: Final = 0o600
FOLDER: Final = 0o700
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def open_private(
    path: str | os.PathLike[str], *, append: bool = False, buffering: int = -1
) -> BinaryIO:
    """A private file to write: a new one in the place of any other, or one to append to, narrowed.

    Raises ``OSError``.
    """
    if not append:
        # Another process may have the old one open, and where it was a link it would be another's.
        with suppress(FileNotFoundError):
            os.remove(path)
    flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_EXCL)
    file = os.open(path, flags | AT_ONCE, FILE)
    try:
        check_regular(path, os.fstat(file))
        if _is_posix():
            mode = stat.S_IMODE(os.fstat(file).st_mode)
            if mode & OTHERS or mode & FILE != FILE:  # Before there is anything of ours in it.
                os.fchmod(file, FILE)
        return os.fdopen(file, "ab" if append else "wb", buffering=buffering)
    except BaseException:
        os.close(file)
        raise


def make_private_file(path: Path) -> bool:
    """Make an empty file if there is none; one that is there is not opened.  Returns whether it was
    made.  Raises ``OSError``."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE)
    except FileExistsError:
        return False
    try:
        if _is_posix():
            os.fchmod(file, FILE)  # A umask can have taken the owner's own bits away.
    finally:
        os.close(file)
    return True


def open_scratch(folder: Path) -> tuple[BinaryIO, Path]:
    """A private file to write, under a name that nobody else can have taken; the caller renames or
    removes it.  Raises ``OSError``."""
    file, name = tempfile.mkstemp(dir=folder, prefix=".hubbub-", suffix=".part")
    if _is_posix():
        os.fchmod(file, FILE)
    return os.fdopen(file, "wb"), Path(name)


def make_private_folder(path: str | os.PathLike[str]) -> bool:
    """Make a folder, and those above it, if it is missing; whether it was.  Raises ``OSError``."""
    if os.path.isdir(path):
        return False
    missing = []
    above = os.path.dirname(path)
    while above and not os.path.isdir(above) and above != os.path.dirname(above):
        missing.append(above)
        above = os.path.dirname(above)
    for each in reversed(missing):
        _make_folder(each)
    return _make_folder(path)


def _make_folder(path: str | os.PathLike[str]) -> bool:
    try:
        os.mkdir(path, FOLDER)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return False
    if _is_posix():
        os.chmod(path, FOLDER)
    return True


def narrow(paths: Iterable[Path]) -> None:
    """Take from others what they may do with these files and folders, those that are there.

    None of them is opened, and no link is followed, which may lead to a file of somebody else's.
    Raises ``OperatorError`` for one whose mode cannot be changed.
    """
    if not _is_posix():
        return
    for path in paths:
        try:
            found = path.lstat().st_mode
            mode = stat.S_IMODE(found)
            if not mode & OTHERS or stat.S_ISLNK(found):
                continue
            path.chmod(mode & ~OTHERS)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise OperatorError(
                f"{path}: others may read it, and that cannot be changed ({error.strerror}); have "
                "its owner do so (chmod go= FILE), or give a path on a disk that knows modes"
            ) from error
        log.warning("store.narrowed", path=str(path), mode=f"{mode:04o}")


def _is_posix() -> bool:
    return os.name == "posix"
