"""Answers that are large where a few words are expected: what they cost is bounded."""

import time
import tracemalloc
from contextlib import AsyncExitStack, suppress

import msgspec
import pytest
from support.anthropic_wire import AnthropicWire
from support.openai_wire import OpenAIWire
from support.provider_wires import event
from support.responses_wire import ResponsesWire

from hubbub.agents.model import ModelReply
from hubbub.hub.errors import ModelGarbled, ModelUnavailable, ProviderError
from hubbub.hub.values import Secret
from hubbub.runtime.models.anthropic.answer import AnthropicAnswer
from hubbub.runtime.models.conformance import HELLO, REPLY, ServerAnswer, serving
from hubbub.runtime.models.http import endpoint
from hubbub.runtime.models.http.errors import ProviderOrigin
from hubbub.runtime.models.http.halves import MAX_HALVED_BYTES, MAX_OBJECTS
from hubbub.runtime.models.http.members import MAX_PARTS
from hubbub.runtime.models.openai.answer import OpenAIAnswer
from hubbub.runtime.models.openai.model import OpenAIModel
from hubbub.runtime.models.responses.answer import ResponsesAnswer

pytestmark = pytest.mark.spec("M-03")

WIRES = {"anthropic": AnthropicWire(), "openai": OpenAIWire(), "responses": ResponsesWire()}
JSON = {"content-type": "application/json"}
KEY = "sk-very-secret-0123456789"
LARGE = 16 * 1024 * 1024

