"""``ContentsLock``: while a copy, an export or a check reads the contents of a store, none goes.

It is a lock of the folder of contents: shared by who reads them, in whichever process, and taken
alone for the moment in which some go.  The system releases it when its holder dies.  Where a
folder cannot be locked there is none: who copies notices what has gone, and says so.
"""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["ContentsLock"]


class ContentsLock:
    """The lock of a folder of contents."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def shared(self) -> Generator[None, None, None]:
        """As long as this lasts no content goes.  It waits while some go."""
        file = _locked(self._folder, alone=False)
        try:
            yield
        finally:
            if file is not None:
                os.close(file)

    @contextmanager
    def alone(self) -> Generator[bool, None, None]:
        """Whether nobody reads the contents who said so; nobody begins as long as this lasts."""
        try:
            file = _locked(self._folder, alone=True)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            if file is not None:
                os.close(file)


if sys.platform == "win32":

    def _locked(folder: Path, *, alone: bool) -> int | None:
        return None  # Windows locks no folder.
else:
    import fcntl

    def _locked(folder: Path, *, alone: bool) -> int | None:
        """The open folder, locked; ``None`` where it cannot be.  Raises ``BlockingIOError``."""
        try:
            file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
        except BlockingIOError:
            os.close(file)
            raise
        except OSError:
            os.close(file)
            return None
        return file
