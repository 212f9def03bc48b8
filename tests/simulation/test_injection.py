"""Each fault at a real runtime: what is injected, and that the runtime meets it as promised."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from inspect import iscoroutinefunction
from typing import Any

import anyio
import pytest

from hubbub import AgentDefinition, PromptDefinition, Runtime, SideConfig, tool
from hubbub.agents.definitions.run_state import RunState
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.model import AssistantMessage, Delta, Model, ModelRequest, UserMessage
from hubbub.hub import events as e
from hubbub.hub.message import Message
from hubbub.hub.ports import Ports, SystemIds
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import EPOCH, InlineOffload, InlineWorker, LoopClock
from hubbub.runtime.models.http.messages import conversation
from hubbub.runtime.models.scripted import FunctionModel, ScriptedModel, call, reply
from hubbub.runtime.simulation.injection.wrappers import (
    UNKNOWN_TOOL,
    JumpingClock,
    Line,
    Plan,
    listeners,
    wrap_model,
    wrap_tool,
)
from hubbub.runtime.simulation.loop.seeded import run_seeded
from hubbub.runtime.simulation.story.faults import (
    ChannelFault,
    ClockJump,
    ListenerFault,
    ModelFault,
    ToolFault,
    WorldFault,
)

pytestmark = pytest.mark.anyio

LINE = "One two three four five six."


@tool
async def look(city: str) -> str:
    """Look at a city."""
    return f"sun in {city}"


@tool(timeout=None, idempotent=True)
def count(number: int, state: RunState) -> int:
    """Count one further."""
    return number + 1


def last(request: ModelRequest) -> str:
    """The latest words of the user."""
    return [m.content for m in request.messages if isinstance(m, UserMessage)][-1]


class World:
    """One runtime on one store, with a plan; everything it told stands in ``events``."""

    def __init__(
        self, faults: tuple[WorldFault, ...], model: Model, *tools: Tool[..., Any]
    ) -> None:
        self.plan = Plan(faults, LoopClock())
        self.journal: Journal = MemoryJournal()
        self.events: list[e.Event] = []
        self.requests: list[tuple[str, str, ModelRequest]] = []
        self.plan.on_request = lambda *asked: self.requests.append(asked)
        self.ports = Ports(
            clock=self.plan.clock, ids=SystemIds(0), offload=InlineOffload(),
            make_worker=InlineWorker,
        )  # fmt: skip
        prompt = PromptDefinition(
            name="prompt", prompt="You help.", model=wrap_model(model, self.plan),
            tools=[wrap_tool(each, self.plan) for each in tools], parallel_tool_calls=True,
        )  # fmt: skip
        self.agents = [
            AgentDefinition(name=name, side_a=SideConfig(prompt=prompt)) for name in ("ada", "bob")
        ]

    @asynccontextmanager
    async def life(self, **options: Any) -> AsyncIterator[Runtime]:
        runtime = Runtime(self.agents, store=self.journal, ports=self.ports, **options)
        self.plan.begin_life(runtime.hub, lambda: None)
        runtime.hub.subscribe("*", self.events.append)
        async with runtime:
            listeners(runtime.hub, self.plan)
            yield runtime
        self.plan.end_life()

    def all(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def assert_valid_histories(self) -> None:
        """Whatever a model was asked, every provider would have taken."""
        for _, _, request in self.requests:
            ids = [
                each.id
                for turn in conversation(request.messages)
                if isinstance(turn, AssistantMessage)
                for each in turn.calls
            ]
            assert len(set(ids)) == len(ids)


def looks(request: ModelRequest) -> Any:
    """Looks once for each message, then says so."""
    message = request.messages[-1]
    if isinstance(message, AssistantMessage):
        return f"answer: {message.calls[-1].output}"
    return reply("Let me look.", call("look", city="Paris"))


# ── where no fault is due ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("original", [look, count], ids=["async", "sync"])
async def test_a_wrapped_tool_is_the_tool_but_for_its_function(original: Tool[..., Any]) -> None:
    wrapped = wrap_tool(original, Plan((), LoopClock()))
    for field in fields(original):
        if field.name != "fn":
            assert getattr(wrapped, field.name) is getattr(original, field.name), field.name
    assert repr(wrapped) == repr(original)
    assert wrapped.__name__ == original.__name__
    assert iscoroutinefunction(wrapped.fn) == iscoroutinefunction(original.fn)
    again = tool(wrapped, timeout=original.timeout, idempotent=original.idempotent)
    assert again.schema == original.schema
    assert again.description == original.description
    assert again.is_async == original.is_async
    assert again.state_parameter == original.state_parameter


async def test_a_wrapped_model_is_the_model() -> None:
    model = ScriptedModel([reply(LINE, call("look", city="Rome"))], name="poet", latency=6, chunk=5)
    wrapped = wrap_model(model, Plan((), LoopClock()))
    assert isinstance(wrapped, Model)
    assert wrapped.name == "poet"
    seen = []
    for each in (model, wrapped):
        deltas: list[tuple[float, Delta]] = []
        begin = anyio.current_time()

        def heard(
            delta: Delta, deltas: list[tuple[float, Delta]] = deltas, begin: float = begin
        ) -> None:
            deltas.append((round(anyio.current_time() - begin, 6), delta))

        answer = await each.call(ModelRequest(messages=()), heard)
        seen.append((deltas, answer))
    assert seen[0] == seen[1]
    assert seen[0][1] is seen[1][1], "nothing is copied"


@pytest.mark.parametrize(
    "faults",
    [
        (),
        (ModelFault(agent="nobody", kind="hang"), ToolFault(tool="none", kind="hang")),
        (ModelFault(call=99, kind="error"), ToolFault(call=99, kind="raise")),
        (ModelFault(kind="bad_arguments", call=9), ChannelFault(kind="late", seconds=9)),
    ],
)
async def test_faults_that_are_not_due_leave_no_trace(faults: tuple[WorldFault, ...]) -> None:
    stories = []
    for each in ((), faults):
        world = World(each, FunctionModel(looks, latency=3), look)
        async with world.life() as rt:
            outcome = await rt.run("ada", "Hello?")
            assert outcome.output == "answer: sun in Paris"
        assert world.plan.log == []
        stories.append(world.events)
    assert stories[0] == stories[1]


async def test_a_call_is_known_by_its_agent_and_run_and_counts_go_on_over_lives() -> None:
    faults = (ModelFault(agent="bob", call=2, kind="error"), ModelFault(call=5, kind="error"))
    world = World(faults, FunctionModel(last))
    async with world.life() as rt:
        await rt.run("ada", "a1")
        await rt.run("bob", "b1")
    async with world.life() as rt:
        bob = await rt.run("bob", "b2")
        await rt.run("ada", "a2")
    assert world.plan.log == [("model", "error", "bob", 2), ("model", "error", "ada", 5)]
    assert [agent for agent, _, _ in world.requests] == ["ada", "bob", "bob", "bob", "ada", "ada"]
    assert bob.output == "b2"


async def test_the_caller_is_known_while_a_process_recovers() -> None:
    """A model is asked before anybody could listen to the new life's events."""
    world = World((ModelFault(agent="ada", call=2, kind="slow", seconds=9),), FunctionModel(last))
    async with world.life(grace=0) as rt:
        run = await rt.start("ada", "one")
        await run.result()
        rt.hub.send_to_run(run.run_id, "two")
        rt.hub.close()
    async with world.life() as rt:
        assert (await rt.result(run.run_id)).output == "two"
    assert world.plan.log == [("model", "slow", "ada", 2)]


