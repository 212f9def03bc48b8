"""Every way in which a run's code waits for another run lets that one in where there is no room.

The async calls of what such code has in hand are found by looking: each is a way, with its test, or
waits for no run, with the reason.
"""

from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any, Final

import anyio
import anyio.from_thread
import pytest
from support.agents import model_agent

from attacks.entries import async_calls_of
from hubbub import ExecutableAgent, Hub, Run, RunContext, RunState, Runtime, agent
from hubbub.agents.definitions.tools import tool
from hubbub.channels import Channels
from hubbub.hub.delivery.stream import EventStream
from hubbub.hub.errors import WaitCycle
from hubbub.hub.ports import Ports
from hubbub.hub.run_hub import RunHub
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import ScriptedModel, call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("R-18")]

Way = Callable[[Runtime, Any], Awaitable[Any]]
"""Has a run of ``kid`` give its answer to the code of the run whose context or state is given."""


async def kid_of(rt: Runtime) -> Run:
    return await rt.start("kid", "x")


async def run(rt: Runtime, at: Any) -> Any:
    return (await rt.run("kid", "x")).output


async def execute(rt: Runtime, at: Any) -> Any:
    return await rt.executable("kid").execute("x")


async def result(rt: Runtime, at: Any) -> Any:
    return (await (await kid_of(rt)).result()).output


async def finished(rt: Runtime, at: Any) -> Any:
    return (await (await kid_of(rt)).finished()).output


async def result_by_id(rt: Runtime, at: Any) -> Any:
    return (await rt.result((await kid_of(rt)).run_id)).output


async def finished_by_id(rt: Runtime, at: Any) -> Any:
    return (await rt.finished((await kid_of(rt)).run_id)).output


async def events(rt: Runtime, at: Any) -> Any:
    last = None
    async with (await kid_of(rt)).events() as stream:
        async for event in stream:
            last = event
    return getattr(last, "output", None)


async def several_events(rt: Runtime, at: Any) -> Any:
    taken: list[Any] = []
    async with (await kid_of(rt)).events() as stream:
        while events := await stream.take():
            taken += events
    return getattr(taken[-1], "output", None)


async def ask_a_model(rt: Runtime, at: Any) -> Any:
    return (await (await rt.start("talker")).ask("x")).output


async def ask_by_the_hub(rt: Runtime, at: Any) -> Any:
    return await rt.hub.ask((await rt.start("answerer")).run_id, "?")


async def ask_by_its_own_hub(rt: Runtime, at: Any) -> Any:
    return await at.hub.ask((await rt.start("answerer")).run_id, "?")


async def spawned(rt: Runtime, at: Any) -> Any:
    return (await at.spawn("kid", "x").result()).output


async def by_a_service(rt: Runtime, at: Any) -> Any:
    async def answer(question: str) -> Any:
        return (await rt.run("kid", question)).output

    stop = rt.hub.serve("service", answer)
    try:
        return await rt.hub.ask("service", "x")
    finally:
        stop()


async def side_by_side(rt: Runtime, at: Any) -> Any:
    said = []

    async def one() -> None:
        said.append((await rt.run("kid", "x")).output)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(one)
    assert len(set(said)) == 1
    return said[0]


WAYS: Final[dict[str, Way]] = {
    "Runtime.run": run,
    "ExecutableAgent.execute": execute,
    "Run.result": result,
    "Run.finished": finished,
    "Runtime.result": result_by_id,
    "Runtime.finished": finished_by_id,
    "EventStream.__anext__": events,
    "EventStream.take": several_events,
    "Run.ask": ask_a_model,
    "Hub.ask": ask_by_the_hub,
    "RunHub.ask": ask_by_its_own_hub,
    "a child": spawned,
    "a service": by_a_service,
    "several at once": side_by_side,
}

STORE: Final = "waits for the store alone"
PEOPLE: Final = "waits for people, who keep their place"
DOOR: Final = "opens or closes what is nobody's run"

NO_WAYS: Final = {
    **dict.fromkeys(("Hub.publish", "Hub.read", "RunHub.publish", "RunHub.read"), STORE),
    "Run.read": STORE,
    **dict.fromkeys(
        (
            f"Runtime.{name}"
            for name in (
                "agent_for", "conversations", "find", "fork", "handle", "limit",
                "pending_variables", "provide_variables", "schedules", "start", "state_at",
            )
        ),
        STORE,
    ),
    **dict.fromkeys(
        (
            "RunContext.send_agent_message", "RunState.send_agent_message",
            "RunState.get_child_thread", "RunState.get_parent_thread",
            "RunContext.read_part", "RunState.read_part",
        ),
        STORE,
    ),
    **dict.fromkeys(("RunContext.ask", "RunState.ask"), PEOPLE),
    "RunContext.step": "waits for the function that it is given, and so as that does",
    **dict.fromkeys(
        (
            "Hub.__aenter__", "Hub.__aexit__", "Hub.aclose", "Runtime.__aenter__",
            "Runtime.__aexit__", "EventStream.__aenter__", "EventStream.__aexit__",
        ),
        DOOR,
    ),
    **dict.fromkeys(
        (f"Channels.{name}" for name in (
            "__aenter__", "__aexit__", "add", "remove", "start", "stop"
        )),
        "waits for what the channels themselves do",
    ),
}  # fmt: skip

