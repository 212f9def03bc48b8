"""Children whose handles are asked when the call, or the code, that asks is cut off (T-10)."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from support.agents import model_agent
from support.crash_journal import CrashJournal

from hubbub import AgentDefinition, Hook, RunContext, RunOutcome, RunState, Runtime, agent, tool
from hubbub.agents.state.family import RESULT
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY
from hubbub.hub import events as e
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.models.scripted import FunctionModel, call

pytestmark = pytest.mark.anyio


@agent("slow", on_restart="resume")
async def slow(input: Any, ctx: RunContext) -> str:
    await anyio.sleep(60)
    return "did it"


@agent("nested", on_restart="resume")
async def nested(input: Any, ctx: RunContext) -> Any:
    return (await ctx.spawn("slow", "x").result()).output


THINKER = model_agent(FunctionModel(lambda _: "did it", latency=60), name="thinker")
CHILDREN: list[AgentDefinition] = [slow, nested, THINKER]


def boss(*tools: Any, **config: Any) -> Any:
    """An agent that calls its tool at its first turn, and only says something at later ones."""

    def answer(request: Any) -> Any:
        return call("work") if getattr(request.messages[-1], "content", "") == "go" else "said"

    return model_agent(FunctionModel(answer), *tools, name="boss", **config)


async def told(rt: Runtime, run_id: str) -> list[str]:
    """The messages of children that were taken, as the model reads them."""
    thread = fold_all(EMPTY, [x for x in await rt.hub.read(run_id) if x.lane == "own"])
    found = [getattr(x, "content", "") for x in thread.transcript]
    return [x for x in found if x.startswith("Subagent")]


async def endings(rt: Runtime, run_id: str) -> dict[str, str]:
    """How the runs below one have ended, by agent."""
    events = await rt.hub.read(root_run_id=run_id)
    return {x.agent: x.outcome for x in events if isinstance(x, e.AgentComplete)}


async def child_of(rt: Runtime, run_id: str) -> str:
    (child,) = [x for x in await rt.hub.read(run_id) if isinstance(x, e.AgentChild)]
    return child.child_run_id


async def asks_result(run: Run[Any]) -> str:
    return str((await run.result()).output)


async def asks_finished(run: Run[Any]) -> str:
    return str((await run.finished()).output)


async def asks_events(run: Run[Any]) -> str:
    async with run.events() as events:
        return str([x async for x in events][-1])


ASKS: list[Callable[[Run[Any]], Awaitable[str]]] = [asks_result, asks_finished, asks_events]


async def interrupts(rt: Runtime, run_id: str) -> tuple[str, ...]:
    receipt = await rt.hub.interrupt(run_id, "enough")
    return receipt.run_ids


async def resets(rt: Runtime, run_id: str) -> tuple[str, ...]:
    await rt.hub.reset(run_id)
    return ()


@pytest.mark.spec("T-10", "R-13")
@pytest.mark.parametrize("child", ["slow", "thinker", "nested"])
@pytest.mark.parametrize("result", [None, "handle"])
@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("stop", [interrupts, resets])
async def test_an_interruption_reaches_the_child_whose_handle_a_tool_asks(
    stop: Any, ask: Any, result: str | None, child: str, journal: Journal, ports: Ports
) -> None:
    @tool(name="work", timeout=None)
    async def working(state: RunState) -> str:
        return str(await ask(state.spawn(child, "x", result=result)))

    async with Runtime([boss(working), *CHILDREN], store=journal, ports=ports) as rt:
        run = await rt.start("boss", "go")
        await anyio.sleep(10)
        reached = await stop(rt, run.run_id)
        await anyio.sleep(100)
        assert (await run.ask("and?")).output == "said"
        ended = await endings(rt, run.run_id)
        assert ended == dict.fromkeys(["slow", "nested"] if child == "nested" else [child],
                                      "interrupted")  # fmt: skip
        assert await told(rt, run.run_id) == []
        if stop is interrupts:
            assert reached[:2] == (run.run_id, await child_of(rt, run.run_id))
            assert len(reached) == 1 + len(ended)


@pytest.mark.spec("T-10", "G-10")
@pytest.mark.parametrize("is_stopped", [False, True])
async def test_a_child_whose_result_is_asked_for_no_more_goes_on_and_is_told(
    is_stopped: bool, journal: Journal, ports: Ports
) -> None:
    @tool(name="work", timeout=None if is_stopped else 30)
    async def working(state: RunState) -> str:
        run = state.spawn("slow", "x")
        for _ in range(2):
            with anyio.move_on_after(5):
                await run.result()
        await anyio.sleep_forever()
        raise AssertionError

    async with Runtime([boss(working), *CHILDREN], store=journal, ports=ports) as rt:
        run = await rt.start("boss", "go")
        await anyio.sleep(20)
        if is_stopped:
            assert await interrupts(rt, run.run_id) == (run.run_id,)
        await anyio.sleep(100)
        await run.result()
        assert await endings(rt, run.run_id) == {"slow": "completed"}
        child = await child_of(rt, run.run_id)
        assert await told(rt, run.run_id) == [RESULT.format(child, "did it")]


@pytest.mark.spec("T-10", "G-10")
async def test_two_who_ask_by_one_handle_have_not_given_up_while_one_still_asks(
    ports: Ports,
) -> None:
    @tool(name="work", timeout=None)
    async def working(state: RunState) -> str:
        run = state.spawn("slow", "x")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.result)
            with anyio.move_on_after(1):
                await run.result()
        return "ok"

    async with Runtime([boss(working), *CHILDREN], store="memory", ports=ports) as rt:
        run = await rt.start("boss", "go")
        await anyio.sleep(10)
        assert await interrupts(rt, run.run_id) == (run.run_id, await child_of(rt, run.run_id))
        await anyio.sleep(100)
        assert await endings(rt, run.run_id) == {"slow": "interrupted"}


@pytest.mark.spec("T-10", "G-10")
@pytest.mark.parametrize("result", [None, "handle"])
async def test_a_result_that_its_handle_has_given_is_told_to_nobody_else(
    result: str | None, journal: Journal, ports: Ports
) -> None:
    @tool(name="work", timeout=None)
    async def working(state: RunState) -> str:
        run = state.spawn("slow", "x", result=result)
        await run.result()
        with anyio.move_on_after(0):
            await run.result()
        await anyio.sleep_forever()
        raise AssertionError

    async with Runtime([boss(working), *CHILDREN], store=journal, ports=ports) as rt:
        run = await rt.start("boss", "go")
        await anyio.sleep(80)
        assert await interrupts(rt, run.run_id) == (run.run_id,)
        await anyio.sleep(100)
        await run.result()
        assert await endings(rt, run.run_id) == {"slow": "completed"}
        assert await told(rt, run.run_id) == []
        assert not [x for x in await rt.hub.read() if isinstance(x, e.HubDeadLetter)]


@pytest.mark.spec("T-10", "G-10")
async def test_a_child_that_a_tool_has_asked_and_left_before_it_returned_is_left_alone(
    ports: Ports,
) -> None:
    @tool(name="work", timeout=None)
    async def working(state: RunState) -> str:
        run = state.spawn("slow", "x", result="handle")
        run.events().close()
        return "ok"

    def answer(request: Any) -> Any:
        said = [getattr(x, "content", "") for x in request.messages]
        return call("wait" if "and?" in said else "work") if said[-1] in ("go", "and?") else "said"

    @tool(name="wait", timeout=None)
    async def waiting() -> str:
        await anyio.sleep_forever()
        raise AssertionError

    talker = model_agent(FunctionModel(answer), working, waiting, name="boss")
    async with Runtime([talker, *CHILDREN], store="memory", ports=ports) as rt:
        run = await rt.start("boss", "go")
        await run.result()
        await run.send("and?")
        await anyio.sleep(10)
        assert await interrupts(rt, run.run_id) == (run.run_id,)
        await anyio.sleep(100)
        assert await endings(rt, run.run_id) == {"slow": "completed"}


@pytest.mark.spec("T-10", "G-10")
@pytest.mark.parametrize("ask", ASKS)
async def test_a_tool_that_takes_too_long_interrupts_the_child_that_it_waits_for(
    ask: Any, journal: Journal, ports: Ports
) -> None:
    @tool(name="work", timeout=10)
    async def working(state: RunState) -> str:
        state.spawn("thinker", "x", result="message")
        return str(await ask(state.spawn("slow", "x")))

    async with Runtime([boss(working), *CHILDREN], store=journal, ports=ports) as rt:
        run = await rt.start("boss", "go")
        await anyio.sleep(200)
        await run.result()
        assert await endings(rt, run.run_id) == {"slow": "interrupted", "thinker": "completed"}
        assert [text.endswith("did it") for text in await told(rt, run.run_id)] == [True]


@pytest.mark.spec("T-10", "R-04")
@pytest.mark.parametrize("is_code", [False, True])
@pytest.mark.parametrize("outcome", ["timed_out", "terminated", "interrupted"])
async def test_a_run_that_is_cut_off_interrupts_what_it_awaits_and_nothing_else(
    outcome: str, is_code: bool, journal: Journal, ports: Ports
) -> None:
    async def works(state: Any) -> str:
        state.spawn("thinker", "x")
        return str((await state.spawn("nested", "x").finished()).output)

    @tool(name="work", timeout=None)
    async def working(state: RunState) -> str:
        return await works(state)

    @agent("boss")
    async def code(input: Any, ctx: RunContext) -> str:
        return await works(ctx)

    agents = [code if is_code else boss(working), *CHILDREN]
    async with Runtime(agents, store=journal, ports=ports) as rt:
        run = await rt.start("boss", "go", timeout=10 if outcome == "timed_out" else None)
        await anyio.sleep(5)
        if outcome == "terminated":
            await run.terminate()
        elif outcome == "interrupted":
            reached = await interrupts(rt, run.run_id)
            assert len(reached) == 3 and reached[0] == run.run_id
        await anyio.sleep(100)
        ended = await endings(rt, run.run_id)
        child = "terminated" if outcome == "terminated" else "interrupted"
        other = "terminated" if outcome == "terminated" else "completed"
        assert ended.pop("boss", None) == (outcome if is_code or outcome != "interrupted" else None)
        assert ended == {"slow": child, "nested": child, "thinker": other}


@pytest.mark.spec("T-10")
async def test_code_that_awaits_no_child_leaves_them_when_it_is_interrupted(ports: Ports) -> None:
    @agent("boss")
    async def code(input: Any, ctx: RunContext) -> str:
        run = ctx.spawn("slow", "x")
        with anyio.move_on_after(1):
            await run.result()
        await anyio.sleep_forever()
        raise AssertionError

    async with Runtime([code, *CHILDREN], store="memory", ports=ports) as rt:
        run = await rt.start("boss", "go")
        await anyio.sleep(5)
        assert await interrupts(rt, run.run_id) == (run.run_id,)
        await anyio.sleep(100)
        assert await endings(rt, run.run_id) == {"boss": "interrupted", "slow": "completed"}


@pytest.mark.spec("T-10", "D-06")
async def test_an_interruption_reaches_the_child_that_a_hook_waits_for(ports: Ports) -> None:
    async def starts(state: RunState, value: Any) -> None:
        await state.spawn("slow", "x").result()

    hook = Hook("starts", "filter_messages", starts)
    agents = [boss(hooks=["starts"]), *CHILDREN]
    async with Runtime(agents, store="memory", ports=ports, hooks=[hook]) as rt:
        run = await rt.start("boss", "go")
        await anyio.sleep(10)
        assert await interrupts(rt, run.run_id) == (run.run_id, await child_of(rt, run.run_id))
        await anyio.sleep(100)
        assert await endings(rt, run.run_id) == {"slow": "interrupted"}


@pytest.mark.spec("T-10")
async def test_a_fork_from_an_interruption_has_the_child_interrupted_too(
    journal: Journal, ports: Ports
) -> None:
    @tool(name="work", timeout=None)
    async def working(state: RunState) -> str:
        return await asks_result(state.spawn("thinker", "x"))

    async with Runtime([boss(working), *CHILDREN], store=journal, ports=ports) as rt:
        run = await rt.start("boss", "go")
        await anyio.sleep(10)
        await interrupts(rt, run.run_id)
        await anyio.sleep(100)
        own = [x for x in await rt.hub.read(run.run_id) if x.lane == "own"]
        (end,) = [x.seq for x in own if isinstance(x, e.SessionEnd)]
        forked = await rt.fork(run.run_id, end)
        await anyio.sleep(100)
        assert await endings(rt, forked.run_id) == {"thinker": "interrupted"}


@pytest.mark.spec("G-10", "P-10")
@pytest.mark.parametrize("is_stopped", [False, True])
async def test_over_a_crash_at_any_commit_a_child_is_interrupted_or_told_of_once(
    is_stopped: bool, ports: Ports
) -> None:
    """With the process its handles go: what was asked for then comes as a message."""

    @tool(name="work", timeout=None)
    async def working(state: RunState) -> str:
        run = state.spawn("slow", "x")
        with anyio.move_on_after(5):
            await run.result()
        await anyio.sleep(5)
        return (await run.result()).reason

    agents = [boss(working), *CHILDREN]
    total, at = 1, 0
    while at < total:
        at += 1
        journal = MemoryJournal()
        store: Any = CrashJournal(journal, at)
        run_id = ports.ids.run_id(0)
        async with Runtime(agents, store=store, ports=ports, grace=0) as rt:
            rt.hub.open("boss", "go", run_id=run_id)
            await anyio.sleep(20)
            if is_stopped:
                rt.hub.interrupt(run_id)
            with anyio.move_on_after(100):
                await store.crashed.wait()
        total = max(total, store.commits + store.crashed.is_set())
        async with Runtime(agents, store=journal, ports=ports) as rt:
            if await journal.info(run_id) is None:
                continue
            await anyio.sleep(300)
            outcome: RunOutcome[Any] = await rt.result(run_id)
            assert outcome.outcome in ("completed", "interrupted")
            started = [x for x in await rt.hub.read(run_id) if isinstance(x, e.AgentChild)]
            ended, words = await endings(rt, run_id), await told(rt, run_id)
            assert set(ended.values()) <= {"completed", "interrupted"}
            assert len(ended) == bool(started)
            if ended.get("slow") == "interrupted":
                assert is_stopped and words == []
            else:
                assert len(words) <= len(started)
            lost = [x for x in await rt.hub.read(run_id) if isinstance(x, e.AgentToolComplete)
                    and x.is_error and not is_stopped]  # fmt: skip
            if lost and started:
                assert len(words) == 1, at
