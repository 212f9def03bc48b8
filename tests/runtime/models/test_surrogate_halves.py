"""Halves of surrogate pairs in an answer: a server may cut what it says by UTF-16 units."""

import json
import re
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.anthropic_wire import AnthropicWire
from support.openai_wire import OpenAIWire
from support.profiles import examples
from support.responses_wire import ResponsesWire

from hubbub.agents.model import (
    CallDelta,
    Delta,
    ModelReply,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    reply_problem,
)
from hubbub.hub.errors import ModelGarbled, ModelRefused, ModelUnavailable
from hubbub.hub.texts import readable
from hubbub.runtime.models.conformance import ServerAnswer
from hubbub.runtime.models.conformance.wire import ProviderWire, answered
from hubbub.runtime.models.http.halves import WholeDeltas

pytestmark = pytest.mark.spec("M-03")

WIRES: dict[str, ProviderWire] = {
    "anthropic": AnthropicWire(), "openai": OpenAIWire(), "responses": ResponsesWire(),
}  # fmt: skip
FIRST, SECOND = "\ue000", "\ue001"
"""What stands for the halves until the bytes are made: deltas are cut after seven characters."""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: sockets know no other."""
    return request.param


def sent(text: str) -> ModelReply:
    """A reply that says ``text`` wherever a model may say something."""
    arguments = json.dumps({"c": text}, ensure_ascii=False)
    return ModelReply(
        text=text, thinking=(Thinking(text=text, signature="c2ln"),),
        calls=(ToolCall(id="toolu_1", name="get_weather", arguments=arguments),),
        stop_reason="tools", model="m",
    )  # fmt: skip


def in_halves(data: bytes) -> bytes:
    for name, half in ((FIRST, rb"\ud83d"), (SECOND, rb"\ude00")):
        data = data.replace(name.encode(), half).replace(ascii(name)[1:-1].encode(), half)
    return data


TEXTS = {
    "cut": ("abcdef" + FIRST + SECOND + " there", "abcdef😀 there"),
    "many": (("é" + FIRST + SECOND) * 12, "é😀" * 12),
    "first alone": ("abcdef" + FIRST + "xyz", "abcdef�xyz"),
    "second alone": ("abcdefg" + SECOND + "xyz", "abcdefg�xyz"),
    "the wrong way round": ("abcdef" + SECOND + FIRST + "x", "abcdef��x"),
    "first at the end": ("abcdef" + FIRST, "abcdef�"),
}


@pytest.mark.anyio
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("provider", WIRES)
async def test_halves_of_a_character_in_two_deltas_are_one_character(
    provider: str, text: str
) -> None:
    said, read = TEXTS[text]
    wire = WIRES[provider]
    stream = [in_halves(each) for each in wire.stream(wire.carried(sent(said)))]
    reply, deltas = await answered(wire, ServerAnswer(stream))
    expected = wire.carried(sent(read))
    assert (reply.text, reply.calls) == (expected.text, expected.calls)
    assert [each.text for each in reply.thinking] == [each.text for each in expected.thinking]
    assert reply_problem(reply) == ""
    told = {
        kind: "".join(each.text for each in deltas if isinstance(each, kind))
        for kind in (TextDelta, ThinkingDelta, CallDelta)
    }
    assert told[TextDelta] == reply.text
    assert told[ThinkingDelta] == "".join(each.text for each in reply.thinking)
    assert told[CallDelta] == reply.calls[0].arguments
    for each in deltas:
        each.text.encode()


@pytest.mark.anyio
@pytest.mark.parametrize("provider", WIRES)
async def test_halves_in_a_whole_body_are_read_too(provider: str) -> None:
    wire = WIRES[provider]
    body = in_halves(wire.whole(wire.carried(sent("a" + FIRST + "b" + SECOND))))
    reply, _ = await answered(
        wire, ServerAnswer([body], headers={"content-type": "application/json"})
    )
    assert reply.text == "a�b�"
    assert json.loads(reply.calls[0].arguments) == {"c": "a�b�"}


@pytest.mark.anyio
@pytest.mark.parametrize("provider", WIRES)
async def test_a_half_wherever_it_stands_is_read_or_an_error_of_the_provider(
    provider: str,
) -> None:
    wire = WIRES[provider]
    whole = b"".join(wire.stream(wire.carried(sent("hello"))))
    places = list(re.finditer(rb'(?<=")[a-z_]+(?=")', whole))
    assert len(places) > 20
    for place in places[:: len(places) // 20]:
        body = whole[: place.end()] + rb"\ud83d" + whole[place.end() :]
        with suppress(ModelGarbled, ModelRefused, ModelUnavailable):
            reply, _ = await answered(wire, ServerAnswer([body]))
            assert reply_problem(reply) == ""


@pytest.mark.anyio
async def test_half_of_a_pair_in_an_error_inside_the_stream_is_quoted() -> None:
    body = b'data: {"error": {"message": "no \\ud83d", "code": 429}}\n\n'
    with pytest.raises(ModelUnavailable, match=r"429.*no �"):
        await answered(WIRES["openai"], ServerAnswer([body]))


@pytest.mark.anyio
async def test_half_of_a_pair_in_arguments_given_as_an_object_is_read() -> None:
    whole = {
        "id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
        "content": [{"type": "tool_use", "id": "t", "name": "n", "input": {"c": "a\ud83d"}}],
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip
    answer = ServerAnswer(
        [json.dumps(whole).encode()], headers={"content-type": "application/json"}
    )
    reply, _ = await answered(WIRES["anthropic"], answer)
    assert json.loads(reply.calls[0].arguments) == {"c": "a�"}


@given(st.lists(st.text(st.sampled_from("aé\ud83d\ude00"), max_size=3), max_size=8))
@settings(max_examples=examples(300))
def test_however_a_text_is_cut_its_deltas_say_it_whole(pieces: list[str]) -> None:
    told: list[Delta] = []
    deltas = WholeDeltas(told.append)
    for piece in pieces:
        deltas(TextDelta(piece))
    deltas.end()
    assert "".join(each.text for each in told) == readable("".join(pieces))
    for each in told:
        each.text.encode()
