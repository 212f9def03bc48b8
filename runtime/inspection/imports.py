"""Taking an export into a store: its runs with the same ids, all or none of them.

What the store numbers by itself is numbered again (positions, checksums); inboxes, and the keys
under which things were accepted, come along, so a runtime on this store continues with the runs.
See ``stores/exchange/export.py`` for the format, and ``incoming_runs.py`` for what is refused.
"""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hubbub.hub.errors import OperatorError
from hubbub.hub.ports import Ports
from hubbub.hub.store.intake import RunIntake
from hubbub.hub.store.reader import StoreReader
from hubbub.runtime.stores.exchange.incoming_runs import (
    LINE_ERRORS,
    Imported,
    ImportProblem,
    IncomingRuns,
)
from hubbub.runtime.stores.folders.conversation_reader import ConversationReader
from hubbub.runtime.stores.folders.disk import RealDisk
from hubbub.runtime.stores.folders.projection import agent_folders
from hubbub.runtime.stores.open import folder_of_store, open_intake

if TYPE_CHECKING:
    from hubbub.runtime.stores.sqlite.folder import DataFolder

__all__ = ["BadExport", "Imported", "import_runs", "renew_folders"]


class BadExport(OperatorError):
    """A file is no export, or not a whole one; nothing was imported."""

    def __init__(self, name: str, line: int, problem: str) -> None:
        words = " ".join(problem.split())
        super().__init__(f"{name} line {line}: {words}; nothing was imported, export it again")


def import_runs(
    store: str, name: str, lines: Iterable[bytes], *, replace: bool = False, ports: Ports
) -> Imported:
    """Take the runs of an export into a store; ``name`` is what the file is called in errors.

    The store is made if there is none.  No runtime may be at work on it.  All or nothing: raises
    ``BadExport`` for what is no whole export, and ``OperatorError`` for runs that the store has
    (with ``replace`` they are replaced), for one that does not fit the runs of its tree that stay
    as they are, for a conversation that another run has, and where the store cannot be written.
    Folders of agents show at once what came.
    """
    with open_intake(store, ports.ids) as intake:
        imported = _import(intake, name, lines, replace)
        _renew_folders(store, intake.reader, imported.run_id)
        return imported


def _renew_folders(store: str, reader: StoreReader, run_id: str) -> None:
    """Have the agents' folders show the tree of an imported run, where the store has folders."""
    folder, row = folder_of_store(store), reader.row(run_id)
    if row is None or folder is None or not os.path.lexists(folder.agents):
        return
    renew_folders(folder, reader, [each.run_id for each in reader.tree(row.root_run_id)])


def renew_folders(folder: "DataFolder", reader: StoreReader, run_ids: Iterable[str]) -> int:
    """Have the agents' folders in ``folder`` show what ``reader`` reads of these runs; how many
    have one.

    What cannot be written is logged, and written when a runtime opens the store.
    """
    folders, conversations = agent_folders(folder, RealDisk(), reader), ConversationReader(reader)
    count = 0
    for run_id in run_ids:
        if (info := conversations.info(run_id)) is not None:
            folders.renew(info)
            count += 1
    return count


def _import(intake: RunIntake, name: str, lines: Iterable[bytes], replace: bool) -> Imported:
    count = 0
    try:
        with intake.all_or_nothing():
            incoming = IncomingRuns(intake, replace)
            for data in lines:
                count += 1
                incoming.take(count, data)
            return incoming.finish()
    except ImportProblem as problem:
        raise BadExport(name, problem.line or count, str(problem)) from problem
    except LINE_ERRORS as error:
        raise BadExport(name, count, f"{error}") from error
