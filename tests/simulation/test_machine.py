"""A state machine over a live world: what is correct stays so, what is planted is found."""

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any, ClassVar

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from msgspec import structs
from support.bugs import keys_hold, plant_early_acknowledgement, plant_no_dedupe, support_desk

from hubbub.hub import events as e
from hubbub.hub.errors import CallerError
from hubbub.runtime.simulation.invariants.all import INVARIANTS
from hubbub.runtime.simulation.loop.frozen_loop import FrozenLoop
from hubbub.runtime.simulation.loop.seeded import NeverRests, NothingHappens, run_seeded
from hubbub.runtime.simulation.machine import SimMachine, async_rule
from hubbub.runtime.simulation.simulate import SimulationFailed
from hubbub.runtime.simulation.story.history import History
from hubbub.runtime.simulation.strategies.worlds import texts
from hubbub.runtime.simulation.world.world import World

DESK = support_desk()


def play(machine: type[SimMachine], examples: int, steps: int = 20) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, database=None,
            derandomize=True, suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink], report_multiple_bugs=False,
        ),
    )  # fmt: skip


def failure(machine: type[SimMachine], examples: int, steps: int = 20) -> tuple[Any, list[str]]:
    """What a machine that must fail raises, and the rules it was shrunk to."""
    shown = io.StringIO()
    with redirect_stdout(shown), pytest.raises(AssertionError) as failed:
        play(machine, examples, steps)
    story = "\n".join(getattr(failed.value, "__notes__", [])) + shown.getvalue()
    lines = [line for line in story.splitlines() if "state." in line]
    # Shown as the last thing that was done, if at all: not after each rule.
    assert not any("invariants_hold" in line for line in lines[:-2])
    rules = [x for x in lines if "invariants_hold" not in x and "teardown" not in x]
    return failed.value, rules


class Desk(SimMachine):
    """The support desk, and users who say things twice."""

    setup = DESK
    invariants_of: ClassVar = {**INVARIANTS, "keys_hold": keys_hold}

    @async_rule(run=SimMachine.runs, text=texts())
    async def says_twice(self, run: str, text: str) -> None:
        for _ in range(2):
            await self.world.say(run, text, user="ann", key="once")


class LateDesk(Desk):
    store = "late"


@pytest.mark.parametrize("machine", [Desk, LateDesk])
def test_the_support_desk_is_correct(machine):
    play(machine, 40, 25)


@pytest.mark.long
def test_acknowledging_too_early_is_found_and_shrunk(monkeypatch):
    plant_early_acknowledgement(monkeypatch)
    failed, rules = failure(Desk, 150, 10)
    assert isinstance(failed, SimulationFailed)
    assert "seed=0" in failed.replay
    assert len(rules) <= 5
    assert "begin(seed=0" in rules[0]


@pytest.mark.long
def test_missing_dedupe_is_found_and_shrunk(monkeypatch):
    plant_no_dedupe(monkeypatch)
    failed, rules = failure(Desk, 40, 8)
    assert failed.broken == "keys_hold"
    assert [line.partition("state.")[2].partition("(")[0] for line in rules] == [
        "begin", "open", "says_twice",
    ]  # fmt: skip


# ── what subclasses can do ───────────────────────────────────────────────────────────────────


def test_a_setup_may_be_made_anew_for_each_world_and_something_come_first():
    worlds: list[World] = []
    ledgers: list[list[int]] = []

    class Own(SimMachine):
        users = ("eva",)
        max_faults = 0

        def setup(self) -> Any:
            ledgers.append([])
            return support_desk(ledgers[-1])

        async def begun(self) -> None:
            worlds.append(self.world)
            self.first = await self.world.open("desk", "hello", user="eva")

        @precondition(lambda self: self.world.clock.monotonic() > 1)
        @async_rule(target=SimMachine.runs)
        async def meets(self) -> str:
            return self.first

        @rule()
        def looks(self) -> None:
            history = self.look()
            assert history is None or self.first in history.runs

    play(Own, 10)
    assert len(worlds) == len(ledgers) >= 10
    assert sum(world.history.is_settled for world in worlds) >= 10
    assert {sent.user for world in worlds for sent in world.history.sent if sent.text} == {"eva"}


def test_a_rule_may_have_the_process_die_so_many_commits_from_now():
    worlds: list[World] = []

    class Dying(SimMachine):
        setup = DESK
        max_faults = 0

        async def begun(self) -> None:
            worlds.append(self.world)

        @async_rule(commits=st.integers(1, 2))
        async def dies_soon(self, commits: int) -> None:
            crashes = self.world.crashes
            await self.world.die_after(commits)
            run = await self.world.open("desk", "hello")
            await self.world.wait(1)
            assert self.world.crashes == crashes + 1
            told.append(run)

    told: list[str] = []
    play(Dying, 10)
    assert told
    assert sum(world.crashes for world in worlds) == len(told)


