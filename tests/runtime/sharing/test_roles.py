"""What a process does on a shared store: a worker drives what it knows and has room for, and one
that carries channels drives nothing."""

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.workers import until, workers

from hubbub import Heartbeat, Hub, Runtime, agent
from hubbub.hub.errors import BadValue, UnknownAgent

pytestmark = pytest.mark.anyio


def echoes(*names):
    return [model_agent(echo_model(0.1), name=name) for name in names]


async def test_channel_starts_runs_and_waits_for_them_and_drives_none():
    async with workers(lambda: echoes("echo")) as store, store.channel_runtime() as channel:
        outcome = await channel.run("echo", "a")
        assert (outcome.output, outcome.success) == ("echo: a", True)
        run = await channel.start("echo", "b", session_key="chat")
        assert (await run.result()).output == "echo: b"
        assert (await run.ask("c")).output == "echo: c"
        assert not channel.runs.in_memory
        assert (await channel.find("chat")).run_id == run.run_id
        assert [x.run_id for x in (await channel.conversations()).conversations] == [run.run_id]


async def test_channel_without_definitions_opens_whatever_is_named():
    async with workers(lambda: echoes("echo"), 1) as store, store.channel_runtime() as channel:
        run = await channel.start("unknown-yet", "a")
        await anyio.sleep(20)
        assert store.owner_of(run.run_id) is None
        late = await store.begin(agents=echoes("unknown-yet"))
        assert (await run.result()).output == "echo: a"
        assert store.owner_of(run.run_id) is late


async def test_channel_with_definitions_refuses_agents_that_there_are_not():
    async with (
        workers(lambda: echoes("echo")) as store,
        store.channel_runtime(echoes("echo")) as channel,
    ):
        with pytest.raises(UnknownAgent):
            await channel.start("other", "a")
        with pytest.raises(UnknownAgent):
            await channel.run("other", "a")
        assert (await channel.run("echo", "a")).output == "echo: a"


async def test_channel_whose_caller_is_cancelled_terminates_its_run():
    @agent("slow")
    async def slow(input, ctx):
        await anyio.sleep(1_000)

    async with workers(lambda: [slow]) as store, store.channel_runtime() as channel:
        with anyio.move_on_after(5):
            await channel.run("slow", "a")
        (worker, _) = store.all
        await until(lambda: any(x.type == "agent:complete" for x in worker.heard))


async def test_channel_fires_no_schedule():
    beats = Heartbeat("echo", ["tick"], interval=1)
    async with (
        workers(lambda: echoes("echo")) as store,
        store.channel_runtime(echoes("echo"), schedules=[beats]) as channel,
    ):
        await anyio.sleep(10)
        assert not await channel.hub.journal.runs(live=False)


async def test_workers_drive_the_agents_that_they_know():
    async with workers(lambda: echoes("one"), 1) as store, store.channel_runtime() as channel:
        other = await store.begin(agents=echoes("other"))
        one = store.all[0]
        for name, owner in (("one", one), ("other", other)) * 3:
            run = await channel.start(name, "a")
            assert (await run.result()).output == "echo: a"
            assert store.owner_of(run.run_id) is owner
        # What is said to a run of an agent that one does not know is another's to handle.
        assert (await one.hub.send_to_run(run.run_id, "b")).accepted
        assert (await one.runtime.result(run.run_id)).output == "echo: b"


async def test_worker_at_its_capacity_leaves_the_rest_to_others():
    async with workers(lambda: echoes("echo"), 1, capacity=2) as store:
        full = store.all[0]
        runs = [await full.runtime.start("echo", "a") for _ in range(3)]
        for run in runs[:2]:
            assert (await run.result()).output == "echo: a"
        await anyio.sleep(10)
        assert [store.owner_of(run.run_id) for run in runs] == [full, full, None]
        late = await store.begin(capacity=None)
        assert (await runs[2].result()).output == "echo: a"
        assert store.owner_of(runs[2].run_id) is late
        assert (await full.runtime.run("echo", "b")).output == "echo: b"


async def test_hub_alone_owns_no_trees():
    """It would drive nothing."""
    async with workers(lambda: echoes("echo"), 0) as store:
        hub = Hub(journal=store.place.journal(), ports=store.ports())
        async with hub:
            receipt = await hub.open("echo", "a")
            await anyio.sleep(10)
            assert not hub.share.owns(receipt.run_id)
            async with Runtime(echoes("echo"), hub=hub) as rt:
                assert (await rt.result(receipt.run_id)).output == "echo: a"
            await anyio.sleep(10)
            assert not hub.share.owns(receipt.run_id), "its runtime was left"
            async with Runtime(echoes("echo"), hub=hub) as rt:
                assert (await hub.send_to_run(receipt.run_id, "b")).accepted
                assert (await rt.result(receipt.run_id)).output == "echo: b"


# ── what is refused ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("arguments", "words"), [
    ({"role": "channel"}, "nobody would drive"),
    ({"role": "king"}, 'expected "worker" or "channel"'),
    ({"role": None}, 'expected "worker" or "channel"'),
    ({"capacity": 0}, "capacity"),
    ({"capacity": True}, "capacity"),
    ({"capacity": 5}, "nobody else drives"),
    ({"role": "channel", "capacity": 5}, "drives no runs"),
])  # fmt: skip
def test_roles_that_cannot_be_are_refused(arguments, words):
    with pytest.raises(BadValue, match=words):
        Runtime(echoes("echo"), store="memory", **arguments)


async def test_role_is_that_of_the_store():
    async with workers(lambda: echoes("echo"), 0) as store:
        for is_worker, role in ((True, "channel"), (False, "worker")):
            hub = Hub(journal=store.place.journal(is_worker=is_worker), ports=store.ports())
            with pytest.raises(BadValue, match="is_worker"):
                Runtime(echoes("echo"), hub=hub, role=role)
