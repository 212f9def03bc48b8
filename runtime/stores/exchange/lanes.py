"""``Lanes``: checks the events of a store, one by one and in order, for consistency.

    row of an event × what came before in its lane  →  problems

Rules
-----
* Checksums form a chain: one for each run, over both of its lanes, and one for the hub's lane.  A
  damaged event is one problem; the check continues with the next event.
* Each lane numbers its events from 1 without a gap, but before a base, which says how many items
  had come to the in lane by then: what a retention has go stands before one.
* A body is an event whose fields agree with the columns of its row.  All events of a run name the
  same parent.
* A base can be gone on from (``base_check.py``), and every value within an event be read: also
  what nothing reads yet.
* An in lane holds only inbox items, and the first one opens the run; an own lane holds none but
  the requests for variables (``IN_BOTH_LANES``).
* An inbox holds the items that came in and were not taken: by its owner, or by a takeover frame of
  the same tree, which records that in its own lane.  An item is taken at most once, and none after
  its run has ended: what waited then was moved or is left over.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import force_setattr

from hubbub.hub.errors import BadValue
from hubbub.hub.events import (
    CATALOGUE,
    AgentBase,
    AgentChild,
    AgentComplete,
    AgentHandoff,
    ContentPart,
    Event,
    InLane,
    SessionDropped,
    SessionMessage,
    SessionOpen,
    SessionStart,
    SessionTaken,
    SessionTurn,
)
from hubbub.hub.events.checksums import checksum_after
from hubbub.hub.events.codec import decode_event
from hubbub.hub.events.files import file_problem, files_of, kept_contents, parts_of
from hubbub.hub.events.given_tools import given_tools_problem
from hubbub.hub.events.history import history_problem
from hubbub.hub.events.moments import is_moment
from hubbub.hub.events.parts import part_problem
from hubbub.hub.events.sessions import IN_BOTH_LANES
from hubbub.hub.events.values_within import value_problem
from hubbub.hub.store.reader import EventRow
from hubbub.hub.texts import readable
from hubbub.runtime.stores.exchange.base_check import base_problem

__all__ = ["FROM_BACKUP", "Lane", "Lanes", "Problem", "may_have_started"]

FROM_BACKUP: Final = (
    "restore the store from a backup, or import an export of the run with --replace"
)


class Problem(Struct, frozen=True):
    """Something wrong in a store: where, what, and the remedy."""

    where: str
    what: str
    remedy: str
    heals: bool = False
    """Whether it is no damage: the next runtime updates a folder that is behind."""

    def __post_init__(self) -> None:
        if not self.where.isascii():  # Paths may hold bytes that are not text.
            force_setattr(self, "where", readable(self.where))
        if not self.what.isascii():
            force_setattr(self, "what", readable(self.what))

    @property
    def text(self) -> str:
        return f"{self.where}: {self.what}; {self.remedy}"


class Lane:
    """The state of a run's two lanes, or of the hub's lane, after the events so far."""

    __slots__ = (
        "agents", "base", "born", "chains", "children", "gone", "has_ended", "in_seq", "is_clear",
        "is_dense", "is_sound", "name", "opened", "parent", "root", "seq", "untaken",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.seq = 0
        self.in_seq = 0
        self.born = 0
        """The position of the first event."""
        self.gone: tuple[range, ...] = ()
        """The numbers of items of the in lane that have gone, each before a base."""
        self.base = 0
        """The number of the last base before which own records have gone; 0 where none have."""
        self.chains: tuple[int, ...] = (0,)
        """What the last event's checksum may be: as written and, if it differs, as computed.
        Either the event or its checksum has changed; the next event shows which."""
        self.untaken: dict[int, bool] = {}
        """In-lane numbers of what was not taken, and whether it is a message."""
        self.is_clear = True
        """Whether every event that may have taken items from this inbox could be read."""
        self.is_sound = True
        """Whether its events so far had no problem."""
        self.is_dense = True
        """Whether the in lane has no gap so far."""
        self.has_ended = False
        self.root = ""
        """Its tree's root."""
        self.parent: str | None = None
        """The run above it, as its first event says."""
        self.agents: set[str] = set()
        """Its agents: more than one after a handoff."""
        self.opened: SessionOpen | None = None
        self.children: set[str] = set()
        """The children that it has recorded."""

    def may_have_started(self, run_id: str) -> bool:
        """Whether a run is a child of this one by its records, or may be by one that has gone: a
        base names children that the run still knows, and not all that it has ever had."""
        return self.base > 0 or run_id in self.children

    def begin_at(self, base: AgentBase) -> None:
        """Go on from a base, if anything has gone before it."""
        gone = range(self.in_seq + 1, base.inbox + 1)
        if gone or self.base == base.seq:
            self.untaken.clear()  # What took them may have gone, too.
        if gone:
            self.gone, self.in_seq = (*self.gone, gone), base.inbox

    def has_gone(self, seq: int) -> bool:
        """Whether the item of the in lane of that number has gone."""
        return any(seq in each for each in self.gone)


