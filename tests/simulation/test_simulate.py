"""``simulate``: crashes at every commit, failures that can be seen again, and what it costs."""

import time
from collections.abc import Iterator
from typing import Any, get_args

import anyio.lowlevel
import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.control import current_build_context
from support.profiles import portion
from support.simulations import busy_day, desk, one_tool, two_users, week

from hubbub import (
    Agent,
    AgentDefinition,
    Cron,
    PromptDefinition,
    SessionToolBinding,
    SideConfig,
    SubagentToolConfig,
    tool,
)
from hubbub.agents import model
from hubbub.hub import events as e
from hubbub.hub.errors import DefinitionError
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, call, reply
from hubbub.runtime.simulation import (
    INVARIANTS,
    ChannelFault,
    Close,
    Crash,
    History,
    Interrupt,
    ModelFault,
    NeverRests,
    Open,
    Restart,
    Say,
    Setup,
    SimulationFailed,
    Terminate,
    Wait,
    World,
    scripted,
    simulate,
)
from hubbub.runtime.simulation.story.budgets import Budgets, held
from hubbub.runtime.simulation.story.history import StoreName
from hubbub.runtime.simulation.story.targets import DEPTH, INTERLEAVINGS, set_targets

STORES = get_args(StoreName)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_conversation_survives_a_crash_at_every_commit(store: StoreName, when: Any) -> None:
    setup = desk()
    commits = simulate(two_users, setup, store=store).lives[0].commits
    assert commits > 30
    for commit in portion(range(1, commits + 1)):
        history = simulate(two_users, setup, faults=[Crash(commit=commit, when=when)], store=store)
        assert [life.end for life in history.lives[:1]] == ["crashed"], commit
        for x in history.sent:
            if x.verb == "say" and x.status == "accepted":
                assert history.heard_by(x.run_id).count(x.text) == 1, (commit, x)


@pytest.mark.parametrize("store", STORES)
def test_a_process_may_die_again_while_it_recovers(store: StoreName) -> None:
    for commit in portion(range(2, 30, 3)):
        for again in (1, 2):
            faults = [Crash(commit=commit), Crash(commit=again, life=1)]
            simulate(two_users, desk(), seed=commit, faults=faults, store=store)


def test_the_same_arguments_come_to_the_same_history() -> None:
    faults = [Crash(commit=20), ModelFault(kind="error", call=3)]
    one, two = (simulate(busy_day, desk(), seed=9, faults=faults) for _ in range(2))
    assert one.trace() == two.trace()
    assert one.events == two.events
    assert one.requests == two.requests


STEPS = [
    Open(agent="desk", input="the red one", key="ann"),
    Say(to=0, text="the blue one", key="1"),
    Say(to=1, text="nobody is there yet"),
    Wait(seconds=0.5),
    Restart(kill=True),
    Open(agent="desk", input="the green one"),
    Interrupt(to=1),
    Restart(),
    Terminate(to=1),
    Close(to=0),
]


def test_a_scenario_may_be_data() -> None:
    history = simulate(STEPS, one_tool())
    assert [x.verb for x in history.sent] == [
        "open", "say", "open", "interrupt", "terminate", "close"
    ]  # fmt: skip
    assert [life.end for life in history.lives] == ["killed", "left", "left"]
    outcomes = [history.outcome(run_id) for run_id in history.runs]
    assert [x.outcome for x in outcomes if x is not None] == ["completed", "terminated"]


# ── failures ─────────────────────────────────────────────────────────────────────────────────


def forgets_blue(history: History) -> Iterator[str]:
    """Broken by one message, which a crash must not have lost."""
    for x in history.events:
        if isinstance(x, e.SessionMessage) and "blue" in x.content:
            yield f"run {x.run_id} was told of blue"


def failure(scenario: Any, setup: Any, **options: Any) -> SimulationFailed:
    with pytest.raises(SimulationFailed) as caught:
        simulate(scenario, setup, **options)
    return caught.value


def test_a_failure_says_what_failed_what_happened_and_how_to_see_it_again() -> None:
    faults = [ModelFault(kind="rate_limit", call=1), Crash(commit=4)]
    mine = {"forgets_blue": forgets_blue}
    error = failure(STEPS, one_tool(), seed=5, faults=faults, store="late", invariants=mine)
    text = str(error)
    assert error.broken == "forgets_blue"
    assert text.startswith("forgets_blue: run ")
    assert "── crashed after 4 commits ──" in text
    assert "('model', 'rate_limit'" in text
    assert text.endswith(f"To see it again:\n    {error.replay}")
    assert error.replay.count("\n") == 0

    again = eval(error.replay, {**globals(), "simulate": failure, "setup": one_tool()})
    assert str(again) == text


