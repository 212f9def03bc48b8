"""The pytest plugin: fixtures for tests of agents, and a seed that a failing test can be run with.

    hubbub_hub             a hub over a memory journal, to be entered
    hubbub_runtime         makes a runtime: ``async with hubbub_runtime([agent]) as rt``
    hubbub_virtual_time    what ``anyio_backend`` should return: Trio, where waiting takes no time
    scripted_model         makes a ``ScriptedModel`` of its replies
    simulated_world        makes a ``World``, in a test on ``hubbub_virtual_time``
    simulate               ``simulate``, in a plain test

    --hubbub-seed N        what ids, and in a simulation the order of tasks, are drawn from
    --hubbub-record DIR    writes what a failing test's runs did there, as ``hubbub export`` does

Nothing of hubbub's is imported but in a fixture that a test asks for.  Tests that ask for none
are left alone.
"""

import re
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from hubbub.agents.definitions import AgentDefinition
    from hubbub.hub.hub import Hub
    from hubbub.hub.journal import Journal
    from hubbub.runtime.runtime import Runtime
    from hubbub.runtime.scripted_model import ScriptedModel, ScriptItem
    from hubbub.runtime.simulation.history import History
    from hubbub.runtime.simulation.setup import Setup
    from hubbub.runtime.simulation.simulate import Scenario
    from hubbub.runtime.simulation.world import World

__all__ = [
    "hubbub_hub", "hubbub_runtime", "hubbub_seed", "hubbub_virtual_time", "pytest_addoption",
    "pytest_report_header", "pytest_runtest_makereport", "scripted_model", "simulate",
    "simulated_world",
]  # fmt: skip

SEEDED: Final = {"hubbub_seed", "hubbub_hub", "hubbub_runtime", "simulated_world", "simulate"}
"""Tests with one of these fixtures depend on the seed."""

_FAILED: Final = pytest.StashKey[bool]()


# ── options and reports ──────────────────────────────────────────────────────────────────────


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hubbub", "agents in simulated worlds")
    group.addoption(
        "--hubbub-seed", type=int, default=0, metavar="N",
        help="The seed of simulated worlds and of ids (default: 0).",
    )  # fmt: skip
    group.addoption(
        "--hubbub-record", type=Path, default=None, metavar="DIR",
        help="Write what the runs of a failing test did into DIR, for hubbub import.",
    )  # fmt: skip


def pytest_report_header(config: pytest.Config) -> str:
    return f"hubbub: --hubbub-seed {config.getoption('--hubbub-seed')}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say with a failing test how to run it again."""
    report = yield
    if report.when == "call" and report.failed:
        item.stash[_FAILED] = True
        if SEEDED & set(getattr(item, "fixturenames", ())):
            seed = item.config.getoption("--hubbub-seed")
            command = f"pytest {_quoted(item.nodeid)} --hubbub-seed {seed}"
            report.sections.append(("hubbub: to see it again", command))
    return report


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)


# ── fixtures ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def hubbub_seed(request: pytest.FixtureRequest) -> int:
    """The seed of ``--hubbub-seed``."""
    return int(request.config.getoption("--hubbub-seed"))


@pytest.fixture
def hubbub_virtual_time() -> "tuple[str, dict[str, Any]]":
    """The backend for anyio's fixture ``anyio_backend`` on which waiting takes no time.

    @pytest.fixture
    def anyio_backend(hubbub_virtual_time):
        return hubbub_virtual_time
    """
    from trio.testing import MockClock

    return "trio", {"clock": MockClock(autojump_threshold=0)}


@pytest.fixture
def _hubbub_kept(request: pytest.FixtureRequest) -> "Generator[_Kept, None, None]":
    kept = _Kept(request.config.getoption("--hubbub-record"))
    yield kept
    if request.node.stash.get(_FAILED, False):
        kept.write(re.sub(r"[^\w.-]+", "_", request.node.nodeid).strip("_"))


