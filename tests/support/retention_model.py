"""The rule of retention once more, over plain events: what goes from a store, and what is kept."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from hubbub import Retention
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.events.codec import encode_event

__all__ = ["SECOND", "OldTree", "goes_by_rule", "kept_by", "micros", "trees_of"]

SECOND: Final = 1_000_000


class OldTree(Struct):
    """A tree as a store holds it."""

    runs: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    last_at: int = 0
    place: int = 0
    """Where its last run ended, of those that ended at one time."""
    size: int = 0

    @property
    def is_over(self) -> bool:
        return self.runs == self.ended


def trees_of(events: Sequence[Event]) -> Mapping[str, OldTree]:
    """The trees of some events, by their roots."""
    trees: dict[str, OldTree] = {}
    for place, event in enumerate(events):
        if event.lane == "hub":
            continue
        tree = trees.setdefault(event.root_run_id, OldTree())
        tree.runs.add(event.run_id)
        if event.lane == "own" and isinstance(event, e.AgentComplete):
            tree.ended.add(event.run_id)
            tree.place = place
        tree.last_at = max(tree.last_at, event.at)
        tree.size += len(encode_event(event))
    return trees


def kept_by(
    root: str, trees: Mapping[str, OldTree], retention: Retention, now: int, size: int,
    *, is_shared: bool = False,
) -> str:  # fmt: skip
    """What keeps a tree that is over at a time (µs); empty where nothing does.

    ``size`` is that of all events of the store.  ``is_shared``: each of several processes has
    written its ends there after a time of its own, and which came last is said by their places.
    """
    tree = trees[root]

    def mark(x: OldTree) -> tuple[int, int]:
        return 0 if is_shared else x.last_at, x.place

    younger = sum(x.is_over and mark(x) > mark(tree) for x in trees.values())
    if retention.keep_last is not None and younger < retention.keep_last:
        return f"it is among the last {retention.keep_last}"
    is_old = retention.ended is not None and tree.last_at <= now - micros(retention.ended)
    if is_old or (retention.ended is None and retention.max_bytes is None):
        return ""
    if retention.max_bytes is None:
        return "it is young"
    assert isinstance(retention.max_bytes, int)
    return "" if size > retention.max_bytes else "there is room"


def micros(span: Any) -> int:
    return int(span * SECOND)


def goes_by_rule(events: Sequence[Event], retention: Retention, now: int) -> list[str]:
    """The roots of the trees that go from a store with these events at a time (µs), oldest first.

    One after the other: as long as nothing keeps the oldest, it goes.
    """
    gone: list[str] = []
    trees = dict(trees_of(events))
    size = sum(len(encode_event(event)) for event in events)
    last = next((x for x in reversed(events)), None)
    over = [root for root, tree in trees.items() if tree.is_over]
    for root in sorted(over, key=lambda root: (trees[root].last_at, trees[root].place)):
        if kept_by(root, trees, retention, now, size):
            continue
        size -= trees.pop(root).size
        if last is None or last.lane == "hub" or last.root_run_id != root:
            gone.append(root)
    return gone
