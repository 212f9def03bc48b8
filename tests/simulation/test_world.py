"""Lives of a world: what survives them, what does not, and what users notice."""

from collections.abc import Awaitable, Callable
from typing import Any, get_args

import anyio
import pytest
from support.profiles import portion
from support.simulations import one_tool

from hubbub import Agent, AgentDefinition, Message, PromptDefinition, RunState, SideConfig, tool
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, CallerError, DefinitionError, UnknownRun
from hubbub.hub.hub import Hub
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import FunctionModel, call
from hubbub.runtime.simulation import (
    ChannelFault,
    Crash,
    History,
    ListenerFault,
    Setup,
    World,
    WorldFault,
    run_seeded,
)
from hubbub.runtime.simulation.injection.dying_store import DyingJournal
from hubbub.runtime.simulation.story.history import StoreName

STORES = get_args(StoreName)


def lived(
    scenario: Callable[[World], Awaitable[object]],
    *faults: WorldFault,
    setup: Setup | None = None,
    store: StoreName = "memory",
    seed: int = 0,
) -> History:
    """The history of a world in which ``scenario`` happens."""
    worlds: list[World] = []

    async def main() -> None:
        async with World(setup or one_tool(), seed=seed, faults=faults, store=store) as world:
            worlds.append(world)
            await scenario(world)

    run_seeded(main, seed)
    return worlds[0].history


async def one_question(world: World) -> None:
    run = await world.open("desk", "the red one")
    await world.settle()
    await world.result(run)


@pytest.mark.parametrize("store", STORES)
def test_a_world_without_faults_has_one_life(store: StoreName) -> None:
    history = lived(one_question, store=store)
    (run_id,) = history.runs
    assert [(life.end, life.number) for life in history.lives] == [("left", 0)]
    assert history.said(run_id) == ["that is all"]
    assert history.heard_by(run_id) == []
    outcome = history.outcome(run_id)
    assert outcome is not None
    assert outcome.success
    assert [(x.agent, x.run_id, x.life) for x in history.requests] == [("desk", run_id, 0)] * 2
    assert [x.event for x in history.heard if x.event.lane] == list(history.events)
    assert history.runs[run_id].status == "parked"
    assert (history.tasks, history.waiting, history.live) == ((), {}, {})


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_store_holds_the_commits_up_to_the_crash_and_nobody_heard_of_more(
    store: StoreName, when: Any
) -> None:
    commits = lived(one_question, store=store).lives[0].commits
    for commit in portion(range(1, commits + 1)):
        history = lived(one_question, Crash(commit=commit, when=when), store=store)
        first, last = history.lives
        kept = commit if when == "after" else commit - 1
        assert (first.end, first.commits, last.end) == ("crashed", kept, "left")
        in_first = [x.event for x in history.heard if x.life == 0 and x.event.lane]
        assert in_first == list(history.events[: len(in_first)])
        unheard = first.tip - len(in_first)
        assert unheard > 0 if when == "after" else unheard == 0


def test_a_crash_in_recovery_is_followed_by_another_life() -> None:
    faults = [Crash(commit=4), Crash(commit=1, life=1), Crash(commit=1, life=2, when="before")]
    history = lived(one_question, *faults)
    assert [life.end for life in history.lives] == ["crashed", "crashed", "crashed", "left"]
    assert history.outcome(next(iter(history.runs))) is not None


@pytest.mark.parametrize("store", STORES)
def test_what_is_killed_in_the_middle_goes_on_in_the_next_life(store: StoreName) -> None:
    async def scenario(world: World) -> None:
        run = await world.open("desk", "the red one")
        await world.wait(0.5)
        await world.die()
        assert world.crashes == 0
        assert (await world.say(run, "the blue one")).accepted
        outcome = await world.result(run)
        assert outcome is not None
        assert outcome.output == "that is all"
        assert world.lives == 2

    history = lived(scenario, store=store)
    assert [life.end for life in history.lives] == ["killed", "left"]
    assert [x.type for x in history.events].count(e.AgentRestore.type) == 1


def test_restarting_leaves_in_order() -> None:
    async def scenario(world: World) -> None:
        await world.open("desk", "the red one")
        await world.restart()
        await world.settle()
        await world.end()
        with pytest.raises(CallerError, match="no process"):
            _ = world.hub
        await world.begin()
        with pytest.raises(CallerError, match="at work"):
            await world.begin()

    assert [life.end for life in lived(scenario).lives] == ["left"] * 3