def test_what_is_broken_between_rules_is_shown_once_and_where_it_is_broken():
    def quiet(history: History) -> Iterator[str]:
        yield from (f"run {x.run_id} was told of it" for x in history.sent if x.verb == "say")

    class Desk(SimMachine):
        setup = DESK
        max_faults = 0
        invariants_of: ClassVar = {"quiet": quiet}

        @rule(run=SimMachine.runs)
        def says(self, run: str) -> None:
            self.do(lambda world: world.say(run, "hello"))
            self.do(lambda world: world.settle())

    failed, rules = failure(Desk, 100)
    assert failed.broken == "quiet"
    assert len(rules) == 3


def test_the_budgets_of_a_machine_are_those_of_its_setup():
    class Deep(SimMachine):
        setup = structs.replace(DESK, options={"max_depth": 3})

    machine = Deep()
    with pytest.raises(SimulationFailed, match="the limit is 3"):
        machine.check_history(History(events=[e.SessionOpen(
            run_id="x", parent_run_id="y", root_run_id="y", depth=4, seq=1
        )]))  # fmt: skip
    machine.teardown()


def test_a_machine_whose_world_is_busy_for_ever_says_so():
    async def spins() -> None:
        while True:
            await anyio.lowlevel.checkpoint()

    loop = FrozenLoop(Clocked, max_rounds=500)
    with pytest.raises(NeverRests, match=r"500 rounds .* in .*spins"):
        loop.do(lambda _: spins())
    assert loop.is_closed
    assert run_seeded(_nothing) == "nothing"


def test_a_rule_that_fails_leaves_no_loop_behind():
    class Failing(SimMachine):
        setup = DESK

        @async_rule()
        async def fails(self) -> None:
            await self.world.wait(1)
            assert self.world.clock.monotonic() < 1, "time has passed"

    failed, rules = failure(Failing, 100, 8)
    assert "time has passed" in str(failed)
    assert any("fails" in line for line in rules)
    assert run_seeded(_nothing) == "nothing"


def test_the_world_is_not_there_before_it_has_begun():
    class Own(SimMachine):
        setup = DESK

    machine = Own()
    with pytest.raises(CallerError):
        machine.do(lambda world: world.wait(1))
    with pytest.raises(CallerError):
        _ = machine.world
    machine.teardown()


# ── the loop beneath ─────────────────────────────────────────────────────────────────────────


async def _nothing() -> str:
    return "nothing"


class Clocked:
    """Counts seconds in the background."""

    def __init__(self) -> None:
        self.seconds = 0
        self.is_left = False

    async def __aenter__(self) -> "Clocked":
        self._group = await anyio.create_task_group().__aenter__()
        self._group.start_soon(self._count)
        return self

    async def __aexit__(self, *exc: Any) -> None:
        self.is_left = True
        self._group.cancel_scope.cancel()
        await self._group.__aexit__(*exc)

    async def _count(self) -> None:
        while True:
            await anyio.sleep(1)
            self.seconds += 1
            if self.seconds == 100:
                raise ValueError("a hundred")


def test_time_passes_in_a_frozen_loop_only_while_something_is_done():
    loop = FrozenLoop(Clocked)
    assert loop.do(_seconds) == 0
    loop.do(lambda _: anyio.sleep(10.5))
    assert loop.do(_seconds) == 10
    with pytest.raises(KeyError):
        loop.do(_raises)
    assert loop.do(_seconds) == 10
    loop.close()
    loop.close()
    assert loop.is_closed
    with pytest.raises(CallerError):
        loop.do(_seconds)
    assert run_seeded(_nothing) == "nothing"


def test_a_frozen_loop_whose_task_breaks_raises_that_and_is_closed():
    loop = FrozenLoop(Clocked)
    with pytest.raises(ValueError, match="a hundred"):
        loop.do(lambda _: anyio.sleep(1000))
    assert loop.is_closed
    assert run_seeded(_nothing) == "nothing"


def test_a_frozen_loop_in_which_nothing_happens_any_more_says_so():
    class Still(Clocked):
        async def _count(self) -> None:
            return

    loop = FrozenLoop(Still)
    with pytest.raises(NothingHappens):
        loop.do(lambda _: anyio.sleep_forever())
    assert loop.is_closed


async def _seconds(clocked: Clocked) -> int:
    return clocked.seconds


async def _raises(_: Clocked) -> None:
    raise KeyError("no")


def test_its_failures_are_not_explained_line_by_line_unless_one_says_so() -> None:
    class Machine(SimMachine):
        setup = DESK

    assert Phase.explain not in Machine.TestCase.settings.phases
    assert Phase.target in Machine.TestCase.settings.phases
    assert Machine.TestCase.settings.deadline is None