# ── models (M-03, S-10) ──────────────────────────────────────────────────────────────────────


@pytest.mark.spec("S-10", "M-03")
async def test_a_model_that_hangs_is_given_up_and_asked_again() -> None:
    world = World((ModelFault(kind="hang"),), FunctionModel(last))
    async with world.life() as rt:
        outcome = await rt.run("ada", "Hello?")
        assert outcome.output == "Hello?"
    (retry,) = world.all(e.AgentRetry)
    assert "did not answer within 600 s" in retry.error
    assert world.events[-1].at - world.events[0].at > 600 * 1_000_000


@pytest.mark.spec("M-03")
@pytest.mark.parametrize("kind", ["error", "rate_limit", "cut", "empty"])
async def test_what_may_pass_is_tried_again_visibly(kind: Any) -> None:
    world = World((ModelFault(kind=kind),), FunctionModel(lambda request: LINE))
    async with world.life() as rt:
        assert (await rt.run("ada", "Hello?")).output == LINE
    (retry,) = world.all(e.AgentRetry)
    assert retry.kind == {"error": "server"}.get(kind, kind)
    assert world.plan.log == [("model", kind, "ada", 1)]
    assert len(world.requests) == 2
    world.assert_valid_histories()


@pytest.mark.spec("M-03")
@pytest.mark.parametrize(
    ("kind", "tries"), [("error", 5), ("rate_limit", 5), ("cut", 5), ("empty", 2)]
)
async def test_what_does_not_pass_fails_the_turn_and_the_conversation_goes_on(
    kind: Any, tries: int
) -> None:
    world = World((ModelFault(kind=kind),) * tries, FunctionModel(last))
    async with world.life() as rt:
        run = await rt.start("ada", "one")
        first = await run.result()
        assert first.outcome == "failed"
        assert len(world.requests) == tries
        await run.send("two")
        assert (await run.result()).output == "two"
    assert len(world.plan.log) == tries
    world.assert_valid_histories()


