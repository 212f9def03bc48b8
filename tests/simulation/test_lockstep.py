"""Threads in a simulation: they take no virtual time, and are as repeatable as tasks."""

import contextvars
import threading
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest
import trio
import trio.testing
from support.simulations import busy_day, desk

from hubbub import AgentDefinition, PromptDefinition, SideConfig, tool
from hubbub.hub.errors import OperatorError, WrongThread
from hubbub.runtime.models.scripted import FunctionModel, call, reply
from hubbub.runtime.simulation import Setup, World, run_seeded, simulate
from hubbub.runtime.simulation.loop import lockstep
from hubbub.runtime.simulation.loop.lockstep import StuckThread

NAMES = ["start_thread_soon", "_send_message_to_trio"]


def kept() -> list[object]:
    return [getattr(trio._threads, name) for name in NAMES]  # type: ignore[attr-defined]


@pytest.mark.parametrize("run_sync", [anyio.to_thread.run_sync, trio.to_thread.run_sync])
def test_a_thread_takes_no_virtual_time_and_is_a_thread(run_sync: Any) -> None:
    async def main() -> tuple[float, bool]:
        def work() -> int:
            # Long enough for a loop that does not wait to be past its horizon.
            threading.Event().wait(0.05)
            return threading.get_ident()

        there = await run_sync(work)
        return anyio.current_time(), there != threading.get_ident()

    before = kept()
    assert run_seeded(main) == (run_seeded(_now), True)
    assert kept() == before


async def _now() -> float:
    return anyio.current_time()


async def crowd() -> list[tuple[int, int, str]]:
    """Threads that get in each other's way, and ask the loop for things."""
    order: list[tuple[int, int, str]] = []

    async def rest(number: int, turn: int) -> None:
        await anyio.sleep(turn % 2)
        order.append((number, turn, "rested"))

    def work(number: int) -> None:
        for turn in range(4):
            order.append((number, turn, "thread"))
            anyio.from_thread.run_sync(order.append, (number, turn, "loop"))
            anyio.from_thread.run(rest, number, turn)

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(anyio.to_thread.run_sync, work, number)
    return order


def test_a_seed_schedules_threads_the_same_way_each_time() -> None:
    for seed in range(5):
        assert run_seeded(crowd, seed) == run_seeded(crowd, seed)
    assert len({tuple(run_seeded(crowd, seed)) for seed in range(5)}) > 1


def test_one_of_thread_and_loop_works_at_a_time() -> None:
    async def main() -> list[str]:
        order: list[str] = []

        async def other() -> None:
            for turn in range(5):
                order.append(f"task {turn}")
                await anyio.lowlevel.checkpoint()

        def work() -> None:
            order.append("begins")
            threading.Event().wait(0.05)
            order.append("ends")

        async with anyio.create_task_group() as group:
            group.start_soon(other)
            group.start_soon(anyio.to_thread.run_sync, work)
        return order

    order = run_seeded(main)
    assert order.index("ends") == order.index("begins") + 1


