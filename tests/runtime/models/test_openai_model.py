"""``OpenAIModel`` beyond the conformance suite: every kind of server understood."""

import json
from typing import Any

import msgspec
import openai
import pytest
from support.openai_wire import OpenAIWire, chunk, openai_message, openai_problems, openai_stream
from support.provider_wires import event

from hubbub.agents.model import (
    AssistantMessage,
    Delta,
    ModelReply,
    ModelRequest,
    Thinking,
    ToolCall,
    Usage,
    UserMessage,
)
from hubbub.hub.errors import ModelRefused, ModelUnavailable, ProviderError
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
from hubbub.runtime.models.openai.model import OpenAIModel

pytestmark = [pytest.mark.anyio, pytest.mark.spec("M-02")]

DONE = event("[DONE]")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: sockets know no other."""
    return request.param


WIRE = OpenAIWire()


async def answered(
    *pieces: bytes, content_type: str = "text/event-stream"
) -> tuple[ModelReply, list[Delta]]:
    """What becomes of a server's answer, and its deltas."""
    return await wire.answered(WIRE, ServerAnswer(pieces, headers={"content-type": content_type}))


def body_of(request: ModelRequest) -> Any:
    return json.loads(WIRE.body(request))


def piece(
    index: int | None = None, id_: str | None = None, name: str = "", arguments: Any = None
) -> bytes:
    """A chunk with one call delta, as sloppy as a server likes."""
    function = {"name": name or None, "arguments": arguments}
    part = {"index": index, "id": id_, "function": function}
    return chunk(tool_calls=[{k: v for k, v in part.items() if v is not None}])


# ── replies ──────────────────────────────────────────────────────────────────────────────────


A = ToolCall(id="a", name="one", arguments='{"x":1}')
B = ToolCall(id="b", name="two", arguments='{"y":2}')
NAMELESS = tuple(msgspec.structs.replace(each, id="") for each in (A, B))


@pytest.mark.parametrize(
    ("pieces", "calls"),
    [
        pytest.param(
            [
                piece(0, "a", "one", ""),
                piece(1, "b", "two", ""),
                piece(0, arguments='{"x":'),
                piece(1, arguments='{"y":2}'),
                piece(0, arguments="1}"),
            ],
            (A, B),
            id="interleaved",
        ),
        pytest.param(
            [piece(None, "a", "one", '{"x":1}'), piece(None, "b", "two", '{"y":2}')],
            (A, B),
            id="no-index",
        ),
        pytest.param(
            [
                piece(None, "a", "one", '{"x"'),
                piece(None, arguments=":1}"),
                piece(None, "b", "two", '{"y"'),
                piece(None, "b", arguments=":2}"),
            ],
            (A, B),
            id="no-index-in-pieces",
        ),
        pytest.param(
            [piece(0, "a", "one", '{"x":1}'), piece(0, "b", "two", '{"y":2}')],
            (A, B),
            id="one-index-for-all",
        ),
        pytest.param(
            [piece(0, "", "one", '{"x":1}'), piece(0, "", "two", '{"y":2}')],
            NAMELESS,
            id="one-index-and-no-ids",
        ),
        pytest.param(
            [piece(0, None, "one", '{"x"'), piece(0, None, "one", ":1}")],
            NAMELESS[:1],
            id="name-repeated",
        ),
        pytest.param(
            [piece(0, None, "one"), piece(0, "a", arguments='{"x":1}')], (A,), id="late-id"
        ),
        pytest.param([piece(0, "a", "one", {"x": 1})], (A,), id="arguments-as-object"),
        pytest.param(
            [
                chunk(
                    tool_calls=[
                        {"id": "a", "function": {"name": "one", "arguments": '{"x":1}'}},
                        {"id": "b", "function": {"name": "two", "arguments": '{"y":2}'}},
                    ]
                )
            ],
            (A, B),
            id="all-in-one-chunk",
        ),
        pytest.param(
            [piece(0, "a", "one"), chunk(finish="tool_calls"), piece(0, arguments='{"x":1}')],
            (A,),
            id="finish-before-the-end",
        ),
    ],
)
async def test_call_deltas_of_every_kind_of_server(
    pieces: list[bytes], calls: tuple[ToolCall, ...]
) -> None:
    reply, _ = await answered(*pieces, chunk(finish="stop"), DONE)
    assert reply.calls == calls
    assert reply.stop_reason == "tools", "whatever the server calls it"


