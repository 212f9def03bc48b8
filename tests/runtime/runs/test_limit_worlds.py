"""Trees of runs with limits, through crashes and restarts, against a plain model of what is used.

Every model here answers from its request alone and says the same usage each time, so that a world
can be cut off at any commit and goes on in another life.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.families import config
from support.profiles import examples, portion

from hubbub import (
    AgentDefinition,
    FunctionModel,
    Limits,
    ModelReply,
    ModelRequest,
    Price,
    PromptDefinition,
    RunOutcome,
    SideConfig,
    Spent,
    Usage,
    tool,
)
from hubbub.agents.model import UserMessage
from hubbub.agents.state.fold import fold
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub import events as e
from hubbub.hub.errors import Closed
from hubbub.hub.events import Event
from hubbub.runtime.models.scripted import call
from hubbub.runtime.runs.run_meter import RunMeter
from hubbub.runtime.simulation import History, SimulationFailed, World, simulate
from hubbub.runtime.simulation.story.faults import Crash
from hubbub.runtime.simulation.story.setup import Setup
from hubbub.runtime.simulation.strategies.worlds import seeds, stores
from hubbub.runtime.spending.accounts import TreeAccounts

pytestmark = pytest.mark.spec("L-05")

USAGE: Final = Usage(input_tokens=40, output_tokens=7, cache_read_tokens=10)
PRICES: Final = {"function": Price(input=2.0, output=10.0, cache_read=0.5)}
NANOS: Final = round((30 * 2.0 + 10 * 0.5 + 7 * 10.0) * 1000)
OF_STEP: Final = Spent(1, 40, 7, NANOS)


@tool(idempotent=True)
async def look(what: str) -> str:
    """Look at something."""
    return f"a {what}"


@tool
async def finish(result: str) -> str:
    """Hand in the result."""
    return "handed in"


def _answer(request: ModelRequest, children: bool) -> ModelReply:
    """What its last message asks for: words with ``help`` a child, others as many looks as they
    are long."""
    steps = 0
    for message in reversed(request.messages):
        if isinstance(message, UserMessage):
            break
        steps += 1
    said = [x.content for x in request.messages if isinstance(x, UserMessage)]
    last = said[-1] if said else ""
    if children and "help" in last and not steps:
        calls = [call("helper", message="three"), call("later", message="two")]
        return ModelReply(calls=tuple(calls), usage=USAGE)
    if steps < len(last) % 5:
        return ModelReply(calls=(call("look", what=f"tree {steps}"),), usage=USAGE)
    return ModelReply(text=f"I have seen {steps}.", usage=USAGE)


def _desk(request: ModelRequest) -> ModelReply:
    return _answer(request, children=True)


def _helper(request: ModelRequest) -> ModelReply:
    return _answer(request, children=False)


def _two(request: ModelRequest) -> ModelReply:
    if len(request.messages) > 6:
        return ModelReply(calls=(call("finish", result="done"),), usage=USAGE)
    return _answer(request, children=False)


class Bounds:
    """The limits of a world."""

    def __init__(self, turn: Any = None, run: Any = None, tree: Any = None) -> None:
        self.turn, self.run, self.tree = turn, run, tree

    def setup(self) -> Setup:
        def model(answer: Any) -> FunctionModel:
            return FunctionModel(answer, latency=0.5)

        def prompt(name: str, answer: Any, *tools: Any) -> PromptDefinition:
            return PromptDefinition(
                name=name, prompt="You work.", model=model(answer), tools=(look, *tools),
                parallel_tool_calls=True, limits=self.turn,
            )  # fmt: skip

        desk = prompt("desk", _desk, config(), config("later", blocking=False, stays=True))
        later = prompt("later", _helper)
        sides = [prompt(name, _two, finish) for name in ("worker", "reviewer")]
        a, b = (SideConfig(prompt=each, session_stop="finish") for each in sides)
        return Setup.of(
            AgentDefinition(name="desk", side_a=SideConfig(prompt=desk), run_limits=self.run),
            AgentDefinition(
                name="helper", type="dual_ai", expose_as_tool=True, max_session_turns=12,
                side_a=a, side_b=b, run_limits=self.run,
            ),
            AgentDefinition(
                name="later", side_a=SideConfig(prompt=later), expose_as_tool=True,
                run_limits=self.run,
            ),
            limits=self.tree, prices=PRICES,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Bounds({self.turn}, {self.run}, {self.tree})"


# ── what must hold ───────────────────────────────────────────────────────────────────────────


def _over(limits: Limits | None, spent: Spent) -> str:
    if limits is None:
        return ""
    pairs = [(name, getattr(spent, name)) for name in ("model_calls", "input_tokens",
                                                       "output_tokens")]  # fmt: skip
    pairs.append(("cost", spent.nanos / 1_000_000_000))
    for name, amount in pairs:
        most = getattr(limits, name)
        if most is not None and amount >= most:
            return name
    return ""


class Book:
    """What each run and tree has used, by the order in which it was written."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.runs: dict[str, Spent] = defaultdict(Spent)
        self.trees: dict[str, Spent] = defaultdict(Spent)
        self.turns: dict[str, Spent] = defaultdict(Spent)
        self.known: dict[str, tuple[str, str, str]] = {}
        """By run: the names of what was used up when its last own event before was written."""

    def over(self, event: Event) -> tuple[str, str, str]:
        """What is used up just now: of the turn, the run, the tree."""
        return (
            _over(self.bounds.turn, self.turns[event.run_id]),
            _over(self.bounds.run, self.runs[event.run_id]),
            _over(self.bounds.tree, self.trees[event.root_run_id]),
        )

    def add(self, event: e.AgentStep) -> None:
        for book, key in (
            (self.runs, event.run_id), (self.trees, event.root_run_id), (self.turns, event.run_id),
        ):  # fmt: skip
            book[key] += OF_STEP


