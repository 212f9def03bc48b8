"""A code agent's own conversation with a model (R-12)."""

from typing import Any

import anyio
import pytest
from support.agents import Observer, assert_one_life, echo_model, heard

from hubbub import AgentDefinition, RunContext, RunState, Runtime, agent
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import AssistantMessage, ModelRequest
from hubbub.hub.errors import Closed, RunFailed
from hubbub.hub.events import (
    AgentComplete,
    AgentStart,
    AgentStatus,
    AgentStep,
    AgentText,
    Event,
    ToolCall,
)
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import Fault, FunctionModel, ScriptedModel, call, reply
from hubbub.runtime.runs.session import ModelSession

pytestmark = pytest.mark.anyio


# ── the example of the Agent Protocol, line by line ──────────────────────────────────────────


async def emit_responses(session: ModelSession, hub: Any) -> None:
    """AP's ``emitResponses``; the steps' own events are emitted by the session itself."""
    async for message in session.receive():
        if isinstance(message, AgentText):
            hub.emit(AgentStatus(status=f"said: {message.text}"))


def example(*, emits_start_complete: bool) -> AgentDefinition:
    async def execute(input: dict[str, str], ctx: RunContext) -> str:
        session = ctx.session(model=input["model"])
        done = anyio.Event()
        result = ""
        if emits_start_complete:
            ctx.hub.emit(AgentStart())

        try:
            # Initial turn
            await session.send(input["prompt"])
            await emit_responses(session, ctx.hub)

            # Listen for injected messages
            async def listen(event: Any) -> None:
                nonlocal result
                if event.run_id == ctx.run_id:
                    await session.send(event.content)
                    await emit_responses(session, ctx.hub)
                    result = session.text
                    if event.content == "goodbye":
                        done.set()

            unsubscribe = ctx.hub.subscribe("session:message", listen)

            # Wait for completion
            await done.wait()
            unsubscribe()

            if emits_start_complete:
                ctx.hub.emit(AgentComplete(reason="said goodbye"))
            return result
        finally:
            session.close()

    return AgentDefinition(
        name="example", execute=execute, emits_start_complete=emits_start_complete
    )


