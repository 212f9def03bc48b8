"""A server at an address: the client by which the SDK speaks to it, and what is heard of answers.

The SDK says of a status that it does not know only that there was an error, takes a 404 for a
method that the server does not have, reads a body whatever its length, also one that a few packed
bytes become, and lets a request wait whose answer has the id of another.  Here the status is
remembered for the request that it answers, a body is unpacked in pieces and ends where it is too
long, and what it holds is the answer to its request, or an error.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import httpx2
from anyio.lowlevel import checkpoint
from mcp.client.streamable_http import streamable_http_client

from hubbub.agents.mcp_server import McpServer
from hubbub.hub.ports import Offload
from hubbub.hub.values import Secret
from hubbub.runtime.mcp.lines import MAX_LINE, answer_in, said_in
from hubbub.runtime.mcp.told import Told
from hubbub.runtime.models.http.inflate import CannotInflate, Inflater

__all__ = ["address_streams"]

CONNECT_SECONDS: Final = 30.0
READ_SECONDS: Final = 300.0
MAX_REFUSALS: Final = 1_000

MIN_RETRY: Final = 1_000
MAX_RETRY: Final = 60_000
"""Milliseconds after which a stream of events that has ended is asked for again, at the server's
wish: without any, one that ends at once would be asked for without end."""

_SESSION_HEADER: Final = "mcp-session-id"
_CREDENTIALS: Final = (401, 403, 407)
_EVENTS: Final = "text/event-stream"
_JSON: Final = "application/json"


@asynccontextmanager
async def address_streams(server: McpServer, told: Told, offload: Offload) -> AsyncIterator[Any]:
    """What the server says and what it is told, until the context is left."""
    headers = {name: _plain(value) for name, value in server.headers.items()}
    patience = None if server.timeout is None else max(READ_SECONDS, server.timeout + 30.0)
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=patience)
    hooks: dict[str, list[Callable[..., Any]]] = {"response": [partial(_look, told)]}
    # Certificates are loaded, which takes long.
    http = await offload.run(
        partial(
            httpx2.AsyncClient,
            headers={"Accept-Encoding": "identity", **headers},
            timeout=timeout,
            event_hooks=hooks,
        )
    )
    async with http:
        transport = streamable_http_client(
            server.url, http_client=http, max_sse_event_size=MAX_LINE
        )
        async with transport as streams:
            yield streams


async def _look(told: Told, response: httpx2.Response) -> None:
    """Hear of an answer before the SDK does."""
    status = response.status_code
    if status == 404 and _SESSION_HEADER in response.request.headers:
        told.has_forgotten = True
    asked = _asked_by(response.request)
    if status >= 400 and asked is not None and len(told.refusals) < MAX_REFUSALS:
        told.refusals[str(asked)] = _words(response)
    # Without the header, httpx2 unpacks nothing: it would all at once, however often it is packed.
    packing = response.headers.pop("content-encoding", "")
    kind = response.headers.get("content-type", "").lower()
    if kind.startswith(_EVENTS):
        events = _Body(response.stream, packing, None, httpx2.SSEError)
        response.stream = _Events(events, response.request, asked)
        # As they are written now, whatever they came in: to read some encodings takes for ever.
        response.encoding = "utf-8"
        return
    response.stream = body = _Body(response.stream, packing, MAX_LINE, httpx2.StreamError)
    if status == 200 and kind.startswith(_JSON) and asked is not None:
        response.stream = _Answer(body, asked)


def _asked_by(request: httpx2.Request) -> int | str | None:
    """The id of the request that is sent; None for anything else."""
    try:
        found = json.loads(request.content).get("id")
    except (ValueError, AttributeError, httpx2.RequestNotRead):
        return None
    return found if isinstance(found, int | str) else None


def _words(response: httpx2.Response) -> str:
    text = f"the server answered with the HTTP status {response.status_code}"
    with suppress(ValueError):
        text = f"{text} ({httpx2.codes.get_reason_phrase(response.status_code)})"
    if response.status_code in _CREDENTIALS:
        return f"{text}; give the credentials that it wants by headers={{…}} with a Secret"
    return text


class _Body(httpx2.AsyncByteStream):
    """A body as it was before it was compressed, as far as it is read: in pieces, and others are at
    work in between.

    ``most``: bytes that are read, of what comes and of what that becomes; of a stream without end,
    None.  ``fault``: what is raised, by its class the SDK tells it to the caller.
    """

    def __init__(self, stream: Any, packing: str, most: int | None, fault: type[Exception]) -> None:
        self._stream = stream
        self._packing = packing
        self._most = most
        self._fault = fault

    async def __aiter__(self) -> AsyncIterator[bytes]:
        came = became = 0
        try:
            inflater = Inflater(self._packing)
            async for chunk in self._stream:
                came += len(chunk)
                self._check(came)  # What comes may become nothing.
                for piece in inflater.feed(chunk):
                    became += len(piece)
                    self._check(became)
                    yield piece
                    await checkpoint()
        except CannotInflate as error:
            raise self._fault(str(error)) from None

    def _check(self, size: int) -> None:
        if self._most is not None and size > self._most:
            raise self._fault(f"it is longer than {self._most >> 20} MB")

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Answer(httpx2.AsyncByteStream):
    """A body that is read as the answer to a request."""

    def __init__(self, stream: _Body, asked: int | str) -> None:
        self._stream = stream
        self._asked = asked

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = b"".join([chunk async for chunk in self._stream])
        yield answer_in(body, self._asked)

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Events(httpx2.AsyncByteStream):
    """A stream of events, each of which is a message."""

    def __init__(self, stream: Any, request: httpx2.Request, asked: int | str | None) -> None:
        self._stream = stream
        self._request = request
        self._asked = asked

    async def __aiter__(self) -> AsyncIterator[bytes]:
        kind = {"content-type": _EVENTS}
        given = httpx2.Response(200, headers=kind, stream=self._stream, request=self._request)
        found: Any = httpx2.EventSource(given, max_event_size=MAX_LINE)
        async with aclosing(aiter(found)) as events:
            async for each in events:
                yield self._again(each)

    def _again(self, event: httpx2.ServerSentEvent) -> bytes:
        """The same event, with what the SDK can read."""
        data = b""
        if event.data and event.event == "message":  # The SDK reads no others.
            data = said_in(event.data.encode(), self._asked)
        fields = [("event", event.event), ("id", event.id), ("data", data.decode())]
        if event.retry is not None:
            pause = min(max(event.retry, MIN_RETRY), MAX_RETRY)
            fields.append(("retry", str(pause)))
        lines = [f"{name}: {part}\n" for name, text in fields if text for part in text.split("\n")]
        return "".join((*lines, "\n")).encode()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _plain(value: str | Secret) -> str:
    return (value.reveal() or "") if isinstance(value, Secret) else value
