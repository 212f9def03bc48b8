"""``small_disk``: a disk of a few megabytes for a database, which can be full."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from support.postgres import Server

__all__ = ["SmallDisk", "small_disk"]

MEGABYTES: Final = 40
"""A database without tables takes 8 of them."""


class SmallDisk:
    """A tablespace ``small`` with a database of the same name."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._ballast = folder / "ballast"
        self._space = folder / "space"

    def make(self) -> None:
        self._space.mkdir()
        os.chown(self._space, self._server.data.stat().st_uid, self._server.data.stat().st_gid)
        self._server.query(f"CREATE TABLESPACE small LOCATION '{self._space}'")
        self._server.query("CREATE DATABASE small TABLESPACE small")

    def fill(self) -> None:
        """Leave no byte on it."""
        with self._ballast.open("wb") as file, suppress(OSError):
            while True:
                os.write(file.fileno(), bytes(4096))

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def drop(self) -> None:
        self.free()
        self._server.query("DROP DATABASE IF EXISTS small WITH (FORCE)")
        self._server.query("DROP TABLESPACE IF EXISTS small")


@contextmanager
def small_disk(server: Server) -> Iterator[SmallDisk]:
    """A disk in memory for a server; skips the test where none can be mounted."""
    with tempfile.TemporaryDirectory(prefix="disk") as name:
        Path(name).chmod(0o755)
        size = f"size={MEGABYTES}m,mode=0755"
        mount = ("mount", "-t", "tmpfs", "-o", size, "tmpfs", name)
        if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("mounting a small disk takes root")
        disk = SmallDisk(server, Path(name))
        try:
            disk.make()
            yield disk
            disk.drop()
        finally:
            subprocess.run(("umount", "-l", name), check=True)
