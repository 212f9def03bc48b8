"""``AnycornServer``: the connections of anycorn, accepted here.  The server for Trio.

anycorn's own ``serve`` is one task group: what a connection raises ends them all, as does running
out of file descriptors, and a client that reads nothing keeps it from ever ending.  So connections
are accepted here; each fails for itself, their number is limited, what its client has left is over
at once, and what is left at the end is cut off.
"""

import logging
import re
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, cast

import anyio
from anycorn import Config
from anycorn.app_wrappers import ASGIWrapper
from anycorn.events import Event, RawData
from anycorn.protocol import ProtocolWrapper
from anycorn.protocol.h11 import H11Protocol
from anycorn.tcp_server import TCPServer
from anycorn.worker_context import WorkerContext
from anyio.abc import ByteStream, SocketAttribute, SocketListener, SocketStream, TaskGroup

from hubbub.channels.http.serving.asgi import AsgiApp, Receive, Scope, Send
from hubbub.channels.http.serving.crowding import making_room, places_at_once
from hubbub.hub.logs import log
from hubbub.hub.tasks.outermost import start_in
from hubbub.hub.tasks.raised import uncontained

__all__ = ["AnycornServer"]

CUT: Final = "hubbub.cut"
"""The extension of a scope by which an app cuts off a client that takes nothing."""

PAUSE: Final = 0.5
"""Seconds without accepting, after the system refused one more connection."""

IDLE_SECONDS: Final = 10.0
"""How long a connection may be silent before, between and in the heads of requests."""


class AnycornServer:
    """Serves ``app`` on ``listener`` with at most so many connections."""

    def __init__(
        self, app: AsgiApp, listener: socket.socket, *, connections: int, max_message: int
    ) -> None:
        self._app = app
        self._listener = listener
        self._connections = connections
        self._open: dict[_Connection, None] = {}
        """The connections, the oldest first."""
        self._accepting = anyio.CancelScope()
        self._leaving = anyio.CancelScope()
        self._has_closed = anyio.Event()
        self._context = WorkerContext(None)
        self._config = Config()
        self._config.errorlog = logging.getLogger("anycorn.error")
        self._config.include_server_header = False
        self._config.keep_alive_timeout = IDLE_SECONDS
        self._config.websocket_max_message_size = max_message
        # A message's size is known before it is unpacked.
        self._config.websocket_permessage_deflate = False

    async def run(self) -> None:
        """Serve until ``end``."""
        async with (
            await SocketListener.from_socket(self._listener.dup()) as listener,
            anyio.create_task_group() as group,
        ):
            with self._accepting:
                await self._accept(listener, group)
            await listener.aclose()
            await self._context.terminated.set()
            await self._let_end()
            group.cancel_scope.cancel()

    def end(self, grace: float) -> None:
        """Accept nothing more, and cut off what is not done within ``grace`` seconds."""
        self._leaving.deadline = min(self._leaving.deadline, anyio.current_time() + grace)
        self._accepting.cancel()

    async def _accept(self, listener: SocketListener, group: TaskGroup) -> None:
        while True:
            try:
                stream = await listener.accept()
            except (OSError, anyio.BrokenResourceError) as error:  # On Trio it is the latter.
                log.error("http.accept_failed", error=str(error.__cause__ or error))
                await anyio.sleep(PAUSE)
                continue
            if len(self._open) >= self._connections:
                self._make_room()
            if len(self._open) >= self._connections:
                await anyio.aclose_forcefully(stream)
            else:
                connection = _Connection(self._app, stream)
                self._open[connection] = None
                start_in(group, self._serve(connection), name="http connection")

    def _make_room(self) -> None:
        """Cut off some of the connections that are silent."""
        silent = ((each.address, each) for each in self._open if not each.has_requests)
        for each in making_room(silent, places_at_once(self._connections)):
            del self._open[each]
            each.cut()
            each.scope.cancel()

    async def _serve(self, connection: "_Connection") -> None:
        server = _ConnectionServer(connection, self._config, self._context)
        try:
            with connection.scope:
                await server.run()
        except BaseException as error:
            passed = uncontained(error)
            if passed is not None:
                raise passed from None
            log.error("http.connection_failed", exc_info=error)
        finally:
            self._open.pop(connection, None)
            self._has_closed.set()
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(connection)

    async def _let_end(self) -> None:
        """Wait until no connection is left, then cut off those that are."""
        with self._leaving:
            while self._open:
                self._has_closed = anyio.Event()
                await self._has_closed.wait()
        # anycorn sends within a shield: only closing ends what a client keeps waiting.
        for connection in tuple(self._open):
            await anyio.aclose_forcefully(connection)


