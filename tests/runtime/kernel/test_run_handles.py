"""Handles: results, events, children, and how many runs there may be (R-13, R-14, R-18)."""

from typing import Any

import anyio
import pytest
from support.agents import Observer, assert_one_life, echo_model, model_agent

from hubbub import RunContext, RunState, Runtime, agent
from hubbub.agents.definitions.tools import tool
from hubbub.hub.errors import LimitExceeded, RunEnded, UnknownAgent, UnknownRun
from hubbub.hub.events import AgentChild, AgentComplete, SessionStart, Usage
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.models.scripted import ScriptedModel, call, reply

pytestmark = pytest.mark.anyio


@agent("worker")
async def worker(input: Any, ctx: RunContext) -> Any:
    await anyio.sleep(1)
    ctx.say(f"worked on {input}")
    if input == "broken":
        raise ValueError("broken")
    return input


@agent("patient")
async def patient(input: Any, ctx: RunContext) -> list[str]:
    return [message.content async for message in ctx.messages()]


# ── R-13 ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("R-13")
async def test_a_child_runs_under_its_parents_root_and_answers_by_its_handle(
    journal: Journal, ports: Ports
) -> None:
    @agent("parent")
    async def parent(input: Any, ctx: RunContext) -> Any:
        one = ctx.spawn("worker", 1, name="first")
        two = ctx.spawn("middle", 2)
        three = ctx.spawn("assistant", "three")
        results = [(await child.result()).output for child in (one, two, three)]
        assert [message async for message in ctx.messages(idle_timeout=5)] == []
        return results

    @agent("middle")
    async def middle(input: Any, ctx: RunContext) -> Any:
        child = ctx.spawn(worker, input * 10)
        types = [event.type async for event in child.events()]
        assert types[-3:] == ["agent:text", "session:end", "agent:complete"]
        return (await child.finished()).output

    agents = [worker, parent, middle, model_agent(echo_model())]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("parent")
        outcome = await run.result()
        recorded = await run.read()
    assert outcome.output == [1, 20, "echo: three"], outcome.reason
    # The result comes by the handle, never also as a message.
    assert {x.type for x in recorded if x.lane == "in"} == {"session:open"}
    starts = {x.agent: x for x in observer.all("agent:start")}
    assert {x.root_run_id for x in starts.values()} == {run.run_id}
    assert starts["middle"].parent_run_id == run.run_id
    assert [x.parent_run_id for x in observer.all("agent:start") if x.agent == "worker"] == [
        run.run_id, starts["middle"].run_id,
    ]  # fmt: skip
    children = [x for x in recorded if x.type == "agent:child"]
    assert [(x.child_agent, x.name) for x in children] == [
        ("worker", "first"), ("middle", "middle"), ("assistant", "assistant"),
    ]  # fmt: skip
    for run_id in observer.run_ids:
        assert_one_life(observer.events, run_id)


@pytest.mark.spec("R-13")
async def test_a_tool_spawns_children_by_its_state(journal: Journal, ports: Ports) -> None:
    @tool
    async def delegate(task: str, state: RunState) -> str:
        child = state.spawn("worker", task)
        outcome = await child.result()
        return f"{outcome.outcome}: {outcome.output or outcome.reason}"

    model = ScriptedModel(
        [reply("", call("delegate", task="a"), call("delegate", task="broken")), "done"]
    )
    agents = [worker, model_agent(model, delegate, parallel_tool_calls=True)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "go")
        outcome = await run.result()
        recorded = await run.read()
    assert outcome.output == "done"
    results = sorted(x.output for x in recorded if x.type == "agent:tool:complete")
    assert results == ["completed: a", "failed: ValueError: broken"]
    started = [x for x in recorded if isinstance(x, SessionStart)]
    assert len(started) == 1, "nobody is told of it besides"
    roots = {x.root_run_id for x in observer.all("agent:start")}
    assert roots == {run.run_id}


