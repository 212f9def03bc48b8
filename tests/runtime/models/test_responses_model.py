"""``ResponsesModel`` beyond the conformance suite: the Responses interface's own forms."""

import json
from typing import Any

import openai
import pytest
from msgspec.structs import replace
from support.provider_wires import event
from support.responses_wire import ResponsesWire, responses_stream

from hubbub import Agent, Runtime, tool
from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    Delta,
    ModelReply,
    ModelRequest,
    Thinking,
    ThinkingDelta,
    ToolCall,
    Usage,
    UserMessage,
)
from hubbub.agents.settings import ModelSettings
from hubbub.hub.errors import ModelRefused, ModelUnavailable, ProviderError
from hubbub.runtime.models.anthropic.model import request_body as anthropic_body
from hubbub.runtime.models.conformance import (
    CONVERSATION,
    HELLO,
    NOTED,
    REPLY,
    ServerAnswer,
    serving,
    wire,
)
from hubbub.runtime.models.responses.model import ResponsesModel, request_body, settings_problems

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-08")]

WIRE = ResponsesWire()
CARRIED = WIRE.carried(REPLY)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Real time: sockets know no other."""
    return request.param


async def answered(*pieces: bytes) -> tuple[ModelReply, list[Delta]]:
    return await wire.answered(WIRE, ServerAnswer(pieces))


def body_of(request: ModelRequest) -> Any:
    return json.loads(WIRE.body(request))


# ── requests ─────────────────────────────────────────────────────────────────────────────────


def test_a_conversation_as_the_interface_wants_it() -> None:
    body = body_of(CONVERSATION)
    assert {name: body[name] for name in ("store", "include", "instructions", "stream")} == {
        "store": False, "include": ["reasoning.encrypted_content"], "instructions": "You help.",
        "stream": True,
    }  # fmt: skip
    assert body["input"] == [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather in Paris?"}]},
        {"role": "assistant", "content": "Let me look."},
        {"type": "function_call", "call_id": "toolu_1", "name": "get_weather",
         "arguments": '{"city":"Paris"}'},
        {"type": "function_call", "call_id": "toolu_2", "name": "get_weather",
         "arguments": '{"_malformed":"{\\"city\\":"}'},
        {"type": "function_call_output", "call_id": "toolu_1", "output": "sunny"},
        {"type": "function_call_output", "call_id": "toolu_2", "output": "malformed arguments"},
        {"role": "user", "content": [{"type": "input_text", "text": "And tomorrow?"}]},
        {"role": "system",
         "content": [{"type": "input_text", "text": "One more message was queued."}]},
    ]  # fmt: skip


def test_what_a_model_thought_goes_back_to_it_and_to_no_other() -> None:
    own = Thinking(text="Paris.", signature="openai-responses:rs_1:gAAA")
    others = (
        Thinking(text="by Anthropic", signature="c2ln"), Thinking(redacted="cmVk"),
        Thinking(text="unsigned"), Thinking(signature="gemini:0:c2ln"),
    )  # fmt: skip
    call = AnsweredCall(id="c", name="now", arguments="{}", output="noon")
    turn = AssistantMessage(thinking=(*others, own), calls=(call,))
    request = ModelRequest(messages=(*HELLO.messages, turn))
    thoughts = [x for x in body_of(request)["input"] if x.get("type") == "reasoning"]
    assert thoughts == [
        {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA",
         "summary": [{"type": "summary_text", "text": "Paris."}]},
    ]  # fmt: skip
    blocks = anthropic_body(request, model="m", max_tokens=9)["messages"][1]["content"]
    assert [x["type"] for x in blocks] == ["thinking", "redacted_thinking", "tool_use"]


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("any", "required"),
        ("get_weather", {"type": "function", "name": "get_weather"}),
    ],
)
def test_tool_choices(choice: str, sent: Any) -> None:
    body = body_of(replace(CONVERSATION, tool_choice=choice))
    assert body["tool_choice"] == sent
    assert body["parallel_tool_calls"] is False


def test_settings_become_its_own_fields() -> None:
    told = ModelSettings(
        temperature=0.5, top_p=0.5, max_tokens=9, thinking="high", service_tier="flex", timeout=9
    )
    assert list(settings_problems(told)) == []
    body = request_body(replace(HELLO, settings=told), model="m")
    assert {name: value for name, value in body.items() if name not in body_of(HELLO)} == {
        "temperature": 0.5, "top_p": 0.5, "max_output_tokens": 9, "service_tier": "flex",
        "reasoning": {"effort": "high", "summary": "auto"},
    }  # fmt: skip
    off = request_body(replace(HELLO, settings=ModelSettings(thinking="off")), model="m")
    assert off["reasoning"] == {"effort": "none"}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"seed": 1}, "seed: OpenAI's Responses interface has none; leave it out, or name the"),
        ({"stop": list("abcde")}, "stop: OpenAI's Responses interface has none; leave it out"),
        ({"thinking": 2048}, "thinking: OpenAI takes no number of tokens"),
        ({"service_tier": "best"}, "service_tier: OpenAI has 'auto', "),
    ],
)
def test_what_it_lacks_is_refused(settings: dict[str, Any], problem: str) -> None:
    (found,) = settings_problems(ModelSettings(**settings))
    assert found.startswith(problem)


def test_the_cache_key_goes_to_openai_alone() -> None:
    asked = replace(HELLO, cache="5m", cache_key="run:side_a")
    assert request_body(asked, model="m", keeps_by_key=True)["prompt_cache_key"] == "run:side_a"
    assert "prompt_cache_key" not in request_body(asked, model="m")
    assert ResponsesModel("m", key="k")._keeps_by_key
    assert not ResponsesModel("m", base_url="http://localhost:1/v1")._keeps_by_key


# ── replies ──────────────────────────────────────────────────────────────────────────────────


async def test_parts_of_a_summary_are_paragraphs() -> None:
    stream = responses_stream(CARRIED)
    place = {"output_index": 0, "item_id": "rs_0"}
    more = event({"type": "response.reasoning_summary_text.delta", **place, "summary_index": 1,
                  "delta": "Then this."})  # fmt: skip
    at = next(i for i, each in enumerate(stream) if b"output_item.done" in each)
    done = json.loads(stream[at].partition(b"data: ")[2])
    done["item"]["summary"].append({"type": "summary_text", "text": "Then this."})
    reply, deltas = await answered(*stream[:at], more, event(done), *stream[at + 1 :])
    thought = "The user wants weather.\n\nThen this."
    assert reply.thinking[0].text == thought
    assert "".join(x.text for x in deltas if isinstance(x, ThinkingDelta)) == thought


async def test_a_refusal_is_kept_as_text() -> None:
    item = {"type": "message", "id": "m", "role": "assistant", "content": []}
    refusal = {"type": "refusal", "refusal": "I cannot."}
    whole = {"status": "completed", "model": "m", "output": [], "usage": None}
    stream = [
        event({"type": "response.output_item.added", "output_index": 0, "item": item}),
        event({"type": "response.refusal.delta", "output_index": 0, "delta": "I cannot."}),
        event({"type": "response.output_item.done", "output_index": 0,
               "item": {**item, "content": [refusal]}}),
        event({"type": "response.completed", "response": whole}),
    ]  # fmt: skip
    reply, _ = await answered(*stream)
    assert (reply.text, reply.stop_reason) == ("I cannot.", "refusal")


async def test_unknown_events_and_items_are_skipped() -> None:
    stream = responses_stream(CARRIED)
    search = {"type": "web_search_call", "id": "ws", "status": "completed"}
    stream[2:2] = [
        event({"type": "response.of_tomorrow", "news": 1}),
        event({"type": "response.output_item.added", "output_index": 77, "item": search}),
        event({"type": "response.web_search_call.completed", "output_index": 77}),
        event({"type": "response.output_item.done", "output_index": 77, "item": search}),
    ]
    assert (await answered(*stream))[0] == CARRIED


@pytest.mark.parametrize(
    ("told", "error", "status"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "x"}, ModelUnavailable, 429),
        ({"type": "error", "code": None, "message": "odd"}, ModelUnavailable, 500),
        (
            {"type": "response.failed", "response": {
                "status": "failed", "error": {"code": "invalid_prompt", "message": "no"}}},
            ModelRefused, 400,
        ),
        ({"type": "response.failed", "response": {"status": "failed"}}, ModelUnavailable, 500),
    ],
)  # fmt: skip
async def test_an_error_amid_the_stream(
    told: dict[str, Any], error: type[ProviderError], status: int
) -> None:
    with pytest.raises(error) as caught:
        await answered(*responses_stream(CARRIED)[:3], event(told))
    assert caught.value.status == status


# ── a conversation ───────────────────────────────────────────────────────────────────────────


@tool
def get_weather(city: str) -> str:
    """Current weather for a city."""
    return f"sunny in {city}"


async def test_thoughts_are_kept_across_the_steps_of_a_run() -> None:
    last = ModelReply(text="Sunny.", model="the-model")
    answers = [ServerAnswer(responses_stream(each)) for each in (CARRIED, last)]
    async with serving(*answers) as server:
        model = ResponsesModel("the-model", base_url=f"{server.url}/v1")
        agent = Agent("a", "You help.", model=model, tools=[get_weather])
        async with Runtime([agent], store="memory") as rt:
            outcome = await rt.run("a", "Weather?")
        await model.aclose()
        first, second = (each.json() for each in server.requests)
    assert outcome.output == "Sunny."
    assert second["input"][: len(first["input"])] == first["input"], "the prefix stays"
    (thought,) = [x for x in second["input"] if x.get("type") == "reasoning"]
    assert (thought["id"], thought["encrypted_content"]) == ("rs_0", "c2ln")


# ── the official client ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("asked", [CONVERSATION, NOTED], ids=["plain", "noted"])
async def test_the_official_client_reads_our_servers_and_sends_our_requests(
    asked: ModelRequest,
) -> None:
    own = replace(
        asked.messages[1],
        **(
            {"thinking": (Thinking(text="hm", signature="openai-responses:rs_1:gAAA"),)}
            if isinstance(asked.messages[1], AssistantMessage)
            else {}
        ),
    )
    asked = replace(
        asked,
        messages=(asked.messages[0], own, *asked.messages[2:], UserMessage(content="Go on.")),
        settings=ModelSettings(thinking="low", max_tokens=99),
    )
    body = body_of(asked)
    answers = ServerAnswer(responses_stream(CARRIED)), ServerAnswer(responses_stream(CARRIED))
    async with serving(*answers) as server:
        async with openai.AsyncOpenAI(
            api_key="k", base_url=f"{server.url}/v1", max_retries=0
        ) as client:
            events = [each async for each in await client.responses.create(**body)]
        model = ResponsesModel("the-model", base_url=f"{server.url}/v1")
        await model.call(asked)
        await model.aclose()
        theirs, ours = server.requests
    assert theirs.json() == ours.json()
    assert theirs.path == ours.path
    assert _as_reply(events[-1].response) == CARRIED


def _as_reply(response: Any) -> ModelReply:
    """What the official client made of the stream, in our terms."""
    thoughts = [x for x in response.output if x.type == "reasoning"]
    calls = [x for x in response.output if x.type == "function_call"]
    return ModelReply(
        text=response.output_text,
        thinking=tuple(
            Thinking(
                text="".join(part.text for part in x.summary),
                signature=f"openai-responses:{x.id}:{x.encrypted_content}",
            )
            for x in thoughts
        ),
        calls=tuple(ToolCall(id=x.call_id, name=x.name, arguments=x.arguments) for x in calls),
        usage=Usage(
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            cache_read_tokens=response.usage.input_tokens_details.cached_tokens,
            cache_write_tokens=response.usage.input_tokens_details.cache_write_tokens,
        ),
        stop_reason="tools",
        model=response.model,
    )
