"""``Gone``: a tree of runs that a retention, or a pruning, has had go from the store of a world.

A history tells of it all the same: ``with_gone`` puts its events where they were.
"""

from collections.abc import Sequence

from msgspec import Struct

from hubbub.hub.events import Event
from hubbub.hub.store.journal import RunInfo
from hubbub.hub.store.reader import Stored, StoreReader, decoded, info_of

__all__ = ["Gone", "gone_tree", "really_gone", "with_gone"]


class Gone(Struct, frozen=True, kw_only=True):
    """A tree as it was when it went."""

    root_run_id: str
    life: int
    """The process at work."""
    at: int
    """What the clock said (µs)."""
    tip: int
    """The position of the last event in the store by then."""
    runs: tuple[RunInfo, ...]
    events: tuple[Stored, ...]
    """Its events, and where they stood."""

    @property
    def run_ids(self) -> frozenset[str]:
        return frozenset(each.run_id for each in self.runs)


def gone_tree(store: StoreReader, run_ids: Sequence[str], *, life: int, at: int) -> Gone:
    """A tree that is about to go."""
    rows = [row for row in map(store.row, run_ids) if row is not None]
    events = tuple(
        Stored(row.position, decoded(store, row.position, row.body))
        for row in store.event_rows(run_ids)
        if row.lane != "hub"
    )
    return Gone(
        root_run_id=rows[0].root_run_id if rows else run_ids[0], life=life, at=at, tip=store.tip,
        runs=tuple(map(info_of, rows)), events=events,
    )  # fmt: skip


def really_gone(stored: Sequence[Stored], gone: Sequence[Gone]) -> list[Gone]:
    """Those that are not in the store any more; each once, though a process died while it went."""
    there = {each.position for each in stored}
    found = {x.events[0].position: x for x in gone if x.events}
    return [found[first] for first in found if first not in there]


def with_gone(
    stored: Sequence[Stored], infos: Sequence[RunInfo], gone: Sequence[Gone]
) -> tuple[list[Stored], dict[str, RunInfo], list[Event]]:
    """All that was ever in the store, in its order, and its runs, by creation.

    Of an id that was given once more, after its run had gone, the last run alone; the events of
    those before it are given besides.
    """
    last: dict[str, object] = {}
    for tree in gone:
        last.update(dict.fromkeys(tree.run_ids, tree))
    last.update((info.run_id, None) for info in infos)
    runs = {info.run_id: info for info in infos}
    events, before = [*stored], list[Event]()
    for tree in gone:
        runs |= {x.run_id: x for x in tree.runs if last[x.run_id] is tree}
        for each in tree.events:
            if last[each.event.run_id] is tree:
                events.append(each)
            else:
                before.append(each.event)
    events.sort(key=lambda each: each.position)
    began: dict[str, int] = {}
    for place, each in enumerate(events):
        began.setdefault(each.event.run_id, place)
    order = sorted(runs, key=lambda run_id: began.get(run_id, len(events)))
    return events, {run_id: runs[run_id] for run_id in order}, before
