"""Whom a process has died of is found among any number of runs, in few deaths and little time."""

from collections.abc import Sequence
from math import ceil, log
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.crashes import Lives
from support.profiles import examples

from hubbub import RunContext, agent
from hubbub.hub import events as e
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import virtual_ports
from hubbub.runtime.supervision.trials import TURNS

pytestmark = [pytest.mark.anyio, pytest.mark.spec("P-10")]

FIRST = 2
"""Deaths that count for everybody."""


def deaths_to_find_one(suspects: int) -> int:
    """How often a process dies of one killer among so many, once they are suspects."""
    return 1 + ceil(log(max(suspects, TURNS), TURNS)) - 1


async def story(work: Sequence[tuple[str, float]]) -> tuple[set[int], int, float]:
    """Runs of which each kills its process after some time, gets on after it, or works for ever;
    who is condemned, after how many deaths, and how long after the second all had been tried."""
    ports = virtual_ports()
    lives = Lives(MemoryJournal(), ports)

    @agent("work", on_restart="resume")
    async def works(input: Any, ctx: RunContext) -> int:
        what, seconds = work[input]
        if what == "stays":
            await anyio.sleep_forever()
        await anyio.sleep(seconds if lives.deaths >= FIRST else 5)
        if what == "kills":
            await lives.die()
        return int(input)

    numbers: dict[str, int] = {}
    async with lives.life(works) as rt:
        for number in range(len(work)):
            numbers[(await rt.start("work", number)).run_id] = number
        await anyio.sleep(2)
        lives.kill()
    async with lives.life(works):
        await anyio.sleep(2)
        lives.kill()
    began = ports.clock.now()
    while await lives.live(works, seconds=2_000):
        assert lives.deaths < 60
        ended = ports.clock.now()
    guilty = set()
    for run_id, number in numbers.items():
        if (failure := await lives.failure(run_id)) is not None:
            assert failure.error_type == "CrashLoop"
            guilty.add(number)
        restores = [x for x in await lives.lane(run_id) if isinstance(x, e.AgentRestore)]
        assert len(restores) >= FIRST
    return guilty, lives.deaths - FIRST, (ended - began) / 1e6


_work = st.lists(
    st.one_of(
        st.tuples(st.just("stays"), st.just(0.0)),
        st.tuples(st.just("gets on"), st.floats(0.1, 30)),
    ),
    min_size=1,
    max_size=60,
)


_killers = st.lists(st.tuples(st.integers(0, 60), st.floats(0.1, 3)), min_size=1, max_size=3)


@settings(max_examples=examples(60), deadline=None)
@given(work=_work, killers=_killers)
async def test_every_killer_is_condemned_and_nobody_else(
    work: list[tuple[str, float]], killers: list[tuple[int, float]]
) -> None:
    work = [*work]
    for place, seconds in killers:
        work.insert(place % (len(work) + 1), ("kills", seconds))
    guilty, deaths, took = await story(work)
    assert guilty == {at for at, (what, _) in enumerate(work) if what == "kills"}
    assert deaths <= len(killers) * (deaths_to_find_one(len(work)) + 1)
    assert took < (deaths + 1) * TURNS * 30


@pytest.mark.long
@pytest.mark.parametrize("place", [0, 1_300, 2_499])
async def test_one_killer_among_thousands_is_found_within_minutes(place: int) -> None:
    work = [("stays", 0.0)] * 2_500
    work[place] = ("kills", 0.5)
    guilty, deaths, took = await story(work)
    assert guilty == {place}
    assert deaths == 3, "a group of 157, one of 10, and it alone"
    assert took < 20 * 60
