"""Taking an export into a store: its runs with the same ids, all or none of them.

What the store numbers by itself is numbered anew (positions, checksums); inboxes, and the keys
under which things were accepted, come along, so a runtime on this store goes on with the runs.
See ``run_export.py`` for the format, and ``incoming_runs.py`` for what is refused.
"""

import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import suppress

from hubbub.hub.errors import OperatorError
from hubbub.hub.ports import Ports
from hubbub.runtime.inspection.incoming_runs import MISFITS, Imported, IncomingRuns, Misfit
from hubbub.runtime.stores.open import folder_of_store
from hubbub.runtime.stores.sqlite.blobs import BlobFolder
from hubbub.runtime.stores.sqlite.folder import DataFolder
from hubbub.runtime.stores.sqlite.lock import StoreLock
from hubbub.runtime.stores.sqlite.schema import connect, store_failure
from hubbub.runtime.stores.sqlite.watch import StoreWatch

__all__ = ["BadExport", "Imported", "import_runs"]


class BadExport(OperatorError):
    """A file is no export, or not a whole one; nothing was imported."""

    def __init__(self, name: str, line: int, problem: str) -> None:
        words = " ".join(problem.split())
        super().__init__(f"{name} line {line}: {words}; nothing was imported, export it again")


async def import_runs(
    store: str, name: str, lines: Iterable[bytes], *, replace: bool = False, ports: Ports
) -> Imported:
    """Take the runs of an export into a store; ``name`` is what the file is called in errors.

    The store is made if there is none.  No runtime may be at work on it.  All or nothing: raises
    ``BadExport`` for what is no whole export, and ``OperatorError`` for runs that the store has
    (with ``replace`` they are replaced), for a conversation that another run has, and where the
    store cannot be written.
    """
    folder = folder_of_store(store)
    had_folder, had_blobs = folder.root.exists(), folder.blobs.exists()
    folder.make()
    folder.check_file_system()
    lock = StoreLock(folder.database)
    lock.acquire()
    is_new = not folder.database.exists()
    is_done = False
    try:
        imported = await _connected(folder, lock, name, lines, replace, ports)
        is_done = True
        return imported
    finally:
        if is_new and not is_done:
            if not had_blobs:
                shutil.rmtree(folder.blobs, ignore_errors=True)
            _unmake(folder, lock, had_folder)
        lock.release()


async def _connected(
    folder: DataFolder,
    lock: StoreLock,
    name: str,
    lines: Iterable[bytes],
    replace: bool,
    ports: Ports,
) -> Imported:
    db = connect(folder.database)
    try:
        watch = StoreWatch(folder.database, lock)
        imported = await _import(db, folder, name, lines, replace, ports)
        watch.check()
        return imported
    except sqlite3.Error as error:
        raise OperatorError(store_failure(folder.database, error)) from error
    finally:
        db.close()


def _unmake(folder: DataFolder, lock: StoreLock, had_folder: bool) -> None:
    """Leave no store where there was none; the lock is still held."""
    for place in folder.files:
        place.unlink(missing_ok=True)
    if not had_folder:
        (folder.root / ".gitignore").unlink(missing_ok=True)
    lock.path.unlink(missing_ok=True)
    if not had_folder:
        with suppress(OSError):  # Somebody has put something there meanwhile.
            folder.root.rmdir()


async def _import(
    db: sqlite3.Connection,
    folder: DataFolder,
    name: str,
    lines: Iterable[bytes],
    replace: bool,
    ports: Ports,
) -> Imported:
    blobs = BlobFolder(folder.blobs)
    blobs.worker = worker = ports.make_worker()
    new_name = f"sqlite-{ports.ids.number():012x}"
    count = 0
    made: list[str] = []
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute("INSERT OR IGNORE INTO meta VALUES ('store', ?)", (new_name,))
        incoming = IncomingRuns(db, replace)
        for data in lines:
            count += 1
            content = incoming.take(count, data)
            if content is not None:
                # On disk before what names it is committed.
                if not blobs.place(content[0]).exists():
                    made.append(content[0])
                await blobs.put(incoming.run_id, *content)
        imported = incoming.finish()
        db.execute("COMMIT")
        made.clear()
    except Misfit as misfit:
        raise BadExport(name, misfit.line or count, str(misfit)) from misfit
    except MISFITS as error:
        raise BadExport(name, count, f"{error}") from error
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
        for digest in made:  # Nothing names them.
            blobs.place(digest).unlink(missing_ok=True)
        worker.close()
    return imported
