"""Clients of the SDK: for a command, an address, or an object in this process."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TextIO, cast

import anyio
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.session import IncomingMessage
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from mcp_types import Implementation, ToolListChangedNotification

from hubbub.agents.mcp_server import McpServer
from hubbub.hub.near_misses import kind_of
from hubbub.hub.ports import Offload
from hubbub.hub.tasks.outermost import start_in
from hubbub.hub.values import Secret
from hubbub.runtime.mcp.http import address_streams
from hubbub.runtime.mcp.stdio import command_streams
from hubbub.runtime.mcp.told import Told
from hubbub.runtime.mcp.watching import Streams, Watched

__all__ = ["opened", "target_problem"]

MAX_TAIL: Final = 2_000


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
            is_watched = isinstance(reached, Watched)
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
        yield Watched(address_streams(server, told, offload), told)
    elif server.command:
        env = {name: _plain(value) for name, value in server.env.items()}
        async with _errors(told) as errlog:
            yield Watched(_started(server, env, errlog, told), told, errlog)
    elif isinstance(server.target, Server | MCPServer):
        yield server.target
    else:
        yield Watched(cast("AbstractAsyncContextManager[Streams]", server.target), told)


def _started(
    server: McpServer, env: dict[str, str], errlog: TextIO, told: Told
) -> AbstractAsyncContextManager[Streams]:
    """The transport of a command."""
    if sys.platform == "win32":  # Only the SDK knows how to end there what a process has started.
        command, *words = server.command
        parameters = StdioServerParameters(command=command, args=words, env=env, cwd=server.cwd)
        return stdio_client(parameters, errlog)
    return command_streams(server.command, env, server.cwd, errlog, told)


def _plain(value: str | Secret) -> str:
    return (value.reveal() or "") if isinstance(value, Secret) else value


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
        kept = told.tail.removeprefix("…") + said.decode(errors="replace")
        # The dots tell what masks it that a value may be cut there.
        told.tail = kept if len(kept) <= MAX_TAIL else f"…{kept[-MAX_TAIL:]}"
