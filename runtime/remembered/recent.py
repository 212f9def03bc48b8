"""``RecentThreads``: what long runs that were in memory a moment ago had come to.

A run that wakes is folded from its journal.  For a long conversation that is much to read for one
more message, so what it was when it left memory is kept for a while, and only what has been
written since is read.  Nothing depends on it: what is not here is read whole.
"""

from collections import OrderedDict
from typing import Final

from hubbub.agents.state.thread import Thread

__all__ = ["MAX_EVENTS", "MIN_EVENTS", "RecentThreads"]

MIN_EVENTS: Final = 100
"""Shorter runs are read as quickly as they are remembered."""

MAX_EVENTS: Final = 50_000
"""Events that the threads kept are made of, all together; the last one is kept in any case."""


class RecentThreads:
    """The threads that have left memory last, each with the number of its last event."""

    __slots__ = ("_events", "_kept")

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[Thread, int]] = OrderedDict()
        self._events = 0

    def put(self, run_id: str, thread: Thread, seq: int) -> None:
        """Keep what a run has come to with its event number ``seq``, which is on record."""
        self.take(run_id)
        if seq < MIN_EVENTS:
            return
        self._kept[run_id] = (thread, seq)
        self._events += seq
        while self._events > MAX_EVENTS and len(self._kept) > 1:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._events -= dropped

    def take(self, run_id: str) -> tuple[Thread, int] | None:
        """What is kept of a run, once."""
        found = self._kept.pop(run_id, None)
        if found is not None:
            self._events -= found[1]
        return found
