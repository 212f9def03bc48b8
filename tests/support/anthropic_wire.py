"""Anthropic's side of the wire: its Messages interface, as strict and as talkative as it is.

``anthropic_problems`` reads a request's body with the types of the official client, and by the
rules that those types cannot say.  That the streams are the real ones is proven by the official
client, which reads them too.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import anthropic.types
from pydantic import TypeAdapter

from hubbub.agents.model import ModelReply, ModelRequest, Usage
from hubbub.runtime.models.anthropic.model import AnthropicModel, request_body
from hubbub.runtime.models.anthropic.provider import ANTHROPIC
from hubbub.runtime.models.http.endpoint import encode_body
from hubbub.runtime.models.http.errors import ProviderOrigin
from support.provider_wires import event, is_name, pieces, read_strictly, texts_of

STOPS = {"end": "end_turn", "tools": "tool_use", "length": "max_tokens"}

_anthropic_message = TypeAdapter(anthropic.types.MessageParam)
_anthropic_system = TypeAdapter(str | list[anthropic.types.TextBlockParam])
_anthropic_tool = TypeAdapter(anthropic.types.ToolParam)


_SAMPLING = ("temperature", "top_p")
"""Of version 2023-06-01; the types of the client leave them out since 2026-10-21."""
_OF_SETTINGS = {
    "thinking": TypeAdapter(anthropic.types.ThinkingConfigParam),
    "output_config": TypeAdapter(anthropic.types.OutputConfigParam),
}


class AnthropicWire:
    """For the conformance suite."""

    provider = ANTHROPIC
    path = "/v1/messages"
    key_header = "x-api-key"
    stop_reasons: ClassVar = {
        "end_turn": "end",
        "max_tokens": "length",
        "refusal": "refusal",
        "stop_sequence": "stop_sequence",
        "pause_turn": "pause_turn",
    }
    final_events = 1
    unreadable = (
        b'data: {"type": 5}\n\n',
        b'data: {"type": "content_block_delta", "index": 9}\n\n',
    )

    def make(
        self, server: str, *, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> AnthropicModel:
        return AnthropicModel(
            "the-model", key=key, base_url=server, max_tokens=100, headers=headers
        )

    def body(self, request: ModelRequest) -> bytes:
        body = request_body(request, model="the-model", max_tokens=100)
        return encode_body(body, ProviderOrigin("m", "u", "K"))

    def problems(self, body: Any) -> list[str]:
        return anthropic_problems(body)

    def said(self, body: Any) -> list[tuple[str, str]]:
        blocks = [(m["role"], m["content"]) for m in body["messages"]]
        return [(role, "\n\n".join(texts_of(content))) for role, content in blocks]

    def stream(self, reply: ModelReply) -> list[bytes]:
        return anthropic_stream(reply)

    def whole(self, reply: ModelReply) -> bytes:
        return anthropic_message(reply)

    def carried(self, reply: ModelReply) -> ModelReply:
        return reply


# ── what it refuses ──────────────────────────────────────────────────────────────────────────


def anthropic_problems(body: dict[str, Any]) -> list[str]:
    """What the Messages interface would refuse in ``body``."""
    problems: list[str] = []
    messages = body["messages"]
    known = anthropic.types.message_create_params.MessageCreateParamsStreaming.__annotations__
    problems += [f"unknown field {name}" for name in body if name not in {*known, *_SAMPLING}]
    for name, kind in _OF_SETTINGS.items():
        if name in body:
            read_strictly(kind, body[name])
    if "system" in body:
        read_strictly(_anthropic_system, body["system"])
        if not body["system"] or not all(text.strip() for text in texts_of(body["system"])):
            problems.append("a blank system prompt")
    roles = [message["role"] for message in messages]
    if roles != (["user", "assistant"] * len(roles))[: len(roles)] or roles[-1:] != ["user"]:
        problems.append(f"roles do not alternate from user to user: {roles}")
    for message in messages:
        read_strictly(_anthropic_message, message)
        if not message["content"]:
            problems.append("a message without content")
        for block in message["content"]:
            if block["type"] == "text" and not block["text"].strip():
                problems.append("a blank text block")
            if block["type"] == "tool_result" and isinstance(block["content"], list):
                texts = texts_of(block["content"])
                if not block["content"] or not all(map(str.strip, texts)):
                    problems.append("a blank text block in a result")
            if block["type"] == "thinking" and not block["signature"]:
                problems.append("unsigned thinking")
            if block["type"] == "tool_result" and block.get("is_error") and not block["content"]:
                problems.append("an error result without content")
            if block["type"] == "tool_use" and not is_name(block["name"]):
                problems.append(f"tool name {block['name']!r}")
    used: list[str] = []
    for message, following in zip(messages, [*messages[1:], {"content": []}], strict=True):
        calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        results = [
            block["tool_use_id"]
            for block in following["content"][: len(calls)]
            if block["type"] == "tool_result"
        ]
        if calls != results and message["role"] == "assistant":
            problems.append(f"calls {calls}, but the next turn begins with results {results}")
        used += calls
    total = sum(b["type"] == "tool_result" for m in messages for b in m["content"])
    if len(set(used)) != len(used) or total != len(used) or not all(map(is_name, used)):
        problems.append(f"{total} results for calls {used}")
    for tool in body.get("tools", ()):
        read_strictly(_anthropic_tool, tool)
    if (marks := json.dumps(body).count('"cache_control"')) > 4:
        problems.append(f"{marks} cache marks")
    return problems


# ── what it answers ──────────────────────────────────────────────────────────────────────────


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
    }


def _blocks(reply: ModelReply) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each block as it opens, with the deltas that fill it."""
    for each in reply.thinking:
        if each.redacted:
            yield {"type": "redacted_thinking", "data": each.redacted}, []
        else:
            deltas = [{"type": "thinking_delta", "thinking": t} for t in pieces(each.text)]
            deltas.append({"type": "signature_delta", "signature": each.signature})
            yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if reply.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(reply.text)]
        yield {"type": "text", "text": ""}, deltas
    for call in reply.calls:
        deltas = [
            {"type": "input_json_delta", "partial_json": piece}
            for piece in ["", *pieces(call.arguments)]
        ]
        yield {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, deltas


def anthropic_stream(reply: ModelReply) -> list[bytes]:
    """The events of ``reply`` as the Messages interface streams them."""
    events: list[dict[str, Any]] = []
    first = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**_usage(reply.usage), "output_tokens": 1},
    }
    events.append({"type": "message_start", "message": first})
    events.append({"type": "ping"})
    for index, (block, deltas) in enumerate(_blocks(reply)):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    stop = STOPS.get(reply.stop_reason, reply.stop_reason)
    last = {"stop_reason": stop, "stop_sequence": None}
    usage = {"output_tokens": reply.usage.output_tokens}
    events.append({"type": "message_delta", "delta": last, "usage": usage})
    events.append({"type": "message_stop"})
    return [event(each, each["type"]) for each in events]


def anthropic_message(reply: ModelReply) -> bytes:
    """``reply`` as one JSON body, as without ``stream``."""
    content: list[dict[str, Any]] = []
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    for call in reply.calls:
        arguments = json.loads(call.arguments)
        content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": arguments})
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": content,
        "stop_reason": STOPS.get(reply.stop_reason, reply.stop_reason),
        "stop_sequence": None,
        "usage": _usage(reply.usage),
    }
    return json.dumps(message).encode()
