"""Timers fire in time, on clocks whose floating point is coarser than what is left to wait."""

import anyio
import pytest

from hubbub.runtime.kernel.timers import Timers

pytestmark = pytest.mark.anyio


class CoarseClock:
    """A clock that a sleep of a few femtoseconds does not move, as none does far from zero."""

    def __init__(self) -> None:
        self.time = 40.0
        self.sleeps = 0

    def now(self) -> int:
        return int(self.time * 1e6)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        assert self.sleeps < 100, "the same sleep again and again"
        await anyio.lowlevel.checkpoint()
        self.time += seconds if seconds > 1e-12 else 0.0


async def test_what_is_due_within_the_clocks_own_rounding_is_due() -> None:
    clock = CoarseClock()
    timers = Timers(clock)
    fired = anyio.Event()
    timers.after(7.105427357601002e-15, fired.set)
    async with anyio.create_task_group() as group:
        group.start_soon(timers.run)
        with anyio.fail_after(10):
            await fired.wait()
        group.cancel_scope.cancel()
    assert clock.sleeps == 0
