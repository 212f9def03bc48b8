"""A run that kills one worker after another is condemned, on a store that they share, and no other
run is."""

from typing import Any

import anyio
import pytest
from support.workers import Worker, Workers, workers

from hubbub import RunContext, agent
from hubbub.hub import events as e

pytestmark = [pytest.mark.anyio, pytest.mark.spec("P-10", "X-03")]

WORKERS = 3
MOST = 30


class Story:
    """Workers that die of runs, and are followed by others."""

    def __init__(self) -> None:
        self.store: Workers | None = None
        self.died = anyio.Event()
        self.deaths = 0
        self.is_on = True

    def agents(self) -> list[Any]:
        @agent("work", on_restart="resume")
        async def works(input: Any, ctx: RunContext) -> None:
            if input == "kills":
                await anyio.sleep(0.5)
                self.kill(ctx.run_id)
            await anyio.sleep_forever()

        return [works]

    def kill(self, run_id: str) -> None:
        assert self.store is not None
        owner = self.store.owner_of(run_id)
        if owner is not None and self.is_on:
            self.deaths += 1
            owner.kill()
            self.died.set()


async def failures(store: Workers, run_ids: list[str]) -> dict[str, str]:
    found = {}
    async with store.channel() as hub:
        for run_id in run_ids:
            loaded = await hub.journal.load(run_id)
            assert loaded is not None
            for event in loaded.events:
                if isinstance(event, e.AgentFailed):
                    found[run_id] = event.error_type
    return found


async def live_on(story: Story, store: Workers, run_ids: list[str]) -> dict[str, str]:
    """Until nobody has died for long; who has failed then."""
    while story.deaths < MOST:
        with anyio.move_on_after(600):
            await story.died.wait()
        if not story.died.is_set():
            return await failures(store, run_ids)
        story.died = anyio.Event()
        await store.begin()
    raise AssertionError("workers die without end")


@pytest.mark.parametrize("suspects", [1, 6, 40])
@pytest.mark.parametrize("killers", [1, 2])
async def test_who_kills_one_worker_after_another_is_condemned_alone(
    suspects: int, killers: int
) -> None:
    story = Story()
    async with workers(story.agents, WORKERS, grace=0) as store:
        story.store = store
        first: Worker = store.all[0]
        runs = {}
        for number in range(suspects + killers):
            what = "kills" if number % (suspects // killers + 1) == 0 else "stays"
            runs[(await first.runtime.start("work", what)).run_id] = what
        failed = await live_on(story, store, list(runs))
        assert failed == {run: "CrashLoop" for run, what in runs.items() if what == "kills"}
        assert story.deaths <= 8 * killers
        story.is_on = False


async def test_who_is_tried_is_noted_no_longer_than_he_is() -> None:
    story = Story()
    async with workers(story.agents, WORKERS, grace=0) as store:
        story.store = store
        run_id = (await store.all[0].runtime.start("work", "stays")).run_id
        for _ in range(2):
            await anyio.sleep(1)
            story.kill(run_id)
            await store.begin()
            await anyio.sleep(60)
        async with store.channel() as hub:
            assert [
                key for key, text in (await hub.journal.notes("runs:tried")).items() if text
            ] == []
        for _ in range(3):  # Whoever dies now dies of something else.
            story.kill(run_id)
            await store.begin()
            await anyio.sleep(60)
        assert await failures(store, [run_id]) == {}
        story.is_on = False
