"""OpenAI's side of the wire of Responses.

``responses_problems`` reads a request's body with the types of the official client, and by the
rules that those types cannot say.  That the streams are the real ones is proven by the official
client, which reads them too.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import openai.types.responses.response_create_params as create_params
from msgspec.structs import replace
from pydantic import TypeAdapter

from hubbub.agents.model import ModelReply, ModelRequest, Thinking, Usage
from hubbub.runtime.models.http.endpoint import encode_body
from hubbub.runtime.models.http.errors import ProviderOrigin
from hubbub.runtime.models.responses.model import ResponsesModel, request_body
from hubbub.runtime.models.responses.provider import RESPONSES
from support.provider_wires import event, is_name, pieces, read_strictly, texts_of

_params = TypeAdapter(create_params.ResponseCreateParamsStreaming)


class ResponsesWire:
    """For the conformance suite."""

    provider = RESPONSES
    path = "/v1/responses"
    key_header = "authorization"
    stop_reasons: ClassVar = {
        "completed": "end",
        "max_output_tokens": "length",
        "content_filter": "refusal",
        "tired": "tired",
    }
    final_events = 1
    unreadable = (
        b'data: {"type": 5}\n\n',
        b'data: {"type": "response.output_text.delta", "output_index": 9, "delta": "x"}\n\n',
    )

    def make(
        self, server: str, *, key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> ResponsesModel:
        url = server if server == RESPONSES.url else f"{server}/v1/"
        return ResponsesModel("the-model", key=key, base_url=url, headers=headers)

    def body(self, request: ModelRequest) -> bytes:
        return encode_body(request_body(request, model="the-model"), ProviderOrigin("m", "u", "K"))

    def problems(self, body: Any) -> list[str]:
        return responses_problems(body)

    def said(self, body: Any) -> list[tuple[str, str]]:
        spoken = [item for item in body["input"] if "role" in item]
        return [(item["role"], "\n\n".join(texts_of(item["content"]))) for item in spoken]

    def stream(self, reply: ModelReply) -> list[bytes]:
        return responses_stream(reply)

    def whole(self, reply: ModelReply) -> bytes:
        return json.dumps(_response(reply, list(_outputs(reply)))).encode()

    def carried(self, reply: ModelReply) -> ModelReply:
        return replace(
            reply,
            thinking=tuple(
                Thinking(text=each.text, signature=f"openai-responses:rs_{at}:{each.signature}")
                for at, each in enumerate(reply.thinking)
            ),
        )


# ── what it refuses ──────────────────────────────────────────────────────────────────────────


def responses_problems(body: dict[str, Any]) -> list[str]:
    """What the Responses interface would refuse in ``body``."""
    known = create_params.ResponseCreateParamsStreaming.__annotations__
    base = create_params.ResponseCreateParamsBase.__annotations__
    problems = [f"unknown field {name}" for name in body if name not in {*known, *base}]
    read_strictly(_params, body)
    open_calls: list[str] = []
    used: list[str] = []
    pending = ""
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            if item["call_id"] not in open_calls:
                problems.append(f"an output out of place: {item['call_id']}")
            else:
                open_calls.remove(item["call_id"])
        elif kind == "function_call":
            open_calls.append(item["call_id"])
            used.append(item["call_id"])
            if not isinstance(json.loads(item["arguments"]), dict):
                problems.append("arguments are no object")
            if not is_name(item["name"]):
                problems.append(f"tool name {item['name']!r}")
        elif open_calls:
            problems.append(f"no output for {open_calls}")
        if kind == "message":
            texts = texts_of(item["content"])
            if not item["content"] or not all(map(str.strip, texts)):
                problems.append("a blank message")
            if pending and item["role"] != "assistant":
                problems.append("a thought that nothing follows")
        if kind == "reasoning" and not item["encrypted_content"]:
            problems.append("a thought that cannot be read")
        pending = kind if kind == "reasoning" else ""
    if open_calls or pending or len(set(used)) != len(used):
        problems.append(f"ids {used}, open {open_calls} {pending}")
    if not any(item.get("role") == "user" for item in body["input"]):
        problems.append("no user message")
    return problems


# ── what it answers ──────────────────────────────────────────────────────────────────────────


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _outputs(reply: ModelReply) -> Iterator[dict[str, Any]]:
    for at, each in enumerate(reply.thinking):
        yield {
            "type": "reasoning",
            "id": f"rs_{at}",
            "summary": [{"type": "summary_text", "text": each.text}],
            "encrypted_content": each.signature.rpartition(":")[2],
        }
    if reply.text:
        text = {"type": "output_text", "text": reply.text, "annotations": []}
        yield {
            "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [text],
        }  # fmt: skip
    for at, call in enumerate(reply.calls):
        yield {
            "type": "function_call", "id": f"fc_{at}", "call_id": call.id, "name": call.name,
            "arguments": call.arguments, "status": "completed",
        }  # fmt: skip


def _response(reply: ModelReply, output: list[dict[str, Any]]) -> dict[str, Any]:
    stop = reply.stop_reason
    is_whole = stop in ("end", "tools", "completed")
    word = {"length": "max_output_tokens", "refusal": "content_filter"}.get(stop, stop)
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": reply.model,
        "status": "completed" if is_whole else "incomplete",
        "incomplete_details": None if is_whole else {"reason": word},
        "error": None,
        "instructions": None,
        "metadata": {},
        "output": output,
        "parallel_tool_calls": False,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": _usage(reply.usage),
    }


_EMPTIED = {
    "reasoning": {"summary": [], "encrypted_content": ""},
    "message": {"content": []},
    "function_call": {"arguments": ""},
}


def responses_stream(reply: ModelReply) -> list[bytes]:
    """The events of ``reply`` as OpenAI streams them."""
    outputs = list(_outputs(reply))
    begun = {**_response(reply, []), "status": "in_progress", "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for at, item in enumerate(outputs):
        place = {"output_index": at, "item_id": item["id"]}
        empty = {**item, **_EMPTIED[item["type"]]}
        events.append({"type": "response.output_item.added", "output_index": at, "item": empty})
        events += [{**place, **each} for each in _deltas(item)]
        events.append({"type": "response.output_item.done", "output_index": at, "item": item})
    whole = _response(reply, outputs)
    events.append({"type": f"response.{whole['status']}", "response": whole})
    return [
        event({**each, "sequence_number": number}, each["type"])
        for number, each in enumerate(events)
    ]


def _deltas(item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    match item["type"]:
        case "reasoning":
            (part,) = item["summary"]
            yield {
                "type": "response.reasoning_summary_part.added", "summary_index": 0,
                "part": {"type": "summary_text", "text": ""},
            }  # fmt: skip
            for piece in pieces(part["text"]):
                kind = "response.reasoning_summary_text.delta"
                yield {"type": kind, "summary_index": 0, "delta": piece}
        case "message":
            (part,) = item["content"]
            yield {
                "type": "response.content_part.added", "content_index": 0,
                "part": {**part, "text": ""},
            }  # fmt: skip
            for piece in pieces(part["text"]):
                yield {
                    "type": "response.output_text.delta", "content_index": 0, "delta": piece,
                    "logprobs": [],
                }  # fmt: skip
        case _:
            for piece in pieces(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", "delta": piece}
