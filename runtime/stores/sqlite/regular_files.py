"""Reading files that others may have put there: only regular ones, up to a bound.

A pipe would be waited for, a device or a hole read without end; a link leads to what is not ours.
The caller gets an ``OSError`` at once, whatever is there.
"""

import errno
import os
import stat
from typing import BinaryIO, Final

from hubbub.hub.errors import OperatorError

__all__ = [
    "AT_ONCE", "MAX_BYTES", "check_place", "check_regular", "open_regular", "read_regular",
]  # fmt: skip

AT_ONCE: Final = (
    getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
)
"""Added where a file is opened: nothing is waited for, and no link followed."""

MAX_BYTES: Final = 512 * 1024 * 1024
"""Nothing that is read whole is larger."""


_KINDS: Final = {
    stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip


def check_place(path: str | os.PathLike[str]) -> None:
    """Raise ``OperatorError`` where something else is in the place of a store's file, or it cannot
    be seen what is; nothing may be there.

    Nothing is opened: SQLite would follow a link, wait for a pipe, and for the rest blame the disk.
    """
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        remedy = "have its owner make the folder accessible, or give another path"
        raise OperatorError(f"{path}: {error.strerror}; {remedy}") from error
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no file")
        raise OperatorError(
            f"{path}: is {kind}, where the store has a file; move it away and start again, or give "
            "another path"
        )


def check_regular(path: str | os.PathLike[str], found: os.stat_result) -> None:
    """Raise ``OSError`` unless what was found is a regular file."""
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, to read.  Raises ``OSError``."""
    check_regular(path, os.lstat(path))  # To open a device may already do something.
    file = os.open(path, os.O_RDONLY | AT_ONCE)
    try:
        check_regular(path, os.fstat(file))
        return os.fdopen(file, "rb")
    except BaseException:
        os.close(file)
        raise


def read_regular(path: str | os.PathLike[str], limit: int = MAX_BYTES) -> bytes:
    """The content of a regular file of ``limit`` bytes at most.  Raises ``OSError``."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= limit and len(content := file.read(limit + 1)) <= limit:
            return content
    raise OSError(errno.EFBIG, f"is larger than {limit >> 20} MiB", str(path))