IN_HAND: Final = (
    Channels, EventStream, ExecutableAgent, Hub, Run, RunContext, RunHub, RunState, Runtime
)  # fmt: skip


def test_each_async_call_is_a_way_to_wait_for_a_run_or_known_to_be_none() -> None:
    calls = {f"{kind.__name__}.{name}" for kind in IN_HAND for name in async_calls_of(kind)}
    ways = {name for name in WAYS if "." in name}
    assert calls == ways | NO_WAYS.keys()
    assert not ways & NO_WAYS.keys()


@agent("kid")
async def kid(input: str, ctx: RunContext) -> str:
    await anyio.sleep(1)
    return "the answer"


@agent("answerer")
async def answerer(input: Any, ctx: RunContext) -> None:
    async for question in ctx.messages():
        ctx.hub.reply(question.prompt_id, "the answer")
        break


async def in_code(rt: Runtime, way: Way) -> None:
    assert (await rt.run("code", "x")).output == "the answer"


async def in_three_codes(rt: Runtime, way: Way) -> None:
    runs = [await rt.start("code", "x") for _ in range(3)]
    assert [(await each.result()).output for each in runs] == ["the answer"] * 3


async def in_a_step(rt: Runtime, way: Way) -> None:
    assert (await rt.run("steps", "x")).output == "the answer"


async def in_a_tool(rt: Runtime, way: Way) -> None:
    outcome = await rt.run("uses_waits", "x")
    assert outcome.output == "done"
    assert await said_by_the_tool(rt, outcome.run_id) == "the answer"


async def in_a_plain_tool(rt: Runtime, way: Way) -> None:
    outcome = await rt.run("uses_plain", "x")
    assert await said_by_the_tool(rt, outcome.run_id) == "the answer"


async def said_by_the_tool(rt: Runtime, run_id: str) -> Any:
    (event,) = await rt.hub.read(run_id, types="agent:tool:complete")
    return event.output  # type: ignore[attr-defined]


PLACES: Final = {
    "a code agent": in_code, "three of them": in_three_codes, "a step": in_a_step,
    "a tool": in_a_tool,
}  # fmt: skip


NOWHERE: Final = {
    ("a step", "a child"): "a step starts no child",
    ("three of them", "a service"): "there is one service at an address",
}


@pytest.mark.parametrize(
    ("place", "way"), [each for each in product(PLACES, WAYS) if each not in NOWHERE]
)
async def test_whoever_is_waited_for_is_let_in(
    place: str, way: str, journal: Journal, ports: Ports
) -> None:
    wait = WAYS[way]

    @agent("code")
    async def code(input: Any, ctx: RunContext) -> Any:
        return await wait(rt, ctx)

    @agent("steps")
    async def steps(input: Any, ctx: RunContext) -> Any:
        return await ctx.step("wait", wait, rt, ctx)

    @tool
    async def waits(state: RunState) -> str:
        """Wait for a run."""
        return str(await wait(rt, state))

    talker = model_agent(ScriptedModel(["the answer"], repeat=True), name="talker")
    user = model_agent(ScriptedModel([call("waits"), "done"]), waits, name="uses_waits")
    agents = [kid, answerer, code, steps, talker, user]
    async with Runtime(agents, store=journal, ports=ports, max_live=1) as rt:
        with anyio.fail_after(1000):
            await PLACES[place](rt, wait)
            assert (await rt.run("kid", "a bystander")).output == "the answer"


@pytest.mark.parametrize("loop", ["asyncio", "trio"])  # As they are: a thread takes real time.
def test_a_plain_tool_that_has_an_agent_run_lets_it_in(loop: str) -> None:
    @tool
    def plain(state: RunState) -> str:
        """Wait for a run, from a thread."""
        return str(anyio.from_thread.run(rt_of[0].run, "talker", "x").output)

    rt_of: list[Runtime] = []
    talker = model_agent(ScriptedModel(["the answer"], repeat=True), name="talker")
    user = model_agent(ScriptedModel([call("plain"), "done"]), plain, name="uses_plain")

    async def main() -> None:
        with anyio.fail_after(30):
            async with Runtime([talker, user], store="memory", max_live=1) as rt:
                rt_of.append(rt)
                await in_a_plain_tool(rt, run)

    anyio.run(main, backend=loop)


async def test_a_run_that_is_run_by_another_cannot_wait_for_that(
    journal: Journal, ports: Ports
) -> None:
    caught = []

    @agent("inner")
    async def inner(input: str, ctx: RunContext) -> str:
        try:
            await rt.result(input)
        except WaitCycle as error:
            caught.append(error.asked)
        return "the answer"

    @agent("outer")
    async def outer(input: Any, ctx: RunContext) -> Any:
        return (await rt.run("inner", ctx.run_id)).output

    async with Runtime([inner, outer], store=journal, ports=ports) as rt:
        with anyio.fail_after(1000):
            ended = await rt.run("outer", "x")
    assert ended.output == "the answer"
    assert caught == [ended.run_id]
