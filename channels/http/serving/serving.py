"""``serve``: an app on a port of this machine, until a signal or its caller ends it.

    a signal ──► streams are told to end ──► requests end ──► the server ends ──► serve returns
                 └──── half of ``grace`` ───┘ └── the other ──┘
    a second one, or being cancelled: what is left is cut off at once

The server runs in a task of the caller's, and has no handler of a signal, no lifespan and no
output of its own: what differs between servers is in ``uvicorn_server`` and ``anycorn_server``.
"""

import signal
from contextlib import ExitStack
from typing import Any, Final, Literal, Protocol, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hubbub.channels.http.serving.asgi import AsgiApp
from hubbub.channels.http.serving.lifespan import AppLifespan
from hubbub.channels.http.serving.listening import Address, CannotServe, is_loopback, listen
from hubbub.channels.http.serving.requests import OpenRequests
from hubbub.hub.errors import MissingExtra
from hubbub.hub.tasks.cancelling import is_on_asyncio
from hubbub.hub.tasks.outermost import start_in
from hubbub.hub.values import check_grace

__all__ = ["DEFAULT_PORT", "HttpServer", "ServerName", "check_host", "serve"]

DEFAULT_PORT: Final = 8700

CONNECTIONS: Final = 5000
"""How many connections are open at once; fewer where the process may open fewer files."""

MAX_MESSAGE: Final = 16 * 1024 * 1024
"""Bytes of a message of a WebSocket that no server hands on; the app may allow less."""

HURRY: Final = 0.5
"""Seconds of grace for what is cancelled: enough to send the last frame."""

ServerName: TypeAlias = Literal["uvicorn", "anycorn"]


class HttpServer(Protocol):
    """A server of one app on one listening socket."""

    async def run(self) -> None:
        """Serve until ``end``."""

    def end(self, grace: float) -> None:
        """Accept nothing more, and cut off what is not done within ``grace`` seconds.

        May be called again, with less.
        """


async def serve(
    app: AsgiApp,
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    server: ServerName | None = None,
    grace: float = 4.0,
    is_protected: bool | None = None,
    task_status: TaskStatus[Address] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an ASGI app until SIGINT or SIGTERM, or until the caller is cancelled.

        async with runtime, app:
            await serve(app, port=8700)

    * uvicorn on asyncio and anycorn on Trio, unless ``server`` says otherwise.
    * A signal ends it in order: first streams, which send a last frame, then requests, within
      ``grace`` seconds together; a second one, or cancelling, cuts off what is left.  In another
      thread than the main one signals are not its affair.
    * No client ends it: what a connection does wrong ends that connection.
    * Beyond this machine it serves only an app that asks for a token: one whose ``is_protected``
      is true, or one of your own with ``is_protected=True``.
    * ``address = await group.start(serve, app)``, with ``partial`` for the rest, returns when
      connections are accepted; with ``port=0`` it says which port that is.

    Raises ``CannotServe`` for a host or port that cannot be, and an app that does not start,
    ``MissingExtra`` where the server is not installed, and ``BadValue`` for a ``grace`` that is no
    number of seconds.
    """
    check_grace("grace", grace)
    if is_protected is None:
        is_protected = bool(getattr(app, "is_protected", False))
    check_host(host, is_protected=is_protected)
    server_type = _server_type(server)
    listener, address = await listen(host, port)
    lifespan = AppLifespan(app)
    requests = OpenRequests(app, lifespan.state)
    with listener:
        running = server_type(
            requests, listener, connections=_connections(), max_message=MAX_MESSAGE
        )
        async with anyio.create_task_group() as group:
            failure = await lifespan.begin(group)
            if not failure:
                try:
                    await _Serving(running, requests, grace).run(address, task_status)
                finally:
                    await lifespan.end()
            group.cancel_scope.cancel()
    if failure:
        raise CannotServe(f"the app did not start: {failure}")


class _Serving:
    """A server at work, and how it ends."""

    def __init__(self, server: HttpServer, requests: OpenRequests, grace: float) -> None:
        self._server = server
        self._requests = requests
        self._grace = grace
        self._has_ended = anyio.Event()

    async def run(self, address: Address, task_status: TaskStatus[Address]) -> None:
        async with anyio.create_task_group() as group:
            start_in(group, self._serve(), name="http server")
            try:
                await group.start(self._take_signals, group)
                task_status.started(address)
                await self._has_ended.wait()
            finally:
                self._requests.end()
                self._server.end(HURRY)
            group.cancel_scope.cancel()

    async def _serve(self) -> None:
        try:
            with anyio.CancelScope(shield=True):
                await self._server.run()
        finally:
            self._has_ended.set()

    async def _take_signals(self, group: TaskGroup, *, task_status: TaskStatus[None]) -> None:
        with ExitStack() as stack:
            try:
                signals = stack.enter_context(
                    anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM)
                )
            except (RuntimeError, ValueError):  # Not the main thread, or Windows: Ctrl-C cancels.
                return
            finally:
                task_status.started()
            await anext(signals)
            start_in(group, self._end(), name="http server's end")
            async for _ in signals:
                self._server.end(0)

    async def _end(self) -> None:
        self._requests.end()
        with anyio.move_on_after(self._grace / 2):
            await self._requests.wait_none()
        self._server.end(self._grace / 2)


def check_host(host: str, *, is_protected: bool) -> None:
    """Raise ``CannotServe`` for a host beyond this machine, unless its clients need a token."""
    if not is_protected and not is_loopback(host):
        raise CannotServe(
            f"host {host!r} can be reached from other machines, and nothing asks them for a token; "
            "give one (--token, HUBBUB_TOKEN, HttpApp(hub, token=…)), or serve on 127.0.0.1"
        )


def _server_type(server: ServerName | None) -> Any:
    """The class of the server; raises ``MissingExtra`` and ``CannotServe``."""
    name = server or ("uvicorn" if is_on_asyncio() else "anycorn")
    if name == "uvicorn" and not is_on_asyncio():
        raise CannotServe("uvicorn runs on asyncio only; leave server out, or name anycorn")
    try:
        if name == "uvicorn":
            from hubbub.channels.http.serving.uvicorn_server import UvicornServer

            return UvicornServer
        from hubbub.channels.http.serving.anycorn_server import AnycornServer
    except ImportError:
        extra = "http" if name == "uvicorn" else "http-trio"
        raise MissingExtra(f"serving with {name}", extra) from None
    return AnycornServer


def _connections() -> int:
    """The limit on connections: it leaves the process files for everything else."""
    try:
        import resource
    except ImportError:
        return CONNECTIONS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if files == resource.RLIM_INFINITY else min(CONNECTIONS, files * 3 // 4)