class Lanes:
    """Takes rows of events in order of position; reports begin with ``place``."""

    def __init__(self, place: str) -> None:
        self._place = place
        self.events = 0
        self.runs: dict[str, Lane] = {}
        self.hub = Lane("")
        self.digests: dict[str, tuple[int, int]] = {}
        """Position that first names a content, and its size, by digest."""

    def take(self, row: EventRow) -> Iterator[Problem]:
        """What is wrong with the next event."""
        self.events += 1
        lane = self.hub if row.lane == "hub" else self._lane(row.run_id, row.root_run_id)
        for problem in self._look(lane, row):
            lane.is_sound = False
            yield problem

    def _look(self, lane: Lane, row: EventRow) -> Iterator[Problem]:
        position, run, root, name, seq, type_, crc, body = row
        where = f"{self._place}: position {position}"
        if lane.name:
            where = f"{where}: run {lane.name}"
        if not isinstance(body, bytes):
            body = b""
        yield from _chained(lane, where, type_, crc, body)
        if type_ == AgentBase.type and isinstance(seq, int) and seq > lane.seq + 1:
            lane.base, lane.seq = seq, seq - 1
        yield from _numbered(lane, where, name, seq)
        lane.born = lane.born or position
        try:
            event = decode_event(body)
        except (BadValue, ValueError, RecursionError) as error:
            lane.is_clear = False
            yield Problem(where, f"its body is not an event ({error})", FROM_BACKUP)
            if name == "in":
                lane.untaken[seq] = type_ == SessionMessage.type
            elif type_ in (SessionTaken.type, SessionDropped.type):
                self._blur(root)
            return
        said = (event.type, event.lane, event.seq, event.run_id, event.root_run_id)
        columns = (type_, name, seq, run, root)
        if said != columns:
            yield Problem(where, f"its body says {said} and its columns {columns}", FROM_BACKUP)
        if what := value_problem(event):
            yield Problem(where, what, FROM_BACKUP)
        if isinstance(event, AgentBase) and name == "own":
            lane.begin_at(event)
        if name in ("own", "in") and (what := _foreign(lane, position, event)):
            yield Problem(where, what, FROM_BACKUP)
        yield from self._follow(lane, name, seq, where, event)
        for ref in kept_contents(event):
            self.digests.setdefault(ref.digest, (position, ref.size))

    def _follow(
        self, lane: Lane, name: Any, seq: Any, where: str, event: Event
    ) -> Iterator[Problem]:
        if name == "in":
            lane.untaken[seq] = isinstance(event, SessionMessage)
            if seq == 1 and isinstance(event, SessionOpen):
                lane.opened = event
        elif name != "own":
            return
        elif isinstance(event, SessionTaken | SessionDropped):
            for item in event.items:
                if what := self._taken(item.run_id, item.seq):
                    yield Problem(where, what, FROM_BACKUP)
        elif isinstance(event, AgentComplete):
            lane.has_ended = True
        elif isinstance(event, AgentChild):
            lane.children.add(event.child_run_id)
        elif isinstance(event, AgentBase):
            lane.children.update(event.children)
            if what := base_problem(event, lane.opened):
                yield Problem(where, what, FROM_BACKUP)
            if event.inbox != lane.in_seq and lane.is_dense:
                what = f"it counts {event.inbox} items of its inbox, {lane.in_seq} came before it"
                yield Problem(where, what, FROM_BACKUP)

    def _taken(self, run_id: str, seq: int) -> str:
        """Take an item, for its run or for a frame; why that is invalid, empty if it is valid."""
        lane = self.runs.get(run_id)
        # A frame may have come here in an export without those above it.
        if lane is None or lane.has_gone(seq):
            return ""
        if lane.untaken.pop(seq, None) is not None and not lane.has_ended:
            return ""
        if lane.has_ended:
            return f"it takes in {seq} of run {run_id}, which had ended"
        if lane.is_dense and 0 < seq <= lane.in_seq:
            return f"it takes in {seq} of run {run_id}, which was taken before"
        return ""

    def _blur(self, root: str) -> None:
        """An unreadable event may have taken items from any inbox of the tree."""
        for lane in self.runs.values():
            lane.is_clear = lane.is_clear and lane.root != root

    def _lane(self, run_id: str, root_run_id: str) -> Lane:
        lane = self.runs.get(run_id)
        if lane is None:
            lane = self.runs[run_id] = Lane(run_id)
            lane.root = root_run_id
        return lane


