"""What a future holds is raised where it is awaited, whatever class it is of."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from hubbub.hub.tasks.outermost import start_in
from hubbub.hub.tasks.stepped import stepped

Way = Callable[[Any], Any]


async def in_a_task(work: Any) -> Any:
    async with anyio.create_task_group() as group:
        handle = start_in(group, work)
    return await handle


async def lent(work: Any) -> Any:
    return await stepped(work, is_lent=True)


@pytest.fixture(params=[in_a_task, lent])
def way(request: pytest.FixtureRequest) -> Way:
    return request.param  # type: ignore[no-any-return]


def run(main: Callable[[], Any]) -> Any:
    return asyncio.run(main())  # Trio has no such futures.


@pytest.mark.spec("G-02")
@pytest.mark.parametrize("kind", [GeneratorExit, ValueError, SystemError, KeyError])
def test_it_is_raised_where_it_is_awaited_and_the_code_goes_on(
    kind: type[BaseException], way: Way
) -> None:
    async def work() -> str:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, kind("x"))
        with pytest.raises(kind):
            await future
        await asyncio.sleep(0)
        return "went on"

    assert run(lambda: way(work())) == "went on"


def test_what_a_future_holds_is_returned(way: Way) -> None:
    async def work() -> int:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, 7)
        return await future + await future  # type: ignore[no-any-return]

    assert run(lambda: way(work())) == 14


def test_cancelling_reaches_the_code_with_its_words(way: Way) -> None:
    async def main() -> tuple[Any, ...]:
        said: list[tuple[Any, ...]] = []
        future = asyncio.get_running_loop().create_future()

        async def work() -> None:
            try:
                await future
            except asyncio.CancelledError as error:
                said.append(error.args)
                raise

        async def all_of_it() -> None:
            with anyio.CancelScope() as scope:
                asyncio.get_running_loop().call_later(0, scope.cancel, "enough")
                await way(work())
            assert scope.cancelled_caught

        await all_of_it()
        assert future.cancelled()
        return said[0]

    (words,) = run(main)
    assert "enough" in words


def test_a_future_whose_wait_was_broken_off_can_be_awaited_again() -> None:
    async def main() -> int:
        future = asyncio.get_running_loop().create_future()

        async def shielded() -> int:
            with anyio.move_on_after(0.001):
                await asyncio.shield(future)
            future.set_result(3)
            return await future  # type: ignore[no-any-return]

        return await stepped(shielded(), is_lent=True)

    assert run(main) == 3


def test_a_task_factory_of_the_loop_is_left_as_it_was() -> None:
    made: list[Any] = []

    def factory(loop: Any, coroutine: Any, **options: Any) -> Any:
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **options)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(factory)
        async with anyio.create_task_group() as group:
            start_in(group, asyncio.sleep(0))
            assert not made
            assert loop.get_task_factory() is factory

    run(main)