@pytest.mark.spec("R-13")
async def test_what_cannot_be_spawned_is_refused(journal: Journal, ports: Ports) -> None:
    problems = []

    @agent("parent", emits_start_complete=True)
    async def parent(input: Any, ctx: RunContext) -> None:
        with pytest.raises(UnknownAgent):
            ctx.spawn("nobody")
        ctx.hub.emit(AgentComplete())
        with pytest.raises((RunEnded, UnknownRun)):
            ctx.spawn("worker")
        problems.append("both refused")

    @agent("deep")
    async def deep(input: int, ctx: RunContext) -> int:
        try:
            return (await ctx.spawn("deep", input + 1).result()).output  # type: ignore[no-any-return]
        except LimitExceeded:
            return input

    agents = [worker, parent, deep]
    async with Runtime(agents, store=journal, ports=ports, max_depth=4) as runtime:
        observer = Observer(runtime.hub)
        await runtime.executable("parent").execute()
        assert problems == ["both refused"]
        assert len(observer.run_ids) == 1
        assert (await runtime.run("deep", 0)).output == 4


# ── R-14 ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("R-14")
async def test_the_result_of_a_model_run_comes_when_it_is_idle(
    journal: Journal, ports: Ports
) -> None:
    @tool
    async def look() -> str:
        return "seen"

    model = ScriptedModel(
        [
            reply("Let me see.", call("look"), usage=Usage(input_tokens=10, output_tokens=1)),
            reply("I saw.", usage=Usage(input_tokens=20, output_tokens=2)),
            reply("Again.", usage=Usage(input_tokens=30, output_tokens=3)),
        ],
        latency=2,
    )
    async with Runtime([model_agent(model, look)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "hello")
        outcome = await run.result()
        assert (outcome.run_id, outcome.session) == (run.run_id, 1)
        assert (outcome.success, outcome.outcome, outcome.reason) == (True, "completed", "")
        assert outcome.output == "I saw."
        assert outcome.usage == Usage(input_tokens=30, output_tokens=3)
        assert observer.all("agent:complete") == [], "and no terminal event need come"
        assert await run.result() == outcome
        run.send("more")
        again = await run.result()
        assert (again.session, again.output) == (2, "Again.")
        assert again.usage == Usage(input_tokens=30, output_tokens=3)
        with anyio.move_on_after(1000) as scope:
            await run.finished()
        assert scope.cancelled_caught
        await run.terminate("enough")
        assert (await run.result()).outcome == "terminated"


@pytest.mark.spec("R-14")
async def test_everything_accepted_so_far_is_handled_when_the_result_comes(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([model_agent(echo_model())], store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "a")
        results: list[Any] = []

        async def wait() -> None:
            results.append((await run.result()).output)

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.sleep(0.5)
            run.send("b")
            await anyio.sleep(1)
            group.start_soon(wait)
            run.send("c")
    assert results == ["echo: c", "echo: c"]


@pytest.mark.spec("R-14")
async def test_the_result_of_a_code_run_comes_with_its_end_only(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([patient, worker], store=journal, ports=ports) as runtime:
        run = await runtime.start("patient")
        run.send("a")
        with anyio.move_on_after(1000) as scope:
            await run.result()
        assert scope.cancelled_caught, "it waits for messages, but is not over"
        await run.close()
        assert (await run.result()).output == ["a"]
        broken = await runtime.start("worker", "broken")
        outcome = await broken.result()
        assert (outcome.success, outcome.outcome, outcome.output) == (False, "failed", None)
        assert outcome.reason == "ValueError: broken"
        with pytest.raises(UnknownRun):
            await runtime.result(ports.ids.run_id(0))


@pytest.mark.spec("R-14")
async def test_the_result_of_a_session_that_failed_is_its_outcome_and_not_an_exception(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([model_agent(ScriptedModel([]))], store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "hello")
        outcome = await run.result()
        assert (outcome.success, outcome.outcome, outcome.output) == (False, "failed", None)
        assert "script" in outcome.reason


async def test_a_handle_shows_its_runs_events_from_the_first_to_the_last(
    journal: Journal, ports: Ports
) -> None:
    @agent("parent")
    async def parent(input: Any, ctx: RunContext) -> Any:
        return (await ctx.spawn("worker", "x").result()).output

    async with Runtime([parent, worker], store=journal, ports=ports) as runtime:
        run = await runtime.start("parent")
        seen: list[list[str]] = []

        async def watch(handle: Run) -> None:
            async with handle.events() as events:
                seen.append([f"{event.agent} {event.type}" async for event in events])

        async with anyio.create_task_group() as group:
            group.start_soon(watch, run)
            await anyio.sleep(0.5)
            group.start_soon(watch, run)
        await watch(run)
    assert seen[0] == seen[1] == seen[2]
    assert [text for text in seen[0] if "agent:" in text] == [
        "parent agent:start", "parent agent:child", "worker agent:start", "worker agent:text",
        "worker agent:complete", "parent agent:complete",
    ]  # fmt: skip


# ── R-18 ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("R-18")
async def test_run_is_one_session_and_then_the_terminal_event(
    journal: Journal, ports: Ports
) -> None:
    agents = [worker, model_agent(echo_model())]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        assert (await runtime.run("assistant", "one")).output == "echo: one"
        assert (await runtime.run("worker", "two")).output == "two"
        failed = await runtime.run("worker", "broken")
        assert (failed.outcome, failed.reason) == ("failed", "ValueError: broken")
        for run_id in observer.run_ids:
            assert_one_life(observer.events, run_id)
        sessions = observer.all("session:end")
        assert [x.session for x in sessions] == [1, 1, 1]


@pytest.mark.spec("R-18")
async def test_finished_waits_for_the_terminal_event(journal: Journal, ports: Ports) -> None:
    async with Runtime([worker], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("worker", 1)
        outcomes = []

        async def wait() -> None:
            outcomes.append(await run.finished())
            assert observer.all("agent:complete")

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(wait)
        await wait()
    assert [outcome.output for outcome in outcomes] == [1] * 4


@pytest.mark.spec("R-18")
async def test_ready_runs_beyond_max_live_wait_their_turn(journal: Journal, ports: Ports) -> None:
    live: set[int] = set()
    most: list[int] = []
    order: list[int] = []

    @agent("counted")
    async def counted(input: int, ctx: RunContext) -> list[str]:
        order.append(input)
        live.add(input)
        most.append(len(live))
        await anyio.sleep(1)
        live.discard(input)
        return [message.content async for message in ctx.messages(idle_timeout=0)]

    agents = [counted, model_agent(echo_model())]
    async with Runtime(agents, store=journal, ports=ports, max_live=3) as runtime:
        runs = [await runtime.start("counted", number) for number in range(10)]
        for run in runs:
            await run.send("early")  # Also to those that are not in memory yet.
        model = await runtime.start("assistant", "hello")
        for run in runs:
            assert (await run.result()).output == ["early"]
        assert (await model.result()).output == "echo: hello"
    assert max(most) == 3
    # Three at a time; within a batch, tasks are the event loop's to order.
    assert [number // 3 for number in order] == [number // 3 for number in range(10)]


@pytest.mark.spec("R-18")
async def test_any_number_of_runs_that_park_at_once_may_wait_for_room(
    journal: Journal, ports: Ports
) -> None:
    agents = [worker, model_agent(echo_model())]
    async with Runtime(agents, store=journal, ports=ports, max_live=1) as runtime:
        first = await runtime.start("worker", 1)
        runs = [await runtime.start("assistant") for _ in range(1500)]
        await first.finished()
        await runs[-1].result()
        statistics = runtime.hub.statistics()
        assert (statistics.live, statistics.parked) == (1500, 1500)


@pytest.mark.spec("R-18")
async def test_keep_bounds_the_ended_runs_that_stay_readable(ports: Ports) -> None:
    async with Runtime([worker, patient], ports=ports, keep=3, store="memory") as runtime:
        assert isinstance(runtime.hub.journal, MemoryJournal)
        live = await runtime.start("patient")
        runs = []
        for number in range(6):
            runs.append(await runtime.start("worker", number))
            await anyio.sleep(2)
        for run in runs[:3]:
            assert await run.read() == []
            with pytest.raises(UnknownRun):
                await run.result()
            assert (await run.send("hello?")).reason == "unknown"
        for run in runs[3:]:
            assert (await run.result()).success
            assert (await run.send("hello?")).reason == "ended"
        live.send("still there?")
        await live.close()
        assert (await live.result()).output == ["still there?"]


@pytest.mark.spec("R-13", "R-18")
async def test_what_a_run_has_started_stays_readable_while_it_lives(ports: Ports) -> None:
    @agent("boss")
    async def boss(input: Any, ctx: Any) -> list[int]:
        runs = [ctx.spawn("worker", number) for number in range(5)]
        await anyio.sleep(100)
        return [(await run.result()).output for run in runs]

    @tool
    async def share(state: RunState) -> list[int]:
        """Have others work."""
        runs = [state.spawn("worker", number) for number in range(5)]
        await anyio.sleep(100)
        return [(await run.result()).output for run in runs]

    main = model_agent(ScriptedModel([call("share"), "Done."]), share, name="main")
    agents = [worker, boss, main]
    async with Runtime(agents, ports=ports, keep=1, store="memory") as runtime:
        assert (await runtime.run("boss")).output == list(range(5))
        assert (await runtime.run("main", "Go.")).success
        done = await runtime.hub.read(types="agent:tool:complete")
        assert [event.output for event in done] == ["[0,1,2,3,4]"]


@pytest.mark.spec("R-18")
def test_the_defaults_are_the_documented_ones() -> None:
    import inspect

    parameters = inspect.signature(Runtime).parameters
    assert (parameters["max_live"].default, parameters["grace"].default) == (20_000, 5.0)
    assert parameters["keep"].default > 0


@pytest.mark.spec("C-15")
async def test_who_was_waited_for_may_wait_the_other_way_round_afterwards(
    journal: Journal, ports: Ports
) -> None:
    ids: dict[str, str] = {}
    handles: list[Runtime] = []

    @agent("first")
    async def first(input: Any, ctx: RunContext) -> str:
        outcome = await handles[0].result(ids["second"])
        await anyio.sleep(50)
        return f"after {outcome.output}"

    @tool
    async def join() -> str:
        return str((await handles[0].result(ids["first"])).output)

    model = ScriptedModel(["hello", call("join"), "joined"], latency=1)
    agents = [first, model_agent(model, join, name="second")]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        handles.append(runtime)
        ids["second"] = (await runtime.start("second", "go")).run_id
        ids["first"] = (await runtime.start("first")).run_id
        await anyio.sleep(10)
        await runtime.hub.send_to_run(ids["second"], "and now?")
        assert (await runtime.result(ids["second"])).output == "joined"
        done = [x for x in await runtime.hub.read(ids["second"]) if x.type == "agent:tool:complete"]
    assert [x.output for x in done] == ["after hello"]


@pytest.mark.spec("H-17", "R-05")
@pytest.mark.parametrize("by", ["handle", "runtime", "state", "thread"])
async def test_terminating_acts_at_the_call_awaited_or_not(
    by: str, journal: Journal, ports: Ports
) -> None:
    @agent("waits")
    async def waits(input: Any, ctx: Any) -> None:
        await anyio.sleep_forever()

    @agent("boss")
    async def boss(input: Any, ctx: Any) -> None:
        await ctx.spawn("waits").finished()

    @tool
    async def stop(state: RunState) -> str:
        state.terminate("enough")
        return "stopped"

    @tool(name="stop")
    def stop_from_a_thread(state: RunState) -> str:
        state.terminate("enough")
        return "stopped"

    tools = stop if by == "state" else stop_from_a_thread
    main = model_agent(ScriptedModel([call("stop"), "Done."]), tools, name="main")
    async with Runtime([waits, boss, main], store=journal, ports=ports) as rt:
        if by in ("handle", "runtime"):
            run = await rt.start("boss")
            await anyio.sleep(1)
            receipt = run.terminate("enough") if by == "handle" else rt.terminate(run.run_id)
            outcome = await run.finished()
            (child,) = [x for x in await rt.hub.read() if isinstance(x, AgentChild)]
            assert receipt.accepted and receipt.run_ids == (run.run_id, child.child_run_id)
            assert (await rt.finished(child.child_run_id)).outcome == "terminated"
            assert run.terminate().status in ("pending", "rejected")
        else:
            outcome = await (await rt.start("main", "Go.")).finished()
        assert outcome.outcome == "terminated"
