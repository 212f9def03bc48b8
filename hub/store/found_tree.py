"""``FoundTree``: a tree of runs that comes into a store whole, with all that is on record of it.

A fork is one: its runs are new, and their records begin with those of other runs.  It is written in
one commit (``Commit.found``), or nothing of it is; what is dispatched of it are its records, in
their order, as those of any other run.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from hubbub.hub.events import Event
from hubbub.hub.store.journal import NewRun, RunStatus

__all__ = ["FoundRun", "FoundTree"]


class FoundRun(Struct, frozen=True, kw_only=True):
    """One of its runs; ``waiting`` are numbers of its in lane."""

    new: NewRun
    created_at: int
    status: RunStatus
    inbox: Literal["open", "closing", "terminated", "ended"]
    waiting: frozenset[int] = frozenset()


class FoundTree(Struct, frozen=True, kw_only=True):
    """The runs, the root first and those above others before them; and what is on record of all of
    them, of both lanes, numbered and in order."""

    runs: Sequence[FoundRun]
    events: Sequence[Event]

    @property
    def root(self) -> NewRun:
        return self.runs[0].new
