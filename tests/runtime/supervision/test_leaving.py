"""Leaving a runtime ends no run: the next one on its store goes on (R-16, R-15)."""

import gc
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from support.agents import Observer, assert_one_life, echo_model, model_agent

from hubbub import CustomEvent, Hub, RunContext, RunState, Runtime, agent
from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.tools import tool
from hubbub.hub.errors import Closed
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import ScriptedModel, call, reply

pytestmark = pytest.mark.anyio


@agent("patient", on_restart="resume")
async def patient(input: Any, ctx: RunContext) -> list[str]:
    return [message.content async for message in ctx.messages()]


def two_steps(*, latency: float, tool_seconds: float, log: list[str]) -> AgentDefinition:
    @tool(timeout=None)
    async def dig(place: str) -> str:
        log.append(f"+{place}")
        await anyio.sleep(tool_seconds)
        log.append(f"-{place}")
        return f"gold in {place}"

    script = [reply("", call("dig", place="a"), call("dig", place="b")), "done", "more"]
    return model_agent(ScriptedModel(script, latency=latency), dig)


@pytest.mark.spec("R-16")
async def test_a_step_in_flight_reaches_its_boundary_within_the_grace(
    journal: Journal, ports: Ports
) -> None:
    """Its model call and all of its tools; the next step is the next runtime's."""
    log: list[str] = []
    agents = [two_steps(latency=1, tool_seconds=1.5, log=log)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "hello")
        await anyio.sleep(0.5)
        before = ports.clock.monotonic()
    assert ports.clock.monotonic() - before == pytest.approx(3.5, abs=0.1)
    assert log == ["+a", "-a", "+b", "-b"]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        outcome = await runtime.result(run.run_id)
        recorded = await runtime.hub.read(run.run_id)
    assert outcome.output == "done"
    assert log == ["+a", "-a", "+b", "-b"], "no finished call is made again"
    results = [x.output for x in recorded if x.type == "agent:tool:complete"]
    assert results == ["gold in a", "gold in b"]
    assert observer.types(run.run_id)[0] == "agent:restore"
    assert not [x for x in recorded if x.type == "agent:complete"]


@pytest.mark.spec("R-16")
async def test_what_takes_longer_than_the_grace_is_cancelled_unrecorded(
    journal: Journal, ports: Ports
) -> None:
    log: list[str] = []
    agents = [two_steps(latency=1, tool_seconds=10, log=log), patient]
    async with Runtime(agents, store=journal, ports=ports, grace=3) as runtime:
        run = await runtime.start("assistant", "hello")
        code = await runtime.start("patient")
        await anyio.sleep(2)
        before = ports.clock.monotonic()
        seen = Observer(runtime.hub)
        length = len(await run.read())
    assert ports.clock.monotonic() - before == pytest.approx(3, abs=0.1)
    assert log == ["+a"]
    assert seen.events == []
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        recorded = await runtime.hub.read(run.run_id)
        assert len([x for x in recorded if x.type != "agent:restore"]) >= length
        outcome = await runtime.result(run.run_id)
        await runtime.hub.send_to_run(code.run_id, "still here")
        await runtime.hub.close_run(code.run_id)
        assert (await runtime.finished(code.run_id)).output == ["still here"]
        recorded = await runtime.hub.read(run.run_id)
    assert outcome.output == "done"
    assert log == ["+a", "+b", "-b"]
    lost, done = [x for x in recorded if x.type == "agent:tool:complete"]
    assert lost.is_error and "may or may not" in lost.output
    assert done.output == "gold in b"


@pytest.mark.spec("R-16")
async def test_an_idle_runtime_is_left_at_once_and_no_run_ends_by_it(
    journal: Journal, ports: Ports
) -> None:
    agents = [model_agent(echo_model()), patient]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        model, code = await runtime.start("assistant", "a"), await runtime.start("patient")
        await code.send("early")
        await model.result()
        before = ports.clock.monotonic()
    assert ports.clock.monotonic() - before < 0.1
    assert observer.all("agent:complete") == []
    assert [info.run_id for info in await journal.runs()] == [model.run_id, code.run_id]


@pytest.mark.spec("R-16")
async def test_a_runtime_that_is_being_left_accepts_nothing_new(
    journal: Journal, ports: Ports
) -> None:
    agents = [two_steps(latency=1, tool_seconds=1, log=[]), patient]
    refused = []
    async with anyio.create_task_group() as group:

        async def start_while_leaving(runtime: Runtime) -> None:
            await anyio.sleep(1)
            for begin in (runtime.start, runtime.run):
                with pytest.raises(Closed, match="runtime"):
                    await begin("patient")
                refused.append(begin)

        async with Runtime(agents, store=journal, ports=ports) as runtime:
            await runtime.start("assistant", "hello")
            await anyio.sleep(0.5)
            group.start_soon(start_while_leaving, runtime)
    assert len(refused) == 2
    assert len(await journal.runs()) == 1
    with pytest.raises(Closed):
        await runtime.start("patient")
    assert runtime.hub.send_to_run("x", "y").reason == "hub closed"
    with pytest.raises(Closed):
        runtime.hub.emit(CustomEvent.of("shop:order"))


