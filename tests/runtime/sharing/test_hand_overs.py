"""Trees go from one worker to another: when others have room, and when one of them is left."""

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.workers import until, workers

from hubbub import agent, tool
from hubbub.agents.model import UserMessage
from hubbub.agents.turn.crash_limit import LEFT
from hubbub.runtime.models.scripted import FunctionModel, call, reply

pytestmark = pytest.mark.anyio


def echoes(latency=0.1):
    return lambda: [model_agent(echo_model(latency), name="echo")]


def counts(store):
    return [len(x.hub.share.sharing.trees()) for x in store.all if not x.is_over]


async def started(worker, count):
    """So many conversations that rest."""
    runs = [await worker.runtime.start("echo", "a") for _ in range(count)]
    for run in runs:
        assert (await run.result()).output == "echo: a"
    return runs


# ── others have room ─────────────────────────────────────────────────────────────────────────


async def test_worker_that_comes_late_gets_its_share_of_what_rests():
    async with workers(echoes(), 1) as store:
        runs = await started(store.all[0], 20)
        late = await store.begin()
        await anyio.sleep(12)
        first, second = counts(store)
        assert abs(first - second) <= 2
        for run in runs:
            assert (await late.hub.send_to_run(run.run_id, "b")).accepted
            assert (await late.runtime.result(run.run_id)).output == "echo: b"
        assert not any(x.type == "agent:restore" for x in late.heard)


async def test_worker_that_was_cut_off_gets_its_share_again():
    async with workers(echoes()) as store:
        one, other = store.all
        await started(one, 10)
        await started(other, 10)
        one.link.cut()
        await until(lambda: len(other.hub.share.sharing.trees()) == 20)
        one.link.mend()
        await anyio.sleep(15)
        assert max(counts(store)) <= 11


async def test_hand_overs_stop_where_nothing_is_new():
    async with workers(echoes(), 1) as store:
        await started(store.all[0], 17)
        for _ in range(3):
            await store.begin()
        await anyio.sleep(30)
        owners = dict(store.place.memory._trees)
        epochs = {root: tree.epoch for root, tree in owners.items()}
        assert max(counts(store)) - min(counts(store)) <= 1
        await anyio.sleep(120)
        assert epochs == {root: tree.epoch for root, tree in store.place.memory._trees.items()}


async def test_what_is_at_work_stays_where_it_is():
    @agent("waits", on_restart="fail")
    async def waits(input, ctx):
        async for message in ctx.messages():
            ctx.say(message.content)

    async with workers(lambda: [waits], 1) as store:
        (one,) = store.all
        runs = [await one.runtime.start("waits", "a") for _ in range(6)]
        await store.begin()
        await anyio.sleep(30)
        assert counts(store) == [6, 0]
        assert all(one.has(run.run_id) for run in runs)


# ── one is left ──────────────────────────────────────────────────────────────────────────────


async def test_turn_that_is_at_a_boundary_when_its_worker_is_left_goes_on_elsewhere():
    """It is not restored as if it had crashed, and no call is lost."""
    done = []

    @tool
    async def work(job: str) -> str:
        """Do a job."""
        await anyio.sleep(2)
        done.append(job)
        return f"did {job}"

    def jobs(request):
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            return reply("", call("work", job="one"))
        if len(done) == 1:
            return reply("", call("work", job="two"))
        return f"it {last.calls[-1].output}"

    models = [model_agent(FunctionModel(jobs, latency=0.1), work, name="worker")]
    async with workers(lambda: models) as store:
        one, other = store.all
        run = await one.runtime.start("worker", "go")
        await anyio.sleep(1)  # The tool is at work.
        one.leave()
        left = anyio.current_time()
        await until(lambda: other.owns(run.run_id))
        assert anyio.current_time() - left < 2, "at its boundary, and not at the end of the grace"
        await one.wait_ended()
        assert (await other.runtime.result(run.run_id)).output == "it did two"
        assert done == ["one", "two"]
        restores = [x for x in other.heard if x.type == "agent:restore"]
        assert [x.reason for x in restores] in ([], [LEFT])
        assert not [x for x in other.heard if x.type == "agent:tool:complete" and x.is_error]


async def test_hand_overs_are_no_deaths_however_many_there_are():
    async with workers(echoes(latency=30.0), max_crashes=2) as store:
        run = await store.all[0].runtime.start("echo", "a")
        for _ in range(5):
            await anyio.sleep(2)
            await until(lambda: store.owner_of(run.run_id) is not None)
            owner = store.owner_of(run.run_id)
            await store.begin()
            owner.runtime._grace = 0.5
            await owner.left()
        await until(lambda: store.owner_of(run.run_id) is not None)
        assert (await store.owner_of(run.run_id).runtime.result(run.run_id)).output == "echo: a"


async def test_who_waits_for_a_run_that_goes_on_elsewhere_gets_its_result():
    async with workers(echoes(latency=30.0)) as store, store.channel_runtime() as channel:
        run = await channel.start("echo", "a")
        await until(lambda: store.owner_of(run.run_id) is not None)
        owner = store.owner_of(run.run_id)
        async with anyio.create_task_group() as group:
            outcomes = []

            async def wait():
                outcomes.append(await run.result())

            group.start_soon(wait)
            await anyio.sleep(1)
            await owner.left()
        assert outcomes[0].output == "echo: a"


async def test_nothing_is_claimed_by_who_leaves():
    async with workers(echoes(latency=3.0), 1) as store, store.channel() as hub:
        (one,) = store.all
        run = await one.runtime.start("echo", "a")
        await anyio.sleep(0.5)
        one.leave()
        await anyio.sleep(0.1)
        receipt = await hub.open("echo", "b")
        await one.wait_ended()
        assert not one.owns(receipt.run_id)
        assert store.place.memory.owner_of(receipt.run_id) == (0, 1)
        late = await store.begin()
        assert (await late.runtime.result(receipt.run_id)).output == "echo: b"
        assert (await late.runtime.result(run.run_id)).output == "echo: a"
