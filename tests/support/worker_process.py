"""``hubbub worker`` in a process of its own, and what it says.  Real time."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

__all__ = ["WorkerProcess"]


class WorkerProcess:
    """The command at work in ``folder``; leaving the block kills what is left of it."""

    def __init__(self, folder: Path, *arguments: str, command: str = "worker") -> None:
        self._out = folder / f"{command}-{time.monotonic_ns()}.out"
        self._err = self._out.with_suffix(".err")
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hubbub", command, *arguments],
                cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    def wait_for(self, text: str, seconds: float = 30) -> str:
        """What it has said once ``text`` is among that."""
        deadline = time.monotonic() + seconds
        while text not in (said := self.said):
            is_over = self.process.poll() is not None and text not in self.said
            if is_over or time.monotonic() > deadline:
                raise AssertionError(f"no {text!r} in {said!r}, stderr {self.stderr!r}")
            signal.sigtimedwait([], 0.02)
        return said

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = 30) -> int:
        """The exit code."""
        return self.process.wait(seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
