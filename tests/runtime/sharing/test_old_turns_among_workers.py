"""Old turns go from a store that several workers share, while they talk, die, are cut off and are
followed by others."""

from collections.abc import Sequence
from contextlib import suppress
from random import Random

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.profiles import portion
from support.workers import Worker, Workers, workers

from hubbub import AgentDefinition, Event, Message, Retention
from hubbub.agents.state.bases import base_behind_gap
from hubbub.hub.errors import HubbubError
from hubbub.hub.events import HubGap, SessionMessage
from hubbub.hub.store.reader import StoreReader, events_in
from hubbub.runtime.removal import old_turns

pytestmark = pytest.mark.anyio

KEPT = Retention(keep_turns=2, ended=30)
"""A pass is made every three seconds."""


def agents() -> Sequence[AgentDefinition]:
    return [model_agent(echo_model(0.1), name="desk")]


def left_of(reader: StoreReader, run_id: str) -> list[Event]:
    return [x.event for x in events_in(reader, run_id) if x.event.lane != "hub"]


class Talk:
    """Who says what to whom, each thing with a key, and what was acknowledged."""

    def __init__(self, store: Workers, seed: int) -> None:
        self.store, self.random = store, Random(seed)
        self.said: dict[str, list[str]] = {}

    def somebody(self) -> Worker:
        return self.random.choice([worker for worker in self.store.all if not worker.is_over])

    async def begin(self) -> None:
        for number in range(2):
            run = await self.somebody().runtime.start("desk", "0", session_key=f"chat-{number}")
            self.said[run.run_id] = []

    async def one(self, number: int) -> None:
        to = self.random.choice([*self.said])
        with suppress(HubbubError), anyio.move_on_after(20):
            message = Message(str(number), key=f"k{number}")
            if (await self.somebody().hub.send_to_run(to, message)).accepted:
                self.said[to].append(str(number))

    async def check(self) -> None:
        """Of each conversation the beginning is there, and the end; and every key is known."""
        await anyio.sleep(30)
        cuts = [tree for tree in self.store.place.memory.removed if tree.is_cut]
        assert {tree.root_run_id for tree in cuts} == {*self.said}
        async with self.store.channel() as hub:
            for run_id, said in self.said.items():
                left = await hub.journal.inspect(lambda reader, of=run_id: left_of(reader, of))
                base = base_behind_gap(left)
                assert left[0].seq == left[1].seq == 1 and base > 2
                own = [x.seq for x in left if x.lane == "own" and x.seq >= base]
                assert own == [*range(base, own[-1] + 1)]
                texts = [x.content for x in left if isinstance(x, SessionMessage)]
                heard = [text for text in texts if text in said]  # Of others nobody was told.
                assert heard and said[-len(heard) :] == heard
                for number in said:
                    again = await hub.send_to_run(run_id, Message(number, key=f"k{number}"))
                    assert again.duplicate
                    other = await hub.send_to_run(run_id, Message("else", key=f"k{number}"))
                    assert other.reason == "key reused"


@pytest.mark.parametrize("seed", range(2))
async def test_workers_keep_talking_while_old_turns_go(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_turns, "STEP", 20)
    async with workers(agents, 3, retention=KEPT) as store:
        talk = Talk(store, seed)
        await talk.begin()
        heard: list[Event] = []
        async with store.channel() as hub:
            hub.subscribe("*", heard.append)
            slow = hub.subscribe("*", lossless=True, buffer=1)
            for number in range(1, 100):
                await talk.one(number)
                await anyio.sleep(talk.random.random())
            await talk.check()
            for worker in store.all:
                await worker.hub.journal.flush()
            # All of them heard all of it, though most of it has gone by now.
            told = [(x.run_id, x.lane, x.seq) for x in heard if x.lane]
            assert not any(isinstance(x, HubGap) for x in heard)
            for worker in store.all:
                assert worker.durable[-len(told) :] == told
            async with slow:
                found = []
                with anyio.move_on_after(5):
                    async for event in slow:
                        found.append(event)  # noqa: PERF401 - Until the time is over.
            assert [x.reason for x in found if isinstance(x, HubGap)] == ["removed"]
        made = [worker.runtime._passes for worker in store.all]
        assert sum(passes.removed.cuts > 0 for passes in made if passes) == 1


@pytest.mark.parametrize("seed", portion(range(10)))
async def test_whoever_cuts_may_die_at_any_commit(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And be cut off; another one goes on with it, and with the conversations."""
    monkeypatch.setattr(old_turns, "STEP", 20)
    async with workers(agents, 3, retention=KEPT, ttl=4.0) as store:
        talk = Talk(store, seed)
        await talk.begin()
        for number in range(1, 100):
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
        await talk.check()
