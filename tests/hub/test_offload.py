"""Where blocking functions run: a thread that is at home with anyio, and holds nobody up."""

import subprocess
import sys
import threading
import weakref
from contextvars import ContextVar
from functools import partial

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from hubbub import Agent, RunContext, Runtime, ScriptedModel, agent, tool
from hubbub.hub.errors import BadValue
from hubbub.hub.hub import Hub
from hubbub.hub.ports import Ports, ThreadOffload
from hubbub.runtime.activities.files import BIG
from hubbub.runtime.models.scripted import call

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
@pytest.mark.spec("D-04")
def test_no_more_functions_are_at_work_at_once_than_there_are_places(loop: str) -> None:
    running: list[int] = []
    most: list[int] = []

    def work() -> None:
        running.append(1)
        most.append(len(running))
        anyio.from_thread.run_sync(int)
        running.pop()

    async def main() -> None:
        offload = ThreadOffload(3)
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(offload.run, work)

    anyio.run(main, backend=loop)
    assert (len(most), max(most) <= 3) == (20, True)


@LOOPS
@pytest.mark.spec("D-04")
def test_a_thread_that_awaits_something_in_the_loop_keeps_nobody_from_working(loop: str) -> None:
    async def main() -> None:
        offload = ThreadOffload(2)
        may_go_on = anyio.Event()

        def waits() -> None:
            anyio.from_thread.run(may_go_on.wait)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(offload.run, waits)
                await offload.run(int)
                may_go_on.set()
            await offload.run(int)

    anyio.run(main, backend=loop)


@LOOPS
@pytest.mark.spec("D-04")
def test_threads_that_await_something_in_the_loop_are_bounded_too(loop: str) -> None:
    async def main() -> None:
        offload = ThreadOffload(1)
        may_go_on = anyio.Event()
        begun: list[int] = []

        def waits() -> None:
            begun.append(1)
            anyio.from_thread.run(may_go_on.wait)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                for _ in range(30):
                    group.start_soon(offload.run, waits)
                while len(begun) < 10:
                    await anyio.lowlevel.checkpoint()
                await anyio.wait_all_tasks_blocked()
                assert len(begun) == 10
                may_go_on.set()
        assert len(begun) == 30

    anyio.run(main, backend=loop)


@LOOPS
@pytest.mark.spec("D-04")
def test_the_program_s_own_threads_of_anyio_do_not_queue_behind_ours(loop: str) -> None:
    async def main() -> None:
        may_end, begun = threading.Event(), threading.Semaphore(0)
        offload = ThreadOffload()

        def blocks() -> None:
            begun.release()
            may_end.wait()

        async with anyio.create_task_group() as group:
            for _ in range(45):
                group.start_soon(offload.run, blocks)
            for _ in range(45):
                await offload.run(begun.acquire)
            with anyio.fail_after(20):
                await anyio.to_thread.run_sync(int)
            may_end.set()

    anyio.run(main, backend=loop)


@pytest.mark.parametrize("threads", [0, -1, True, 1.5, "3"])
def test_a_number_of_threads_is_at_least_one(threads: int) -> None:
    with pytest.raises(BadValue):
        Ports(threads=threads)


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


# ── whose threads they are ───────────────────────────────────────────────────────────────────
# On Trio they are Trio's own, which keeps them for a while, whoever has started them.


def has_ended(thread: threading.Thread) -> bool:
    thread.join(20)
    return not thread.is_alive()


@pytest.mark.spec("G-03")
def test_one_function_after_another_has_one_thread_until_it_is_dismissed() -> None:
    async def main() -> None:
        offload = ThreadOffload()
        (first,) = {await offload.run(threading.current_thread) for _ in range(5)}
        offload.dismiss()
        assert has_ended(first)
        assert await offload.run(threading.current_thread) is not first
        offload.dismiss()

    anyio.run(main)


