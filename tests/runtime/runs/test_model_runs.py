"""Runs of model agents: turns, tool calls, failing models, and what is seen of them."""

from itertools import pairwise
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.agents import Observer, assert_one_life, echo_model, heard, model_agent
from support.profiles import examples

from hubbub import RunState, Runtime
from hubbub.agents.definitions.tools import ToolError, tool
from hubbub.agents.model import (
    AssistantMessage,
    ModelReply,
    ModelRequest,
    OnDelta,
    TextDelta,
    ThinkingDelta,
    UserMessage,
)
from hubbub.hub.events import AgentStep, AgentTextDelta, AgentToolComplete, ToolCall, Usage
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.models.scripted import Fault, FunctionModel, ScriptedModel, call, reply

pytestmark = pytest.mark.anyio


# ── S-01 ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("S-01")
async def test_the_model_answers_and_the_run_idles_between_messages(
    journal: Journal, ports: Ports
) -> None:
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        requests.append(request)
        return f"answer {len(requests)}"

    agents = [model_agent(FunctionModel(answer, latency=1))]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant")
        await run.result()
        assert requests == [], "nobody has said anything"
        for number, text in enumerate(("one", "two", "three"), 1):
            await run.send(text)
            assert (await run.result()).output == f"answer {number}"
            await anyio.sleep(3600)
            assert len(requests) == number, "idle: the model is not asked"
            assert runtime.hub.statistics().parked == 1
        await run.close()
        await run.finished()
    shown = [m.content if isinstance(m, UserMessage) else m.text for m in requests[-1].messages]
    assert shown == ["one", "answer 1", "two", "answer 2", "three"]
    assert requests[-1].system == "You help."
    assert observer.types(run.run_id, but=("session:taken", "agent:text:delta")) == [
        "agent:start", "agent:park",
        *["session:start", "agent:text", "agent:step", "session:end", "agent:park"] * 3,
        "agent:complete",
    ]  # fmt: skip
    assert_one_life(observer.events, run.run_id)


@pytest.mark.spec("S-01")
async def test_messages_that_arrive_while_the_run_works_are_read_at_the_next_step(
    journal: Journal, ports: Ports
) -> None:
    @tool
    async def look() -> str:
        await anyio.sleep(1)
        return "seen"

    requests: list[list[str]] = []

    def answer(request: ModelRequest) -> Any:
        requests.append(heard(request))
        return call("look") if len(requests) == 1 else "done"

    agents = [model_agent(FunctionModel(answer, latency=1), look)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "first")
        for pause, text in ((0.5, "while asked"), (1.0, "while looking"), (0.2, "still looking")):
            await anyio.sleep(pause)
            run.send(text)
        await run.result()
        sessions = [x for x in await run.read() if x.type == "session:start"]
    assert requests == [["first"], ["first", "while asked", "while looking", "still looking"]]
    assert len(sessions) == 1


# ── S-07, S-08 ───────────────────────────────────────────────────────────────────────────────


@tool
async def wait(seconds: float) -> str:
    await anyio.sleep(seconds)
    return f"waited {seconds:g}"


@tool
async def fail() -> None:
    raise ToolError("as it does")


@tool
def crash() -> None:
    raise ZeroDivisionError("inside")


@tool(timeout=2)
async def hang() -> None:
    await anyio.sleep_forever()


TOOLS = (wait, fail, crash, hang)


def results(request: ModelRequest) -> list[str]:
    """The results in the model's last step."""
    last = [m for m in request.messages if isinstance(m, AssistantMessage)][-1]
    return [f"{'!' if call.is_error else ''}{call.output}" for call in last.calls]


