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
from hubbub.hub.values import check_counts
from hubbub.runtime.stores.retention.amounts import Size, Span, bytes_of, seconds_of

__all__ = ["EndedTree", "Retention", "goes", "old_since", "silent_since", "trees_to_go"]

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
    place: int = 0
    """Of trees that ended at one time: where its last end stands in the store."""


class Retention(Struct, frozen=True, kw_only=True):
    """What a store keeps of trees of runs: what has ended goes, as a whole.  For
    ``Runtime(retention=…)`` and ``hubbub prune``.

    ``ended`` is how long a tree is kept after its end, ``keep_last`` how many are kept that ended
    last, however old and large they are.  With both, a tree goes when neither keeps it.
    ``max_bytes`` is what the events of the store may take: beyond it the oldest go before their
    time.  ``silent`` is after how long a runtime ends a tree of which nothing was heard, and in
    which nothing is to be done: it has ended from then on.  ``keep_turns`` is how many turns at
    least are kept of a run that lives: older ones go, behind a record of what it had come to.

    Times are a ``timedelta``, seconds, or a text (``"30d"``), sizes bytes or a text (``"10GB"``);
    they read as seconds and bytes.  Raises ``BadValue`` for a limit that is not positive, and where
    there is none.
    """

    ended: Span | None = None
    silent: Span | None = None
    keep_last: int | None = None
    max_bytes: Size | None = None
    keep_turns: int | None = None

    def __post_init__(self) -> None:
        if not (self.removes or self.silent is not None or self.keep_turns is not None):
            raise BadValue(
                "retention",
                "it says nothing; give ended, silent, keep_last or max_bytes, or keep_turns",
            )
        for what in ("ended", "silent"):
            if (span := getattr(self, what)) is not None:
                force_setattr(self, what, seconds_of(what, span))
        if self.keep_last is not None:
            check_counts(1, keep_last=self.keep_last)
        if self.keep_turns is not None:
            check_counts(1, keep_turns=self.keep_turns)
        if self.max_bytes is not None:
            force_setattr(self, "max_bytes", bytes_of("max_bytes", self.max_bytes))

    @property
    def removes(self) -> bool:
        """Whether any tree goes by it."""
        return (self.ended, self.keep_last, self.max_bytes) != (None, None, None)

    @property
    def most(self) -> int | None:
        """``max_bytes``, as a number."""
        assert not isinstance(self.max_bytes, str)
        return self.max_bytes


def old_since(retention: Retention, now: int) -> int | None:
    """What ended by then (µs) is old; ``None`` where nothing is by its age."""
    return None if retention.ended is None else now - _micros(retention.ended)


def silent_since(retention: Retention, now: int) -> int | None:
    """What nothing was heard of after then (µs) is silent; ``None`` where nothing is."""
    return None if retention.silent is None else now - _micros(retention.silent)


def _micros(span: Span) -> int:
    assert not isinstance(span, timedelta | str), "a retention has them as seconds"
    return int(span * SECOND)


def goes(tree: EndedTree, retention: Retention, now: int, size: int, *, is_last: bool) -> bool:
    """Whether the oldest tree that is left goes at a time (µs); of those that go by themselves, one
    after the other.

    ``size`` is how many bytes the events of the store take, where ``max_bytes`` is given;
    ``is_last``: whether it is one of the ``keep_last`` that ended last.
    """
    if is_last or not retention.removes:
        return False
    if (last := old_since(retention, now)) is not None and tree.ended_at <= last:
        return True
    if retention.most is not None:
        return size > retention.most
    return last is None


def trees_to_go(
    trees: Iterable[EndedTree], retention: Retention, now: int, size: int = 0
) -> list[EndedTree]:
    """The trees that go at a time (µs), oldest first; ``size`` is how many bytes the events of the
    whole store take, where ``max_bytes`` is given."""
    if not retention.removes:
        return []
    oldest = sorted(trees, key=lambda tree: (tree.ended_at, tree.place))
    candidates = oldest[: max(0, len(oldest) - (retention.keep_last or 0))]
    last = old_since(retention, now)
    count = sum(tree.ended_at <= last for tree in candidates) if last is not None else 0
    if last is None and retention.most is None:
        count = len(candidates)
    size -= sum(tree.size for tree in candidates[:count])
    for tree in candidates[count:]:
        if retention.most is None or size <= retention.most:
            break
        size -= tree.size
        count += 1
    return candidates[:count]