@pytest.mark.spec("G-03")
def test_functions_at_once_have_as_many_threads_which_the_next_ones_use() -> None:
    async def main() -> None:
        before = {*threading.enumerate()}
        offload = ThreadOffload()
        for _ in range(20):
            together = threading.Barrier(4)
            async with anyio.create_task_group() as group:
                for _ in range(4):
                    group.start_soon(offload.run, together.wait)
        mine = {*threading.enumerate()} - before
        assert len(mine) == 4
        offload.dismiss()
        assert all(map(has_ended, mine))

    anyio.run(main)


@pytest.mark.spec("G-03")
def test_a_function_that_is_stuck_is_not_waited_for_and_its_thread_ends_with_it() -> None:
    begun: list[threading.Thread] = []
    may_end = threading.Event()

    def stuck() -> None:
        begun.append(threading.current_thread())
        may_end.wait()

    async def main() -> None:
        offload = ThreadOffload()
        async with anyio.create_task_group() as group:
            group.start_soon(offload.run, stuck)
            while not begun:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        offload.dismiss()
        assert await offload.run(threading.current_thread) is not begun[0]
        offload.dismiss()

    anyio.run(main)
    assert begun[0].is_alive()
    may_end.set()
    assert has_ended(begun[0])


@pytest.mark.spec("G-03")
def test_a_thread_that_has_nothing_to_do_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubbub.hub.tasks.kept_threads.IDLE", 0.001)

    async def main() -> None:
        offload = ThreadOffload()
        for _ in range(50):
            assert has_ended(await offload.run(threading.current_thread))

    anyio.run(main)


def test_an_idle_thread_keeps_nothing_of_its_last_function_alive() -> None:
    class Large:
        pass

    async def main() -> None:
        offload = ThreadOffload()
        large = Large()
        about = weakref.ref(large)
        await offload.run(partial(id, large))
        del large
        await offload.run(int)
        assert about() is None
        offload.dismiss()

    anyio.run(main)


@pytest.mark.spec("G-03")
@pytest.mark.parametrize("ports", [None, Ports()])
def test_a_hub_that_is_left_leaves_no_thread_and_the_ports_go_on(ports: Ports | None) -> None:
    """Also where hubs share their ports, one after another and at once."""

    async def main() -> None:
        async with Hub(ports=ports) as one:
            first = await one.ports.offload.run(threading.current_thread)
            async with Hub(ports=ports or one.ports) as two:
                assert await two.ports.offload.run(threading.current_thread) is first
            assert has_ended(first)
            second = await one.ports.offload.run(threading.current_thread)
        assert has_ended(second)

    anyio.run(main)
    anyio.run(main)


FORKED = """
import os
import anyio
from hubbub.hub.ports import ThreadOffload

offload = ThreadOffload()
anyio.run(offload.run, int)
child = os.fork()
if not child:
    anyio.run(offload.run, lambda: os._exit(7))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.spec("G-05")
def test_a_forked_child_does_not_wait_for_its_parent_s_threads() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "7\n"


@LOOPS
@pytest.mark.spec("D-04", "A-01")
def test_what_the_library_does_in_threads_waits_for_no_tool(loop: str) -> None:
    """The digest of a large file is made while tools hold every thread of theirs."""
    may_end, begun = threading.Event(), threading.Event()

    @tool
    def blocks() -> str:
        begun.set()
        may_end.wait(60)
        return "over"

    @agent("writer")
    async def writer(input: object, ctx: RunContext) -> int:
        return (await ctx.files.write("large", b"x" * (2 * BIG))).size

    async def main() -> None:
        blocked = Agent("blocked", "x", model=ScriptedModel([call("blocks"), "."]), tools=[blocks])
        ports = Ports(threads=1)
        async with Runtime([blocked, writer], store="memory", ports=ports) as rt:
            run = await rt.start("blocked", "Go.")
            await anyio.to_thread.run_sync(begun.wait, 20)
            with anyio.fail_after(20):
                assert (await rt.run("writer", None)).output == 2 * BIG
            may_end.set()
            await run.result()

    anyio.run(main, backend=loop)
