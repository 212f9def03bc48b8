"""Runtimes on one store that mean different agents by one name: the second one is refused."""

import anyio
import pytest
from support.agents import echo_model
from support.workers import until, workers

from hubbub import Agent, Hub, Runtime
from hubbub.hub.errors import BadValue, CallerError
from hubbub.hub.store.declared import OtherDefinition

pytestmark = pytest.mark.anyio


def desk(prompt="You echo."):
    return [Agent("desk", prompt, model=echo_model(0.1))]


async def refused(store, **options):
    try:
        await store.begin(**options)
    except OtherDefinition as error:
        store.all.pop()
        return error
    return None


async def test_another_definition_is_refused_and_who_is_there_goes_on():
    async with workers(desk, 1) as store:
        (one,) = store.all
        run = await one.runtime.start("desk", "a")
        await run.result()
        before = list(await one.hub.journal.notes()), one.hub.journal.tip
        error = await refused(store, agents=desk("You are another program."))
        assert error is not None and "'desk'" in str(error) and "replace_agents=True" in str(error)
        assert (list(await one.hub.journal.notes()), one.hub.journal.tip) == before
        assert (await run.ask("b")).output == "echo: b"
        await store.begin()


async def test_both_run_where_the_new_one_replaces():
    async with workers(desk, 1) as store:
        new = await store.begin(agents=desk("You are newer."), replace_agents=True)
        (old, _) = store.all
        run = await old.runtime.start("desk", "a")
        await run.result()
        await old.left()
        await until(lambda: new.owns(run.run_id))
        assert (await new.hub.journal.info(run.run_id)) is not None
        assert await refused(store, agents=desk()) is not None
        await store.begin(agents=desk("You are newer."))


async def test_a_channel_with_other_definitions_is_not_refused():
    async with workers(desk, 1) as store, store.channel_runtime(desk("Else.")) as channel:
        assert (await channel.run("desk", "a")).output == "echo: a"


async def test_a_runtime_that_has_left_its_hub_declares_nothing_any_more():
    async with workers(desk, 0) as store:
        hub = Hub(journal=store.place.journal(), ports=store.ports())
        async with hub:
            async with Runtime(desk(), hub=hub):
                assert await refused(store, agents=desk("Else.")) is not None
            await anyio.sleep(1)
            other = await store.begin(agents=desk("Else."))
            with pytest.raises(OtherDefinition):
                async with Runtime(desk(), hub=hub):
                    pass
            await other.left()
            async with Runtime(desk(), hub=hub) as rt:
                assert (await rt.run("desk", "a")).output == "echo: a"


async def test_who_comes_back_to_a_store_where_others_mean_another_agent_has_failed():
    """Its lease was over: others could not know that it would come back."""
    async with workers(desk, 1) as store:
        (one,) = store.all
        one.link.cut()
        await anyio.sleep(store.place.ttl * 2)
        await store.begin(agents=desk("Else."))
        one.link.mend()
        await until(lambda: one.hub.journal.failure != "")
        assert "another definition of the agent 'desk'" in one.hub.journal.failure
        receipt = await one.hub.open("desk", "a")
        assert not receipt.accepted
        await one.die()


async def test_who_comes_back_is_not_refused_for_those_that_replace_it():
    async with workers(desk, 1) as store:
        (one,) = store.all
        new = await store.begin(agents=desk("Newer."), replace_agents=True)
        for worker in (one, new):
            worker.link.cut()
            await anyio.sleep(store.place.ttl * 2)
            worker.link.mend()
            await anyio.sleep(store.place.ttl)
            assert not worker.hub.journal.failure
            run = await worker.runtime.start("desk", "a")
            assert (await run.result()).output == "echo: a"


@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_second_runtime_on_a_hub_leaves_the_first_one_as_it_is(is_shared):
    async with workers(desk, 0) as store:
        hub = Hub(journal=store.place.journal(), ports=store.ports()) if is_shared else Hub()
        async with hub, Runtime(desk(), hub=hub) as rt:
            run = await rt.start("desk", "a", session_key="chat")
            await run.result()
            notes = await hub.journal.notes()
            for agents in (desk("Else."), desk()):
                with pytest.raises(CallerError, match="already has a runtime"):
                    async with Runtime(agents, hub=hub):
                        pass
            await anyio.sleep(20)
            assert await hub.journal.notes() == notes
            assert (await run.ask("b")).output == "echo: b"
            assert (await rt.run("desk", "c")).output == "echo: c"
            if is_shared:
                assert await refused(store, agents=desk("Else.")) is not None


async def test_what_is_to_be_replaced_is_a_yes_or_a_no_of_a_worker():
    with pytest.raises(BadValue, match="replace_agents: expected True or False"):
        Runtime(desk(), store="memory", replace_agents="yes")
    async with workers(desk, 1) as store:
        with pytest.raises(BadValue, match="drives no agents"):
            async with store.channel_runtime(replace_agents=True):
                pass
    async with Runtime(desk(), store="memory", replace_agents=True) as rt:
        assert (await rt.run("desk", "a")).output == "echo: a"
