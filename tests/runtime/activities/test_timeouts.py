"""Whatever takes too long is cancelled, and what it still says is dropped (S-10)."""

import inspect
from typing import Any

import anyio
import pytest
from support.agents import Observer, assert_one_life, echo_model, model_agent

from hubbub import RunContext, RunState, Runtime, agent
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import ModelRequest
from hubbub.hub.events import AgentStatus, AgentText, AgentTextDelta
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.activities.timeouts import MODEL_TIMEOUT
from hubbub.runtime.models.scripted import Fault, FunctionModel, ScriptedModel, call, reply

pytestmark = pytest.mark.anyio


@pytest.mark.spec("S-10")
def test_the_defaults_are_the_documented_ones() -> None:
    @tool
    def anything() -> None: ...

    assert (anything.timeout, MODEL_TIMEOUT) == (300, 600)
    assert inspect.signature(Runtime.start).parameters["timeout"].default is None


@pytest.mark.spec("S-10")
@pytest.mark.parametrize("parallel", [False, True])
async def test_a_tool_that_never_returns_is_cancelled_and_answered(
    parallel: bool, journal: Journal, ports: Ports
) -> None:
    log: list[str] = []

    @tool(timeout=7)
    async def hang() -> str:
        try:
            await anyio.sleep_forever()
        except BaseException:
            log.append(f"cancelled after {ports.clock.monotonic() - start:.0f}")
            raise
        return "never"

    @tool
    async def default() -> str:
        await anyio.sleep_forever()
        return "never"

    script = [reply("", call("hang"), call("default")), "done"]
    agents = [model_agent(ScriptedModel(script), hang, default, parallel_tool_calls=parallel)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        start = ports.clock.monotonic()
        run = await runtime.start("assistant", "go")
        assert (await run.result()).output == "done"
        took = ports.clock.monotonic() - start
        answers = [x for x in await run.read() if x.type == "agent:tool:complete"]
    assert log == ["cancelled after 7"]
    assert took == pytest.approx(300 if parallel else 307, abs=0.1)
    assert [(x.is_error, x.output) for x in answers] == [
        (True, f"timed out: the tool did not finish within {seconds} s") for seconds in (7, 300)
    ]


@pytest.mark.spec("S-10")
async def test_what_a_timed_out_tool_still_says_and_returns_is_dropped(
    journal: Journal, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(timeout=2)
    async def stubborn(state: RunState) -> str:
        state.hub.emit(AgentStatus(status="in time"))
        with anyio.CancelScope(shield=True):
            await anyio.sleep(5)
            for event in (AgentStatus(status="late"), AgentText(text="late")):
                state.hub.emit(event)
            state.hub.emit(AgentTextDelta(text="late"))
            await state.hub.publish(AgentStatus(status="late"))
        return "late"

    caplog.set_level("INFO", logger="hubbub")
    model = ScriptedModel([call("stubborn"), "done"], latency=1)
    async with Runtime([model_agent(model, stubborn)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "go")
        assert (await run.result()).output == "done"
        await anyio.sleep(20)
    assert [x.status for x in observer.all("agent:status")] == ["in time"]
    assert [x.text for x in observer.all("agent:text")] == ["done"]
    assert "late" not in [x.text for x in observer.all("agent:text:delta")]
    assert caplog.text.count("event.dropped") == 4
    assert "result.dropped" in caplog.text


@pytest.mark.spec("S-10")
async def test_a_model_that_never_answers_is_asked_again_and_then_fails(
    journal: Journal, ports: Ports
) -> None:
    agents = [
        model_agent(ScriptedModel([Fault("hang"), "at last"]), name="once"),
        model_agent(ScriptedModel([Fault("hang", times=None), "never"]), name="never"),
    ]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        start = ports.clock.monotonic()
        once, never = await runtime.start("once", "go"), await runtime.start("never", "go")
        assert (await once.result()).output == "at last"
        assert ports.clock.monotonic() - start == pytest.approx(600, abs=1)
        outcome = await never.result()
        assert ports.clock.monotonic() - start == pytest.approx(5 * 600, abs=20)
    assert outcome.outcome == "failed"
    assert outcome.reason == "the model did not answer within 600 s"
    kinds = [(x.kind, x.attempt) for x in observer.of(never.run_id) if x.type == "agent:retry"]
    assert kinds == [("timeout", attempt) for attempt in (1, 2, 3, 4)]


@pytest.mark.spec("S-10")
async def test_what_a_timed_out_model_still_streams_and_answers_is_dropped(
    journal: Journal, ports: Ports
) -> None:
    calls = 0

    async def answer(request: ModelRequest) -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(601)
            return "much too late"
        await anyio.sleep(5)
        return "in time"

    agents = [model_agent(FunctionModel(answer))]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "go")
        assert (await run.result()).output == "in time"
        await anyio.sleep(50)
    assert [x.text for x in observer.all("agent:text")] == ["in time"]
    assert "".join(x.text for x in observer.all("agent:text:delta")) == "in time"


@agent("patient")
async def patient(input: Any, ctx: RunContext) -> None:
    async for _ in ctx.messages():
        await anyio.sleep_forever()


@pytest.mark.spec("S-10")
@pytest.mark.parametrize(
    "moment", ["at work", "waiting", "queued", "queued with mail", "restarted"]
)
@pytest.mark.parametrize("name", ["patient", "assistant"])
async def test_a_run_whose_time_is_over_ends_wherever_it_stands(
    moment: str, name: str, journal: Journal, ports: Ports
) -> None:
    agents = [model_agent(echo_model(latency=100)), patient, agent("other")(patient.execute)]  # type: ignore[arg-type]
    live = 1 if moment.startswith("queued") else 100
    start = ports.clock.monotonic()
    async with Runtime(agents, store=journal, ports=ports, max_live=live, grace=0) as runtime:
        observer = Observer(runtime.hub)
        if live == 1:
            other = await runtime.start("other")
        text = "hello" if moment == "at work" and name == "assistant" else None
        run = await runtime.start(name, text, timeout=30)
        if moment in ("at work", "queued with mail") and text is None:
            await run.send("hello")
        if live == 1:
            await anyio.sleep(40)
            assert observer.types(run.run_id) == [], "there is no room for it"
            await other.terminate()
        if moment != "restarted":
            with anyio.fail_after(100):
                outcome = await run.finished()
            took = ports.clock.monotonic() - start
        else:
            await anyio.sleep(10)
    if moment == "restarted":
        again = [definition for definition in agents if definition.name == "assistant"]
        if name == "patient":
            again = [agent("patient", on_restart="resume")(patient.execute)]  # type: ignore[arg-type]
        async with Runtime(again, store=journal, ports=ports) as runtime:
            with anyio.fail_after(100):
                outcome = await runtime.finished(run.run_id)
            took = ports.clock.monotonic() - start
    assert took == pytest.approx(40 if live == 1 else 30, abs=0.5)
    assert (outcome.success, outcome.outcome) == (False, "timed_out")
    loaded = await journal.load(run.run_id)
    assert loaded is not None
    assert_one_life(loaded.events, run.run_id)


@pytest.mark.spec("S-10")
async def test_a_run_that_is_done_in_time_is_left_alone(journal: Journal, ports: Ports) -> None:
    async with Runtime([model_agent(echo_model())], store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "x", once=True, timeout=30)
        assert (await run.finished()).outcome == "completed"
        before = await run.read()
        await anyio.sleep(100)
        assert await run.read() == before
