"""Whatever fails, a run has one start and one end, and its inbox goes on (R-05, T-12)."""

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.agents import Observer, assert_one_life, echo_model, heard, model_agent

from hubbub import Hub, RunContext, Runtime, VariableDefinition, agent
from hubbub.agents.definitions.tools import tool
from hubbub.agents.model import AssistantMessage, ModelReply, ModelRequest, Usage
from hubbub.agents.turn.decide import CallModel
from hubbub.hub.errors import (
    BadValue,
    CallerError,
    Closed,
    MissingVariable,
    UnknownAgent,
)
from hubbub.hub.events import AgentRestore
from hubbub.hub.ports import Clock, Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import Fault, FunctionModel, ScriptedModel, call, reply
from hubbub.runtime.runs import activity_tasks

pytestmark = pytest.mark.anyio


@agent("patient")
async def patient(input: int, ctx: RunContext) -> int:
    async for _ in ctx.messages():
        pass
    return input


# ── R-05 ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("R-05")
async def test_an_unknown_agent_opened_before_its_runtime_is_there_starts_and_fails(
    journal: Journal, ports: Ports
) -> None:
    async with Hub(journal=journal, ports=ports) as hub:
        observer = Observer(hub)
        receipt = await hub.open("nobody", "hello", correlation_id="c")
        assert receipt.accepted
        async with Runtime([patient], hub=hub) as runtime:
            outcome = await runtime.finished(receipt.run_id)
            late = await hub.send_to_run(receipt.run_id, "anybody?")
    end = assert_one_life(observer.events, receipt.run_id)
    assert end.outcome == outcome.outcome == "failed"
    assert "no agent named 'nobody'; known agents: patient" in end.reason
    assert observer.first("agent:start").correlation_id == "c"
    assert [x.error_type for x in observer.all("agent:failed")] == ["UnknownAgent"]
    assert (late.status, late.reason) == ("rejected", "ended")


