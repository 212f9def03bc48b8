"""Schedules by a clock that is set, in whole worlds: fires, silences, restarts (P-07, P-08).

``ClockJump`` sets the wall clock; seconds that pass are the world's own.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, get_args

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from hubbub import AgentDefinition, Cron, Heartbeat, PromptDefinition, SideConfig
from hubbub.hub import events as e
from hubbub.hub.virtual import EPOCH
from hubbub.runtime.models.scripted import FunctionModel
from hubbub.runtime.schedules.schedules import Misfire, Schedule
from hubbub.runtime.simulation import ClockJump, History, Setup, World, simulate
from hubbub.runtime.simulation.story.history import StoreName

SECOND: Final = 1_000_000
MINUTE: Final = 60.0
HOUR: Final = 3600.0
DAY: Final = 86_400.0
YEAR: Final = 365 * DAY
NAP: Final = 60.0
"""Seconds within which a clock that was set is noticed."""

BEAT: Final = 1800.0


def setup(*schedules: Schedule) -> Setup:
    prompt = PromptDefinition(
        name="keeper", prompt="You keep things.", model=FunctionModel(lambda _: "well", latency=1.0)
    )
    agent = AgentDefinition(name="keeper", side_a=SideConfig(prompt=prompt))
    return Setup(agents=(agent,), schedules=schedules)


def beats() -> Heartbeat:
    return Heartbeat("keeper", ["Look at the mail."], interval=BEAT)


def hourly(misfire: Misfire = "latest") -> Cron:
    return Cron("job", "0 * * * *", "keeper", "Do it.", misfire=misfire)


def heard(history: History) -> list[float]:
    """The seconds at which the agent was asked."""
    return [asked.at for asked in history.requests]


def fired(history: History) -> list[float]:
    """The ticks of the cron that were fired, in hours since the world began."""
    fires = [x for x in history.events if isinstance(x, e.ScheduleFire) and x.schedule == "job"]
    return [(x.tick - EPOCH) / SECOND / HOUR for x in fires]


def once_each(history: History) -> bool:
    ticks = [(x.schedule, x.tick) for x in history.events if isinstance(x, e.ScheduleFire)]
    keys = [
        (x.source, x.key)
        for inbox in history.inbox.values()
        for x in inbox
        if isinstance(x, e.SessionMessage) and x.key
    ]
    return len(ticks) == len(set(ticks)) and len(keys) == len(set(keys))


def waiting(seconds: float) -> Callable[[World], Any]:
    async def scenario(world: World) -> None:
        await world.wait(seconds)

    return scenario


def down(before: float, off: float, after: float) -> Callable[[World], Any]:
    """Nothing runs for a while."""

    async def scenario(world: World) -> None:
        await world.wait(before)
        await world.end()
        await anyio.sleep(off)
        await world.begin()
        await world.wait(after)

    return scenario


def silence(moments: Sequence[float], since: float, until: float) -> float:
    """The longest time in which nothing is heard."""
    heard = [since, *(x for x in moments if since < x < until), until]
    return max(later - before for before, later in pairwise(heard))


@pytest.mark.parametrize("seed", range(8))
def test_a_tick_in_the_moment_in_which_a_world_is_looked_at_leaves_no_stray_task(seed: int) -> None:
    settling = 2.0  # Twice a second, as long as nobody is at work.
    history = simulate(waiting(2 * HOUR - settling), setup(hourly()), seed=seed)
    assert fired(history) == [1.0, 2.0]


# ── the heartbeat ────────────────────────────────────────────────────────────────────────────

SET_BACK: Final = [
    -0.005, -2.0, -BEAT, -3 * BEAT, -(5 * HOUR + 2100), -2 * DAY, -2 * YEAR, -20 * YEAR,
]  # fmt: skip


@pytest.mark.spec("P-08")
@pytest.mark.parametrize("seconds", SET_BACK)
def test_a_heartbeat_is_not_silent_when_the_clock_is_set_back(seconds: float) -> None:
    jump = ClockJump(at=5 * HOUR + 100, seconds=seconds)
    history = simulate(waiting(DAY + 300), setup(beats()), faults=[jump])
    assert once_each(history)
    assert silence(heard(history), 0, DAY) <= 2 * BEAT + NAP
    assert silence(heard(history), jump.at, DAY) <= BEAT + NAP
    gaps = [later - before for before, later in pairwise(heard(history))]
    assert min(gaps) >= BEAT - 1, "and it beats no faster for it"


@pytest.mark.spec("P-08")
@pytest.mark.parametrize("seconds", SET_BACK)
def test_nor_when_that_happens_while_nothing_runs(seconds: float) -> None:
    jump = ClockJump(at=5 * HOUR + 100, seconds=seconds)
    history = simulate(down(5 * HOUR + 50, 100, DAY), setup(beats()), faults=[jump])
    assert once_each(history)
    assert silence(heard(history), 5 * HOUR + 150, DAY) <= BEAT + 1


@pytest.mark.spec("P-08")
def test_restarts_do_not_put_off_the_beat_after_a_set_back() -> None:
    async def restless(world: World) -> None:
        for _ in range(30):
            await world.wait(600)
            await world.restart()

    jump = ClockJump(at=2 * HOUR, seconds=-2 * DAY)
    history = simulate(restless, setup(beats()), faults=[jump])
    assert once_each(history)
    assert silence(heard(history), jump.at, 5 * HOUR) <= BEAT + 600 + NAP


@pytest.mark.spec("P-08")
def test_a_clock_that_leaps_forward_brings_one_beat() -> None:
    jumps = [ClockJump(at=5 * HOUR + 100, seconds=2 * DAY)]
    history = simulate(waiting(8 * HOUR), setup(beats()), faults=jumps)
    extra = [x for x in heard(history) if jumps[0].at <= x <= jumps[0].at + NAP + 1]
    assert len(extra) == 1
    after = [x for x in heard(history) if x >= extra[0] - 1]
    assert [later - before for before, later in pairwise(after)] == pytest.approx(
        [BEAT] * (len(after) - 1), abs=1
    )


@pytest.mark.spec("P-08")
def test_a_quick_heartbeat_makes_up_for_nothing_either() -> None:
    quick = Heartbeat("keeper", ["Look at the mail."], interval=5)
    history = simulate(waiting(300), setup(quick), faults=[ClockJump(at=101, seconds=50)])
    ticks = [x for x in history.events if isinstance(x, e.ScheduleFire | e.ScheduleSkip)]
    assert len(ticks) <= 300 / 5 + 2, "one beat comes early, and no burst"


# ── cron ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-07")
@pytest.mark.parametrize("off", [0.0, 100.0], ids=["running", "down"])
@pytest.mark.parametrize("misfire", get_args(Misfire))
def test_a_cron_is_not_dead_after_a_clock_that_was_years_ahead_is_put_right(
    misfire: Misfire, off: float
) -> None:
    ahead = 3.5 * HOUR
    jumps = [
        ClockJump(at=ahead, seconds=2 * YEAR),
        ClockJump(at=ahead + 2 * MINUTE + 50, seconds=-2 * YEAR),
    ]
    scenario = down(ahead + 2 * MINUTE, off, 3 * HOUR) if off else waiting(7 * HOUR)
    history = simulate(scenario, setup(hourly(misfire)), faults=jumps)
    assert once_each(history)
    right = [hour for hour in fired(history) if hour < 100]
    assert right == [1, 2, 3, 4, 5, 6, 7][: len(right)]
    assert len(right) >= 6
    wrong = [hour for hour in fired(history) if hour > 100]
    assert len(wrong) == {"skip": 0, "latest": 1}.get(misfire, len(wrong))
    assert len(wrong) < 200, "what is to be made up for ends where the clock is put right"


@pytest.mark.spec("P-07")
def test_what_has_fired_is_silent_when_it_comes_again_and_nothing_else() -> None:
    # At 10:30 it is 05:30; what came after 10:00 has not fired yet.
    jump = ClockJump(at=10.5 * HOUR, seconds=-5 * HOUR)
    history = simulate(waiting(18.2 * HOUR), setup(hourly()), faults=[jump])
    assert fired(history) == list(range(1, 14))
    # At 10:30 it is the evening before the schedule was seen: that has its tick.
    jump = ClockJump(at=10.5 * HOUR, seconds=-12 * HOUR)
    history = simulate(waiting(24.2 * HOUR), setup(hourly()), faults=[jump])
    assert fired(history) == [*range(1, 11), -1, 11, 12]


@pytest.mark.spec("P-07")
@pytest.mark.parametrize("misfire", get_args(Misfire))
def test_a_clock_that_was_behind_and_comes_back_misses_what_it_had_not_reached(
    misfire: Misfire,
) -> None:
    behind = 10.5 * HOUR
    jumps = [
        ClockJump(at=behind, seconds=-50 * YEAR),
        ClockJump(at=behind + 4.7 * HOUR, seconds=50 * YEAR),
    ]
    history = simulate(waiting(17.2 * HOUR), setup(hourly(misfire)), faults=jumps)
    assert once_each(history)
    ours = [hour for hour in fired(history) if hour >= 0]
    made_up = {"skip": [], "latest": [15], "all": [11, 12, 13, 14, 15]}[misfire]
    assert ours == [*range(1, 11), *made_up, 16, 17]
    long_ago = [hour for hour in fired(history) if hour < 0]
    assert len(long_ago) == 5, "also then every hour is one"


@pytest.mark.spec("P-07", "P-08")
@pytest.mark.parametrize("back", [-0.001, -1.0, -30.0])
def test_a_set_back_by_little_fires_nothing_more(back: float) -> None:
    # Just after a tick, and just after several were missed.
    leap = 4.1 * HOUR
    jumps = [ClockJump(at=2 * HOUR + 0.5, seconds=back), ClockJump(at=leap, seconds=5 * HOUR)]
    jumps.append(ClockJump(at=leap + 61, seconds=back))
    history = simulate(waiting(6.2 * HOUR), setup(hourly()), faults=jumps)
    assert fired(history) == [1, 2, 3, 4, 9, 10, 11]
    history = simulate(waiting(6.2 * HOUR), setup(beats()), faults=jumps)
    assert len(heard(history)) == 13


# ── anything ─────────────────────────────────────────────────────────────────────────────────

JUMPS: Final = st.lists(
    st.builds(
        ClockJump,
        at=st.floats(0, 20 * HOUR, width=32),
        seconds=st.one_of(
            st.sampled_from([-2 * YEAR, 2 * YEAR, -2 * DAY, -BEAT, -HOUR, HOUR, -0.01]),
            st.floats(-3 * DAY, 3 * DAY, width=32),
        ),
    ),
    max_size=4,
)
MOMENTS: Final = st.lists(st.floats(0, 20 * HOUR, width=32), max_size=3).map(sorted)


@pytest.mark.spec("P-07", "P-08")
@given(JUMPS, MOMENTS, st.sampled_from(["memory", "late"]))
@settings(deadline=None, max_examples=examples(25))
def test_whatever_the_clock_does(
    jumps: list[ClockJump], restarts: list[float], store: StoreName
) -> None:
    until = 26 * HOUR

    async def scenario(world: World) -> None:
        for moment in restarts:
            await world.wait(moment - world.clock.monotonic())
            await world.restart()
        await world.wait(until - world.clock.monotonic())

    history = simulate(scenario, setup(beats()), faults=jumps, store=store)
    assert once_each(history)
    last = max([0.0, *(jump.at for jump in jumps)])
    assert silence(heard(history), last, until) <= BEAT + NAP + 1
    gaps = [later - before for before, later in pairwise(heard(history))]
    forward = sum(jump.seconds > 0 for jump in jumps)
    assert sum(gap < BEAT - 1 for gap in gaps) <= forward, "one for a leap, and no burst"
    history = simulate(scenario, setup(hourly()), faults=jumps, store=store)
    assert once_each(history)
    assert len(heard(history)) <= until / HOUR + len(jumps) + 1
