"""Clients of the SDK: for a command, an address, or an object in this process."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TextIO, cast

import anyio
import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.session import ElicitationFnT, IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp.shared.message import SessionMessage
from mcp_types import Implementation, JSONRPCNotification, ToolListChangedNotification

from hubbub.agents.mcp_server import McpServer
from hubbub.hub.near_misses import kind_of
from hubbub.hub.ports import Offload
from hubbub.hub.tasks.outermost import start_in
from hubbub.hub.values import Secret

__all__ = ["Told", "opened", "target_problem"]

CONNECT_SECONDS: Final = 30.0
READ_SECONDS: Final = 300.0
SESSION_HEADER: Final = "mcp-session-id"
MAX_TAIL: Final = 2_000

Streams = Any
"""What the SDK calls ``TransportStreams``."""


class Told:
    """What a client tells its connection."""

    __slots__ = ("ask", "ended", "has_forgotten", "notified", "tail")

    def __init__(
        self, ended: Callable[[], None], notified: Callable[[str], None], ask: ElicitationFnT
    ) -> None:
        self.ended = ended
        """The server will say nothing more."""
        self.notified = notified
        """It has sent a notification of this method."""
        self.ask = ask
        self.has_forgotten = False
        """Whether the server has refused something as of a session that it does not know."""
        self.tail = ""
        """The last words of a command on its standard error."""


def target_problem(target: Any) -> str:
    """Why an object can be no server; empty where it can."""
    if isinstance(target, str | tuple | Server | MCPServer) or hasattr(target, "__aenter__"):
        return ""
    return f"expected a server object of the SDK, not {kind_of(target)}"


@asynccontextmanager
async def opened(
    server: McpServer, told: Told, offload: Offload, *, is_old: bool
) -> AsyncIterator[Client]:
    """A client that is connected; opened and closed in one task.

    ``is_old``: by the protocol of 2025, without asking for a newer one.
    """
    async with _reached(server, told, offload) as reached:

        async def said(message: IncomingMessage) -> None:
            is_watched = isinstance(reached, _Watched)
            if isinstance(message, ToolListChangedNotification) and not is_watched:
                told.notified(message.method)

        client = Client(
            reached,
            mode="legacy" if is_old else "auto",
            cache=None,
            client_info=Implementation(name="hubbub", version="0.1.0"),
            elicitation_callback=told.ask,
            message_handler=said,
        )
        async with client:
            yield client


@asynccontextmanager
async def _reached(server: McpServer, told: Told, offload: Offload) -> AsyncIterator[Any]:
    """What the SDK's client speaks to."""
    if server.url:
        headers = {name: _plain(value) for name, value in server.headers.items()}
        patience = None if server.timeout is None else max(READ_SECONDS, server.timeout + 30.0)
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=patience)
        hooks: dict[str, list[Callable[..., Any]]] = {"response": [partial(_look, told)]}
        # Certificates are loaded, which takes long.
        http = await offload.run(
            partial(httpx2.AsyncClient, headers=headers, timeout=timeout, event_hooks=hooks)
        )
        async with http:
            yield _Watched(streamable_http_client(server.url, http_client=http), told)
    elif server.command:
        command, *words = server.command
        env = {name: _plain(value) for name, value in server.env.items()}
        parameters = StdioServerParameters(command=command, args=words, env=env, cwd=server.cwd)
        async with _errors(told) as errlog:
            yield _Watched(stdio_client(parameters, errlog), told, errlog)
    elif isinstance(server.target, Server | MCPServer):
        yield server.target
    else:
        yield _Watched(cast("AbstractAsyncContextManager[Streams]", server.target), told)


async def _look(told: Told, response: httpx2.Response) -> None:
    if response.status_code == 404 and SESSION_HEADER in response.request.headers:
        told.has_forgotten = True


def _plain(value: str | Secret) -> str:
    return (value.reveal() or "") if isinstance(value, Secret) else value


class _Watched:
    """A transport that says when its server has ended."""

    def __init__(
        self,
        transport: AbstractAsyncContextManager[Streams],
        told: Told,
        errlog: TextIO | None = None,
    ) -> None:
        self._transport = transport
        self._told = told
        self._errlog = errlog

    async def __aenter__(self) -> Streams:
        read, write = await self._transport.__aenter__()
        if self._errlog is not None:
            self._errlog.close()  # The server has it now, and nobody else: its end is seen.
        return _WatchedStream(read, self._told), write

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._transport.__aexit__(exc_type, exc, traceback)


class _WatchedStream:
    """What a server says, up to its end."""

    def __init__(self, stream: Any, told: Told) -> None:
        self._stream = stream
        self._told = told

    @property
    def last_context(self) -> Any:
        """The context of the sender of what was received last."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        try:
            item = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._told.ended()
            raise
        # Here, in the order in which it was said: before the result of the call that it came with.
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCNotification):
            self._told.notified(item.message.method)
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        found: bool | None = await self._stream.__aexit__(exc_type, exc, traceback)
        return found


@asynccontextmanager
async def _errors(told: Told) -> AsyncIterator[TextIO]:
    """Where a command writes its standard error: of that the end is kept."""
    if sys.platform == "win32":  # Pipes cannot be waited for there.
        with os.fdopen(os.open(os.devnull, os.O_WRONLY), "w") as nowhere:
            yield nowhere
        return
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    errlog = os.fdopen(writing, "w")
    try:
        async with anyio.create_task_group() as group:
            start_in(group, _keep_tail(reading, told))
            yield errlog
            group.cancel_scope.cancel()
    finally:
        errlog.close()
        os.close(reading)


async def _keep_tail(reading: int, told: Told) -> None:
    while True:
        await anyio.wait_readable(reading)
        try:
            said = os.read(reading, 65_536)
        except BlockingIOError:
            continue
        if not said:
            return
        told.tail = (told.tail + said.decode(errors="replace"))[-MAX_TAIL:]
