"""What a task waits for, once."""

import anyio
import pytest

from hubbub.hub.tasks.waiter import Waiter, waiters, wake

pytestmark = pytest.mark.anyio


class Waits:
    """A task that waits, and how often it went on."""

    def __init__(self) -> None:
        self.waiter: Waiter = waiters()()
        self.went_on = 0

    async def wait(self) -> None:
        await self.waiter
        self.went_on += 1


async def test_who_is_woken_goes_on_once() -> None:
    waits = Waits()
    async with anyio.create_task_group() as group:
        group.start_soon(waits.wait)
        await anyio.wait_all_tasks_blocked()
        assert not waits.waiter.done()
        wake(waits.waiter)
        assert waits.waiter.done()
        assert waits.went_on == 0  # Who wakes it goes on first.
        wake(waits.waiter)
    assert waits.went_on == 1


async def test_who_was_woken_before_it_waits_does_not_wait() -> None:
    waits = Waits()
    wake(waits.waiter)
    with anyio.fail_after(0.1):
        await waits.wait()
    assert waits.went_on == 1


async def test_who_is_cancelled_is_done_and_can_be_woken_in_vain() -> None:
    waits = Waits()
    async with anyio.create_task_group() as group:
        group.start_soon(waits.wait)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert waits.waiter.done()
    wake(waits.waiter)
    assert waits.went_on == 0


async def test_who_is_woken_and_cancelled_in_one_breath_is_told_of_it() -> None:
    waits, ended = Waits(), []

    async def wait() -> None:
        try:
            await waits.wait()
        finally:
            ended.append(waits.waiter.done())

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        wake(waits.waiter)
        group.cancel_scope.cancel()
    assert ended == [True]


async def test_a_wait_can_be_cut_off_in_time() -> None:
    waits = Waits()
    with anyio.move_on_after(0.01) as scope:
        await waits.wait()
    assert scope.cancelled_caught
    assert waits.went_on == 0