def test_a_dead_process_calls_no_model_and_is_not_heard() -> None:
    async def scenario(world: World) -> None:
        hub = world.hub
        await world.open("desk", "the red one")
        assert world.crashes == 1
        assert hub.is_closed
        await world.wait(10)
        assert world.crashes == 1

    history = lived(scenario, Crash(commit=1))
    assert [x.life for x in history.requests] == [1, 1]
    assert [x.life for x in history.heard] == [1] * len(history.heard)


def test_what_a_cancelled_tool_does_reaches_nobody_once_its_process_is_dead() -> None:
    async def execute(input: Any, ctx: Any) -> str:
        try:
            await anyio.sleep(100)
        finally:
            ctx.hub.emit(e.AgentStatus(status="too late"))
        return "slept"

    async def scenario(world: World) -> None:
        await world.open("sleeper")
        await world.wait(1)
        await world.die()

    setup = Setup.of(AgentDefinition(name="sleeper", execute=execute))
    history = lived(scenario, setup=setup)
    assert not [x for x in history.events if isinstance(x, e.AgentStatus)]
    assert not [x for x in history.heard if isinstance(x.event, e.AgentStatus)]


def test_an_opening_that_is_lost_with_its_process_has_no_result() -> None:
    async def scenario(world: World) -> None:
        run = await world.open("desk", "the red one")
        assert (await world.say(run, "are you there?")).reason == "unknown"
        assert await world.result(run) is None
        with pytest.raises(UnknownRun):
            await world.result("nobody")

    history = lived(scenario, Crash(commit=1, when="before"))
    assert [(x.verb, x.status) for x in history.sent] == [("open", "pending"), ("say", "rejected")]
    assert [x.reason for x in history.dead_letters] == ["unknown"]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", ["duplicate", "reorder", "late"])
def test_nobody_waits_for_what_a_dead_process_would_have_said(store: StoreName, kind: Any) -> None:
    """A message is on a bad line, and the process dies of it: its receipt stays pending."""

    async def scenario(world: World) -> None:
        run = await world.open("desk", "hello")
        await world.say(run, "one")
        await world.say(run, "two")
        await world.settle()

    line = ChannelFault(message=1, kind=kind, seconds=1)
    for commit in range(2, 9):
        for when in ("before", "after"):
            crash = Crash(commit=commit, when=when)  # type: ignore[arg-type]
            assert lived(scenario, line, crash, store=store).lives[0].end == "crashed"


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_dies_so_many_commits_from_now(store: StoreName, when: Any) -> None:
    async def scenario(world: World) -> None:
        await world.open("desk", "the red one")
        await world.die_after(2, when)
        await world.settle()
        assert (world.lives, world.crashes) == (2, 1)
        await world.die()
        await world.die_after(1, when)  # A process that has just begun.
        await world.open("desk", "the blue one")
        assert (world.lives, world.crashes) == (3, 2)
        await world.die_after(1, when)
        world.end_faults()
        await world.open("desk", "the green one")
        await world.settle()
        with pytest.raises(BadValue, match="commits"):
            await world.die_after(0)

    async def only_opened(world: World) -> None:
        await world.open("desk", "the red one")
        await world.die()

    opened = lived(only_opened, store=store).lives[0].commits
    one, two, three, four = lived(scenario, store=store).lives
    assert (one.end, one.commits) == ("crashed", opened + 2 - (when == "before"))
    assert two.end == "killed"
    assert (three.end, three.commits) == ("crashed", 1 - (when == "before"))
    assert four.end == "left"


def test_what_users_do_is_written_down_with_what_became_of_it() -> None:
    async def scenario(world: World) -> None:
        run = await world.open("desk", "hello", session_key="ann", user="ann")
        await world.say("ann", "one", user="ann", key="1")
        await world.say(run, "one", user="ann", key="1")
        await world.interrupt(run)
        await world.settle()
        await world.close(run)
        await world.settle()
        await world.say(run, "two", user="ann")
        other = await world.open("desk", {"n": 1}, user="ben")
        await world.terminate(other, "enough", user="ben")

    history = lived(scenario)
    ann, ben = history.runs
    assert [(x.verb, x.run_id, x.text, x.user, x.status, x.reason) for x in history.sent] == [
        ("open", ann, "hello", "ann", "accepted", ""),
        ("say", ann, "one", "ann", "accepted", ""),
        ("say", ann, "one", "ann", "duplicate", ""),
        ("interrupt", ann, "", "user", "accepted", ""),
        ("close", ann, "", "user", "accepted", ""),
        ("say", ann, "two", "ann", "rejected", "ended"),
        ("open", ben, '{"n":1}', "ben", "accepted", ""),
        ("terminate", ben, "enough", "ben", "accepted", ""),
    ]


