"""``files/`` of an agent's folder: the contents of its file area under their names.

A name that the disk cannot show is passed over: one that is too long in bytes, or a file and a
folder at once, as areas of older versions may have (``unshowable``).  The file area itself is not
on this disk.  No link is followed on the way to a name.
"""

import errno
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hubbub.agents.state.area import unshowable
from hubbub.hub.events import FileRef
from hubbub.hub.events.files import path_problem
from hubbub.runtime.stores.folders.disk import Disk

__all__ = ["MISSING", "FolderFiles"]

MISSING: Final = "missing"
"""Said of what is not there, as when it is not there yet."""


CHANGED: Final = "its content has changed"

TOO_LONG: Final = "its name is too long for this disk"


class FolderFiles:
    """Puts files in their place; ``blobs`` holds the contents as ``<ab>/<digest>``."""

    def __init__(self, disk: Disk, blobs: Path | None) -> None:
        self._disk = disk
        self._blobs = blobs

    @property
    def is_kept(self) -> bool:
        return self._blobs is not None

    def update(
        self, folder: str, before: Mapping[str, FileRef], after: Mapping[str, FileRef]
    ) -> list[str]:
        """Show what has changed; returns what could not be done, with its reason."""
        if self._blobs is None:
            return []
        problems = []
        for path in before:
            if path not in after:
                problems += self._try(folder, path, None)
        freed = unshowable(before) - unshowable(after)
        for path, ref in after.items():
            old = before.get(path)
            if old is None or old.digest != ref.digest or path in freed:
                problems += self._try(folder, path, ref)
        return problems

    def differences(self, folder: str, files: Mapping[str, FileRef]) -> dict[str, str]:
        """The names whose file is not what it could be, and why; contents are read."""
        found, hidden = {}, unshowable(files)
        for path, ref in files.items() if self._blobs is not None else ():
            problem = self.problem(folder, ref)
            if problem and problem != TOO_LONG and (path not in hidden or problem == CHANGED):
                found[path] = problem
        return found

    def problem(self, folder: str, ref: FileRef) -> str:
        """Why the folder does not hold the file; empty when it does."""
        place = self.place(folder, ref.path)
        if place is None:
            return "its name cannot be shown on this disk"
        try:
            content = None if self._disk.is_link(place) else self._disk.read(place)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return TOO_LONG
            return error.strerror or str(error)
        if content is None:
            return MISSING
        if len(content) != ref.size or hashlib.sha256(content).hexdigest() != ref.digest:
            return CHANGED
        return ""

    def place(self, folder: str, path: str) -> str | None:
        """Where a name stands on the disk; ``None`` for one that could lead out of the folder."""
        if path_problem(path):
            return None
        at = f"{folder}/files"
        for part in path.split("/")[:-1]:
            if self._disk.is_link(at):
                return None
            at = f"{at}/{part}"
        return None if self._disk.is_link(at) else f"{folder}/files/{path}"

    def _try(self, folder: str, path: str, ref: FileRef | None) -> list[str]:
        place = self.place(folder, path)
        if place is None:
            return [f"files/{path}: its name cannot be shown on this disk"]
        try:
            if ref is None:
                self._remove(folder, place)
            else:
                self._show(place, ref.digest)
        except OSError as error:
            return [f"files/{path}: {error.strerror or error}"]
        return []

    def _show(self, place: str, digest: str) -> None:
        if not (digest.isascii() and digest.isalnum()):
            raise OSError("its digest is none")
        self._disk.mkdir(place.rpartition("/")[0])
        self._disk.link_or_copy(f"{self._blobs}/{digest[:2]}/{digest}", place)

    def _remove(self, folder: str, place: str) -> None:
        if self._disk.is_folder(place):  # Of other files: this one was not shown.
            return
        self._disk.remove(place)
        above = place.rpartition("/")[0]
        while above != f"{folder}/files" and not self._disk.listdir(above):
            self._disk.remove(above)
            above = above.rpartition("/")[0]