def wrong(history: History, bounds: Bounds) -> Iterator[str]:
    """What must never be."""
    book = Book(bounds)
    for event in history.events:
        if event.lane != "own":
            continue
        match event:
            case e.SessionStart() | e.SessionTurn():
                book.turns[event.run_id] = Spent()
            case e.AgentStep():
                if any(book.known.get(event.run_id, ())):
                    yield f"{event.run_id}: asked, though {book.known[event.run_id]} is used up"
                if (event.usage, event.cost_nanos) != (USAGE, NANOS):
                    yield f"{event.run_id}: {event.usage} has cost {event.cost_nanos}"
                book.add(event)
            case e.SessionEnd(outcome="limit"):
                found = re.fullmatch(r"(turn|run|tree)\.(\w+)", event.reason)
                if found is None:
                    yield f"{event.run_id}: ended by {event.reason!r}"
                elif (
                    found[2] != "seconds"
                    and not dict(zip(("turn", "run", "tree"), book.over(event), strict=True))[
                        found[1]
                    ]
                ):
                    yield f"{event.run_id}: {event.reason} is not used up"
        if not isinstance(event, e.AgentText):  # Of which each is written with its step.
            book.known[event.run_id] = book.over(event)


def wrong_times(history: History, bounds: Bounds) -> Iterator[str]:
    """What must never be, of the time that runs are at work.

    Between two records of a run in a turn that neither waits for children nor for people time
    passes, but for what a crash has cut off.
    """
    threads: dict[str, Thread] = defaultdict(lambda: EMPTY)
    since: dict[str, int] = {}
    turns: dict[str, float] = defaultdict(float)
    runs: dict[str, float] = defaultdict(float)
    trees: dict[str, float] = defaultdict(float)
    for event in history.events:
        if event.lane != "own":
            continue
        run, tree, before = event.run_id, event.root_run_id, threads[event.run_id]
        is_working = before.in_session and not (before.waits or before.prompts)
        if is_working and not isinstance(event, e.AgentRestore):
            for book, key in ((turns, run), (runs, run), (trees, tree)):
                book[key] += (event.at - since[run]) / 1e6
        since[run] = event.at
        threads[run] = fold(before, event)
        if threads[run].turn != before.turn:
            turns[run] = 0.0
        amounts = {"turn": turns[run], "run": runs[run], "tree": trees[tree]}
        for name in ("turn", "run"):
            limits = getattr(bounds, name)
            most = None if limits is None else limits.seconds
            if most is not None and amounts[name] > most + 0.01:
                yield f"{run}: at work for {amounts[name]} s, which is over its {name}'s"
        if isinstance(event, e.SessionEnd) and event.reason.endswith(".seconds"):
            name = event.reason.partition(".")[0]
            if amounts[name] < getattr(bounds, name).seconds - 0.01:
                yield f"{run}: ended by {event.reason} after {amounts[name]} s"


def used(history: History) -> Spent:
    """The sum of all steps."""
    steps = sum(isinstance(x, e.AgentStep) for x in history.events)
    return Spent(steps, steps * 40, steps * 7, steps * NANOS)


# ── worlds ───────────────────────────────────────────────────────────────────────────────────


Act = tuple[str, Any]
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.sampled_from(["Hello.", "Where?", "Do help me.", "three"])),
        st.tuples(st.just("wait"), st.sampled_from([0.2, 0.6, 3.0, 30.0])),
        st.tuples(st.sampled_from(["interrupt", "restart"]), st.none()),
    ),
    min_size=2,
    max_size=10,
)


async def play(world: World, acts: Sequence[Act]) -> list[RunOutcome | None]:
    run = await world.open("desk", "Do help me.")
    for verb, value in acts:
        with suppress(Closed):  # Where the process has just died.
            match verb:
                case "say":
                    await world.say(run, value)
                case "wait":
                    await world.wait(value)
                case "interrupt":
                    await world.interrupt(run, "enough")
                case "restart":
                    await world.restart()
    await world.wait(100)
    await world.settle()
    return [await world.result(run)]


