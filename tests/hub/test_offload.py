"""Where blocking functions run: a thread that is at home with anyio, and holds nobody up."""

import threading
from contextvars import ContextVar

import anyio
import anyio.from_thread
import pytest

from hubbub.hub.ports import ThreadOffload

who: ContextVar[str] = ContextVar("who", default="nobody")

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio"])  # As they are: threads are real.


@LOOPS
@pytest.mark.spec("D-04")
def test_a_thread_finds_the_way_back_to_the_loop_and_may_run_one_of_its_own(loop: str) -> None:
    async def answer() -> str:
        await anyio.lowlevel.checkpoint()
        return "from the loop"

    def work() -> tuple[str, int, str]:
        anyio.from_thread.check_cancelled()
        own = anyio.run(answer, backend=loop)
        assert own == anyio.from_thread.run(answer)
        return own, anyio.from_thread.run_sync(threading.get_ident), who.get()

    async def main() -> None:
        who.set("the caller")
        found = await ThreadOffload().run(work)
        assert found == ("from the loop", threading.get_ident(), "the caller")

    anyio.run(main, backend=loop)


@LOOPS
def test_no_more_functions_run_at_once_than_anyio_allows(loop: str) -> None:
    running: list[int] = []
    most: list[int] = []

    def work() -> None:
        running.append(1)
        most.append(len(running))
        anyio.from_thread.run(anyio.lowlevel.checkpoint)
        running.pop()

    async def main() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 3
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(ThreadOffload().run, work)

    anyio.run(main, backend=loop)
    assert (len(most), max(most) <= 3) == (20, True)


@LOOPS
@pytest.mark.spec("G-03")
def test_who_is_cancelled_goes_on_and_the_thread_learns_of_it_and_ends(loop: str) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()
    seen: list[BaseException] = []

    def work() -> None:
        begun.set()
        may_end.wait()
        try:
            anyio.from_thread.check_cancelled()
        except BaseException as error:
            seen.append(error)
        seen.append(KeyError(threading.current_thread().daemon))
        ended.set()

    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(ThreadOffload().run, work)
                await anyio.to_thread.run_sync(begun.wait)
                scope.cancel()
        assert scope.cancelled_caught
        may_end.set()
        await anyio.to_thread.run_sync(ended.wait)

    anyio.run(main, backend=loop)
    cancelled, daemon = seen
    assert not isinstance(cancelled, RuntimeError)
    assert daemon.args == (True,)


@pytest.mark.spec("G-03")
def test_a_thread_of_asyncio_ends_with_its_function() -> None:
    async def main() -> None:
        before = threading.active_count()
        threads = [await ThreadOffload().run(threading.current_thread) for _ in range(5)]
        for each in threads:
            await anyio.to_thread.run_sync(each.join)
        await ThreadOffload().run(int)
        assert threading.active_count() <= before + 2  # One of anyio's, one that is about to end.

    anyio.run(main)
