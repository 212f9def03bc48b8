"""Which agents there are, as processes know that have none themselves."""

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.workers import workers

from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.reader import ProcessRow
from hubbub.runtime.finding.published import publish, published_agents
from hubbub.runtime.inspection.published import PublishedAgent

pytestmark = pytest.mark.anyio


def echoes(*names):
    return [model_agent(echo_model(0.1), name=name) for name in names]


async def test_a_channel_knows_the_agents_of_all_workers_and_says_of_none_that_it_has_them():
    async with workers(lambda: echoes("one", "both"), 1) as store:
        await store.begin(agents=echoes("two", "both"))
        async with store.channel_runtime() as channel:
            assert set(await channel.hub.ask("runtime", "agents")) == {"one", "two", "both"}
            assert (await channel.hub.ask("runtime", "agent two"))["name"] == "two"
            assert await channel.hub.ask("runtime", "agent three") is None


async def names_of(runtime):
    return sorted(await runtime.hub.ask("runtime", "agents"))


async def test_deploys_leave_the_agents_of_the_last_one_and_those_that_somebody_waits_for():
    async with workers(lambda: echoes("desk", "first"), 1) as store:
        waiting = await store.all[0].runtime.start("first", "hello", session_key="waits")
        await waiting.result()
        await store.all[0].left()
        for number in range(20):
            worker = await store.begin(agents=echoes("desk", f"of-{number}"))
            assert await names_of(worker.runtime) == ["desk", "first", f"of-{number}"]
            await worker.left()
        async with store.channel_runtime() as channel:  # Nobody is there who runs them.
            assert await names_of(channel) == ["desk", "first", "of-19"]
            assert len(await channel.hub.journal.notes("agents")) == 2


async def test_who_comes_back_after_its_lease_was_over_publishes_its_agents_again():
    async with workers(lambda: echoes("one"), 1) as store, store.channel_runtime() as channel:
        (one,) = store.all
        one.link.cut()
        await anyio.sleep(20)
        two = await store.begin(agents=echoes("two"))
        assert await names_of(channel) == ["two"]
        one.link.mend()
        await anyio.sleep(5)
        assert await names_of(channel) == ["one", "two"]
        await one.left()
        await two.left()
        assert await names_of(channel) == ["one", "two"]


class Served:
    """A reader of notes, and of workers that know some agents."""

    def __init__(self, store, *workers):
        self._reader = store.reader()
        self._workers = workers

    def __getattr__(self, name):
        return getattr(self._reader, name)

    def processes(self):
        return [
            ProcessRow(name=str(number), is_worker=True, trees=0, running=0, agents=agents)
            for number, agents in enumerate(self._workers)
        ]


def _published(*names):
    return [PublishedAgent(name=name, title=f"of {len(names)}") for name in names]


class SharedNotes(MemoryJournal):
    """A store that others share, too."""

    sharing = object()


def test_agents_of_former_deploys_are_left_out_once_workers_say_what_they_know():
    store = SharedNotes()
    for names in (("old", "one"), ("one", "two"), ("three",)):
        publish(store, _published(*names))
    names = [each.name for each in published_agents(Served(store))]
    assert sorted(names) == ["old", "one", "three", "two"]  # Nobody is there who knows better.
    served = Served(store, ("one", "two"), ("three",))
    assert sorted(each.name for each in published_agents(served)) == ["one", "three", "two"]
    anybody = Served(store, ("one",), None)
    assert len(published_agents(anybody)) == 4


def test_the_same_agents_again_take_the_place_of_what_was_said_of_them():
    store = SharedNotes()
    publish(store, [PublishedAgent(name="one", title="before")])
    publish(store, [PublishedAgent(name="one", title="after")])
    publish(store, [])
    assert [each.title for each in published_agents(store.reader())] == ["after"]
    assert len(store.reader().notes("agents")) == 1