def limits(most: int) -> st.SearchStrategy[Limits | None]:
    """None, or one or two limits that are reached soon."""
    calls = st.none() | st.integers(1, most)
    return st.none() | st.builds(
        Limits,
        model_calls=calls,
        output_tokens=st.none() | st.integers(1, most * 7),
        cost=st.none() | st.floats(0.00001, most * NANOS / 1e9),
        seconds=st.none() | st.floats(0.1, most / 2),
    )


BOUNDS = st.builds(Bounds, turn=limits(4), run=limits(9), tree=limits(14))


@settings(max_examples=examples(200), deadline=None)
@given(
    acts=ACTS,
    bounds=BOUNDS,
    crashes=st.lists(
        st.builds(
            Crash, commit=st.integers(1, 40), when=st.sampled_from(["before", "after"]),
            life=st.integers(0, 2),
        ),
        max_size=2,
    ),
    seed=seeds(),
    store=stores(),
)  # fmt: skip
def test_no_turn_goes_on_over_a_limit_and_each_that_ends_by_one_names_it(
    acts: list[Act], bounds: Bounds, crashes: list[Crash], seed: int, store: Any
) -> None:
    outcomes: list[RunOutcome | None] = []

    async def story(world: World) -> None:
        outcomes[:] = await play(world, acts)

    history = simulate(story, bounds.setup, faults=crashes, seed=seed, store=store)
    assert [*wrong(history, bounds)] == []
    assert [*wrong_times(history, bounds)] == []
    for outcome in outcomes:
        if outcome is not None:
            assert outcome.tree == used(history)


LONG: list[Act] = [
    ("say", "Do help me."), ("wait", 30.0), ("say", "Where?"), ("wait", 9.0),
    ("say", "three"), ("wait", 9.0),
]  # fmt: skip


def lived(bounds: Bounds, *faults: Any, store: Any = "memory") -> tuple[History, Any]:
    outcomes: list[RunOutcome | None] = []

    async def story(world: World) -> None:
        outcomes[:] = await play(world, LONG)

    return simulate(story, bounds.setup, faults=faults, store=store), outcomes[0]


TIGHT: Final = (
    Bounds(tree=Limits(model_calls=11)),
    Bounds(tree=Limits(cost=0.0011), run=Limits(output_tokens=40)),
    Bounds(turn=Limits(model_calls=2)),
    Bounds(turn=Limits(seconds=1.2), run=Limits(seconds=5)),
    Bounds(tree=Limits(seconds=4.2)),
)


@pytest.mark.parametrize("bounds", TIGHT, ids=repr)
def test_limits_end_turns_of_conversations_and_of_children(bounds: Bounds) -> None:
    history, outcome = lived(bounds)
    ends = [x for x in history.events if isinstance(x, e.SessionEnd) and x.outcome == "limit"]
    assert {x.agent for x in ends} >= {"desk"} or bounds.turn is not None
    assert ends and outcome.tree == used(history)


@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("bounds", [TIGHT[1], TIGHT[3]], ids=repr)
def test_a_crash_at_any_commit_forgets_nothing_that_was_used(
    store: Any, when: Any, bounds: Bounds
) -> None:
    commits = lived(bounds, store=store)[0].lives[0].commits
    for commit in portion(range(1, commits)):
        history, outcome = lived(bounds, Crash(commit=commit, when=when), store=store)
        assert [*wrong(history, bounds), *wrong_times(history, bounds)] == [], commit
        assert outcome is None or outcome.tree == used(history), commit


# ── what the shipped invariant finds ─────────────────────────────────────────────────────────


def _forgotten(accounts: TreeAccounts, lane: Any, before: Any, thread: Any) -> None:
    """What a child has used is nobody's."""
    if lane.parent_run_id is None:
        _follow(accounts, lane, before, thread)


_follow = TreeAccounts.follow


def _one_more(meter: RunMeter) -> str:
    """One more call than there may be."""
    name = _used_up(meter)
    return "" if name and meter._run.thread.turn_steps == 2 else name


_used_up = RunMeter.used_up

BUGS: Final = {
    "children's use is forgotten": (
        TIGHT[0], patch.object(TreeAccounts, "follow", _forgotten), "tree.model_calls was used up",
    ),
    "one more call is made": (
        TIGHT[2], patch.object(RunMeter, "used_up", _one_more), "turn.model_calls was used up",
    ),
    "time is not cut short": (
        Bounds(turn=Limits(seconds=1.2)), patch.object(RunMeter, "_look_at_time"), "at work for",
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found_by_the_invariant_that_is_shipped(bug: str) -> None:
    bounds, planted, says = BUGS[bug]
    lived(bounds)
    with planted, pytest.raises(SimulationFailed) as failed:
        lived(bounds)
    assert failed.value.broken == "limits_held"
    assert says in str(failed.value)
