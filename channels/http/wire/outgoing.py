"""``Outgoing``: what is answered to one request, until its client has taken it.

A large answer is handed to the server in pieces, each when the one before has left: the server
takes a request whose answer it has whole for one that is over, and closes what is idle.
"""

from contextlib import suppress
from typing import Final

import anyio
from starlette.types import Scope, Send

from hubbub.channels.http.wire.host import Host
from hubbub.channels.http.wire.problems import ClientGone, Refusal
from hubbub.hub.logs import log
from hubbub.hub.tasks.outermost import start_in

__all__ = ["CUT", "GONE", "Outgoing"]

CUT: Final = "hubbub.cut"
"""The extension of a server whose sending cannot be cancelled: it cuts the connection off."""

GONE: Final = (ClientGone, OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""What is raised when one writes to a client that has left, by the app or by a server."""

PIECE: Final = 64 << 10


class Outgoing:
    """The body that one client is to take."""

    __slots__ = ("_host", "_pieces", "_scope", "_size")

    def __init__(self, host: Host, scope: Scope) -> None:
        self._host = host
        self._scope = scope
        self._size = 0
        self._pieces = 0
        """How many have left."""

    def reserve(self, size: int) -> None:
        """Count so many bytes, beside what others have yet to take.

        Raises ``Refusal`` where that is too much; what is taken alone may be more.
        """
        host, more = self._host, size - self._size
        if more <= 0:
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
        is_whole = False
        async with anyio.create_task_group() as group:
            start_in(group, self._watch(group.cancel_scope))
            with suppress(*GONE):
                await self._write(send, body)
                is_whole = True
            group.cancel_scope.cancel()
        if not is_whole:
            raise ClientGone

    async def _write(self, send: Send, body: bytes) -> None:
        for at in range(0, len(body), PIECE):
            piece, has_more = body[at : at + PIECE], at + PIECE < len(body)
            await send({"type": "http.response.body", "body": piece, "more_body": has_more})
            self._pieces += 1

    async def _watch(self, sending: anyio.CancelScope) -> None:
        """Cut the client off when no piece has left for too long."""
        seconds, clock = self._host.limits.stall_seconds, self._host.hub.ports.clock
        pieces = -1
        while pieces != self._pieces:
            pieces = self._pieces
            await clock.sleep(seconds)
        log.warning("answer.stalled", seconds=seconds)
        (self._scope.get("extensions") or {}).get(CUT, sending.cancel)()
        sending.cancel()
