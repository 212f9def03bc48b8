"""``AnthropicModel`` beyond the conformance suite: the Messages interface's own forms."""

import json
from typing import Any

import anthropic
import msgspec
import pytest
from support.anthropic_wire import AnthropicWire, anthropic_problems, anthropic_stream
from support.provider_wires import event

from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    CallDelta,
    Delta,
    ModelReply,
    ModelRequest,
    Thinking,
    ToolCall,
    Usage,
    UserMessage,
)
from hubbub.hub.errors import MissingKey, ModelUnavailable
from hubbub.runtime.models.anthropic.model import AnthropicModel
from hubbub.runtime.models.conformance import (
    CONVERSATION,
    HELLO,
    NOTED,
    REPLY,
    WEATHER,
    ServerAnswer,
    serving,
    wire,
)

pytestmark = [pytest.mark.anyio, pytest.mark.spec("M-02")]

REDACTED = msgspec.structs.replace(REPLY, thinking=(*REPLY.thinking, Thinking(redacted="cmVk")))


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: sockets know no other."""
    return request.param


WIRE = AnthropicWire()


async def answered(
    *pieces: bytes, content_type: str = "text/event-stream"
) -> tuple[ModelReply, list[Delta]]:
    """What becomes of a server's answer, and its deltas."""
    return await wire.answered(WIRE, ServerAnswer(pieces, headers={"content-type": content_type}))


def body_of(request: ModelRequest) -> Any:
    return json.loads(WIRE.body(request))


# ── replies ──────────────────────────────────────────────────────────────────────────────────


async def test_arguments_may_stand_in_the_opening_event() -> None:
    bare = ModelReply(calls=(ToolCall(id="t", name="now", arguments=""),), stop_reason="tools")
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
    assert body["system"] == "You help."
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
            "<system>\nChildren: none.\n</system>",
            "<system>\nTime: noon.\n</system>",
        ),
    ]


def test_notes_of_the_system_stand_behind_the_messages_without_a_system_prompt_too() -> None:
    assert "system" not in body_of(msgspec.structs.replace(HELLO, system=" ", system_notes=("",)))
    plain = msgspec.structs.replace(HELLO, system="You help.")
    assert body_of(plain)["system"] == "You help."
    noted = msgspec.structs.replace(HELLO, system=" ", system_notes=("Children: none.",))
    assert "system" not in body_of(noted)
    assert body_of(noted)["messages"][-1]["content"] == text(
        "hello", "<system>\nChildren: none.\n</system>"
    )


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


def test_options_come_last_and_win() -> None:
    options = {"max_tokens": 7, "temperature": 0.5, "thinking": {"type": "disabled"}}
    body = body_of(msgspec.structs.replace(HELLO, options=options))
    assert (body["max_tokens"], body["temperature"]) == (7, 0.5)


@pytest.mark.spec("M-04")
def test_the_own_service_is_known_in_every_spelling() -> None:
    with pytest.raises(MissingKey):
        AnthropicModel("m", key=" ", base_url="https://api.anthropic.com/v1/")


# ── the official client ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("asked", [CONVERSATION, NOTED], ids=["plain", "noted"])
async def test_the_official_client_reads_our_servers_and_sends_our_requests(
    asked: ModelRequest,
) -> None:
    asked = msgspec.structs.replace(asked, options={"metadata": {"user_id": "u"}})
    body = body_of(asked)
    body.pop("stream")
    answers = [ServerAnswer(anthropic_stream(REDACTED)) for _ in range(2)]
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
    assert ours.headers["anthropic-version"] == "2023-06-01"
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
