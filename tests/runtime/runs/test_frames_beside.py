"""Frames of one parallel step lie beside each other: each ends when it is popped, wherever."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec
import pytest
from support.frames import KEY, Talk, complete, frame, open_runtime
from support.histories import STORIES, Story, lived
from support.profiles import portion

from hubbub import AgentDefinition, Message, ModelRequest, RunState, Runtime, tool
from hubbub.agents.model import AssistantMessage
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import FunctionModel, call, reply
from hubbub.runtime.simulation.invariants.all import INVARIANTS
from hubbub.runtime.simulation.story.faults import Crash
from hubbub.runtime.simulation.story.history import History
from hubbub.runtime.simulation.world.world import World

pytestmark = pytest.mark.anyio

NAMES = ("ann", "bob", "cleo")


@tool
async def give(who: str, state: RunState) -> str:
    """Give the conversation away."""
    state.use_agent(who, "Go.")


@tool(approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


def beside() -> list[AgentDefinition]:
    """main gives the conversation to three at once; bob does so again; cleo wants to pay."""

    def answers(*called: Any) -> FunctionModel:
        def answer(request: ModelRequest) -> Any:
            last = request.messages[-1]
            if isinstance(last, AssistantMessage):
                return "Well."
            if last.content in ("go", "Go."):
                return reply("", *called) if called else "Which?"
            return complete("done") if last.content == "done" else f"Heard {last.content}."

        return FunctionModel(answer)

    def gives(*names: str) -> FunctionModel:
        return answers(*(call("give", who=name) for name in names))

    both: dict[str, Any] = {"parallel_tool_calls": True}
    return [
        frame(gives(*NAMES), give, agents=NAMES, **both),
        frame(answers(), name="ann"),
        frame(gives("ann", "cleo"), give, name="bob", agents=("ann", "cleo"), **both),
        frame(answers(call("pay")), pay, name="cleo"),
    ]


async def pushed(talk: Talk) -> list[str]:
    """The frames of a conversation that begins: of main, and of its second."""
    receipt = await talk.hub.open("main", "go", session_key=KEY)
    talk.root = receipt.run_id
    await anyio.sleep(5)
    found = [x.frame_run_id for x in talk.of(e.SessionPush)]
    assert len(found) == 5
    return found


def say(word: str) -> Callable[[Runtime, str], Awaitable[Any]]:
    return lambda rt, _: rt.hub.send(word, session_key=KEY)


async def reset(rt: Runtime, run_id: str) -> None:
    await rt.hub.reset(run_id)


ENDS: dict[str, Callable[[Runtime, str], Awaitable[Any]]] = {
    "cancel": say("cancel"),
    "stop": say(" STOP "),
    "/stop": say("/stop"),
    "interrupt": lambda rt, run_id: rt.hub.interrupt(run_id, "enough"),
    "reset": reset,
    "close": lambda rt, run_id: rt.hub.close_run(run_id),
    "terminate": lambda rt, run_id: rt.terminate(run_id),
}


async def check(rt: Runtime, frames: list[str]) -> None:
    """Each has ended, and told why; nothing that they asked is open."""
    for run_id in frames:
        own = [x for x in await rt.hub.read(run_id) if x.lane == "own"]
        assert isinstance(own[-1], e.AgentComplete), own[-1]
        assert own[-1].outcome in ("interrupted", "terminated")
    assert not [x for x in await rt.hub.journal.runs() if x.run_id in frames]
    events = [x for run_id in frames for x in await rt.hub.read(run_id)]
    asked = [x.prompt_id for x in events if isinstance(x, e.SessionPrompt)]
    ended = [x.prompt_id for x in events if isinstance(x, e.SessionPromptEnd)]
    assert asked and sorted(asked) == sorted(ended)


@pytest.mark.spec("I-08", "T-10", "T-11")
@pytest.mark.parametrize("is_restarted", [False, True], ids=["live", "after a restart"])
@pytest.mark.parametrize("how", ENDS)
async def test_all_frames_end_that_lie_beside_each_other_and_those_above_them(
    how: str, is_restarted: bool, journal: Journal, ports: Ports
) -> None:
    async with open_runtime(*beside(), journal=journal, ports=ports) as rt:
        talk = Talk(rt)
        frames = await pushed(talk)
        if not is_restarted:
            await ENDS[how](rt, talk.root)
            await anyio.sleep(5)
            await check(rt, frames)
    async with open_runtime(*beside(), journal=journal, ports=ports) as rt:
        if is_restarted:
            await ENDS[how](rt, talk.root)
            await anyio.sleep(5)
        await check(rt, frames)
        root = talk.root
        own = await rt.hub.read(root)
        pops = [x.frame_run_id for x in own if isinstance(x, e.SessionPop)]
        assert len(pops) == 3 and {await parent(rt, x) for x in pops} == {root}
        results = [x for x in own if isinstance(x, e.AgentToolComplete)]
        assert [x.is_error for x in results] == [True, True, True]
        if how in ("close", "terminate"):
            assert isinstance(own[-1], e.AgentComplete)
        else:
            talk = Talk(rt)
            assert await talk.say("hello") == [("main", "Heard hello.")]
            assert rt.hub.statistics().live == 1


async def parent(rt: Runtime, run_id: str) -> str | None:
    info = await rt.hub.journal.info(run_id)
    assert info is not None
    return info.parent_run_id


@pytest.mark.spec("I-08", "T-07")
async def test_all_frames_end_when_the_time_of_their_conversation_is_over(
    journal: Journal, ports: Ports
) -> None:
    async with open_runtime(*beside(), journal=journal, ports=ports) as rt:
        talk = Talk(rt)
        run = await rt.start("main", "go", session_key=KEY, timeout=60)
        await anyio.sleep(100)
        frames = [x.frame_run_id for x in talk.of(e.SessionPush)]
        assert len(frames) == 5 and (await run.result()).outcome == "timed_out"
        await check(rt, frames)


@pytest.mark.spec("I-08")
async def test_a_tree_can_go_on_however_often_frames_beside_each_other_were_stopped(
    journal: Journal, ports: Ports
) -> None:
    options: Any = {"journal": journal, "ports": ports, "max_descendants": 6}
    async with open_runtime(*beside(), **options) as rt:
        talk = Talk(rt)
        for number in range(1, 5):
            await talk.hub.open("main", "go", session_key=KEY)
            await anyio.sleep(5)
            assert len(talk.of(e.SessionPush)) == 5 * number
            await talk.hub.send("stop", session_key=KEY)
            await anyio.sleep(5)


@pytest.mark.spec("I-02", "I-08")
async def test_the_conversation_goes_from_one_frame_to_the_one_beside_it(
    journal: Journal, ports: Ports
) -> None:
    main, ann, _, _ = beside()
    bob = frame(FunctionModel(lambda r: complete("b"), latency=20), name="bob")
    agents = (main, ann, bob, msgspec.structs.replace(ann, name="cleo"))
    async with open_runtime(*agents, journal=journal, ports=ports) as rt:
        talk = Talk(rt)
        await talk.hub.open("main", "go", session_key=KEY)
        await anyio.sleep(5)
        assert await talk.say("hi") == [("ann", "Heard hi.")]
        await anyio.sleep(60)  # bob returns first, whose turn it has not been.
        assert [x.frame_agent for x in talk.of(e.SessionPop)] == ["bob"]
        assert await talk.say("hm") == [("ann", "Heard hm.")]
        assert await talk.say("done") == []
        assert [x.frame_agent for x in talk.of(e.SessionPop)] == ["bob", "ann"]
        assert await talk.say("hey") == [("cleo", "Heard hey.")]
        assert await talk.say("done") == [("main", "Well.")]
        assert [(x.name, x.output, x.is_error) for x in talk.of(e.AgentToolComplete, "main")] == [
            ("give", "b", False), ("give", "done", False), ("give", "done", False),
        ]  # fmt: skip
        await anyio.sleep(1)
        assert [x.agent for x in await rt.hub.journal.runs()] == ["main"]


# ── who asks ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("U-07")
@pytest.mark.parametrize("latency", [0, 20], ids=["has spoken", "is at work"])
@pytest.mark.parametrize("max_live", [1, 1000])
async def test_a_turn_is_over_when_the_next_frame_has_the_conversation_and_waits(
    max_live: int, latency: float, journal: Journal, ports: Ports
) -> None:
    """Whether that had its say before, or is still at work when the first one gives back."""
    main, ann, _, _ = beside()

    def late(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return complete("done") if getattr(last, "content", "") == "done" else "Which, then?"

    bob = frame(FunctionModel(late, latency=latency), name="bob")
    agents = (main, ann, bob, msgspec.structs.replace(ann, name="cleo"))
    options: Any = {"journal": journal, "ports": ports, "max_live": max_live}
    async with open_runtime(*agents, **options) as rt:
        run = await rt.start("main", "go", session_key=KEY)
        await anyio.sleep(5 if max_live > 1 else 50)
        with anyio.fail_after(1000):
            assert (await run.ask(Message("done", key="m1"))).output == "done"
            assert (await run.result()).output == "Which, then?"
            assert (await run.ask("hm")).output == "Which, then?"
            assert (await run.ask("done")).output == "done"
            assert (await run.ask("done")).output == "Well."
            assert (await run.ask(Message("done", key="m1"))).output == "done"
            assert (await run.ask("hello")).output == "Heard hello."


@pytest.mark.spec("U-07")
@pytest.mark.parametrize("max_live", [1, 1000])
async def test_who_waits_for_a_conversation_sees_it_rest_at_the_next_frame(
    max_live: int, journal: Journal, ports: Ports
) -> None:
    options: Any = {"journal": journal, "ports": ports, "max_live": max_live}
    async with open_runtime(*beside(), **options) as rt:
        run = await rt.start("main", "go", session_key=KEY)
        await anyio.sleep(5)
        run.send("done")
        found = []

        async def wait(after: float) -> None:
            await anyio.sleep(after)
            found.append((await run.result()).output)

        with anyio.fail_after(100):
            async with anyio.create_task_group() as group:
                for after in (0.0, 0.0, 0.001, 1.0):
                    group.start_soon(wait, after)
        assert found == ["Which?"] * 4


# ── crashes ──────────────────────────────────────────────────────────────────────────────────


async def _short(world: World) -> None:
    run = await world.open("main", "go", session_key="telegram_1_2")
    await world.wait(2)
    await world.say(run, "done")
    await world.wait(1)
    await world.say(run, "stop")
    await world.wait(1)


def _wrong(history: History) -> list[str]:
    return [f"{name}: {x}" for name, each in INVARIANTS.items() for x in each(history)]


@pytest.mark.spec("I-08", "I-09")
@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
def test_each_popped_frame_ends_after_a_crash_at_any_commit(store: Any) -> None:
    story = Story(STORIES["beside"].setup, _short)
    whole = lived(story, store=store)
    assert not _wrong(whole)
    assert sum(isinstance(x, e.SessionPop) for x in whole.events) == 5
    for commit in portion(range(1, whole.lives[0].commits)):
        history = lived(story, faults=[Crash(commit=commit, when="after")], store=store)
        assert len(history.lives) > 1 and not _wrong(history), commit
