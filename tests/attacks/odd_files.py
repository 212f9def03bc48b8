"""What may stand where a file is expected: things that never end, never answer, or are no file."""

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from attacks.scale import scale
from hubbub.runtime.stores.sqlite.regular_files import MAX_BYTES

__all__ = ["ODD_FILES", "put"]


def _socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # The name of a socket is short.
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(scale(MAX_BYTES + 1, 3 << 30))


ODD_FILES: Final[Mapping[str, Callable[[Path], None]]] = {
    "fifo": os.mkfifo,
    "socket": _socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path.name),
    "folder": Path.mkdir,
    "huge": _sparse,
}


def put(kind: str, path: Path) -> None:
    """Put something odd in the place of a file."""
    path.unlink(missing_ok=True)
    ODD_FILES[kind](path)
