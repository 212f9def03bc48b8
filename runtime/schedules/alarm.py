"""``Alarm``: wakes who waits for a time on the wall clock, which may be set at any moment.

Sleeping goes by time that nobody sets.  So one task for all who wait looks at the clock when the
first of them is due, and once in every ``MAX_NAP`` seconds besides: a clock that was set is noticed
within that.  A look that finds nothing costs a few comparisons.
"""

from typing import Final

import anyio
from msgspec import Struct

from hubbub.hub.ports import Clock

__all__ = ["MAX_NAP", "Alarm"]

MAX_NAP: Final = 60.0
"""Seconds after which the clock is looked at again."""

_NAP: Final = int(MAX_NAP * 1_000_000)
_NEVER: Final = 1 << 63
"""µs later than any time."""


class _Sleeper(Struct, frozen=True, eq=False):
    earliest: int
    latest: int
    woken: anyio.Event


class Alarm:
    """Lets tasks wait for the wall clock while ``run`` is at work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sleepers: list[_Sleeper] = []
        # No waiter is due as long as the clock is between these two.
        self._earliest = -_NEVER
        self._latest = _NEVER
        self._nap = anyio.CancelScope()
        self._next_look = 0

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            with anyio.CancelScope() as self._nap:
                while self._earliest <= (now := self._clock.now()) < self._latest:
                    self._next_look = min(self._latest, now + _NAP)
                    await self._clock.sleep((self._next_look - now) / 1_000_000)
                self._wake(now)

    async def wait(self, earliest: int, latest: int | None) -> None:
        """Return when the clock shows ``latest`` (``None``: never) or later, or is found to have
        been set back to before ``earliest``; times in µs."""
        sleeper = _Sleeper(earliest, _NEVER if latest is None else latest, anyio.Event())
        self._sleepers.append(sleeper)
        self._set_bounds()
        if sleeper.latest < self._next_look:
            self._nap.cancel()
        try:
            await sleeper.woken.wait()
        finally:
            if not sleeper.woken.is_set():
                self._sleepers.remove(sleeper)
                self._set_bounds()

    def _wake(self, now: int) -> None:
        for sleeper in tuple(self._sleepers):
            if not sleeper.earliest <= now < sleeper.latest:
                self._sleepers.remove(sleeper)
                sleeper.woken.set()
        self._set_bounds()

    def _set_bounds(self) -> None:
        self._earliest = max((x.earliest for x in self._sleepers), default=-_NEVER)
        self._latest = min((x.latest for x in self._sleepers), default=_NEVER)
