"""What a user is told when he is wrong: one line that names the argument, and before anything runs.

What is accepted although it can mean nothing makes a test that always passes.
"""

import pickle
from collections.abc import Callable, Iterator
from typing import Any, get_args

import anyio
import pytest
from support.bugs import support_desk
from support.simulations import one_tool

from hubbub import AgentDefinition, PromptDefinition, SideConfig, Skill, tool
from hubbub.hub.errors import BadValue, CallerError
from hubbub.hub.events import AgentText, Event
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, reply
from hubbub.runtime.simulation import (
    INVARIANTS,
    Approve,
    ClockJump,
    Close,
    Crash,
    Deny,
    History,
    Interrupt,
    ListenerFault,
    ModelFault,
    Open,
    Reply,
    Restart,
    Say,
    Setup,
    SimMachine,
    SimulationFailed,
    Step,
    Terminate,
    ToolFault,
    Wait,
    World,
    scripted,
    simulate,
)
from hubbub.runtime.simulation.invariants.all import problems_of
from hubbub.runtime.simulation.machine import async_rule
from hubbub.runtime.simulation.story.arguments import check_steps, check_world, setup_of
from hubbub.runtime.simulation.story.history import StoreName
from hubbub.runtime.simulation.story.steps import AnyStep
from hubbub.runtime.simulation.strategies.worlds import events, faults, scripts, steps, stores

DESK = support_desk()
AGENT = DESK.agents[0]
STORY = [Open(agent="desk", input="my parcel is lost")]
THERE: Any = float("inf")


def refused(make: Callable[[], Any]) -> str:
    """The one line that somebody who is wrong is told."""
    with pytest.raises(BadValue) as caught:
        make()
    text = str(caught.value)
    assert "\n" not in text
    return text


# ── steps, setups ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: Say(to=-1), "Say.to: counts from 0, there is no -1"),
        (lambda: Interrupt(to=-1), "Interrupt.to: counts from 0, there is no -1"),
        (lambda: Terminate(to=-1), "Terminate.to: counts from 0, there is no -1"),
        (lambda: Close(to=-1), "Close.to: counts from 0, there is no -1"),
        (lambda: Say(to="desk"), "Say.to: expected a whole number, not 'desk'"),
        (lambda: Say(text=5), "Say.text: expected a text, not int"),
        (lambda: Wait(seconds=-1), "Wait.seconds: cannot be negative or endless, as -1 is"),
        (
            lambda: Wait(seconds=1e300),
            "Wait.seconds: at most 10,000,000,000 seconds",
        ),
        (lambda: ClockJump(at=0, seconds=-1e300), "ClockJump.seconds: at most 10,000,000,000"),
        (lambda: Wait(seconds=THERE), "Wait.seconds: cannot be negative or endless, as inf is"),
        (lambda: Wait(seconds="1"), "Wait.seconds: expected a number, not '1'"),
        (
            lambda: Open(agent=AGENT),
            "Open.agent: expected a text, not AgentDefinition; give its name, 'desk'",
        ),
        (lambda: Step(), "Step: this is any step; make an Open, a Say, a Wait, …"),
        (lambda: Setup.of(), "Setup.of: there is no agent; write Setup.of(agent)"),
        (lambda: Setup.of(3), "Setup.agents[0]: expected an AgentDefinition, not 3"),
        (lambda: Setup(agents=3), "Setup.agents: expected a list, not 3"),
        (lambda: Setup.of(AGENT, models=3), "Setup.models: expected a mapping, not 3"),
        (lambda: Setup.of(AGENT, default_agnet="desk"), "Setup.options: Runtime has no default_a"),
        (
            lambda: Setup.of(AGENT, options={"tools": []}),
            "Setup.options: tools: give it as tools=…, beside them",
        ),
    ],
)
def test_a_step_or_setup_that_could_mean_nothing_is_refused(make: Any, line: str) -> None:
    assert refused(make).startswith(line)


def test_a_list_of_agents_that_can_be_read_once_is_refused() -> None:
    assert refused(lambda: Setup(agents=(x for x in DESK.agents))).startswith(  # type: ignore[arg-type]
        "Setup.agents: expected a list"
    )


