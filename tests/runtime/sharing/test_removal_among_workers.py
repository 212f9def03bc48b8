"""What a retention does not keep goes from a store that several workers share, while they talk,
die, are cut off and are followed by others."""

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.profiles import portion
from support.workers import Worker, Workers, workers

from hubbub import AgentDefinition, Event, Retention, Runtime, agent
from hubbub.hub.errors import BadValue, HubbubError
from hubbub.hub.events import HubGap, SessionMessage
from hubbub.runtime.removal.turn import TURN

pytestmark = pytest.mark.anyio

ENDED = Retention(ended=30)


def agents() -> Sequence[AgentDefinition]:
    @agent("job")
    async def job(input: Any, ctx: Any) -> str:
        ctx.spawn("part", input, result="ignore")
        return f"done {input}"

    @agent("part")
    async def part(input: Any, ctx: Any) -> str:
        await anyio.sleep(1)
        return "done"

    return [model_agent(echo_model(0.2), name="desk"), job, part]


class Talk:
    """Who talks to whom, and what was acknowledged."""

    def __init__(self, store: Workers, seed: int) -> None:
        self.store, self.random = store, Random(seed)
        self.said: dict[str, list[str]] = {}
        """By conversation."""
        self.jobs: set[str] = set()

    async def begin(self, count: int = 3) -> None:
        for number in range(count):
            run = await self.somebody().runtime.start("desk", "0", session_key=f"chat-{number}")
            self.said[run.run_id] = []

    def somebody(self) -> Worker:
        return self.random.choice([worker for worker in self.store.all if not worker.is_over])

    async def one(self, number: int) -> None:
        """One thing is asked of one of them, who may die meanwhile."""
        worker = self.somebody()
        with suppress(HubbubError), anyio.move_on_after(20):
            if self.random.random() < 0.5:
                run = await worker.runtime.start("job", number, session_key=f"job-{number}")
                self.jobs.add(run.run_id)
            else:
                to = self.random.choice([*self.said])
                if (await worker.hub.send_to_run(to, str(number))).accepted:
                    self.said[to].append(str(number))

    async def over(self) -> None:
        """All that is to go has gone; the last event of the store is that of what stays."""
        await anyio.sleep(60)
        await self.somebody().hub.send_to_run(next(iter(self.said)), "the last one")
        await anyio.sleep(60)

    async def check(self) -> None:
        """Nothing is lost of what stays, nothing is left of what goes, each tree went once."""
        memory = self.store.place.memory
        gone = [tree.root_run_id for tree in memory.removed]
        assert len(gone) == len({*gone}) and {*gone} >= self.jobs, self.jobs - {*gone}
        assert not {*gone} & {*self.said}
        async with self.store.channel() as hub:
            roots = await hub.journal.inspect(lambda reader: {*reader.roots().values()})
            assert roots == {*self.said}
            for run_id, said in self.said.items():
                events = await hub.read(run_id=run_id, types="session:message")
                heard = [x.content for x in events if isinstance(x, SessionMessage)]
                assert [text for text in heard if text in said] == said


def places(worker: Worker) -> tuple[int, int]:
    return worker.hub.dispatcher.dispatched, worker.hub.journal.tip


@pytest.mark.parametrize("seed", range(3))
async def test_workers_keep_talking_while_trees_go(seed: int) -> None:
    async with workers(agents, 3, retention=ENDED) as store:
        talk = Talk(store, seed)
        await talk.begin()
        heard: list[Event] = []
        async with store.channel() as hub:
            hub.subscribe("*", heard.append)
            for number in range(1, 120):
                await talk.one(number)
                await anyio.sleep(talk.random.random())
            await talk.over()
            told = [(x.run_id, x.lane, x.seq) for x in heard if x.lane]
            for worker in store.all:
                await worker.hub.journal.flush()
                # All of them heard all of it, though most of it has gone by now.
                assert worker.durable[-len(told) :] == told
                assert places(worker) == (store.place.memory.tip,) * 2
        await talk.check()
        made = [worker.runtime._passes for worker in store.all]
        assert sum(passes.removed.trees for passes in made if passes) >= len(talk.jobs)
        assert sum(passes.removed.trees > 0 for passes in made if passes) == 1


@pytest.mark.parametrize("seed", portion(range(20)))
async def test_whoever_has_the_turn_may_die_at_any_commit(seed: int) -> None:
    """And be cut off, and be paused; another one goes on with it."""
    async with workers(agents, 3, retention=ENDED, ttl=4.0) as store:
        talk = Talk(store, seed)
        await talk.begin()
        for number in range(1, 150):
            await talk.one(number)
            await anyio.sleep(talk.random.random() * 2)
            victim = talk.somebody()
            match talk.random.randrange(14):
                case 0:
                    after = talk.random.randrange(1, 6)
                    victim._journal.crash_after(after, talk.random.choice(["before", "after"]))
                case 1:
                    victim.link.cut()
                case 2:
                    victim.kill()
            for worker in store.all:
                if talk.random.random() < 0.3:
                    worker.link.mend()
            while sum(not worker.is_over for worker in store.all) < 3:
                await store.begin()
        for worker in store.all:
            worker.link.mend()
            worker._journal.cancel_crashes()
        await anyio.sleep(60)
        await talk.over()
        await talk.check()
        for worker in store.all:
            if not worker.is_over:
                await worker.hub.journal.flush()
                assert places(worker) == (store.place.memory.tip,) * 2


