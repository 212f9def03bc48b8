"""Providers on loopback: real sockets, real HTTP/1.1, the providers' real wire formats.

``serving(answer, …)`` runs a server that gives one ``Answer`` after the other and keeps what it
was sent.  ``anthropic_stream`` and friends render a ``ModelReply`` as a provider would send it;
that the format is the real one is proven by the official clients, which read these servers too.
"""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from hubbub.agents.model import ModelReply, Usage

# ── the server ───────────────────────────────────────────────────────────────────────────────


@dataclass
class Answer:
    """One answer: ``pieces`` go out as separate writes.

    ``end``: ``"whole"`` closes the body as HTTP wants it, ``"close"`` has no framing and ends
    with the connection, ``"cut"`` drops the connection inside the body, ``"hold"`` goes silent
    until the client leaves.
    """

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    end: str = "whole"


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class ProviderServer:
    """What a test sees of a running server."""

    def __init__(self, answers: Sequence[Answer], port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[Request] = []
        self.connections = 0
        self.asked = anyio.Event()
        self.client_left = anyio.Event()
        self._answers = list(answers)

    async def handle(self, stream: SocketStream) -> None:
        self.connections += 1
        async with stream:
            reader = BufferedByteReceiveStream(stream)
            try:
                while await self._serve_one(reader, stream):
                    pass
            except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
                self.client_left.set()

    async def _serve_one(self, reader: BufferedByteReceiveStream, stream: SocketStream) -> bool:
        head = (await reader.receive_until(b"\r\n\r\n", 65536)).decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in head[1:])}
        body = await reader.receive_exactly(int(headers["content-length"]))
        self.requests.append(Request(head[0].split(" ")[1], headers, body))
        self.asked.set()
        answer = self._answers.pop(0)
        framing = {"transfer-encoding": "chunked"} if answer.end != "close" else {}
        lines = [f"HTTP/1.1 {answer.status} X"]
        given = {"content-type": "text/event-stream", **framing, **answer.headers}
        lines += [f"{name}: {value}" for name, value in given.items() if value]
        await stream.send(("\r\n".join(lines) + "\r\n\r\n").encode())
        for piece in answer.pieces:
            await stream.send(b"%x\r\n%s\r\n" % (len(piece), piece) if framing else piece)
        if answer.end == "hold":
            await reader.receive()
        if answer.end == "whole":
            await stream.send(b"0\r\n\r\n")
        return answer.end == "whole"


@asynccontextmanager
async def serving(*answers: Answer, port: int = 0) -> AsyncIterator[ProviderServer]:
    """A server on a free port of 127.0.0.1, stopped with all its connections at the end."""
    host = "127.0.0.1"
    async with await anyio.create_tcp_listener(local_host=host, local_port=port) as listener:
        port = listener.listeners[0].extra(SocketAttribute.local_port)
        server = ProviderServer(answers, port)
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, server.handle)
            try:
                yield server
            except Exception as error:
                # Past the task group, so that a test sees it bare and not in a group.
                failure = error
            group.cancel_scope.cancel()
        if failure is not None:
            raise failure


# ── the wire formats ─────────────────────────────────────────────────────────────────────────


def _pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def event(data: dict[str, Any] | str, name: str = "") -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


ANTHROPIC_STOPS = {"end": "end_turn", "tools": "tool_use", "length": "max_tokens"}
OPENAI_STOPS = {"end": "stop", "tools": "tool_calls"}


def _anthropic_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
    }


def _anthropic_blocks(reply: ModelReply) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each block as it opens, with the deltas that fill it."""
    for each in reply.thinking:
        if each.redacted:
            yield {"type": "redacted_thinking", "data": each.redacted}, []
        else:
            deltas = [{"type": "thinking_delta", "thinking": t} for t in _pieces(each.text)]
            deltas.append({"type": "signature_delta", "signature": each.signature})
            yield {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if reply.text:
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(reply.text)]
        yield {"type": "text", "text": ""}, deltas
    for call in reply.calls:
        deltas = [
            {"type": "input_json_delta", "partial_json": piece}
            for piece in ["", *_pieces(call.arguments)]
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
        "usage": {**_anthropic_usage(reply.usage), "output_tokens": 1},
    }
    events.append({"type": "message_start", "message": first})
    events.append({"type": "ping"})
    for index, (block, deltas) in enumerate(_anthropic_blocks(reply)):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    stop = ANTHROPIC_STOPS.get(reply.stop_reason, reply.stop_reason)
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
        "stop_reason": ANTHROPIC_STOPS.get(reply.stop_reason, reply.stop_reason),
        "stop_sequence": None,
        "usage": _anthropic_usage(reply.usage),
    }
    return json.dumps(message).encode()


def _openai_usage(usage: Usage) -> dict[str, Any]:
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
        chunks += [chunk(model, reasoning_content=piece) for piece in _pieces(each.text)]
    chunks += [chunk(model, content=piece) for piece in _pieces(reply.text)]
    for index, call in enumerate(reply.calls):
        opening = {"name": call.name, "arguments": ""}
        first = {"index": index, "id": call.id, "type": "function", "function": opening}
        chunks.append(chunk(model, tool_calls=[first]))
        for piece in _pieces(call.arguments):
            more = {"index": index, "function": {"arguments": piece}}
            chunks.append(chunk(model, tool_calls=[more]))
    stop = OPENAI_STOPS.get(reply.stop_reason, reply.stop_reason)
    chunks.append(chunk(model, finish=stop))
    chunks.append(chunk(model, usage=_openai_usage(reply.usage)))
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
    stop = OPENAI_STOPS.get(reply.stop_reason, reply.stop_reason)
    whole = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": reply.model,
        "choices": [{"index": 0, "message": message, "finish_reason": stop, "logprobs": None}],
        "usage": _openai_usage(reply.usage),
    }
    return json.dumps(whole).encode()
