"""What all tests share: both loops in virtual time, both kinds of journal, no leaked task."""

import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio.testing

from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports

sys.path.append(str(Path(__file__).parent))

from support.bytecode import keep_bytecode
from support.profiles import load_profile
from support.selection import (  # noqa: F401
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_deselected,
    pytest_runtest_makereport,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
    pytest_xdist_auto_num_workers,
)
from support.temporary_files import keep_files_in_memory
from support.virtual_time import VirtualTimeLoop

keep_bytecode()
keep_files_in_memory()
load_profile()


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Every async test runs on both loops, in virtual time: a sleep of a day takes none."""
    if request.param == "asyncio":
        return "asyncio", {"loop_factory": VirtualTimeLoop}
    return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}


@pytest.fixture
def ports() -> Ports:
    """Virtual time, repeatable ids, no threads."""
    return virtual_ports()


@pytest.fixture(params=["at once", "late"])
def journal(request: pytest.FixtureRequest) -> Journal:
    """A memory journal that commits inside ``emit``, and one that commits later."""
    inner = MemoryJournal()
    return inner if request.param == "at once" else LateJournal(inner)


@pytest.fixture
async def _leaks() -> AsyncIterator[None]:
    before = {task.id for task in anyio.get_running_tasks()}
    yield
    # A task that has just been cancelled needs a few turns to end.
    for _ in range(10):
        await anyio.lowlevel.checkpoint()
    left = [
        task
        for task in anyio.get_running_tasks()
        if task.id not in before and "TestRunner" not in str(task.coro)
    ]
    assert not left, f"tasks left behind: {[(task.name, str(task.coro)) for task in left]}"


@pytest.fixture(autouse=True)
def _no_leaked_task(request: pytest.FixtureRequest) -> None:
    if "anyio_backend" in request.fixturenames:
        request.getfixturevalue("_leaks")


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], Any]:
    """Wait, in virtual time, until something holds; fails after an hour of it."""

    async def wait(condition: Callable[[], bool]) -> None:
        with anyio.fail_after(3600):
            while not condition():  # noqa: ASYNC110
                await anyio.sleep(0.001)

    return wait