async def test_a_worker_that_leaves_gives_the_turn_to_the_next_pass_of_another() -> None:
    async with workers(agents, 2, retention=ENDED) as store:
        first, second = store.all

        async def holder() -> str:
            return (await second.hub.journal.notes(TURN)).get(TURN, "")

        await anyio.sleep(1)
        numbers = [worker.hub.share.sharing.number for worker in store.all]  # type: ignore[union-attr]
        assert await holder() == str(numbers[0])
        await first.left()
        assert await holder() == ""
        await anyio.sleep(4)
        assert await holder() == str(numbers[1])


async def test_a_silent_tree_is_ended_by_whoever_has_the_turn_and_goes_after_that() -> None:
    retention = Retention(silent=600, ended=60)
    async with workers(agents, 3, retention=retention) as store:
        runs = [
            await worker.runtime.start("desk", "hello", session_key=f"chat-{number}")
            for number, worker in enumerate(store.all)
        ]
        lively, *quiet = [run.run_id for run in runs]
        for number in range(15):
            await store.all[number % 3].hub.send_to_run(lively, f"number {number}")
            await anyio.sleep(60)
        gone = [tree.root_run_id for tree in store.place.memory.removed]
        assert sorted(gone) == sorted(quiet)


async def _job(store: Workers, worker: Worker) -> str:
    run = await worker.runtime.start("job", 1)
    await run.finished()
    await anyio.sleep(2)
    await worker.runtime.start("desk", "the last event is another one's", session_key="chat")
    await anyio.sleep(2)
    return run.run_id


async def _gaps(events: Any) -> list[str]:
    found: list[Event] = []
    with anyio.move_on_after(5):
        async for event in events:
            found.append(event)  # noqa: PERF401 - Until the time is over.
    return [event.reason for event in found if isinstance(event, HubGap)]


async def test_a_subscriber_that_is_behind_in_another_process_gets_its_gap() -> None:
    async with workers(agents, 1, retention=ENDED) as store, store.channel() as hub:
        async with (
            hub.subscribe("*", lossless=True, buffer=1) as behind,
            hub.subscribe("*", lossless=True) as live,
        ):
            await _job(store, store.all[0])
            await anyio.sleep(60)
            assert store.place.memory.removed
            assert await _gaps(behind) == ["removed"]
            assert await _gaps(live) == []
        async with hub.subscribe("*", after="start") as later:
            assert await _gaps(later) == []  # It has missed nothing.


async def test_nothing_goes_before_a_process_that_is_cut_off_has_heard_it_or_is_given_up() -> None:
    """Then it is told, in its place, that something has gone, and its places hold."""
    retention = Retention(ended=3)
    async with (
        workers(agents, 1, retention=retention, ttl=20.0) as store,
        store.channel() as hub,
        hub.subscribe("*") as events,
    ):
        await anyio.sleep(1)
        link = store.place.links[-1]
        link.cut()
        run_id = await _job(store, store.all[0])
        await anyio.sleep(8)
        assert store.place.memory.removed == []
        await anyio.sleep(20)
        assert [tree.root_run_id for tree in store.place.memory.removed] == [run_id]
        link.mend()
        await hub.journal.flush()
        assert await _gaps(events) == ["removed"]
        assert hub.dispatcher.dispatched == hub.journal.tip == store.place.memory.tip
        # What comes next has the place that it has in the store.
        async with hub.subscribe("*", lossless=True, buffer=1) as behind:
            await store.all[0].runtime.start("desk", "and?", session_key="chat")
            await anyio.sleep(2)
            assert await _gaps(behind) == []


async def test_a_process_that_carries_channels_has_nothing_go() -> None:
    async with workers(agents, 1) as store, store.channel() as hub:
        with pytest.raises(BadValue, match="tell a worker"):
            Runtime(hub=hub, role="channel", retention=ENDED)


async def test_that_tree_ended_last_whose_end_the_store_has_written_last() -> None:
    @agent("nap")
    async def nap(input: Any, ctx: Any) -> str:
        await anyio.sleep(input)
        return "awake"

    cast = [nap, model_agent(echo_model(0.2), name="desk")]
    async with workers(lambda: cast, 2, retention=Retention(keep_last=1)) as store:
        late, other = store.all
        earlier = await late.runtime.start("nap", 10)
        later = await other.runtime.start("nap", 11)
        await anyio.sleep(9.5)
        late.link.cut()  # Its end is on its way for a while.
        await later.result()
        await anyio.sleep(1)
        late.link.mend()
        await earlier.result()
        talk = await other.runtime.start("desk", "The store ends with this.")
        await anyio.sleep(150)
        async with store.channel() as hub:
            roots = await hub.journal.inspect(lambda reader: {*reader.roots().values()})
        assert roots == {earlier.run_id, talk.run_id}
