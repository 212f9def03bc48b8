"""The trees of a store as a retention looks at them: those that have ended, one after the other,
and those of which nothing was heard.  Changes nothing.

In a store of any size a look is short: what ended first comes first, and no more is read than what
may go, and, of trees that live, a page at a time.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Generic, TypeAlias, TypeVar

from msgspec import Struct

from hubbub.agents.state.prompts import LASTING
from hubbub.hub.errors import HubbubError
from hubbub.hub.events.checksums import checksum_after
from hubbub.hub.store.reader import EventRow, RunRow, StoreReader, decoded
from hubbub.runtime.stores.exchange.run_check import READ_ERRORS
from hubbub.runtime.stores.retention.retention import EndedTree

__all__ = [
    "PAGE", "EndedPage", "EndedRun", "EventSize", "FollowedRecord", "LastTrees", "SilentPage",
    "SilentRun", "damage_in", "ended_page", "ended_tree", "followed", "has_last_event",
    "imported_trees", "last_trees", "silent_page", "silent_rest_page", "size_of_runs",
    "sizes_after", "what_goes_with",
]  # fmt: skip

P = TypeVar("P")

PAGE: Final = 100
"""Trees that are looked at together."""

EVENTS: Final = 2_000
"""Events whose sizes are added up together."""

ENDS: Final = 200
"""Ends that are counted together."""

_AT_REST: Final = ("parked", "waiting")

EventSize: TypeAlias = tuple[str, int, int]
"""Of an event: its run, none in the hub's own lane; its position; how many bytes it takes."""

EndedRun: TypeAlias = tuple[str, str, int]
"""Of a run that has ended: its id, its agent, the number of its events."""


class EndedPage(Struct, frozen=True, kw_only=True):
    """Trees whose roots ended one after the other, in the store's order."""

    trees: Sequence[tuple[int, EndedTree]]
    """Each with the position of the last end in it: that of its root, or of a child that outlived
    it.  Those alone in which every run has ended."""
    after: int
    """The position behind which the next page begins."""
    is_over: bool
    """Whether nothing that has ended is behind it, or nothing that is old."""
    problems: Sequence[tuple[str, str]]
    """Roots of trees that cannot be read, and what is wrong."""


class SilentRun(Struct, frozen=True, kw_only=True):
    """The top of what lives of a tree of which nothing was heard, and in which nothing is to be
    done: its root, or where that has ended a child."""

    run_id: str
    expect: tuple[int, int]
    """How far its lanes have come."""


class SilentPage(Struct, Generic[P], frozen=True, kw_only=True):
    """What is silent of some trees that live."""

    trees: Sequence[SilentRun]
    after: P
    """Behind what the next page begins."""
    is_over: bool


def ended_tree(store: StoreReader, root: str, runs: Sequence[EndedRun]) -> EndedTree:
    """A tree of which these are the runs."""
    run_ids = tuple(run_id for run_id, _, _ in runs)
    last = [event for run_id in run_ids for event in store.lanes(run_id, 1, backwards=True)]
    agents = {run_id: agent for run_id, agent, _ in runs}
    return EndedTree(
        root_run_id=root, agent=agents.get(root, runs[0][1]), run_ids=run_ids,
        events=sum(events for _, _, events in runs), ended_at=max(x.at for x in last),
    )  # fmt: skip


def ended_page(store: StoreReader, after: int, old: int | None, now: int) -> EndedPage:
    """The next trees behind a position.  With ``old`` those are enough that ended by then (µs);
    what ended later than ``now``, as after the clock was set back, says nothing of what is behind.
    """
    trees: list[tuple[int, EndedTree]] = []
    problems: list[tuple[str, str]] = []
    ends = store.ends(PAGE, after=after)
    is_over = len(ends) < PAGE
    last = next((x for x in store.event_rows(after=store.tip - 1) if x.lane != "hub"), None)
    for end in ends:
        root = end.root_run_id
        if end.run_id != root and store.row(root) is not None:
            continue  # It comes with its root.
        try:
            if old is not None and old < decoded(store, end.position, end.body).at <= now:
                is_over = True
                break
            rows = store.tree(root) or [row for row in (store.row(end.run_id),) if row is not None]
            is_kept = last is not None and any(row.run_id == last.run_id for row in rows)
            if rows and not is_kept and all(row.status == "ended" for row in rows):
                runs = [(row.run_id, row.agent, row.seq + row.in_seq) for row in rows]
                tree = ended_tree(store, root, runs)
                place = last_end(store, tree, end)
                if end.run_id == root or end.position == place:  # A part comes with its last end.
                    trees.append((place, tree))
        except (*READ_ERRORS, HubbubError) as error:
            problems.append((root, str(error)))
    after = ends[-1].position if ends else after
    return EndedPage(trees=trees, after=after, is_over=is_over, problems=problems)


