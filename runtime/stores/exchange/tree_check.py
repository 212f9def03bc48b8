"""``TreeCheck``: whether what is imported fits the runs of its tree that stay as they are.

    the tree before   what is wrong with it already
    the tree after    anything else that is wrong with a run that was not imported

An export can be older or newer than its tree in the store.  A parent that is put in the place of a
newer one does not know its latest children; a takeover frame that is put in the place of an older
one has taken what still waits for its root.
"""

from collections.abc import Container, Iterator
from contextlib import suppress

from hubbub.hub.errors import StoreFailed
from hubbub.hub.store.reader import StoreReader, StoreUnreadable
from hubbub.runtime.stores.exchange.lanes import Lane, Lanes
from hubbub.runtime.stores.exchange.run_check import READ_ERRORS, RunCheck

__all__ = ["TreeCheck"]

Found = tuple[str, str]
"""A run, and what is wrong with it."""


class TreeCheck:
    """The runs of a tree as they are before an import; empty where there are none."""

    def __init__(self, reader: StoreReader, root_run_id: str) -> None:
        self._reader = reader
        self._root_run_id = root_run_id
        self._before: frozenset[Found] | None = None
        """``None`` for a tree that cannot be read: an import may be what mends it."""
        with suppress(*READ_ERRORS, StoreFailed, StoreUnreadable):
            self._before = frozenset(self._problems(()))

    def new_problems(self, imported: Container[str]) -> Iterator[Found]:
        """What has come to be wrong with runs of the tree that were not ``imported``."""
        if self._before is None:
            return
        for found in self._problems(imported):
            if found not in self._before:
                yield found

    def _problems(self, imported: Container[str]) -> Iterator[Found]:
        rows = {row.run_id: row for row in self._reader.tree(self._root_run_id)}
        others = [row for row in rows.values() if row.run_id not in imported]
        if not others:
            return
        lanes = Lanes("")
        for event in self._reader.event_rows([*rows]):
            for problem in lanes.take(event):
                if event.run_id not in imported:
                    yield event.run_id, problem.what
        check = RunCheck(self._reader, lanes.runs)
        for row in others:
            for what in check.problems(row, lanes.runs.get(row.run_id) or Lane(row.run_id)):
                yield row.run_id, what
