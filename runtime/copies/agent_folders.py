"""``write_agent_folders``: agents' folders as SQLite's store keeps them, made from any store.

    the record of a store, one moment  ──►  FOLDER/<id>/descriptor.json, state.json, history.jsonl,
                                            run.jsonl, context.jsonl, files/

They are what the folders beside a SQLite store are, but that nothing follows them, and that files
are copies.  A folder put into the ``agents/`` of another store is adopted there.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from hubbub.hub.errors import OperatorError, StoreFailed
from hubbub.hub.events import Event
from hubbub.hub.store.reader import StoreReader, events_in
from hubbub.runtime.stores.folders.conversation_reader import ConversationReader
from hubbub.runtime.stores.folders.disk import RealDisk
from hubbub.runtime.stores.folders.run_files import RunFiles
from hubbub.runtime.stores.folders.write import AgentFolders, run_id_of
from hubbub.runtime.stores.sqlite.folder import DataFolder
from hubbub.runtime.stores.sqlite.output_file import check_outside_stores
from hubbub.runtime.stores.sqlite.private_files import make_private_folder

__all__ = ["WrittenFolders", "write_agent_folders"]

STEP: Final = 1_000
"""Folders after which progress is reported."""

REMEDY: Final = "name a new folder: --out FOLDER"

Tell = Callable[[str], object]


class WrittenFolders(Struct, frozen=True, kw_only=True):
    """Where agents' folders were written, and how many."""

    folder: str
    folders: int


class _StoreDisk(RealDisk):
    """A disk on which contents of files come out of the store."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store
        self.lost = ""
        """Where a content is that is missing or changed."""

    def link_or_copy(self, source: str, path: str) -> None:
        digest = os.path.basename(source)
        try:
            content = self._store.content(digest)
        except OSError:
            content = b""
        if hashlib.sha256(content).hexdigest() != digest:
            self.lost = self.lost or self._store.place_of(digest)
            raise OSError("its content is missing or has changed")
        self.replace(path, content)


def write_agent_folders(
    store: StoreReader,
    destination: Path,
    run_ids: Sequence[str] | None = None,
    *,
    beside: DataFolder | None = None,
    tell: Tell | None = None,
) -> WrittenFolders:
    """Write the folders of all agents, or of these runs, into a new or empty folder.

    ``beside`` is the folder of the store, in which nothing is written.  They are of one moment.
    Runs without a descriptor have none.  All or nothing: raises ``OperatorError`` where something
    cannot be written, or is there already, and ``StoreFailed`` for damage.
    """
    check_outside_stores(destination, remedy=REMEDY, store=beside)
    try:
        if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
            raise OperatorError(f"{destination}: is not an empty folder; {REMEDY}")
        place = Path(os.path.realpath(destination))
        make_private_folder(place.parent)
        scratch = Path(tempfile.mkdtemp(prefix=".hubbub-", suffix=".part", dir=place.parent))
        try:
            count = _write(store, scratch, run_ids, tell or (lambda _: None))
            if place.exists():
                place.rmdir()
            scratch.rename(place)
        except BaseException:
            with suppress(OSError):
                shutil.rmtree(scratch)
            raise
    except OSError as error:
        where = error.filename or destination
        raise OperatorError(f"{where}: {error.strerror or error}; {REMEDY}") from error
    return WrittenFolders(folder=str(destination), folders=count)


def _write(store: StoreReader, root: Path, run_ids: Sequence[str] | None, tell: Tell) -> int:
    """Write folders into ``root``; how many there are now."""

    def events_of(run_id: str) -> Sequence[Event]:
        return [x.event for x in events_in(store, run_id) if x.event.lane in ("own", "in")]

    disk, conversations = _StoreDisk(store), ConversationReader(store)
    folders = AgentFolders(
        root, disk, events_of, root / "blobs", conversations=conversations,
        runs=RunFiles(disk, store),
    )  # fmt: skip
    count, wanted = 0, None if run_ids is None else {*run_ids}
    with store.one_moment():
        described = store.described()
        for run_id in described:
            info = conversations.info(run_id) if wanted is None or run_id in wanted else None
            if info is None:
                continue
            if problems := folders.repair(info):
                words = problems[0].removeprefix(f"{root}/")
                raise OperatorError(f"{words}; free some space, or name another folder")
            if disk.lost:
                problem = "its content is missing or has changed; see hubbub fsck"
                raise StoreFailed(disk.lost, problem)
            count += 1
            if count % STEP == 0:
                tell(f"{count:,} of {len(described):,} folders written")
    for folder in root.iterdir():
        if wanted is not None and run_id_of(folder.name) not in wanted:
            shutil.rmtree(folder)  # The root of a frame follows its frame.
    return count