@pytest.mark.spec("S-07")
@pytest.mark.parametrize("parallel", [False, True])
async def test_every_call_has_one_result_before_the_next_model_call(
    parallel: bool, journal: Journal, ports: Ports
) -> None:
    calls = [
        ToolCall(name="wait", arguments='{"seconds": 1}', id="same"),
        ToolCall(name="nothing", id="same"),
        ToolCall(name="wait", arguments='{"seconds": "soon"}'),
        ToolCall(name="wait", arguments='{"seconds": 1'),
        ToolCall(name="fail"),
        ToolCall(name="crash"),
        ToolCall(name="hang"),
    ]
    shown: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        shown.append(request)
        return reply("", *calls) if len(shown) == 1 else "done"

    agents = [model_agent(FunctionModel(answer), *TOOLS, parallel_tool_calls=parallel)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go")
        assert (await run.result()).output == "done"
        recorded = await run.read()
    assert len(shown) == 2
    expected = [
        "waited 1", "!there is no tool named 'nothing'", "!Bad arguments for wait",
        "!Bad arguments for wait", "!as it does", "!ZeroDivisionError: inside", "!timed out",
    ]  # fmt: skip
    got = results(shown[1])
    assert len(got) == len(expected)
    for output, beginning in zip(got, expected, strict=True):
        assert output.startswith(beginning)
    indexes = [x.index for x in recorded if isinstance(x, AgentToolComplete)]
    assert sorted(indexes) == list(range(7))


@pytest.mark.spec("S-08")
async def test_calls_run_in_returned_order_unless_parallel_calls_are_enabled(
    journal: Journal, ports: Ports
) -> None:
    calls = [call("wait", seconds=seconds) for seconds in (3, 1, 2)]
    for parallel in (False, True):
        shown: list[ModelRequest] = []

        def answer(request: ModelRequest, shown: list[ModelRequest] = shown) -> Any:
            shown.append(request)
            return reply("", *calls) if len(shown) == 1 else "done"

        name = f"parallel-{parallel}"
        agents = [model_agent(FunctionModel(answer), wait, name=name, parallel_tool_calls=parallel)]
        async with Runtime(agents, store=journal, ports=ports) as runtime:
            observer = Observer(runtime.hub)
            before = ports.clock.monotonic()
            run = await runtime.start(name, "go")
            await run.result()
            took = ports.clock.monotonic() - before
            marks = [
                ("+" if x.type == "agent:tool:start" else "-") + str(x.index)
                for x in observer.of(run.run_id)
                if x.type.startswith("agent:tool:")
            ]
            await run.terminate()
        assert took == pytest.approx(3 if parallel else 6, abs=0.1)
        assert marks == (
            ["+0", "+1", "+2", "-1", "-2", "-0"]
            if parallel
            else ["+0", "-0", "+1", "-1", "+2", "-2"]
        )
        assert results(shown[1]) == ["waited 3", "waited 1", "waited 2"], "in call order"


steps = st.lists(
    st.lists(
        st.one_of(
            st.builds(lambda seconds: call("wait", seconds=seconds), st.integers(0, 3)),
            st.sampled_from([call("fail"), call("crash"), call("hang"), call("nothing")]),
            st.just(ToolCall(name="wait", arguments="{")),
        ),
        max_size=4,
    ),
    min_size=1,
    max_size=3,
)


def is_abort(item: Any) -> bool:
    return bool(item.type == "session:abort")


@pytest.mark.spec("S-07", "S-08", "T-03")
@example(
    steps=[[], [call("wait", seconds=2)], [call("wait", seconds=3)]],
    parallel=False,
    late=True,
    interrupt=10,
)
@given(steps=steps, parallel=st.booleans(), late=st.booleans(), interrupt=st.integers(0, 12))
@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_whatever_the_model_calls_the_next_request_is_complete(
    steps: list[list[ToolCall]], parallel: bool, late: bool, interrupt: int
) -> None:
    """Messages at any time and an interruption included: results match the calls, in order."""
    requests: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        requests.append(request)
        calls = steps[len(requests) - 1] if len(requests) <= len(steps) else []
        return reply("text", *calls)

    journal = LateJournal(MemoryJournal()) if late else MemoryJournal()
    ports = virtual_ports()
    agents = [model_agent(FunctionModel(answer, latency=1), *TOOLS, parallel_tool_calls=parallel)]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "m0")
        sent = ["m0"]
        for second in range(13):
            if second == interrupt:
                run.interrupt("stop")
            if second % 4 == 1:
                sent.append(f"m{second}")
                run.send(sent[-1])
            await anyio.sleep(0.9)
        await run.result()
        recorded = await run.read()
    for number, request in enumerate(requests):
        made = [m for m in request.messages if isinstance(m, AssistantMessage) and m.calls]
        names = [[each.name for each in message.calls] for message in made]
        expected = [[each.name for each in step] for step in steps[:number] if step]
        # A subsequence: a step whose answer was interrupted on its way has left no trace.
        rest = iter(expected)
        assert all(each in rest for each in names)
        assert heard(request) == sent[: len(heard(request))], "in order, none twice"
    items = [item for x in recorded if x.type == "session:taken" for item in x.items]
    taken = [x.input if x.type == "session:open" else x.content for x in items if not is_abort(x)]
    assert taken == sent, "each is taken once, in order"
    # An interruption may end the turn that took the last message before the model was asked.
    ends = [x.outcome for x in recorded if x.type == "session:end"]
    said = heard(requests[-1])
    assert said == sent or "(continue)" in said or ends[-1] == "interrupted"
    for step in [x for x in recorded if isinstance(x, AgentStep)]:
        indexes = [
            x.index for x in recorded if isinstance(x, AgentToolComplete) and x.step == step.step
        ]
        assert sorted(indexes) == list(range(len(step.calls)))


