"""The rows of the memory store, and by what they are found."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import assert_never

from hubbub.hub.events import AgentBase, Event, InLane
from hubbub.hub.events.descriptors import (
    Descriptor,
    descriptor_of_key,
    is_addressed,
    is_identity,
    read_descriptor,
    recency_of,
)
from hubbub.hub.events.identities import SCHEDULES, has_tick, identity_of
from hubbub.hub.snapshots.draft import SnapshotDraft
from hubbub.hub.store.inbox_rules import number_of
from hubbub.hub.store.journal import Addressing, Cut, NewRun
from hubbub.hub.store.ledger_row import LedgerRow, Settled

__all__ = ["MemoryRow", "MemoryRows", "own_lane_of"]


class MemoryRow(LedgerRow):
    """A run with its events of both lanes."""

    __slots__ = (
        "bases", "events", "keys", "named", "positions", "recency", "requests", "snapshot",
        "spoken_to",
    )  # fmt: skip

    events: list[Event]
    positions: "array[int]"
    keys: dict[tuple[str, str], InLane | Settled] | None
    """What was accepted, by source and key."""
    requests: list[str] | None
    """The names of the requests that it has accepted."""
    named: str
    """The agent by whose name it is found; empty once it is ended."""
    recency: str
    spoken_to: int
    """``recent`` as the order of those spoken to has it."""
    snapshot: SnapshotDraft | None
    bases: list[tuple[int, AgentBase]] | None
    """Its bases, with their positions."""

    def cut(self, cut: Cut) -> Sequence[int]:
        """Forget what stands before a base, if the record is one, but for how the run began; the
        positions of that."""
        events = self.events
        began = next((at for at, x in enumerate(events) if x.lane == "own"), len(events))
        place = len(events) - 1  # From the end: behind a base is less than before it.
        while place > began and (events[place].lane != "own" or events[place].seq > cut.seq):
            place -= 1
        if place <= began or events[place].seq != cut.seq:
            return ()
        if not isinstance(events[place], AgentBase):
            return ()
        kept = max(began + 1, bisect_right(self.positions, cut.after, 0, place))
        gone = self.positions[kept:place]
        self._settle([x for x in events[kept:place] if x.lane == "in"])
        del events[kept:place], self.positions[kept:place]
        if self.snapshot is not None and self.snapshot.seq < cut.seq:
            self.snapshot = None
        return gone

    def _settle(self, items: Sequence[Event]) -> None:
        """Keep of the keys of items what these said."""
        keys = self.keys
        if not keys:
            return
        seqs = {item.seq for item in items}
        known = {identity_of(item) for item in items if isinstance(item, InLane)}
        if any(has_tick(item) for item in items):
            known.update(key for key in keys if key[0] == SCHEDULES)
        for key in known:
            item = keys.get(key)
            if item is not None and not isinstance(item, Settled) and item.seq in seqs:
                keys[key] = Settled(number_of(item))


class MemoryRows:
    """``Rows`` in dicts.  ``find`` is that of the dict itself: it is asked for all the time."""

    def __init__(self) -> None:
        self.by_id: dict[str, MemoryRow] = {}
        self.find = self.by_id.get
        self.live: dict[str, None] = {}
        self._by_name: dict[str, dict[str, None]] = {}
        self._by_key: dict[str, str] = {}
        self._by_descriptor: dict[Descriptor | None, str] = {}
        """Open runs by descriptor; children are not asked for by it."""
        self._recent: dict[str, dict[str, None]] = {"user": {}, "heartbeat": {}}
        """Open runs by type of descriptor, the one a user spoke to last at the end."""
        self.requests: dict[str, str] = {}
        """What is noted of requests, by name."""
        self.notes: dict[str, str] = {}
        self.bases: list[tuple[int, AgentBase]] = []
        """Those of all runs, in order, with their positions."""
        self._trees: dict[str, list[str]] = {}
        """The runs of each tree of more than one, by creation."""
        self.living: dict[str, int] = {}
        """How many runs of each tree of more than one live, if any does."""
        self._held: dict[str, list[str]] = {}
        """The runs that have ended in trees where others live, in this order."""

    # ── what a ledger asks ───────────────────────────────────────────────────────────────────

    def create(self, new: NewRun, at: int) -> MemoryRow:
        row = MemoryRow(new, at)
        run_id = new.run_id
        row.events, row.positions, row.keys, row.requests = [], array("Q"), None, None
        row.named, row.recency, row.spoken_to = new.agent, "", 0
        row.snapshot = row.bases = None
        if new.descriptor is not None:
            if is_identity(new.descriptor):
                self._by_descriptor[new.descriptor] = run_id
            row.recency = recency_of(run_id, new.descriptor)
        if row.recency:
            self._recent[row.recency][run_id] = None
        self.by_id[run_id] = row
        if new.parent_run_id is not None:
            root = new.root_run_id
            self._trees.setdefault(root, [root]).append(run_id)
            self.living[root] = self.living.get(root, root in self.live) + 1
        self.live[run_id] = None
        self._by_name.setdefault(new.agent, {})[run_id] = None
        if row.session_key and is_addressed(new.descriptor):
            self._by_key[row.session_key] = run_id
        return row

    def opened(self, new: NewRun) -> str | None:
        found = None if new.by_descriptor else self._by_key.get(new.session_key)
        if found is None and new.descriptor is not None:
            found = self._by_descriptor.get(new.descriptor)
        return found

    def is_key_free(self, session_key: str) -> bool:
        return session_key not in self._by_key

    def known(self, row: MemoryRow, source: str, key: str) -> InLane | Settled | None:
        return row.keys.get((source, key)) if row.keys is not None else None

    def own_lane(self, row: MemoryRow) -> Sequence[Event]:
        return row.events

    def requested(self, name: str) -> str:
        return self.requests.get(name, "")

    def noted(self, key: str) -> str:
        return self.notes.get(key, "")

    def candidates(self, to: str, by: Addressing) -> Sequence[str]:
        match by:
            case "run":
                return (to,)
            case "name":
                return tuple(self._by_name.get(to, ()))
            case "key":
                found = self._by_key.get(to) or self._by_descriptor.get(descriptor_of_key(to))
                return (found,) if found is not None else ()
            case "descriptor":
                found = self._by_descriptor.get(read_descriptor(to))
                return (found,) if found is not None else ()
            case "only":
                held = tuple(self._recent["user"])
                return held or [x for x in self.live if self.by_id[x].parent_run_id is None]
            case "newest":
                recent = self._recent.get(to)
                return (next(reversed(recent)),) if recent else ()
            case "every":
                return tuple(self.live)
            case "below":
                return self._below(to)
            case _:
                assert_never(by)

    def _below(self, run_id: str) -> Sequence[str]:
        row = self.by_id.get(run_id)
        reached = {run_id}
        found = []
        # By creation: a parent always comes before its children.
        for each in self._trees.get(row.root_run_id, ()) if row is not None else ():
            child = self.by_id.get(each)
            if child is not None and child.parent_run_id in reached:
                reached.add(each)
                if child.status != "ended" and child.inbox != "terminated":
                    found.append(each)
        return found

    def readdress(self, row: MemoryRow) -> None:
        """Have addresses find the run by what it is now."""
        agent = row.agent if row.status != "ended" else ""
        if agent != row.named:
            names = self._by_name[row.named]
            del names[row.run_id]
            if not names:
                del self._by_name[row.named]
            row.named = agent
            if agent:
                self._by_name.setdefault(agent, {})[row.run_id] = None
            else:
                del self.live[row.run_id]
        if row.inbox != "open":  # Nothing more is meant for the run unless it names it.
            if row.session_key and self._by_key.get(row.session_key) == row.run_id:
                del self._by_key[row.session_key]
            if self._by_descriptor.get(row.descriptor) == row.run_id:
                del self._by_descriptor[row.descriptor]
            if row.recency:
                self._recent[row.recency].pop(row.run_id, None)
        elif row.recency and row.recent != row.spoken_to:
            row.spoken_to = row.recent
            self._recent[row.recency].pop(row.run_id, None)
            self._recent[row.recency][row.run_id] = None

    # ── what the store asks ──────────────────────────────────────────────────────────────────

    def at_work(self) -> list[MemoryRow]:
        """The live runs, by creation."""
        return [self.by_id[run_id] for run_id in self.live]

    def tree(self, root_run_id: str) -> Sequence[str]:
        """The runs of a tree that are kept or have been, by creation."""
        return self._trees.get(root_run_id, (root_run_id,))

    def note(self, requests: Mapping[str, tuple[MemoryRow, str]]) -> None:
        """Keep what is noted of requests, as long as the runs that have accepted them."""
        for name, (row, noted) in requests.items():
            self.requests[name] = noted
            if row.requests is None:
                row.requests = []
            row.requests.append(name)

    def ended(self, row: MemoryRow) -> Sequence[str]:
        """The runs that none of their tree may ask for any more, now that this one of a tree of
        several has ended."""
        root = row.root_run_id
        self.living[root] -= 1
        held = self._held.setdefault(root, [])
        held.append(row.run_id)
        if self.living[root]:
            return ()
        del self.living[root], self._held[root]
        return held

    def note_bases(self, bases: Iterable[tuple[MemoryRow, AgentBase]]) -> None:
        """Know where the bases are that were just written."""
        for row, base in bases:
            place = next(at for at in range(len(row.events) - 1, -1, -1) if row.events[at] is base)
            noted = (row.positions[place], base)
            self.bases.append(noted)
            row.bases = [*(row.bases or ()), noted]

    def cut(self, row: MemoryRow, cut: Cut) -> Sequence[int]:
        """See ``MemoryRow.cut``."""
        gone = row.cut(cut)
        if gone and row.bases is not None:
            self._forget_bases([x for x in row.bases if gone[0] <= x[0] <= gone[-1]])
            row.bases = [x for x in row.bases if not gone[0] <= x[0] <= gone[-1]]
        return gone

    def _forget_bases(self, bases: Iterable[tuple[int, AgentBase]]) -> None:
        for position, _ in bases:
            place = bisect_left(self.bases, position, key=itemgetter(0))
            del self.bases[place]

    def forget(self, run_id: str) -> MemoryRow:
        """Release an ended run."""
        gone = self.by_id.pop(run_id)
        self._forget_bases(gone.bases or ())
        if gone.parent_run_id is None:
            self._trees.pop(run_id, None)
        for name in gone.requests or ():
            self.requests.pop(name, None)
        return gone


def own_lane_of(events: Sequence[Event], after: int) -> tuple[list[Event], int]:
    """The events of the own lane after a number, and that number: that of what its base stands
    for, where the events up to that have gone.  Searched from the end."""
    found: list[Event] = []
    for event in reversed(events):
        if event.lane == "own":
            if event.seq <= after:
                break
            if found and event.seq < found[-1].seq - 1:  # How the run began.
                break
            found.append(event)
    found.reverse()
    return found, found[0].seq - 1 if found else after
