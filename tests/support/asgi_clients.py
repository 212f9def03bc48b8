"""Clients of an ASGI app without a server: streams of events, and WebSockets.

They are as slow as a test wants, vanish when it wants, and keep what they got.
"""

import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode

import anyio
import anyio.lowlevel

__all__ = [
    "EventSource", "Frame", "Socket", "SseParser", "event_source", "scope_of", "socket", "turns",
]  # fmt: skip


class Frame(NamedTuple):
    """One event of a stream, as a browser dispatches it."""

    type: str
    data: str
    id: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class SseParser:
    """Server-sent events as the HTML standard reads them."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry = 0
        self.comments = 0
        self._rest = b""
        self._id = ""
        self._type = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> Iterator[Frame]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for raw in lines:
            assert b"\r" not in raw
            line = raw.decode()
            if not line:
                self.last_id = self._id
                if self._data:
                    yield Frame(self._type or "message", "\n".join(self._data), self.last_id)
                self._type, self._data = "", []
                continue
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match name:
                case "":
                    self.comments += 1
                case "id":
                    self._id = value
                case "event":
                    self._type = value
                case "data":
                    self._data.append(value)
                case "retry":
                    self.retry = int(value)
                case _:
                    raise AssertionError(f"no field of server-sent events: {line!r}")


def scope_of(path: str, query: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    """What a server says of a request from this machine."""
    return {
        "asgi": {"version": "3.0"}, "http_version": "1.1", "path": path, "raw_path": path.encode(),
        "query_string": urlencode(query, doseq=True).encode(), "root_path": "", "scheme": "http",
        "client": ("127.0.0.1", 1), "server": ("localhost", 80),
        "headers": [
            (b"host", b"localhost"),
            *((name.lower().encode(), value.encode()) for name, value in headers.items()),
        ],
    }  # fmt: skip


class _Client:
    """One side of a connection: what it reads, and when it leaves."""

    def __init__(self) -> None:
        self.is_over = False
        """Whether the app is done with it."""
        self.sends = 0
        self.gate: Callable[[], Any] | None = None
        """Awaited for each message that it is sent: a client that is slow."""
        self.vanishes_at: int | None = None
        """The number of the send that fails, as of a server that finds nobody there."""
        self.ended = anyio.Event()
        """Set when nothing more will come."""
        self._left = anyio.Event()

    def leave(self) -> None:
        """Be gone, at once."""
        self._left.set()

    async def _passed(self) -> None:
        self.sends += 1
        if self.vanishes_at is not None and self.sends >= self.vanishes_at:
            self.ended.set()
            raise OSError("nobody is there")
        if self.gate is not None:
            await self.gate()


class EventSource(_Client):
    """A stream of server-sent events that is read."""

    def __init__(self) -> None:
        super().__init__()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.frames: list[Frame] = []
        self.parser = SseParser()
        self.breaks_after: int | None = None
        """How many bytes come before the connection breaks."""
        self._asked = False

    @property
    def types(self) -> list[str]:
        return [frame.type for frame in self.frames]

    @property
    def durable(self) -> list[tuple[str, str, int]]:
        """The identities of the durable events, in order."""
        events = [frame.json for frame in self.frames]
        return [(e["run_id"], e["lane"], e["seq"]) for e in events if e.get("lane")]

    @property
    def reason(self) -> str:
        """Why it has ended regularly; empty where it was cut."""
        last = self.frames[-1] if self.frames else None
        return last.json["reason"] if last is not None and last.type == "hubbub:end" else ""

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self._passed()
        if message["type"] == "http.response.start":
            assert not self.status
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            return
        assert message["type"] == "http.response.body" and self.status and not self.is_over
        body = message.get("body", b"")
        is_broken = self.breaks_after is not None and len(self.body) + len(body) > self.breaks_after
        if is_broken:
            body = body[: self.breaks_after - len(self.body)]
        self.body += body
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            self.frames += self.parser.feed(body)
        if is_broken:
            self.ended.set()
            raise OSError("the connection is broken")
        self.is_over = not message.get("more_body", False)
        if self.is_over:
            self.ended.set()


@asynccontextmanager
async def event_source(
    app: Any, path: str = "/api/events", *, headers: dict[str, str] | None = None,
    client: EventSource | None = None, method: str = "GET", **query: Any,
) -> AsyncIterator[EventSource]:  # fmt: skip
    """A stream of the app's; on leaving, its client leaves, and the app must be done with it."""
    client = client or EventSource()
    scope = {**scope_of(path, query, headers or {}), "type": "http", "method": method}
    async with anyio.create_task_group() as group:
        group.start_soon(app, scope, client.receive, client.send)
        await turns()
        yield client
        client.leave()


