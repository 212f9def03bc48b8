"""What a tree may use and start in all counts wherever it is driven: handed over and taken over."""

import pytest
from support.agents import echo_model, model_agent
from support.families import child, config, parent
from support.workers import until, workers

from hubbub import Limits
from hubbub.agents.model import UserMessage
from hubbub.runtime.models.scripted import FunctionModel, call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("X-05")]


def delegates(request):
    last = request.messages[-1]
    if isinstance(last, UserMessage):
        return reply("", call("helper", message="go"))
    return str(last.calls[-1].output)


def leaders():
    helps = FunctionModel(lambda _: reply("", call("finish", result="helped")), latency=0.1)
    return [parent(FunctionModel(delegates, latency=0.1), config()), child(helps)]


async def moved(store, run, how):
    """Another worker drives the tree."""
    owner = store.owner_of(run.run_id)
    await store.begin()
    await (owner.left() if how == "left" else owner.die())
    await until(lambda: store.owner_of(run.run_id) not in (None, owner))


MOVES = [("left", "died"), ("died", "left"), ("died", "died"), ("left", "left")]


@pytest.mark.parametrize("moves", MOVES, ids="-".join)
async def test_what_a_tree_may_start_in_all_counts_wherever_it_goes(moves):
    async with workers(leaders, 1, max_spawns=3) as store, store.channel_runtime() as channel:
        run = await channel.start("main", "go")
        assert "helped" in (await run.result()).output
        for how in moves:
            await moved(store, run, how)
            assert "helped" in (await run.ask("again")).output
        await moved(store, run, "left")
        assert "not started" in (await run.ask("again")).output


@pytest.mark.parametrize("moves", MOVES, ids="-".join)
async def test_what_a_tree_may_use_counts_wherever_it_goes(moves):
    agents = [model_agent(echo_model(0.1), name="echo")]
    async with workers(lambda: agents, 1) as store, store.channel_runtime() as channel:
        run = await channel.start("echo", "a", limits=Limits(model_calls=3))
        assert (await run.result()).output == "echo: a"
        for how in moves:
            await moved(store, run, how)
            assert (await run.ask("b")).output == "echo: b"
        await moved(store, run, "died")
        outcome = await run.ask("c")
        assert (outcome.outcome, outcome.reason) == ("limit", "tree.model_calls")
        assert outcome.tree.model_calls == 3


async def test_what_a_tree_has_used_elsewhere_counts_when_it_comes_back():
    """What was known of it before it went is not believed any more."""
    agents = [*leaders(), model_agent(echo_model(0.1), name="echo")]
    options = {"max_spawns": 2}
    async with workers(lambda: agents, 1, **options) as store, store.channel_runtime() as channel:
        (one,) = store.all
        led = await channel.start("main", "go")
        said = await channel.start("echo", "a", limits=Limits(model_calls=2))
        for run in (led, said):
            await run.result()
        other = await store.begin()
        for owner, next_owner in ((one, other), (other, one)):
            owner.hub.share.sharing.offer((), 0)
            await owner.hub.share.sharing.hand_over([led.run_id, said.run_id])
            next_owner.hub.share.sharing.offer(None, None)
            await until(lambda x=next_owner: x.owns(led.run_id) and x.owns(said.run_id))
            if owner is one:
                assert "helped" in (await led.ask("again")).output
                assert (await said.ask("b")).output == "echo: b"
        assert "not started" in (await led.ask("again")).output
        outcome = await said.ask("c")
        assert (outcome.outcome, outcome.reason) == ("limit", "tree.model_calls")