@pytest.fixture
def hubbub_hub(hubbub_seed: int, _hubbub_kept: "_Kept") -> "Hub":
    """A hub over a memory journal, with virtual ports: ``async with hubbub_hub:``"""
    from hubbub.hub.hub import Hub
    from hubbub.hub.memory_journal import MemoryJournal
    from hubbub.hub.virtual import virtual_ports

    journal = MemoryJournal()
    _hubbub_kept.journals.append(journal)
    return Hub(journal=journal, ports=virtual_ports(hubbub_seed))


@pytest.fixture
def hubbub_runtime(hubbub_seed: int, _hubbub_kept: "_Kept") -> "Callable[..., Runtime]":
    """Make a runtime: ``async with hubbub_runtime([agent], models={…}) as rt:``

    It takes what ``Runtime`` takes.  What is not given: a store in memory of its own, virtual
    ports from the seed, and an empty ``environ``, so that no key of a provider is found.
    """
    from hubbub.hub.memory_journal import MemoryJournal
    from hubbub.hub.virtual import virtual_ports
    from hubbub.runtime.runtime import Runtime

    def make(agents: "Iterable[AgentDefinition]" = (), **arguments: Any) -> Runtime:
        if "hub" not in arguments:
            if "store" not in arguments:
                arguments["store"] = journal = MemoryJournal()
                _hubbub_kept.journals.append(journal)
            arguments.setdefault("ports", virtual_ports(hubbub_seed))
        arguments.setdefault("environ", {})
        return Runtime(agents, **arguments)

    return make


@pytest.fixture
def scripted_model() -> "Callable[..., ScriptedModel]":
    """Make a model of its replies: ``scripted_model("Hello.", reply("", call("look")), "Bye.")``

    By name it takes what ``ScriptedModel`` takes.
    """
    from hubbub.runtime.scripted_model import ScriptedModel

    def make(*script: "ScriptItem", **arguments: Any) -> ScriptedModel:
        return ScriptedModel(script, **arguments)

    return make


@pytest.fixture
def simulated_world(hubbub_seed: int, _hubbub_kept: "_Kept") -> "Callable[..., World]":
    """Make a world: ``async with simulated_world(setup, faults=[…]) as world:``

    For async tests on ``hubbub_virtual_time``.  Ids are the seed's; the order of tasks is too with
    ``simulate`` only, which has a loop of its own.
    """
    from hubbub.runtime.simulation.world import World

    def make(setup: "Setup", **arguments: Any) -> World:
        world = World(setup, **{"seed": hubbub_seed, **arguments})
        _hubbub_kept.histories.append(world.history)
        return world

    return make


@pytest.fixture
def simulate(hubbub_seed: int, _hubbub_kept: "_Kept") -> "Callable[..., History]":
    """``hubbub.runtime.simulation.simulate``, with the seed of ``--hubbub-seed`` if none is given.

    For plain tests, without ``async``.
    """
    from hubbub.runtime.simulation.simulate import SimulationFailed
    from hubbub.runtime.simulation.simulate import simulate as run

    def call(
        scenario: "Scenario", setup: "Setup | Callable[[], Setup]", **arguments: Any
    ) -> "History":
        try:
            history = run(scenario, setup, **{"seed": hubbub_seed, **arguments})
        except SimulationFailed as failure:
            _hubbub_kept.histories.append(failure.history)
            raise
        _hubbub_kept.histories.append(history)
        return history

    return call


class _Kept:
    """What a test has done, until it is known whether it failed."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.journals: list[Journal] = []
        self.histories: list[History] = []

    def write(self, name: str) -> None:
        """Write it all into the folder, if one was given."""
        if self._folder is None:
            return
        import anyio

        from hubbub.runtime.simulation.writing import read_journal, write_recordings

        histories = [anyio.run(read_journal, journal) for journal in self.journals]
        # Hypothesis simulates many times in one test, and ends with what it shows.
        for number, history in enumerate((*histories, *self.histories[-1:]), 1):
            write_recordings(history, self._folder, name if number == 1 else f"{name}.{number}")