def may_have_started(events: Iterable[Event], run_id: str) -> bool:
    """``Lane.may_have_started`` for a run whose events these are, in order."""
    own = 0
    for event in events:
        if event.lane == "own":
            if isinstance(event, AgentBase) and event.seq > own + 1:
                return True
            if isinstance(event, AgentChild) and event.child_run_id == run_id:
                return True
            own = event.seq
    return False


def _foreign(lane: Lane, position: Any, event: Event) -> str:
    """Why an event does not belong into its lane, whatever its columns say; empty if it does."""
    if position == lane.born:
        lane.parent = event.parent_run_id
    lane.agents.add(event.agent)
    if isinstance(event, AgentHandoff):
        lane.agents.add(event.to)
    if event.parent_run_id != lane.parent:
        return f"its parent is {event.parent_run_id!r}, that of the event before it {lane.parent!r}"
    if not is_moment(event.at):
        return f"its time is {event.at}"
    comes_in = isinstance(event, InLane)
    if event.lane == "own" and comes_in and not isinstance(event, IN_BOTH_LANES):
        return f"{event.type} does not belong in the run's own lane"
    if event.lane == "in" and event.seq == 1 and not isinstance(event, SessionOpen):
        return f"the run is opened by {event.type}"
    if event.lane == "in" and not comes_in and event.__class__ in _OURS:
        return f"{event.type} does not belong in an inbox"
    if what := _of_no_side(event) or _seeded(event):
        return what
    problems = (*map(file_problem, files_of(event)), *map(_part_problem, parts_of(event)))
    return next(filter(None, problems), "")


def _of_no_side(event: Event) -> str:
    """Why an event names a side that no run has; empty if it names none such."""
    for each in event.items if isinstance(event, SessionTaken) else (event,):
        if isinstance(each, SessionOpen) and each.receives not in _SIDES:
            return f"it names a side {each.receives!r}"
    if isinstance(event, SessionStart | SessionTurn) and event.side not in ("", *_SIDES):
        return f"it names a side {event.side!r}"
    return ""


_SIDES: Final = ("side_a", "side_b")


def _seeded(event: Event) -> str:
    """Why no run can have been opened with such a history or tools; empty if one can."""
    items = event.items if isinstance(event, SessionTaken) else (event,)
    openings = [x for x in items if isinstance(x, SessionOpen) and (x.history or x.tools)]
    for opening in openings:
        if what := history_problem(opening.history):
            return f"its history: {what}"
        if what := given_tools_problem(opening.tools):
            return f"its tools: {what}"
    return ""


def _part_problem(part: ContentPart) -> str:
    what = part_problem(part)
    return f"it has a part that is none: {what}" if what else ""


_OURS: Final = frozenset(CATALOGUE)
"""Others may be of a later version, which knows what it does."""


def _chained(lane: Lane, where: str, type_: Any, crc: Any, body: bytes) -> Iterator[Problem]:
    if crc is None:  # The store keeps no checksums.
        return
    found = [checksum_after(chain, type_, body) for chain in lane.chains]
    if crc in found:
        lane.chains = (crc,)
        return
    yield Problem(where, "it has changed, or the event before it is missing", FROM_BACKUP)
    is_sound = isinstance(crc, int) and 0 <= crc < 1 << 32
    lane.chains = (crc, found[0]) if is_sound else (found[0],)


def _numbered(lane: Lane, where: str, name: Any, seq: Any) -> Iterator[Problem]:
    if name not in ("own", "in", "hub"):
        yield Problem(where, f"its lane is {name!r}, not own, in or hub", FROM_BACKUP)
        return
    wanted = (lane.in_seq if name == "in" else lane.seq) + 1
    if seq != wanted:
        lane.is_dense = lane.is_dense and name != "in"
        yield Problem(where, f"it is {name} {seq!r} where {name} {wanted} is due", FROM_BACKUP)
    reached = seq if isinstance(seq, int) and seq > wanted else wanted
    if name == "in":
        lane.in_seq = reached
    else:
        lane.seq = reached