def test_every_step_is_a_step_whose_repr_is_its_code() -> None:
    every = [
        *STORY,
        Say(),
        Wait(),
        Interrupt(),
        Terminate(),
        Close(),
        Restart(kill=True),
        Reply(),
        Approve(arguments={"a": 1}),
        Deny(),
    ]
    assert {type(step) for step in every} == set(get_args(AnyStep)) == set(Step.__subclasses__())
    assert eval(repr(every)) == every


# ── strategies, machines ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            lambda: steps(DESK, agents=["nobody"]),
            "steps: agents: no agent 'nobody'; the setup has desk, refunds",
        ),
        (
            lambda: steps(DESK, agents="desk"),
            "steps: agents: expected a list of names; write ['desk']",
        ),
        (lambda: steps(DESK, users="ann"), "steps: users: expected a list of names; write"),
        (lambda: steps(AGENT), "setup: expected a Setup, not an AgentDefinition; write Setup.of("),
        (lambda: stores("disk"), "stores: no store 'disk'; there are memory, late, sqlite"),
        (
            lambda: scripts(DESK, "nope"),
            "scripts: no prompt 'nope'; there are prompt-of-desk, prompt-of-refunds",
        ),
        (
            lambda: scripted(DESK, {"nope": []}),
            "scripted: no prompt 'nope'; there are prompt-of-desk, prompt-of-refunds",
        ),
        (lambda: faults(DESK, "Crash"), "faults: 'Crash' is no class of faults; there are Crash, "),
        (lambda: events(int), "events: <class 'int'> is not an event class; give classes such as"),
        (lambda: events("AgentText"), "events: 'AgentText' is not an event class"),
    ],
)
def test_a_strategy_of_nothing_is_refused_when_it_is_made(make: Any, line: str) -> None:
    assert refused(make).startswith(line)


def test_strategies_take_a_function_that_makes_a_setup_as_simulate_does() -> None:
    for make in (steps, faults, scripts):
        assert make(support_desk).is_empty is False
    assert steps(DESK, agents=["refunds"]).is_empty is False
    assert events(AgentText, Event).is_empty is False
    told = scripted(support_desk, {"prompt-of-desk": [reply("Hello.")]})
    assert simulate(STORY, told).said(simulate(STORY, told).roots[0]) == ["Hello."]


def machine(**space: Any) -> Callable[[], Any]:
    def make() -> None:
        type("Desk", (SimMachine,), space)().teardown()

    return make


@pytest.mark.parametrize(
    ("space", "line"),
    [
        ({}, "Desk.setup: it is missing; write `setup = Setup.of(agent)` in the class"),
        ({"setup": AGENT}, "setup: expected a Setup, not an AgentDefinition"),
        ({"setup": lambda self: None}, "setup: <lambda>() returned None; have it return a Setup"),
        (
            {"setup": DESK, "store": "disk"},
            "Desk.store: no store 'disk'; there are memory, late, sqlite",
        ),
        (
            {"setup": DESK, "agents": "desk"},
            "Desk.agents: expected a list of names; write ['desk']",
        ),
        (
            {"setup": DESK, "agents": ("nobody",)},
            "Desk.agents: no agent 'nobody'; the setup has desk, refunds",
        ),
        ({"setup": DESK, "users": "ann"}, "Desk.users: expected a list of names"),
        (
            {"setup": DESK, "invariants_of": [1]},
            "Desk.invariants_of: expected a mapping of names to",
        ),
    ],
)
def test_a_machine_that_could_do_nothing_is_refused(space: Any, line: str) -> None:
    assert refused(machine(**space)).startswith(line)


def test_a_machine_takes_a_setup_a_method_or_a_function_that_makes_one() -> None:
    for setup in (DESK, lambda self: DESK, support_desk, lambda: DESK):
        machine(setup=setup, agents=["refunds"])()


def test_an_async_rule_is_an_async_method() -> None:
    def make() -> None:
        @async_rule()
        def says(self: Any) -> None: ...

    assert refused(make) == (
        "async_rule: says is a plain function; write `async def says`, or make it a rule of "
        "hypothesis.stateful"
    )


# ── simulate ─────────────────────────────────────────────────────────────────────────────────