def test_a_thread_has_the_variables_of_its_task_and_its_errors_and_limits_count() -> None:
    variable = contextvars.ContextVar("variable", default=0)

    async def main() -> None:
        variable.set(7)
        assert await anyio.to_thread.run_sync(variable.get) == 7
        assert await anyio.to_thread.run_sync(variable.set, 8)
        assert variable.get() == 7
        with pytest.raises(ZeroDivisionError):
            await anyio.to_thread.run_sync(lambda: 1 // 0)
        limiter = anyio.CapacityLimiter(1)
        for _ in range(3):
            await anyio.to_thread.run_sync(int, limiter=limiter)
        assert limiter.borrowed_tokens == 0

    run_seeded(main)


@pytest.mark.parametrize("abandon", [True, False])
def test_what_a_thread_waits_for_in_the_loop_is_cancelled_with_its_task(abandon: bool) -> None:
    async def main() -> float:
        with anyio.move_on_after(1) as scope:
            await anyio.to_thread.run_sync(
                lambda: anyio.from_thread.run(anyio.sleep, 10), abandon_on_cancel=abandon
            )
        assert scope.cancelled_caught
        return anyio.current_time()

    assert run_seeded(main) == run_seeded(_now) + 1


def test_files_are_read_and_loops_begun_in_threads() -> None:
    async def main() -> int:
        async with await anyio.open_file(__file__) as file:
            assert "Threads in a simulation" in await file.read()

        async def inner() -> int:
            return await anyio.to_thread.run_sync(lambda: 5)

        return await anyio.to_thread.run_sync(run_seeded, inner)

    assert run_seeded(main) == 5


@pytest.mark.parametrize("abandon", [True, False])
@pytest.mark.parametrize("asks", [True, False])
def test_a_thread_that_is_stuck_is_told_of_with_who_began_it(
    monkeypatch: pytest.MonkeyPatch, abandon: bool, asks: bool
) -> None:
    monkeypatch.setattr(lockstep, "MAX_THREAD_SECONDS", 0.02)
    never = threading.Event()

    async def main() -> None:
        def work() -> None:
            if asks:
                anyio.from_thread.run(anyio.sleep, 1)
            never.wait()

        try:
            await anyio.to_thread.run_sync(work, abandon_on_cancel=abandon)
        except StuckThread:  # As a tool's exceptions are taken for answers.
            await anyio.sleep(1)

    before = kept()
    with pytest.raises(StuckThread) as told:
        run_seeded(main)
    never.set()
    assert (
        "main (test_lockstep.py:" in str(told.value).replace("<locals>.", "").split("thread", 1)[1]
    )
    assert "\n" not in str(told.value)
    assert kept() == before


def test_loops_in_other_threads_start_theirs_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that begins while this one is at work, and is at work when this one is over."""
    monkeypatch.setattr(lockstep, "MAX_THREAD_SECONDS", 1.0)
    begun, over, gate = threading.Event(), threading.Event(), threading.Event()
    found: list[int] = []

    async def other() -> None:
        async with trio.open_nursery() as nursery:
            # It waits for what another task does.
            nursery.start_soon(trio.to_thread.run_sync, gate.wait)
            await trio.testing.wait_all_tasks_blocked()
            gate.set()
        begun.set()
        await trio.to_thread.run_sync(over.wait)
        found.append(await trio.to_thread.run_sync(lambda: 3))

    elsewhere = threading.Thread(target=trio.run, args=(other,))

    async def main() -> None:
        elsewhere.start()
        assert begun.wait(10)

    before = kept()
    run_seeded(main)
    over.set()
    elsewhere.join(10)
    assert found == [3]
    assert kept() == before


@pytest.mark.parametrize("name", NAMES)
def test_a_trio_whose_threads_have_changed_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delattr(trio._threads, name)  # type: ignore[attr-defined]
    with pytest.raises(OperatorError, match="threads"):
        run_seeded(_now)


# ── agents ───────────────────────────────────────────────────────────────────────────────────


def test_a_tool_that_uses_a_thread_answers_and_the_hub_notices_it() -> None:
    told: list[str] = []
    worlds: list[World] = []

    @tool
    async def look(what: str) -> str:
        """Look something up, in a thread."""

        def work() -> str:
            hub = worlds[0].hub
            try:
                hub.interrupt("nobody")
            except WrongThread as error:
                told.append(type(error).__name__)
            anyio.from_thread.run_sync(hub.interrupt, "nobody")
            return f"seen {what}"

        return await anyio.to_thread.run_sync(work)

    def answers(request: Any) -> Any:
        return "done" if len(request.messages) > 1 else reply("", call("look", what="it"))

    prompt = PromptDefinition(name="p", prompt="x", model=FunctionModel(answers), tools=[look])

    async def scenario(world: World) -> None:
        worlds.append(world)
        outcome = await world.result(await world.open("ada", "hi"))
        assert outcome is not None
        assert outcome.output == "done"

    setup = Setup.of(AgentDefinition(name="ada", side_a=SideConfig(prompt=prompt)))
    history = simulate(scenario, setup)
    (answer,) = (x for x in history.events if x.type == "agent:tool:complete")
    assert (answer.output, answer.at) == ("seen it", history.events[0].at)  # type: ignore[attr-defined]
    assert told == ["WrongThread"]


def test_worlds_without_threads_are_as_they_were() -> None:
    one, two = (simulate(busy_day, desk(), seed=3).trace() for _ in range(2))
    assert one == two
