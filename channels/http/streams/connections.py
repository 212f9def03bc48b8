"""``Connections``: the clients that are being served, how they are written to, and their end.

the task that serves ──► Connection.write ◄── ``beat``: a sign of life where nothing was written
the app ends         ──► Connection.end   ──► it says why it ends, and ends
the client is gone   ──► Connection.cut   ──► whatever is at work for it is cancelled
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

import anyio
from anyio.abc import TaskGroup
from starlette.types import Scope, Send

from hubbub.channels.http.wire.host import Host
from hubbub.channels.http.wire.outgoing import CUT, GONE
from hubbub.hub.logs import log
from hubbub.hub.tasks.outermost import start_in

__all__ = ["STORE_FAILED", "AsgiMessage", "Connection", "Connections", "Work"]

ENDING: Final = "hubbub.ending"
"""The extension of the scope by which a server that is about to end has streams ended first."""

AsgiMessage: TypeAlias = MutableMapping[str, Any]

Work: TypeAlias = Callable[[], Awaitable[None]]


FEW: Final = 100
"""Connections that are written to as soon as there is something."""

STORE_FAILED: Final = "store failed"
"""The reason of what ends because nothing more can be recorded."""

REST: Final = 0.000_025
"""Seconds that each connection beyond that has the others rest between two writes: about what a
write takes."""

MAX_REST: Final = 0.05


class Connection:
    """One client that is being served.

    One message is written at a time.  ``close`` is called when the connection is to end by itself;
    ``reason`` says why.
    """

    __slots__ = ("_close", "_is_writing", "_lock", "_send", "_written", "group", "reason")

    def __init__(self, send: Send, close: Callable[[], None]) -> None:
        self._send = send
        self._close = close
        self._lock = anyio.Lock(fast_acquire=True)
        self._written = 0
        self._is_writing = False
        self.reason = ""
        self.group: TaskGroup | None = None
        """What is at work for the client."""

    async def write(self, message: AsgiMessage) -> None:
        """Send a message; a client that has left is cut."""
        await self.write_next(iter((message,)))

    async def write_next(self, messages: Iterator[AsgiMessage]) -> bool:
        """Send the next one of several messages, which is made when it is its turn: what waits
        for a client that takes nothing need not be in memory.  False where there is none."""
        try:
            self._lock.acquire_nowait()  # Nearly always; awaiting it costs more.
        except anyio.WouldBlock:
            await self._lock.acquire()
        try:
            message = next(messages, None)
            if message is not None:
                self._written += 1
                self._is_writing = True
                await self._send(message)
                self._is_writing = False
        except GONE:
            self.cut()
            await anyio.sleep_forever()
        finally:
            self._lock.release()
        return message is not None

    def end(self, reason: str) -> None:
        """Have it end by itself; the first reason counts."""
        if not self.reason:
            self.reason = reason
            self._close()

    def cut(self) -> None:
        """Cancel whatever is at work for the client."""
        if self.group is not None:
            self.group.cancel_scope.cancel()

    def leave(self) -> None:
        """It is over, and holds nothing of what was at work for the client, which may hold it."""
        self.group = None
        self._close = _nothing

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something for the client beside the rest, until its connection ends."""
        assert self.group is not None
        start_in(self.group, work)

    async def beat(self, host: Host, sign: AsgiMessage, cut_off: Callable[[], object]) -> None:
        """Send ``sign`` where nothing was sent for a while; cut a client that takes nothing."""
        limits, clock = host.limits, host.hub.ports.clock
        tick = limits.ping_seconds / 2  # A silence is found at the second tick in it at the latest.
        written, stalled = self._written, 0.0
        while True:
            await clock.sleep(tick)
            if host.hub.journal.failure:  # Also where nothing has been written since.
                self.end(STORE_FAILED)
            if self._written != written:
                written, stalled = self._written, 0.0
            elif not self._is_writing:
                await self.write(sign)
                written = self._written
            else:
                stalled += tick
                if stalled >= limits.stall_seconds:
                    log.warning("stream.stalled", seconds=stalled)
                    cut_off()
                    self.cut()


class Connections:
    """Those of one app that are open, so that they can be ended together."""

    __slots__ = ("_host", "_is_watching", "_open")

    def __init__(self, host: Host) -> None:
        self._host = host
        self._open: dict[Connection, None] = {}
        self._is_watching = False

    def __len__(self) -> int:
        return len(self._open)

    async def rest(self) -> None:
        """What a task does between two writes of events: where many are written to, more comes
        together for the next write meanwhile, and the loop has time for others."""
        count = len(self._open)
        if count > FEW:
            await self._host.hub.ports.clock.sleep(min(count * REST, MAX_REST))

    def end(self, reason: str) -> None:
        """Have each of them end by itself."""
        for connection in tuple(self._open):
            connection.end(reason)

    async def serve(
        self, scope: Scope, connection: Connection, work: Work, listen: Work, sign: AsgiMessage
    ) -> None:
        """Do the work for a client, until it is done or the client has left.

        ``listen`` returns when it has; ``sign`` is written in silences.  Raises ``Refusal`` where
        the app is not at work.
        """
        if not self._is_watching:
            self._host.start(self._end_with_app)
            self._is_watching = True
        self._open[connection] = None
        try:
            async with anyio.create_task_group() as connection.group:
                start_in(connection.group, _cut_after(listen, connection))
                extensions = scope.get("extensions") or {}
                cut_off = extensions.get(CUT, connection.cut)
                start_in(connection.group, connection.beat(self._host, sign, cut_off))
                self._attend_ends(extensions)
                await work()
                connection.cut()
        finally:
            del self._open[connection]
            connection.leave()

    def _attend_ends(self, extensions: Mapping[str, Any]) -> None:
        """Have what is open ended before its server ends, or at once if something is ending."""
        at_end = extensions.get(ENDING)
        if at_end is not None:
            at_end(self._end_with_server)
        if self._host.ending.is_set():
            self.end("shutdown")

    def _end_with_server(self) -> None:
        self.end("shutdown")

    async def _end_with_app(self) -> None:
        ending = self._host.ending
        try:
            await ending.wait()
            self.end("shutdown")
            await anyio.sleep_forever()
        finally:  # The app has been left, or the hub has closed first.
            for connection in tuple(self._open):
                if ending.is_set():
                    connection.cut()
                else:
                    connection.end("closed")


def _nothing() -> None:
    """How a connection is ended that is over."""


async def _cut_after(listen: Work, connection: Connection) -> None:
    await listen()
    connection.cut()
