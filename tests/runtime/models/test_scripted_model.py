"""``ScriptedModel`` and ``FunctionModel``: deterministic, stateless, with latency and faults."""

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.agents.model import (
    AssistantMessage,
    CallDelta,
    Delta,
    Model,
    ModelReply,
    ModelRequest,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    UserMessage,
    parse_arguments,
)
from hubbub.hub.errors import (
    BadValue,
    DefinitionError,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
    ProviderError,
)
from hubbub.runtime.models.scripted import Fault, FunctionModel, ScriptedModel, call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("M-01")]


def asked(steps: int = 0, attempt: int = 1) -> ModelRequest:
    """A request in which the model has already spoken ``steps`` times."""
    said = (AssistantMessage(text="so"), UserMessage(content="go on")) * steps
    return ModelRequest(messages=(UserMessage(content="hello"), *said), attempt=attempt)


class Sleeps:
    """A clock that notes how long it was asked to sleep."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_the_step_is_the_number_of_assistant_messages() -> None:
    model = ScriptedModel(["one", reply("two", call("look")), call("stop")])
    assert isinstance(model, Model)
    assert [(await model.call(asked(n))).text for n in (0, 1, 2)] == ["one", "two", ""]
    assert (await model.call(asked(2))).calls == (ToolCall(name="stop"),)
    assert (await model.call(asked(2))).stop_reason == "tools"
    assert (await model.call(asked(0))).text == "one", "asking again repeats the answer"


async def test_any_number_of_runs_share_one_script() -> None:
    model = ScriptedModel([str(n) for n in range(5)], latency=0.001)
    seen: dict[int, list[str]] = {}

    async def run(number: int) -> None:
        seen[number] = [(await model.call(asked(step))).text for step in range(5)]

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(run, number)
    assert all(texts == ["0", "1", "2", "3", "4"] for texts in seen.values())


async def test_an_exhausted_script_says_what_to_add() -> None:
    model = ScriptedModel(["one"], name="short")
    with pytest.raises(ModelRefused, match=r"1 steps .* number 2; add a reply") as caught:
        await model.call(asked(1))
    assert (caught.value.kind, caught.value.model) == ("script", "short")
    with pytest.raises(ModelRefused, match="0 steps"):
        await ScriptedModel([], repeat=True).call(asked())


async def test_repeat_begins_again() -> None:
    model = ScriptedModel(["a", Fault("server"), "b"], repeat=True)
    assert (await model.call(asked(2))).text == "a"
    with pytest.raises(ModelUnavailable):
        await model.call(asked(3))
    assert (await model.call(asked(3, attempt=2))).text == "b"


async def test_a_function_in_a_script_sees_the_request() -> None:
    model = ScriptedModel([lambda request: f"{len(request.messages)} messages"])
    assert (await model.call(asked())).text == "1 messages"


@pytest.mark.spec("M-03")
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("rate_limit", ModelUnavailable),
        ("server", ModelUnavailable),
        ("connection", ModelUnavailable),
        ("timeout", ModelUnavailable),
        ("cut", ModelUnavailable),
        ("auth", ModelRefused),
        ("request", ModelRefused),
        ("garbled", ModelGarbled),
    ],
)
async def test_a_fault_fails_its_attempts_and_then_the_reply_comes(
    kind: str, error: type[ProviderError]
) -> None:
    model = ScriptedModel([Fault(kind, times=2, retry_after=3.0, status=599), "fine"])
    for attempt in (1, 2, 1):
        with pytest.raises(error) as caught:
            await model.call(asked(attempt=attempt))
        assert type(caught.value) is error
        assert caught.value.kind == kind
        assert (caught.value.retry_after, caught.value.status) == (3.0, 599)
    assert (await model.call(asked(attempt=3))).text == "fine"


async def test_faults_before_one_reply_take_their_attempts_in_turn() -> None:
    model = ScriptedModel([Fault("server", times=2), Fault("rate_limit"), "fine"])
    kinds = []
    for attempt in range(1, 4):
        with pytest.raises(ModelUnavailable) as caught:
            await model.call(asked(attempt=attempt))
        kinds.append(caught.value.kind)
    assert kinds == ["server", "server", "rate_limit"]
    assert (await model.call(asked(attempt=4))).text == "fine"


async def test_a_fault_for_ever_needs_no_reply() -> None:
    model = ScriptedModel(["one", Fault("server", times=None)])
    with pytest.raises(ModelUnavailable):
        await model.call(asked(1, attempt=99))
    with pytest.raises(ModelRefused, match="add a reply"):
        await ScriptedModel([Fault("server")]).call(asked(attempt=2))
    with pytest.raises(ModelRefused, match="add a reply"):
        await ScriptedModel([Fault("delay")]).call(asked())


@pytest.mark.spec("M-03")
async def test_a_cut_stream_hands_out_its_beginning() -> None:
    model = ScriptedModel([Fault("cut", after=7), "hello wonderful world"])
    deltas: list[Delta] = []
    with pytest.raises(ModelUnavailable) as caught:
        await model.call(asked(), deltas.append)
    assert caught.value.kind == "cut"
    assert deltas == [TextDelta("hello "), TextDelta("w")]


@pytest.mark.spec("M-03")
async def test_malformed_arguments_and_empty_output_are_replies() -> None:
    script = [Fault("malformed"), Fault("empty"), reply("look", call("look", city="Rome"))]
    model = ScriptedModel(script)
    malformed = await model.call(asked())
    assert malformed.text == "look"
    with pytest.raises(ValueError, match="truncated"):
        parse_arguments(malformed.calls[0].arguments)
    assert (await model.call(asked(attempt=2))).is_empty
    assert (await model.call(asked(attempt=3))).calls[0].arguments == '{"city":"Rome"}'


async def test_a_hanging_call_ends_when_it_is_cancelled() -> None:
    with anyio.move_on_after(0.01) as scope:
        await ScriptedModel([Fault("hang"), "never"]).call(asked())
    assert scope.cancelled_caught


async def test_latency_and_delay_are_slept_on_the_clock() -> None:
    clock = Sleeps()
    model = ScriptedModel([Fault("delay", seconds=5), "one two"], latency=2.0, clock=clock)
    await model.call(asked())
    assert clock.slept == [5, 2.0]
    clock.slept.clear()
    await model.call(asked(attempt=2), lambda _: None)
    assert clock.slept == [1.0, 1.0], "the latency is spread over the deltas"


async def test_deltas_come_in_the_order_of_a_provider() -> None:
    answer = reply("one  two\n", call("a", x=1), call("b"), thinking="hm")
    deltas: list[Delta] = []
    await ScriptedModel([answer]).call(asked(), deltas.append)
    assert deltas == [
        ThinkingDelta("hm"),
        TextDelta("one  "),
        TextDelta("two\n"),
        CallDelta(0, "a", '{"x":1}'),
        CallDelta(1, "b", "{}"),
    ]


@given(st.text(), st.one_of(st.none(), st.integers(1, 5)))
def test_concatenated_deltas_are_the_text(text: str, chunk: int | None) -> None:
    deltas: list[Delta] = []
    coroutine = ScriptedModel([text], chunk=chunk).call(asked(), deltas.append)
    with pytest.raises(StopIteration) as finished:
        # Without latency and fault nothing waits: one step of the coroutine is all of it.
        coroutine.send(None)
    assert finished.value.value.text == text
    assert "".join(each.text for each in deltas) == text


def test_a_script_is_checked_when_it_is_made() -> None:
    with pytest.raises(DefinitionError, match=r"script\[0\] is a int.*script\[2\] is a list"):
        ScriptedModel([1, "fine", []])  # type: ignore[list-item]
    with pytest.raises(BadValue, match="unknown kind; one of rate_limit, server"):
        Fault("explode")
    with pytest.raises(BadValue, match="times"):
        Fault("server", times=0)
    with pytest.raises(BadValue, match="chunk"):
        ScriptedModel([], chunk=0)
    assert repr(ScriptedModel(["a", Fault("server"), "b"])) == "ScriptedModel('scripted', 2 steps)"


async def test_a_function_model_may_be_plain_or_async() -> None:
    def plain(request: ModelRequest) -> str:
        return request.messages[0].content.upper()  # type: ignore[union-attr]

    async def slow(request: ModelRequest) -> ModelReply:
        await anyio.lowlevel.checkpoint()
        return ModelReply(text="slow", model="mine")

    assert await FunctionModel(plain).call(asked()) == ModelReply(text="HELLO", model="function")
    assert await FunctionModel(slow).call(asked()) == ModelReply(text="slow", model="mine")
    thought = ModelReply(thinking=(Thinking(text="hm"),))
    assert (await FunctionModel(lambda _: thought).call(asked())).thinking == thought.thinking


async def test_a_function_model_may_answer_with_a_fault() -> None:
    def flaky(request: ModelRequest) -> str | Fault:
        return Fault("rate_limit") if request.attempt == 1 else "fine"

    with pytest.raises(ModelUnavailable):
        await FunctionModel(flaky).call(asked())
    assert (await FunctionModel(flaky).call(asked(attempt=2))).text == "fine"
    with pytest.raises(ModelRefused, match="no reply to act on"):
        await FunctionModel(lambda _: Fault("malformed")).call(asked())


async def test_what_a_function_raises_is_a_refusal_with_its_name() -> None:
    def broken(request: ModelRequest) -> str:
        raise KeyError("city")

    with pytest.raises(ModelRefused, match=r"broken raised KeyError: 'city'") as caught:
        await FunctionModel(broken).call(asked())
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(ModelRefused, match="got a NoneType; return a str"):
        await FunctionModel(lambda _: None).call(asked())  # type: ignore[arg-type,return-value]