async def test_reasoning_and_content_under_other_names() -> None:
    parts = [{"type": "text", "text": "good "}, {"type": "thinking", "thinking": []}, "odd"]
    reply, _ = await answered(
        chunk(reasoning="hm "),
        chunk(reasoning_content="so", reasoning="so"),
        chunk(reasoning={"effort": "high"}),
        chunk(content=parts),
        chunk(content="day", finish="stop"),
        DONE,
    )
    assert reply.text == "good day"
    assert reply.thinking == (Thinking(text="hm so"),)


@pytest.mark.spec("M-03")
async def test_a_refusal_is_kept_as_text() -> None:
    reply, _ = await answered(chunk(refusal="I "), chunk(refusal="won't"), chunk(finish="stop"))
    assert (reply.text, reply.stop_reason) == ("I won't", "refusal")


async def test_choices_beyond_the_first_are_left_alone() -> None:
    second = {"index": 1, "delta": {"content": "other"}, "finish_reason": None}
    reply, _ = await answered(event({"choices": [second]}), chunk(content="mine"), DONE)
    assert (reply.text, reply.model) == ("mine", "m")


@pytest.mark.spec("M-03")
@pytest.mark.parametrize(
    ("error", "raised", "status"),
    [
        ({"message": "slow down", "type": "rate_limit_error"}, ModelUnavailable, 429),
        ({"message": "slow down", "code": 429}, ModelUnavailable, 429),
        ({"message": "oops", "type": "server_error", "code": None}, ModelUnavailable, 500),
        ({"message": "too long", "code": "context_length_exceeded"}, ModelRefused, 400),
        ({"message": "who?", "code": "invalid_api_key"}, ModelRefused, 401),
        ({"message": "pay first", "type": "insufficient_quota"}, ModelUnavailable, 429),
        ({"message": "later", "type": "overloaded_error"}, ModelUnavailable, 529),
        ({"message": "who?", "type": "authentication_error"}, ModelRefused, 401),
        ({"message": "not you", "type": "permission_error"}, ModelRefused, 403),
        ({"message": "no such model", "code": "model_not_found"}, ModelRefused, 404),
        ({"message": "no", "type": "invalid_request_error"}, ModelRefused, 400),
        ("just words", ModelUnavailable, 500),
    ],
)
async def test_an_error_in_place_of_a_chunk(
    error: Any, raised: type[ProviderError], status: int
) -> None:
    with pytest.raises(raised) as caught:
        await answered(chunk(content="so far"), event({"error": error}))
    assert caught.value.status == status
    whole = json.dumps({"error": error}).encode()
    with pytest.raises(raised):
        await answered(whole, content_type="application/json")


# ── requests ─────────────────────────────────────────────────────────────────────────────────


def test_a_conversation_as_the_interface_wants_it() -> None:
    arguments = '{"city":"Paris"}'
    malformed = '{"_malformed":"{\\"city\\":"}'
    calls = [("toolu_1", arguments), ("toolu_2", malformed)]
    assert body_of(CONVERSATION)["messages"] == [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": "Weather in Paris?"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {
                    "id": id_,
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": text},
                }
                for id_, text in calls
            ],
        },
        {"role": "tool", "tool_call_id": "toolu_1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "toolu_2", "content": "malformed arguments"},
        {"role": "user", "content": "And tomorrow?"},
        {"role": "system", "content": "One more message was queued."},
    ]


