"""``MemberProcess``: a member in a process of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from support.postgres import SECRETS_KEY
from support.postgres_proxy import Proxy

from torture.killing import Problems

__all__ = ["MemberProcess"]

MEMBER: Final = Path(__file__).with_name("member.py")


class MemberProcess:
    """A member, with a proxy of its own between it and the server."""

    def __init__(self, folder: Path, name: str, port: int) -> None:
        self.folder, self.name = folder, name
        self.proxy = Proxy(port)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, address: str, **options: object) -> None:
        command = [
            "setpriv", "--pdeathsig=KILL", sys.executable, str(MEMBER), str(self.folder),
            self.name, "--store", address,
        ]  # fmt: skip
        for key, value in options.items():
            command += [f"--{key}"] if value is True else [f"--{key}", str(value)] if value else []
        environ = {**os.environ, "HUBBUB_SECRETS_KEY": SECRETS_KEY}
        with (self.folder / f"stderr-{self.name}").open("wb") as errors:
            self._process = subprocess.Popen(command, stderr=errors, env=environ)

    def lines(self, what: str) -> list[list[str]]:
        """What it has said of one kind."""
        path = self.folder / f"said-{self.name}"
        text = path.read_text() if path.exists() else ""
        lines = [line.split() for line in text.rpartition("\n")[0].splitlines()]
        return [words[1:] for words in lines if words[:1] == [what]]

    def wait_for(self, what: str, seconds: float) -> None:
        until = monotonic() + seconds
        while not self.lines(what):
            if not self.is_alive:
                raise Problems(f"{self.name} has ended by itself: {self.errors[-3000:]}")
            if monotonic() > until:
                raise Problems(f"{self.name} is not {what!r} after {seconds} s")
            sleep(0.05)

    @property
    def errors(self) -> str:
        return (self.folder / f"stderr-{self.name}").read_text(errors="replace")

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        if self.is_alive:
            assert self._process is not None
            self._process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within some seconds."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def leave(self, seconds: float) -> float:
        """Have it end in order; how long that took."""
        start = monotonic()
        self.send(signal.SIGTERM)
        if not self.wait(seconds):
            raise Problems(f"{self.name} does not leave")
        if not self.lines("left"):
            raise Problems(f"{self.name} has not left in order: {self.errors[-3000:]}")
        return monotonic() - start

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.proxy.close()