def test_a_message_that_is_held_up_is_not_waited_for() -> None:
    async def scenario(world: World) -> None:
        run = await world.open("desk", "hello")
        late = await world.say(run, "late")
        assert late.status == "pending"
        assert (await world.say(run, "soon")).accepted
        await world.wait(10)
        assert late.accepted

    history = lived(scenario, ChannelFault(message=1, kind="late", seconds=5))
    assert [x.text for x in history.sent] == ["hello", "soon", "late"]
    assert history.heard_by(history.roots[0]) == ["soon", "late"]


@pytest.mark.parametrize("store", STORES)
def test_a_message_that_comes_while_a_process_is_left_finds_the_next_one(store: StoreName) -> None:
    async def scenario(world: World) -> None:
        run = await world.open("desk", "hello")
        held = await world.say(run, "held up")
        await world.restart()  # It takes its grace, and the message comes within.
        await world.settle()
        assert held.accepted

    slow = one_tool(latency=100)
    history = lived(scenario, ChannelFault(kind="reorder"), setup=slow, store=store)
    one, two = history.lives
    assert one.ended <= two.began
    assert [x.life for x in history.sent] == [0, 1]


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("ends", [World.end, World.die])
@pytest.mark.parametrize("kind", ["reorder", "late"])
def test_nothing_runs_between_an_end_and_the_next_beginning(
    store: StoreName, ends: Callable[[World], Awaitable[None]], kind: Any
) -> None:
    """A message that is due meanwhile waits, too: whether the process is being left or has gone."""

    async def scenario(world: World) -> None:
        run = await world.open("desk", "hello")
        held = await world.say(run, "held up")
        await ends(world)
        lives = world.lives
        await anyio.sleep(60)
        assert (world.lives, held.status) == (lives, "pending")
        await world.begin()
        await world.settle()
        assert (world.lives, held.status) == (lives + 1, "accepted")
        assert (await world.read()).heard_by(run) == ["held up"]

    for seconds in (0.0, 5.0, 59.0):
        line = ChannelFault(kind=kind, seconds=seconds)
        lived(scenario, line, setup=one_tool(latency=100), store=store)


@pytest.mark.parametrize("store", STORES)
def test_a_process_that_a_held_message_begins_can_be_killed_in_its_beginning(
    store: StoreName,
) -> None:
    """Nobody has ended the one before: a fault has killed it."""
    begun: set[int] = set()
    for turns in range(40):

        async def scenario(world: World, turns: int = turns) -> None:
            run = await world.open("desk", "hello")
            held = await world.say(run, "held up")
            await anyio.sleep(5)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            await world.die()
            lives = world.lives
            begun.add(lives)
            await anyio.sleep(60)
            assert world.lives == lives
            await world.begin()
            await world.settle()
            assert held.status in ("accepted", "pending")  # Its process may have died of it.
            assert world.lives == lives + 1

        lived(scenario, Crash(commit=3), ChannelFault(kind="late", seconds=5), store=store)
    assert begun == {1, 2}


def test_a_message_of_a_scenario_that_has_ended_its_process_begins_none() -> None:
    async def scenario(world: World) -> None:
        run = await world.open("desk", "hello")
        await world.say(run, "held up")
        await world.end()
        world.end_faults()
        await anyio.sleep(60)

    history = lived(scenario, ChannelFault(kind="late", seconds=5))
    assert [x.verb for x in history.sent] == ["open"]
    assert len(history.lives) == 1


def test_faults_end() -> None:
    async def scenario(world: World) -> None:
        world.end_faults()
        await one_question(world)

    history = lived(scenario, Crash(commit=3), ListenerFault(kind="raise"))
    assert len(history.lives) == 1
    assert history.errors == []


def test_faulty_listeners_hear_the_recovery_too() -> None:
    faults = [Crash(commit=4), ListenerFault(kind="raise", pattern="agent:restore")]
    history = lived(one_question, *faults)
    assert [x.during for x in history.errors] == ["agent:restore"]


def test_the_trace_says_who_did_what_and_where_a_life_ended() -> None:
    trace = lived(one_question, Crash(commit=4)).trace()
    assert trace[0] == "0.000 user: open desk 'the red one' → accepted"
    assert trace[1].startswith("0.000 1 desk session:open ")
    end = trace.index("1.250 ── crashed after 4 commits ──")
    assert trace[end - 1].startswith("unheard 1.250 1 desk agent:tool:complete ")
    assert trace[end + 1] == "1.250 1 desk agent:restore"


