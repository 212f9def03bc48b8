"""Where a demo keeps itself, so that it can be resumed after its process was killed.

A folder of its own below the default store's.  It holds the last demo; a new one begins in an
empty folder.
"""

import shutil
from pathlib import Path
from typing import Final

import msgspec

from hubbub.hub.errors import OperatorError
from hubbub.hub.ports import Ports
from hubbub.runtime.demo.documents import is_document
from hubbub.runtime.demo.survey import Demo
from hubbub.runtime.demo.survey_model import many
from hubbub.runtime.stores.open import open_reader, sqlite_store
from hubbub.runtime.stores.sqlite.folder import DataFolder
from hubbub.runtime.stores.sqlite.lock import StoreLock
from hubbub.runtime.stores.sqlite.private_files import open_private
from hubbub.runtime.stores.sqlite.store import SqliteStore
from hubbub.runtime.text import printable

__all__ = ["DEMO_FOLDER", "begin_demo", "resume_demo", "resumed_line"]

DEMO_FOLDER: Final = Path(".hubbub", "demo")
"""Where the program runs."""

_WHAT: Final = "demo.json"


class _What(msgspec.Struct, frozen=True):
    """What a demo works on."""

    folder: str
    own: bool


def begin_demo(demo: Demo, *, own: bool, ports: Ports, folder: Path = DEMO_FOLDER) -> SqliteStore:
    """An empty store for a new demo; the one before it goes.

    Raises ``OperatorError`` where nothing can be written, or another demo is at work.
    """
    data = DataFolder(folder)
    data.make()
    lock = StoreLock(data.database)
    lock.acquire()
    try:
        for name in (data.agents, data.blobs):
            shutil.rmtree(name, ignore_errors=True)
        for file in data.files:
            file.unlink(missing_ok=True)
        what = _What(str(demo.folder), own)  # The store lies where it is relative to.
        with open_private(data.root / _WHAT) as told:
            told.write(msgspec.json.encode(what))
    finally:
        lock.release()
    return sqlite_store(folder, ports=ports)


def resume_demo(*, ports: Ports, folder: Path = DEMO_FOLDER) -> tuple[Demo, SqliteStore]:
    """The last demo and its store.  Raises ``OperatorError`` when there is none."""
    try:
        what = msgspec.json.decode((folder / _WHAT).read_bytes(), type=_What)
    except (OSError, msgspec.DecodeError):
        raise OperatorError(
            f"{folder}: there is no demo to go on with; start one here: hubbub demo"
        ) from None
    wanted = is_document if what.own else (lambda _name: True)
    return Demo(folder=Path(what.folder), wanted=wanted), sqlite_store(folder, ports=ports)


def resumed_line(demo: Demo, *, folder: Path = DEMO_FOLDER) -> str:
    """What a resumed demo has on record."""
    with open_reader(f"sqlite:{folder}") as store:
        readers = [row.status for row in store.rows() if row.agent == "reader"]
    over, begun = readers.count("ended"), len(readers)
    what = f"{many(over, 'document')} on record"
    if begun > over:
        what += f", {begun - over} were being read"
    return f"Going on with the demo of {printable(str(demo.folder))}: {what}."
