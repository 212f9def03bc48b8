"""``Host``: what the endpoints of one app share."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio

from hubbub.channels.channel import ChannelContext
from hubbub.channels.http.wire.limits import HttpLimits
from hubbub.channels.http.wire.problems import Refusal
from hubbub.hub.hub import Hub

__all__ = ["SOURCE", "Host"]

SOURCE: Final = "http"
"""The source of everything that is sent, and the name of the channel."""


class Host:
    """The hub that an app is about, and the app's life.

    ``ending`` is set when the app begins to close: streams then say so and end.
    """

    __slots__ = ("context", "ending", "hub", "limits")

    def __init__(self, hub: Hub, limits: HttpLimits) -> None:
        self.hub = hub
        self.limits = limits
        self.ending = anyio.Event()
        self.context: ChannelContext | None = None
        """The channel at work; ``None`` before the app is entered and after it is left."""

    def start(self, fn: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run ``fn(*args)`` beside the requests, until the app is left.

        Raises ``Refusal`` when it is not entered.
        """
        if self.context is None:
            raise Refusal("closed", "the app is not at work")
        self.context.start(fn, *args)
