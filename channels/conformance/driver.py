"""What a channel brings to be checked: how it is attached, and a person at its far end.

    kit ──► driver.say ──► channel ──► hub ──► partner          driver.shown ◄── channel ◄── hub

A driver is the far end: the terminal, the HTTP client, the fake of a chat service.  It speaks the
channel's own protocol and knows nothing of the hub.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, TypeAlias

from msgspec import Struct

from hubbub.hub.hub import Hub

__all__ = [
    "ANN", "BOB", "AttachChannel", "ChannelCheck", "ChannelDriver", "ChannelKit", "OpenHub",
]  # fmt: skip

ANN: Final = "ann"
"""Who speaks at the far end."""

BOB: Final = "bob"
"""Who else speaks there, in ``CROWD_CHECKS``."""


class ChannelDriver(Protocol):
    """The far end of an attached channel.

    ``person`` is who speaks there: only ``CROWD_CHECKS`` name another one than ``ANN``.  The same
    person comes back to the same conversation, also to a channel that was attached again.
    """

    @property
    def is_attached(self) -> bool:
        """Whether the channel is still at work; one may end when its far end fails."""
        ...

    @property
    def secrets(self) -> Sequence[str]:
        """What the channel knows and nobody else may see: its tokens."""
        ...

    async def say(self, text: str, *, person: str = ANN, key: str = "") -> None:
        """A person says ``text``.

        ``key`` is the id that the far end gives to a message; the same key again is the same
        message, delivered again.  A far end that has no ids ignores it.
        """
        ...

    async def answer(self, text: str, *, person: str = ANN) -> None:
        """A person answers the question that was shown last, whether or not it is still open."""
        ...

    def shown(self, person: str = ANN) -> str:
        """All that a person was shown since the channel was attached."""
        ...

    def fail_next(self) -> None:
        """The next thing that is shown fails there, once."""
        ...


OpenHub: TypeAlias = Callable[[], AbstractAsyncContextManager[Hub]]
"""Opens a hub of its own, with a runtime that has the agent ``partner``."""

AttachChannel: TypeAlias = Callable[[Hub], AbstractAsyncContextManager[ChannelDriver]]
"""Attaches a channel for conversations with ``partner``, and detaches it at the end."""


class ChannelKit(Struct, frozen=True):
    """A channel to be checked."""

    open_hub: OpenHub
    attach: AttachChannel


ChannelCheck: TypeAlias = Callable[[ChannelKit], Awaitable[None]]
"""Raises ``AssertionError`` where the channel is wrong."""
