"""With ``misfire="all"`` each tick is fired once, whenever processes die and begin."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.agents import echo_model, model_agent
from support.profiles import examples, portion

from hubbub import Cron, Hub, Runtime
from hubbub.hub.events import Event, ScheduleFire, ScheduleSkip
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Store
from hubbub.hub.virtual import EPOCH, LoopClock, virtual_ports
from hubbub.runtime.schedules.backlog import Backlog
from hubbub.runtime.schedules.ticks import Missed
from hubbub.runtime.simulation.injection.dying_store import DyingJournal
from hubbub.runtime.simulation.story.history import Life
from hubbub.runtime.simulation.world.process import Process
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("P-07")]

SECOND = 1_000_000


class Lives:
    """A schedule whose processes are killed and begun at moments, in seconds of virtual time."""

    def __init__(self, make_store: Callable[[], Store], ports: Ports, job: Cron, takes: float):
        self._make_store = make_store
        self._ports = ports
        self._job = job
        self._takes = takes
        self.runtime: Runtime

    async def until(self, second: float) -> None:
        left = EPOCH + round(second * SECOND) - self._ports.clock.now()
        assert left >= 0
        await anyio.sleep(left / SECOND)

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Process]:
        """One process, killed at the end."""
        journal = DyingJournal(self._make_store())
        agent = model_agent(echo_model(self._takes), name="echo")
        hub = Hub(journal=journal, ports=self._ports)
        self.runtime = Runtime([agent], hub=hub, schedules=[self._job])
        process = Process(Life(number=0), self.runtime, journal, lambda: None)
        journal._on_death = process.died
        async with anyio.create_task_group() as group:
            group.start_soon(process.run)
            await process.wait_begun()
            assert process.error is None
            yield process
            process.kill()
            await process.wait_ended()

    async def handled(self) -> tuple[list[int], list[ScheduleSkip]]:
        """The ticks that were fired, and what was passed over."""
        found: list[Event] = list(await self.runtime.hub.read(types=["schedule:*"]))
        fired = [(x.tick - EPOCH) // SECOND for x in found if isinstance(x, ScheduleFire)]
        return fired, [x for x in found if isinstance(x, ScheduleSkip)]


def each_second() -> Cron:
    return Cron("job", "* * * * * *", "echo", "tick", misfire="all")


MOMENTS = (-0.001, 0.0, 0.001, 0.2)
"""Around a tick, in seconds; the run of a tick is at work from 0 to 0.5."""


@pytest.mark.parametrize(("kept", "takes"), [("memory", 0.5), ("sqlite", 0.003)])
@pytest.mark.parametrize(("died", "begun", "off"), portion([*product(MOMENTS, MOMENTS, (1, 5))]))
async def test_whenever_its_process_dies_and_begins_around_a_tick(
    died: float, begun: float, off: int, takes: float, kept: str, tmp_path: Path, ports: Ports
) -> None:
    memory = MemoryJournal()
    stores: dict[str, Callable[[], Store]] = {
        "memory": lambda: memory,
        "sqlite": lambda: sqlite_store(tmp_path, ports=ports),
    }
    lives = Lives(stores[kept], ports, each_second(), takes)
    async with lives.life():
        await lives.until(4 + died)
    await lives.until(4 + off + begun)
    async with lives.life():
        await lives.until(16.9)
        fired, skipped = await lives.handled()
    assert (fired, skipped) == ([*range(1, 17)], [])


@pytest.mark.parametrize("commit", portion(range(1, 20)))
@pytest.mark.parametrize("takes", [0.003, 0.5])
async def test_whichever_commit_is_its_processs_last(
    commit: int, takes: float, ports: Ports
) -> None:
    memory = MemoryJournal()
    lives = Lives(lambda: memory, ports, each_second(), takes)
    async with lives.life() as process:
        await lives.until(2.9)
        process.crash_after(commit, "after", 0)
        await process.wait_ended()
    await anyio.sleep(2.4)
    async with lives.life():
        await anyio.sleep(12)
        fired, skipped = await lives.handled()
    assert not skipped
    assert fired == [*range(1, len(fired) + 1)]


async def test_the_one_tick_that_was_missed_waits_for_the_run_that_was_cut_off(
    ports: Ports,
) -> None:
    memory = MemoryJournal()
    job = Cron("job", "* * * * *", "echo", "tick", misfire="all")
    lives = Lives(lambda: memory, ports, job, takes=30)
    async with lives.life():
        await lives.until(85)
    await lives.until(125)
    async with lives.life():
        await lives.until(290)
        fired, skipped = await lives.handled()
    assert fired == [60, 120, 180, 240]
    assert not skipped


async def test_a_backlog_that_grows_is_passed_over_as_busy(ports: Ports) -> None:
    memory = MemoryJournal()
    lives = Lives(lambda: memory, ports, each_second(), takes=1.6)
    async with lives.life():
        await lives.until(1.5)
    await lives.until(20.5)
    async with lives.life():
        await lives.until(200.5)
        fired, skipped = await lives.handled()
    assert fired[:20] == [*range(1, 21)], "what came while nothing ran"
    assert {x.reason for x in skipped} == {"busy"}
    passed = sum(x.count for x in skipped)
    assert len(fired) + passed == 200
    late = [tick for tick in fired if tick > 190]
    assert late == [*range(late[0], 201, 2)], "in time again"


class SetClock(LoopClock):
    """A clock that somebody sets, or that went on while the machine slept."""

    offset = 0

    def now(self) -> int:
        return super().now() + self.offset


async def test_ticks_that_came_while_the_machine_slept_are_fired_also_if_the_run_was_at_work() -> (
    None
):
    ports = virtual_ports()
    clock = ports.clock = SetClock()
    memory = MemoryJournal()
    job = Cron("job", "* * * * *", "echo", "tick", misfire="all")
    lives = Lives(lambda: memory, ports, job, takes=30)
    async with lives.life():
        await lives.until(85)
        clock.offset = 40 * SECOND  # It is 2:05.
        await lives.until(290)
        fired, skipped = await lives.handled()
    assert fired == [60, 120, 180, 240]
    assert not skipped


@given(
    lives=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=6),
    takes=st.sampled_from([0.0, 0.1, 0.4]),
)
@settings(
    max_examples=examples(30), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
async def test_however_often_it_begins_anew(lives: list[Any], takes: float) -> None:
    memory, ports = MemoryJournal(), virtual_ports()
    made = Lives(lambda: memory, ports, each_second(), takes)
    for up, off in lives:
        async with made.life():
            await anyio.sleep(up / 8)
        await anyio.sleep(off / 8)
    async with made.life():
        await anyio.sleep(60)
        fired, skipped = await made.handled()
    assert not skipped
    assert fired == [*range(fired[0], fired[0] + len(fired))]
    assert fired[-1] >= (ports.clock.now() - EPOCH) // SECOND - 1


# ── what is decided ──────────────────────────────────────────────────────────────────────────


def due(*seconds: float) -> Missed:
    return Missed(tuple([round(x * SECOND) for x in seconds]), len(seconds))


def test_what_is_decided_of_ticks_that_are_due() -> None:
    backlog = Backlog(10 * SECOND)
    now = 12 * SECOND
    assert backlog.judge(due(9, 10, 11), now, "here") == "make up"
    assert backlog.missed(due(9, 10, 11)) == due(9, 10).ticks
    assert backlog.judge(due(12), now, "here") == "wait briefly", "it may be restored"
    backlog.woken(now, now)
    assert backlog.judge(due(12), now, "nowhere") == "fire"
    assert backlog.judge(due(12), now, "here") == "pass over"
    assert backlog.judge(due(12), now, "elsewhere") == "wait"
    backlog.made_up(2)
    assert backlog.judge(due(11, 12), now, "here") == "wait briefly"
    assert backlog.judge(due(10.5, 11, 12), now, "here") == "pass over"
    assert backlog.judge(due(12), now, "here") == "pass over", "what was made up for is past"
    backlog.made_up(2)
    assert backlog.judge(due(10.5), now, "nowhere") == "make up"
    assert backlog.since == now
    backlog.made_up(1)
    backlog.woken(13 * SECOND, 13 * SECOND)
    assert backlog.judge(due(13), 13 * SECOND, "nowhere") == "fire"
    assert backlog.judge(due(14), 14 * SECOND, "here") == "pass over", "it is in time again"


def test_a_clock_that_is_set_back_makes_nothing_missed() -> None:
    backlog = Backlog(10 * SECOND)
    backlog.looked(5 * SECOND)
    assert backlog.missed(due(4, 6)) == due(4).ticks


def test_a_schedule_that_is_woken_late_has_missed_what_came_meanwhile() -> None:
    backlog = Backlog(10 * SECOND)
    backlog.woken(11 * SECOND, 11 * SECOND + 1)
    assert backlog.missed(due(11)) == ()
    backlog.woken(11 * SECOND, 14 * SECOND)
    assert backlog.missed(due(11, 12)) == due(11, 12).ticks
