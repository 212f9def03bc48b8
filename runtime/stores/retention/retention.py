"""``Retention``: which trees of runs that have ended a store need not keep.  Pure.

    the trees that have ended × a retention × the time  ─►  those that go, oldest first

Rules
-----
* A tree goes as a whole, and only when every run in it has ended.
* The ``keep_last`` trees that ended last stay, however old they are.
* Of the others those go that ended longer than ``ended`` ago; without any other limit all of them.
* As long as the events of the store take more than ``max_bytes`` after that, the oldest of the
  others goes, too, however young it is.
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
    size: int = 0
    """How many bytes these take; 0 where nobody asks."""
    ended_at: int
    """The time of its last event (µs)."""


class Retention(Struct, frozen=True, kw_only=True):
    """What is kept of trees that have ended; trees that have not are always kept.

    ``ended`` is how long one is kept after its end (``timedelta``, or seconds), ``keep_last`` how
    many are kept that ended last, however old and large they are.  With both, a tree goes when
    neither keeps it.  ``max_bytes`` is what the events of the store may take: beyond it the oldest
    go before their time.  Raises ``BadValue`` for a limit that is not positive, and where there is
    none.
    """

    ended: timedelta | float | None = None
    keep_last: int | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.ended is None and self.keep_last is None and self.max_bytes is None:
            raise BadValue("retention", "it says nothing; give ended, keep_last or max_bytes")
        if self.max_bytes is not None:
            check_counts(1, max_bytes=self.max_bytes)
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


def trees_to_go(
    trees: Iterable[EndedTree], retention: Retention, now: int, size: int = 0
) -> list[EndedTree]:
    """The trees that go at a time (µs), oldest first; ``size`` is how many bytes the events of the
    whole store take, where ``max_bytes`` is given."""
    oldest = sorted(trees, key=lambda tree: (tree.ended_at, tree.root_run_id))
    candidates = oldest[: max(0, len(oldest) - (retention.keep_last or 0))]
    last = _last_end(retention, now)
    count = sum(tree.ended_at <= last for tree in candidates) if last is not None else 0
    if last is None and retention.max_bytes is None:
        count = len(candidates)
    size -= sum(tree.size for tree in candidates[:count])
    for tree in candidates[count:]:
        if retention.max_bytes is None or size <= retention.max_bytes:
            break
        size -= tree.size
        count += 1
    return candidates[:count]


def _last_end(retention: Retention, now: int) -> int | None:
    """What ended by then is old; ``None`` where nothing is by its age."""
    return None if retention.ended is None else now - int(retention.seconds * SECOND)
