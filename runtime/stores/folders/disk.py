"""``Disk``: the port of the file system, for what is written beside the store.

Nothing here waits for the device (no fsync): code that needs that does not use this port.  Every
method may raise ``OSError``; what it was to write is then there whole, not at all, or, after
``append``, in part.
"""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

from hubbub.runtime.stores.sqlite.private_files import make_private_folder, open_private
from hubbub.runtime.stores.sqlite.regular_files import (
    MAX_BYTES,
    check_regular,
    open_regular,
    read_regular,
)

__all__ = ["MAX_JSON", "Disk", "RealDisk"]

MAX_JSON: Final = 64 * 1024 * 1024
"""A file that holds one JSON document is no larger."""


class Disk(Protocol):
    """Files and folders, by path."""

    def read(self, path: str, limit: int = MAX_BYTES) -> bytes | None:
        """The content of a regular file of ``limit`` bytes at most; ``None`` when there is none."""
        ...

    def read_end(self, path: str, size: int) -> bytes | None:
        """The last ``size`` bytes of a regular file, or all of it; ``None`` when there is none."""
        ...

    def size(self, path: str) -> int | None:
        """The length of a regular file in bytes; ``None`` when there is none."""
        ...

    def append(self, path: str, data: bytes) -> None:
        """Add to the end of a file, in one write; it is made if there is none."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Put a file in the place of what stood there, if anything did, at once."""
        ...

    def write_new(self, path: str, data: bytes) -> bool:
        """Make a file, at once; whether there was none."""
        ...

    def mkdir(self, path: str) -> bool:
        """Make a folder, and those above it; whether there was none."""
        ...

    def listdir(self, path: str) -> list[str]:
        """The names in a folder, sorted; none when there is no folder."""
        ...

    def is_folder(self, path: str) -> bool:
        """Whether a folder is there, and no link to one."""
        ...

    def is_link(self, path: str) -> bool: ...

    def link_or_copy(self, source: str, path: str) -> None:
        """Show the file ``source`` at ``path`` too, in the place of what stood there."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or an empty folder; no-op when there is none."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it; links are not followed."""
        ...


class RealDisk:
    """The machine's own.  What is made is for its owner's eyes only."""

    def read(self, path: str, limit: int = MAX_BYTES) -> bytes | None:
        try:
            return read_regular(path, limit)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_end(self, path: str, size: int) -> bytes | None:
        try:
            with open_regular(path) as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(0, end - size))
                return file.read(size)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def size(self, path: str) -> int | None:
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        check_regular(path, found)
        return found.st_size

    def append(self, path: str, data: bytes) -> None:
        with open_private(path, append=True, buffering=0) as file:
            _write(file.write(data), data, path)

    def replace(self, path: str, data: bytes) -> None:
        with _beside(path) as beside:
            with open_private(beside, buffering=0) as file:
                _write(file.write(data), data, path)
            os.replace(beside, path)

    def write_new(self, path: str, data: bytes) -> bool:
        # Through a file beside it: one that is there is whole.
        if os.path.lexists(path):
            return False
        self.replace(path, data)
        return True

    def mkdir(self, path: str) -> bool:
        return make_private_folder(path)

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path) and not os.path.islink(path)

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def link_or_copy(self, source: str, path: str) -> None:
        with _beside(path) as beside:
            self.remove(beside)
            try:
                os.link(source, beside)
            except FileNotFoundError:
                raise
            except OSError:  # Another device, or a file system without links.
                with open_regular(source) as content, open_private(beside) as file:
                    shutil.copyfileobj(content, file)
            os.replace(beside, path)
            # Replacing a link by one to the same file does nothing at all.
            self.remove(beside)

    def remove(self, path: str) -> None:
        try:
            os.remove(path)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except (IsADirectoryError, PermissionError):  # What a folder is called, by system.
            if not self.is_folder(path):
                raise
            os.rmdir(path)

    def remove_tree(self, path: str) -> None:
        if self.is_folder(path):
            shutil.rmtree(path)


@contextmanager
def _beside(path: str) -> Iterator[str]:
    """Where a file is made before it is put in its place; its name begins with a dot.

    One that cannot be made, or put there, does not stay.
    """
    folder, name = os.path.split(path)
    beside = os.path.join(folder, f".{name[:40]}.hubbub-tmp")
    try:
        yield beside
    except BaseException:
        with suppress(OSError):
            os.remove(beside)
        raise


def _write(written: int | None, data: bytes, path: str) -> None:
    if written != len(data):
        raise OSError(errno.ENOSPC, "written in part", path)