def last_end(store: StoreReader, tree: EndedTree, end: EventRow | None = None) -> int:
    """Where the last run of a tree ended, of which one end may be given."""
    place = 0 if end is None else end.position
    for run_id in tree.run_ids:
        if end is None or run_id != end.run_id:
            lane = store.event_rows([run_id], after=place, backwards=True)
            place = next((row.position for row in lane if row.lane == "own"), place)
    return place


def imported_trees(store: StoreReader, run_ids: Iterable[str]) -> list[EndedTree]:
    """Of trees that were imported, by the runs of which that is noted, those that have ended."""
    found: dict[str, EndedTree] = {}
    for run_id in run_ids:
        row = store.row(run_id)
        if row is None or row.root_run_id in found:
            continue
        try:
            rows = store.tree(row.root_run_id) or [row]
            if all(each.status == "ended" for each in rows):
                runs = [(each.run_id, each.agent, each.seq + each.in_seq) for each in rows]
                found[row.root_run_id] = ended_tree(store, row.root_run_id, runs)
        except (*READ_ERRORS, HubbubError):
            continue  # Where its end stands it is told.
    return [*found.values()]


def has_last_event(store: StoreReader, tree: EndedTree) -> bool:
    """Whether a tree has the last event of the store: what comes next would get its position."""
    last = store.event_rows(after=store.tip - 1)
    return any(row.lane != "hub" and row.run_id in tree.run_ids for row in last)


class LastTrees(Struct, frozen=True, kw_only=True):
    """Of the trees that ended last those that were found so far."""

    before: int
    """Where those ended that have not been looked at."""
    first: int
    """Where the first of them ended."""
    left: int
    """How many there are besides; those that were imported, once it is over."""
    seen: Collection[str]
    """Roots of trees that were looked at."""
    is_over: bool = False


def last_trees(store: StoreReader, last: LastTrees, imported: Sequence[int] = ()) -> LastTrees:
    """The next of those that ended last, the last first.  A tree counts once, and only if nothing
    in it lives.  ``imported``: when others ended, in order, whose roots have been seen."""
    seen, first, left = {*last.seen}, last.first, last.left
    ends = store.ends(ENDS, before=last.before)
    for end in ends:
        if end.root_run_id in seen:
            continue
        seen.add(end.root_run_id)
        if store.tree(end.root_run_id, live=True):
            continue
        if imported:
            at = decoded(store, end.position, end.body).at
            if len(imported) - bisect_right(imported, at) >= left:
                return LastTrees(before=0, first=first, left=left, seen=seen, is_over=True)
        first, left = end.position, left - 1
        if not left:
            return LastTrees(before=0, first=first, left=0, seen=seen, is_over=True)
    is_over = len(ends) < ENDS
    before = 0 if is_over else ends[-1].position
    first = 0 if is_over else first  # Of so few each is one of the last.
    return LastTrees(before=before, first=first, left=left, seen=seen, is_over=is_over)


class FollowedRecord(Struct, frozen=True):
    """The record of a run, followed from its beginning up to a position."""

    after: int = 0
    chain: int = 0
    """The checksum there."""
    damage: str = ""
    """What is not what was written; empty where all of it is."""
    is_over: bool = False


def followed(store: StoreReader, run_id: str, record: FollowedRecord, until: int) -> FollowedRecord:
    """The same up to some events further, ``until`` at most."""
    try:
        return _followed(store, run_id, record, until)
    except HubbubError:
        raise
    except READ_ERRORS as error:
        return FollowedRecord(damage=f"run {run_id}: {error}", is_over=True)


def _followed(
    store: StoreReader, run_id: str, record: FollowedRecord, until: int
) -> FollowedRecord:
    chain, after = record.chain, record.after
    for count, row in enumerate(store.event_rows([run_id], after=after, until=until)):
        if count == EVENTS:
            return FollowedRecord(after=after, chain=chain)
        after = row.position
        if row.crc is None and _is_in_memory(store, run_id):
            break
        if row.lane != "hub":
            chain = checksum_after(chain, row.type, row.body)
            if chain != row.crc:
                damage = f"run {run_id}: its record has changed at position {row.position}"
                return FollowedRecord(damage=damage, is_over=True)
    return FollowedRecord(after=after, chain=chain, is_over=True)