WAITS: dict[str, Callable[[Runtime, str], Awaitable[Any]]] = {
    "result": lambda runtime, run_id: runtime.result(run_id),
    "finished": lambda runtime, run_id: runtime.finished(run_id),
    "run": lambda runtime, run_id: runtime.run("patient"),
    "ask the user": lambda runtime, run_id: runtime.hub.ask("user", "yes?"),
    "ask a run": lambda runtime, run_id: runtime.hub.ask(run_id, "yes?"),
}


@pytest.mark.spec("R-16")
@pytest.mark.parametrize(
    ("wait", "shared"),
    [*((wait, False) for wait in WAITS), ("result", True), ("finished", True), ("run", True)],
)
async def test_waiters_are_told_that_the_runtime_is_closed(
    wait: str, shared: bool, journal: Journal, ports: Ports
) -> None:
    told = []

    async def waiting(runtime: Runtime, run_id: str) -> None:
        with pytest.raises(Closed):
            await WAITS[wait](runtime, run_id)
        told.append(wait)

    async with anyio.create_task_group() as group, Hub(journal=journal, ports=ports) as hub:
        options: dict[str, Any] = {"hub": hub} if shared else {"store": journal, "ports": ports}
        if not shared:
            await hub.aclose()
        async with Runtime([patient], **{"store": "memory", **options}) as runtime:
            run = await runtime.start("patient")
            group.start_soon(waiting, runtime, run.run_id)
            await anyio.sleep(1)
            assert told == []
        await anyio.sleep(1)
        assert told == [wait]
    # And no run was ended by it, not even the one whose caller was told.
    statuses = [(info.status, info.inbox) for info in await journal.runs()]
    assert statuses == [("active", "open")] * (2 if wait == "run" else 1)


@pytest.mark.spec("R-16")
async def test_a_shared_hub_outlives_its_runtimes(journal: Journal, ports: Ports) -> None:
    agents = [two_steps(latency=1, tool_seconds=50, log=[]), patient]
    async with Hub(journal=journal, ports=ports) as hub:
        observer = Observer(hub)
        before = len(anyio.get_running_tasks())
        async with Runtime(agents, hub=hub, grace=2) as runtime:
            model = await runtime.start("assistant", "hello", timeout=1000)
            code = await runtime.start("patient")
            await anyio.sleep(5)
        await anyio.sleep(1)
        assert len(anyio.get_running_tasks()) == before, "no task stays behind on the hub"
        # Nobody runs anything now, but what is sent is accepted and kept.
        assert (await hub.send_to_run(code.run_id, "meanwhile")).accepted
        opened = await hub.open("patient", correlation_id="later")
        length = len(observer.events)
        await anyio.sleep(5)
        assert len(observer.events) == length
        async with Runtime(agents, hub=hub) as runtime:
            assert (await runtime.result(model.run_id)).output == "done"
            for run_id in (code.run_id, opened.run_id):
                await hub.close_run(run_id)
            assert (await runtime.finished(code.run_id)).output == ["meanwhile"]
            assert (await runtime.finished(opened.run_id)).output == []
    for run_id in (code.run_id, opened.run_id):
        assert_one_life(observer.events, run_id)


async def test_a_run_that_another_runtime_has_taken_over_is_let_go_of(
    journal: Journal, ports: Ports
) -> None:
    log: list[str] = []
    agents = [two_steps(latency=1, tool_seconds=10, log=log)]
    async with Runtime(agents, store=MemoryJournal(), ports=ports) as first:
        store = first.hub.journal
        run = await first.start("assistant", "hello")
        await anyio.sleep(5)
        async with Runtime(agents, store=store, ports=ports) as second:
            assert (await second.result(run.run_id)).output == "done"
            await anyio.sleep(50)
            assert first.runs.get(run.run_id) is None
            recorded = [x for x in await second.hub.read(run.run_id) if x.lane == "own"]
        before = ports.clock.monotonic()
    assert ports.clock.monotonic() - before < 0.1, "the first one has nothing left to wait for"
    assert [x.seq for x in recorded] == list(range(1, len(recorded) + 1))
    assert [x.index for x in recorded if x.type == "agent:tool:complete"] == [0, 1]
    assert log.count("+b") == 1


