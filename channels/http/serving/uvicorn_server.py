"""``UvicornServer``: uvicorn on asyncio, without the parts that are the program's.

Its signal handlers, its logging and its lifespan are left out; what it does not do is added: a
limit on connections, and on the time that a client takes to send the head of a request.
"""

import socket
from asyncio import Transport
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

import anyio
import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from hubbub.channels.http.serving.asgi import AsgiApp
from hubbub.channels.http.serving.crowding import making_room, places_at_once
from hubbub.channels.http.serving.listening import BACKLOG
from hubbub.channels.http.serving.uvicorn_socket import UvicornSocket
from hubbub.hub.tasks.outermost import start_in

__all__ = ["UvicornServer"]

IDLE_SECONDS: Final = 10
"""How long a connection may be silent before, between and in the heads of requests."""

ACCEPTS: Final = 128
"""Connections that are accepted in a row at most."""

AFTER: Final = 1.0
"""Seconds that requests which were cancelled have to leave."""


class UvicornServer:
    """Serves ``app`` on ``listener`` with at most so many connections."""

    def __init__(
        self, app: AsgiApp, listener: socket.socket, *, connections: int, max_message: int
    ) -> None:
        self._listener = listener
        config = uvicorn.Config(
            app,
            http=_bounded(connections), ws=UvicornSocket, ws_max_size=max_message, lifespan="off",
            ws_per_message_deflate=False,  # A message's size is known before it is unpacked.
            timeout_keep_alive=IDLE_SECONDS, log_config=None, access_log=False,
            server_header=False, proxy_headers=False, workers=1,
            # As many as asyncio accepts in a row, before any of them can be cut off; and of as many
            # it tells, with a traceback each, that there are no files left.
            backlog=max(1, min(ACCEPTS, connections // 24)),
        )  # fmt: skip
        self._server = _Uvicorn(config)

    async def run(self) -> None:
        """Serve until ``end``."""
        async with anyio.create_task_group() as group:
            start_in(group, self._watch_silent(), name="http silence")
            # It closes the socket that it is given.
            await self._server.serve(sockets=[self._listener.dup()])
            group.cancel_scope.cancel()
        self._cut_off()
        with anyio.move_on_after(AFTER):
            while self._server.server_state.tasks:  # noqa: ASYNC110
                await anyio.sleep(0.01)

    def end(self, grace: float) -> None:
        """Accept nothing more, and cut off what is not done within ``grace`` seconds."""
        # Read once, when it begins to end; what comes later with less is for the hurry.  Without
        # any time uvicorn would say that it was exceeded, even where nothing is under way.
        self._server.config.timeout_graceful_shutdown = grace or None  # type: ignore[assignment]
        self._server.should_exit = True
        if grace <= 0:
            self._server.force_exit = True
            self._cut_off()

    def _cut_off(self) -> None:
        state = self._server.server_state
        for connection in tuple(state.connections):
            connection.transport.abort()
        for task in tuple(state.tasks):
            task.cancel()

    async def _watch_silent(self) -> None:
        """Cut off who has connected and does not ask for anything."""
        waiting: dict[tuple[Any, int], float] = {}
        while True:
            await anyio.sleep(IDLE_SECONDS / 4)
            now = anyio.current_time()
            silent = [each for each in self._server.server_state.connections if _is_silent(each)]
            # Who still takes what is written is not idle.
            found = [(each, each.transport.get_write_buffer_size()) for each in silent]
            waiting = {each: waiting.get(each, now) for each in found}
            for (connection, _), since in waiting.items():
                if now - since >= IDLE_SECONDS:
                    connection.transport.abort()


class _Uvicorn(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As many as before may wait to be accepted."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(BACKLOG)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are not the server's."""
        yield


def _is_silent(connection: Any) -> bool:
    """Whether no request is under way; a connection that has become a WebSocket has no cycle.

    One that is being closed stays open for as long as its client takes nothing.
    """
    if connection.transport.is_closing():
        return True
    if not hasattr(connection, "cycle"):
        return False
    return connection.cycle is None or bool(connection.cycle.response_complete)


def _bounded(connections: int) -> type[Any]:
    base: Any = AutoHTTPProtocol
    numbers = count()
    going: set[Any] = set()

    class Bounded(base):  # type: ignore[misc]
        """Where there are enough, those that are silent make room for it; or it is cut off."""

        def connection_made(self, transport: Transport) -> None:
            super().connection_made(transport)
            self.number = next(numbers)
            if len(self.connections) - len(going) > connections:
                made = self._make_room()
                for each in made or (self,):
                    each.transport.abort()
                going.update(made)

        def connection_lost(self, exc: Exception | None) -> None:
            going.discard(self)
            super().connection_lost(exc)

        def _make_room(self) -> list[Any]:
            silent = [
                each
                for each in self.connections
                if isinstance(each, Bounded) and each is not self and each not in going
                if _is_silent(each)
            ]
            # Who still takes an answer goes last.
            silent.sort(key=lambda x: (x.transport.get_write_buffer_size() > 0, x.number))
            addressed = ((x.client[0] if x.client else "", x) for x in silent)
            return making_room(addressed, places_at_once(connections))

    return Bounded
