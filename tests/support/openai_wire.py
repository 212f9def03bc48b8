"""OpenAI's side of the wire: Chat Completions, as OpenAI and the stricter local servers have it.

``openai_problems`` reads a request's body with the types of the official client, and by the
rules that those types cannot say.  That the streams are the real ones is proven by the official
client, which reads them too.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import openai.types.chat
from msgspec.structs import replace
from pydantic import TypeAdapter

from hubbub.agents.model import ModelReply, ModelRequest, Thinking, Usage
from hubbub.runtime.models.http.endpoint import encode_body
from hubbub.runtime.models.http.errors import ProviderOrigin
from hubbub.runtime.models.http.provider import Provider
from hubbub.runtime.models.openai.dialect import PLAIN
from hubbub.runtime.models.openai.model import OpenAIModel, request_body
from hubbub.runtime.models.openai.provider import OPENAI
from support.provider_wires import event, is_name, pieces, read_strictly, texts_of

STOPS = {"end": "stop", "tools": "tool_calls"}

OWN_FIELDS = {
    "mistral": ("random_seed",),
    "deepseek": ("thinking",),
    "openrouter": ("reasoning",),
}
"""Fields that single services have beyond OpenAI's."""
OWN_PLACES = {
    "azure": {"AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/"},
    "bedrock": {"AWS_REGION": "eu-west-1"},
}
"""What the environment must know of where a service is."""

_openai_message = TypeAdapter(openai.types.chat.ChatCompletionMessageParam)


class OpenAIWire:
    """For the conformance suite; of a service that speaks the same, if told."""

    provider = OPENAI
    path = "/v1/chat/completions"
    key_header = "authorization"
    stop_reasons: ClassVar = {
        "stop": "end",
        "length": "length",
        "content_filter": "refusal",
        "tool_calls": "end",
        "eos": "eos",
    }
    final_events = 3  # The one with the reason, the usage, and [DONE].
    unreadable = (b'data: {"choices": 5}\n\n', b'data: {"choices": {}}\n\n')

    def __init__(self, service: Provider | None = None) -> None:
        if service is not None:
            self.provider = service
        self.dialect = self.provider.options.get("dialect", PLAIN)
        self.environ = OWN_PLACES.get(self.provider.name, {})

    def make(
        self, server: str, *, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> OpenAIModel:
        url = server if server == self.provider.url else f"{server}/v1/"
        options = self.provider.options
        return OpenAIModel("the-model", key=key, base_url=url, headers=headers, **options)

    def body(self, request: ModelRequest) -> bytes:
        body = request_body(request, model="the-model", dialect=self.dialect)
        return encode_body(body, ProviderOrigin("m", "u", "K"))

    def problems(self, body: Any) -> list[str]:
        return openai_problems(body, self.provider.name)

    def said(self, body: Any) -> list[tuple[str, str]]:
        contents = [(m["role"], m["content"]) for m in body["messages"]]
        return [(role, "\n\n".join(texts_of(content))) for role, content in contents]

    def stream(self, reply: ModelReply) -> list[bytes]:
        return openai_stream(reply)

    def whole(self, reply: ModelReply) -> bytes:
        return openai_message(reply)

    def carried(self, reply: ModelReply) -> ModelReply:
        # Chat Completions carries no signatures, and no tokens written to the cache.
        thought = "".join(each.text for each in reply.thinking)
        return replace(
            reply,
            thinking=(Thinking(text=thought),) if thought else (),
            usage=replace(reply.usage, cache_write_tokens=0),
        )


# ── what it refuses ──────────────────────────────────────────────────────────────────────────


def openai_problems(body: dict[str, Any], service: str = "") -> list[str]:
    """What Chat Completions, and the stricter servers that speak it, would refuse in ``body``."""
    problems: list[str] = []
    own = dict.fromkeys(OWN_FIELDS.get(service, ()))
    known = openai.types.chat.completion_create_params.CompletionCreateParamsStreaming
    problems += [
        f"unknown field {name}" for name in body if name not in known.__annotations__ | own
    ]
    used: list[str] = []
    open_calls: list[str] = []
    before = ""
    for message in body["messages"]:
        read_strictly(_openai_message, message)
        role = message["role"]
        if role == "tool":
            if not isinstance(message["content"], str):
                problems.append("a result that is no string")
            if not open_calls or message["tool_call_id"] != open_calls.pop(0):
                problems.append(f"a result out of place: {message['tool_call_id']}")
        elif open_calls:
            problems.append(f"no result for {open_calls}")
        if role in ("user", "assistant") and role == before and not used:
            problems.append(f"two {role} messages in a row")
        texts = texts_of(message["content"])
        shown = isinstance(message["content"], list) and len(message["content"]) > len(texts)
        is_said = all(map(str.strip, texts)) and (texts or shown)
        if role in ("user", "system") and not is_said:
            problems.append("a blank message")
        if role != "user" and shown:
            problems.append(f"a {role} message shows something")
        if role == "assistant" and not message["content"] and not message.get("tool_calls"):
            problems.append("an empty assistant message")
        for call in message.get("tool_calls", ()):
            open_calls.append(call["id"])
            used.append(call["id"])
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                problems.append("arguments are no object")
            if not is_name(call["function"]["name"]):
                problems.append(f"tool name {call['function']['name']!r}")
        before = role
    if open_calls or len(set(used)) != len(used) or any(len(each) > 40 for each in used):
        problems.append(f"ids {used}, open {open_calls}")
    if not any(message["role"] == "user" for message in body["messages"]):
        problems.append("no user message")
    return problems


# ── what it answers ──────────────────────────────────────────────────────────────────────────


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
    }


def chunk(model: str = "m", usage: Any = None, finish: str | None = None, **delta: Any) -> bytes:
    """One chunk of a Chat Completions stream."""
    choices = [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]
    return event(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": model,
            "choices": [] if usage else choices,
            "usage": usage,
        }
    )


def openai_stream(reply: ModelReply) -> list[bytes]:
    """The chunks of ``reply`` as Chat Completions streams them."""
    model = reply.model
    chunks = [chunk(model, role="assistant", content="", refusal=None)]
    for each in reply.thinking:
        chunks += [chunk(model, reasoning_content=piece) for piece in pieces(each.text)]
    chunks += [chunk(model, content=piece) for piece in pieces(reply.text)]
    for index, call in enumerate(reply.calls):
        opening = {"name": call.name, "arguments": ""}
        first = {"index": index, "id": call.id, "type": "function", "function": opening}
        chunks.append(chunk(model, tool_calls=[first]))
        for piece in pieces(call.arguments):
            more = {"index": index, "function": {"arguments": piece}}
            chunks.append(chunk(model, tool_calls=[more]))
    stop = STOPS.get(reply.stop_reason, reply.stop_reason)
    chunks.append(chunk(model, finish=stop))
    chunks.append(chunk(model, usage=_usage(reply.usage)))
    chunks.append(event("[DONE]"))
    return chunks


def openai_message(reply: ModelReply) -> bytes:
    """``reply`` as one JSON body, as without ``stream``."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in reply.calls
        ]
    stop = STOPS.get(reply.stop_reason, reply.stop_reason)
    whole = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": reply.model,
        "choices": [{"index": 0, "message": message, "finish_reason": stop, "logprobs": None}],
        "usage": _usage(reply.usage),
    }
    return json.dumps(whole).encode()