class _Connection(ByteStream):
    """A client's connection, which is over when it has left and its requests are.

    anycorn would keep it for as long as one that is silent.
    """

    def __init__(self, app: AsgiApp, stream: SocketStream) -> None:
        self.scope = anyio.CancelScope()
        self._app = app
        self._stream = stream
        self._requests = 0
        self._has_left = False
        self.address = ""
        """Its client's address, unless that has left at once."""
        with suppress(OSError):
            self.address = str(stream.extra(SocketAttribute.remote_address)[0])

    async def call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The app, as this connection's requests call it."""
        self._requests += 1
        extensions = {**(scope.get("extensions") or {}), CUT: self.cut}
        try:
            await self._app({**scope, "extensions": extensions}, receive, send)
        finally:
            self._requests -= 1
            self._perhaps_end()

    def cut(self) -> None:
        """Have the connection fail, also where something waits in a shield to be sent."""
        with suppress(OSError):
            self._stream.extra(SocketAttribute.raw_socket).shutdown(socket.SHUT_RDWR)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        try:
            return await self._stream.receive(max_bytes)
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            self._has_left = True
            self._perhaps_end()
            raise

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    @property
    def has_requests(self) -> bool:
        """Whether the app is at work on one."""
        return self._requests > 0

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return self._stream.extra_attributes

    def _perhaps_end(self) -> None:
        if self._has_left and not self._requests:
            self.scope.cancel()


class _ConnectionServer(TCPServer):
    """anycorn's side of a connection.  What it refuses itself is said in words, too."""

    def __init__(self, connection: _Connection, config: Config, context: WorkerContext) -> None:
        app = ASGIWrapper(cast("Any", connection.call))
        super().__init__(app, config, context, cast("Any", {}), cast("Any", connection))
        self._connection = connection

    @property
    def protocol(self) -> ProtocolWrapper:
        """What the connection speaks: HTTP/1.1, and no other."""
        return self._protocol

    @protocol.setter
    def protocol(self, made: ProtocolWrapper) -> None:
        made.protocol = _OneProtocol(
            made.app, made.config, made.context, made.task_group, made.state, made.client,
            made.server, made.send, made.tls, zero_copy_send=made.zero_copy_send,
        )  # fmt: skip
        self._protocol = made

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, RawData) and not self._is_the_apps():
            event = RawData(data=_in_words(event.data))
        await super().protocol_send(event)

    def _is_the_apps(self) -> bool:
        """Whether the app sends it: anycorn alone answers what is no HTTP."""
        http = self.protocol.protocol
        # By its name: h11, whose state it is, comes with anycorn and is no requirement of its own.
        is_broken = isinstance(http, H11Protocol) and repr(http.connection.their_state) == "ERROR"
        return self._connection.has_requests and not is_broken


class _OneProtocol(H11Protocol):
    """HTTP/1.1 that does not become HTTP/2.

    Nothing counts the frames of that: those that only set something, which need no token, would
    keep the loop from all else.
    """

    async def _check_protocol(self, event: Any) -> None:
        """Another protocol that a request proposes is left alone."""


def _in_words(answer: bytes) -> bytes:
    """A status without a body, with a line of text that says what it means."""
    found = _REFUSAL.match(answer)
    if found is None:
        return answer
    words = f"{HTTPStatus(int(found[1])).phrase}\n".encode()
    head = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d" % len(words)
    return answer[: found.start(2)] + head + answer[found.end(2) :] + words


_REFUSAL: Final = re.compile(rb"HTTP/1\.1 ([45]\d\d) \r\n(content-length: 0)\r\n")
