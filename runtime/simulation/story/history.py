"""``History``: everything that happened in a simulated world, over all its lives.

    events    what the store holds at the end, and what has gone from it, in its order: the truth
    heard     what listeners were told, life by life: durable and not, deltas left out
    sent      what users said, and what became of it
    skipped   what they would have said to runs that were never opened
    gone      the trees, and old turns, that a retention had go; their events are in ``events``
    forks     the runs that users had go on from records of others
    requests  every model call
    lives     the processes: when each began, how it ended

Invariants read it, and people read its ``trace``.  It is plain data: nothing in it changes any
more once the world is over.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct, field, structs

from hubbub.agents.model import ModelRequest
from hubbub.agents.state.bases import base_behind_gap
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub import events as e
from hubbub.hub.events import Event, InLane
from hubbub.hub.receipt import ReceiptStatus
from hubbub.hub.store.journal import RunInfo
from hubbub.hub.values import Json, decode_value
from hubbub.hub.virtual import EPOCH
from hubbub.runtime.simulation.story.faults import WorldFault
from hubbub.runtime.simulation.story.gone import Gone
from hubbub.runtime.simulation.story.logbook import Logged, new_log

__all__ = [
    "Asked", "EndOfLife", "ForkMade", "Heard", "History", "Life", "Sent", "Skipped", "StoreName",
    "Verb",
]  # fmt: skip

StoreName: TypeAlias = Literal["memory", "late", "sqlite"]

EndOfLife: TypeAlias = Literal["", "left", "killed", "crashed"]
"""``left`` in order, ``killed`` by the scenario, ``crashed`` by a fault; empty: still at work."""

Verb: TypeAlias = Literal[
    "open", "fork", "say", "interrupt", "terminate", "close", "reply", "approve", "deny"
]

JUST: Final = 1_000_000
"""Microseconds after which all have heard of what one of several processes wrote."""

_RUN_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_CARRIED: Final = frozenset(Event.__struct_fields__)
"""What every event has; the trace says it before the rest, or not at all."""


class Life(Struct, kw_only=True):
    """One process on the world's store.  Times are seconds since the world began."""

    number: int
    began: float = 0.0
    ended: float = 0.0
    end: EndOfLife = ""
    commits: int = 0
    """How many it submitted that were written."""
    tip: int = 0
    """How many events the store had when it ended."""
    worker: int | None = None
    """Which of several workers it was; ``None`` for the process that the world speaks through."""
    place: int = 0
    """How much had been ``heard`` when it ended."""
    told: list[str] = field(default_factory=list)
    """The ids of the durable events that it heard, in a world of several workers."""


class Sent(Struct, kw_only=True):
    """What a user did, and the status of its receipt.

    ``verb`` is ``say`` except for an opening (``text`` is its input, in JSON where it is no text),
    for a fork (``text`` is of what), and for what ends or interrupts (``text`` is the reason).
    ``status`` is that of the receipt; ``pending``: the process died before it could say.
    """

    verb: Verb = "say"
    run_id: str
    text: str = ""
    key: str = ""
    user: str = ""
    agent: str = ""
    status: ReceiptStatus = "pending"
    reason: str = ""
    life: int = 0
    at: float = 0.0
    place: int = 0
    """How much had been ``heard`` when it was done."""


class ForkMade(Struct, kw_only=True):
    """A fork that a user wanted: of which run, after which record; what was changed."""

    run_id: str
    of_run_id: str
    seq: int | None = None
    changes: Mapping[str, Any] = {}
    status: ReceiptStatus = "pending"
    """``pending``: the process died before it could say."""
    reason: str = ""
    tip: int = 0
    """How many events had been written when it was asked for."""


class Skipped(Struct, kw_only=True, frozen=True):
    """A step about a run that no step before it has opened, or an answer where nothing was asked:
    nothing was done."""

    step: str
    """The code that makes it."""
    opened: int
    """How many runs had been opened."""
    life: int = 0
    at: float = 0.0
    place: int = 0
    """How much had been ``heard`` by then."""
    after: int = 0
    """How much had been ``sent`` by then."""


