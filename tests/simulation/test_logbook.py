"""What the library logs in a simulated world: it is the world's, and nobody else's."""

import logging
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from support.simulations import busy_day, desk, one_tool, two_users

from hubbub import AgentDefinition, PromptDefinition, SideConfig, tool
from hubbub.agents.definitions.hooks import Hook
from hubbub.hub.logs import Log, log
from hubbub.runtime.models.scripted import FunctionModel, call, reply
from hubbub.runtime.simulation import (
    Crash,
    ListenerFault,
    ModelFault,
    Open,
    Setup,
    SimulationFailed,
    World,
    run_seeded,
    simulate,
)
from hubbub.runtime.simulation.story.logbook import MAX_LOGGED, Logbook, new_log
from hubbub.runtime.simulation.world import processes

theirs = logging.getLogger("theirs")


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def hooked(fn: Callable[[Any, Any], Any]) -> Setup:
    """An agent of one word, with a hook before each call of its model."""
    prompt = PromptDefinition(
        name="p", prompt="You help.", model=FunctionModel(lambda _: "yes"), hooks=["mine"]
    )
    agent = AgentDefinition(name="ada", side_a=SideConfig(prompt=prompt))
    return Setup.of(agent, hooks=[Hook("mine", "filter_messages", fn)])


def broken(state: Any, value: Any) -> None:
    raise LookupError("no such thing")


def test_what_goes_wrong_in_a_world_is_in_its_history_and_not_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    history = simulate([Open(agent="ada", input="hi")], hooked(broken))
    (logged,) = (each for each in history.logged if each.level == "error")
    (run_id,) = history.runs
    assert (logged.event, logged.error) == ("hook.failed", "LookupError: no such thing")
    assert logged.facts == {"hook": "mine", "point": "filter_messages", "run_id": run_id}
    assert "in broken" in logged.traceback
    line = f"0.000 error hook.failed hook='mine' point='filter_messages' run_id={run_id!r}"
    assert str(logged) == f"{line}: LookupError: no such thing"
    assert caplog.records == []


@pytest.mark.parametrize("fault", [ListenerFault(kind="raise"), ModelFault(kind="error")])
def test_what_faults_raise_is_logged_nowhere(caplog: pytest.LogCaptureFixture, fault: Any) -> None:
    history = simulate(two_users, desk(), faults=[fault])
    assert history.injected
    assert [each for each in history.logged if each.level != "info"] == []
    assert caplog.records == []


