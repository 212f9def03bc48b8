"""``hubbub serve`` in a process of its own, and requests to it.  Real time."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import httpx

__all__ = ["ServeProcess"]


class ServeProcess:
    """The command at work in ``folder``; leaving the block kills what is left of it."""

    def __init__(self, folder: Path, *arguments: str, port: int = 0, **environ: str) -> None:
        self._log = (folder / "stderr.txt").open("a+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hubbub", "serve", *arguments, "--port", str(port)],
            cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log,
            text=True, start_new_session=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environ},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        found = re.search(r"at (http://\S+:(\d+))", self.said)
        assert found, f"it does not serve: {self.said!r} {self.stderr!r}"
        self.url, self.port = found[1], int(found[2])

    @property
    def stderr(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, trust_env=False, timeout=30, **options)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = 30) -> int:
        """The exit code."""
        return self.process.wait(seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()
