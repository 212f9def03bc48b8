"""The pytest plugin: fixtures for tests of agents, and a seed that a failing test can be run with.

    hubbub_hub             a hub over a memory journal, to be entered
    hubbub_runtime         makes a runtime: ``async with hubbub_runtime([agent]) as rt``
    hubbub_virtual_time    what ``anyio_backend`` should return: Trio, where waiting takes no time
    hubbub_seed            the seed of ``--hubbub-seed``
    scripted_model         makes a ``ScriptedModel`` of its replies
    simulated_world        makes a ``World``, in a test on ``hubbub_virtual_time``
    simulate               ``simulate``, in a plain test

    --hubbub-seed N        what ids, and in a simulation the order of tasks, are drawn from
    --hubbub-record DIR    writes what a failing test's runs did there, as ``hubbub export`` does

Plain tests simulate; with ``@given`` too, for ``simulate``, ``scripted_model`` and
``hubbub_seed`` are there for the whole session:

    from hypothesis import given
    from hypothesis import strategies as st
    from hubbub import AgentDefinition, PromptDefinition, SideConfig
    from hubbub.runtime.simulation import Crash, Open, Setup

    def helper(model):
        prompt = PromptDefinition(name="help", prompt="You help.", model=model)
        return AgentDefinition(name="helper", side_a=SideConfig(prompt=prompt))

    def test_it_answers(simulate, scripted_model):
        setup = Setup.of(helper(scripted_model("Hello.")))
        history = simulate([Open(agent="helper", input="Hi")], setup)
        assert history.said(history.roots[0]) == ["Hello."]

    @given(commit=st.integers(1, 20))
    def test_it_answers_whenever_its_process_crashes(simulate, scripted_model, commit):
        setup = Setup.of(helper(scripted_model("Hello.", repeat=True)))
        steps = [Open(agent="helper", input="Hi")]
        history = simulate(steps, setup, faults=[Crash(commit=commit)])
        for run_id in history.roots:
            assert history.said(run_id) == ["Hello."]

Async tests are anyio's (``@pytest.mark.anyio``).  They have a hub, a runtime, or a world that they
enter themselves, in virtual time if ``anyio_backend`` says so:

    import pytest
    from hubbub.hub.events import AgentStatus

    @pytest.fixture
    def anyio_backend(hubbub_virtual_time):
        return hubbub_virtual_time

    @pytest.mark.anyio
    async def test_a_hub_carries_what_is_emitted(hubbub_hub):
        heard = []
        async with hubbub_hub as hub:
            hub.subscribe("agent:*", heard.append)
            hub.emit(AgentStatus(status="busy"))
        assert [event.status for event in heard] == ["busy"]

    @pytest.mark.anyio
    async def test_a_runtime(hubbub_runtime, scripted_model):
        async with hubbub_runtime([helper(scripted_model("Hello."))]) as rt:
            assert (await rt.run("helper", "Hi")).output == "Hello."

    @pytest.mark.anyio
    async def test_a_week_later(simulated_world, scripted_model, hubbub_seed):
        async with simulated_world(Setup.of(helper(scripted_model("One.", "Two.")))) as world:
            run_id = await world.open("helper", "Hi", user="ann")
            await world.wait(7 * 86_400)
            await world.say(run_id, "again", user="ann")
            await world.settle()
        assert world.history.said(run_id) == ["One.", "Two."]
        assert world.history.seed == hubbub_seed

Nothing of hubbub's is imported but in a fixture that a test asks for.  Tests that ask for none
are left alone.
"""

import os
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from hubbub.agents.definitions.agent import AgentDefinition
    from hubbub.hub.hub import Hub
    from hubbub.hub.store.store import Store
    from hubbub.runtime.models.scripted import ScriptedModel, ScriptItem
    from hubbub.runtime.runtime import Runtime
    from hubbub.runtime.simulation.simulate import Scenario
    from hubbub.runtime.simulation.story.history import History
    from hubbub.runtime.simulation.story.setup import Setup
    from hubbub.runtime.simulation.world.world import World

__all__ = [
    "hubbub_hub", "hubbub_runtime", "hubbub_seed", "hubbub_virtual_time", "pytest_addoption",
    "pytest_report_header", "pytest_runtest_makereport", "pytest_runtest_setup",
    "pytest_runtest_teardown", "scripted_model", "simulate", "simulated_world",
]  # fmt: skip