def test_messages_of_others_go_where_they_went(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def look() -> str:
        """Look."""
        theirs.warning("in a tool")
        elsewhere = threading.Thread(target=log.warning, args=("thread.other",))
        elsewhere.start()
        elsewhere.join()
        return "seen"

    model = FunctionModel(lambda r: "yes" if len(r.messages) > 1 else reply("", call("look")))
    prompt = PromptDefinition(name="p", prompt="You help.", model=model, tools=[look])
    agent = AgentDefinition(name="ada", side_a=SideConfig(prompt=prompt))
    simulate([Open(agent="ada", input="hi")], Setup.of(agent))
    assert [(x.name, x.message) for x in caplog.records] == [
        ("theirs", "in a tool"), ("hubbub", "thread.other"),
    ]  # fmt: skip


def test_worlds_within_worlds_take_what_is_logged_while_they_are_at_work(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outer, inner = World(one_tool()), World(one_tool())

    async def main() -> None:
        log.warning("before")
        async with outer:
            log.warning("outer.begun")
            async with inner:
                log.warning("inner.begun")
            log.warning("outer.again")
        log.warning("after")

    run_seeded(main)
    said = [[x.event for x in world.history.logged] for world in (outer, inner)]
    assert said == [["outer.begun", "outer.again"], ["inner.begun"]]
    assert [x.message for x in caplog.records] == ["before", "after"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_after_a_world_that_was_interrupted_the_log_is_as_before(
    caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    async def main() -> None:
        async with World(one_tool()):
            raise error

    with pytest.raises(error):
        run_seeded(main)
    log.warning("after")
    assert [x.message for x in caplog.records] == ["after"]


def test_a_world_that_cannot_begin_takes_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with pytest.raises(ExceptionGroup):
            await World(Setup.of(*one_tool().agents, *one_tool().agents)).__aenter__()
        log.warning("after")

    run_seeded(main)
    assert [x.message for x in caplog.records] == ["after"]


def test_a_world_that_finds_no_place_takes_nothing_more(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(processes, "_SHARED_MEMORY", tmp_path / "missing")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))

    async def main() -> None:
        with pytest.raises(FileNotFoundError):
            await World(one_tool(), store="sqlite").__aenter__()
        log.warning("after")

    run_seeded(main)
    assert [x.message for x in caplog.records] == ["after"]


def test_a_world_that_nobody_leaves_ends_with_its_loop(caplog: pytest.LogCaptureFixture) -> None:
    ends: list[Callable[[], None]] = []

    async def main() -> None:
        ends.append(log.divert(lambda level, event, fields: None))
        log.warning("within")

    run_seeded(main)
    log.warning("after")
    assert [x.message for x in caplog.records] == ["after"]
    ends[0]()


def test_diversions_end_in_any_order() -> None:
    mine, said = Log(), list[str]()
    end_one = mine.divert(lambda level, event, fields: said.append(f"one {event}"))
    end_two = mine.divert(lambda level, event, fields: said.append(f"two {event}"))
    mine.info("a")
    end_one()
    mine.info("b")
    end_one()
    end_two()
    mine.info("c")
    assert said == ["two a", "two b"]


@pytest.fixture
def printed() -> Iterator[list[Any]]:
    """What an application's structlog is given."""
    taken: list[Any] = []

    def take(logger: Any, name: str, fields: Any) -> Any:
        taken.append((name, fields["event"]))
        raise structlog.DropEvent

    structlog.configure(processors=[take])
    yield taken
    structlog.reset_defaults()


def test_where_structlog_is_configured_it_is_left_alone_too(printed: list[Any]) -> None:
    log.warning("before")
    history = simulate([Open(agent="ada", input="hi")], hooked(broken))
    assert [x.event for x in history.logged if x.level == "error"] == ["hook.failed"]
    assert printed == [("warning", "before")]


def test_only_the_last_messages_are_kept_and_of_what_they_are_about_its_beginning() -> None:
    logged = new_log()
    book = Logbook(logged, lambda: 2.5)
    for number in range(MAX_LOGGED + 3):
        book("warning", "x.happened", {"number": number, "what": ["x" * 1000]})
    assert len(logged) == MAX_LOGGED
    assert logged[0].facts["number"] == 3
    assert len(str(logged[0])) < 400


def test_between_the_turns_of_a_loop_it_is_as_late_as_it_was() -> None:
    def now() -> float:
        raise RuntimeError("no loop is running")

    logged = new_log()
    Logbook(logged, lambda: 2.5)("info", "x.happened", {})
    Logbook(logged, now)("info", "y.happened", {})
    assert [each.at for each in logged] == [2.5, 2.5]


def test_a_failure_shows_the_last_warnings_and_errors_with_the_names_of_the_trace() -> None:
    def wrong(history: Any) -> list[str]:
        return ["wrong"]

    steps = [Open(agent="ada", input=str(number)) for number in range(15)]
    faults = [ListenerFault(kind="raise")]
    with pytest.raises(SimulationFailed) as failed:
        simulate(steps, hooked(broken), faults=faults, invariants={"wrong": wrong})
    shown = str(failed.value).partition("Logged last:\n")[2].partition("\n\n")[0].splitlines()
    assert len(shown) == 10
    line = "hook.failed hook='mine' point='filter_messages' run_id='15': LookupError: no such thing"
    assert shown[-2].endswith(f"error {line}")
    assert "injected" not in "".join(shown)


@pytest.mark.parametrize("store", ["memory", "late", "sqlite"])
def test_the_same_seed_logs_the_same(store: Any) -> None:
    one, two = (
        simulate(busy_day, desk(), seed=3, faults=[Crash(commit=20)], store=store).logged
        for _ in range(2)
    )
    assert one == two
