"""Runs that would wait for each other in a circle, by whatever they wait (C-15)."""

from contextlib import ExitStack, suppress
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agents import model_agent
from support.families import Recorder, child, config, parent
from support.restarts import Lives

from hubbub import RunContext, RunState, Runtime, agent, tool
from hubbub.hub.errors import PromptTimeout, WaitCycle
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.kernel.families import WaitGraph
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("C-15")]

WAYS = ("ask", "ask in the hub's name", "result", "finished")


async def wait_for(rt: Runtime, ctx: Any, other: str, how: str) -> Any:
    if how == "ask":
        return await ctx.hub.ask(other, "?")
    if how == "ask in the hub's name":
        return await rt.hub.ask(other, "?")
    return (await (rt.result if how == "result" else rt.finished)(other)).output


async def outputs(rt: Runtime, *run_ids: str) -> list[Any]:
    with anyio.fail_after(1000):
        return [(await rt.finished(run_id)).output for run_id in run_ids]


CIRCLES = [
    *product(WAYS, WAYS),
    ("ask", "ask", "ask"),
    ("ask", "result", "ask"),
    ("result", "ask", "finished"),
]


@pytest.mark.parametrize("ways", CIRCLES)
async def test_the_run_that_would_close_a_circle_of_waits_is_refused(
    ways: tuple[str, ...], journal: Journal, ports: Ports
) -> None:
    refused: list[str] = []

    @agent("one")
    async def one(input: int, ctx: RunContext) -> str:
        await anyio.sleep(input)
        try:
            await wait_for(rt, ctx, f"run-{(input + 1) % len(ways)}", ways[input])
        except WaitCycle:
            refused.append(ctx.run_id)
        except Exception as error:  # Whom it asks is over without an answer.
            return type(error).__name__
        return "over"

    async with Runtime([one], store=journal, ports=ports) as rt:
        for at in range(len(ways)):
            await rt.start("one", at, run_id=f"run-{at}")
        await outputs(rt, *[f"run-{at}" for at in range(len(ways))])
    assert refused == [f"run-{len(ways) - 1}"]


async def test_code_that_answers_by_asking_back_is_refused(journal: Journal, ports: Ports) -> None:
    @agent("asker")
    async def asker(input: Any, ctx: RunContext) -> Any:
        return await ctx.hub.ask("other", "?")

    @agent("other")
    async def other(input: Any, ctx: RunContext) -> str:
        async for said in ctx.messages():
            with pytest.raises(WaitCycle):
                await ctx.hub.ask("asker", "back?")
            assert said.prompt_id
            await ctx.hub.reply(said.prompt_id, "yes")
            break
        return "over"

    async with Runtime([asker, other], store=journal, ports=ports) as rt:
        await rt.start("other", run_id="other")
        await rt.start("asker", run_id="asker")
        assert await outputs(rt, "asker", "other") == ["yes", "over"]


async def test_code_that_reads_beside_its_question_is_asked_back(
    journal: Journal, ports: Ports
) -> None:
    @agent("asker")
    async def asker(input: Any, ctx: RunContext) -> Any:
        async def answer(said: Any) -> None:
            if said.run_id != ctx.run_id:
                return  # What is said to others is only observed.
            await anyio.sleep(1)
            ctx.hub.reply(said.prompt_id, "blue")

        ctx.hub.subscribe("session:message", answer)
        return await ctx.hub.ask("other", "?")

    @agent("other")
    async def other(input: Any, ctx: RunContext) -> None:
        async for said in ctx.messages():
            assert said.prompt_id
            colour = await ctx.hub.ask("asker", "Which?")
            ctx.hub.reply(said.prompt_id, f"it is {colour}")
            return

    async with Runtime([asker, other], store=journal, ports=ports) as rt:
        await rt.start("other", run_id="other")
        await rt.start("asker", run_id="asker")
        assert (await outputs(rt, "asker"))[0] == "it is blue"


@pytest.mark.parametrize("ending", ["answered", "timed out"])
async def test_a_question_that_is_over_is_waited_for_no_more(
    ending: str, journal: Journal, ports: Ports
) -> None:
    @agent("first")
    async def first(input: Any, ctx: RunContext) -> str:
        with suppress(PromptTimeout):
            await ctx.hub.ask("second", "?", timeout=5)
        async for said in ctx.messages():
            assert said.prompt_id
            ctx.hub.reply(said.prompt_id, "here")
            break
        return "over"

    @agent("second")
    async def second(input: Any, ctx: RunContext) -> Any:
        async for said in ctx.messages():
            assert said.prompt_id
            if ending == "answered":
                ctx.hub.reply(said.prompt_id, "yes")  # In the same breath.
            else:
                await anyio.sleep(6)
            return await ctx.hub.ask("first", "And you?")
        return None

    async with Runtime([first, second], store=journal, ports=ports) as rt:
        await rt.start("second", run_id="second")
        await rt.start("first", run_id="first")
        assert await outputs(rt, "first", "second") == ["over", "here"]