def say_nothing(history: History) -> Iterator[str]:
    yield "always"


def named_setup() -> Setup:
    return one_tool()


@pytest.mark.parametrize("invariants", [
    {"forgets_blue": forgets_blue},
    {**INVARIANTS, "forgets_blue": forgets_blue},
    {"one_terminal_event": INVARIANTS["one_terminal_event"], "other name": say_nothing},
    {**INVARIANTS, "no_message_lost": forgets_blue},
])  # fmt: skip
def test_the_line_that_plays_it_again_has_all_that_was_given(invariants: Any) -> None:
    error = failure(STEPS, named_setup, invariants=invariants)
    assert "named_setup" in error.replay and "invariants={" in error.replay
    again = eval(error.replay, {**globals(), "simulate": failure})
    assert (str(again), again.broken) == (str(error), error.broken)
    assert error.replay.startswith("simulate([Open(")


def test_the_line_has_the_scripts_that_models_play() -> None:
    scripts = {"desk": [reply("", call("look", what="it")), "Seen."]}
    error = failure(STEPS, scripted(named_setup, scripts), invariants={"say_nothing": say_nothing})
    assert "scripted(named_setup, {'desk': [ModelReply(" in error.replay
    names = {**vars(model), **globals(), "simulate": failure}
    again = eval(error.replay, names)
    assert str(again) == str(error)


def test_an_invariant_that_raises_fails_with_the_story() -> None:
    def broken(history: History) -> list[str]:
        return [history.runs["nobody"].agent]

    error = failure(STEPS, one_tool(), invariants={**INVARIANTS, "broken": broken})
    assert error.broken == "broken"
    assert "it raised KeyError: 'nobody' (test_simulate.py:" in str(error)
    assert "To see it again" in str(error)


def test_a_failure_is_no_wider_than_it_must_be() -> None:
    steps = [Open(agent="desk", input="long " * 1_000)] * 3
    error = failure(steps, one_tool(), invariants={"say_nothing": lambda _: ["wide " * 10_000]})
    lines = str(error).splitlines()
    assert max(map(len, lines[:-1])) <= 4_000
    assert max(map(len, lines[2:-2])) < 510


def test_a_story_that_waits_for_ever_beside_a_schedule_fails() -> None:
    async def waits(world: World) -> None:
        await world.hub.ask("user", "Is anybody there?")

    error = failure(waits, week(), max_rounds=500)
    assert isinstance(error.__cause__, NeverRests)
    assert "that much to do in all" in str(error)


@pytest.mark.parametrize("seconds", [0.0, 1.0, 5.0, 1_000.0])
def test_the_last_message_of_a_story_comes_though_nothing_overtakes_it(seconds: float) -> None:
    fault = ChannelFault(kind="reorder", seconds=seconds)
    steps = [Open(agent="desk", input="one"), Say(text="two")]
    history = simulate(steps, one_tool(), faults=[fault])
    said = [(x.verb, x.status) for x in history.sent]
    assert said == [("open", "accepted"), ("say", "accepted")]


def test_what_has_no_name_of_its_own_is_called_what_it_is() -> None:
    error = failure(lambda world: say(world), lambda: one_tool())
    assert error.replay == "simulate(scenario, setup, seed=0)"


async def say(world: World) -> None:
    raise ValueError("said")


def test_hypothesis_prints_the_line_with_what_fails_after_it() -> None:
    @settings(max_examples=5, database=None)
    @given(st.sampled_from(["red", "blue"]))
    def nothing_is_blue(color: str) -> None:
        history = simulate([Open(agent="desk", input=color)], named_setup)
        assert "blue" not in str(history.events[0])

    with pytest.raises(AssertionError) as caught:
        nothing_is_blue()
    lines = [x for x in caught.value.__notes__ if x.startswith("To see it again")]
    line = "simulate([Open(agent='desk', input='blue')], named_setup, seed=0)"
    assert lines == [f"To see it again: {line}"]


def test_a_scenario_that_raises_fails_with_its_story() -> None:
    async def impatient(world: World) -> None:
        run = await world.open("desk", "the red one")
        raise ValueError(f"no answer from {run[:4]}")

    error = failure(impatient, one_tool(), seed=2)
    assert "ValueError: no answer from 019b" in str(error)
    assert isinstance(error.__cause__, ValueError)
    assert "session:open" in str(error)
    assert error.replay == "simulate(impatient, setup, seed=2)"


