"""A schedule fires once, however many processes on the store have it."""

from itertools import pairwise

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.profiles import portion
from support.workers import until, workers

from hubbub import Cron, Heartbeat
from hubbub.hub.events import ScheduleFire, ScheduleSkip

pytestmark = pytest.mark.anyio


def echoes():
    return [model_agent(echo_model(0.5), name="echo")]


def minutely(**options):
    return {"schedules": [Cron("minutely", "* * * * *", agent="echo", prompt="tick", **options)]}


def fires(worker):
    return [x for x in worker.heard if isinstance(x, ScheduleFire)]


async def test_each_tick_is_fired_by_one_of_them():
    async with workers(echoes, 3, **minutely()) as store:
        await anyio.sleep(10 * 60 + 5)
        for worker in store.all:
            await worker.hub.journal.flush()
            ticks = [fire.tick for fire in fires(worker)]
            assert len(ticks) == len(set(ticks)) == 10
            assert not any(isinstance(x, ScheduleSkip) for x in worker.heard)


async def test_a_tick_is_not_missed_because_some_have_died():
    async with workers(echoes, 3, **minutely()) as store:
        await anyio.sleep(2 * 60 + 5)
        await store.all[0].die()
        await anyio.sleep(2 * 60)
        await store.all[1].die()
        await anyio.sleep(2 * 60)
        last = store.all[2]
        ticks = [fire.tick for fire in fires(last)]
        assert len(ticks) == len(set(ticks)) == 6
        assert {b - a for a, b in pairwise(ticks)} == {60_000_000}


async def test_what_came_of_a_fire_is_noted_when_its_process_has_died():
    async with workers(echoes, 2, **minutely()) as store:
        await until(lambda: fires(store.all[0]), 100)
        (fire,) = fires(store.all[0])
        owner = store.owner_of(fire.run_id)
        (other,) = [x for x in store.all if x is not owner]
        await owner.die()
        await anyio.sleep(30)
        (status,) = await other.runtime.schedules()
        assert status.last_outcome == "completed"


async def test_heartbeats_beat_once():
    beats = {"schedules": [Heartbeat("echo", ["beat"], interval=60.0)]}
    async with workers(echoes, 2, **beats) as store:
        await anyio.sleep(5 * 60 + 30)
        for worker in store.all:
            await worker.hub.journal.flush()
            assert len(fires(worker)) == 5


# ── misfire="all" ────────────────────────────────────────────────────────────────────────────


def each_second(**options):
    return {"schedules": [Cron("job", "* * * * * *", "echo", "tick", misfire="all", **options)]}


async def ticks_of(worker):
    """The ticks that were fired, and those that were passed over, in seconds."""
    found = await worker.hub.read(types=["schedule:*"])
    fired = [x.tick // 1_000_000 for x in found if isinstance(x, ScheduleFire)]
    return fired, [x for x in found if isinstance(x, ScheduleSkip)]


def assert_each_once(fired):
    assert fired == list(range(fired[0], fired[0] + len(fired)))


@pytest.mark.parametrize("seconds", [0.001, 0.5, 2.5])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("commits", portion(range(1, 13)))
async def test_ticks_that_came_until_a_dead_process_was_missed_are_all_fired(
    commits, moment, seconds
):
    def agents():
        return [model_agent(echo_model(seconds), name="echo")]

    async with workers(agents, 2, **each_second()) as store:
        await anyio.sleep(4.2)
        owner = store.owner_of((await store.all[0].runtime.schedules())[0].run_id)
        (other,) = [x for x in store.all if x is not owner]
        owner.crash_after(commits, moment, 0)
        await until(lambda: owner.is_over, 30)
        died = other.hub.ports.clock.now() // 1_000_000
        await anyio.sleep(40)
        fired, skipped = await ticks_of(other)
        assert len(fired) == len(set(fired))
        gone = [x for x in range(fired[0], fired[-1]) if x not in fired]
        if seconds < 1:
            assert not skipped
            assert_each_once(fired)
        assert [x for x in gone if died < x <= died + 5] == [], "nothing ran then"
        assert len(gone) == sum(x.count for x in skipped if x.tick // 1_000_000 < fired[-1])


async def test_a_tick_while_the_run_is_at_work_in_another_process_is_passed_over():
    def agents():
        return [model_agent(echo_model(2.5), name="echo")]

    async with workers(agents, 1) as store:
        alone = await store.begin(**each_second())
        await anyio.sleep(2)
        run_id = (await alone.runtime.schedules())[0].run_id
        await alone.hub.share.sharing.hand_over([run_id])
        await until(lambda: store.owner_of(run_id) is store.all[0])
        await anyio.sleep(30)
        fired, skipped = await ticks_of(alone)
        assert 8 <= len(fired) <= 12
        assert {x.reason for x in skipped} == {"busy"}
        passed = sum(x.count for x in skipped if x.tick // 1_000_000 < fired[-1])
        assert len(fired) + passed == fired[-1] - fired[0] + 1


@pytest.mark.parametrize("cut", [3.5, 4.999, 5.0005])
async def test_ticks_that_came_while_the_store_was_away_are_all_fired(cut):
    def agents():
        return [model_agent(echo_model(0.003), name="echo")]

    async with workers(agents, 1, **each_second()) as store:
        (worker,) = store.all
        await anyio.sleep(cut - worker.hub.ports.clock.now() / 1_000_000 % 60)
        worker.link.cut()
        await anyio.sleep(4.6)
        worker.link.mend()
        await anyio.sleep(10)
        fired, skipped = await ticks_of(worker)
        assert not skipped
        assert_each_once(fired)
        assert len(fired) >= 16
