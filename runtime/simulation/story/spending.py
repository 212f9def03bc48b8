"""What the runs of a world may use, and the invariant that they use no more."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from hubbub.agents.state.bases import thread_of
from hubbub.agents.state.fold import fold
from hubbub.agents.state.spending import NOTHING_SPENT, Spent, with_event
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub import events as e
from hubbub.hub.events import Event, Limits
from hubbub.runtime.simulation.story.faults import ClockJump
from hubbub.runtime.simulation.story.history import History
from hubbub.runtime.simulation.story.setup import Setup

__all__ = ["Allowances", "limits_held", "within"]

_SCOPES: Final = ("turn", "run", "tree")
_COUNTS: Final = ("model_calls", "input_tokens", "output_tokens")
TOLERANCE: Final = 0.05
"""Seconds by which a timer may be early or late."""


class Allowances(Struct, frozen=True, kw_only=True):
    """Limits: of each tree, unless its record says otherwise, of runs by their agent, and of turns
    by agent and side."""

    tree: Limits | None = None
    runs: Mapping[str, Limits] = {}
    turns: Mapping[tuple[str, str], Limits] = {}

    @classmethod
    def of(cls, setup: Setup) -> "Allowances":
        """The limits of a setup: those that its runtime is given, and those of its agents."""
        agents, turns = setup.reached(), {}
        prompts = {x.name: x for x in setup.prompts}
        for agent in agents:
            for which, side in (("side_a", agent.side_a), ("side_b", agent.side_b)):
                named = None if side is None else side.prompt
                prompt = prompts.get(named) if isinstance(named, str) else named
                if prompt is not None and prompt.limits is not None:
                    turns[agent.name, which] = prompt.limits
        runs = {x.name: x.run_limits for x in agents if x.run_limits is not None}
        return cls(tree=setup.options.get("limits"), runs=runs, turns=turns)


def limits_held(history: History) -> Iterator[str]:
    """No model is asked when a limit is used up, and a turn that ends by a limit names one that is.

    So a turn, a run or a tree uses more than its limit by the calls that were under way, and no
    more.  Time at work is counted where the clock does not jump.  The limits are those on record;
    where ``simulate`` or a ``SimMachine`` asks, those of its setup, too.  ``within`` makes the same
    of others.  Conversations in code may have several calls under way, and are only counted.
    """
    yield from _problems(history, Allowances())


def within(allowed: Allowances) -> "Invariant":
    """The invariant ``limits_held`` for these limits."""

    def limits_held(history: History) -> Iterator[str]:
        yield from _problems(history, allowed)

    return limits_held


Invariant: TypeAlias = Callable[[History], Iterator[str]]


def _problems(history: History, allowed: Allowances) -> Iterator[str]:
    own = [event for event in history.events if event.lane == "own"]
    if allowed == Allowances() and not any(_is_limited(event) for event in own):
        return
    has_times = not any(isinstance(x, ClockJump) for x in history.faults)
    begun = {base.id: base for base in history.bases.values()}
    unrestored = frozenset(_unrestored(history))
    book = _Book(allowed, has_times=has_times, unrestored=unrestored, begun=begun.values())
    for event in own:
        yield from book.problems(event)
        if event.id in begun:
            book.begin(begun[event.id])
        book.add(event)
    if not history.is_settled:
        return
    for run_id, thread in history.threads.items():
        names = book.known.get(run_id, ())
        if thread.in_session and thread.open is None and not thread.prompts and any(names):
            yield f"run {run_id} is at rest in a turn, but {_named(names)} is used up"


def _unrestored(history: History) -> Iterator[str]:
    """The ids of the events with which runs ended that came back from a death, and did nothing:
    before these they were not at work, and no record of a restore says so."""
    positions = history.positions or range(1, len(history.events) + 1)
    at = {event.id: each for event, each in zip(history.events, positions, strict=True)}
    tips = [life.tip for life in history.lives if life.end]
    for own in history.own.values():
        if not own or not isinstance(own[-1], e.AgentComplete):
            continue
        first = next(place for place, event in enumerate(own) if event.at == own[-1].at)
        until = at[own[first].id]
        if first and any(at[own[first - 1].id] <= tip < until for tip in tips):
            yield own[first].id


def _is_limited(event: Event) -> bool:
    return any(
        isinstance(item, e.SessionOpen | e.SessionLimits) and item.limits is not None
        for item in (event.items if isinstance(event, e.SessionTaken) else ())
    )


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(f"{scope}.{name}" for scope, name in zip(_SCOPES, names, strict=True) if name)


_HEARD: Final = (
    e.SessionOpen, e.SessionMessage, e.SessionResult, e.SessionReply, e.SessionTimer,
    e.SessionVariables,
)  # fmt: skip


def _precedes_call(event: Event) -> bool:
    """Whether a model may be asked next, and none is being asked: what else a run writes it may
    write during a call."""
    if isinstance(event, e.SessionTaken):
        return any(isinstance(item, _HEARD) for item in event.items)
    return isinstance(
        event,
        e.AgentStep | e.AgentToolComplete | e.AgentRetry | e.AgentRestore
        | e.SessionStart | e.SessionTurn,
    )  # fmt: skip


class _Book:
    """What was used, event by event, in the order of the store."""

    def __init__(
        self,
        allowed: Allowances,
        *,
        has_times: bool,
        unrestored: frozenset[str],
        begun: Iterable[e.AgentBase],
    ) -> None:
        self._allowed = allowed
        self._to_come = {base.run_id for base in begun}
        """Runs that go on from a base that is yet to be counted."""
        self._has_times = has_times
        self._unrestored = unrestored
        self._trees: dict[str, Limits | None] = {}
        self._spent: dict[tuple[str, str], Spent] = defaultdict(Spent)
        self._worked: dict[tuple[str, str], float] = defaultdict(float)
        """Both by scope and run; of a tree by its root."""
        self._threads: dict[str, Thread] = defaultdict(lambda: EMPTY)
        self._since: dict[str, int] = {}
        self.known: dict[str, tuple[str, ...]] = {}
        """By run in a session: what was used up when it was last decided what to do."""

    def begin(self, base: e.AgentBase) -> None:
        """Count what a run had used by the base that it goes on from."""
        thread = thread_of(base)
        self._to_come.discard(base.run_id)
        if not base.parent_run_id:
            self._trees[base.run_id] = thread.limits
        for key in (("run", base.run_id), ("tree", base.root_run_id)):
            self._spent[key] += thread.spent
            self._worked[key] += base.worked / 1e6

    def add(self, event: Event) -> None:
        """Count an event."""
        run_id = event.run_id
        if isinstance(event, e.SessionTaken):
            for item in event.items:
                if isinstance(item, e.SessionOpen | e.SessionLimits) and not event.parent_run_id:
                    self._trees[run_id] = item.limits
        if isinstance(event, e.SessionStart | e.SessionTurn):
            self._spent["turn", run_id] = NOTHING_SPENT
        for key in self._keys(event):
            self._spent[key] = with_event(self._spent[key], event)
        self._pass(event)
        if isinstance(event, e.SessionEnd) or not self._threads[run_id].in_session:
            self.known.pop(run_id, None)
        elif _precedes_call(event):
            self.known[run_id] = self._used_up(event)
        else:
            self.known[run_id] = self._still_used_up(event)

    def _still_used_up(self, event: Event) -> tuple[str, ...]:
        """What was used up at the last decision and is now: less only where a limit was raised."""
        before = self.known.get(event.run_id, ("",) * len(_SCOPES))
        return tuple(
            name if still else "" for name, still in zip(before, self._used_up(event), strict=True)
        )

    def _pass(self, event: Event) -> None:
        """Time passes between two events of a run that is at work, but for what a crash cuts
        off."""
        run_id, before = event.run_id, self._threads[event.run_id]
        after = self._threads[run_id] = fold(before, event)
        seconds = event.worked / 1e6 if isinstance(event, e.AgentStep) else 0.0
        seconds += self._passed(event, before)
        self._since[run_id] = event.at
        for key in self._keys(event):
            self._worked[key] += seconds
        if after.turn != before.turn:
            self._worked["turn", run_id] = 0.0

    def _passed(self, event: Event, thread: Thread) -> float:
        """Seconds at work since the run's record before."""
        is_working = thread.in_session and not (thread.waits or thread.prompts)
        if not is_working or isinstance(event, e.AgentRestore) or event.id in self._unrestored:
            return 0.0
        return (event.at - self._since[event.run_id]) / 1e6

    def problems(self, event: Event) -> Iterator[str]:
        """What is wrong with an event, which is not counted yet."""
        run_id = event.run_id
        if isinstance(event, e.AgentStep) and run_id in self.known:
            names = self._still_used_up(event)
            if any(names):
                yield (
                    f"run {run_id}: its model was asked for step {event.step} ({event.id}), "
                    f"though {_named(names)} was used up"
                )
        if isinstance(event, e.SessionEnd) and event.outcome == "limit":
            scope, _, name = event.reason.partition(".")
            if scope in _SCOPES and name and not self._is_reached(event, scope, name):
                yield f"run {run_id}: a turn ended by {event.reason} ({event.id}), not used up"
        if isinstance(event, e.SessionEnd) and self._has_times:
            for scope, limits in zip(_SCOPES[:2], self._limits(event), strict=False):
                seconds = None if limits is None else limits.seconds
                if seconds is not None and (time := self._time(event, scope)) > seconds + TOLERANCE:
                    over = f"was at work for {time:.1f} s ({event.id}); the limit is {seconds} s"
                    yield f"run {run_id}: its {scope} {over}"

    def _is_reached(self, event: Event, scope: str, name: str) -> bool:
        limits = self._limits(event)[_SCOPES.index(scope)]
        most = None if limits is None else getattr(limits, name, None)
        if (
            most is None
        ):  # What a root behind a base may use is told there, behind what children did.
            return scope == "tree" and event.root_run_id in self._to_come
        if name != "seconds":
            return bool(_amount(self._spent[self._key(event, scope)], name) >= most)
        is_counted = self._has_times and scope != "tree"  # Of other runs of a tree it is under way.
        return not is_counted or bool(self._time(event, scope) >= most - TOLERANCE)

    def _time(self, event: Event, scope: str) -> float:
        """Seconds at work until an event that ends a session."""
        passed = self._passed(event, self._threads[event.run_id])
        return self._worked[self._key(event, scope)] + passed

    def _used_up(self, event: Event) -> tuple[str, ...]:
        """What is used up of the turn, the run and the tree: a name each."""
        return tuple(
            self._over(event, scope, limits)
            for scope, limits in zip(_SCOPES, self._limits(event), strict=True)
        )

    def _over(self, event: Event, scope: str, limits: Limits | None) -> str:
        if limits is None:
            return ""
        key = self._key(event, scope)
        for name in (*_COUNTS, "cost"):
            most = getattr(limits, name)
            if most is not None and _amount(self._spent[key], name) >= most:
                return name
        is_late = limits.seconds is not None and self._worked[key] > limits.seconds + TOLERANCE
        return "seconds" if is_late and self._has_times and scope != "tree" else ""

    def _limits(self, event: Event) -> tuple[Limits | None, ...]:
        agent, side = event.agent, getattr(event, "side", "") or "side_a"
        tree = self._trees.get(event.root_run_id)
        return (
            self._allowed.turns.get((agent, side)),
            self._allowed.runs.get(agent),
            tree if tree is not None else self._allowed.tree,
        )

    def _key(self, event: Event, scope: str) -> tuple[str, str]:
        return scope, event.root_run_id if scope == "tree" else event.run_id

    def _keys(self, event: Event) -> Iterator[tuple[str, str]]:
        return (self._key(event, scope) for scope in _SCOPES)


def _amount(spent: Spent, name: str) -> float:
    return spent.nanos / 1e9 if name == "cost" else float(getattr(spent, name))