def test_a_scenario_that_waits_for_ever_fails() -> None:
    async def waits(world: World) -> None:
        await world.hub.ask("user", "Is anybody there?")

    assert "nothing happens any more" in str(failure(waits, one_tool()))


def test_a_tool_that_is_busy_for_ever_fails_with_its_story() -> None:
    @tool
    async def spin() -> str:
        """Spin."""
        while True:
            await anyio.lowlevel.checkpoint()

    prompt = PromptDefinition(
        name="p", prompt="Spin.", model=ScriptedModel([reply("", call("spin"))], latency=2),
        tools=[spin],
    )  # fmt: skip
    setup = Setup.of(AgentDefinition(name="desk", side_a=SideConfig(prompt=prompt)))
    error = failure([Open(agent="desk", input="go")], setup, max_rounds=2_000)
    assert isinstance(error.__cause__, NeverRests)
    (run_id,) = (x.run_id for x in error.history.sent)
    assert f"at 2.000 s of virtual time, with {run_id} in " in error.problems[0]
    assert "spin (test_simulate.py:" in error.problems[0]
    assert "agent:tool:start step=1 name='spin'" in str(error)
    assert error.replay.endswith("seed=0, max_rounds=2000)")


def test_failures_of_two_invariants_are_of_two_classes_and_those_of_one_of_one() -> None:
    def always(history: History) -> Iterator[str]:
        yield "never"

    one = failure(STEPS, one_tool(), invariants={"one": always})
    two = failure(STEPS, one_tool(), invariants={"two": always})
    assert type(one) is not type(two)
    assert type(one) is type(failure(STEPS, one_tool(), seed=1, invariants={"one": always}))


def test_a_wrong_setup_is_no_failed_simulation() -> None:
    with pytest.raises(DefinitionError):
        simulate(STEPS, lambda: Setup.of(AgentDefinition(name="desk")))


def test_long_stories_show_their_end() -> None:
    def always(history: History) -> Iterator[str]:
        yield from (f"wrong {n}" for n in range(100))

    text = str(failure(busy_day, desk(), invariants={"always": always}))
    assert "… and 90 more" in text
    assert len(text.splitlines()) < 70


# ── limits ───────────────────────────────────────────────────────────────────────────────────


def deep(depth: int, **limits: Any) -> Setup:
    """An agent that has itself called, so many times."""

    def delegates(request: Any) -> Any:
        left = int(request.messages[0].content)
        if left == 0 or len(request.messages) > 1:
            return reply("", call("done", result="done"))
        return reply("", call("digger", message=str(left - 1)))

    @tool
    def done(result: str) -> str:
        """Be done."""
        return "ok"

    prompt = PromptDefinition(
        name="p", prompt="Dig.", model=FunctionModel(delegates),
        tools=[done, SubagentToolConfig(name="digger", blocking=True)],
    )  # fmt: skip
    side = SideConfig(prompt=prompt, session_stop=SessionToolBinding("done", "result"))
    agent = AgentDefinition(
        name="digger", type="dual_ai", expose_as_tool=True, tool_description="Digs.",
        side_a=side, side_b=side,
    )  # fmt: skip
    return Setup.of(agent, **limits)


def test_budgets_are_those_of_the_setup_unless_one_gives_ones_own() -> None:
    steps = [Open(agent="digger", input="18")]
    setup = deep(18, max_depth=20)
    history = simulate(steps, setup)  # Deeper than the default, and it may be.
    assert max(x.depth for x in history.events if isinstance(x, e.SessionOpen)) == 18
    mine = {**INVARIANTS, "quiet": lambda history: ()}
    assert simulate(steps, lambda: setup, invariants=mine).is_settled
    own = {**INVARIANTS, "budgets_held": held(Budgets(max_depth=16))}
    error = failure(steps, setup, invariants=own)
    assert error.broken == "budgets_held"
    assert "is 17 deep" in error.problems[0]


def test_a_limit_of_the_setup_that_does_not_hold_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"max_depth": 3, "max_inbox": 7, "max_spawns": 9, "max_descendants": 5}
    budgets = Budgets.of(deep(1, **limits))
    assert {name: getattr(budgets, name) for name in limits} == limits
    # As if the runtime had forgotten the limit that its setup gives.
    monkeypatch.setattr(Setup, "arguments", without_max_depth(Setup.arguments))
    error = failure([Open(agent="digger", input="5")], deep(5, max_depth=3))
    assert error.broken == "budgets_held"


