"""A runtime that is opened and left again and again, in whatever way, leaves nothing behind."""

import asyncio
import gc
import os
import threading
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from itertools import count
from pathlib import Path
from types import coroutine
from typing import Any, NamedTuple

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.profiles import examples

from attacks.scale import scale
from hubbub import Runtime, tool
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.runtime.models.scripted import ScriptedModel, call
from hubbub.runtime.stores.open import sqlite_store

BACKENDS = ("asyncio", "trio")
MiB = 1 << 20

Make = Callable[[], Journal]


class Store(NamedTuple):
    """A store, the same one every time where it is on a disk, and how often to open it."""

    make: Callable[[], Journal]
    cycles: int


@pytest.fixture(params=["memory", "late", "sqlite", "sqlite, no folders"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    stores = {
        "memory": Store(MemoryJournal, examples(1000)),
        "late": Store(lambda: LateJournal(MemoryJournal()), examples(300)),
        "sqlite": Store(lambda: sqlite_store(tmp_path), max(examples(20), 6)),
        "sqlite, no folders": Store(
            lambda: sqlite_store(tmp_path, mirror=False), max(examples(20), 6)
        ),
    }
    return stores[request.param]


def resident() -> int:
    """Bytes of memory that the process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def tasks() -> int:
    return len(anyio.get_running_tasks())


async def settle(condition: Callable[[], bool]) -> None:
    """Give what was told to end, threads among it, the time to do so."""
    with anyio.move_on_after(5):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.002)


@tool
def look() -> bool:
    return threading.current_thread() is not threading.main_thread()


def runtime(make: Make) -> Runtime:
    looker = model_agent(ScriptedModel([call("look"), "x"]), look, name="looker")
    return Runtime([model_agent(echo_model(latency=0)), looker], store=make())


async def once(make: Make) -> None:
    """Opened, used, also with a thread, left."""
    async with runtime(make) as rt:
        assert (await rt.run("looker", "x")).success


async def cut_off(make: Make) -> None:
    """Left because of an error, in the middle of something."""
    with pytest.raises(OSError, match="cut off"):  # noqa: PT012
        async with runtime(make) as rt:
            await rt.start("assistant", "x")
            raise OSError("cut off")


async def opened_only(make: Make) -> None:
    async with runtime(make):
        pass


async def cycles(make: Make, times: int) -> None:
    ways = (once, cut_off, opened_only)
    for way in ways:
        await way(make)
    threads, open_tasks, files = threading.active_count(), tasks(), descriptors()
    early = 0
    for number in range(times):
        await ways[number % len(ways)](make)
        if number == times // 5:
            gc.collect()
            early = resident()
    gc.collect()
    grown = resident() - early
    await settle(lambda: threading.active_count() <= threads and tasks() <= open_tasks)
    assert threading.active_count() <= threads, threading.enumerate()
    assert tasks() <= open_tasks
    assert descriptors() <= files
    assert grown <= 5 * MiB, f"{grown / MiB:.1f} MiB"


@pytest.mark.spec("G-03")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_thousand_openings_leave_no_thread_task_descriptor_or_memory(
    backend: Any, store: Store
) -> None:
    """In CI a thousand of the memory store, fewer of those that take their time; long: of each."""
    anyio.run(cycles, store.make, scale(store.cycles, 1000), backend=backend)


# ── cut off at every wait ────────────────────────────────────────────────────────────────────


async def life(make: Make) -> None:
    async with runtime(make) as rt:
        await rt.start("assistant", "x")


@coroutine
def cut_at(
    work: Coroutine[Any, Any, None], number: int, cut: Callable[[], object]
) -> Generator[Any, Any, None]:
    """Await ``work``, and ``cut`` it as it begins its wait of that number."""
    step: Callable[[], Any] = partial(work.send, None)
    for waits in count():
        try:
            wanted = step()
        except StopIteration:
            return
        if waits == number:
            cut()
        try:
            got = yield wanted
        except BaseException as error:
            step = partial(work.throw, error)
        else:
            step = partial(work.send, got)


async def is_over_before(number: int, make: Make, *, natively: bool) -> bool:
    """Live a life that is cut off at its wait of that number; whether it has fewer."""
    scope = anyio.CancelScope()
    is_cut = False

    async def live() -> None:
        with scope:
            await cut_at(life(make), number, cut)

    def cut() -> None:
        nonlocal is_cut
        is_cut = True
        if natively:
            task.cancel()
        else:
            scope.cancel()

    if natively:
        task = asyncio.ensure_future(live())
        await asyncio.wait([task])
    else:
        await live()
    return not is_cut


async def cut_at_every_wait(make: Make, *, natively: bool) -> None:
    await life(make)
    threads, open_tasks, files = threading.active_count(), tasks(), descriptors()
    for number in count():
        if await is_over_before(number, make, natively=natively):
            break
    assert number > 1
    await settle(
        lambda: threading.active_count() <= threads and tasks() <= open_tasks
        and descriptors() <= files
    )  # fmt: skip
    assert threading.active_count() <= threads, threading.enumerate()
    assert tasks() <= open_tasks, anyio.get_running_tasks()
    assert descriptors() <= files
    with anyio.fail_after(20):
        await once(make)


@pytest.mark.spec("G-03")
@pytest.mark.parametrize("way", ["asyncio", "trio", "asyncio, Task.cancel"])
def test_cut_off_at_every_wait_of_opening_and_leaving_it_leaves_nothing_behind(
    way: str, store: Store
) -> None:
    backend, _, natively = way.partition(", ")
    attack = partial(cut_at_every_wait, store.make, natively=bool(natively))
    anyio.run(attack, backend=backend)  # type: ignore[arg-type]
