"""Worlds whose old turns go: ``simulate(…, Setup.of(…, retention=Retention(keep_turns=…)))``."""

import pytest
from support.profiles import portion

from hubbub import Agent, FunctionModel, Limits, ModelRequest, Retention, ToolCall
from hubbub.agents.model import UserMessage
from hubbub.hub import events as e
from hubbub.runtime.models.scripted import call
from hubbub.runtime.removal import old_turns
from hubbub.runtime.simulation import Crash, History, Setup, World, simulate
from hubbub.runtime.simulation.story.faults import WorldFault
from hubbub.runtime.simulation.story.history import StoreName

STORES: tuple[StoreName, ...] = ("memory", "late", "sqlite")
TURNS = 8


def setup() -> Setup:
    bot = Agent("bot", "You answer.", model=FunctionModel(lambda _: "Noted.", latency=1.0))
    retention = Retention(ended=1_000, keep_turns=2)
    return Setup.of(bot, retention=retention, limits=Limits(model_calls=100, seconds=10_000))


async def talk(world: World) -> str:
    """A conversation of some turns, the old ones of which have gone when it is at rest."""
    run_id = await world.open("bot", "number 0", user="ann")
    for turn in range(1, TURNS):
        await world.wait(10)
        await world.say(run_id, f"number {turn}", user="ann", key=f"k{turn}")
    await world.wait(300)
    return run_id


def cuts(history: History) -> int:
    return sum(each.cut is not None for each in history.gone)


@pytest.mark.parametrize("store", STORES)
def test_a_history_tells_of_turns_that_have_gone(store: StoreName) -> None:
    async def scenario(world: World) -> None:
        await talk(world)

    history = simulate(scenario, setup, store=store)
    (run_id,) = history.runs
    assert cuts(history) and not history.bases
    assert [x.seq for x in history.own[run_id]] == [*range(1, len(history.own[run_id]) + 1)]
    heard = [x.content for x in history.inbox[run_id] if isinstance(x, e.SessionMessage)]
    assert heard == [f"number {turn}" for turn in range(1, TURNS)]


@pytest.mark.parametrize("store", STORES)
def test_a_fork_of_what_is_left_keeps_all_invariants(store: StoreName) -> None:
    async def scenario(world: World) -> None:
        run_id = await talk(world)
        fork = await world.fork(run_id, user="ben")
        again = await world.fork(fork, user="ben")
        for each in (fork, again):
            assert (await world.say(each, "number 1", key="k1", user="ann")).status == "duplicate"
            await world.say(each, "and now?", user="ben")

    history = simulate(scenario, setup, store=store)
    assert {*history.bases} == {made.run_id for made in history.forks}
    assert all(history.said(run_id)[-1] == "Noted." for run_id in history.runs)


def desk_and_guide() -> Setup:
    def desk(request: ModelRequest) -> str | ToolCall:
        last = request.messages[-1]
        if isinstance(last, UserMessage) and last.content == "hello":
            return call("use_agent", name="guide", message="Where to?")
        return "Noted."

    def guide(request: ModelRequest) -> str | ToolCall:
        last = request.messages[-1]
        is_over = isinstance(last, UserMessage) and last.content == "thanks"
        return call("complete", result="shown") if is_over else "This way."

    return Setup.of(
        Agent("guide", "You guide.", model=FunctionModel(guide), expose_as_tool=True),
        Agent("desk", "You serve.", model=FunctionModel(desk), agents=["guide"]),
        retention=Retention(ended=1_000, keep_turns=1),
    )


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("is_done", [True, False])
def test_a_fork_keeps_what_a_frame_has_taken_in_turns_that_have_gone(
    store: StoreName, is_done: bool
) -> None:
    async def scenario(world: World) -> None:
        run_id = await world.open("desk", "hello")
        await world.wait(10)
        await world.say(run_id, "and then?")
        await world.wait(10)
        await (world.say(run_id, "thanks") if is_done else world.interrupt(run_id, "enough"))
        for turn in range(TURNS):
            await world.wait(10)
            await world.say(run_id, f"number {turn}")
        await world.wait(300)
        fork = await world.fork(run_id)
        await world.say(fork, "and now?")

    history = simulate(scenario, desk_and_guide, store=store)
    (made,) = history.forks
    taken = [x for x in history.events if isinstance(x, e.SessionTaken) and x.id in history.forked]
    assert cuts(history) and made.run_id in history.bases
    assert any(item.run_id == made.run_id != x.run_id for x in taken for item in x.items)


@pytest.mark.parametrize("step", [500, 7])
@pytest.mark.parametrize("when", ["before", "after"])
def test_turns_go_once_whichever_commit_the_process_dies_at(
    when: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_turns, "STEP", step)
    monkeypatch.setattr(old_turns, "MAX_STEP", 1)

    async def scenario(world: World) -> None:
        await talk(world)

    whole = simulate(scenario, setup)
    for commit in portion(range(2, whole.lives[0].commits)):  # The first one opens the run.
        faults: list[WorldFault] = [Crash(commit=commit, when=when)]  # type: ignore[arg-type]
        history = simulate(scenario, setup, faults=faults)
        places = [x.position for each in history.gone for x in each.events]
        assert cuts(history) and len(places) == len({*places})
