"""Forks in a simulated world: they go on, whatever the run that they are of has been through."""

import pytest

from hubbub import (
    Agent,
    AgentDefinition,
    FunctionModel,
    Limits,
    ModelReply,
    ModelRequest,
    PromptDefinition,
    RunState,
    SideConfig,
    VariableDefinition,
    tool,
)
from hubbub.hub import events as e
from hubbub.hub.events import SessionVariables
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.simulation import Setup, World, simulate
from hubbub.runtime.simulation.story.history import StoreName

MODEL = FunctionModel(lambda r: "You said it.", latency=5.0)
SAID = reply("It is done.")
SLOW = Setup.of(Agent("echo", "You repeat.", model=MODEL))


@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_a_fork_of_a_run_whose_process_has_died_goes_on_at_once(
    store: StoreName, deaths: int
) -> None:
    made: list[str] = []

    async def scenario(world: World) -> None:
        run_id = await world.open("echo", "hello")
        await world.wait(1)
        for _ in range(deaths):
            await world.die()
            await world.wait(1)
        made.append(await world.fork(run_id))
        await world.wait(6)
        assert (await world.read()).said(made[0]) == ["You said it."]

    history = simulate(scenario, SLOW, store=store)
    own = history.own[made[0]]
    restores = [x.reason for x in own if isinstance(x, e.AgentRestore)]
    assert restores == [*[""] * deaths, "forked while this run was at work"]
    assert [x.status for x in history.forks] == ["accepted"]


def desk_and_guide() -> Setup:
    """A desk whose conversation a guide takes over, who asks back."""

    def answer(request: ModelRequest) -> ModelReply:
        return reply("", call("use_agent", name="guide", message="Where to?"))

    guide = Agent("guide", "You guide.", model=MODEL, expose_as_tool=True)
    desk = Agent("desk", "You serve.", model=FunctionModel(answer), agents=["guide"])
    return Setup.of(desk, guide)


def test_a_fork_of_an_interruption_interrupts_the_frame_at_every_record_of_it() -> None:
    """Its end stands in the store behind the records that say that it is over."""
    forks: dict[int, str] = {}

    async def scenario(world: World) -> None:
        run_id = await world.open("desk", "hello")
        await world.wait(1)
        await world.interrupt(run_id, "enough")
        await world.wait(1)
        last = len((await world.read()).own[run_id])
        for seq in range(last + 1):
            forks[seq] = await world.fork(run_id, seq)

    history = simulate(scenario, desk_and_guide)  # No frame is popped that goes on.
    popped = [
        own[-1]
        for fork in forks.values()
        for pop in history.own[fork]
        if isinstance(pop, e.SessionPop) and pop.id in history.forked
        for own in [history.own[pop.frame_run_id]]
    ]
    assert popped and all(isinstance(x, e.AgentComplete) for x in popped)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_what_was_accepted_under_a_key_is_a_duplicate_in_a_fork_too(store: StoreName) -> None:
    async def scenario(world: World) -> None:
        run_id = await world.open("echo", "hello")
        await world.say(run_id, "once", user="ann", key="k")
        await world.settle(60)
        fork = await world.fork(run_id)
        for _ in range(2):
            assert (await world.say(fork, "once", user="ann", key="k")).status == "duplicate"
        assert (await world.say(fork, "other", user="ann", key="l")).status == "accepted"

    history = simulate(scenario, SLOW, store=store)
    assert [x.status for x in history.forks] == ["accepted"]


@pytest.mark.parametrize("commits", range(1, 12))
def test_a_fork_has_nothing_of_a_child_that_was_written_behind_its_record(commits: int) -> None:
    """At the same time, and directly behind it: the end of the child's session."""

    def answer(request: ModelRequest) -> ModelReply:
        return reply("", call("helper", message="Help.")) if len(request.messages) == 1 else SAID

    helper = Agent("helper", "You help.", model=MODEL).as_tool(blocking=False)
    desk = Agent("desk", "You serve.", model=FunctionModel(answer), tools=[helper])

    async def scenario(world: World) -> None:
        run_id = await world.open("desk", "hello")
        await world.wait(0.1)
        await world.die()
        await world.wait(0.1)
        await world.die_after(commits)  # Which is the last death that the child may have.
        await world.say(run_id, "again")
        await world.wait(0.1)
        last = len((await world.read()).own[run_id])
        for seq in range(last + 1):
            await world.fork(run_id, seq)

    simulate(scenario, Setup.of(desk, max_crashes=2))  # What ends below a fork is told there.


def test_the_time_between_a_record_and_its_fork_is_no_time_at_work() -> None:
    """Whatever is changed with it: else a limit of time would end the turn at once."""
    made: list[str] = []

    async def scenario(world: World) -> None:
        run_id = await world.open("echo", "hello")
        await world.wait(1)
        await world.interrupt(run_id)
        await world.wait(1_000)
        made.append(await world.fork(run_id, 3, prompt="You repeat it twice."))

    limits = Limits(seconds=60)
    prompt = PromptDefinition(name="echo", prompt="You repeat.", model=MODEL, limits=limits)
    agent = AgentDefinition(name="echo", side_a=SideConfig(prompt=prompt))
    history = simulate(scenario, Setup.of(agent))
    assert history.said(made[0]) == ["You said it."]


def test_a_child_that_was_given_its_values_is_begun_in_each_fork_once_and_by_another_id() -> None:
    @tool(variables=[VariableDefinition(name="CARD", required=True, scoped=True)])
    async def pay(amount: int, state: RunState) -> str:
        """Pay."""
        return f"{amount} paid with {len(state.env['CARD'])} digits"

    def pays(request: ModelRequest) -> ModelReply:
        return SAID if len(request.messages) > 1 else reply("", call("pay", amount=7))

    def serves(request: ModelRequest) -> ModelReply:
        return SAID if len(request.messages) > 1 else reply("", call("cashier", message="Pay."))

    cashier = Agent("cashier", "You pay.", model=FunctionModel(pays, latency=1), tools=[pay])
    desk = Agent("desk", "You serve.", model=FunctionModel(serves), tools=[cashier.as_tool()])
    forks: dict[int, str] = {}

    async def scenario(world: World) -> None:
        run_id = await world.open("desk", "hello")
        await world.wait(1)
        asked = next(x.event for x in world.history.heard if isinstance(x.event, SessionVariables))
        await world.runtime.provide_variables(run_id, asked.request_id, {"CARD": "4929"})
        last = len((await world.read()).own[run_id])
        for seq in range(last + 1):
            forks[seq] = await world.fork(run_id, seq)

    history = simulate(scenario, Setup.of(desk))
    children = {x.run_id: x.parent_run_id for x in history.runs.values()}
    provided = 0
    for fork in forks.values():
        if not any(isinstance(x, SessionVariables) for x in history.inbox[fork]):
            continue
        provided += 1
        (child,) = (x for x, parent in children.items() if parent == fork)
        results = [x for x in history.own[child] if isinstance(x, e.AgentToolComplete)]
        assert [x.output for x in results] == ["7 paid with 4 digits"]
    assert provided >= 2


def test_a_run_that_was_ended_before_it_began_begins_anew_in_a_fork() -> None:
    made: list[str] = []

    async def scenario(world: World) -> None:
        await world.open("echo", "first", user="ann")
        run_id = await world.open("echo", "hello")  # It waits for room.
        await world.terminate(run_id)
        await world.wait(20)
        assert await world.fork(run_id, 1) == ""
        made.append(await world.fork(run_id))

    history = simulate(scenario, Setup.of(SLOW.agents[0], max_live=1))
    assert history.said(made[0]) == ["You said it."]
