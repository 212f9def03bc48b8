"""``Outgoing``: what is answered to one request, until its client has taken it.

A large answer is handed to the server in pieces, each when the one before has left: the server
takes a request whose answer it has whole for one that is over, and closes what is idle.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import anyio
from starlette.types import Message, Scope, Send

from hubbub.channels.http.wire.host import Host
from hubbub.channels.http.wire.problems import ClientGone, Refusal
from hubbub.hub.logs import log

__all__ = ["CUT", "GONE", "Outgoing"]

CUT: Final = "hubbub.cut"
"""The extension of a server whose sending cannot be cancelled: it cuts the connection off."""

GONE: Final = (ClientGone, OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""What is raised when one writes to a client that has left, by the app or by a server."""

PIECE: Final = 64 << 10


class Outgoing:
    """The body that one client is to take."""

    __slots__ = ("_host", "_scope", "_size")

    def __init__(self, host: Host, scope: Scope) -> None:
        self._host = host
        self._scope = scope
        self._size = 0

    def reserve(self, size: int) -> None:
        """Count so many bytes, beside what others have yet to take; what is small is not counted.

        Raises ``Refusal`` where that is too much; what is taken alone may be more.
        """
        host, more = self._host, size - self._size
        if more <= 0 or size <= PIECE:
            return
        if 0 < host.leaving > host.limits.leaving_bytes - more:
            raise Refusal(
                "too-many-requests", "others fetch much at the moment; ask again later",
                headers={"retry-after": "5"},
            )  # fmt: skip
        host.leaving += more
        self._size = size

    def release(self) -> None:
        """The client has taken it, or is gone."""
        self._host.leaving -= self._size
        self._size = 0

    async def write(self, send: Send, body: bytes) -> None:
        """Send a body whose head was sent.  Raises ``ClientGone`` for a client that takes nothing
        for as long as it may."""
        if len(body) <= PIECE:
            await send({"type": "http.response.body", "body": body})
            return
        with self.watched(send) as sending:
            for at in range(0, len(body), PIECE):
                piece, has_more = body[at : at + PIECE], at + PIECE < len(body)
                message = {"type": "http.response.body", "body": piece, "more_body": has_more}
                await sending(message)

    @contextmanager
    def watched(self, send: Send) -> Iterator[Send]:
        """``send``, while the body lasts.  Raises ``ClientGone`` for a client that takes nothing of
        a message for as long as it may, and cuts it off."""
        with anyio.CancelScope() as scope:
            watch = _Watch(self._host, send, partial(self._cut, scope))
            if self._host.context is not None:
                self._host.start(watch.run)
            try:
                yield watch.send
            finally:
                watch.end()
        if scope.cancelled_caught:
            raise ClientGone

    def _cut(self, scope: anyio.CancelScope) -> None:
        (self._scope.get("extensions") or {}).get(CUT, scope.cancel)()
        scope.cancel()


class _Watch:
    """Whether a client takes what is sent, looked at by a task beside the one that sends."""

    __slots__ = ("_cut", "_host", "_scope", "_send", "_sending", "_sent")

    def __init__(self, host: Host, send: Send, cut: Callable[[], None]) -> None:
        self._host = host
        self._send = send
        self._cut = cut
        self._scope = anyio.CancelScope()
        self._sent = 0
        self._sending = False

    async def send(self, message: Message) -> None:
        self._sending = True
        await self._send(message)
        self._sending = False
        self._sent += 1

    async def run(self) -> None:
        seconds, clock, sent = self._host.limits.stall_seconds, self._host.hub.ports.clock, -1
        with self._scope:
            while not self._sending or sent != self._sent:
                sent = self._sent
                await clock.sleep(seconds)
            log.warning("answer.stalled", seconds=seconds)
            self._cut()

    def end(self) -> None:
        self._scope.cancel()