def _is_in_memory(store: StoreReader, run_id: str) -> bool:
    """Whether there are no checksums, where nothing can be damaged."""
    row = store.row(run_id)
    return row is None or row.chain is None


def damage_in(store: StoreReader, run_ids: Iterable[str]) -> str:
    """What of the records of some runs is not what was written; empty where all of it is."""
    for run_id in run_ids:
        record, row = FollowedRecord(), store.row(run_id)
        while not record.is_over:
            record = followed(store, run_id, record, store.tip)
        if record.damage:
            return record.damage
        if row is not None and row.chain not in (None, record.chain):
            return f"run {run_id}: the end of its record is missing"
    return ""


def what_goes_with(store: StoreReader, run_ids: Collection[str]) -> tuple[int, list[str]]:
    """Where the last event of some runs is, 0 without any; and the keys of what was noted of
    questions that they asked."""
    last = next((row.position for row in store.event_rows(run_ids, backwards=True)), 0)
    return last, [key for run_id in run_ids for key in store.notes(f"{LASTING}{run_id}.")]


def sizes_after(store: StoreReader, after: int) -> tuple[list[EventSize], int]:
    """How many bytes the next events behind a position take, and the position reached."""
    sizes: list[EventSize] = []
    for row in store.event_rows(after=after):
        run_id, after = row.run_id if row.lane != "hub" else "", row.position
        sizes.append((run_id, after, len(row.body)))
        if len(sizes) == EVENTS:
            break
    return sizes, after


def size_of_runs(store: StoreReader, run_ids: Sequence[str], until: int) -> int:
    """How many bytes the events of some runs take up to a position."""
    rows = store.event_rows(run_ids, until=until)
    return sum(len(row.body) for row in rows if row.lane != "hub")


def silent_page(store: StoreReader, after: int, since: int) -> SilentPage[int]:
    """Of the next trees whose roots rest, by their beginning, those of which nothing was heard
    after ``since`` (µs), and in which nothing is to be done."""
    roots = store.resting_roots(PAGE, after=after)
    after = roots[-1].born if roots else after
    found = [run for root in roots for run in _silent_in(store, root, since)]
    return SilentPage(trees=found, after=after, is_over=len(roots) < PAGE)


def silent_rest_page(store: StoreReader, after: str, since: int) -> SilentPage[str]:
    """The same of the next trees whose roots have ended before a child, by the ids of the roots."""
    trees = store.trees_of_resting_children(PAGE, after=after)
    after = trees[-1] if trees else after
    rows = (store.row(root) for root in trees)
    ended = (row for row in rows if row is not None and row.status == "ended")
    found = [run for root in ended for run in _silent_in(store, root, since)]
    return SilentPage(trees=found, after=after, is_over=len(trees) < PAGE)


def _silent_in(store: StoreReader, root: RunRow, since: int) -> list[SilentRun]:
    """The runs by which all that lives of a tree ends, if it is silent."""
    try:
        if not is_silent(store, root, since):
            return []
        rows = store.tree(root.run_id, live=True)
    except (*READ_ERRORS, HubbubError):
        return []  # Whoever drives it tells.
    live = {row.run_id for row in rows}
    tops = (row for row in rows if row.parent_run_id not in live)
    return [SilentRun(run_id=row.run_id, expect=(row.seq, row.in_seq)) for row in tops]


def is_silent(store: StoreReader, root: RunRow, since: int) -> bool:
    """Whether a tree rests: every run in it is parked, or waits for one that has its conversation;
    nothing waits in an inbox, for a person or for a time; and nothing was written since, a fork
    with its old records included."""
    if max(root.created_at, root.recent) > since or root.kind in ("cron", "heartbeat"):
        return False
    if root.status == "ended" and _was_heard(store, root.run_id, since):
        return False
    rows = store.tree(root.run_id, live=True)
    holders = {row.parent_run_id for row in rows if row.status in _AT_REST}
    for row in rows:
        if row.status not in _AT_REST or row.waiting or row.wake_at is not None:
            return False
        if row.status == "waiting" and row.run_id not in holders:
            return False
        if any(store.notes(f"{LASTING}{row.run_id}.").values()):
            return False
        if _was_heard(store, row.run_id, since):
            return False
    # Those that have ended were heard of, too; last, as there may be many of them.
    ended = (row for row in store.tree(root.run_id) if row.status == "ended")
    return not any(_was_heard(store, row.run_id, since) for row in ended)


def _was_heard(store: StoreReader, run_id: str, since: int) -> bool:
    """Whether anything is on record of a run that was written after a time (µs)."""
    return any(event.at > since for event in store.lanes(run_id, 1, backwards=True))