def test_whoever_gives_no_setup_is_told_what_one_is() -> None:
    async def make() -> Setup:
        return DESK

    assert setup_of(DESK) is DESK
    assert setup_of(lambda: DESK) is DESK
    for given, line in [
        (5, "setup: expected a Setup, or a function that makes one, not 5; make one with"),
        (
            AGENT,
            "setup: expected a Setup, not an AgentDefinition; write Setup.of(…) around 'desk'",
        ),
        (lambda: None, "setup: <lambda>() returned None; have it return a Setup"),
        (make, "setup: make is async; write a plain function that returns a Setup"),
    ]:
        assert refused(lambda given=given: setup_of(given)).startswith(line)  # type: ignore[misc]
        assert refused(lambda given=given: simulate(STORY, given)).startswith(line)  # type: ignore[misc]


KINDS = (
    "Crash, ModelFault, ToolFault, ListenerFault, ChannelFault, ClockJump, PauseWorker, "
    "KillWorker, CutWorker"
)
STEPS = "Open, Say, Wait, Interrupt, Terminate, Close, Restart, Reply, Approve, Deny"

WRONG_WORLDS: Any = [
    ({"store": "disk"}, "store: no store 'disk'; there are memory, late, sqlite"),
    ({"faults": ["crash"]}, f"faults[0]: 'crash' is no fault; there are {KINDS}"),
    (
        {"faults": [Crash(commit=1), Crash]},
        "faults[1]: the class Crash is no fault; make one: Crash(…)",
    ),
    ({"faults": Crash(commit=1)}, "faults: expected a list of faults; write [Crash(commit=1)]"),
    ({"faults": {Crash(commit=1)}}, "faults: expected a list of faults, not {Crash(commit=1)}"),
    ({"faults": "crash"}, "faults: expected a list of faults, not 'crash'"),
    (
        {"faults": [ModelFault(agent="dekc", kind="error")]},
        "faults[0].agent: no agent 'dekc'; the setup has desk, refunds",
    ),
    (
        {"faults": [ToolFault(tool="reefund", kind="raise")]},
        "faults[0].tool: no tool 'reefund' that could be struck; there are look_up, pay_back",
    ),
]


@pytest.mark.parametrize(("options", "line"), WRONG_WORLDS)
def test_faults_and_stores_that_there_are_not_are_refused(options: Any, line: str) -> None:
    given = {"faults": (), "store": "memory", **options}
    assert refused(lambda: check_world(DESK, **given)) == line
    assert refused(lambda: World(DESK, **options)) == line
    assert refused(lambda: simulate(STORY, DESK, **options)) == line


@pytest.mark.parametrize(
    ("scenario", "line"),
    [
        (
            Open(agent="desk"),
            "scenario: expected a list of steps, or an async function of a world;",
        ),
        ([*STORY, "hi"], f"scenario[1]: 'hi' is no step; there are {STEPS}"),
        ([Open], "scenario[0]: the class Open is no step; make one: Open(…)"),
        ("hi", "scenario: expected a list of steps, or an async function of a world, not 'hi'"),
        (3, "scenario: expected a list of steps, or an async function of a world, not 3"),
        (iter(STORY), "scenario: expected a list of steps, or an async function of a world, not "),
        (
            [*STORY, Open(agent="nobody")],
            "scenario[1].agent: no agent 'nobody'; the setup has desk, refunds",
        ),
        (
            [Open()],
            "scenario[0].agent: the setup has no default_agent; name one of desk, refunds, or",
        ),
    ],
)
def test_a_scenario_that_cannot_be_played_is_refused(scenario: Any, line: str) -> None:
    assert refused(lambda: simulate(scenario, DESK)).startswith(line)


