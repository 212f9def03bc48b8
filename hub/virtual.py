"""Ports for tests and simulation: the loop's own time, repeatable ids, threads in lockstep.

On a loop with virtual time (``trio.testing.MockClock(autojump_threshold=0)``) a run that sleeps
for a day takes no time at all, and its events say that a day has passed.
"""

import math
from collections.abc import Callable
from typing import Final, TypeVar

import anyio
import anyio.lowlevel

from hubbub.hub.ports import Ports, SystemIds
from hubbub.hub.tasks.lockstep_offload import LockstepOffload

__all__ = ["EPOCH", "InlineOffload", "InlineWorker", "LoopClock", "virtual_ports"]

T = TypeVar("T")

EPOCH: Final = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z, where virtual time begins."""


class LoopClock:
    """Time as the event loop tells it, from ``epoch`` (µs) on."""

    def __init__(self, epoch: int = EPOCH) -> None:
        self._epoch = epoch
        self._origin: float | None = None

    def now(self) -> int:
        return self._epoch + int(self.monotonic() * 1_000_000)

    def monotonic(self) -> float:
        now = anyio.current_time()
        if self._origin is None:
            self._origin = now
        return now - self._origin

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            # So little may be lost when it is added to a late time: who sleeps until a moment, a
            # little at a time, would never reach it.
            seconds = max(seconds, math.ulp(anyio.current_time()))
        await anyio.sleep(seconds)


class InlineOffload:
    """Runs the library's own blocking functions on the loop itself: a thread's real time has no
    place in virtual time, and these never need the loop."""

    async def run(self, fn: Callable[[], T]) -> T:
        await anyio.lowlevel.checkpoint()
        return fn()


class InlineWorker:
    """Does what a store's thread would do, on the loop itself and a turn later."""

    is_inline = True

    async def run(self, fn: Callable[[], T]) -> T:
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
        return fn()

    def when_idle(self, fn: Callable[[], None], seconds: float) -> None:
        """Never: while virtual time passes nobody else has any to do something in."""

    def close(self) -> None:
        """There is no thread to end."""


def virtual_ports(seed: int = 0) -> Ports:
    """Ports that make a run repeatable: same seed, same ids."""
    return Ports(
        clock=LoopClock(), ids=SystemIds(seed), offload=LockstepOffload(),
        own_offload=InlineOffload(), make_worker=InlineWorker,
    )  # fmt: skip
