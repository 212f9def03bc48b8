"""A program in a pseudo-terminal, and what it shows there.  Real time."""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

__all__ = ["Terminal"]


class Terminal:
    """A pseudo-terminal with the script in it; ``wait`` reads what appears."""

    def __init__(self, script: Path, backend: str, *args: str, **environ: str) -> None:
        self.master, slave = pty.openpty()
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.shown = ""
        self.process = subprocess.Popen(
            [sys.executable, str(script), backend, *args],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True, cwd=script.parent,
            env={**os.environ, "TERM": "xterm", "PYTHONDONTWRITEBYTECODE": "1", **environ},
        )  # fmt: skip

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def wait(self, text: str, seconds: float = 20.0) -> None:
        """Read until ``text`` is there, after what earlier waits have seen."""
        deadline = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < deadline, f"no {text!r} in {self.shown!r}"
            self._read()
        self.seen, self.shown = self.shown.split(text, 1)

    def wait_end(self, seconds: float = 20.0) -> int:
        """The exit code; what is still shown is in ``shown``."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not leave: {self.shown!r}"
            self._read()
        self._read()
        return self.process.returncode

    def _read(self) -> None:
        if select.select([self.master], [], [], 0.05)[0]:
            self.shown += os.read(self.master, 65536).decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
