"""The hub's task group may be entered, cancelled and left by anybody."""

import asyncio
import gc
import warnings

import anyio
import pytest

from hubbub.hub.task_host import TaskHost

pytestmark = pytest.mark.anyio


async def test_cancelled_on_the_way_in_leaves_no_task_behind() -> None:
    host = TaskHost()
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await host.open()
            await anyio.lowlevel.checkpoint()
        finally:
            await host.aclose()
    assert scope.cancelled_caught
    assert not host.is_open


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_may_be_left_by_another_task_than_the_one_that_entered_it(
    anyio_backend: str,
) -> None:
    host = TaskHost()
    await asyncio.create_task(host.open())
    ended = anyio.Event()

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    host.start(work())
    await anyio.lowlevel.checkpoint()
    await asyncio.create_task(host.aclose())
    assert ended.is_set()


@pytest.mark.spec("G-02")
@pytest.mark.parametrize("lives_on", [False, True])
def test_a_program_that_ends_before_a_task_has_begun_is_told_of_nothing_else(
    lives_on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        await anyio.sleep_forever()

    async def main() -> None:
        host = TaskHost()
        await host.open()
        host.end_program(SystemExit(3))
        host.start(work(), lives_on=lives_on)
        await anyio.sleep_forever()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(SystemExit):
            asyncio.run(main())
        gc.collect()
    assert [str(each.message) for each in told] == []
    assert caplog.text == ""


@pytest.mark.spec("G-02")
@pytest.mark.parametrize("kind", [GeneratorExit, asyncio.CancelledError])
async def test_what_a_cancelled_task_raises_in_place_of_its_cancellation_is_left_to_it(
    kind: type[BaseException],
) -> None:
    """Of a class that ends tasks on another loop, or coroutines: the host is left all the same."""
    has_begun = anyio.Event()

    async def work() -> None:
        has_begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise kind

    host = TaskHost()
    await host.open()
    host.start(work())
    await has_begun.wait()
    await host.aclose()
