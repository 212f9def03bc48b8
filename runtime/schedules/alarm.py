"""``Alarm``: wakes who waits for a time on the wall clock, which may be set at any moment.

Sleeping goes by time that nobody sets.  So one task for all who wait looks at the clock when the
first of them is due, and once in every ``MAX_NAP`` seconds besides: a clock that was set is noticed
within that.  A look that finds nothing costs a few comparisons, however many wait; who waits is an
entry in two heaps, and no task.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

import anyio

from hubbub.hub.ports import Clock

__all__ = ["MAX_NAP", "Alarm"]

MAX_NAP: Final = 60.0
"""Seconds after which the clock is looked at again."""

_NAP: Final = int(MAX_NAP * 1_000_000)
_NEVER: Final = 1 << 63
"""µs later than any time."""

_FEW: Final = 64
"""Entries of those that wait no more, up to which a heap is left as it is."""

_Heap: TypeAlias = "list[tuple[int, int]]"
"""Pairs of a time and the number of who waits for it, also of some that wait no more."""


class Alarm:
    """Calls who waits for the wall clock while ``run`` is at work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[int, Callable[[], object]] = {}
        """By number, in the order in which they came."""
        self._count = 0
        self._by_latest: _Heap = []
        self._by_earliest: _Heap = []
        """With the times negated: the last one first."""
        self._nap = anyio.CancelScope()
        self._next_look = 0

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            with anyio.CancelScope() as self._nap:
                while (now := self._clock.now()) < (latest := self._latest()) and (
                    now >= self._earliest()
                ):
                    self._next_look = min(latest, now + _NAP)
                    await self._clock.sleep((self._next_look - now) / 1_000_000)
                self._wake(now)

    def call(self, earliest: int, latest: int | None, woken: Callable[[], object]) -> None:
        """Have ``woken``, which must not raise, called once: when the clock shows ``latest``
        (``None``: never) or later, or is found to have been set back to before ``earliest``;
        times in µs."""
        last = _NEVER if latest is None else latest
        self._count += 1
        self._waiting[self._count] = woken
        heappush(self._by_latest, (last, self._count))
        heappush(self._by_earliest, (-earliest, self._count))
        if last < self._next_look:
            self._nap.cancel()

    def _wake(self, now: int) -> None:
        due = set(self._taken(self._by_latest, now)) | set(self._taken(self._by_earliest, -now - 1))
        for number in sorted(due):
            self._waiting.pop(number)()

    def _taken(self, heap: _Heap, until: int) -> list[int]:
        """Take out what stands up to a time, and return who of it waits."""
        numbers = []
        while heap and heap[0][0] <= until:
            numbers.append(heappop(heap)[1])
        if len(heap) > 2 * len(self._waiting) + _FEW:
            heap[:] = [entry for entry in heap if entry[1] in self._waiting]
            heapify(heap)
        return [number for number in numbers if number in self._waiting]

    def _latest(self) -> int:
        return self._first(self._by_latest, _NEVER)

    def _earliest(self) -> int:
        return -self._first(self._by_earliest, _NEVER)

    def _first(self, heap: _Heap, otherwise: int) -> int:
        while heap and heap[0][1] not in self._waiting:
            heappop(heap)
        return heap[0][0] if heap else otherwise
