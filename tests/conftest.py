"""What all tests share: both loops in virtual time, both kinds of journal, no leaked task."""

import importlib.util
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest
import trio.testing

from hubbub.hub.journal import Journal
from hubbub.hub.late_journal import LateJournal
from hubbub.hub.memory_journal import MemoryJournal
from hubbub.hub.ports import Ports
from hubbub.hub.virtual import virtual_ports


def _sibling(name: str) -> ModuleType:
    """A module of this folder (``--import-mode=importlib`` puts no folder on the path)."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"hubbub_tests_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


VirtualTimeLoop = _sibling("virtual_time").VirtualTimeLoop


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
