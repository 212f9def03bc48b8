"""The canary: a Trio whose private scheduling has changed must be noticed here."""

import os
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
import trio
from support.simulations import busy_day, desk

from hubbub.hub.errors import BadValue, OperatorError
from hubbub.runtime.simulation import NeverRests, NothingHappens, run_seeded, simulate

TESTS = Path(__file__).parent.parent

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from support.simulations import busy_day, desk
from hubbub.runtime.simulation import Crash, simulate
for store in ("memory", "late", "sqlite"):
    history = simulate(busy_day, desk(), seed=7, faults=[Crash(commit=20)], store=store)
    print(*history.trace(), sep="\\n")
"""


async def race() -> list[int]:
    """Tasks that get in each other's way: who comes when is the scheduler's choice."""
    order: list[int] = []
    lock, some = anyio.Lock(), anyio.Semaphore(2)

    async def runner(number: int) -> None:
        for turn in range(5):
            async with some:
                await anyio.sleep(turn % 2)
            async with lock:
                await anyio.lowlevel.checkpoint()
                order.append(number)

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(runner, number)
    return order


def test_a_seed_schedules_the_same_way_each_time() -> None:
    assert run_seeded(race, 1) == run_seeded(race, 1)


def test_seeds_schedule_differently() -> None:
    assert len({tuple(run_seeded(race, seed)) for seed in range(5)}) == 5


def test_worlds_of_one_seed_have_one_trace_and_those_of_two_seeds_two() -> None:
    one, again, other = (simulate(busy_day, desk(), seed=seed).trace() for seed in (3, 3, 4))
    assert one == again
    assert one != other


def test_two_processes_with_different_hashes_have_one_trace() -> None:
    found = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(TESTS)],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hashes in ("1", "2")
    ]
    one, two = (process.communicate(timeout=120)[0] for process in found)
    assert all(process.returncode == 0 for process in found)
    assert one.count("crashed after") == 3
    assert one == two


def test_what_was_set_in_trio_is_set_again_afterwards() -> None:
    run = trio._core._run
    before = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate()
    run_seeded(race, 5)
    with pytest.raises(ZeroDivisionError):
        run_seeded(_divide, 5)
    assert (run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate()) == before


async def _divide() -> float:
    async with anyio.create_task_group() as outer, anyio.create_task_group():
        outer.start_soon(anyio.sleep, 3)
        return 1 / 0


def test_one_exception_comes_out_of_its_groups() -> None:
    with pytest.raises(ZeroDivisionError):
        run_seeded(_divide)


def test_two_exceptions_stay_a_group() -> None:
    async def fail() -> None:
        async def wrong() -> None:
            raise ValueError

        async with anyio.create_task_group() as group:
            group.start_soon(wrong)
            group.start_soon(wrong)

    with pytest.raises(ExceptionGroup) as caught:
        run_seeded(fail)
    assert len(caught.value.exceptions) == 2


def test_a_week_takes_no_time() -> None:
    async def sleep() -> float:
        before = anyio.current_time()
        await anyio.sleep(7 * 86_400)
        return anyio.current_time() - before

    assert run_seeded(sleep) == 7 * 86_400


def test_a_program_that_waits_for_ever_is_told_of() -> None:
    with pytest.raises(NothingHappens, match="nothing happens any more"):
        run_seeded(anyio.sleep_forever)


async def spins(seconds: float) -> None:
    """Goes on forever, once it is that late."""
    await anyio.sleep(seconds)
    while True:
        await anyio.lowlevel.checkpoint()


def test_a_program_that_is_busy_for_ever_is_told_of_with_who_when_and_the_limit() -> None:
    async def program() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(spins, 2.5, name="the spinner")
            await anyio.sleep(100)

    with pytest.raises(NeverRests) as told:
        run_seeded(program, max_rounds=500)
    text = str(told.value)
    assert "goes on after 500 rounds of the scheduler at 2.500 s" in text
    assert "with the spinner in spins (test_loop.py:" in text
    assert "max_rounds" in text
    assert "\n" not in text


def test_what_takes_many_rounds_and_lets_time_pass_goes_on() -> None:
    async def program() -> int:
        count = 0
        for _ in range(20):
            for _ in range(400):
                await anyio.lowlevel.checkpoint()
                count += 1
            await anyio.sleep(0.001)
        return count

    assert run_seeded(program, max_rounds=500) == 8_000
    with pytest.raises(NeverRests):
        run_seeded(program, max_rounds=150)


@pytest.mark.parametrize("way_out", ["raises", "returns"])
def test_a_busy_program_is_told_of_whatever_it_does_on_its_way_out(way_out: str) -> None:
    async def program() -> str:
        try:
            await spins(0)
        except trio.Cancelled:
            if way_out == "raises":
                raise ValueError from None
            return "done"
        return "never"

    with pytest.raises(NeverRests):
        run_seeded(program, max_rounds=200)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, True, "1"])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    with pytest.raises(BadValue, match="seed"):
        run_seeded(race, seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["_r", "_ALLOW_DETERMINISTIC_SCHEDULING"])
def test_a_trio_without_repeatable_scheduling_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delattr(trio._core._run, name)
    with pytest.raises(OperatorError, match="repeatable scheduling"):
        run_seeded(race)


def _printed(program: str) -> str:
    """What a new process prints."""
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


@pytest.mark.parametrize(
    ("names", "left_out"),
    [
        ("hubbub, hubbub.runtime", "'trio', 'pytest', 'hypothesis', 'hubbub.runtime.simulation'"),
        # pytest loads its plugin from there, whether the extra is installed or not.
        ("hubbub.runtime.simulation", "'trio', 'pytest', 'hypothesis', 'greenlet'"),
        ("hubbub.runtime.simulation.simulate", "'hypothesis', 'greenlet'"),
    ],
)
def test_nothing_is_imported_before_it_is_used(names: str, left_out: str) -> None:
    program = f"import sys, {names}; print(sorted({{{left_out}}} & set(sys.modules)))"
    assert _printed(program) == "[]"


@pytest.mark.parametrize(
    "first", ["hubbub.runtime.simulation", "hubbub.runtime.simulation.simulate"]
)
def test_simulate_is_the_function_whatever_was_imported_first(first: str) -> None:
    program = f"import {first}; from hubbub.runtime.simulation import simulate; print(simulate)"
    assert _printed(program).startswith("<function simulate ")
