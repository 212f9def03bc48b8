"""One heap of deadlines for a whole runtime: no cancel scope per activity."""

import heapq
from collections.abc import Callable
from itertools import count
from typing import Final

import anyio
from msgspec import Struct

from hubbub.hub.ports import Clock

__all__ = ["Timer", "Timers"]


class Timer(Struct, order=True):
    """A deadline that may be called off; what is due first is the least."""

    due: float
    """When it fires, by the monotonic clock."""
    number: int
    """No two have the same, so that nothing else is compared."""
    fire: Callable[[], None] | None
    timers: "Timers"

    def cancel(self) -> None:
        if self.fire is not None:
            self.fire = None
            self.timers.called_off()


RESOLUTION: Final = 1e-9
"""Seconds: what is due sooner is due now.  A sleep that is too short for the clock's own floating
point would not move it, and be slept again and again."""


class Timers:
    """Calls plain functions when their time has come, in order of time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[Timer] = []
        self._numbers = count()
        self._void = 0
        self._sleep: anyio.CancelScope | None = None
        self._earlier: anyio.Event | None = None

    def after(self, seconds: float, fire: Callable[[], None]) -> Timer:
        """Call ``fire`` in ``seconds``; it must not raise."""
        timer = Timer(self._clock.monotonic() + seconds, next(self._numbers), fire, self)
        heapq.heappush(self._heap, timer)
        if self._heap[0] is timer:
            # The sleeper must look again: this one is due before what it sleeps for.
            if self._earlier is not None:
                self._earlier.set()
            elif self._sleep is not None:
                self._sleep.cancel()
        return timer

    def called_off(self) -> None:
        """One of them is void."""
        self._void += 1
        if self._void > 64 and self._void * 2 > len(self._heap):
            self._heap = [timer for timer in self._heap if timer.fire is not None]
            heapq.heapify(self._heap)
            self._void = 0

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            while self._heap and self._heap[0].fire is None:
                heapq.heappop(self._heap)
                self._void -= 1
            if not self._heap:
                self._earlier = anyio.Event()
                await self._earlier.wait()
                self._earlier = None
                continue
            wait = self._heap[0].due - self._clock.monotonic()
            if wait > RESOLUTION:
                with anyio.CancelScope() as self._sleep:
                    await self._clock.sleep(wait)
                self._sleep = None
                continue
            timer = heapq.heappop(self._heap)
            fire, timer.fire = timer.fire, None
            if fire is not None:
                fire()
