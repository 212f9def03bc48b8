"""``serving``: a model provider on loopback, with real sockets and real HTTP/1.1.

    async with serving(ServerAnswer(wire.stream(reply))) as server:
        model = MyModel("the-model", base_url=server.url)

A server gives its answers one after the other, over as many connections as are opened, and keeps
the requests it was sent.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

__all__ = ["LoopbackServer", "ServerAnswer", "ServerRequest", "serving"]


@dataclass
class ServerAnswer:
    """One answer of a server: ``pieces`` go out as separate writes.

    ``end``: ``"whole"`` closes the body as HTTP wants it, ``"close"`` has no framing and ends
    with the connection, ``"cut"`` drops the connection inside the body, ``"hold"`` goes silent
    until the client leaves.
    """

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    end: str = "whole"


@dataclass
class ServerRequest:
    """What a server was sent."""

    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class LoopbackServer:
    """A server that is running: where it is, what it was sent, how many connections it had."""

    def __init__(self, answers: Sequence[ServerAnswer], port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[ServerRequest] = []
        self.connections = 0
        self.asked = anyio.Event()
        self.client_left = anyio.Event()
        self._answers = list(answers)

    async def handle(self, stream: SocketStream) -> None:
        """Answer the requests of one connection until an answer ends it or the client leaves."""
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
        self.requests.append(ServerRequest(head[0].split(" ")[1], headers, body))
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
async def serving(*answers: ServerAnswer, port: int = 0) -> AsyncIterator[LoopbackServer]:
    """A server on a free port of 127.0.0.1, stopped with all its connections at the end."""
    host = "127.0.0.1"
    async with await anyio.create_tcp_listener(local_host=host, local_port=port) as listener:
        port = listener.listeners[0].extra(SocketAttribute.local_port)
        server = LoopbackServer(answers, port)
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