class Asked(Struct, kw_only=True, frozen=True):
    """A model call: who asked, and what."""

    agent: str
    run_id: str
    request: ModelRequest
    life: int
    at: float = 0.0


class Heard(Struct, kw_only=True, frozen=True, gc=False):
    """An event as listeners were given it."""

    event: Event
    life: int


class History(Struct, kw_only=True, dict=True):
    """What happened.  ``events`` are all durable ones, of every run and lane, in store order.

    While the world is still open, what the store has (``events``, ``runs``, and everything derived
    of them: ``said``, ``outcome``, …) is what ``World.read`` has found there.
    """

    seed: int = 0
    faults: tuple[WorldFault, ...] = ()
    store: StoreName = "memory"
    workers: int | None = None
    """How many workers there were, where they were several.  Then ``heard`` has each durable event
    once, when the first process hears of it."""
    writers: Sequence[tuple[str, int, int]] = ()
    """Of each commit of a run's own lane, in a world of several workers: the root of its tree, the
    number of the ownership, and that of the lease under which it was written."""
    unowned: Sequence[str] = ()
    """The roots of the trees that no worker owned at the end, of several."""
    events: Sequence[Event] = ()
    heard: list[Heard] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    forks: list[ForkMade] = field(default_factory=list)
    forked: set[str] = field(default_factory=set)
    """The ids of the events that came in with forks."""
    gone: list[Gone] = field(default_factory=list)
    positions: Sequence[int] = ()
    """Where each event stood in the store, of one from which trees have gone."""
    skipped: list[Skipped] = field(default_factory=list)
    requests: list[Asked] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    injected: Sequence[tuple[Any, ...]] = ()
    """What the faults did (``Plan.log``)."""
    logged: deque[Logged] = field(default_factory=new_log)
    """What the library logged, the last of it, except for what faults have raised."""
    runs: Mapping[str, RunInfo] = {}
    """Every run that the store knows, by creation."""
    waiting: Mapping[str, Sequence[InLane]] = {}
    """What waits in the inboxes of runs that have something there."""
    live: Mapping[str, Thread] = {}
    """The runs that were in memory at the end, as their process saw them."""
    live_seq: Mapping[str, int] = {}
    """How many events of its own each of them had by then, where a tick made it go on."""
    strayed: list[str] = field(default_factory=list)
    """Where a run in memory was at odds with what it had just written, a line each."""
    tasks: Sequence[str] = ()
    """The names of the tasks that were still there at rest, except for the world's own."""
    is_settled: bool = False
    """Whether the world was given the time to come to rest, without faults."""

    # ── runs ─────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def own(self) -> Mapping[str, list[Event]]:
        """The own lane of each run."""
        return self._lanes("own")

    @cached_property
    def inbox(self) -> Mapping[str, list[InLane]]:
        """Everything that ever entered the inbox of each run."""
        return self._lanes("in")

    @cached_property
    def bases(self) -> Mapping[str, e.AgentBase]:
        """The base that each of those runs goes on from of which nothing was ever there before it:
        forks of runs whose old turns had gone."""
        found = {run_id: base_behind_gap(own) for run_id, own in self.own.items()}
        return {
            run_id: event
            for run_id, seq in found.items()
            for event in self.own[run_id]
            if seq and event.seq == seq and isinstance(event, e.AgentBase)
        }

    def set_stored(
        self,
        events: Sequence[Event],
        runs: Mapping[str, RunInfo],
        waiting: Mapping[str, Sequence[InLane]],
    ) -> None:
        """Set the contents of the store."""
        self.events, self.runs, self.waiting = events, runs, waiting
        for derived in ("own", "inbox", "bases", "threads"):
            self.__dict__.pop(derived, None)

    @cached_property
    def threads(self) -> Mapping[str, Thread]:
        """What each own lane folds to."""
        return {run_id: fold_all(EMPTY, lane) for run_id, lane in self.own.items()}

    def died_unheard(self, event: Event) -> bool:
        """Whether a process died that may have written an event, and could tell nobody what follows
        of it: of several, one that died just before others heard of it."""
        dead = [life for life in self.lives if life.end in ("crashed", "killed")]
        heard = next((at for at, x in enumerate(self.heard) if x.event.id == event.id), None)
        if self.workers is None or heard is None:
            return bool(dead) and heard is None
        places = [life.place for life in dead if event.id not in life.told and life.place <= heard]
        return any(event.at - self.heard[place].event.at <= JUST for place in places)

    @property
    def dead_letters(self) -> list[e.HubDeadLetter]:
        """The dead letters that listeners got."""
        return [x.event for x in self.heard if isinstance(x.event, e.HubDeadLetter)]

    @property
    def errors(self) -> list[e.HubErrorEvent]:
        """What listeners raised."""
        return [x.event for x in self.heard if isinstance(x.event, e.HubErrorEvent)]

    @property
    def roots(self) -> list[str]:
        """The runs that no other run began."""
        return [run_id for run_id, info in self.runs.items() if info.parent_run_id is None]

    def of(self, agent: str) -> list[str]:
        """The runs of an agent, by creation."""
        return [run_id for run_id, info in self.runs.items() if info.agent == agent]

    def outcome(self, run_id: str) -> e.Ending | None:
        """How the run ended, else its latest session; ``None`` while there is neither."""
        own = reversed(self.own.get(run_id, ()))
        return next((x for x in own if isinstance(x, e.Ending)), None)

    def said(self, run_id: str) -> list[str]:
        """The texts of the run for its user, in order."""
        own = self.own.get(run_id, ())
        return [x.text for x in own if isinstance(x, e.AgentText)]

    def heard_by(self, run_id: str) -> list[str]:
        """What has been said to the run and taken by it, in order."""
        return [
            item.content
            for x in self.own.get(run_id, ())
            if isinstance(x, e.SessionTaken)
            for item in x.items
            if isinstance(item, e.SessionMessage)
        ]

    def _lanes(self, lane: str) -> dict[str, Any]:
        found: dict[str, Any] = {run_id: [] for run_id in self.runs}
        for event in self.events:
            if event.lane == lane:
                found.setdefault(event.run_id, []).append(event)
        return found

    # ── the story ────────────────────────────────────────────────────────────────────────────

    def trace(self) -> list[str]:
        """The story as lines of text: the same for the same seed, in every process.

        Runs are named ``1``, ``2``, … by creation; a child of ``1`` is ``1.1``.  What happened
        is in the order of its dispatch.  An event that is in the store and was never dispatched,
        because the process died first, is listed where that life ends, marked ``unheard``.
        """
        trace = _Trace(self) if self.workers is None else _SharedTrace(self)
        return list(trace.lines())

    def named(self, text: str) -> str:
        """``text`` with the names of runs that the trace has in place of their ids."""
        return _with_names(text, _names(self))


