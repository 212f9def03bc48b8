"""An app with agents, the official client on it, and streams that are read frame by frame."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from openai import AsyncOpenAI
from openai._base_client import get_platform
from starlette.applications import Starlette
from starlette.routing import Route

from hubbub import FunctionModel, Retention, Runtime, Usage, tool
from hubbub.agents.model import AssistantMessage, ModelReply, ModelRequest
from hubbub.channels.http import HttpApp, HttpLimits
from hubbub.channels.http.openai.endpoints import openai_routes
from hubbub.channels.http.wire.host import Host
from hubbub.hub.hub import Hub
from hubbub.runtime.models.scripted import call, reply
from support.agents import model_agent

__all__ = [
    "CHAT_WEATHER", "WEATHER", "StreamedRequest", "answer", "client_of", "forgetful", "frames_of",
    "impatient_client_of", "merged", "talker", "with_client",
]  # fmt: skip

WEATHER = {
    "type": "function", "name": "weather", "description": "The weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}  # fmt: skip
CHAT_WEATHER = {
    "type": "function",
    "function": {name: value for name, value in WEATHER.items() if name != "type"},
}


@tool
def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


def answer(request: ModelRequest) -> ModelReply:
    """Calls what it is asked to, else repeats what it hears and how much it has heard."""
    usage = Usage(input_tokens=10, output_tokens=5)
    last = request.messages[-1]
    if isinstance(last, AssistantMessage):
        results = ", ".join(each.output for each in last.calls)
        return reply(f"It is {results}.", usage=usage)
    calls = []
    if "sum" in last.content:
        calls.append(call("add", a=1, b=2))
    calls += [call("weather", city=word[1:]) for word in last.content.split() if word[0] == "@"]
    if calls:
        return reply("Let me look.", *calls, thinking="Where is it?", usage=usage)
    return reply(f"{last.content} ({len(request.messages)})", usage=usage)


def talker(name: str = "talker", **options: Any) -> Any:
    """An agent that answers so."""
    return model_agent(FunctionModel(answer, **options), add, name=name)


def client_of(app: Any, **options: Any) -> AsyncOpenAI:
    """The official client, unmodified, on an app in this process."""
    return _client(httpx2.ASGITransport(app), max_retries=0, **options)


def _client(transport: httpx2.AsyncBaseTransport, **options: Any) -> AsyncOpenAI:
    http = httpx2.AsyncClient(transport=transport)
    client = AsyncOpenAI(
        base_url="http://localhost/v1", api_key="none", http_client=http, **options
    )
    # Else it finds this out in a thread, for which virtual time does not wait.
    client._platform = get_platform()
    return client


class _Impatient(httpx2.AsyncBaseTransport):
    """Gives up on each request after a while, as a client does after its timeout."""

    def __init__(self, app: Any, seconds: float) -> None:
        self._inner = httpx2.ASGITransport(app)
        self._seconds = seconds

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            with anyio.fail_after(self._seconds):
                return await self._inner.handle_async_request(request)
        except TimeoutError:
            raise httpx2.ReadTimeout("no answer", request=request) from None


def forgetful(hub: Hub) -> Starlette:
    """The endpoints alone, which have not seen what another app on this hub was sent."""
    return Starlette(routes=[
        Route(x.path, x.asgi, methods=[x.method])
        for x in openai_routes(Host(hub, HttpLimits()))
    ])  # fmt: skip


def impatient_client_of(app: Any, seconds: float) -> AsyncOpenAI:
    """The official client with its own retries, two of them, each after so many seconds."""
    return _client(_Impatient(app, seconds))


@asynccontextmanager
async def with_client(
    ports: Any,
    *agents: Any,
    store: Any = "memory",
    retention: Retention | None = None,
    **options: Any,
) -> AsyncIterator[tuple[Runtime, HttpApp, AsyncOpenAI]]:
    """A runtime, its app, and a client."""
    rt = Runtime([*(agents or (talker(),))], store=store, ports=ports, retention=retention)
    app = HttpApp(rt.hub, **options)
    async with rt, app, client_of(app) as client:
        yield rt, app, client


def frames_of(body: bytes) -> list[dict[str, Any]]:
    """The data of server-sent events; the last is ``[DONE]``."""
    frames = [x for x in body.decode().split("\n\n") if x]
    data = ["".join(y[6:] for y in x.split("\n") if y.startswith("data: ")) for x in frames]
    assert data[-1] == "[DONE]", data[-1]
    return [json.loads(x) for x in data[:-1]]


def merged(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Frames with neighbouring deltas as one, numbered as their last."""
    found: list[dict[str, Any]] = []
    for frame in frames:
        last = found[-1] if found else {}
        if "delta" in frame and last.get("type") == frame["type"]:
            found[-1] = {**frame, "delta": last["delta"] + frame["delta"]}
        else:
            found.append(frame)
    return found


class StreamedRequest:
    """One request that is sent to an app by hand, so that its client can leave."""

    def __init__(
        self, app: Any, method: str, path: str, body: Any = None, *, breaks_at: int = -1
    ) -> None:
        self._app = app
        self._sends_left = breaks_at
        """After how many sends writing fails; never, if negative."""
        self._scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "path": path.partition("?")[0], "raw_path": path.partition("?")[0].encode(),
            "query_string": path.partition("?")[2].encode(), "root_path": "", "scheme": "http",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        self._body = b"" if body is None else json.dumps(body).encode()
        self._is_sent = False
        self._gone = anyio.Event()
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.is_over = False

    async def run(self, leave_when: Callable[[], bool] = lambda: False) -> "StreamedRequest":
        """Send it, and read until it is over or the client leaves, which it does at a send."""
        self._leave_when = leave_when
        await self._app(self._scope, self._receive, self._send)
        return self

    def leave(self) -> None:
        """The client goes."""
        self._gone.set()

    async def _receive(self) -> dict[str, Any]:
        if not self._is_sent:
            self._is_sent = True
            return {"type": "http.request", "body": self._body}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if not self._sends_left:
            raise BrokenPipeError
        self._sends_left -= 1
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        else:
            self.body += message.get("body", b"")
            self.is_over = not message.get("more_body")
        if self._leave_when():
            self.leave()
        await anyio.lowlevel.checkpoint()
