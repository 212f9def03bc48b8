"""``AnthropicModel``: valid requests for every history, faithful replies, the real wire format."""

import json
from typing import Any

import anthropic
import msgspec
import pytest
from hypothesis import given
from support.provider_requests import (
    CONVERSATION,
    NOTED,
    REPLY,
    WEATHER,
    anthropic_problems,
    requests,
    with_notes,
)
from support.provider_servers import Answer, anthropic_message, anthropic_stream, event, serving

from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    CallDelta,
    Delta,
    ModelReply,
    ModelRequest,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    Usage,
    UserMessage,
)
from hubbub.hub.errors import MissingKey, ModelRefused, ModelUnavailable
from hubbub.runtime.models.anthropic.model import AnthropicModel, request_body
from hubbub.runtime.models.http.endpoint import encode_body
from hubbub.runtime.models.http.errors import Origin

pytestmark = [pytest.mark.anyio, pytest.mark.spec("M-02")]

HELLO = ModelRequest(messages=(UserMessage(content="hello"),))
REDACTED = msgspec.structs.replace(REPLY, thinking=(*REPLY.thinking, Thinking(redacted="cmVk")))


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: sockets know no other."""
    return request.param


def bytes_of(request: ModelRequest) -> bytes:
    """The body as the provider gets it."""
    body = request_body(request, model="the-model", max_tokens=100)
    return encode_body(body, Origin("m", "u", "K"))


def body_of(request: ModelRequest) -> Any:
    return json.loads(bytes_of(request))


async def answered(
    *pieces: bytes, request: ModelRequest = HELLO, content_type: str = "text/event-stream"
) -> tuple[ModelReply, list[Delta]]:
    deltas: list[Delta] = []
    async with serving(Answer(pieces, headers={"content-type": content_type})) as server:
        model = AnthropicModel("the-model", base_url=server.url)
        try:
            reply = await model.call(request, deltas.append)
        finally:
            await model.aclose()
        assert server.requests[0].path == "/v1/messages"
        assert server.requests[0].headers["anthropic-version"] == "2023-06-01"
        assert anthropic_problems(server.requests[0].json()) == []
    return reply, deltas


# ── replies ──────────────────────────────────────────────────────────────────────────────────


async def test_a_streamed_reply_arrives_whole() -> None:
    reply, deltas = await answered(*anthropic_stream(REDACTED))
    assert reply == REDACTED
    assert "".join(each.text for each in deltas if isinstance(each, TextDelta)) == reply.text
    thought = "".join(each.text for each in deltas if isinstance(each, ThinkingDelta))
    assert thought == "The user wants weather."
    calls = [each for each in deltas if isinstance(each, CallDelta)]
    for index, call in enumerate(reply.calls):
        pieces = [each.text for each in calls if (each.index, each.name) == (index, call.name)]
        assert "".join(pieces) == call.arguments


async def test_a_server_that_does_not_stream_is_understood() -> None:
    plain = msgspec.structs.replace(REPLY, thinking=())
    reply, _ = await answered(anthropic_message(plain), content_type="application/json")
    calls = [(call.name, json.loads(call.arguments)) for call in reply.calls]
    assert calls == [(call.name, json.loads(call.arguments)) for call in plain.calls]
    assert msgspec.structs.replace(reply, calls=plain.calls) == plain


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "end"),
        ("max_tokens", "length"),
        ("refusal", "refusal"),
        ("stop_sequence", "stop_sequence"),
        ("pause_turn", "pause_turn"),
    ],
)
@pytest.mark.spec("M-03")
async def test_stop_reasons_in_our_words(theirs: str, ours: str) -> None:
    sent = ModelReply(text="so far", stop_reason=theirs, model="m")
    reply, _ = await answered(*anthropic_stream(sent))
    assert (reply.text, reply.stop_reason) == ("so far", ours)


@pytest.mark.spec("M-03")
async def test_cut_off_arguments_and_empty_output_are_replies() -> None:
    call = ToolCall(id="t", name="get_weather", arguments='{"city": "Par')
    cut_off = ModelReply(calls=(call,), stop_reason="length", model="m")
    assert (await answered(*anthropic_stream(cut_off)))[0] == cut_off
    empty, _ = await answered(*anthropic_stream(ModelReply(model="m")))
    assert empty.is_empty


async def test_a_call_without_arguments_has_an_empty_object() -> None:
    bare = ModelReply(calls=(ToolCall(id="t", name="now", arguments=""),), stop_reason="tools")
    reply, _ = await answered(*anthropic_stream(bare))
    assert reply.calls[0].arguments == "{}"
    opening = {"type": "tool_use", "id": "t", "name": "now", "input": {"zone": "UTC"}}
    stream = anthropic_stream(bare)
    at = next(i for i, each in enumerate(stream) if b"content_block_start" in each)
    stream[at] = event({"type": "content_block_start", "index": 0, "content_block": opening})
    reply, _ = await answered(*stream)
    assert reply.calls[0].arguments == '{"zone":"UTC"}'


async def test_unknown_events_and_server_side_tools_are_skipped() -> None:
    stream = anthropic_stream(REPLY)
    block = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    piece = {"type": "input_json_delta", "partial_json": "{}"}
    stream[1:1] = [
        event({"type": "news_of_tomorrow", "index": "many"[:0] or 3}),
        event({"type": "content_block_start", "index": 77, "content_block": block}),
        event({"type": "content_block_delta", "index": 77, "delta": piece}),
        event({"type": "content_block_delta", "index": 77, "delta": {"type": "new_delta"}}),
    ]
    reply, deltas = await answered(*stream)
    assert reply == REPLY
    assert not any(isinstance(each, CallDelta) and each.name == "web_search" for each in deltas)


async def test_an_error_instead_of_a_message() -> None:
    body = b'{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}'
    with pytest.raises(ModelUnavailable, match="busy") as caught:
        await answered(body, content_type="application/json")
    assert caught.value.status == 529


# ── requests ─────────────────────────────────────────────────────────────────────────────────


def test_a_conversation_as_the_interface_wants_it() -> None:
    assert body_of(CONVERSATION)["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "Weather in Paris?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Paris.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "cmVk"},
                {"type": "text", "text": "Let me look."},
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "get_weather",
                    "input": {"city": "Paris"},
                },
                {
                    "type": "tool_use",
                    "id": "toolu_2",
                    "name": "get_weather",
                    "input": {"_malformed": '{"city":'},
                },
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": "malformed arguments",
                    "is_error": True,
                },
                {"type": "text", "text": "And tomorrow?"},
                {"type": "text", "text": "<system>\nOne more message was queued.\n</system>"},
            ],
        },
    ]


def text(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": each} for each in texts]


def test_notes_are_blocks_of_their_own_behind_what_they_belong_to() -> None:
    body = body_of(NOTED)
    assert anthropic_problems(body) == []
    assert body["system"] == text("You help.", "Children: none.", "Time: noon.")
    contents = [each["content"] for each in body["messages"]]
    assert contents[:3] == [
        text("(begin)"),
        text("Ask me."),
        text("Look at this.", "<file>a</file>", "<file>b</file>", "And hurry."),
    ]
    assert contents[4] == [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": text("sunny", "now")},
        {
            "type": "tool_result",
            "tool_use_id": "toolu_2",
            "content": text("no city", "try again"),
            "is_error": True,
        },
        *text(
            "<system>\nOne more was queued.\n</system>",
            "<system>\nIt is long.\n</system>",
        ),
    ]


def test_a_system_prompt_is_a_string_until_it_has_notes() -> None:
    assert "system" not in body_of(msgspec.structs.replace(HELLO, system=" ", system_notes=("",)))
    plain = msgspec.structs.replace(HELLO, system="You help.")
    assert body_of(plain)["system"] == "You help."
    noted = msgspec.structs.replace(HELLO, system=" ", system_notes=("Children: none.",))
    assert body_of(noted)["system"] == text("Children: none.")


@given(requests)
def test_blank_notes_change_no_byte(request: ModelRequest) -> None:
    blank, plain = with_notes(request, "", "\n"), with_notes(request)
    assert bytes_of(blank) == bytes_of(plain)


def test_given_words_are_the_assistants_own() -> None:
    history = (
        AssistantMessage(text="Ask me.", is_given=True),
        AssistantMessage(text="Anything.", is_given=True),
        AssistantMessage(text="I wait."),
    )
    body = body_of(ModelRequest(messages=history))
    assert anthropic_problems(body) == []
    own = [each["content"] for each in body["messages"] if each["role"] == "assistant"]
    assert own == [text("Ask me."), text("Anything."), text("I wait.")]


def test_thinking_goes_back_only_where_it_is_wanted() -> None:
    signed, foreign = Thinking(text="a", signature="c2ln"), Thinking(text="b")
    call = AnsweredCall(id="a", name="n", arguments="{}", output="", is_error=True)
    body = body_of(
        ModelRequest(
            messages=(
                AssistantMessage(text="x", thinking=(signed,)),
                UserMessage(content="y"),
                AssistantMessage(thinking=(foreign, signed), calls=(call,)),
            )
        )
    )
    assert [block["type"] for block in body["messages"][1]["content"]] == ["text"]
    assert [block["type"] for block in body["messages"][3]["content"]] == ["thinking", "tool_use"]
    assert body["messages"][4]["content"][0]["content"] == "error"


@pytest.mark.parametrize(
    ("choice", "parallel", "sent"),
    [
        ("auto", False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("auto", True, {"type": "auto"}),
        ("none", False, {"type": "none"}),
        ("any", True, {"type": "any"}),
        (
            "get_weather",
            False,
            {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True},
        ),
    ],
)
def test_tool_choices(choice: str, parallel: bool, sent: dict[str, Any]) -> None:
    asked = msgspec.structs.replace(HELLO, tool_choice=choice, parallel_tool_calls=parallel)
    assert "tool_choice" not in body_of(asked)
    body = body_of(msgspec.structs.replace(asked, tools=(WEATHER,)))
    assert body["tool_choice"] == sent
    assert body["tools"][0]["input_schema"] == WEATHER.schema


async def test_options_come_last_and_win() -> None:
    options = {"max_tokens": 7, "temperature": 0.5, "thinking": {"type": "disabled"}}
    body = body_of(msgspec.structs.replace(HELLO, options=options))
    assert (body["max_tokens"], body["temperature"]) == (7, 0.5)
    unfit = msgspec.structs.replace(HELLO, options={"x": object()})
    with pytest.raises(ModelRefused, match="not JSON"):
        await AnthropicModel("m", key="k").call(unfit)


@pytest.mark.spec("M-03", "S-07")
@given(requests)
def test_every_history_makes_a_valid_request(request: ModelRequest) -> None:
    assert anthropic_problems(body_of(request)) == []


async def test_headers_of_the_callers_own_win() -> None:
    headers = {"Anthropic-Version": "2026-10-21", "anthropic-beta": "x-1", "X-Api-Key": "other"}
    async with serving(Answer(anthropic_stream(REPLY))) as server:
        model = AnthropicModel("m", key="k", base_url=f"{server.url}/v1", headers=headers)
        await model.call(HELLO)
        await model.aclose()
        sent = server.requests[0].headers
    assert {name.lower(): sent[name.lower()] for name in headers} == {
        "anthropic-version": "2026-10-21",
        "anthropic-beta": "x-1",
        "x-api-key": "other",
    }


@pytest.mark.spec("M-04")
def test_only_anthropics_own_service_needs_a_key() -> None:
    with pytest.raises(MissingKey, match="ANTHROPIC_API_KEY"):
        AnthropicModel("m")
    with pytest.raises(MissingKey):
        AnthropicModel("m", key=" ", base_url="https://api.anthropic.com/v1/")
    assert AnthropicModel("m", base_url="http://localhost:1").name == "m"


# ── the official client ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("asked", [CONVERSATION, NOTED], ids=["plain", "noted"])
async def test_the_official_client_reads_our_servers_and_sends_our_requests(
    asked: ModelRequest,
) -> None:
    asked = msgspec.structs.replace(asked, options={"metadata": {"user_id": "u"}})
    body = body_of(asked)
    body.pop("stream")
    answers = [Answer(anthropic_stream(REDACTED)) for _ in range(2)]
    async with serving(*answers) as server:
        async with (
            anthropic.AsyncAnthropic(api_key="k", base_url=server.url, max_retries=0) as client,
            client.messages.stream(**body) as stream,
        ):
            message = await stream.get_final_message()
        model = AnthropicModel("the-model", base_url=server.url, max_tokens=100)
        await model.call(asked)
        await model.aclose()
        theirs, ours = server.requests
    assert theirs.json() == ours.json()
    assert theirs.path == ours.path
    assert _as_reply(message) == REDACTED


def _as_reply(message: Any) -> ModelReply:
    """What the official client made of the stream, in our terms."""
    thinking = [block for block in message.content if "thinking" in block.type]
    calls = [block for block in message.content if block.type == "tool_use"]
    originals = {json.dumps(json.loads(c.arguments)): c.arguments for c in REPLY.calls}
    return ModelReply(
        text="".join(block.text for block in message.content if block.type == "text"),
        thinking=tuple(
            Thinking(redacted=block.data)
            if block.type == "redacted_thinking"
            else Thinking(text=block.thinking, signature=block.signature)
            for block in thinking
        ),
        calls=tuple(
            ToolCall(id=each.id, name=each.name, arguments=originals[json.dumps(each.input)])
            for each in calls
        ),
        usage=Usage(
            input_tokens=message.usage.input_tokens,
            output_tokens=message.usage.output_tokens,
            cache_read_tokens=message.usage.cache_read_input_tokens,
            cache_write_tokens=message.usage.cache_creation_input_tokens,
        ),
        stop_reason="tools" if message.stop_reason == "tool_use" else message.stop_reason,
        model=message.model,
    )