class Socket(_Client):
    """A WebSocket that is spoken with."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: dict[str, Any] | None = None
        self.code = 0
        """Of the close."""
        self.got: list[Any] = []
        self.status = 0
        """Of an answer instead of an acceptance."""
        self._said: deque[dict[str, Any]] = deque()
        self._has_said = anyio.Event()
        self._number = 0

    def say(self, command: str, **fields: Any) -> str:
        """Send a command; returns its id."""
        self._number += 1
        fields = {"id": f"c{self._number}", **fields}
        self.say_text(json.dumps({"command": command, **fields}))
        return str(fields["id"])

    def say_text(self, text: str) -> None:
        self._speak({"type": "websocket.receive", "text": text})

    def say_bytes(self, data: bytes) -> None:
        self._speak({"type": "websocket.receive", "bytes": data})

    def leave(self) -> None:
        self._speak({"type": "websocket.disconnect", "code": 1001})

    def _speak(self, message: dict[str, Any]) -> None:
        self._said.append(message)
        self._has_said.set()

    def answer(self, id: str) -> Any:
        """The one answer to a command; ``None`` while there is none."""
        found = [each for each in self.got if each.get("id") == id]
        assert len(found) < 2, found
        return found[0] if found else None

    def events(self, selection: str) -> list[Any]:
        """What a selection has brought, as items with event and position."""
        frames = [each for each in self.got if each["kind"] == "events"]
        return [
            item for each in frames if each["selection"] == selection for item in each["events"]
        ]

    async def receive(self) -> dict[str, Any]:
        if self.accepted is None and not self.status and not self.is_over:
            return {"type": "websocket.connect"}
        while not self._said:
            self._has_said = anyio.Event()
            await self._has_said.wait()
        return self._said.popleft()

    async def send(self, message: Any) -> None:
        await self._passed()
        match message["type"]:
            case "websocket.accept":
                self.accepted = message
            case "websocket.close":
                self.code, self.is_over = message["code"], True
                self.ended.set()
                self.leave()
            case "websocket.http.response.start":
                self.status = message["status"]
            case "websocket.send":
                assert self.accepted is not None and not self.is_over
                self.got.append(json.loads(message["text"]))


@asynccontextmanager
async def socket(
    app: Any, path: str = "/api/socket", *, subprotocols: tuple[str, ...] = (),
    client: Socket | None = None,
) -> AsyncIterator[Socket]:  # fmt: skip
    """A WebSocket of the app's; on leaving, its client leaves."""
    client = client or Socket()
    scope = {
        **scope_of(path, {}, {}), "type": "websocket", "scheme": "ws",
        "subprotocols": list(subprotocols), "extensions": {"websocket.http.response": {}},
    }  # fmt: skip
    async with anyio.create_task_group() as group:
        group.start_soon(app, scope, client.receive, client.send)
        await turns()
        yield client
        if not client.is_over:
            client.leave()


async def turns(count: int = 20) -> None:
    """Let the app do what it can do now."""
    for _ in range(count):
        await anyio.lowlevel.checkpoint()
