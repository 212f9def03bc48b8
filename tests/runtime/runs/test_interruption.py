"""Interrupting: the turn ends, the run goes on (T-10, H-11)."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.agents import Observer, assert_one_life, echo_model, heard, model_agent

from hubbub import RunContext, RunState, Runtime, agent
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import AssistantMessage, ModelRequest
from hubbub.hub.events import AgentStatus, AgentToolComplete, SessionAbort
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, call, reply

pytestmark = pytest.mark.anyio


class Trace:
    """What a model and its tools went through."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.requests: list[ModelRequest] = []

    async def answer(self, request: ModelRequest) -> Any:
        self.requests.append(request)
        number = len(self.requests)
        try:
            await anyio.sleep(2)
        except BaseException:
            self.log.append(f"model {number} cancelled")
            raise
        if heard(request)[-1] == "dig" and not isinstance(request.messages[-1], AssistantMessage):
            return reply("", *[call("dig", place=place) for place in ("a", "b", "c")])
        return f"re: {heard(request)[-1]}"

    def agent(self, **options: Any) -> Any:
        @tool
        async def dig(place: str) -> str:
            try:
                await anyio.sleep({"a": 1, "b": 10, "c": 10}[place])
            except BaseException:
                self.log.append(f"dig {place} cancelled")
                raise
            return f"gold in {place}"

        return model_agent(FunctionModel(self.answer), dig, **options)


@pytest.mark.spec("T-10")
async def test_a_model_call_in_flight_is_cancelled_and_the_run_idles(
    journal: Journal, ports: Ports
) -> None:
    trace = Trace()
    async with Runtime([trace.agent()], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "hello")
        await anyio.sleep(1)
        receipt = await run.interrupt("enough")
        outcome = await run.result()
        await anyio.sleep(0.1)
        assert trace.log == ["model 1 cancelled"]
        assert receipt.accepted
        assert receipt.run_ids == (run.run_id,)
        assert (outcome.success, outcome.outcome, outcome.reason) == (
            False, "interrupted", "enough",
        )  # fmt: skip
        info = await journal.info(run.run_id)
        assert info is not None and info.status == "parked"
        run.send("again")
        assert (await run.result()).output == "re: again"
    assert observer.first("agent:interrupted").reason == "enough"
    assert observer.all("agent:complete") == []
    assert heard(trace.requests[1]) == ["hello", "again"]


@pytest.mark.spec("T-10", "S-07")
@pytest.mark.parametrize("parallel", [False, True])
async def test_tools_in_flight_are_cancelled_and_open_calls_answered(
    parallel: bool, journal: Journal, ports: Ports
) -> None:
    trace = Trace()
    agents = [trace.agent(parallel_tool_calls=parallel)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "dig")
        await anyio.sleep(5)
        run.interrupt("too deep")
        assert (await run.result()).outcome == "interrupted"
        await anyio.sleep(0.1)
        assert sorted(trace.log) == (
            ["dig b cancelled", "dig c cancelled"] if parallel else ["dig b cancelled"]
        )
        run.send("well?")
        assert (await run.result()).output == "re: well?"
    (said,) = [m for m in trace.requests[-1].messages if isinstance(m, AssistantMessage)]
    assert [(c.output, c.is_error) for c in said.calls] == [
        ("gold in a", False), ("interrupted: too deep", True), ("interrupted: too deep", True),
    ]  # fmt: skip
    done = [x for x in observer.events if isinstance(x, AgentToolComplete)]
    assert sorted(x.index for x in done) == [0, 1, 2]


@pytest.mark.spec("T-10")
@pytest.mark.parametrize("moment", [0.0, 1.0, 2.5, 4.0])
@pytest.mark.parametrize("turns", [0, 1, 2, 4])
async def test_messages_already_queued_start_the_next_turn_at_once(
    moment: float, turns: int, journal: Journal, ports: Ports
) -> None:
    trace = Trace()
    async with Runtime([trace.agent()], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "dig")
        await anyio.sleep(moment)
        run.send("queued")
        run.interrupt("stop")
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        run.send("after")
        before = ports.clock.monotonic()
        with anyio.fail_after(50):
            outcome = await run.result()
        assert outcome.outcome == "completed"
        assert heard(trace.requests[-1]) == ["dig", "queued", "after"]
        assert outcome.output == "re: after"
        assert ports.clock.monotonic() - before <= 4.1
        types = observer.types(run.run_id)
    sessions = [(x.session, x.outcome) for x in observer.all("session:end")]
    assert sessions[0] == (1, "interrupted")
    assert {x for _, x in sessions[1:]} == {"completed"}
    assert types.count("agent:interrupted") == 1
    assert types.count("agent:tool:complete") == (3 if moment > 2 else 0)