def text(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": each} for each in texts]


def test_notes_follow_what_they_belong_to_in_the_form_that_servers_take() -> None:
    body = body_of(NOTED)
    assert openai_problems(body) == []
    said = [(each["role"], each["content"]) for each in body["messages"]]
    assert said == [
        ("system", "You help."),
        ("user", "(begin)"),
        ("assistant", "Ask me."),
        ("user", text("Look at this.", "<file>a</file>", "<file>b</file>", "And hurry.")),
        ("assistant", None),
        ("tool", "sunny\n\nnow"),
        ("tool", "no city\n\ntry again"),
        ("system", text("One more was queued.", "It is long.")),
        ("system", "Children: none."),
        ("system", "Time: noon."),
    ]


def test_system_notes_come_last_without_a_system_prompt_too() -> None:
    noted = msgspec.structs.replace(HELLO, system=" ", system_notes=("Children: none.", ""))
    assert body_of(noted)["messages"] == [
        {"role": "user", "content": "hello"},
        {"role": "system", "content": "Children: none."},
    ]


def test_user_messages_in_a_row_are_one() -> None:
    asked = ModelRequest(
        messages=(UserMessage(content="a"), UserMessage(content="b"), AssistantMessage(text="c"))
    )
    assert [(each["role"], each["content"]) for each in body_of(asked)["messages"]] == [
        ("user", "a\n\nb"),
        ("assistant", "c"),
        ("user", "(continue)"),
    ]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("any", "required"),
        ("get_weather", {"type": "function", "function": {"name": "get_weather"}}),
    ],
)
def test_tool_choices(choice: str, sent: Any) -> None:
    asked = msgspec.structs.replace(HELLO, tool_choice=choice)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body_of(asked))
    body = body_of(msgspec.structs.replace(asked, tools=(WEATHER,)))
    assert body["tool_choice"] == sent
    assert body["parallel_tool_calls"] is False
    assert body["tools"][0]["function"]["parameters"] == WEATHER.schema


def test_options_come_last_and_win() -> None:
    asked = msgspec.structs.replace(HELLO, options={"stream": False, "seed": 7, "tools": None})
    body = body_of(msgspec.structs.replace(asked, tools=(WEATHER,)))
    assert (body["stream"], body["seed"]) == (False, 7)
    assert not {"stream_options", "tools"} & set(body)


# ── the official client ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("asked", [CONVERSATION, NOTED], ids=["plain", "noted"])
async def test_the_official_client_reads_our_servers_and_sends_our_requests(
    asked: ModelRequest,
) -> None:
    body = body_of(asked)
    whole = ServerAnswer([openai_message(REPLY)], headers={"content-type": "application/json"})
    answers = ServerAnswer(openai_stream(REPLY)), ServerAnswer(openai_stream(REPLY)), whole
    async with serving(*answers) as server:
        async with openai.AsyncOpenAI(api_key="k", base_url=server.url, max_retries=0) as client:
            chunks = [each async for each in await client.chat.completions.create(**body)]
            model = OpenAIModel("the-model", base_url=server.url)
            await model.call(asked)
            await model.aclose()
            plain = {k: v for k, v in body.items() if not k.startswith("stream")}
            completion = await client.chat.completions.create(**plain)
        theirs, ours, _ = server.requests
    assert theirs.json() == ours.json()
    assert theirs.path == ours.path
    message = completion.choices[0].message
    assert message.content == REPLY.text
    assert message.tool_calls is not None
    assert [call.id for call in message.tool_calls] == [call.id for call in REPLY.calls]
    assert _as_reply(chunks) == msgspec.structs.replace(WIRE.carried(REPLY), thinking=())


def _as_reply(chunks: list[Any]) -> ModelReply:
    """What the official client made of the stream, in our terms."""
    deltas = [each.choices[0].delta for each in chunks if each.choices]
    parts = [part for delta in deltas for part in delta.tool_calls or ()]
    calls = [part for part in parts if part.id]
    usage = chunks[-1].usage
    finished = [each.choices[0].finish_reason for each in chunks if each.choices]
    assert finished[-1] == "tool_calls"
    return ModelReply(
        text="".join(delta.content or "" for delta in deltas),
        calls=tuple(
            ToolCall(
                id=call.id,
                name=call.function.name,
                arguments="".join(
                    part.function.arguments for part in parts if part.index == call.index
                ),
            )
            for call in calls
        ),
        usage=Usage(
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            cache_read_tokens=usage.prompt_tokens_details.cached_tokens,
        ),
        stop_reason="tools",
        model=chunks[0].model,
    )
