"""``Gone``: a tree of runs that a retention, or a pruning, has had go from the store of a world, or
old turns of one run.

A history tells of it all the same: ``with_gone`` puts its events where they were.
"""

from collections.abc import Sequence

from msgspec import Struct

from hubbub.hub.events import Event
from hubbub.hub.store.journal import Cut, RunInfo
from hubbub.hub.store.reader import Stored, StoreReader, decoded, info_of

__all__ = ["Gone", "gone_tree", "gone_turns", "really_gone", "with_gone"]


class Gone(Struct, frozen=True, kw_only=True):
    """A tree as it was when it went; or, with ``cut``, old turns of a run that lives."""

    root_run_id: str
    life: int
    """The process at work."""
    at: int
    """What the clock said (µs)."""
    tip: int
    """The position of the last event in the store by then."""
    runs: tuple[RunInfo, ...]
    """Those that are not there any more."""
    events: tuple[Stored, ...]
    """Its events, and where they stood."""
    cut: Cut | None = None

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


def gone_turns(store: StoreReader, cut: Cut, *, life: int, at: int) -> Gone:
    """Old turns of a run that are about to go."""
    row = store.row(cut.run_id)
    lanes = [
        Stored(each.position, event)
        for each in store.event_rows((cut.run_id,))
        if (event := decoded(store, each.position, each.body)).lane != "hub"
    ]
    own = {x.event.seq: place for place, x in enumerate(lanes) if x.event.lane == "own"}
    went = lanes[own[1] + 1 : own[cut.seq]] if {1, cut.seq} <= own.keys() else []
    went = [each for each in went if each.position > cut.after]
    root = cut.run_id if row is None else row.root_run_id
    return Gone(
        root_run_id=root, life=life, at=at, tip=store.tip, runs=(), events=tuple(went), cut=cut
    )


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
    for place, tree in enumerate(gone):
        runs |= {x.run_id: x for x in tree.runs if last[x.run_id] is tree}
        whole = tree if tree.cut is None else _with_run(gone[place:], tree.cut.run_id)
        for each in tree.events:
            if last[each.event.run_id] is whole:
                events.append(each)
            else:
                before.append(each.event)
    events.sort(key=lambda each: each.position)
    began: dict[str, int] = {}
    for place, each in enumerate(events):
        began.setdefault(each.event.run_id, place)
    order = sorted(runs, key=lambda run_id: began.get(run_id, len(events)))
    return events, {run_id: runs[run_id] for run_id in order}, before


def _with_run(later: Sequence[Gone], run_id: str) -> Gone | None:
    """The tree with which a run has gone since; ``None`` for one that is there."""
    return next((tree for tree in later if run_id in tree.run_ids), None)