@pytest.mark.spec("D-04")
async def test_a_tool_is_given_the_run_it_works_for(journal: Journal, ports: Ports) -> None:
    seen: list[Any] = []

    @tool
    async def who(state: RunState) -> str:
        seen.append((state.run_id, state.root_run_id, state.agent, state.call_id))
        return "you"

    script = ScriptedModel([reply("", call("who"), call("who")), "done"])
    async with Runtime([model_agent(script, who)], store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go")
        await run.result()
        starts = [x for x in await run.read() if x.type == "agent:tool:start"]
    assert seen == [(run.run_id, run.run_id, "assistant", f"1.{index}") for index in (0, 1)]
    assert [start.call_id for start in starts] == ["1.0", "1.1"]


# ── M-03 ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("M-03")
@pytest.mark.parametrize("kind", ["rate_limit", "server", "connection", "cut", "garbled"])
async def test_what_may_pass_is_tried_again_and_seen(
    kind: str, journal: Journal, ports: Ports
) -> None:
    model = ScriptedModel([Fault(kind, times=4, after=5), "a fine answer"])
    async with Runtime([model_agent(model)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "go")
        outcome = await run.result()
    assert outcome.output == "a fine answer"
    retries = observer.all("agent:retry")
    assert [(x.step, x.attempt, x.kind) for x in retries] == [(1, n, kind) for n in (1, 2, 3, 4)]
    waits = [b.at - a.at for a, b in pairwise(retries)]
    assert waits == sorted(waits) and waits[0] > 0, "each wait is longer than the one before"
    (step,) = observer.all("agent:step")
    assert step.attempt == 5
    deltas = observer.all("agent:text:delta")
    assert {x.attempt for x in deltas} == ({1, 2, 3, 4, 5} if kind == "cut" else {5})
    assert "".join(x.text for x in deltas if x.attempt == 5) == "a fine answer"


@pytest.mark.spec("M-03")
@pytest.mark.parametrize("after", [0, 0.01])
async def test_a_provider_that_asks_for_no_wait_is_not_asked_again_at_once(
    after: float, journal: Journal, ports: Ports
) -> None:
    model = ScriptedModel([Fault("rate_limit", times=4, retry_after=after), "one"])
    async with Runtime([model_agent(model)], store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go")
        assert (await run.result()).output == "one"
        waits = [each.delay for each in await runtime.hub.read(types="agent:retry")]
        assert waits == sorted(waits) and waits[0] >= 0.25 and waits[-1] >= 2


@pytest.mark.spec("M-03")
async def test_retry_after_is_honoured(journal: Journal, ports: Ports) -> None:
    model = ScriptedModel(
        [Fault("rate_limit", retry_after=42.0), "one", Fault("rate_limit", retry_after=9999), "two"]
    )
    async with Runtime([model_agent(model)], store=journal, ports=ports) as runtime:
        before = ports.clock.monotonic()
        run = await runtime.start("assistant", "go")
        assert (await run.result()).output == "one"
        assert ports.clock.monotonic() - before == pytest.approx(42, abs=0.5)
        run.send("again")
        assert (await run.result()).outcome == "failed", "nobody waits for hours unawares"
        assert ports.clock.monotonic() - before == pytest.approx(42, abs=0.5)


@pytest.mark.spec("M-03")
@pytest.mark.parametrize(
    ("fault", "attempts"),
    [
        (Fault("server", times=None), 5),
        (Fault("empty", times=None), 2),
        (Fault("auth", times=None), 1),
        (Fault("request", times=None), 1),
    ],
)
async def test_retries_are_bounded_and_then_the_step_fails(
    fault: Fault, attempts: int, journal: Journal, ports: Ports
) -> None:
    model = ScriptedModel([fault, "never"])
    async with Runtime([model_agent(model)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "go")
        outcome = await run.result()
        info = await journal.info(run.run_id)
    assert len(observer.all("agent:retry")) == attempts - 1
    assert (outcome.success, outcome.outcome) == (False, "failed")
    assert outcome.reason
    assert info is not None and info.status == "parked", "the run goes on (decision 12)"
    assert observer.all("agent:failed") == []


@pytest.mark.spec("M-03")
async def test_one_empty_answer_is_forgiven(journal: Journal, ports: Ports) -> None:
    model = ScriptedModel([Fault("empty"), "there you are"])
    async with Runtime([model_agent(model)], store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go")
        assert (await run.result()).output == "there you are"


@pytest.mark.spec("M-03")
@pytest.mark.parametrize("stop", ["refusal", "length"])
async def test_refusal_and_truncation_are_kept_and_told(
    stop: str, journal: Journal, ports: Ports
) -> None:
    model = ScriptedModel([reply("I would ra", stop_reason=stop), "next"])
    async with Runtime([model_agent(model)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "go")
        assert (await run.result()).output == "I would ra"
        assert observer.first("agent:step").stop_reason == stop
        run.send("and?")
        assert (await run.result()).output == "next"


@pytest.mark.spec("M-03")
async def test_a_model_object_that_raises_fails_the_step_and_not_the_run(
    journal: Journal, ports: Ports
) -> None:
    class Broken:
        name = "broken"

        async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
            raise ZeroDivisionError("inside")

    async with Runtime([model_agent(Broken())], store=journal, ports=ports) as runtime:
        run = await runtime.start("assistant", "go")
        outcome = await run.result()
    assert outcome.outcome == "failed"
    assert "ZeroDivisionError: inside" in outcome.reason


# ── R-11 ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("R-11")
async def test_calls_usage_and_stop_reason_of_every_step_are_in_the_events(
    journal: Journal, ports: Ports
) -> None:
    usage = [Usage(input_tokens=n, output_tokens=n + 1) for n in (10, 20)]
    model = ScriptedModel(
        [
            reply("Let me.", call("wait", seconds=1), thinking="hm", usage=usage[0]),
            reply("Done.", usage=usage[1], stop_reason="stop_sequence"),
        ]
    )
    async with Runtime([model_agent(model, wait)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "go")
        await run.result()
    one, two = observer.all("agent:step")
    assert (one.step, one.calls, one.usage, one.stop_reason) == (
        1, (call("wait", seconds=1),), usage[0], "tools",
    )  # fmt: skip
    assert (two.step, two.calls, two.usage, two.stop_reason) == (2, (), usage[1], "stop_sequence")
    assert one.model == "scripted"
    start = observer.first("agent:tool:start")
    done = observer.first("agent:tool:complete")
    assert (start.name, start.arguments) == ("wait", '{"seconds":1}')
    assert (done.name, done.output, done.is_error) == ("wait", "waited 1", False)
    assert observer.first("agent:thinking").text == "hm"


@pytest.mark.spec("R-11")
async def test_a_text_is_reported_once_as_text_and_once_in_pieces(
    journal: Journal, ports: Ports
) -> None:
    model = ScriptedModel([reply("one two three", thinking="well well"), "four five"], latency=1)
    async with Runtime([model_agent(model)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        run = await runtime.start("assistant", "go")
        await run.result()
        run.send("more")
        await run.result()
    assert [x.text for x in observer.all("agent:text")] == ["one two three", "four five"]
    assert [x.text for x in observer.all("agent:thinking")] == ["well well"]
    own = [x for x in observer.events if x.lane == "own"]
    for step, text in ((1, "one two three"), (2, "four five")):
        deltas = [x for x in observer.all("agent:text:delta") if x.step == step]
        assert "".join(x.text for x in deltas) == text
        for delta in deltas:
            before = [x for x in observer.events[: observer.events.index(delta)] if x in own]
            assert delta.after_seq == before[-1].seq
            assert (delta.attempt, delta.block, delta.is_durable) == (1, 0, False)
    assert {x.text for x in observer.all("agent:thinking:delta")} == {"well well"}
    assert not [x for x in await journal_of(journal, run.run_id) if x.type.endswith(":delta")]


async def journal_of(journal: Journal, run_id: str) -> list[Any]:
    loaded = await journal.load(run_id)
    assert loaded is not None
    return list(loaded.events)


@pytest.mark.spec("R-11")
async def test_a_stream_drops_deltas_that_a_durable_event_has_overtaken(
    journal: Journal, ports: Ports
) -> None:
    model = ScriptedModel(["one two three", "four five"], latency=3)
    async with (
        Runtime([model_agent(model)], store=journal, ports=ports) as runtime,
        runtime.hub.subscribe("agent:*") as slow,
    ):
        run = await runtime.start("assistant", "go")
        await run.result()
        run.send("more")
        await anyio.sleep(2)  # Only the first piece of the second answer is there.
        first = [event async for event in _until(slow, "four ")]
    assert [x.text for x in first if isinstance(x, AgentTextDelta)] == ["four "]
    assert [x.text for x in first if x.type == "agent:text"] == ["one two three"]


@pytest.mark.spec("R-11")
async def test_nothing_is_kept_of_the_deltas_of_a_run_that_has_been_recorded_since(
    journal: Journal, ports: Ports
) -> None:
    model = ScriptedModel(["one two three"] * 5)
    async with Runtime([model_agent(model)], store=journal, ports=ports) as runtime:
        observer = Observer(runtime.hub)
        for _ in range(5):
            run = await runtime.start("assistant", "go")
            await run.result()
        assert len(observer.all("agent:text:delta")) == 15
        assert not runtime.hub.dispatcher._floors


async def _until(stream: Any, text: str) -> Any:
    async for event in stream:
        yield event
        if isinstance(event, AgentTextDelta) and event.text == text:
            return


@pytest.mark.spec("R-11")
async def test_a_restore_voids_the_partial_text_before_it(journal: Journal, ports: Ports) -> None:
    model = ScriptedModel(["one two three"], latency=3)
    agents = [model_agent(model)]
    async with Runtime(agents, store=journal, ports=ports, grace=0) as runtime:
        first = Observer(runtime.hub)
        run = await runtime.start("assistant", "go")
        await anyio.sleep(2.5)
    assert [x.text for x in first.all("agent:text:delta")] == ["one ", "two "]
    async with Runtime(agents, store=journal, ports=ports) as runtime:
        second = Observer(runtime.hub)
        assert (await runtime.result(run.run_id)).output == "one two three"
    assert second.types(run.run_id)[:2] == ["agent:restore", "agent:text:delta"]
    restore = second.first("agent:restore")
    assert all(x.after_seq >= restore.seq for x in second.all("agent:text:delta"))
    assert all(x.after_seq < restore.seq for x in first.all("agent:text:delta"))
    assert "".join(x.text for x in second.all("agent:text:delta")) == "one two three"


async def test_nobody_listening_means_no_deltas_are_made(journal: Journal, ports: Ports) -> None:
    class Curious:
        name = "curious"

        async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
            assert on_delta is not None
            on_delta(ThinkingDelta("hm"))
            on_delta(TextDelta("yes"))
            return ModelReply(text="yes")

    async with Runtime([model_agent(Curious())], store=journal, ports=ports) as runtime:
        numbers = [runtime.hub.dispatcher.number]
        for _ in range(3):
            leave = runtime.hub.subscribe("agent:text:delta", lambda event: None)
            if len(numbers) != 2:
                leave()
            await runtime.run("assistant", "go")
            leave()
            numbers.append(runtime.hub.dispatcher.number)
    assert [after - before for before, after in pairwise(numbers)] == [0, 1, 0]


async def test_many_runs_of_one_agent_at_once(journal: Journal, ports: Ports) -> None:
    async with Runtime([model_agent(echo_model())], store=journal, ports=ports) as runtime:
        before = ports.clock.monotonic()
        runs = [await runtime.start("assistant", f"{number}") for number in range(200)]
        for number, run in enumerate(runs):
            assert (await run.result()).output == f"echo: {number}"
        assert ports.clock.monotonic() - before < 2
