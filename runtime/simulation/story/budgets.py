"""The limits of a world, and the invariant that they hold."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from hubbub.agents.retry import MAX_RETRIES
from hubbub.agents.state.steps import MISFIT
from hubbub.agents.turn.calls import MAX_CALLS
from hubbub.agents.turn.stop import MAX_MISFITS
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.runtime.simulation.story.history import History
from hubbub.runtime.simulation.story.setup import Setup
from hubbub.runtime.simulation.story.spending import Allowances, limits_held, within

__all__ = ["Budgets", "budgets_held", "held", "with_limits_of"]

_ARGUMENTS: Final = ("max_depth", "max_descendants", "max_spawns", "max_inbox")


class Budgets(Struct, frozen=True, kw_only=True):
    """Limits, with the runtime's defaults.

    ``max_depth``, ``max_descendants`` (alive at once) and ``max_spawns`` (in all) are of what
    grows from one root; ``max_inbox`` of the messages that wait for one run.  ``max_steps`` and
    ``max_session_turns`` are by agent: an agent that is not named is not counted.
    """

    max_depth: int = 16
    max_descendants: int = 1_000
    max_spawns: int = 10_000
    max_inbox: int = 10_000
    max_steps: Mapping[str, int] = {}
    max_session_turns: Mapping[str, int] = {}

    @classmethod
    def of(cls, setup: Setup) -> "Budgets":
        """The limits of a setup: those that its runtime is given, and those of its agents."""
        agents = setup.reached()
        steps: dict[str, int] = {}
        for agent in agents:
            sides = [side for side in (agent.side_a, agent.side_b) if side is not None]
            limits = [side.max_steps for side in sides if side.max_steps is not None]
            if sides and len(limits) == len(sides):
                steps[agent.name] = max(limits)
        return cls(
            **{name: setup.options[name] for name in _ARGUMENTS if name in setup.options},
            max_steps=steps,
            max_session_turns={
                agent.name: agent.max_session_turns
                for agent in agents
                if agent.max_session_turns is not None
            },
        )


def budgets_held(history: History) -> Iterator[str]:
    """The limits hold: depth, descendants and starts of a tree, what waits in an inbox, retries
    and calls of a step, a frame's model calls.

    They are the runtime's own limits; where ``simulate`` or a ``SimMachine`` asks, those of its
    setup.  ``held`` makes the same of other limits.
    """
    yield from _all(history, Budgets())


def held(budgets: Budgets) -> "Invariant":
    """The invariant ``budgets_held`` for these limits."""

    def budgets_held(history: History) -> Iterator[str]:
        yield from _all(history, budgets)

    return budgets_held


Invariant: TypeAlias = Callable[[History], Iterable[str] | None]


def with_limits_of(setup: Setup, invariants: Mapping[str, Invariant]) -> dict[str, Invariant]:
    """The same invariants, with ``budgets_held`` and ``limits_held`` using the limits of ``setup``.

    What somebody has made with ``held`` or ``within`` stays as it is.
    """
    budgets, limits = held(Budgets.of(setup)), within(Allowances.of(setup))

    def own(invariant: Invariant) -> Invariant:
        if invariant is budgets_held:
            return budgets
        return limits if invariant is limits_held else invariant

    return {name: own(each) for name, each in invariants.items()}


def _all(history: History, budgets: Budgets) -> Iterator[str]:
    yield from _trees(history, budgets)
    yield from _inboxes(history, budgets)
    yield from _frames(history)
    for run_id, own in history.own.items():
        yield from _steps(run_id, own)
        yield from _turns(run_id, own, budgets)


def _trees(history: History, budgets: Budgets) -> Iterator[str]:
    alive: Counter[str] = Counter()
    begun: Counter[str] = Counter()
    for event in history.events:
        root = event.root_run_id
        if event.parent_run_id is None:
            continue
        if isinstance(event, e.SessionOpen) and event.seq == 1:
            alive[root] += 1
            begun[root] += 1
            if event.depth > budgets.max_depth:
                limit = budgets.max_depth
                yield f"run {event.run_id} is {event.depth} deep ({event.id}); the limit is {limit}"
            if alive[root] > budgets.max_descendants:
                yield f"{alive[root]} runs live below {root} at {event.id}: too many"
            if begun[root] > budgets.max_spawns:
                yield f"{begun[root]} runs were started below {root} at {event.id}: too many"
        elif isinstance(event, e.AgentComplete) and event.lane == "own":
            alive[root] -= 1


def _inboxes(history: History, budgets: Budgets) -> Iterator[str]:
    limit = budgets.max_inbox
    crowded = {run_id for run_id, inbox in history.inbox.items() if len(inbox) > limit}
    if not crowded:
        return
    waiting: dict[str, set[int]] = defaultdict(set)
    for event in history.events:
        if isinstance(event, e.SessionMessage) and event.run_id in crowded:
            waiting[event.run_id].add(event.seq)
            # One more may come to a frame's caller when the frame is popped: it was accepted.
            if len(waiting[event.run_id]) > limit and not event.parent_run_id:
                yield f"{len(waiting[event.run_id])} messages wait for run {event.run_id}"
                return
        elif isinstance(event, e.SessionTaken | e.SessionDropped):
            for item in event.items:
                waiting[item.run_id].discard(item.seq)


def _steps(run_id: str, own: Iterable[Event]) -> Iterator[str]:
    choice = before = step = 0
    """The model that is asked, and the attempts of the step that others have had."""
    for event in own:
        if isinstance(event, e.AgentRetry) and event.kind == MISFIT:
            if event.attempt > MAX_MISFITS:
                times = f"{event.attempt} times"
                yield f"run {run_id}: the answer of turn {event.turn} is corrected {times}"
        elif isinstance(event, e.AgentRetry):
            if event.step != step:
                step, before = event.step, 0
            if event.choice != choice:
                choice, before = event.choice, event.attempt
            elif (tried := event.attempt - before) > MAX_RETRIES:
                yield f"run {run_id}: step {event.step} is tried again after {tried} attempts"
        elif isinstance(event, e.AgentToolComplete) and event.index >= MAX_CALLS and event.ran:
            yield f"run {run_id}: call {event.step}.{event.index} ran ({event.id}): too many"


def _frames(history: History) -> Iterator[str]:
    """The model calls of a frame between two words of the user's; a handoff changes its limit."""
    pushes = (x for own in history.own.values() for x in own if isinstance(x, e.SessionPush))
    for push in pushes:
        steps = 0
        for event in history.own.get(push.frame_run_id, ()):
            if isinstance(event, e.AgentHandoff):
                break
            if isinstance(event, e.SessionStart):
                steps = 0
            steps += isinstance(event, e.AgentStep)
            if push.max_iterations and steps > push.max_iterations:
                most = push.max_iterations
                yield f"frame {event.run_id}: model call {steps} ({event.id}); the limit is {most}"
                break


def _turns(run_id: str, own: Iterable[Event], budgets: Budgets) -> Iterator[str]:
    steps = turns = limit = 0
    for event in own:
        match event:
            case e.SessionStart():
                steps, turns, limit = 0, 1, 0
            case e.SessionTurn():
                steps, turns, limit = 0, turns + 1, 0
                most = budgets.max_session_turns.get(event.agent, turns)
                if turns > most:
                    yield f"run {run_id}: turn {turns} of a session ({event.id}); limit: {most}"
            case e.AgentStep():
                steps += 1
                limit = max(limit, budgets.max_steps.get(event.agent, steps))
                if steps > limit:
                    yield f"run {run_id}: step {steps} of a turn ({event.id}); the limit is {limit}"
