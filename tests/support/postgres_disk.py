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

__all__ = ["SmallDisk", "mounted_disk", "small_disk"]

MEGABYTES: Final = 40
"""A database without tables takes 8 of them."""


class SmallDisk:
    """A folder ``space`` on it is for a server, and may be full."""

    def __init__(self, folder: Path) -> None:
        self.space = folder / "space"
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no byte on it."""
        with self._ballast.open("wb") as file, suppress(OSError):
            while True:
                os.write(file.fileno(), bytes(4096))

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


@contextmanager
def mounted_disk(server: Server, megabytes: int = MEGABYTES) -> Iterator[SmallDisk]:
    """A disk in memory for a server; skips the test where none can be mounted."""
    with tempfile.TemporaryDirectory(prefix="disk") as name:
        Path(name).chmod(0o755)
        size = f"size={megabytes}m,mode=0755"
        mount = ("mount", "-t", "tmpfs", "-o", size, "tmpfs", name)
        if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("mounting a small disk takes root")
        try:
            disk = SmallDisk(Path(name))
            disk.space.mkdir()
            owner = server.folder.stat()
            os.chown(disk.space, owner.st_uid, owner.st_gid)
            yield disk
        finally:
            subprocess.run(("umount", "-l", name), check=True)


@contextmanager
def small_disk(server: Server) -> Iterator[SmallDisk]:
    """A disk with a tablespace ``small`` on it, and a database of the same name."""
    with mounted_disk(server) as disk:
        server.query(f"CREATE TABLESPACE small LOCATION '{disk.space}'")
        server.query("CREATE DATABASE small TABLESPACE small")
        yield disk
        disk.free()
        server.query("DROP DATABASE IF EXISTS small WITH (FORCE)")
        server.query("DROP TABLESPACE IF EXISTS small")