def test_names_that_the_setup_does_not_list_but_has_are_known() -> None:
    @tool
    def letter(message: str) -> str:
        """Send a letter."""
        return message

    @tool
    def stamp() -> str:
        """Stamp it."""
        return "done"

    post = Skill(name="post", description="Posts.", passthrough=letter)
    mourn = Skill(
        name="mourn",
        description="Mourns.",
        instructions="Mourn.",
        model=FunctionModel(lambda _: "oh"),
        tools=[],
    )
    prompt = PromptDefinition(
        name="p", prompt="x", model=ScriptedModel(["Hello."]), tools=["stamp"], skills=[mourn]
    )
    setup = Setup.of(
        AgentDefinition(name="desk", side_a=SideConfig(prompt="p")), prompts=[prompt],
        tools=[stamp], skills=[post], default_agent="desk",
    )  # fmt: skip
    known = [
        ModelFault(agent="skill:mourn", kind="error"), ToolFault(tool="letter", kind="raise"),
        ToolFault(tool="stamp", kind="raise"), ToolFault(kind="raise"), ModelFault(kind="error"),
    ]  # fmt: skip
    check_world(setup, known, "memory")
    check_steps([Open(), Open(agent="skill:mourn"), Open(agent="desk")], setup)
    simulate([Open()], setup, faults=[*known, ClockJump(at=1, seconds=1)])


def test_of_definitions_that_do_not_fit_the_runtime_tells() -> None:
    wrong = Setup.of(AGENT, AGENT)
    check_world(wrong, [ModelFault(agent="nope", kind="error")], "memory")
    with pytest.raises(SimulationFailed, match="'desk' is taken"):
        simulate([Open(agent="nobody")], wrong)


def test_a_plain_function_is_no_scenario_but_one_that_returns_what_can_be_awaited_is() -> None:
    def sync(world: World) -> None: ...

    async def story(world: World, text: str) -> None:
        await world.open("desk", text)

    assert refused(lambda: simulate(sync, DESK)) == (  # type: ignore[arg-type]
        "scenario: sync is a plain function; write `async def sync`"
    )
    assert simulate(lambda world: story(world, "hi"), DESK).sent[0].text == "hi"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_in_an_async_test_one_is_told_what_to_use_there(backend: str) -> None:
    async def test() -> None:
        for act in (lambda: simulate(STORY, DESK), machine(setup=DESK)):
            with pytest.raises(CallerError, match=r"fixture simulated_world, or `async with World"):
                act()

    anyio.run(test, backend=backend)
    simulate(STORY, DESK)


# ── invariants ───────────────────────────────────────────────────────────────────────────────


def test_an_invariant_may_assert() -> None:
    def mine(history: History) -> None:
        assert history.seed == 5, "not the fifth"

    def more(history: History) -> Iterator[str]:
        yield "one"
        assert history.seed == 5, "not the fifth"

    def bare(history: History) -> None:
        exec(compile("assert history.seed == 5", "own_file.py", "exec"), {"history": history})

    assert problems_of("mine", mine, History(seed=5)) == []
    (line,) = problems_of("mine", mine, History())
    assert line.startswith("not the fifth")
    assert "test_wrong_arguments.py:" in line
    one, two = problems_of("more", more, History())
    assert (one, two[:13]) == ("one", "not the fifth")
    assert problems_of("bare", bare, History()) == ["AssertionError (own_file.py:1)"]
    simulate(STORY, DESK, seed=5, invariants={**INVARIANTS, "mine": mine})
    with pytest.raises(SimulationFailed, match="mine: not the fifth") as failed:
        simulate(STORY, DESK, seed=4, invariants={**INVARIANTS, "mine": mine})
    assert failed.value.broken == "mine"


@pytest.mark.parametrize("found", ["oh no", True, False, 3, {"a": 1}])
def test_an_invariant_that_returns_no_lines_is_wrong(found: Any) -> None:
    line = refused(lambda: simulate(STORY, DESK, invariants={"mine": lambda _: found}))
    assert line == (
        f"invariants['mine']: it returned {found!r}; return the problems, a list of lines, or "
        "raise AssertionError"
    )


def test_an_async_invariant_is_wrong() -> None:
    async def mine(history: History) -> list[str]:
        return []

    line = refused(lambda: problems_of("mine", mine, History()))  # type: ignore[arg-type]
    assert line.startswith("invariants['mine']: it is async; make it a plain function")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([print], "invariants: expected a mapping of names to functions, not list"),
        ({"mine": 3}, "invariants: expected names and functions, not 'mine': 3"),
        (None, "invariants: expected a mapping of names to functions, not NoneType"),
    ],
)
def test_invariants_go_by_their_names(given: Any, words: str) -> None:
    line = refused(lambda: simulate(STORY, DESK, invariants=given))
    assert line == words + '; write {**INVARIANTS, "mine": mine}'


