"""Virtual time passes, however late it is."""

import anyio
import pytest

from hubbub.hub.virtual import LoopClock

pytestmark = pytest.mark.anyio

LATE = 2.0**26
"""Seconds, some two years: what a float cannot add to it is more than a loop's resolution."""


async def test_timers_fire_however_late_it_is() -> None:
    await anyio.sleep(LATE)
    began = anyio.current_time()
    for seconds in (1e-9, 1e-6, 1e-3, 0.1, 7.3):
        with anyio.fail_after(60):
            await anyio.sleep(seconds)
    with anyio.move_on_after(0.7) as scope:
        await anyio.sleep(1)
    assert scope.cancelled_caught
    assert anyio.current_time() - began == pytest.approx(8.101001)


async def test_a_sleep_takes_time_by_the_loops_clock_however_short_and_late_it_is() -> None:
    clock = LoopClock()
    await clock.sleep(LATE)
    for _ in range(3):
        before = clock.monotonic()
        await clock.sleep(1e-9)
        assert clock.monotonic() > before
