"""How many runs are in memory at once, and that whoever is waited for gets there (R-18)."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from support.agents import model_agent
from support.families import answers, heard
from support.frames import frame, use

from hubbub import Agent, AgentDefinition, RunContext, RunState, Runtime, agent
from hubbub.agents.definitions.tools import tool
from hubbub.hub.events import AgentComplete
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("R-18")]

Waits = Callable[[RunContext, Run], Awaitable[Any]]


async def by_result(ctx: RunContext, child: Run) -> Any:
    return (await child.result()).output


async def by_events(ctx: RunContext, child: Run) -> Any:
    events = [event async for event in child.events()]
    assert isinstance(events[-1], AgentComplete)
    return events[-1].output


async def by_what_the_hub_says(ctx: RunContext, child: Run) -> Any:
    async with ctx.hub.hub.subscribe("agent:complete", run_id=child.run_id) as events:
        async for event in events:
            return event.output
    raise AssertionError


async def by_its_message(ctx: RunContext, child: Run) -> Any:
    async for message in ctx.messages():
        return int(message.content)
    raise AssertionError


async def by_asking(ctx: RunContext, child: Run) -> Any:
    return int(await ctx.hub.ask(child.run_id, "How much is it?"))


def tower(waits: Waits) -> list[AgentDefinition]:
    """Code agents each of which waits for the one below it, and adds one to what it says."""

    @agent("storey")
    async def storey(input: int, ctx: RunContext) -> int:
        total = 1
        if input:
            total += await waits(ctx, ctx.spawn("storey", input - 1))
        parent = ctx.parent_run_id
        if waits is by_its_message and parent is not None:
            await ctx.hub.send_to_run(parent, str(total))
        if waits is by_asking and parent is not None:
            async for question in ctx.messages():
                ctx.hub.reply(question.prompt_id, str(total))
                break
        return total

    return [storey]


@pytest.mark.parametrize("max_live", [1, 2, 3])
@pytest.mark.parametrize(
    "waits", [by_result, by_events, by_what_the_hub_says, by_its_message, by_asking]
)
async def test_code_that_waits_for_its_children_does_not_keep_them_out(
    waits: Waits, max_live: int, journal: Journal, ports: Ports
) -> None:
    async with Runtime(tower(waits), store=journal, ports=ports, max_live=max_live) as runtime:
        with anyio.fail_after(1000):
            assert (await runtime.run("storey", 4)).output == 5


async def test_a_tool_that_waits_for_a_run_does_not_keep_it_out(
    journal: Journal, ports: Ports
) -> None:
    @agent("worker")
    async def worker(input: int, ctx: RunContext) -> int:
        await anyio.sleep(1)
        return input

    @tool
    async def have_it_done(number: int, state: RunState) -> int:
        return int((await state.spawn("worker", number).result()).output)

    boss = model_agent(ScriptedModel([call("have_it_done", number=7), "Seven."]), have_it_done)
    async with Runtime([worker, boss], store=journal, ports=ports, max_live=1) as runtime:
        with anyio.fail_after(1000):
            assert (await runtime.run("assistant", "Do it.")).output == "Seven."


async def test_one_at_a_time_is_let_in_beyond_the_limit_and_only_while_everybody_waits(
    journal: Journal, ports: Ports
) -> None:
    at_work: set[int] = set()
    beyond: list[int] = []

    @agent("worker")
    async def worker(input: int, ctx: RunContext) -> int:
        at_work.add(input)
        if len(runtime.runs.in_memory) > 3:
            beyond.append(len(at_work))
        await anyio.sleep(1)
        at_work.discard(input)
        return input

    @agent("boss")
    async def boss(input: int, ctx: RunContext) -> int:
        children = [ctx.spawn("worker", 10 * input + number) for number in range(5)]
        return sum([(await child.result()).output for child in children])

    async with Runtime([worker, boss], store=journal, ports=ports, max_live=3) as runtime:
        sizes: list[int] = []
        runtime.hub.subscribe("agent:start", lambda _: sizes.append(len(runtime.runs.in_memory)))
        with anyio.fail_after(1000):
            runs = [await runtime.start("boss", number) for number in range(6)]
            outcomes = [(await run.result()).output for run in runs]
    assert outcomes == [50 * number + 10 for number in range(6)]
    # Bosses take every place before a worker has its turn.
    assert set(beyond) == {1}
    assert max(sizes) <= 7


async def test_who_works_or_waits_for_people_keeps_others_out(
    journal: Journal, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    @agent("patient")
    async def patient(input: Any, ctx: RunContext) -> list[str]:
        return [message.content async for message in ctx.messages()]

    @agent("busy")
    async def busy(input: float, ctx: RunContext) -> None:
        await anyio.sleep(input)

    async with Runtime([patient, busy], store=journal, ports=ports, max_live=2) as runtime:
        first = await runtime.start("patient")
        await runtime.start("busy", 100)
        third = await runtime.start("patient")
        await anyio.sleep(99)
        assert runtime.runs.get(third.run_id) is None
        await anyio.sleep(2)
        assert runtime.runs.get(third.run_id) is not None  # There is room now.
        fourth = await runtime.start("patient")
        await anyio.sleep(1)
        assert runtime.runs.get(fourth.run_id) is None  # Anybody may write to those two.
        told = [x.getMessage() for x in caplog.records if "runs.wait_for_room" in x.getMessage()]
        assert len(told) == 2  # Once for each time that there was no room.
        for run in (first, third, fourth):
            run.close()
            assert (await run.result()).output == []


async def test_a_conversation_that_keeps_what_was_said_does_not_keep_its_frame_out(
    journal: Journal, ports: Ports
) -> None:
    """It stays to lend that to its frame, which must get there to take it."""

    @agent("boss")
    async def boss(input: Any, ctx: RunContext) -> Any:
        return (await ctx.spawn("research", "for the boss").result()).output

    main = FunctionModel(lambda r: "Back." if answers(r) else use("writer"), latency=1)
    writer = FunctionModel(lambda r: "Back." if answers(r) else use("research"), latency=1)
    research = FunctionModel(lambda r: f"Research: {heard(r)[-1]}", latency=1)
    agents = [
        boss, frame(main, agents=("writer",)), frame(research, name="research"),
        frame(writer, name="writer", agents=("research",)),
    ]  # fmt: skip
    async with Runtime(agents, store=journal, ports=ports, max_live=2) as runtime:
        run = await runtime.start("main", "go")
        await anyio.sleep(0.5)
        await run.send("and this")
        await run.close()
        await anyio.sleep(1)
        working = await runtime.start("boss")  # It comes when the writer waits, and waits, too.
        with anyio.fail_after(1000):
            assert (await working.result()).output == "Research: for the boss"
            assert (await run.finished()).output == "Back."


ENDS = {
    "terminated": lambda run: run.terminate(),
    "interrupted": lambda run: run.interrupt(),
    "timed_out": lambda run: None,
}


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("end", ENDS)
async def test_what_ends_a_run_reaches_it_though_those_below_have_all_the_room(
    end: str, depth: int, journal: Journal, ports: Ports
) -> None:
    """A run that waits leaves its place to its child, which may work without end."""
    worked: list[str] = []

    @tool(timeout=None)
    async def work(state: RunState) -> str:
        """Without end."""
        while True:
            await anyio.sleep(60)
            worked.append(state.run_id)

    agents = [Agent("run0", "You work.", model=ScriptedModel([call("work")]), tools=[work])]
    for number in range(1, depth + 1):
        below = agents[-1].as_tool()
        model = ScriptedModel([call(below.name, message="go"), "Well."])
        agents.append(Agent(f"run{number}", "You lead.", model=model, tools=[below]))
    async with Runtime(agents, store=journal, ports=ports, max_live=1) as rt:
        run = await rt.start(agents[-1], "go", timeout=1000 if end == "timed_out" else None)
        await anyio.sleep(600)
        assert worked
        ENDS[end](run)
        await anyio.sleep(401)
        before = len(worked)
        with anyio.fail_after(10):
            assert (await run.result()).outcome == end
        await anyio.sleep(3600)
        assert len(worked) == before