@pytest.mark.spec("T-10")
async def test_a_run_of_one_session_ends_by_its_interruption(
    journal: Journal, ports: Ports
) -> None:
    trace = Trace()
    async with Runtime([trace.agent()], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "hello", once=True)
        await anyio.sleep(1)
        await run.interrupt("enough")
        outcome = await run.finished()
    assert outcome.outcome == "interrupted"
    assert assert_one_life(observer.events, run.run_id).outcome == "interrupted"
    assert trace.log == ["model 1 cancelled"]


@pytest.mark.spec("T-10")
async def test_children_that_nobody_waits_for_go_on(journal: Journal, ports: Ports) -> None:
    @agent("worker")
    async def worker(input: Any, ctx: RunContext) -> str:
        await anyio.sleep(20)
        return "worked"

    children: list[Any] = []

    @tool
    async def delegate(state: RunState) -> str:
        children.append(state.spawn("worker"))
        await anyio.sleep_forever()
        return "never"

    agents = [worker, model_agent(ScriptedModel([call("delegate")]), delegate)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go")
        await anyio.sleep(5)
        receipt = await run.interrupt("stop")
        assert (await run.result()).outcome == "interrupted"
        (child,) = children
        assert receipt.run_ids == (run.run_id,), "the receipt lists whom it touched"
        assert (await child.result()).output == "worked"


@pytest.mark.spec("T-10", "S-10")
async def test_what_an_interrupted_tool_still_says_and_returns_is_dropped(
    journal: Journal, ports: Ports, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    async def stubborn(state: RunState) -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(5)
            state.hub.emit(AgentStatus(status="still here"))
            await state.hub.publish(AgentStatus(status="and here"))
        return "too late"

    caplog.set_level("INFO", logger="hubbub")
    model = ScriptedModel([call("stubborn"), "next"], latency=1)
    async with Runtime([model_agent(model, stubborn)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "go")
        await anyio.sleep(2)
        run.interrupt("stop")
        run.send("next")
        await anyio.sleep(20)
    assert [x.output for x in observer.all("agent:tool:complete")] == ["interrupted: stop"]
    assert observer.all("agent:status") == []
    assert caplog.text.count("event.dropped") == 2
    assert "result.dropped" in caplog.text
    assert [x.text for x in observer.all("agent:text")] == ["next"]


# ── H-11 ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("H-11")
async def test_an_abort_interrupts_the_addressed_run_only_and_is_idempotent(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([model_agent(echo_model(2))], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        one, two = [await runtime.start("assistant", text) for text in ("one", "two")]
        await anyio.sleep(1)
        for _ in range(2):
            runtime.hub.emit(SessionAbort(run_id=one.run_id, reason="enough"))
        assert (await one.result()).reason == "enough"
        assert (await two.result()).output == "echo: two"
        assert [x.run_id for x in observer.all("agent:interrupted")] == [one.run_id]
        # An idle run has no turn to interrupt, and stays as it is.
        await two.interrupt("nothing to stop")
        assert (await two.result()).output == "echo: two"
        assert len(observer.all("agent:interrupted")) == 1


@pytest.mark.spec("H-11")
async def test_an_abort_without_a_run_interrupts_every_run_of_the_hub(
    journal: Journal, ports: Ports
) -> None:
    @agent("code")
    async def code(input: Any, ctx: RunContext) -> None:
        await anyio.sleep_forever()

    agents = [model_agent(echo_model(2)), code]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        runs = [await runtime.start(name, "x") for name in ("assistant", "assistant", "code")]
        await anyio.sleep(1)
        receipt = await runtime.hub.interrupt(reason="all hands stop")
        outcomes = [await run.result() for run in runs]
    assert set(receipt.run_ids) == {run.run_id for run in runs}
    assert [(x.outcome, x.reason) for x in outcomes] == [("interrupted", "all hands stop")] * 3


@pytest.mark.spec("H-11")
async def test_an_abort_after_the_terminal_event_does_nothing(
    journal: Journal, ports: Ports
) -> None:
    async with Runtime([model_agent(echo_model())], store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "x", once=True)
        await run.finished()
        observer = Observer(runtime.hub)
        before = await run.read()
        receipt = await run.interrupt("too late")
        runtime.hub.interrupt(reason="everybody")
        await anyio.sleep(5)
        assert (receipt.status, receipt.reason) == ("rejected", "ended")
        assert await run.read() == before
        assert observer.events == []
