"""``Counts``: what is at work at once, and how often each client asks."""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

import anyio

from hubbub.channels.http.wire.limits import HttpLimits
from hubbub.channels.http.wire.problems import Refusal
from hubbub.hub.hub import Hub

__all__ = ["Counts"]

MAX_CLIENTS: Final = 10_000
"""Clients whose rate is remembered."""


class Counts:
    """Requests and streams at work; raises ``Refusal`` for one more than there may be."""

    def __init__(self, hub: Hub, limits: HttpLimits) -> None:
        self._clock = hub.ports.clock
        self._limits = limits
        self.requests = 0
        self._without_token: Counter[str] = Counter()
        """Requests at work that needed none, by client."""
        self.streams: dict[str, int] = {}
        """Streams that are open, by client."""
        self.open_streams = 0
        self._last_closed = anyio.Event()
        """Set when the last open stream closes; another one for the next time."""
        self._left: dict[str, tuple[float, float]] = {}
        """When each client asked last, and how many requests it had left then."""

    def check_rate(self, client: str) -> None:
        """Count a request of a client."""
        limits, now = self._limits, self._clock.monotonic()
        then, left = self._left.get(client, (now, float(limits.burst)))
        left = min(limits.burst, left + (now - then) * limits.rate)
        if left < 1:
            raise Refusal(
                "too-many-requests", f"at most {limits.rate:,} a second",
                headers={"retry-after": "1"},
            )  # fmt: skip
        if len(self._left) >= MAX_CLIENTS and client not in self._left:
            self._left.clear()
        self._left[client] = now, left - 1

    def request(self, client: str, *, is_open: bool) -> AbstractContextManager[None]:
        """While a request is at work.  Those that need no token (``is_open``) are counted by
        themselves, so that strangers keep nobody out."""
        return self._open_request(client) if is_open else self._request()

    @contextmanager
    def _open_request(self, client: str) -> Iterator[None]:
        limits, found = self._limits, self._without_token
        if (
            found[client] >= limits.open_requests_per_client
            or found.total() >= limits.open_requests
        ):
            raise Refusal(
                "overloaded", f"{found.total():,} requests without a token are at work",
                headers={"retry-after": "1"},
            )  # fmt: skip
        found[client] += 1
        try:
            yield
        finally:
            found[client] -= 1
            if not found[client]:
                del found[client]

    @contextmanager
    def _request(self) -> Iterator[None]:
        if self.requests >= self._limits.requests:
            raise Refusal(
                "overloaded", f"{self.requests:,} requests are at work",
                headers={"retry-after": "1"},
            )  # fmt: skip
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    @contextmanager
    def stream(self, client: str) -> Iterator[None]:
        """While a stream is open."""
        limits, count = self._limits, self.streams.get(client, 0)
        if count >= limits.streams_per_client or self.open_streams >= limits.streams:
            raise Refusal(
                "too-many-streams", f"{count:,} are open; close one, or have one for several runs",
                headers={"retry-after": "5"},
            )  # fmt: skip
        self.streams[client] = count + 1
        self.open_streams += 1
        try:
            yield
        finally:
            self.open_streams -= 1
            self.streams[client] -= 1
            if not self.streams[client]:
                del self.streams[client]
            if not self.open_streams:
                self._last_closed.set()
                self._last_closed = anyio.Event()

    async def wait_without_streams(self) -> None:
        """Return when no stream is open."""
        while self.open_streams:
            await self._last_closed.wait()
