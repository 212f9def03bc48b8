"""Plain functions in virtual time: in a thread, and one of it and the loop works at a time."""

import threading
from contextvars import ContextVar

import anyio
import anyio.from_thread
import pytest

from hubbub.hub.tasks.lockstep_offload import LockstepOffload
from hubbub.hub.virtual import virtual_ports

who: ContextVar[str] = ContextVar("who", default="nobody")

pytestmark = pytest.mark.anyio

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio"])  # As they are: threads are real.


@LOOPS
@pytest.mark.spec("D-04")
def test_a_thread_finds_the_way_back_to_the_loop_and_may_run_one_of_its_own(loop: str) -> None:
    async def answer() -> str:
        await anyio.lowlevel.checkpoint()
        return "from the loop"

    def work() -> tuple[str, int, str, int]:
        anyio.from_thread.check_cancelled()
        own = anyio.run(answer, backend=loop)
        assert own == anyio.from_thread.run(answer)
        here = threading.get_ident()
        return own, anyio.from_thread.run_sync(threading.get_ident), who.get(), here

    async def main() -> None:
        who.set("the caller")
        for _ in range(2):  # Threads are used again.
            *found, there = await LockstepOffload().run(work)
            assert found == ["from the loop", threading.get_ident(), "the caller"]
            assert there != threading.get_ident()
        with pytest.raises(anyio.NoEventLoopError):
            anyio.from_thread.run(answer)

    anyio.run(main, backend=loop)


async def test_what_a_thread_waits_for_takes_the_time_of_the_loop_and_others_work_meanwhile() -> (
    None
):
    order: list[str] = []

    def work(name: str) -> None:
        for turn in range(2):
            order.append(f"{name} {turn}")
            anyio.from_thread.run(anyio.sleep, 3600)
            anyio.from_thread.run_sync(order.append, f"{name} slept")

    offload, begun = virtual_ports().offload, anyio.current_time()
    async with anyio.create_task_group() as group:
        for name in "ab":
            group.start_soon(offload.run, lambda name=name: work(name))
            await anyio.sleep(1)
    assert anyio.current_time() - begun == 7201
    assert order == [
        "a 0", "b 0", "a slept", "a 1", "b slept", "b 1", "a slept", "b slept",
    ]  # fmt: skip


async def test_what_is_raised_passes_between_thread_and_loop() -> None:
    async def fails() -> None:
        await anyio.sleep(1)
        raise KeyError("there")

    def work() -> None:
        try:
            anyio.from_thread.run(fails)
        except KeyError as error:
            raise ValueError("here") from error

    with pytest.raises(ValueError, match="here") as told:
        await LockstepOffload().run(work)
    assert isinstance(told.value.__cause__, KeyError)


async def test_a_thread_is_cancelled_where_it_waits_for_the_loop() -> None:
    seen: list[str] = []

    def work() -> None:
        try:
            while True:
                anyio.from_thread.run(anyio.sleep, 10)
                anyio.from_thread.check_cancelled()
        finally:
            seen.append("left")

    with anyio.move_on_after(25) as scope:
        await LockstepOffload().run(work)
    assert scope.cancelled_caught
    assert seen == ["left"]


async def test_a_thread_that_waits_for_another_task_is_said_to_be_stuck() -> None:
    never = threading.Event()

    def wait_for_another() -> None:
        never.wait()

    try:
        with pytest.raises(TimeoutError, match=r"wait_for_another .*test_lockstep_offload.py:"):
            await LockstepOffload(patience=0.1).run(wait_for_another)
    finally:
        never.set()