@pytest.mark.parametrize("two_sided", [False, True])
async def test_a_tool_that_asks_is_waited_for_by_nobody_whom_it_asks(
    two_sided: bool, journal: Journal, ports: Ports
) -> None:
    refused: list[str] = []

    @tool
    async def consult(state: RunState) -> str:
        return str(await state.hub.ask("expert", "?"))

    @agent("expert")
    async def expert(input: Any, ctx: RunContext) -> None:
        async for said in ctx.messages():
            assert said.prompt_id
            for ask in (ctx.hub.ask, rt.hub.ask):
                with pytest.raises(WaitCycle) as caught:
                    await ask(said.source, "back?")
                refused.append(caught.value.asked)
            with pytest.raises(WaitCycle):
                await rt.result(said.source)
            ctx.hub.reply(said.prompt_id, "yes")

    main = Recorder(call("consult"), call("finish", result="done") if two_sided else "done")
    asking = (
        child(main, consult, name="main") if two_sided else model_agent(main, consult, name="main")
    )
    async with Runtime([asking, expert], store=journal, ports=ports) as rt:
        await rt.start("expert", run_id="expert")
        run = await rt.start("main", "Go.", run_id="main")
        with anyio.fail_after(1000):
            assert (await run.result()).output == "done"
    assert refused == ["main"] * 2


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("how", ["ask", "result"])
async def test_a_child_does_not_wait_for_a_parent_that_no_life_since_has_read(
    how: str, is_killed: bool, ports: Ports, tmp_path: Path
) -> None:
    lives = Lives(tmp_path, ports, is_killed=is_killed)
    refused: list[str] = []
    seen = anyio.Event()
    runtimes: list[Runtime] = []

    @tool(idempotent=True, timeout=None)
    async def consult(state: RunState) -> str:
        if len(runtimes) == 1:
            seen.set()
            await anyio.sleep_forever()
        try:
            await wait_for(runtimes[-1], state, "main", how)
        except WaitCycle as error:
            refused.append(error.asked)
        return "consulted"

    below = Recorder(call("consult"), call("finish", result="kid is done"))
    agents = [
        parent(Recorder(call("helper", message="Go."), "All done."), config()),
        child(below, consult),
    ]
    async with lives.life(*agents) as rt:
        runtimes.append(rt)
        await rt.start("main", "Go.", run_id="main")
        with anyio.fail_after(1000):
            await seen.wait()
        await anyio.sleep(1)
    async with lives.life(*agents) as rt:
        runtimes.append(rt)
        with anyio.fail_after(1000):
            assert (await rt.result("main")).output == "All done."
    assert refused == ["main"]


NAMES = "abcd"
EDGES = st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda x: x[0] != x[1])


@given(
    waits=st.lists(st.tuples(EDGES, st.booleans(), st.booleans()), max_size=8),
    calls=st.lists(EDGES, max_size=3),
    free=st.sets(st.sampled_from(NAMES)),
    new=EDGES,
    asks=st.booleans(),
)
def test_a_wait_is_refused_if_the_graph_of_the_open_ones_leads_back(
    waits: list[tuple[tuple[str, str], bool, bool]],
    calls: list[tuple[str, str]],
    free: set[str],
    new: tuple[str, str],
    asks: bool,
) -> None:
    """``free`` runs await the next message besides all that they wait for."""

    def children(run_id: str) -> tuple[str, ...]:
        return tuple([below for above, below in calls if above == run_id])

    def reader_of(run_id: str) -> tuple[object | None, bool]:
        return (run_id, True) if run_id in free else (None, False)

    graph = WaitGraph(children, reader_of)
    over = {(above, below, True) for above, below in calls}  # ``True``: for its outcome
    open_ = {(one, other, not is_ask) for (one, other), is_ask, is_open in waits
             if is_open or not is_ask} | over  # fmt: skip
    # In plain words: a run that is asked and free answers; all other waits are passed on.
    stuck = {(one, other) for one, other, for_outcome in open_ if for_outcome or other not in free}
    waiter, other = new
    met = {other} if asks is False or other not in free else set()
    while more := {b for a, b in stuck if a in met} - met:
        met |= more
    outcomes = {(one, other) for one, other, for_outcome in open_ if for_outcome}
    ends = {b for a, b in outcomes if a == other}
    while more := {b for a, b in outcomes if a in ends} - ends:
        ends |= more
    with ExitStack() as stack:
        for (one, two), is_ask, is_open in waits:
            stack.enter_context(
                graph.waiting(
                    one, two, asks=is_ask, is_open=(lambda x=is_open: x) if is_ask else None
                )
            )
        assert graph.closes(waiter, other, asks=asks) == (waiter in met or waiter in ends)
    assert not graph.closes("a", "b") or calls
