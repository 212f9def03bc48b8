"""Where tests keep their files: in memory, where there is enough of it for files."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["keep_files_in_memory"]

MEMORY: Final = Path("/dev/shm")
ENOUGH: Final = 2 << 30


def keep_files_in_memory() -> None:
    """Have every temporary file made in memory, also by the processes that tests start.

    A commit of SQLite waits for the disk, for milliseconds each time; half of the time that tests
    take would be such waits.  CI waits: there, files are on a disk, as they are where ``TMPDIR``
    says so, and where memory for files is small, as it is in a container.
    """
    if os.environ.keys() & {"CI", "TMPDIR"} or not os.access(MEMORY, os.W_OK | os.X_OK):
        return
    if shutil.disk_usage(MEMORY).free >= ENOUGH:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None
