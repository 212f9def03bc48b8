"""``Host``: what the endpoints of one app share."""

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import anyio

from hubbub.channels.channel import ChannelContext
from hubbub.channels.http.wire.limits import HttpLimits
from hubbub.channels.http.wire.problems import Refusal
from hubbub.hub.hub import Hub

__all__ = ["SOURCE", "Host"]

SOURCE: Final = "http"
"""The source of everything that is sent, and the name of the channel."""


LATE: Final = 1.0
"""Seconds that a body may take which begins when the app is closing."""


class Host:
    """The hub that an app is about, and the app's life.

    ``ending`` is set when the app begins to close: streams then say so and end (``end``).
    """

    __slots__ = ("_reading", "arriving", "context", "ending", "hub", "leaving", "limits")

    def __init__(self, hub: Hub, limits: HttpLimits) -> None:
        self.hub = hub
        self.limits = limits
        self.ending = anyio.Event()
        self.context: ChannelContext | None = None
        """The channel at work; ``None`` before the app is entered and after it is left."""
        self._reading: set[anyio.CancelScope] = set()
        """Bodies that are still coming."""
        self.arriving = 0
        """Bytes of them that are here."""
        self.leaving = 0
        """Bytes of answers that their clients have yet to take, in part or in whole."""

    def end(self) -> None:
        """Begin to close: streams end, and what has not come in whole is not waited for."""
        self.ending.set()
        for reading in self._reading:
            reading.cancel()

    @contextmanager
    def reading(self, most: float = math.inf) -> Iterator[anyio.CancelScope]:
        """While a body comes in: for as long as it may take, and until the app begins to close.

        ``most`` are seconds for which it is wanted.
        """
        seconds = min(self.limits.body_seconds, most)
        with anyio.move_on_after(min(seconds, LATE) if self.ending.is_set() else seconds) as scope:
            self._reading.add(scope)
            try:
                yield scope
            finally:
                self._reading.discard(scope)

    def start(self, fn: Callable[..., Awaitable[object]], *args: Any) -> None:
        """Run ``fn(*args)`` beside the requests, until the app is left.

        Raises ``Refusal`` when it is not entered.
        """
        if self.context is None:
            raise Refusal("closed", "the app is not at work")
        self.context.start(fn, *args)
