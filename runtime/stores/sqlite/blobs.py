"""Contents of files on disk, by digest: ``blobs/ab/abcdef…``.

A content is written beside its place, flushed, and renamed into it, so that what has a name is
whole; names are its SHA-256, so that a changed content is noticed when it is read.
"""

import errno
import hashlib
import os
from functools import partial
from pathlib import Path

from hubbub.hub.errors import StoreFailed
from hubbub.hub.ports import Worker
from hubbub.runtime.stores.sqlite.private_files import make_private_folder, open_private
from hubbub.runtime.stores.sqlite.regular_files import read_regular

__all__ = ["BlobFolder", "sync_folder"]


class BlobFolder:
    """Keeps contents permanently, each once, whichever runs have it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.worker: Worker | None = None
        """The thread of the store while it is open."""

    async def put(self, root_run_id: str, digest: str, content: bytes) -> None:
        """Keep ``content``, durably when this returns.  Raises ``StoreFailed``."""
        assert self.worker is not None
        await self.worker.run(partial(self._put, digest, bytes(content)))

    async def get(self, root_run_id: str, digest: str) -> bytes | None:
        """A content, or ``None``.  Raises ``StoreFailed`` for one that has changed on disk."""
        assert self.worker is not None
        return await self.worker.run(partial(self._get, digest))

    def drop(self, root_run_id: str) -> None:
        """Nothing: contents are kept as long as the journal that names them."""

    def place(self, digest: str) -> Path:
        return self.root / digest[:2] / digest

    def take_in(self, digest: str, content: bytes) -> None:
        """Keep a content; call where waiting for the disk is allowed, in one thread."""
        self._put(digest, content, ".in")

    def _put(self, digest: str, content: bytes, ending: str = ".new") -> None:
        place = self.place(digest)
        is_new_folder = not place.parent.exists()
        if place.exists():
            sync_folder(place.parent)  # A process may have died before it came to that.
            return
        # One thread each writes under such a name (that of ``worker``, and the one that writes the
        # journal), and what an earlier process left half-written is written over.
        new = place.with_name(f"{digest}{ending}")
        try:
            make_private_folder(place.parent)
            with open_private(new) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            new.chmod(0o400)  # An agent's folder shows the very file.
            new.replace(place)
            sync_folder(place.parent)
            if is_new_folder:
                sync_folder(self.root)
        except OSError as error:
            new.unlink(missing_ok=True)
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            remedy = "free some space" if is_full else f"make {self.root} a folder to write into"
            raise StoreFailed(str(place), f"{error.strerror}; {remedy}") from error

    def _get(self, digest: str) -> bytes | None:
        place = self.place(digest)
        try:
            content = read_regular(place)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreFailed(
                str(place), f"{error.strerror}; put it back from a backup, or make it readable"
            ) from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise StoreFailed(
                str(place),
                "its content has changed; put it back from a backup (hubbub fsck lists all)",
            )
        return content


def sync_folder(folder: Path) -> None:
    """Flush what a folder says of its files; raises ``OSError``."""
    if os.name == "nt":  # Windows knows no such thing.
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