@pytest.mark.spec("M-03")
async def test_the_providers_retry_after_is_honoured() -> None:
    world = World((ModelFault(kind="rate_limit", seconds=77),), FunctionModel(last))
    async with world.life() as rt:
        await rt.run("ada", "Hello?")
    (retry,) = world.all(e.AgentRetry)
    (step,) = world.all(e.AgentStep)
    assert step.at - retry.at == pytest.approx(77 * 1_000_000, abs=1000)


@pytest.mark.spec("M-03")
async def test_what_was_streamed_before_the_cut_carries_its_attempt() -> None:
    world = World((ModelFault(kind="cut", seconds=2),), FunctionModel(lambda request: LINE))
    async with world.life() as rt:
        await rt.run("ada", "Hello?")
    told: dict[int, str] = {}
    for delta in world.all(e.AgentTextDelta):
        told[delta.attempt] = told.get(delta.attempt, "") + delta.text
    assert told == {1: LINE[: len(LINE) // 2], 2: LINE}
    assert [each.text for each in world.all(e.AgentText)] == [LINE], "durably said once"


@pytest.mark.spec("M-03")
async def test_truncated_arguments_are_an_error_that_the_model_reads() -> None:
    world = World((ModelFault(kind="bad_arguments"),), FunctionModel(looks), look)
    async with world.life() as rt:
        outcome = await rt.run("ada", "Hello?")
    (answer,) = world.all(e.AgentToolComplete)
    assert answer.is_error
    assert outcome.output == f"answer: {answer.output}"
    (step, _) = world.all(e.AgentStep)
    assert step.calls[0].arguments == '{"city":"Paris"', "the call stays as it was written"
    world.assert_valid_histories()


@pytest.mark.spec("M-03")
async def test_bad_arguments_wait_for_a_reply_with_calls() -> None:
    def answer(request: ModelRequest) -> Any:
        return looks(request) if last(request) == "Look!" else "Yes?"

    world = World((ModelFault(kind="bad_arguments"),), FunctionModel(answer), look)
    async with world.life() as rt:
        run = await rt.start("ada", "Hello?")
        assert (await run.result()).output == "Yes?"
        assert world.plan.log == []
        await run.send("Look!")
        await run.result()
    assert world.plan.log == [("model", "bad_arguments", "ada", 2)]


@pytest.mark.spec("M-03")
@pytest.mark.parametrize("has_calls", [True, False])
async def test_a_call_of_a_tool_that_is_not_there_is_answered_by_an_error(has_calls: bool) -> None:
    def answer(request: ModelRequest) -> Any:
        return looks(request) if has_calls or len(request.messages) > 1 else "No tool needed."

    world = World((ModelFault(kind="unknown_tool"),), FunctionModel(answer), look)
    async with world.life() as rt:
        outcome = await rt.run("ada", "Hello?")
    (step, *_) = world.all(e.AgentStep)
    assert [each.name for each in step.calls] == [UNKNOWN_TOOL]
    (answer,) = world.all(e.AgentToolComplete)
    assert answer.is_error and UNKNOWN_TOOL in answer.output
    assert outcome.output == f"answer: {answer.output}"
    world.assert_valid_histories()


@pytest.mark.spec("M-03")
async def test_an_id_that_was_used_before_is_renamed() -> None:
    def answer(request: ModelRequest) -> Any:
        steps = [m for m in request.messages if isinstance(m, AssistantMessage)]
        if len(steps) == 3:
            return "done"
        return reply("", call("look", city=f"A{len(steps)}"), call("look", city=f"B{len(steps)}"))

    faults = (ModelFault(kind="duplicate_id"),) * 2
    world = World(faults, FunctionModel(answer), look)
    async with world.life() as rt:
        assert (await rt.run("ada", "Hello?")).output == "done"
    assert [entry[1] for entry in world.plan.log] == ["duplicate_id"] * 2
    first, second, *_ = world.all(e.AgentStep)
    assert {each.id for each in first.calls} == {"again"}
    assert len({each.id for each in second.calls}) == 1
    world.assert_valid_histories()
    outputs = [each.output for each in world.all(e.AgentToolComplete)]
    assert sorted(outputs) == sorted(f"sun in {x}{n}" for n in range(3) for x in "AB")


async def test_a_slow_model_takes_longer_and_says_the_same() -> None:
    world = World((ModelFault(kind="slow", seconds=500),), FunctionModel(last, latency=2))
    async with world.life() as rt:
        assert (await rt.run("ada", "Hello?")).output == "Hello?"
    (step,) = world.all(e.AgentStep)
    assert step.at - EPOCH >= 502 * 1_000_000
    assert not world.all(e.AgentRetry)


# ── tools (S-10, D-04) ───────────────────────────────────────────────────────────────────────


@pytest.mark.spec("S-10")
async def test_a_tool_that_hangs_is_timed_out() -> None:
    world = World((ToolFault(tool="look", kind="hang"),), FunctionModel(looks), look)
    async with world.life() as rt:
        outcome = await rt.run("ada", "Hello?")
    assert outcome.output == "answer: timed out: the tool did not finish within 300 s"
    assert world.plan.log == [("tool", "hang", "look", 1)]


async def test_a_tool_without_a_timeout_hangs_until_the_faults_are_over() -> None:
    def counts(request: ModelRequest) -> Any:
        message = request.messages[-1]
        if isinstance(message, AssistantMessage):
            return message.calls[-1].output
        return call("count", number=1)

    world = World((ToolFault(kind="hang"),), FunctionModel(counts), count)
    async with world.life() as rt:
        run = await rt.start("ada", "one")
        await anyio.sleep(50_000)
        assert not world.all(e.AgentToolComplete)
        world.plan.end()
        assert (await run.result()).output == "RuntimeError: injected fault"
        await run.send("two")
        assert (await run.result()).output == "2"


@pytest.mark.parametrize("original", [look, count], ids=["async", "sync"])
async def test_a_tool_that_raises_is_an_error_that_the_model_reads(
    original: Tool[..., Any],
) -> None:
    def answer(request: ModelRequest) -> Any:
        message = request.messages[-1]
        if isinstance(message, AssistantMessage):
            return " ".join(each.output for each in message.calls)
        return reply("", call("look", city="Rome"), call("count", number=1))

    world = World(
        (ToolFault(tool=original.name, kind="raise"),), FunctionModel(answer), look, count
    )
    async with world.life() as rt:
        outcome = await rt.run("ada", "Hello?")
    told = {"look": "sun in Rome", "count": "2"}
    told[original.name] = "RuntimeError: injected fault"
    assert outcome.output == " ".join(told.values())


@pytest.mark.spec("S-10")
async def test_what_a_tool_returns_after_its_run_was_interrupted_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done: list[str] = []

    @tool(name="look")
    async def stubborn(city: str) -> str:
        done.append(city)
        return f"sun in {city}"

    world = World((ToolFault(kind="late", seconds=100),), FunctionModel(looks), stubborn)
    async with world.life() as rt:
        run = await rt.start("ada", "one")
        await anyio.sleep(10)
        assert done == ["Paris"], "it has had its effect"
        await rt.hub.interrupt(run.run_id)
        await run.result()
        await anyio.sleep(200)
        await run.send("two")
        assert (await run.result()).output == "answer: sun in Paris"
    first, second = world.all(e.AgentToolComplete)
    assert first.is_error and "interrupt" in first.output
    assert second.output == "sun in Paris"
    assert len(world.all(e.AgentComplete)) <= 1
    world.assert_valid_histories()


@pytest.mark.spec("S-10")
async def test_what_a_tool_returns_after_its_time_is_dropped() -> None:
    world = World((ToolFault(kind="late", seconds=1000),), FunctionModel(looks), look)
    async with world.life() as rt:
        run = await rt.start("ada", "one")
        assert "timed out" in (await run.result()).output
        await anyio.sleep(2000)
    (answer,) = world.all(e.AgentToolComplete)
    assert "timed out" in answer.output


async def test_nobody_waits_for_the_late_answers_of_a_dead_process() -> None:
    world = World((ToolFault(kind="late", seconds=10_000),), FunctionModel(looks), look)
    begin = anyio.current_time()
    async with world.life(grace=0) as rt:
        await rt.start("ada", "one")
        await anyio.sleep(10)
        world.plan.end_life()
    assert anyio.current_time() - begin == pytest.approx(10)


# ── listeners (H-01, H-05, H-18) ─────────────────────────────────────────────────────────────


@pytest.mark.spec("H-01")
async def test_a_listener_that_raises_is_reported_once_an_event_and_disturbs_nobody() -> None:
    faults = (ListenerFault(kind="raise", pattern="agent:*"), ListenerFault(kind="raise"))
    world = World(faults, FunctionModel(looks), look)
    async with world.life() as rt:
        assert (await rt.run("ada", "Hello?")).output == "answer: sun in Paris"
        await anyio.sleep(1)
    seen = [each for each in world.events if each.type != "hub:error"]
    heard = sum(1 + each.type.startswith("agent:") for each in seen)
    errors = world.all(e.HubErrorEvent)
    raised = [entry for entry in world.plan.log if entry[2] != "hub:error"]
    assert len(errors) == len(raised)
    assert len(raised) == heard > 10
    assert {each.error_type for each in errors} == {"RuntimeError"}
    assert len([entry for entry in world.plan.log if entry[2] == "hub:error"]) == len(errors)


@pytest.mark.spec("H-05", "H-18")
@pytest.mark.parametrize("kind", ["slow", "stuck"])
async def test_a_listener_that_lags_holds_up_nobody(kind: Any) -> None:
    plain = World((), FunctionModel(last, latency=1))
    lagging = World((ListenerFault(kind=kind, seconds=50),), FunctionModel(last, latency=1))
    stories = []
    for world in (plain, lagging):
        async with world.life(buffer=4) as rt:
            run = await rt.start("ada", "0")
            for number in range(1, 6):
                await run.result()
                await run.send(str(number))
            assert (await run.result()).output == "5"
            took = rt.ports.clock.monotonic()
            await anyio.sleep(1000)
            dropped = rt.hub.statistics().dropped
        stories.append((took, world.all(e.AgentText)))
    assert stories[0] == stories[1]
    assert dropped > 0
    log = [entry[2] for entry in lagging.plan.log]
    assert ("hub:gap" in log) == (kind == "slow"), "a gap is told to who comes back"
    if kind == "stuck":
        assert len(log) == 1


async def test_listeners_are_well_when_the_faults_are_over() -> None:
    faults = (ListenerFault(kind="stuck"), ListenerFault(kind="raise"), ListenerFault(kind="slow"))
    world = World(faults, FunctionModel(last))
    async with world.life() as rt:
        await rt.run("ada", "one")
        world.plan.end()
        done = len(world.plan.log)
        await rt.run("ada", "two")
        await anyio.sleep(1)
        assert rt.hub.statistics().dropped == 0
    assert len(world.plan.log) == done


# ── messages on their way (H-09) ─────────────────────────────────────────────────────────────


class Talk:
    """A user who says numbered things to one run."""

    def __init__(self, world: World, line: Line, run_id: str, rt: Runtime) -> None:
        self.receipts: list[Any] = []
        self._say = lambda text, key: rt.hub.send_to_run(
            run_id, Message(text, key=key), source="ada"
        )
        self._line = line

    async def say(self, text: str, key: str | None = None) -> Any:
        async def send(held_up: bool) -> Any:
            receipt = await self._say(text, key)
            self.receipts.append((text, receipt.status))
            return receipt

        return await self._line.bring(send)


@asynccontextmanager
async def talk(*faults: WorldFault) -> AsyncIterator[tuple[World, Talk]]:
    world = World(faults, FunctionModel(last))
    async with Line(world.plan) as line, world.life() as rt:
        run = await rt.start("ada")
        yield world, Talk(world, line, run.run_id, rt)


def taken(world: World) -> list[str]:
    """What the run has taken from its inbox, in order."""
    return [
        item.content
        for event in world.all(e.SessionTaken)
        for item in event.items
        if isinstance(item, e.SessionMessage)
    ]


async def test_messages_pass_in_order_where_no_fault_is_due() -> None:
    async with talk(ChannelFault(message=9, kind="late", seconds=5)) as (world, user):
        for text in "abc":
            assert (await user.say(text)).accepted
        await anyio.sleep(10)
        assert taken(world) == ["a", "b", "c"]
        assert world.plan.log == []


@pytest.mark.spec("H-09")
async def test_a_message_that_comes_twice_is_delivered_once_if_it_has_a_key() -> None:
    faults = (ChannelFault(kind="duplicate"), ChannelFault(message=3, kind="duplicate"))
    async with talk(*faults) as (world, user):
        assert (await user.say("a", key="1")).accepted
        await user.say("b", key="2")
        await user.say("c")
        await anyio.sleep(10)
        assert user.receipts == [
            ("a", "accepted"), ("a", "duplicate"), ("b", "accepted"),
            ("c", "accepted"), ("c", "accepted"),
        ]  # fmt: skip
        assert taken(world) == ["a", "b", "c", "c"]
        assert world.plan.log == [("channel", "duplicate", "", 1), ("channel", "duplicate", "", 3)]


async def test_a_message_that_is_overtaken_comes_after_the_next_one() -> None:
    async with talk(ChannelFault(message=2, kind="reorder", seconds=500)) as (world, user):
        await user.say("a")
        held = await user.say("b")
        assert held.status == "pending"
        begin = anyio.current_time()
        await user.say("c")
        await held
        assert anyio.current_time() == begin, "the next one has passed: nothing to wait for"
        assert held.accepted and held.run_id
        await user.say("d")
        await anyio.sleep(10)
        assert taken(world) == ["a", "c", "b", "d"]


async def test_a_message_that_nothing_overtakes_comes_all_the_same() -> None:
    async with talk(ChannelFault(kind="reorder", seconds=30)) as (world, user):
        begin = anyio.current_time()
        assert (await (await user.say("a"))).accepted
        assert anyio.current_time() - begin == pytest.approx(30)
        await anyio.sleep(1)
        assert taken(world) == ["a"]


async def test_a_late_message_comes_later_and_holds_up_nobody() -> None:
    async with talk(ChannelFault(kind="late", seconds=60)) as (world, user):
        held = await user.say("a")
        await user.say("b")
        await anyio.sleep(59)
        assert (taken(world), held.status) == (["b"], "pending")
        await anyio.sleep(2)
        assert (taken(world), held.status) == (["b", "a"], "accepted")


async def test_what_is_on_its_way_arrives_when_the_faults_are_over() -> None:
    async with talk(ChannelFault(kind="late", seconds=10_000)) as (world, user):
        held = await user.say("a")
        world.plan.end()
        await held
        await anyio.sleep(1)
        assert taken(world) == ["a"]


async def test_a_held_message_is_told_why_it_was_refused() -> None:
    world = World((ChannelFault(kind="late", seconds=5),), FunctionModel(last))
    async with Line(world.plan) as line, world.life() as rt:

        async def send(held_up: bool) -> Any:
            return rt.hub.send_to_run("nobody", "Hello?")

        held = await (await line.bring(send))
        assert (held.status, held.reason) == ("rejected", "unknown")


# ── the clock ────────────────────────────────────────────────────────────────────────────────


async def test_the_wall_clock_jumps_and_waiting_does_not_notice() -> None:
    noted: list[ClockJump] = []
    jumps = (ClockJump(at=20, seconds=-7200), ClockJump(at=10, seconds=3600))
    clock = JumpingClock(LoopClock(), jumps, noted.append)
    times = []
    begin = clock.monotonic()
    for _ in range(4):
        times.append(((clock.now() - EPOCH) / 1_000_000, clock.monotonic() - begin))
        await clock.sleep(8)
    assert times == [(0, 0), (8, 8), (3616, 16), (-3576, 24)]
    assert noted == [jumps[1], jumps[0]]


async def test_a_clock_that_has_settled_stays_where_it_is() -> None:
    plan = Plan((ClockJump(at=10, seconds=60), ClockJump(at=20, seconds=60)), LoopClock())
    plan.clock.now()
    await anyio.sleep(15)
    plan.end()
    await anyio.sleep(15)
    assert plan.clock.now() == EPOCH + 90 * 1_000_000
    assert plan.log == [("clock", 10, 60)]


@pytest.mark.parametrize("seconds", [86_400, -86_400, 0.25])
async def test_a_conversation_goes_on_over_a_jump_of_the_clock(seconds: float) -> None:
    """Timeouts, retries and order are not the wall clock's."""
    faults = (
        ClockJump(at=5, seconds=seconds), ClockJump(at=400, seconds=-seconds),
        ModelFault(call=2, kind="error"), ToolFault(call=2, kind="hang"),
    )  # fmt: skip
    world = World(faults, FunctionModel(looks, latency=3), look)
    begin = anyio.current_time()
    async with world.life() as rt:
        run = await rt.start("ada", "one")
        assert (await run.result()).output == "answer: sun in Paris"
        await run.send("two")
        assert "timed out" in (await run.result()).output
        assert 300 < anyio.current_time() - begin < 330
        await anyio.sleep(200)
        await run.send("three")
        assert (await run.result()).output == "answer: sun in Paris"
    own = [each for each in world.events if each.lane == "own" and each.run_id == run.run_id]
    assert [each.seq for each in own] == list(range(1, len(own) + 1))
    world.assert_valid_histories()


# ── what was found ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("latency", [0, 0.001])
def test_what_is_called_off_before_it_begins_never_begins(latency: float) -> None:
    """A task that is cancelled before its first turn runs up to its first wait all the same."""

    async def interrupted(turns: int) -> tuple[list[str], list[str]]:
        ran: list[str] = []

        @tool
        async def pay(bill: str) -> str:
            """Pay; there is no wait in it."""
            ran.append(bill)
            return "paid"

        def both(request: ModelRequest) -> Any:
            ran.append("asked")
            return reply("", call("pay", bill="one"), call("pay", bill="two"))

        world = World((), FunctionModel(both, latency=latency), pay)
        async with world.life() as rt:
            run = await rt.start("ada", "Pay!")
            await anyio.sleep(latency)
            for _ in range(turns):
                await anyio.lowlevel.checkpoint()
            if (await rt.hub.interrupt(run.run_id)).accepted:
                before = list(ran)
                await anyio.sleep(10)
                return before, ran
        return [], []

    for seed in range(20):
        for turns in range(1, 5):
            before, ran = run_seeded(lambda turns=turns: interrupted(turns), seed)  # type: ignore[misc]
            assert ran == before
