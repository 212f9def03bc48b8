"""``RecentRequests``: where requests have gone lately, for clients that send one again.

Official clients repeat a request after their timeout, or when a connection breaks, without a key.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from msgspec import Struct

from hubbub.hub.hub import Hub

__all__ = ["RecentRequests", "RequestPlace"]

MAX_REQUESTS: Final = 10_000
KEPT: Final = 3600 * 1_000_000
"""Microseconds for which a request is remembered."""


class RequestPlace(Struct, frozen=True, kw_only=True):
    """Where a request has gone."""

    run_id: str
    seq: int
    """The number of its item in the run's inbox."""
    ignored: tuple[str, ...] = ()
    is_answer: bool = False
    """Whether it answers what was asked."""


class _Turn:
    """Who has one request now, and who waits for it."""

    __slots__ = ("count", "lock")

    def __init__(self) -> None:
        self.count = 0
        self.lock = anyio.Lock()


class RecentRequests:
    """Of one app; nothing of it outlives the process.  A request is known by its digest."""

    __slots__ = ("_hub", "_places", "_turns")

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._places: dict[str, tuple[int, RequestPlace]] = {}
        """The oldest first, each with its time."""
        self._turns: dict[str, _Turn] = {}

    @asynccontextmanager
    async def alone(self, digest: str) -> AsyncIterator[None]:
        """The same request waits until this one has its place."""
        turn = self._turns.setdefault(digest, _Turn())
        turn.count += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.count -= 1
            if not turn.count:
                del self._turns[digest]

    def find(self, digest: str) -> RequestPlace | None:
        """Where the same request has gone last."""
        at, place = self._places.get(digest, (0, None))
        return place if self._hub.ports.clock.now() - at < KEPT else None

    def note(self, digest: str, place: RequestPlace) -> None:
        """A request has gone there."""
        self._places.pop(digest, None)
        self._places[digest] = self._hub.ports.clock.now(), place
        if len(self._places) > MAX_REQUESTS:
            del self._places[next(iter(self._places))]
