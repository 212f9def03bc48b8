"""Being left: what is refused when, and who waits for what is under way."""

import anyio
import pytest

from hubbub.hub.errors import CallerError, Closed
from hubbub.hub.home_loop import HomeLoop
from hubbub.runtime.kernel.phase import Phase

pytestmark = pytest.mark.anyio


async def test_nothing_may_be_asked_of_a_runtime_that_is_not_open() -> None:
    home = HomeLoop()
    phase = Phase(home)
    with pytest.raises(CallerError, match="async with Runtime"):
        phase.check_open()
    home.begin()
    phase.is_open = True
    phase.check_open()


def test_nothing_may_be_asked_of_a_runtime_that_is_being_left() -> None:
    phase = Phase(HomeLoop())
    phase.is_open = phase.is_leaving = True
    with pytest.raises(Closed, match="the runtime is closed"):
        phase.check_open()


async def test_who_leaves_looks_again_after_each_progress() -> None:
    phase, left, looked = Phase(HomeLoop()), [1, 2], []

    def is_at_rest() -> bool:
        looked.append(len(left))
        return not left

    async with anyio.create_task_group() as group:
        group.start_soon(phase.wait_until, is_at_rest)
        while left:
            await anyio.wait_all_tasks_blocked()
            left.pop()
            phase.progressed()
    assert looked == [2, 1, 0]


async def test_nothing_is_waited_for_where_all_is_at_rest() -> None:
    phase = Phase(HomeLoop())
    with anyio.fail_after(0):
        await phase.wait_until(lambda: True)
    phase.progressed()  # Nobody waits: nothing happens.
