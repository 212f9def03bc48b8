"""Waiting for a clock on the wall that somebody sets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from hubbub.hub.virtual import EPOCH, LoopClock
from hubbub.runtime.schedules.alarm import MAX_NAP, Alarm

pytestmark = pytest.mark.anyio

SECOND = 1_000_000


class SetClock(LoopClock):
    """A clock that somebody sets, and that counts who looks at it."""

    offset = 0
    looks = 0

    def now(self) -> int:
        self.looks += 1
        return super().now() + self.offset


class Bell:
    """An alarm at work, and who it woke when."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.alarm = Alarm(self.clock)
        self.woken: dict[str, float] = {}

    def wait(self, name: str, seconds: float | None, earliest: float = 0.0) -> None:
        def woken() -> None:
            self.woken[name] = round(self.clock.monotonic())

        latest = None if seconds is None else EPOCH + int(seconds * SECOND)
        self.alarm.call(EPOCH + int(earliest * SECOND), latest, woken)


@asynccontextmanager
async def ringing() -> AsyncIterator[tuple[Bell, anyio.abc.TaskGroup]]:
    bell = Bell()
    async with anyio.create_task_group() as group:
        bell.clock.monotonic()
        group.start_soon(bell.alarm.run)
        yield bell, group
        group.cancel_scope.cancel()


async def test_each_is_woken_at_its_time_whoever_came_first() -> None:
    async with ringing() as (bell, _):
        bell.wait("late", 5000.0)
        await anyio.sleep(10)
        bell.wait("soon", 25.0)
        bell.wait("never", None)
        bell.wait("past", 5.0)
        await anyio.sleep(10_000)
    assert bell.woken == {"past": 10, "soon": 25, "late": 5000}


async def test_a_clock_that_was_set_is_noticed_within_a_nap() -> None:
    async with ringing() as (bell, _):
        bell.wait("due", 50_000.0)
        await anyio.sleep(150)
        bell.wait("never", None, 100.0)
        await anyio.sleep(150)
        assert bell.woken == {}
        bell.clock.offset = -280 * SECOND
        await anyio.sleep(MAX_NAP + 1)
        assert bell.woken.pop("never") <= 300 + MAX_NAP
        bell.clock.offset = 50_000 * SECOND
        await anyio.sleep(MAX_NAP + 1)
        assert bell.woken.pop("due") <= 361 + MAX_NAP


async def test_all_who_wait_share_one_nap() -> None:
    async with ringing() as (bell, _):
        for number in range(50):
            bell.wait(f"{number}", 36_000.0)
        await anyio.sleep(1)
        bell.clock.looks = 0
        await anyio.sleep(30_000)
        assert bell.clock.looks <= 30_000 / MAX_NAP + 1
        await anyio.sleep(10_000)
        assert set(bell.woken.values()) == {36_000.0}


async def test_who_was_called_leaves_nothing_behind() -> None:
    """A schedule of each second, for an hour, beside one that is due tomorrow."""
    async with ringing() as (bell, _):
        bell.wait("tomorrow", 86_400.0)

        def again() -> None:
            now = bell.clock.now()
            bell.alarm.call(now, now + SECOND, again)

        again()
        await anyio.sleep(3_600)
        assert len(bell.alarm._by_latest) + len(bell.alarm._by_earliest) < 300
        assert bell.woken == {}
        bell.clock.offset = -1_800 * SECOND
        await anyio.sleep(MAX_NAP + 1)
        assert bell.woken == {}


async def test_a_hundred_thousand_wait_at_no_cost_for_each_that_comes() -> None:
    """Each came at the cost of looking at all who waited before."""
    async with ringing() as (bell, _):
        for number in range(100_000):
            bell.wait(f"{number}", 1_000.0 + number % 7)
        await anyio.sleep(2_000)
        assert len(bell.woken) == 100_000
        assert bell.woken["6"] == 1_006


async def test_a_clock_before_1970_lets_others_have_their_turn() -> None:
    bell = Bell()
    bell.clock.offset = -2 * EPOCH
    async with anyio.create_task_group() as group:
        group.start_soon(bell.alarm.run)
        await anyio.sleep(10)
        bell.wait("due", None, -5.0 * EPOCH)
        await anyio.sleep(10)
        group.cancel_scope.cancel()
    assert bell.clock.looks < 10
