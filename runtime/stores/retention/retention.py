"""``Retention``: which trees of runs that have ended a store need not keep.  Pure.

    the trees that have ended × a retention × the time  ─►  those that go, oldest first

Rules
-----
* A tree goes as a whole, and only when every run in it has ended.
* The ``keep_last`` trees that ended last stay, however old they are.
* Of the others those go that ended longer than ``ended`` ago; without ``ended`` all of them.
* A tree that ended later than now, as after the clock was set back, is not old.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import force_setattr

from hubbub.hub.errors import BadValue
from hubbub.hub.values import MAX_SECONDS, check_counts, check_seconds

__all__ = ["EndedTree", "Retention", "trees_to_go"]

SECOND: Final = 1_000_000


class EndedTree(Struct, frozen=True, kw_only=True):
    """A tree in which every run has ended."""

    root_run_id: str
    agent: str
    """That of its root."""
    run_ids: tuple[str, ...]
    events: int
    """How many events its runs have."""
    ended_at: int
    """The time of its last event (µs)."""


class Retention(Struct, frozen=True, kw_only=True):
    """What is kept of trees that have ended; trees that have not are always kept.

    ``ended`` is how long one is kept after its end (``timedelta``, or seconds), ``keep_last`` how
    many are kept that ended last, however old they are.  With both, a tree goes when neither keeps
    it.  Raises ``BadValue`` for a limit that is not positive, and where there is none.
    """

    ended: timedelta | float | None = None
    keep_last: int | None = None

    def __post_init__(self) -> None:
        if self.ended is None and self.keep_last is None:
            raise BadValue("retention", "it says nothing; give ended, keep_last or both")
        if self.keep_last is not None:
            check_counts(1, keep_last=self.keep_last)
        if isinstance(self.ended, timedelta):
            force_setattr(self, "ended", self.ended.total_seconds())
        check_seconds("ended", self.ended)
        if self.ended == 0:
            raise BadValue("ended", f"expected seconds above 0, below {MAX_SECONDS:,.0f}")

    @property
    def seconds(self) -> float:
        """How long a tree is kept after its end."""
        assert not isinstance(self.ended, timedelta)
        return self.ended or 0.0


def trees_to_go(trees: Iterable[EndedTree], retention: Retention, now: int) -> list[EndedTree]:
    """The trees that go at a time (µs), oldest first."""
    oldest = sorted(trees, key=lambda tree: (tree.ended_at, tree.root_run_id))
    candidates = oldest[: max(0, len(oldest) - (retention.keep_last or 0))]
    if retention.ended is None:
        return candidates
    last = now - int(retention.seconds * SECOND)
    return [tree for tree in candidates if tree.ended_at <= last]
