"""A schedule fires once, however many processes on the store have it."""

from itertools import pairwise

import anyio
import pytest
from support.agents import echo_model, model_agent
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