# ── what failures say ────────────────────────────────────────────────────────────────────────


def test_a_step_about_a_run_that_was_never_opened_is_told_of_and_nothing_else() -> None:
    story = [Say(text="too early"), *STORY, Say(to=4, text="hello?"), Wait(), Close(to=1)]
    history = simulate(story, DESK)
    assert [x.verb for x in history.sent] == ["open"]
    assert [(x.step, x.opened) for x in history.skipped] == [
        ("Say(text='too early')", 0), ("Say(to=4, text='hello?')", 1), ("Close(to=1)", 1),
    ]  # fmt: skip
    trace = history.trace()
    assert trace[0] == "0.000 nothing: Say(text='too early'), of 0 runs opened by then"
    assert trace[1].startswith("0.000 user: open desk")
    places = [n for n, line in enumerate(trace) if "nothing: " in line]
    assert len(places) == 3
    assert "1.000 nothing: Close(to=1), of 1 runs opened by then" in trace


def test_a_world_that_was_cut_short_names_its_runs_as_any_other() -> None:
    async def waits(world: World) -> None:
        await world.open("desk", "one")
        await world.open("desk", "two")
        await world.wait(10)
        await anyio.sleep_forever()

    with pytest.raises(SimulationFailed, match="nothing happens any more") as failed:
        simulate(waits, DESK)
    history = failed.value.history
    assert not history.runs  # The store was not read.
    trace = "\n".join(history.trace())
    assert "7000-" not in trace
    assert "2.1 refunds agent:start" in trace
    whole = simulate([Open(agent="desk", input="one"), Open(agent="desk", input="two")], DESK)
    assert whole.trace()[-1].split()[1] in ("1", "2", "1.1", "2.1")


def test_a_failure_names_runs_in_its_problems_as_in_its_trace() -> None:
    def mine(history: History) -> Iterator[str]:
        yield from (f"run {run_id} is there" for run_id in history.runs)

    with pytest.raises(SimulationFailed) as failed:
        simulate(STORY, DESK, invariants={"mine": mine})
    assert str(failed.value).splitlines()[:2] == ["mine: run 1 is there", "mine: run 1.1 is there"]
    assert failed.value.problems[0] == f"mine: run {failed.value.history.roots[0]} is there"


@pytest.mark.parametrize("store", get_args(StoreName))
def test_a_failure_can_be_pickled(store: StoreName) -> None:
    def mine(history: History) -> list[str]:
        return ["no"]

    given = [Crash(commit=7), ListenerFault(kind="raise"), ModelFault(kind="error")]
    with pytest.raises(SimulationFailed) as failed:
        simulate([*STORY, Say(to=3)], DESK, faults=given, store=store, invariants={"mine": mine})
    again = pickle.loads(pickle.dumps(failed.value))
    assert type(again) is type(failed.value)
    assert (again.broken, again.problems, again.replay) == (
        "mine",
        ("mine: no",),
        failed.value.replay,
    )
    assert str(again) == str(failed.value)
    assert again.history.trace() == failed.value.history.trace()

    async def raises(world: World) -> None:
        raise ValueError("no")

    with pytest.raises(SimulationFailed) as raised:
        simulate(raises, DESK, store=store)
    again = pickle.loads(pickle.dumps(raised.value))
    assert type(again) is SimulationFailed
    assert str(again) == str(raised.value)


def test_a_machine_whose_invariants_would_not_be_asked_is_refused() -> None:
    class Machine(SimMachine):
        setup = one_tool()
        invariants = {"mine": lambda history: ["never"]}  # type: ignore[assignment]  # noqa: RUF012

    with pytest.raises(BadValue, match="invariants_of"):
        Machine()


@pytest.mark.parametrize("scripts", [None, "Hello.", {"desk": "Hello."}, {"desk": 3}])
def test_what_are_no_scripts_is_refused(scripts: Any) -> None:
    with pytest.raises(BadValue, match="expected a list of replies by prompt"):
        scripted(one_tool(), scripts)


def test_a_world_opens_no_agent_that_it_does_not_have() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(BadValue, match="no agent 'nobody'; the setup has desk"):
            await world.open("nobody")

    simulate(scenario, one_tool())
