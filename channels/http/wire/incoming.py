"""``Incoming``: what a client sends with a request, and what becomes of a rest that nobody reads.

A server that closes a connection while its client is still writing resets it, and many clients
then report the reset instead of the answer, which may say why.  So before an answer is complete,
the rest of the body is read and thrown away: so many bytes, for so long.
"""

from typing import Final

from starlette.types import Message, Receive, Scope

from hubbub.channels.http.wire.host import Host
from hubbub.channels.http.wire.route import header_of

__all__ = ["Incoming"]

MOST_BYTES: Final = 64 << 20
"""Of a rest that is thrown away.  Beyond it the connection is closed."""

MOST_SECONDS: Final = 5.0


class Incoming:
    """The body of one request, as its server hands it on."""

    __slots__ = ("_host", "_is_open", "_receive", "_scope")

    def __init__(self, host: Host, scope: Scope, receive: Receive) -> None:
        self._host = host
        self._scope = scope
        self._receive = receive
        self._is_open: bool | None = None
        """Whether there is more to read; ``None`` while nobody has read anything."""

    async def receive(self) -> Message:
        """What the server says next, as ASGI has it."""
        self._is_open = False  # Who gives up waiting for the rest leaves it so.
        message = await self._receive()
        self._is_open = message.get("more_body", False)
        return message

    @property
    def is_unread(self) -> bool:
        """Whether a rest is on its way for which nobody has waited in vain."""
        if self._is_open is None:
            return _announces_body(self._scope)
        return self._is_open

    async def discard(self) -> None:
        """Read the rest and throw it away, within limits, until the app begins to close."""
        size = 0
        with self._host.reading(MOST_SECONDS):
            while self.is_unread and size <= MOST_BYTES:
                message = await self.receive()
                size += len(message.get("body", b""))


def _announces_body(scope: Scope) -> bool:
    length = header_of(scope, b"content-length")
    return length not in ("", "0") or header_of(scope, b"transfer-encoding") != ""