SEEDED: Final = {"hubbub_seed", "hubbub_hub", "hubbub_runtime", "simulated_world", "simulate"}
"""Tests with one of these fixtures depend on the seed."""

MAX_NAME: Final = 120
"""Bytes of a recording's name that say which test it is of."""

HYPOTHESIS: Final = """\
Hypothesis keeps the example that it shows, and tries it first; elsewhere it needs the example
itself: @example(…), or the @reproduce_failure that it prints with print_blob=True."""


# ── options and reports ──────────────────────────────────────────────────────────────────────


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hubbub", "agents in simulated worlds")
    group.addoption(
        "--hubbub-seed", type=_seed, default=0, metavar="N",
        help="The seed of simulated worlds and of ids (default: 0).",
    )  # fmt: skip
    group.addoption(
        "--hubbub-record", type=Path, default=None, metavar="DIR",
        help="Write what the runs of a failing test did into DIR, for hubbub import.",
    )  # fmt: skip


def _seed(text: str) -> int:
    if text.isdecimal() and int(text) < 2**64:
        return int(text)
    raise ArgumentTypeError(f"expected a whole number from 0 to 2**64 - 1, not {text!r}")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a folder for recordings that none can be made in, before the tests run."""
    if (given := config.getoption("--hubbub-record")) is None:
        return
    folder = config.invocation_params.dir / given
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        raise pytest.UsageError(f"--hubbub-record: expected a folder, and {there} is a file")


def pytest_report_header(config: pytest.Config) -> str:
    return f"hubbub: --hubbub-seed {config.getoption('--hubbub-seed')}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin to keep what the test does: fixtures of the whole session serve one test at a time."""
    item.config.stash[_KEPT] = _Kept(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say with a failing test how to run it again."""
    report = yield
    if report.when == "call" and report.failed:
        if (kept := item.config.stash.get(_KEPT, None)) is not None:
            kept.is_wanted = True
        if SEEDED & set(getattr(item, "fixturenames", ())):
            report.sections.append(("hubbub: to see it again", _again(item)))
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Write what a failing test did, once all that it has entered is left."""
    try:
        yield
    finally:
        kept = item.config.stash.get(_KEPT, None)
        if kept is not None:  # A test may be skipped before it is set up here.
            del item.config.stash[_KEPT]
    if kept is not None:
        kept.write()


def _again(item: pytest.Item) -> str:
    """What to type, in the folder that pytest was called in."""
    import shlex

    path, *names = item.nodeid.split("::")
    file = os.path.relpath(item.config.rootpath / path, item.config.invocation_params.dir)
    node = shlex.quote("::".join([Path(file).as_posix(), *names]))
    command = f"pytest {node} --hubbub-seed {item.config.getoption('--hubbub-seed')}"
    is_drawn = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return f"{command}\n{HYPOTHESIS}" if is_drawn else command


# ── fixtures ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def hubbub_seed(pytestconfig: pytest.Config) -> int:
    """The seed of ``--hubbub-seed``."""
    return int(pytestconfig.getoption("--hubbub-seed"))


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
def hubbub_hub(hubbub_seed: int, pytestconfig: pytest.Config) -> "Hub":
    """A hub over a memory journal, with virtual ports: ``async with hubbub_hub:``"""
    from hubbub.hub.hub import Hub
    from hubbub.hub.store.memory import MemoryJournal
    from hubbub.hub.virtual import virtual_ports

    journal = MemoryJournal()
    _keep(pytestconfig, journal=journal)
    return Hub(journal=journal, ports=virtual_ports(hubbub_seed))


@pytest.fixture(scope="session")
def hubbub_runtime(hubbub_seed: int, pytestconfig: pytest.Config) -> "Callable[..., Runtime]":
    """Make a runtime: ``async with hubbub_runtime([agent], models={…}) as rt:``

    It takes what ``Runtime`` takes.  What is not given: a store in memory of its own, virtual
    ports from the seed, and an empty ``environ``, so that no key of a provider is found.
    """
    from hubbub.hub.store.memory import MemoryJournal
    from hubbub.hub.virtual import virtual_ports
    from hubbub.runtime.runtime import Runtime

    def make(agents: "Iterable[AgentDefinition]" = (), **arguments: Any) -> Runtime:
        if "hub" not in arguments:
            if "store" not in arguments:
                arguments["store"] = journal = MemoryJournal()
                _keep(pytestconfig, journal=journal)
            arguments.setdefault("ports", virtual_ports(hubbub_seed))
        arguments.setdefault("environ", {})
        return Runtime(agents, **arguments)

    return make


@pytest.fixture(scope="session")
def scripted_model() -> "Callable[..., ScriptedModel]":
    """Make a model of its replies: ``scripted_model("Hello.", reply("", call("look")), "Bye.")``

    By name it takes what ``ScriptedModel`` takes.
    """
    from hubbub.runtime.models.scripted import ScriptedModel

    def make(*script: "ScriptItem", **arguments: Any) -> ScriptedModel:
        return ScriptedModel(script, **arguments)

    return make


@pytest.fixture(scope="session")
def simulated_world(hubbub_seed: int, pytestconfig: pytest.Config) -> "Callable[..., World]":
    """Make a world: ``async with simulated_world(setup, faults=[…]) as world:``

    For async tests on ``hubbub_virtual_time``.  Ids are the seed's; the order of tasks is too with
    ``simulate`` only, which has a loop of its own.
    """
    from hubbub.runtime.simulation.world.world import World

    def make(setup: "Setup", **arguments: Any) -> World:
        world = World(setup, **{"seed": hubbub_seed, **arguments})
        _keep(pytestconfig, history=world.history)
        return world

    return make


@pytest.fixture(scope="session")
def simulate(hubbub_seed: int, pytestconfig: pytest.Config) -> "Callable[..., History]":
    """``hubbub.runtime.simulation.simulate``, with the seed of ``--hubbub-seed`` if none is given.

    For plain tests, without ``async``.
    """
    from hubbub.runtime.simulation.simulate import SimulationFailed
    from hubbub.runtime.simulation.simulate import simulate as run

    def call(
        scenario: "Scenario", setup: "Setup | Callable[[], Setup]", **arguments: Any
    ) -> "History":
        __tracebackhide__ = True
        try:
            history = run(scenario, setup, **{"seed": hubbub_seed, **arguments})
        except SimulationFailed as failure:
            _keep(pytestconfig, history=failure.history)
            raise
        _keep(pytestconfig, history=history)
        return history

    return call


class _Kept:
    """What a test has done, until it is known whether it failed.

    Only the last world is kept, and with Hypothesis only the last store: it has many in one test,
    and ends with what it shows.
    """

    def __init__(self, item: pytest.Item) -> None:
        self.is_wanted = False
        self._item = item
        self._has_examples = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        self._journals: list[Store] = []
        self._history: History | None = None

    def keep(self, journal: "Store | None", history: "History | None") -> None:
        if journal is not None:
            if self._has_examples:
                self._journals.clear()
            self._journals.append(journal)
        self._history = history or self._history

    def write(self) -> None:
        """Write it all into the folder of ``--hubbub-record``, if the test has failed."""
        if not self.is_wanted or not (self._journals or self._history):
            return
        from concurrent.futures import ThreadPoolExecutor

        import anyio

        from hubbub.runtime.simulation.playback.writing import read_journal, write_recordings

        config = self._item.config
        folder = config.invocation_params.dir / config.getoption("--hubbub-record")
        # In a thread of their own: the tests' loop may continue after this one.
        with ThreadPoolExecutor(1) as thread:
            histories = [
                thread.submit(anyio.run, read_journal, journal).result()
                for journal in self._journals
            ]
        if self._history is not None:
            histories.append(self._history)
        name = _file_name(self._item.nodeid)
        for number, history in enumerate(histories, 1):
            write_recordings(history, folder, name if number == 1 else f"{name}.{number}")


_KEPT: Final = pytest.StashKey[_Kept]()


def _keep(
    config: pytest.Config, journal: "Store | None" = None, history: "History | None" = None
) -> None:
    """Keep what the test at work does, if it may be written."""
    kept = config.stash.get(_KEPT, None)
    if kept is not None and config.getoption("--hubbub-record") is not None:
        kept.keep(journal, history)


def _file_name(nodeid: str) -> str:
    """A name that says which test it is, and is that of no other one."""
    from hashlib import sha256

    readable = re.sub(r"[^\w.-]+", "_", nodeid).encode()[-MAX_NAME:].decode(errors="ignore")
    return f"{readable.strip('_')}-{sha256(nodeid.encode(errors='replace')).hexdigest()[:8]}"