Answer = OpenAIAnswer | AnthropicAnswer | ResponsesAnswer


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: sockets know no other."""
    return request.param


def origin() -> ProviderOrigin:
    return ProviderOrigin("m", "http://u", "K", keyed=True, secrets=(Secret(KEY),))


def filled(frame: str, item: str, size: int = LARGE) -> bytes:
    """``frame`` with as many of ``item`` at its @ as fit into ``size``."""
    first, last = frame.encode().split(b"@")
    count = (size - len(frame)) // (len(item) + 1)
    return first + b",".join([item.encode()] * count) + last


def openai(more: str = "", outer: str = "") -> str:
    return f'{{"choices":[{{"message":{{"content":"a"{more}}},"finish_reason":"stop"}}]{outer}}}'


THINKS = '{"object":"response","output":[{"type":"message","content":[@]}]}'
CALLS = ',"tool_calls":[{"function":{"name":"f",%s}}]'

BODIES: dict[str, tuple[type[Answer], str, str]] = {
    "usage": (OpenAIAnswer, openai(outer=',"usage":[@]'), "[]"),
    "usage of objects": (OpenAIAnswer, openai(outer=',"usage":[@]'), "{}"),
    "error": (OpenAIAnswer, '{"error":[@]}', "[]"),
    "error of a text": (OpenAIAnswer, '{"error":{"message":"@"}}', "a "),
    "choices": (OpenAIAnswer, '{"choices":[@]}', '{"message":{"content":"a"}}'),
    "few choices": (OpenAIAnswer, '{"choices":[@]}', '{"message":{"content":"%s"}}' % ("a" * 30)),
    "half": (OpenAIAnswer, '{"choices":[{"message":{"content":"\\ud83d"}}],"usage":[@]}', "[]"),
    "reasoning": (OpenAIAnswer, openai(',"reasoning":[@]'), "[]"),
    "calls": (OpenAIAnswer, openai(',"tool_calls":[@]'), '{"id":"%s"}' % ("q" * 25)),
    "arguments": (OpenAIAnswer, openai(CALLS % '"arguments":{"x":[@]}'), "[]"),
    "extra": (OpenAIAnswer, openai(',"tool_calls":[{"extra_content":{"google":[@]}}]'), "[]"),
    "content": (OpenAIAnswer, '{"choices":[{"message":{"content":[@]}}]}', '"xy"'),
    "blocks": (AnthropicAnswer, '{"type":"message","content":[@]}', '{"type":"text","text":"a"}'),
    "input": (
        AnthropicAnswer,
        '{"type":"message","content":[{"type":"tool_use","input":{"x":[@]}}]}',
        "[]",
    ),
    "counts": (AnthropicAnswer, '{"type":"message","content":[],"usage":[@]}', "[]"),
    "message": (AnthropicAnswer, '{"type":"error","error":{"message":"@"}}', "a "),
    "items": (ResponsesAnswer, '{"object":"response","output":[@]}', '{"type":"message"}'),
    "parts": (ResponsesAnswer, THINKS, "{}"),
    "few parts": (ResponsesAnswer, THINKS, '{"text":"%s"}' % ("a" * 22)),
    "tokens": (ResponsesAnswer, '{"object":"response","output":[],"usage":[@]}', "[]"),
    "reason": (ResponsesAnswer, '{"error":{"message":"@"}}', "a "),
}


def read(reads: type[Answer], body: bytes) -> None:
    answer = reads(origin(), lambda _: None)
    with suppress(ProviderError, msgspec.DecodeError):
        answer.body(body)
        answer.reply("m")


# ── time and memory ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", BODIES)
def test_the_largest_body_is_read_or_refused_without_holding_up_the_loop(name: str) -> None:
    reads, frame, item = BODIES[name]
    body = filled(frame, item)
    began = time.process_time()
    read(reads, body)
    assert time.process_time() - began < 0.5, "it takes a tenth of a second"


@pytest.mark.parametrize("name", ["usage", "error", "few choices", "content", "few parts"])
def test_what_is_made_of_the_largest_body_is_no_more_than_some_times_its_size(name: str) -> None:
    reads, frame, item = BODIES[name]
    body = filled(frame, item)
    tracemalloc.start()
    try:
        read(reads, body)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 130_000_000


@pytest.mark.parametrize(
    ("reads", "frame", "item"),
    [
        (OpenAIAnswer, '{"choices":[@]}', '{"delta":{"content":"a"}}'),
        (OpenAIAnswer, '{"choices":[],"usage":[@]}', "[]"),
        (OpenAIAnswer, '{"error":[@]}', "[]"),
        (AnthropicAnswer, '{"type":"message_start","message":{"usage":[@]}}', "[]"),
        (ResponsesAnswer, '{"type":"response.completed","response":{"output":[@]}}', "[]"),
        (ResponsesAnswer, '{"type":"response.unknown","delta":[@]}', "[]"),
    ],
    ids=["choices", "usage", "error", "message", "response", "delta"],
)
def test_nor_does_the_largest_event(reads: type[Answer], frame: str, item: str) -> None:
    data = filled(frame, item, 8 * 1024 * 1024)
    answer = reads(origin(), lambda _: None)
    began = time.process_time()
    with suppress(ProviderError, msgspec.DecodeError):
        answer.event(data)
    assert time.process_time() - began < 0.25, "it takes a twentieth of a second"


def test_the_largest_answer_with_half_a_pair_takes_no_longer() -> None:
    frame = '{"choices":[{"message":{"content":"\\ud83d","reasoning":[@]}}],"usage":[]}'
    answer = OpenAIAnswer(origin(), lambda _: None)
    began = time.process_time()
    answer.body(filled(frame, "{}", MAX_HALVED_BYTES))
    assert time.process_time() - began < 0.5
    assert answer.reply("m").text == "\ud83d"
    with pytest.raises(msgspec.DecodeError):
        answer.body(filled(frame, "{}", MAX_HALVED_BYTES + 1000))


# ── bounds ───────────────────────────────────────────────────────────────────────────────────


async def asked(provider: str, answer: ServerAnswer) -> ModelReply:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(answer))
        model = WIRES[provider].make(server.url)
        stack.push_async_callback(model.aclose)
        return await model.call(HELLO)


@pytest.mark.anyio
@pytest.mark.parametrize("provider", WIRES)
async def test_a_whole_body_is_read_up_to_its_limit_and_a_stream_beyond(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = WIRES[provider]
    body, stream = wire.whole(REPLY), wire.stream(REPLY)
    monkeypatch.setattr(endpoint, "MAX_BODY_BYTES", len(body))
    assert sum(map(len, stream)) > len(body)
    for answer in (ServerAnswer([body], headers=JSON), ServerAnswer(stream)):
        assert (await asked(provider, answer)).text == REPLY.text
    larger = ServerAnswer([body[:50], body[50:] + b" "], headers=JSON, end="hold")
    with pytest.raises(ModelGarbled, match=f"the answer is larger than {len(body)} bytes"):
        await asked(provider, larger)


@pytest.mark.parametrize(
    ("reads", "frame", "item", "what"),
    [
        (OpenAIAnswer, openai(',"tool_calls":[@]'), '{"id":"a"}', "calls"),
        (OpenAIAnswer, '{"choices":[{"message":{"content":[@]}}]}', "{}", "parts of content"),
        (AnthropicAnswer, '{"type":"message","content":[@]}', '{"type":"text"}', "blocks"),
        (ResponsesAnswer, '{"object":"response","output":[@]}', '{"type":"message"}', "items"),
    ],
    ids=["calls", "content", "blocks", "items"],
)
def test_more_parts_than_anybody_needs_are_refused(
    reads: type[Answer], frame: str, item: str, what: str
) -> None:
    size = len(frame) + MAX_PARTS * (len(item) + 1)
    reads(origin(), None).body(filled(frame, item, size))
    with pytest.raises(msgspec.ValidationError, match=f"more than 50,000 {what}"):
        reads(origin(), None).body(filled(frame, item, size + len(item) + 1))


def test_objects_are_counted_before_they_are_made() -> None:
    frame, item = '{"choices":[@]}', '{"index": 1}'
    size = len(frame) + MAX_OBJECTS * (len(item) + 1)
    OpenAIAnswer(origin(), None).event(filled(frame, item, size - 20))
    with pytest.raises(msgspec.DecodeError, match="more than 500,000 objects"):
        OpenAIAnswer(origin(), None).event(filled(frame, item, size))


# ── errors ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.anyio
@pytest.mark.parametrize("status", [200, 429])
async def test_a_large_error_is_quoted_in_part_and_counts_by_its_code(status: int) -> None:
    body = b'{"error": {"message": "%s", "code": 429}}' % (b"slow down " * 500_000)
    with pytest.raises(ModelUnavailable) as caught:
        await asked("openai", ServerAnswer([body], status=status, headers=JSON))
    assert caught.value.status == 429
    assert "slow down slow down" in str(caught.value)
    assert len(str(caught.value)) < 700


@pytest.mark.anyio
@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "body"])
async def test_no_part_of_a_key_is_quoted_wherever_an_error_is_cut(is_stream: bool) -> None:
    for blanks in (*range(9_970, 10_005, 5), *range(65_480, 65_540, 7)):
        error = {"error": {"message": " " * blanks + KEY * 3 + " is no key"}}
        answer = (
            ServerAnswer([event(error)])
            if is_stream
            else ServerAnswer([msgspec.json.encode(error)], headers=JSON)
        )
        async with serving(answer) as server:
            model = OpenAIModel("m", key=KEY, base_url=server.url)
            with pytest.raises(ModelUnavailable) as caught:
                await model.call(HELLO)
            await model.aclose()
        assert KEY[:6] not in str(caught.value)


# ── forms ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ('{ "x" : [1, "a b"] }', '{"x":[1,"a b"]}'),
        ('"{\\"x\\": 1}"', '{"x": 1}'),
        ("null", "{}"),
        ('""', "{}"),
    ],
)
def test_arguments_are_a_text_or_an_object(given: str, arguments: str) -> None:
    body = openai(CALLS % f'"arguments":{given}').encode()
    answer = OpenAIAnswer(origin(), None)
    answer.body(body)
    assert [call.arguments for call in answer.reply("m").calls] == [arguments]
    with pytest.raises(msgspec.ValidationError, match="neither a text nor an object"):
        answer.body(openai(CALLS % '"arguments":[1]').encode())


@pytest.mark.parametrize("given", ["{}", "[]", "null", '""'])
def test_an_input_that_holds_nothing_is_no_arguments(given: str) -> None:
    """Some languages write an empty object as an empty list."""
    answer = AnthropicAnswer(origin(), None)
    block = f'{{"type":"tool_use","id":"t","name":"f","input":{given}}}'
    answer.body(f'{{"type":"message","content":[{block}]}}'.encode())
    assert [call.arguments for call in answer.reply("m").calls] == ["{}"]