def test_what_is_wrong_with_a_setup_is_told_as_a_runtime_tells_it() -> None:
    with pytest.raises(DefinitionError, match="'desk' is taken"):
        lived(one_question, setup=Setup.of(*one_tool().agents, *one_tool().agents))
    with pytest.raises(BadValue, match="store: the world has its own"):
        Setup.of(store="memory")


def test_a_setup_takes_what_a_runtime_takes() -> None:
    model = FunctionModel(lambda _: "hi")
    prompt = PromptDefinition(name="greet", prompt="Greet.", model="greeter")
    setup = Setup.of(
        AgentDefinition(name="greeter", side_a=SideConfig(prompt="greet")),
        prompts=[prompt],
        models={"greeter": model},
        default_agent="greeter",
        max_inbox=2,
    )
    assert setup.options == {"default_agent": "greeter", "max_inbox": 2}

    async def scenario(world: World) -> None:
        outcome = await world.result(await world.open(input="hello"))
        assert outcome is not None
        assert outcome.output == "hi"

    assert [x.agent for x in lived(scenario, setup=setup).requests] == ["greeter"]


def test_a_runtime_that_breaks_breaks_the_world() -> None:
    async def scenario(world: World) -> None:
        async def fail() -> None:
            raise ZeroDivisionError

        world.hub.tasks.start(fail())
        await world.wait(1)

    with pytest.raises(ZeroDivisionError):
        lived(scenario)


# ── the store that dies ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("when", "kept"), [("before", 2), ("after", 3)])
def test_a_dying_journal_keeps_what_came_before_its_death(when: Any, kept: int) -> None:
    async def main() -> None:
        inner, deaths = MemoryJournal(), list[int]()
        heard: list[Commit] = []
        dying = DyingJournal(inner, lambda: deaths.append(dying.commits), die_at=3, when=when)
        for _ in range(5):
            commit = Commit(events=(e.ScheduleSkip(),))
            commit.done = heard.append
            dying.submit(commit)
        assert (inner.tip, len(heard), deaths) == (kept, 2, [kept])
        for never in (dying.flush(), dying.info("x")):
            with anyio.move_on_after(1) as scope:
                await never
            assert scope.cancelled_caught
        await dying.aclose()

    run_seeded(main)


def test_a_dying_journal_is_the_journal_while_it_lives() -> None:
    async def main() -> None:
        async with Hub(journal=DyingJournal(MemoryJournal()), ports=virtual_ports()) as hub:
            receipt = await hub.open("nobody", "hello")
            assert receipt.accepted
            assert (await hub.send_to_run(receipt.run_id, Message("x", key="1"))).accepted
            assert (await hub.send_to_run(receipt.run_id, Message("x", key="1"))).duplicate
            assert [x.type for x in await hub.read()] == ["session:open", "session:message"]

    run_seeded(main)


@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
def test_the_history_so_far_can_be_read_while_the_world_is_open(store: Any) -> None:
    async def scenario(world: World) -> None:
        run_id = await world.open("desk", "the red one")
        assert (await world.read()).said(run_id) == []
        await world.settle()
        first = (await world.read()).said(run_id)
        assert len(first) == 1
        await world.die()
        await world.say(run_id, "the blue one")
        await world.settle()
        history = await world.read()
        assert history is world.history
        assert len(history.said(run_id)) == 2
        assert history.outcome(run_id) is not None
        assert history.of("desk") == [run_id] == [*history.own]

    lived(scenario, store=store)


@pytest.mark.parametrize("store", STORES)
def test_a_prompt_whose_end_nobody_has_heard_is_not_open(store: StoreName) -> None:
    """Its process died of the commit that ended it."""
    named: list[str] = []

    @tool(timeout=None)
    async def look(item: str, state: RunState) -> str:
        """Ask somebody who does not answer."""
        await state.hub.ask("user", item, timeout=5)
        return "looked"

    async def scenario(world: World) -> None:
        run = await world.open("desk", "the red one")
        await world.wait(3)
        named.append(world.open_prompt(run))
        await world.die_after(1)
        await world.wait(10)
        named.append(world.open_prompt(run))

    setup = Setup.of(Agent("desk", "x", model=asks_once(), tools=[look]))
    lived(scenario, setup=setup, store=store)
    assert named[0] and not named[1]


def asks_once() -> FunctionModel:
    return FunctionModel(
        lambda request: call("look", item="it") if len(request.messages) == 1 else "Well."
    )