@pytest.mark.spec("R-05")
async def test_an_input_that_does_not_fit_starts_and_fails(journal: Journal, ports: Ports) -> None:
    async with Runtime([patient], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        receipt = runtime.hub.open("patient", "seven")
        outcome = await runtime.finished((await receipt).run_id)
    end = assert_one_life(observer.events, receipt.run_id)
    assert end.outcome == outcome.outcome == "failed"
    assert "input of patient" in end.reason
    assert [x.error_type for x in observer.all("agent:failed")] == ["BadValue"]


@pytest.mark.spec("R-05")
async def test_what_a_prompt_lacks_fails_the_run_and_its_caller_sees_why(
    journal: Journal, ports: Ports
) -> None:
    agents = [
        model_agent(
            ScriptedModel(["x"]), variables=[VariableDefinition(name="CITY", required=True)]
        )
    ]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        with pytest.raises(MissingVariable):
            await runtime.executable("assistant").execute("hello")
    (run_id,) = observer.run_ids
    assert assert_one_life(observer.events, run_id).outcome == "failed"


@pytest.mark.spec("R-05")
@pytest.mark.parametrize("outside", ["terminate", "interrupt"])
@pytest.mark.parametrize("emits", [False, True])
async def test_a_run_stopped_while_it_is_still_queued_starts_and_ends(
    outside: str, emits: bool, journal: Journal, ports: Ports
) -> None:
    ran = []

    @agent("queued", emits_start_complete=emits)
    async def queued(input: Any, ctx: RunContext) -> None:
        ran.append(input)

    async with Runtime([patient, queued], store=journal, ports=ports, max_live=1) as runtime:
        observer = Observer(runtime.hub)
        first = await runtime.start("patient", 1)
        second = await runtime.start("queued", 2)
        await anyio.sleep(1)
        assert observer.types(second.run_id) == []
        await getattr(runtime.hub, outside)(second.run_id, "not needed")
        first.close()
        outcome = await second.finished()
    assert ran == []
    assert outcome.outcome == {"terminate": "terminated", "interrupt": "interrupted"}[outside]
    assert assert_one_life(observer.events, second.run_id).reason == "not needed"


@pytest.mark.spec("R-05")
async def test_a_model_run_stopped_while_it_is_still_queued_starts_and_ends(
    journal: Journal, ports: Ports
) -> None:
    asked = []

    def answer(request: ModelRequest) -> str:
        asked.append(heard(request))
        return "yes"

    agents = [patient, model_agent(FunctionModel(answer))]
    async with Runtime(agents, store=journal, ports=ports, max_live=1) as runtime:
        observer = Observer(runtime.hub)
        first = await runtime.start("patient", 1)
        second = await runtime.start("assistant", "hello")
        await second.terminate("not needed")
        first.close()
        assert (await second.finished()).outcome == "terminated"
    assert asked == []
    assert_one_life(observer.events, second.run_id)


@pytest.mark.spec("R-05")
@pytest.mark.parametrize("seconds", [0, 1, 3])
@pytest.mark.parametrize("name", ["patient", "assistant"])
async def test_a_cancelled_caller_ends_its_run(
    seconds: float, name: str, journal: Journal, ports: Ports
) -> None:
    agents = [patient, model_agent(echo_model(latency=2))]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        returned = []
        with anyio.move_on_after(seconds) as scope:
            returned.append(await runtime.executable(name).execute(7))
        await anyio.sleep(10)
    if name == "assistant" and seconds == 3:
        assert returned == ["echo: 7"]
        outcome = "completed"
    else:
        assert scope.cancelled_caught
        outcome = "terminated"
    (run_id,) = observer.run_ids
    end = assert_one_life(observer.events, run_id)
    assert end.outcome == outcome
    assert ("caller" in end.reason) is (outcome == "terminated")


@pytest.mark.spec("R-05")
async def test_the_caller_sees_the_original_exception(journal: Journal, ports: Ports) -> None:
    problem = LookupError("here")

    @agent("broken")
    async def broken(input: Any, ctx: RunContext) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 1)
            raise problem

    async with Runtime([broken], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        with pytest.raises(LookupError) as caught:
            await runtime.executable("broken").execute()
        assert caught.value is problem
        with pytest.raises(UnknownAgent):
            await runtime.run("nobody")
        with pytest.raises(BadValue):
            await runtime.run("broken", object())
    assert [x.error_type for x in observer.all("agent:failed")] == ["LookupError"]


# ── T-12 ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("T-12")
async def test_a_message_whose_handling_fails_ends_its_turn_only(
    journal: Journal, ports: Ports
) -> None:
    def answer(request: ModelRequest) -> Any:
        last = heard(request)[-1]
        return Fault("request", message="will not") if last == "bad" else f"to {last}"

    model = FunctionModel(answer, latency=1)
    async with Runtime([model_agent(model)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "good")
        for text in ("bad", "fine", "bad", "better"):
            await run.result()
            run.send(text)
            await anyio.sleep(0.5)
        outcome = await run.result()
        assert (outcome.outcome, outcome.output) == ("completed", "to better")
        info = await runtime.hub.journal.info(run.run_id)
        assert info is not None and info.status == "parked"
    ends = [(x.session, x.outcome) for x in observer.all("session:end")]
    assert ends == [
        (1, "completed"), (2, "failed"), (3, "completed"), (4, "failed"), (5, "completed")
    ]  # fmt: skip
    assert "will not" in observer.all("session:end")[1].reason
    assert [x.text for x in observer.all("agent:text")] == ["to good", "to fine", "to better"]


@pytest.mark.spec("T-12")
async def test_messages_behind_one_that_fails_are_handled_next(
    journal: Journal, ports: Ports
) -> None:
    def answer(request: ModelRequest) -> Any:
        said = heard(request)
        return Fault("auth") if said == ["one"] else f"to {said[-1]}"

    model = FunctionModel(answer, latency=1)
    async with Runtime([model_agent(model)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "one")
        await anyio.sleep(0.5)
        run.send("two")
        assert (await run.result()).output == "to two"
    assert [x.outcome for x in observer.all("session:end")] == ["failed", "completed"]


@pytest.mark.spec("T-12")
async def test_a_handler_of_a_code_agent_that_fails_fails_its_message_only(
    journal: Journal, ports: Ports
) -> None:
    handled = []

    @agent("code")
    async def code(input: Any, ctx: RunContext) -> None:
        done = anyio.Event()

        async def handle(event: Any) -> None:
            handled.append(event.content)
            if event.content == "bad":
                raise ValueError("bad")
            if event.content == "last":
                done.set()

        ctx.hub.subscribe("session:message", handle)
        await done.wait()

    async with Runtime([code], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("code")
        for text in ("good", "bad", "fine", "last"):
            run.send(text)
        assert (await run.result()).outcome == "completed"
    assert handled == ["good", "bad", "fine", "last"]
    assert [(x.error_type, x.during) for x in observer.all("hub:error")] == [
        ("ValueError", "session:message")
    ]


class FailingClock:
    """A clock that fails while the run asks for its next step: nothing of that is expected."""

    def __init__(self, inner: Clock) -> None:
        self._inner = inner
        self.times = 0
        self.failed = 0

    def now(self) -> int:
        return self._inner.now()

    def monotonic(self) -> float:
        return self._inner.monotonic()

    async def sleep(self, seconds: float) -> None:
        if seconds < 100 and self.failed < self.times:
            self.failed += 1
            raise OSError("no clock")
        await self._inner.sleep(seconds)


class Flaw:
    """Asking the model fails as often as it is told to, by a bug of our own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        self.failed = 0
        self._call_model = activity_tasks.call_model
        monkeypatch.setattr(activity_tasks, "call_model", self.call_model)

    async def call_model(self, activity: CallModel, work: Any) -> Any:
        if self.failed < self.times:
            self.failed += 1
            await anyio.sleep(1)
            raise OSError("a flaw")
        return await self._call_model(activity, work)


@pytest.mark.spec("T-12")
@pytest.mark.parametrize("times", [1, 2, 3, 4, 9])
async def test_a_loop_that_dies_is_restarted_three_times_and_then_the_run_fails(
    times: int, journal: Journal, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    flaw = Flaw(monkeypatch)
    model = FunctionModel(
        lambda request: "more" if "and then?" in str(request.messages[-1]) else "at last"
    )
    async with Runtime([model_agent(model)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        flaw.times = times
        run = await runtime.start("assistant", "hello")
        outcome = await run.result()
        if times <= 3:
            assert (outcome.outcome, outcome.output) == ("completed", "at last")
            run.send("and then?")
            assert (await run.result()).output == "more"
            await run.terminate()
        else:
            assert outcome.outcome == "failed"
            assert "4 times in a row" in outcome.reason
            assert observer.types(run.run_id)[-3:] == [
                "session:end", "agent:failed", "agent:complete"
            ]  # fmt: skip
        await run.finished()
    assert flaw.failed == min(times, 4)
    restores = [x for x in observer.of(run.run_id) if isinstance(x, AgentRestore)]
    assert [x.attempt for x in restores] == [2, 3, 4][:times]
    assert all("OSError: a flaw" in x.reason for x in restores)
    assert_one_life(observer.events, run.run_id)


@pytest.mark.spec("T-12")
async def test_a_finished_step_between_two_deaths_starts_the_count_again(
    journal: Journal, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    flaw = Flaw(monkeypatch)

    @tool
    async def look() -> str:
        flaw.times = 6  # The next answer fails again.
        return "seen"

    model = FunctionModel(
        lambda request: (
            "done" if isinstance(request.messages[-1], AssistantMessage) else call("look")
        )
    )
    async with Runtime([model_agent(model, look)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        flaw.times = 3
        run = await runtime.start("assistant", "hello")
        assert (await run.result()).output == "done"
    assert flaw.failed == 6
    assert [x.attempt for x in observer.all("agent:restore")] == [2, 3, 4, 2, 3, 4]


@pytest.mark.spec("T-12")
async def test_a_run_whose_loop_dies_before_its_start_is_recorded_fails_in_the_end(
    journal: Journal, ports: Ports
) -> None:
    class NoNow(FailingClock):
        opening = False

        def now(self) -> int:
            if self.opening:  # The opening itself gets its time, what the run writes does not.
                self.opening, self.times = False, 4
            elif self.failed < self.times:
                self.failed += 1
                raise OSError("no clock")
            return super().now()

    clock = NoNow(ports.clock)
    ports.clock = clock
    async with Runtime([model_agent(echo_model())], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        clock.opening = True
        run = await runtime.start("assistant", "hello")
        outcome = await run.finished()
    assert outcome.outcome == "failed"
    assert "OSError: no clock" in outcome.reason
    assert_one_life(observer.events, run.run_id)


async def test_children_of_a_caller_that_is_cancelled_end_too(
    journal: Journal, ports: Ports
) -> None:
    children: list[str] = []

    @agent("child")
    async def child(input: str, ctx: RunContext) -> None:
        await anyio.sleep_forever()

    @agent("parent")
    async def parent(input: str, ctx: RunContext) -> None:
        children.append(ctx.spawn("child", "x").run_id)
        await anyio.sleep_forever()

    async with Runtime([parent, child], store=journal, ports=ports) as runtime:
        with anyio.move_on_after(5):
            await runtime.run("parent", "x")
        outcome = await runtime.finished(children[0])
        assert outcome.outcome == "terminated"


async def test_usage_of_a_code_agent_is_that_of_its_sessions(
    journal: Journal, ports: Ports
) -> None:
    model = ScriptedModel([ModelReply(text="hi", usage=Usage(input_tokens=3, output_tokens=2))])

    @agent("asker")
    async def asker(input: str, ctx: RunContext) -> str:
        async with ctx.session(model=model) as session:
            await session.send(input)
            async for _ in session.receive():
                pass
            return session.text

    async with Runtime([asker], store=journal, ports=ports) as runtime:
        outcome = await runtime.run("asker", "hello")
    assert outcome.output == "hi"
    assert outcome.usage == Usage(input_tokens=3, output_tokens=2)


class TestCancelledFromWithin:
    """Code that awaits what somebody else has cancelled fails alone."""

    @pytest.fixture
    def anyio_backend(self) -> tuple[str, dict[str, Any]]:
        return "asyncio", {}

    async def test_a_code_agent(self, journal: Journal) -> None:
        @agent("careless")
        async def careless(input: str, ctx: RunContext) -> None:
            raise asyncio.CancelledError

        @agent("bystander")
        async def bystander(input: str, ctx: RunContext) -> str:
            async for message in ctx.messages():
                return message.content
            return ""

        async with Runtime([careless, bystander], store=journal) as runtime:
            other = await runtime.start("bystander", "x")
            outcome = await runtime.run("careless", "x")
            assert outcome.outcome == "failed"
            assert "cancelled" in outcome.reason
            await other.send("still here")
            assert (await other.result()).output == "still here"

    async def test_a_tool(self, journal: Journal) -> None:
        @tool
        async def careless() -> str:
            """Await a task that is cancelled."""
            task = asyncio.ensure_future(asyncio.sleep(60))
            asyncio.get_running_loop().call_soon(task.cancel)
            await task
            return "never"

        model = ScriptedModel([reply("", call("careless")), "I see."])
        async with Runtime([model_agent(model, careless)], store=journal) as runtime:
            for once in (True, False):
                run = await runtime.start("assistant", "go", once=once)
                outcome = await run.result()
                assert outcome.output == "I see."
                done = [x for x in await run.read() if x.type == "agent:tool:complete"]
                assert [x.is_error for x in done] == [True]


async def test_a_runtime_that_is_not_open_says_so(ports: Ports) -> None:
    runtime = Runtime([model_agent(echo_model())], ports=ports, store="memory")
    for call_it in (runtime.run, runtime.start):
        with pytest.raises(CallerError, match="not open"):
            await call_it("assistant", "x")


async def test_entering_twice_is_refused_and_harms_nobody(ports: Ports) -> None:
    async with Runtime([model_agent(echo_model())], ports=ports, store="memory") as runtime:
        with pytest.raises(CallerError, match="open already"):
            async with runtime:
                pass
        assert (await runtime.run("assistant", "x")).success


async def test_a_runtime_that_was_closed_says_so_when_it_is_entered_again(
    journal: Journal, ports: Ports
) -> None:
    """Left, cut off, or never opened for an error: it is not "open already"."""
    left = Runtime([], ports=ports, store=journal)
    async with left:
        pass
    refused = Runtime([], ports=ports, hub=left.hub)  # The hub is closed.
    with pytest.raises(Closed, match="the hub is closed"):
        await refused.__aenter__()
    shared = Hub()
    async with shared:
        on_shared = Runtime([], hub=shared)
        async with on_shared:
            pass
        async with Runtime([], hub=shared):  # The hub is free again.
            pass
        for runtime in (left, refused, on_shared):
            with pytest.raises(Closed, match=r"runtime is closed.*make a new one"):
                await runtime.__aenter__()
        with pytest.raises(CallerError, match="open already"):
            await shared.__aenter__()


async def test_a_runtime_that_failed_to_open_leaves_the_hub_to_others(ports: Ports) -> None:
    class NoNotes(MemoryJournal):
        is_broken = False

        async def notes(self, prefix: str = "") -> Any:
            if self.is_broken:
                raise OSError("no notes")
            return await super().notes(prefix)

    journal = NoNotes()
    async with Hub(journal=journal, ports=ports) as hub:
        journal.is_broken = True
        for _ in range(2):
            with pytest.raises(OSError, match="no notes"):
                await Runtime([], hub=hub).__aenter__()


async def test_a_second_runtime_on_one_hub_is_refused_and_harms_nobody(ports: Ports) -> None:
    async with Runtime([model_agent(echo_model())], ports=ports, store="memory") as runtime:
        with pytest.raises(BadValue, match="one Runtime per hub"):
            async with Runtime([model_agent(echo_model())], hub=runtime.hub):
                pass
        assert (await runtime.run("assistant", "x")).success


async def test_wrong_types_are_named_at_the_call(ports: Ports) -> None:
    @agent("talker")
    async def talker(input: str, ctx: RunContext) -> None:
        ctx.say(3)  # type: ignore[arg-type]

    async with Runtime([talker], ports=ports, store="memory") as runtime:
        with pytest.raises(BadValue, match="not int"):
            await runtime.start(3)  # type: ignore[arg-type]
        with pytest.raises(BadValue, match="expected an Event"):
            runtime.hub.emit("x")  # type: ignore[arg-type]
        with pytest.raises(BadValue, match="not callable"):
            runtime.hub.subscribe("agent:*", "x")  # type: ignore[call-overload]
        outcome = await runtime.run("talker", "x")
        assert "expected a str" in outcome.reason


@pytest.mark.spec("G-02")
async def test_what_a_task_of_a_run_raises_as_the_run_is_stopped_ends_no_other(
    journal: Journal, ports: Ports
) -> None:
    async def wait_and_raise() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("on the way out")

    @agent("two")
    async def two(input: Any, ctx: RunContext) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(wait_and_raise)
            await anyio.sleep_forever()

    @agent("other")
    async def other(input: Any, ctx: RunContext) -> str:
        await anyio.sleep(5)
        return "done"

    async with Runtime([two, other], store=journal, ports=ports) as runtime:
        run, beside = await runtime.start("two"), await runtime.start("other")
        await anyio.sleep(1)
        await run.terminate()
        assert (await run.finished()).outcome == "terminated"
        assert (await beside.result()).output == "done"
