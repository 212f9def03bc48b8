"""Contents of files on disk, by digest: ``blobs/ab/abcdef…`` (T-07).

A content is written beside its place, flushed, and renamed into it, so that what has a name is
whole; names are its SHA-256, so that a changed content is noticed when it is read.
"""

import hashlib
import os
from functools import partial
from pathlib import Path

from hubbub.hub.errors import StoreFailed
from hubbub.hub.ports import IdSource, Worker

__all__ = ["BlobFolder"]


class BlobFolder:
    """Keeps contents for ever, each once, whichever runs have it."""

    def __init__(self, root: Path, ids: IdSource) -> None:
        self.root = root
        self._ids = ids
        self.worker: Worker | None = None
        """The thread of the store while it is open."""

    async def put(self, root_run_id: str, digest: str, content: bytes) -> None:
        """Keep ``content``, durably when this returns.  Raises ``StoreFailed``."""
        assert self.worker is not None
        scratch = f"new-{self._ids.number():012x}"
        await self.worker.run(partial(self._put, digest, bytes(content), scratch))

    async def get(self, root_run_id: str, digest: str) -> bytes | None:
        """A content, or ``None``.  Raises ``StoreFailed`` for one that has changed on disk."""
        assert self.worker is not None
        return await self.worker.run(partial(self._get, digest))

    def drop(self, root_run_id: str) -> None:
        """Nothing: contents are kept as long as the journal that names them."""

    def place(self, digest: str) -> Path:
        return self.root / digest[:2] / digest

    def _put(self, digest: str, content: bytes, scratch: str) -> None:
        place = self.place(digest)
        if place.exists():
            return
        new = place.with_name(scratch)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with new.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            new.replace(place)
            _sync_folder(place.parent)
        except OSError as error:
            new.unlink(missing_ok=True)
            raise StoreFailed(str(place), f"{error.strerror}; free some space") from error

    def _get(self, digest: str) -> bytes | None:
        place = self.place(digest)
        try:
            content = place.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreFailed(str(place), f"{error.strerror}; make it readable") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise StoreFailed(
                str(place),
                "its content has changed; put it back from a backup (hubbub fsck lists all)",
            )
        return content


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows knows no such thing.
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
