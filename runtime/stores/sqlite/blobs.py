"""Contents of files on disk, by digest: ``blobs/ab/abcdef…``.

A content is written beside its place, flushed, and renamed into it, so that what has a name is
whole; names are its SHA-256, so that a changed content is noticed when it is read.
"""

import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from hubbub.hub.errors import StoreFailed
from hubbub.hub.ports import Worker
from hubbub.runtime.stores.sqlite.contents.held import HeldContents
from hubbub.runtime.stores.sqlite.private_files import make_private_folder, open_private
from hubbub.runtime.stores.sqlite.regular_files import read_regular

__all__ = ["BlobFolder", "contents_in", "sync_folder"]

DIGEST: Final = 64
"""Characters of the name of a content."""

MAX_COMPARED: Final = 100_000
"""Contents of which it is remembered that they were found whole."""


class BlobFolder:
    """Keeps contents permanently, each once, whichever runs have it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.worker: Worker | None = None
        """The thread of the store while it is open."""
        self.writing: Worker | None = None
        """The one in which contents go that nothing names."""
        self.held: HeldContents | None = None
        """What does not; ``None`` where none go while the store is open."""
        self._compared: dict[str, tuple[int, int, int]] = {}
        """Contents that have been found whole since the store was opened, with what tells whether
        the file is still the same."""
        self._on_disk: set[str] = set()
        """The folders in ``root``, 256 at most, of which it is known that they are flushed."""

    async def put(self, root_run_id: str, digest: str, content: bytes) -> None:
        """Keep ``content``, durably when this returns.  Raises ``StoreFailed``."""
        assert self.worker is not None
        content = bytes(content)
        if self.held is None:
            await self.worker.run(partial(self._put, digest, content))
            return
        self.held.hold(root_run_id, (digest,))
        await self.worker.run(partial(self._put, digest, content))
        # It may have been found whole while it went, for the last time: it is held by now.
        assert self.writing is not None
        await self.writing.run(partial(self._put_again, digest, content))

    async def keep(self, root_run_id: str, digests: Iterable[str]) -> None:
        """Have no content go any more that an event of this tree is to name: when this returns,
        each of them has gone, or stays."""
        if self.held is not None and self.writing is not None:
            self.held.hold(root_run_id, digests)
            await self.writing.run(lambda: None)  # Behind those that were about to go.

    async def get(self, root_run_id: str, digest: str) -> bytes | None:
        """A content, or ``None``.  Raises ``StoreFailed`` for one that has changed on disk."""
        assert self.worker is not None
        return await self.worker.run(partial(self._get, digest))

    def size_of(self, root_run_id: str, digest: str) -> int | None:
        """The size of a content; ``None`` where none is kept.  In any thread."""
        try:
            return self.place(digest).stat().st_size
        except OSError:
            return None

    def drop(self, root_run_id: str) -> None:
        """Contents are kept as long as the journal names them: hold none for this tree."""
        if self.held is not None:
            self.held.drop(root_run_id)

    def place(self, digest: str) -> Path:
        return self.root / digest[:2] / digest

    def take_in(self, digest: str, content: bytes) -> None:
        """Keep a content; call where waiting for the disk is allowed, in one thread."""
        self._put(digest, content, ".in")

    def _put_again(self, digest: str, content: bytes) -> None:
        if not self.place(digest).exists():
            self.take_in(digest, content)

    def _put(self, digest: str, content: bytes, ending: str = ".new") -> None:
        place = self.place(digest)
        try:
            if not self._is_whole(place, digest, len(content)):
                self._write(place, content, ending)
            # Each time: a process, or an earlier call, may have ended before it came to that.
            sync_folder(place.parent)
            self._sync_above(place.parent)
        except OSError as error:
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            remedy = "free some space" if is_full else f"make {self.root} a folder to write into"
            raise StoreFailed(str(place), f"{error.strerror or error}; {remedy}") from error

    def _is_whole(self, place: Path, digest: str, size: int) -> bool:
        """Whether a content need not be written again.

        Its size is compared each time; its hash unless this very file, by inode and times, was
        found whole since the store was opened.  What changes below the file system's notice is
        detected when the content is read, and put right by the next process that is given it.
        """
        try:
            found = place.stat()
            if found.st_size != size:
                return False
            seen = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
            if self._compared.get(digest) == seen:
                return True
            is_sound = hashlib.sha256(read_regular(place)).hexdigest() == digest
        except OSError:  # What is not there, or cannot be read, is written, or says why it cannot.
            return False
        if is_sound and len(self._compared) < MAX_COMPARED:
            self._compared[digest] = seen
        return is_sound

    def _write(self, place: Path, content: bytes, ending: str) -> None:
        # One thread each writes under such a name (that of ``worker``, and the one that writes the
        # journal), and what an earlier process left half-written is written over.
        new = place.with_name(f"{place.name}{ending}")
        if make_private_folder(place.parent):
            self._on_disk.clear()
        try:
            with open_private(new) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            new.chmod(0o400)  # An agent's folder shows the very file.
            new.replace(place)
        except OSError:
            with suppress(OSError):  # Why it could not be written counts.
                new.unlink(missing_ok=True)
            raise

    def _sync_above(self, folder: Path) -> None:
        """Flush that ``folder`` is there, once for as long as the store is open."""
        if folder.name not in self._on_disk:
            sync_folder(self.root)
            if not self._on_disk:
                sync_folder(self.root.parent)
            self._on_disk.add(folder.name)

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


def contents_in(root: Path) -> Iterator[Path]:
    """The contents in such a folder, in order; there may be no such folder."""
    if not root.is_dir():
        return
    for folder in sorted(root.iterdir()):
        if folder.is_dir():
            # What is being written has a longer name until it is whole.
            yield from (place for place in sorted(folder.iterdir()) if len(place.name) == DIGEST)


def sync_folder(folder: Path) -> None:
    """Flush what a folder says of its files; raises ``OSError``."""
    if os.name == "nt":  # Windows knows no such thing.
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