@pytest.mark.spec("R-12", "R-08")
@pytest.mark.parametrize("emits", [False, True], ids=["runtime", "agent"])
async def test_the_example_of_the_agent_protocol_runs(
    emits: bool, journal: Journal, ports: Ports
) -> None:
    models = {"echo": echo_model()}
    agents = [example(emits_start_complete=emits)]
    async with Runtime(agents, models=models, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        told: list[str] = []

        # The channel: it learns the run from agent:start and talks to it by its id.
        def converse(event: Event) -> None:
            if not told:
                runtime.hub.subscribe("agent:text", answer, run_id=event.run_id)

        def answer(event: Any) -> None:
            told.append(event.text)
            if len(told) < 4:
                text = ["more", "still more", "goodbye"][len(told) - 1]
                runtime.hub.send_to_run(event.run_id, text)

        runtime.hub.subscribe("agent:start", converse)
        prompt = {"model": "echo", "prompt": "hello"}
        returned = await runtime.executable("example").execute(prompt)
    expected = ["hello", "more", "still more", "goodbye"]
    assert told == [f"echo: {text}" for text in expected]
    assert returned == "echo: goodbye"
    assert [x.status for x in observer.all("agent:status")] == [
        f"said: echo: {text}" for text in expected
    ]
    (run_id,) = observer.run_ids
    assert assert_one_life(observer.events, run_id).reason == ("said goodbye" if emits else "")
    recorded = await _own(journal, run_id)
    assert [x.step for x in recorded if isinstance(x, AgentStep)] == [1, 2, 3, 4]


async def _own(journal: Journal, run_id: str) -> list[Any]:
    loaded = await journal.load(run_id)
    assert loaded is not None
    return list(loaded.events)


# ── what it promises ─────────────────────────────────────────────────────────────────────────


@tool
async def look(where: str, state: RunState) -> str:
    await anyio.sleep(1)
    return f"seen {where} for {state.agent}"


@pytest.mark.spec("R-12", "S-07")
async def test_its_steps_are_the_runs_events_and_every_call_is_answered(
    journal: Journal, ports: Ports
) -> None:
    requests: list[ModelRequest] = []
    calls = [call("look", where="a"), call("nothing"), ToolCall(name="look", arguments="{")]

    def answer(request: ModelRequest) -> Any:
        requests.append(request)
        return reply("Looking.", *calls, thinking="hm") if len(requests) == 1 else "Done."

    @agent("code")
    async def code(input: str, ctx: RunContext) -> list[str]:
        model = FunctionModel(answer, latency=1)
        async with ctx.session(model=model, system="Look.", tools=[look]) as session:
            await session.send(input)
            return [event.type async for event in session.receive()]

    async with Runtime([code], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        outcome = await runtime.run("code", "hello")
    seen = [
        "agent:thinking", "agent:text", "agent:step", "agent:tool:start", "agent:tool:complete",
        "agent:tool:complete", "agent:tool:start", "agent:tool:complete", "agent:text",
        "agent:step",
    ]  # fmt: skip
    assert outcome.output == seen
    (run_id,) = observer.run_ids
    assert observer.types(
        run_id, but=("session:start", "session:end", "session:taken", "agent:text:delta",
                     "agent:thinking:delta")
    ) == ["agent:start", *seen, "agent:complete"]  # fmt: skip
    assert [x.text for x in observer.all("agent:text")] == ["Looking.", "Done."]
    (said,) = [m for m in requests[1].messages if isinstance(m, AssistantMessage)]
    assert [c.name for c in said.calls] == ["look", "nothing", "look"]
    assert said.calls[0].output == "seen a for code"
    assert [c.is_error for c in said.calls] == [False, True, True]
    assert (requests[0].system, heard(requests[1])) == ("Look.", ["hello"])


@pytest.mark.spec("R-12")
async def test_what_is_sent_while_it_works_is_read_at_the_next_step(
    journal: Journal, ports: Ports
) -> None:
    @agent("code")
    async def code(input: str, ctx: RunContext) -> list[str]:
        texts = []
        async with ctx.session(model=echo_model()) as session:
            await session.send("a")
            await session.send("b")
            async for event in session.receive():
                if isinstance(event, AgentText):
                    texts.append(event.text)
                    if len(texts) == 1:
                        await session.send("c")
            texts += [event.type async for event in session.receive()]
        return texts

    async with Runtime([code], store=journal, ports=ports) as runtime:
        outcome = await runtime.run("code", "x")
    assert outcome.output == ["echo: a, b", "echo: c"], outcome.reason


@pytest.mark.spec("R-12")
async def test_closing_ends_it_twice_is_a_no_op_and_sending_then_is_an_error(
    journal: Journal, ports: Ports
) -> None:
    sessions: dict[str, ModelSession] = {}

    @agent("code")
    async def code(input: str, ctx: RunContext) -> str:
        sessions[input] = session = ctx.session(model=echo_model(10))
        if input == "by hand":
            session.close()
            session.close()
        elif input == "by async with":
            async with session:
                pass
            session.close()
        elif input == "on raise":
            async with session:
                await session.send("x")
                raise ValueError("on purpose")
        else:
            async with session:
                await session.send("x")
                async for _ in session.receive():
                    pass
        return "fine"

    async with Runtime([code], store=journal, ports=ports) as runtime:
        for way in ("by hand", "by async with"):
            assert (await runtime.run("code", way)).output == "fine"
        assert (await runtime.run("code", "on raise")).reason == "ValueError: on purpose"
        cancelled = await runtime.start("code", "on cancellation")
        await anyio.sleep(5)
        await cancelled.terminate()
        await anyio.sleep(1)
    assert len(sessions) == 4
    for session in sessions.values():
        with pytest.raises(Closed, match="session is closed"):
            await session.send("too late")
        with pytest.raises(Closed, match="session is closed"):
            async for _ in session.receive():
                pass


@pytest.mark.spec("R-12", "S-07")
async def test_leaving_in_the_middle_loses_nothing_and_keeps_every_call_answered(
    journal: Journal, ports: Ports
) -> None:
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        requests.append(request)
        if len(requests) == 1:
            return reply("", call("look", where="a"), call("look", where="b"))
        return f"re: {heard(request)[-1]}"

    @agent("code")
    async def code(input: str, ctx: RunContext) -> str:
        async with ctx.session(model=FunctionModel(answer), tools=[look]) as session:
            await session.send("first")
            with anyio.move_on_after(0.5):  # While the first look is under way.
                async for _ in session.receive():
                    pass
            async for event in session.receive():
                if isinstance(event, AgentText):
                    break
            await session.send("second")
            async for _ in session.receive():
                pass
            return session.text

    async with Runtime([code], store=journal, ports=ports) as runtime:
        outcome = await runtime.run("code", "x")
        assert outcome.output == "re: second", outcome.reason
        recorded = await _own(journal, outcome.run_id)
    (said,) = [m for m in requests[1].messages if isinstance(m, AssistantMessage)]
    assert "may or may not" in said.calls[0].output
    assert said.calls[1].output == "seen b for code"
    assert heard(requests[-1]) == ["first", "second"]
    results = [x.index for x in recorded if x.type == "agent:tool:complete"]
    assert results == [0, 1]


@pytest.mark.spec("R-12", "M-03")
async def test_a_model_that_fails_for_good_raises_and_the_session_can_go_on(
    journal: Journal, ports: Ports
) -> None:
    @agent("code")
    async def code(input: str, ctx: RunContext) -> str:
        model = ScriptedModel([Fault("server", times=7), "at last"])
        async with ctx.session(model=model) as session:
            await session.send("hello")
            with pytest.raises(RunFailed, match="scripted fault"):
                async for _ in session.receive():
                    pass
            await session.send("again")
            with pytest.raises(RunFailed):
                async for _ in session.receive():
                    pass
            return session.text

    async with Runtime([code], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        outcome = await runtime.run("code", "x")
    assert outcome.success, outcome.reason
    assert len(observer.all("agent:retry")) == 8


@pytest.mark.spec("R-12")
async def test_parallel_calls_and_timeouts_work_as_in_model_runs(
    journal: Journal, ports: Ports
) -> None:
    @tool(timeout=5)
    async def hang() -> str:
        await anyio.sleep_forever()
        return "never"

    model = ScriptedModel(
        [reply("", call("hang"), call("look", where="b"), call("look", where="c")), "done"]
    )

    @agent("code")
    async def code(input: str, ctx: RunContext) -> Any:
        session = ctx.session(model=model, tools=[look, hang], parallel_tool_calls=True)
        async with session:
            await session.send("go")
            return [
                event.output
                async for event in session.receive()
                if event.type == "agent:tool:complete"
            ]

    async with Runtime([code], store=journal, ports=ports) as runtime:
        before = ports.clock.monotonic()
        outcome = await runtime.run("code", "x")
        assert ports.clock.monotonic() - before == pytest.approx(5, abs=0.1)
    assert outcome.output == [
        "timed out: the tool did not finish within 5 s", "seen b for code", "seen c for code"
    ]  # fmt: skip
