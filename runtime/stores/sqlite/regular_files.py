"""Reading files that others may have put there: only regular ones, up to a bound.

A pipe would be waited for, a device or a hole read without end; a link leads to what is not ours.
The caller gets an ``OSError`` at once, whatever is there.
"""

import errno
import os
import stat
from typing import BinaryIO, Final

__all__ = ["AT_ONCE", "MAX_BYTES", "check_regular", "open_regular", "read_regular"]

AT_ONCE: Final = (
    getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
)
"""Added where a file is opened: nothing is waited for, and no link followed."""

MAX_BYTES: Final = 512 * 1024 * 1024
"""Nothing that is read whole is larger."""


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