def without_max_depth(arguments: Any) -> Any:
    def left(setup: Setup) -> dict[str, Any]:
        return {name: x for name, x in arguments(setup).items() if name != "max_depth"}

    return left


# ── aims ─────────────────────────────────────────────────────────────────────────────────────


def test_in_a_test_of_hypothesis_the_first_world_of_an_example_is_aimed() -> None:
    labels: list[dict[str, float]] = []

    @settings(max_examples=5, database=None, deadline=None, derandomize=True)
    @given(number=st.integers(1, 3))
    def play(number: int) -> None:
        for _ in range(2):
            simulate([Open(agent="desk", input="x")] * number, one_tool())
        set_targets(History())
        hypothesis.target(1.0, label="interleavings")  # A label of the user's own.
        labels.append(dict(current_build_context().data.target_observations))

    play()
    assert len(labels) >= 3
    for found in labels:
        assert set(found) == {DEPTH, INTERLEAVINGS, "interleavings"}
        assert found[INTERLEAVINGS] >= 0
    assert len({found[INTERLEAVINGS] for found in labels}) > 1


def test_simulating_outside_of_a_test_of_hypothesis_aims_at_nothing() -> None:
    assert not hypothesis.currently_in_test_context()
    assert simulate([Open(agent="desk", input="x")], one_tool()).is_settled


# ── what a user would plant ──────────────────────────────────────────────────────────────────


def test_a_tool_of_the_users_that_is_not_idempotent_is_found_out_by_a_crash() -> None:
    def shop() -> Setup:
        booked: list[str] = []

        @tool(idempotent=True)
        def book(what: str) -> str:
            """Book something."""
            booked.append(what)
            return f"booked {booked.count(what)} times"

        def books(request: Any) -> Any:
            return "done" if len(request.messages) > 1 else reply("", call("book", what="a seat"))

        prompt = PromptDefinition(
            name="p", prompt="Book.", model=FunctionModel(books), tools=[book]
        )
        return Setup.of(AgentDefinition(name="shop", side_a=SideConfig(prompt=prompt)))

    def booked_once(history: History) -> Iterator[str]:
        for x in history.events:
            if isinstance(x, e.AgentToolComplete) and x.output != "booked 1 times":
                yield f"run {x.run_id}: {x.output}"

    invariants = {**INVARIANTS, "booked_once": booked_once}
    steps = [Open(agent="shop", input="a seat, please")]
    assert simulate(steps, shop, invariants=invariants).is_settled
    found = []
    for commit in range(1, 10):
        try:
            simulate(steps, shop, faults=[Crash(commit=commit, when="before")],
                     invariants=invariants)  # fmt: skip
        except SimulationFailed as error:
            found.append(error.broken)
    assert found == ["booked_once"]


# ── what it costs ────────────────────────────────────────────────────────────────────────────


def counting() -> float:
    """CPU seconds that a million additions take here."""
    before, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number & 7
    return time.process_time() - before


def test_a_week_of_heartbeat_and_cron_takes_less_than_two_seconds() -> None:
    async def a_week(world: World) -> None:
        await world.wait(7 * 86_400)

    def seconds() -> float:
        before = time.process_time()
        history = simulate(a_week, week())
        fires = [x for x in history.events if isinstance(x, e.ScheduleFire)]
        assert len(fires) == 7 * 48 + 7 * 24
        assert not [x for x in history.events if isinstance(x, e.ScheduleSkip)]
        return time.process_time() - before

    # Two seconds of a machine that counts to a million in 0.03 s; of a slower one, as many more.
    # It may be busy with something else, too: one of three will do.
    assert any(seconds() < 2 * max(1.0, counting() / 0.03) for _ in range(3))


@pytest.mark.parametrize("store", get_args(StoreName))
def test_a_world_is_not_at_rest_in_the_moment_in_which_a_schedule_fires(store: StoreName) -> None:
    well = FunctionModel(lambda _: "all is well", latency=0.3)
    schedules = (Cron("tick", "* * * * *", "bot", "Tick."),)
    setup = Setup(agents=(Agent("bot", "Repeat.", model=well),), schedules=schedules)
    for seed in range(5):  # It settles twice, and looks after a second each time.
        history = simulate([Wait(seconds=118.0)], setup, seed=seed, store=store)
        fires = [x for x in history.events if isinstance(x, e.ScheduleFire)]
        assert len(fires) == 2