class _Trace:
    """Writes a history as lines, life by life."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._names = _names(history)
        self._heard = {each.event.id for each in history.heard}
        self._life = 0
        self._told = 0

    def lines(self) -> Iterator[str]:
        done = deque(_done(self._history))
        for place, each in enumerate(self._history.heard):
            while done and done[0].place <= place:
                yield from self._said(done.popleft())
            yield from self._until(each.life)
            yield self._told_by(each)
        for left in done:
            yield from self._said(left)
        yield from self._until(len(self._history.lives) - 1)
        yield from self._unheard(len(self._history.events))

    def _told_by(self, each: Heard) -> str:
        return _line(each.event, self._names)

    def _said(self, done: Sent | Skipped) -> Iterator[str]:
        yield from self._until(done.life)
        if isinstance(done, Skipped):
            yield f"{done.at:.3f} nothing: {done.step}, of {done.opened} runs opened by then"
        else:
            yield _said(done, self._names)

    def _until(self, number: int) -> Iterator[str]:
        for life in self._history.lives[self._life : number]:
            yield from self._unheard(life.tip)
            yield f"{life.ended:.3f} ── {life.end or 'left'} after {life.commits} commits ──"
        self._life = max(self._life, number)

    def _unheard(self, tip: int) -> Iterator[str]:
        for event in self._history.events[self._told : tip]:
            if event.id not in self._heard:
                yield f"unheard {_line(event, self._names)}"
        self._told = max(self._told, tip)


class _SharedTrace(_Trace):
    """Writes a history of several workers: lives end side by side, and lines say whose they are."""

    def __init__(self, history: History) -> None:
        super().__init__(history)
        ended = [life for life in history.lives if life.end]
        self._ends = deque(sorted(ended, key=lambda life: (life.place, life.ended, life.number)))
        self._place = 0

    def _told_by(self, each: Heard) -> str:
        self._place += 1
        return f"{super()._told_by(each)} ({_who(self._history.lives[each.life])})"

    def _until(self, number: int) -> Iterator[str]:
        while self._ends and self._ends[0].place <= self._place:
            life = self._ends.popleft()
            end = f"{life.end} after {life.commits} commits"
            yield f"{life.ended:.3f} ── {_who(life)}: {end} ──"


def _who(life: Life) -> str:
    return "channel" if life.worker is None else f"worker {life.worker}"


def _done(history: History) -> Iterator[Sent | Skipped]:
    """What users did or would have done, in order."""
    skipped = deque(history.skipped)
    for number, sent in enumerate(history.sent):
        while skipped and skipped[0].after <= number:
            yield skipped.popleft()
        yield sent
    yield from skipped


def _names(history: History) -> dict[str, str]:
    """Short names of runs, which show the parent of each."""
    names: dict[str, str] = {}
    children: dict[str, int] = {}
    for run_id, parent in _parents(history):
        if run_id not in names:
            number = children[parent] = children.get(parent, 0) + 1
            names[run_id] = f"{names[parent]}.{number}" if parent in names else f"{number}"
    return names


def _parents(history: History) -> Iterator[tuple[str, str]]:
    """Runs with their parents, in the order of their creation.

    A world that was cut short has not read its store: then they are those with a dispatched event.
    """
    for info in history.runs.values():
        yield info.run_id, info.parent_run_id or ""
    for each in history.heard:
        if each.event.run_id:
            yield each.event.run_id, each.event.parent_run_id or ""
    for sent in history.sent:
        if sent.verb == "open" and sent.run_id:
            yield sent.run_id, ""


def _said(sent: Sent, names: Mapping[str, str]) -> str:
    """What a user did, in one line."""
    key = f" key={sent.key}" if sent.key else ""
    what = f"{sent.verb} {sent.agent or sent.run_id}".rstrip()
    reason = f" ({sent.reason})" if sent.reason else ""
    return _with_names(
        f"{sent.at:.3f} {sent.user}: {what}{key} {sent.text!r} → {sent.status}{reason}", names
    )


def _line(event: Event, names: Mapping[str, str]) -> str:
    """An event in one line: when, whose, what."""
    shown = []
    for each in structs.fields(type(event)):
        value = getattr(event, each.name)
        if each.name not in _CARRIED and value != each.default:
            shown.append(f"{each.encode_name}={_text(value)}")
    run = event.run_id or "hub"
    text = f"{(event.at - EPOCH) / 1_000_000:.3f} {run} {event.agent} {event.type}"
    return _with_names(" ".join((text, *shown)), names)


def _text(value: Any) -> str:
    if isinstance(value, Json):
        return repr(decode_value(value))
    if isinstance(value, tuple) and value and isinstance(value[0], Event):
        return "[" + ", ".join(f"{x.type}#{x.seq}" for x in value) + "]"
    return repr(value)


def _with_names(text: str, names: Mapping[str, str]) -> str:
    return _RUN_ID.sub(lambda found: names.get(found[0], found[0]), text)
