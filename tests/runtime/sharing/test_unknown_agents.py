"""A tree whose agent no worker knows waits for one; ending it needs none who knows it."""

import pytest
from support.agents import echo_model, model_agent
from support.families import child, config, parent
from support.workers import until, workers

from hubbub.agents.model import UserMessage
from hubbub.runtime.models.scripted import FunctionModel, call, reply

pytestmark = pytest.mark.anyio


def known():
    return [model_agent(echo_model(), name="known")]


def delegates(request):
    if isinstance(request.messages[-1], UserMessage):
        return reply("", call("helper", message="go"))
    return "done"


def families():
    helps = FunctionModel(lambda _: reply("still at it"), latency=1000)
    return [parent(FunctionModel(delegates), config()), child(helps)]


def child_of(run, worker):
    (found,) = {x.lane.run_id for x in worker.runtime.runs.in_memory} - {run.run_id}
    return found


async def test_a_run_of_an_agent_nobody_knows_is_terminated():
    async with workers(known) as store, store.channel_runtime() as channel:
        run = await channel.start("typo", "hello", session_key="k")
        await run.terminate("bye")
        outcome = await run.finished()
        assert (outcome.outcome, outcome.reason) == ("terminated", "bye")
        await until(lambda: store.place.memory.unowned() == [])
        again = await channel.start("known", "hello", session_key="k")
        assert again.run_id != run.run_id
        assert (await again.result()).output == "echo: hello"


async def test_its_time_is_over_all_the_same():
    async with workers(known) as store, store.channel_runtime() as channel:
        run = await channel.start("typo", "hello", timeout=30)
        assert (await run.finished()).outcome in ("timed_out", "failed")


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_conversation_that_has_begun_and_its_children_are_terminated(is_killed):
    async with workers(families, 1) as store, store.channel_runtime() as channel:
        run = await channel.start("main", "go")
        (first,) = store.all
        await until(lambda: len(first.runtime.runs.in_memory) == 2)
        helper = child_of(run, first)
        await store.begin(agents=known())
        await first.die()
        other = await store.begin(agents=known())
        await until(lambda: store.place.memory.unowned() == [run.run_id])
        await run.terminate("bye")
        if is_killed:
            await until(lambda: store.owner_of(run.run_id) is not None)
            await store.owner_of(run.run_id).die()
        assert (await run.finished()).outcome == "terminated"
        journal = other.hub.journal if not other.is_over else store.all[1].hub.journal
        await until(lambda: store.place.memory.owner_of(run.run_id) == (0, 0))
        await journal.flush()
        assert (await journal.info(helper)).status == "ended"


async def test_a_child_alone_is_terminated_and_its_tree_is_for_who_knows_it():
    async with workers(families, 1) as store, store.channel_runtime() as channel:
        run = await channel.start("main", "go")
        (first,) = store.all
        await until(lambda: len(first.runtime.runs.in_memory) == 2)
        helper = child_of(run, first)
        await first.die()
        stranger = await store.begin(agents=known())
        await until(lambda: store.place.memory.unowned() == [run.run_id])
        await channel.hub.terminate(helper, "bye")
        await until(lambda: stranger.owns(run.run_id))
        back = await store.begin()
        await until(lambda: back.owns(run.run_id))
        assert (await run.result()).output == "done"
        assert (await back.hub.journal.info(helper)).inbox == "terminated"
