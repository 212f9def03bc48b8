"""A task that was cancelled leaves nothing of what it held in memory; nobody need collect it."""

import gc
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from hubbub.hub.tasks.outermost import start_in

pytestmark = [pytest.mark.anyio, pytest.mark.spec("G-03")]


class Held:
    """What a task has in its hands."""


Hold = Callable[[Held], Coroutine[Any, Any, None]]


async def waits(held: Held) -> None:
    await anyio.sleep_forever()


async def finishes_something(held: Held) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(1)
            await anyio.sleep(1)


async def waits_after_an_error(held: Held) -> None:
    try:
        await fail(held)
    except ValueError:
        await anyio.sleep_forever()


async def fail(held: Held) -> None:
    await anyio.lowlevel.checkpoint()
    raise ValueError


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("steady", [False, True])
@pytest.mark.parametrize("hold", [waits, finishes_something, waits_after_an_error])
async def test_what_a_cancelled_task_held_is_gone_with_it(
    hold: Hold, steady: bool, no_collector: None
) -> None:
    gone: list[str] = []
    async with anyio.create_task_group() as group:
        held = Held()
        weakref.finalize(held, gone.append, "gone")
        start_in(group, hold(held), steady=steady)
        del held
        await anyio.sleep(1)
        assert not gone
        group.cancel_scope.cancel()
    assert gone
