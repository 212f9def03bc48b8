"""A function of this program whose process is killed before one of its steps: a fork of this one.

A step is a call that changes something outside: a statement to a database, a change to a file.
"""

import os
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

__all__ = ["killed_before", "steps_of"]

OF_SYSTEM: Final = frozenset((
    "execute", "executemany", "executescript", "open", "unlink", "remove", "rename", "replace",
    "mkdir", "rmdir", "fsync", "chmod", "fchmod", "pwrite", "close",
))  # fmt: skip
OF_SERVER: Final = frozenset(("execute", "executemany", "copy_in", "close", "connect"))
SERVER: Final = "postgres/server/connection.py"


class Steps:
    """Counts the steps, and ends the process before a certain one."""

    def __init__(self, last: int | None) -> None:
        self.count = 0
        self._last = last

    def __call__(self, frame: Any, what: str, arg: Any) -> None:
        if what == "c_call":
            is_step = getattr(arg, "__name__", "") in OF_SYSTEM
        else:
            code = frame.f_code
            is_step = (
                what == "call" and code.co_name in OF_SERVER and code.co_filename.endswith(SERVER)
            )
        if is_step:
            self.count += 1
            if self.count == self._last:
                os.kill(os.getpid(), signal.SIGKILL)


def steps_of(work: Callable[[], object], scratch: Path) -> int:
    """How many steps ``work`` takes, in a process of its own."""
    note = scratch / "steps"
    assert not killed_before(None, work, note)
    return int(note.read_text())


def killed_before(step: int | None, work: Callable[[], object], note: Path | None = None) -> bool:
    """Do ``work`` in a process that is killed before a step; whether it was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # The child has one thread.
        child = os.fork()
    if not child:
        code = 1
        try:
            steps = Steps(step)
            sys.setprofile(steps)
            work()
            sys.setprofile(None)
            if note is not None:
                note.write_text(str(steps.count))
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False
