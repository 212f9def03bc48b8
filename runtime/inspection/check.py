"""``StoreCheck``: whether a store is as it was written, and agrees with itself (``hubbub fsck``).

    the record    see ``record_check.py``
    folders       ``agents/``, where there is one, against the store

Nothing is written, no damage raises, and a problem is one line: where, what, and the remedy.
"""

import os
from collections.abc import Iterator

from hubbub.hub.errors import OperatorError
from hubbub.hub.store.reader import StoreReader, StoreUnreadable, info_of
from hubbub.runtime.inspection.record_check import RecordCheck, Tell
from hubbub.runtime.stores.exchange.lanes import FROM_BACKUP, Problem
from hubbub.runtime.stores.exchange.run_check import READ_ERRORS
from hubbub.runtime.stores.folders.adopt import refused
from hubbub.runtime.stores.folders.disk import RealDisk
from hubbub.runtime.stores.folders.projection import agent_folders
from hubbub.runtime.stores.open import folder_of_store, open_reader

__all__ = ["StoreCheck"]


class StoreCheck:
    """One check of the store that ``store`` names; ``thorough`` looks at its indexes too.

    ``problems`` yields what is wrong; when it is through, ``runs`` and ``events`` say how much
    was looked at.  ``tell`` gets the progress, now and then.
    """

    def __init__(self, store: str, *, thorough: bool = False, tell: Tell | None = None) -> None:
        self._store = store
        self._thorough = thorough
        self._tell = tell or (lambda _: None)
        self.runs = 0
        self.events = 0

    def problems(self) -> Iterator[Problem]:
        """Everything that is wrong.  Raises ``OperatorError`` only where there is no store."""
        folder = folder_of_store(self._store)
        file = str(folder.database) if folder is not None else ""
        try:
            with open_reader(self._store) as store:
                check = RecordCheck(store, thorough=self._thorough, tell=self._tell)
                try:
                    yield from check.problems()
                except StoreUnreadable as error:
                    yield Problem(file or store.place, error.what, error.remedy)
                    return
                finally:
                    self.runs, self.events = check.runs, check.events
                yield from self._folders(store)
        except OperatorError as error:
            if folder is None or not folder.database.is_file():
                raise
            words = str(error).removeprefix(f"{file}: ")
            what, _, remedy = words.partition("; ")
            yield Problem(file, what, remedy or FROM_BACKUP)

    def _folders(self, store: StoreReader) -> Iterator[Problem]:
        """``agents/``, which a runtime at work writes a moment after the store."""
        folder = folder_of_store(self._store)
        if folder is None or not os.path.lexists(folder.agents):
            return
        if store.is_at_work():
            self._tell("a runtime is at work on the store: agents/, which follows it, is left out")
            return
        folders = agent_folders(folder, RealDisk(), store)
        try:
            run_ids = store.described()
            left_out = refused(RealDisk(), str(folder.agents), store)
        except StoreUnreadable:  # Which the check of the store has told.
            return
        for one in left_out:
            where = f"{one.file}:{one.line}" if one.line else one.file
            yield Problem(where, one.what, one.remedy)
        for run_id in run_ids:
            problems: list[tuple[str, bool]] = []
            for _ in range(2):  # What was just being written is there the second time.
                try:
                    row = store.row(run_id)
                    problems = folders.check_apart(info_of(row)) if row is not None else []
                except READ_ERRORS:  # Its events cannot be read, which has been told.
                    problems = []
                if not problems:
                    break
            for text, is_behind in problems:
                where, _, what = text.partition(": ")
                remedy = "it is brought in line when a runtime opens the store"
                yield Problem(where, what, remedy, heals=is_behind)