@pytest.mark.spec("R-16")
async def test_leaving_by_an_exception_grants_no_grace(journal: Journal, ports: Ports) -> None:
    log: list[str] = []
    agents = [two_steps(latency=1, tool_seconds=1, log=log)]
    before = ports.clock.monotonic()

    async def leave() -> None:
        async with Runtime(agents, store=journal, ports=ports) as runtime:
            await runtime.start("assistant", "hello")
            await anyio.sleep(1.5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await leave()
    assert ports.clock.monotonic() - before < 1.6
    assert log == ["+a"]


@pytest.mark.spec("R-16")
async def test_a_run_that_waits_for_room_is_started_by_the_next_runtime(
    journal: Journal, ports: Ports
) -> None:
    agents = [patient, model_agent(echo_model())]
    async with Runtime(agents, store=journal, ports=ports, max_live=1) as runtime:
        await runtime.start("patient")
        queued = await runtime.start("assistant", "hello")
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        assert (await runtime.result(queued.run_id)).output == "echo: hello"
    assert observer.types(queued.run_id)[0] == "agent:start"


@pytest.mark.spec("R-15")
async def test_a_busy_run_with_failing_listeners_writes_to_no_stream(
    journal: Journal, ports: Ports, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(event: Event) -> None:
        raise ValueError(event.type)

    async def fail_later(event: Event) -> None:
        await anyio.sleep(0.1)
        raise ValueError(event.type)

    @agent("broken")
    async def broken(input: Any, ctx: RunContext) -> None:
        ctx.hub.subscribe("session:message", fail_later)
        ctx.say("about to fail")
        await anyio.sleep(1)
        raise ValueError("broken")

    log: list[str] = []
    agents = [two_steps(latency=0.1, tool_seconds=0.1, log=log), broken]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        runtime.hub.subscribe("*", fail)
        runtime.hub.subscribe("*", fail_later)
        model, code = await runtime.start("assistant", "hi"), await runtime.start("broken")
        for _ in range(3):
            code.send("x")
        assert (await model.result()).output == "done"
        assert (await code.result()).outcome == "failed"
        await runtime.hub.send_to_run(code.run_id, "dead")
        await model.terminate()
        await anyio.sleep(50)
    gc.collect()
    assert capfd.readouterr() == ("", "")
    assert_one_life(await journal_events(journal, code.run_id), code.run_id)


BUSY = """
import anyio
from hubbub import Runtime, agent

def fail(event):
    raise ValueError(event.type)

@agent("broken")
async def broken(input, ctx):
    async for message in ctx.messages():
        raise ValueError(message.content)

async def main():
    async with Runtime([broken]) as runtime:
        runtime.hub.subscribe("*", fail)
        run = await runtime.start("broken")
        run.send("x")
        await run.result()
        await runtime.hub.send_to_run(run.run_id, "dead")
        await runtime.hub.open("nobody")
        await anyio.sleep(0.01)

anyio.run(main)
"""


@pytest.mark.spec("R-15")
def test_what_a_program_that_configures_no_logging_sees_is_printed_by_logging_alone() -> None:
    """Beside pytest, whose own log handlers would hide what Python prints as a last resort."""
    quiet = "import logging\nlogging.getLogger('hubbub').addHandler(logging.NullHandler())\n"
    for before, is_shown in (("", True), (quiet, False)):
        done = subprocess.run(
            [sys.executable, "-c", before + BUSY], capture_output=True, timeout=60, check=True
        )
        assert done.stdout == b"" and (b"listener.failed" in done.stderr) == is_shown
        assert is_shown or done.stderr == b""


async def journal_events(journal: Journal, run_id: str) -> list[Event]:
    loaded = await journal.load(run_id)
    assert loaded is not None
    return list(loaded.events)


# ── who only waits ───────────────────────────────────────────────────────────────────────────


@agent("asker", on_restart="resume")
async def asker(input: Any, ctx: RunContext) -> str:
    return await ctx.ask("Which one?")


@agent("asks-by-the-hub", on_restart="resume")
async def asks_by_hub(input: Any, ctx: RunContext) -> Any:
    return await ctx.hub.ask("user", "Which one?")


@agent("waits-for-a-child", on_restart="resume")
async def waits_for_child(input: Any, ctx: RunContext) -> Any:
    return (await ctx.spawn("asker").result()).output


@agent("waits-for-its-end", on_restart="resume")
async def waits_for_end(input: Any, ctx: RunContext) -> Any:
    return (await ctx.spawn("waits-for-a-child").finished()).output


@agent("waits-for-events", on_restart="resume")
async def waits_for_events(input: Any, ctx: RunContext) -> None:
    async with ctx.spawn("asker").events() as events:
        async for _ in events:
            pass


def tool_that_waits() -> AgentDefinition:
    @tool(timeout=None)
    async def delegate(state: RunState) -> str:
        return str((await state.spawn("asker").result()).output)

    return model_agent(ScriptedModel([reply("", call("delegate")), "done"]), delegate)


def runs_another(runtime: Callable[[], Runtime]) -> AgentDefinition:
    @agent("executes-another", on_restart="resume")
    async def executes(input: Any, ctx: RunContext) -> Any:
        return await runtime().executable("asker").execute()

    return executes


@pytest.mark.spec("R-16")
@pytest.mark.parametrize(
    "name",
    [
        "asker", "asks-by-the-hub", "waits-for-a-child", "waits-for-its-end", "assistant",
        "executes-another", "waits-for-events",
    ],
)  # fmt: skip
async def test_who_only_waits_for_a_run_that_waits_for_a_person_keeps_nobody(
    name: str, journal: Journal, ports: Ports
) -> None:
    executes = runs_another(lambda: runtime)
    agents = [
        asker, asks_by_hub, waits_for_child, waits_for_end, executes, tool_that_waits(),
        waits_for_events,
    ]  # fmt: skip
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        await runtime.start(name, "x")
        await anyio.sleep(1)
        before = ports.clock.monotonic()
    assert ports.clock.monotonic() - before < 0.1


@pytest.mark.spec("R-16")
async def test_who_waits_for_a_child_at_work_gets_on_within_the_grace(
    journal: Journal, ports: Ports
) -> None:
    @agent("digger")
    async def digger(input: Any, ctx: RunContext) -> str:
        await anyio.sleep(2)
        return "gold"

    @agent("above")
    async def above(input: Any, ctx: RunContext) -> str:
        found = (await ctx.spawn("digger").result()).output
        await anyio.sleep(1)
        return f"{found}, polished"

    async with Runtime([digger, above], store=journal, ports=ports) as runtime:
        run = await runtime.start("above")
        await anyio.sleep(1)
        before = ports.clock.monotonic()
    assert ports.clock.monotonic() - before == pytest.approx(2, abs=0.1)
    async with Runtime([digger, above], store=journal, ports=ports) as runtime:
        assert (await runtime.result(run.run_id)).output == "gold, polished"


@pytest.mark.spec("R-16")
async def test_who_waits_for_the_events_of_a_child_at_work_hears_them_within_the_grace(
    journal: Journal, ports: Ports
) -> None:
    heard: list[str] = []

    @agent("digger")
    async def digger(input: Any, ctx: RunContext) -> str:
        await anyio.sleep(2)
        return "gold"

    @agent("above", on_restart="resume")
    async def above(input: Any, ctx: RunContext) -> None:
        async with ctx.spawn("digger").events() as events:
            heard.extend([event.type async for event in events])

    async with Runtime([digger, above], store=journal, ports=ports) as runtime:
        await runtime.start("above")
        await anyio.sleep(1)
        before = ports.clock.monotonic()
    assert ports.clock.monotonic() - before == pytest.approx(1, abs=0.1)
    assert heard[-1] == "agent:complete"


async def _spawn(state: RunState) -> Any:
    return (await state.spawn("helper", "well").result()).output


async def _run(state: RunState) -> Any:
    run = await state.hub.open("helper", "well", run_id="helped", once=True)
    return run.status


async def _wait(state: RunState) -> Any:
    raise Closed("the runtime")  # As ``Runtime.run`` does from now on.


BESIDE = {"spawn": _spawn, "open": _run, "wait": _wait}


@pytest.mark.spec("R-16")
@pytest.mark.parametrize("beside", BESIDE.values(), ids=[*BESIDE])
async def test_a_tool_that_begins_other_runs_while_a_runtime_is_left_fails_at_nothing(
    journal: Journal, ports: Ports, beside: Callable[[RunState], Awaitable[Any]]
) -> None:
    """What it began is there in the next life, where the tool runs again, as it may."""
    tried: list[int] = []

    @tool(timeout=None, idempotent=True)
    async def work(state: RunState) -> str:
        await anyio.sleep(1)
        tried.append(1)
        return f"it is {'well' if len(tried) > 1 else await beside(state)}"

    @agent("helper")
    async def helper(input: Any, ctx: RunContext) -> Any:
        return input

    script = ScriptedModel([reply("", call("work")), "done"])
    agents = [model_agent(script, work), helper]
    async with Runtime(agents, store=journal, ports=ports, grace=3) as runtime:
        run = await runtime.start("assistant", "hello")
        await anyio.sleep(0.5)
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        assert (await runtime.result(run.run_id)).output == "done"
        recorded = await runtime.hub.read(run.run_id)
    (done,) = [x for x in recorded if x.type == "agent:tool:complete"]
    assert (done.is_error, done.output[:6]) == (False, "it is "), done
