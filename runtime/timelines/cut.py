"""``cut_tree``: a tree of runs as it was, in one moment of its store, after a record of its root.

    every run's events up to the position of that record, and what this had sent already

Rules
-----
* The store's order is one for all runs, so that what a run has heard at its cut was said before.
* A record that was written with the next one, as an answer with the end of its session, or the
  begin of one with its message, is taken with it; so are the results of children with what the
  calls come to that have waited for them.
* What the root's own records up to there have sent is in the same commit, but behind: a child that
  it has on record is begun, has what it was told, and is interrupted where the root was.
* Which of a step's calls need a person's approval was decided with the step.  Where the cut is
  before that is on record, it is known all the same (``asked``).
* Nothing damaged is taken: every event is checked as ``hubbub fsck`` does.
* Runs of code agents that have not ended at the cut cannot be taken; nor can runs whose records of
  then have gone with their old turns.  Where some of then are left, as how a run began, messages
  and children that belong to them may have gone.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.code.run_states import RunStates
from hubbub.agents.state.fold import fold
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub import events as e
from hubbub.hub.errors import CallerError, StoreFailed, UnknownRun
from hubbub.hub.events import Event
from hubbub.hub.events.codec import encode_event
from hubbub.hub.store.reader import EventRow, RunRow, StoreReader, decoded, own_lane
from hubbub.runtime.inspection.replay import GoneRecord, NoSuchRecord
from hubbub.runtime.stores.exchange.lanes import Lane, Lanes

__all__ = ["CutRun", "CutTree", "NoFork", "cut_tree"]

BEHIND: Final = 10_000
"""Events behind the cut among which is looked for what was sent."""


class NoFork(CallerError):
    """A run cannot be forked there."""

    def __init__(self, run_id: str, why: str) -> None:
        super().__init__(f"run {run_id}: {why}")


class CutRun(Struct, frozen=True):
    """A run at the cut."""

    opened: e.SessionOpen
    thread: Thread
    lane: Lane
    closes: str = ""
    """``closing`` or ``terminated``, where its inbox takes no more messages."""
    ends: tuple[e.SessionClose | e.SessionTerminate, ...] = ()
    """What has closed it, taken or not."""
    at: int = 0
    """The time of its last record (µs)."""
    settled: Mapping[tuple[str, str], int] = {}
    """By source and key, what items said that were accepted and have gone (``AcceptedRow``)."""


class CutTree(Struct, frozen=True):
    """A tree at the cut: its runs by id, in the order in which they began; all events, in order."""

    seq: int
    runs: dict[str, CutRun]
    events: list[Event]
    asked: tuple[e.SessionPrompt, ...] = ()
    """The approvals that the root has asked for with its last record, but behind it."""


def cut_tree(store: StoreReader, run_id: str, seq: int | None) -> CutTree:
    """The tree of a root after record ``seq`` of its own lane.  By default as it is now, with what
    waits in its inboxes; of one that has ended as it was before the records of its end.

    Raises ``UnknownRun``, ``NoSuchRecord``, ``GoneRecord``, ``NoFork``, and ``StoreFailed`` for
    what is damaged.
    """
    with store.one_moment():
        row = store.row(run_id)
        if row is None:
            raise UnknownRun(run_id)
        if row.parent_run_id is not None:
            root = row.root_run_id
            raise NoFork(run_id, f"another run began it, in whose tree it is; fork {root}")
        last = row.seq if row.inbox == "open" else _last_open(store, run_id)
        if seq is None and row.inbox == "open":
            return _Cut(store, row, last).whole()
        wanted = last if seq is None else seq
        kept, first = gap(store, run_id)
        if 0 < wanted <= kept:
            what = f"what belongs to record {wanted} has gone with its old turns"
            raise NoFork(run_id, f"{what}; fork it after record 0, or after one from {first} on")
        if kept < wanted < first:
            raise GoneRecord(run_id, wanted, first)
        if not 0 <= wanted <= row.seq:
            raise NoSuchRecord(run_id, wanted, row.seq)
        if wanted > last:
            why = f"it is at its end after record {wanted}; fork it after one from 0 to {last}"
            raise NoFork(run_id, why)
        return _Cut(store, row, wanted).tree()


def gap(store: StoreReader, run_id: str) -> tuple[int, int]:
    """The numbers of the records between which the last of a run's old turns have gone, that of a
    base the second; both are 0 where none have."""
    place, found = 0, (0, 0)
    while bases := store.bases(run_id, after=place):
        for base in bases:
            before = store.event_rows((run_id,), until=base.position - 1, backwards=True)
            last = next((row.seq for row in before if row.lane == "own"), 0)
            found = (last, base.seq) if base.seq > last + 1 else found
        place = bases[-1].position
    return found


def _last_open(store: StoreReader, run_id: str) -> int:
    """The last record of a run before those by which it ends."""
    states, last = RunStates(), 0
    for event in own_lane(store, run_id):
        states.take(event)
        thread = states.thread
        is_end = thread.phase == "ended" or thread.closing or thread.terminated is not None
        if is_end or isinstance(event, e.AgentFailed):
            break
        if not isinstance(event, e.AgentStart):  # One that never began has started for its end.
            last = event.seq
    return last


def _belongs(event: Event, following: Event) -> bool:
    """Whether a record is the other half of what the one before it says; both were written
    together."""
    match event:
        case e.AgentStart():
            return isinstance(following, e.SessionStart)
        case e.SessionStart():
            return isinstance(following, e.SessionTaken)
        case e.SessionPromptEnd():  # An answer is what the call came to.
            is_result = isinstance(following, e.AgentToolComplete)
            return isinstance(following, _TOGETHER) or (
                is_result and following.call_id == event.call_id
            )
        case e.SessionTaken() if isinstance(following, e.SessionPromptEnd):
            return following.prompt_id in map(_answered, event.items)
        case e.SessionTaken():  # Of values that a child has waited for.
            return isinstance(following, (*_TOGETHER, e.AgentChild))
        case e.AgentStep(calls=()):
            return isinstance(following, (*_TOGETHER, e.AgentRetry))
        case e.AgentHandoff() | e.SessionPop():
            return isinstance(following, (*_TOGETHER, e.AgentToolComplete))
        case _:
            return isinstance(following, _TOGETHER)


def _answered(item: Event) -> str:
    """The prompt that an item of an inbox answers, or ends as nobody has; empty for none."""
    if isinstance(item, e.SessionReply):
        return item.prompt_id
    return item.timer if isinstance(item, e.SessionTimer) else ""


_TOGETHER: Final = (e.SessionEnd, e.SessionTurn, e.SessionPush, e.SessionPop)

_ENDS: Final = (e.SessionAbort, e.SessionCancel)
"""By what a run interrupts those that it has waited for."""


def _waited(thread: Thread) -> set[str]:
    """The children that a run waits for."""
    calls = thread.open.calls if thread.open is not None else ()
    waits = {call.child for call in calls if call.status == "waiting" and call.child}
    waits |= {start.child for start in thread.family.starts if start.status == "waiting"}
    return waits | {child for _, child in thread.family.awaited}


class _Cut:
    """One tree, read up to a position."""

    def __init__(self, store: StoreReader, root: RunRow, seq: int) -> None:
        self._store = store
        self._root = root
        self._seq = seq
        self._lanes = Lanes(store.place)
        self._runs: dict[str, CutRun] = {}
        self._events: list[Event] = []
        self._asked: list[e.SessionPrompt] = []
        self._place = 0
        """The position of the last one of them."""
        self._untold: set[tuple[str, str]] = set()
        """Children without an opening yet, and messages to them, by key."""
        self._left: set[str] = set()
        """Children that the root has waited for and does not any more: they may be told so."""

    def tree(self) -> CutTree:
        rows = self._rows()
        for row in rows:
            event = self._take(row)
            # Before its first record there is its opening.
            is_there = event.seq == self._seq if event.lane == "own" else not self._seq
            if event.run_id == self._root.run_id and is_there:
                self._take_sent(self._take_together(row, event, rows))
                break
        return self._checked()

    def whole(self) -> CutTree:
        """All of it."""
        for row in self._rows():
            self._take(row)
        return self._checked()

    def _checked(self) -> CutTree:
        for run_id, run in self._runs.items():
            _, base = gap(self._store, run_id)
            self._check(run_id, run, base)
            if 0 < base <= run.lane.seq:
                self._runs[run_id] = replace(run, settled=self._settled(run_id))
        return CutTree(self._seq, self._runs, self._events, tuple(self._asked))

    def _rows(self) -> Iterator[EventRow]:
        run_ids = [each.run_id for each in self._store.tree(self._root.run_id)]
        return (row for row in self._store.event_rows(run_ids) if row.lane != "hub")

    def _take(self, row: EventRow) -> Event:
        for problem in self._lanes.take(row):
            raise StoreFailed(self._store.place, f"{problem.what}: {problem.remedy}")
        event = decoded(self._store, row.position, row.body)
        self._put(event)
        self._place = row.position
        return event

    def _put(self, event: Event) -> None:
        self._events.append(event)
        run = self._runs.get(event.run_id)
        if run is None:
            if not isinstance(event, e.SessionOpen):
                raise NoFork(event.run_id, "its opening is not on record any more")
            run = CutRun(event, EMPTY, self._lanes.runs[event.run_id])
        self._untold.discard((event.run_id, ""))
        match event:
            case e.SessionClose(lane="in"):
                run = replace(run, closes=run.closes or "closing", ends=(*run.ends, event))
            case e.SessionTerminate(lane="in"):
                run = replace(run, closes="terminated", ends=(*run.ends, event))
            case e.SessionMessage(lane="in"):
                self._untold.discard((event.run_id, event.key))
            case e.SessionAbort(lane="in") | e.SessionCancel(lane="in"):
                self._left.discard(event.run_id)
            case e.AgentChild(error="") if event.child_run_id not in self._runs:
                self._untold.add((event.child_run_id, ""))
            case e.AgentMessage() if event.key:
                self._untold.add((event.to, event.key))
        if event.lane == "own":
            # Where records have gone before a base, the run goes on from that.
            before = EMPTY if run.lane.base == event.seq else run.thread
            run = replace(run, thread=fold(before, event), at=event.at)
            if event.run_id == self._root.run_id:
                self._left |= _waited(before) - _waited(run.thread)
        self._runs[event.run_id] = run

    def _take_together(
        self, last: EventRow, event: Event, rows: Iterator[EventRow]
    ) -> Iterator[EventRow]:
        """Take the records without which those before them are in the middle of one thing, and look
        at the others of the same commit; the rows that are not taken."""
        left: list[EventRow] = []
        for row in rows:
            following = decoded(self._store, row.position, row.body)
            is_next = row.position == last.position + 1 and following.at == event.at
            is_own = row.lane == "own" and row.run_id == last.run_id
            # With a step that is not taken itself nothing of it is.
            if not (is_next and is_own) or isinstance(following, e.AgentStep):
                return chain(left, (row,), rows)
            if not left and (_belongs(event, following) or self._is_answered_by(following)):
                event = self._take(row)
                self._seq = event.seq
            else:
                left.append(row)
                if isinstance(following, e.SessionPrompt) and following.kind == "approval":
                    self._asked.append(following)
            last = row
        return iter(left)

    def _is_answered_by(self, following: Event) -> bool:
        """Whether a record says what a call comes to by a result that the root has taken with it:
        the call would wait for another one."""
        if not isinstance(following, e.AgentToolComplete):
            return False
        for event in reversed(self._events):
            if event.run_id != self._root.run_id or event.lane != "own":
                continue
            if isinstance(event, e.SessionTaken):
                is_together = event.at == following.at
                return is_together and any(isinstance(x, e.SessionResult) for x in event.items)
            if not isinstance(event, e.AgentToolComplete):
                return False
        return False

    def _take_sent(self, rows: Iterator[EventRow]) -> None:
        """Take what was sent with the last records, which stands behind them."""
        place, sent, in_commit = self._place, 0, True
        for _, row in zip(range(BEHIND), rows, strict=False):
            is_own = row.run_id == self._root.run_id and row.lane == "own" and not sent
            place, sent = place + 1, sent + (row.lane == "in")
            in_commit = in_commit and row.position == place and (is_own or row.lane == "in")
            if not (self._untold or in_commit):
                return
            if row.lane != "in":
                continue
            event = decoded(self._store, row.position, row.body)
            key = event.key if isinstance(event, e.SessionMessage) else ""
            is_end = in_commit and isinstance(event, _ENDS) and event.run_id in self._left
            if is_end or (event.run_id, key) in self._untold:
                self._take_as_next(row, event)

    def _take_as_next(self, row: EventRow, event: Event) -> None:
        """Take an item as the next one of its inbox, whatever came there before it."""
        known = self._lanes.runs.get(event.run_id)
        seq = 1 if known is None else known.in_seq + 1
        event = replace(event, seq=seq)
        sent = EventRow(*row[:4], seq, row.type, None, encode_event(event))
        for problem in self._lanes.take(sent):
            raise StoreFailed(self._store.place, f"{problem.what}: {problem.remedy}")
        self._put(event)

    def _settled(self, run_id: str) -> Mapping[tuple[str, str], int]:
        known = self._store.accepted(run_id)
        return {(each.source, each.key): each.number for each in known if each.number}

    def _check(self, run_id: str, run: CutRun, base: int) -> None:
        if run_id != self._root.run_id and run.lane.seq < base:
            raise NoFork(run_id, "its records of then have gone with its old turns; fork later")
        if run.lane.has_ended or run.lane.seq == 0:  # Which begins anew.
            return
        began = self._store.latest(run_id, (e.SessionStart.type,))
        if began is not None and not began.side:
            raise NoFork(
                run_id,
                f"{began.agent!r} is a code agent at work there, whose variables and place in its "
                "code are on no record; fork record 0, or start it anew with its input",
            )
