"""What a runtime that was left in order has noted holds for the next one, whichever kind of store
the first one had, and a boot that is to retry nothing loses nothing that came since."""

import anyio
import msgspec
import pytest
from support.agents import Observer, echo_model, model_agent
from support.restarts import Lives
from support.workers import until, workers

from hubbub import RestorePolicy
from hubbub.agents.turn.crash_limit import LEFT
from hubbub.hub.store.journal import Commit
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio

NOTE = "runs:left"


def bots():
    return [model_agent(echo_model(latency=30.0), name="echo")]


async def noted(journal):
    return {key: text for key, text in (await journal.notes(NOTE)).items() if text}


async def test_run_that_was_left_is_no_death_where_its_store_became_a_shared_one():
    async with workers(bots, 1, grace=0) as store, store.channel() as hub:
        (one,) = store.all
        runs = [await one.runtime.start("echo", text) for text in ("a", "b")]
        await anyio.sleep(1)
        await one.left()
        trees = await noted(hub.journal)
        assert sorted(trees) == sorted(f"{NOTE}:{run.run_id}" for run in runs)
        at_work = {}
        for text in trees.values():
            at_work |= msgspec.json.decode(text)
        whole = msgspec.json.encode({**at_work, "gone": 7}).decode()
        hub.journal.submit(Commit(notes={**dict.fromkeys(trees, ""), NOTE: whole}))
        await hub.journal.flush()
        two, three = await store.begin(), await store.begin()
        await anyio.sleep(100)
        for run, text in zip(runs, ("a", "b"), strict=True):
            await until(lambda run=run: store.owner_of(run.run_id) is not None)
            outcome = await store.owner_of(run.run_id).runtime.result(run.run_id)
            assert outcome.output == f"echo: {text}"
        reasons = {x.reason for x in (*two.heard, *three.heard) if x.type == "agent:restore"}
        assert reasons == {LEFT}
        assert await noted(hub.journal) == {}


async def test_run_that_was_left_is_no_death_where_its_store_became_one_processs(tmp_path, ports):
    lives = Lives(tmp_path, ports)
    async with lives.life(*bots()) as rt:
        run = await rt.start("echo", "a")
        await anyio.sleep(1)
    journal = sqlite_store(lives.folder, ports=ports)
    await journal.open()
    (text,) = (await noted(journal)).values()
    journal.submit(Commit(notes={NOTE: "", f"{NOTE}:{run.run_id}": text}))
    await journal.aclose()
    async with lives.life(*bots()) as rt:
        assert (await rt.result(run.run_id)).output == "echo: a"
        assert list(await noted(rt.hub.journal)) == [NOTE]
    assert [x.reason for x in lives.seen.all("agent:restore")] == [LEFT]


async def test_what_comes_before_its_tree_is_claimed_is_handled_after_a_context_only_boot():
    async with workers(bots, 1, grace=0) as store:
        (one,) = store.all
        run = await one.runtime.start("echo", "a")
        await anyio.sleep(1)
        await one.runtime.hub.send_to_run(run.run_id, "before")
        await one.die()
        two = await store.begin(restore=RestorePolicy.CONTEXT_ONLY)
        assert not two.owns(run.run_id)
        seen = Observer(two.runtime.hub)
        await two.runtime.hub.send_to_run(run.run_id, "after")
        await until(lambda: two.owns(run.run_id))
        await anyio.sleep(100)
        assert (await two.runtime.result(run.run_id)).output.endswith("after")
        assert [x.message.content for x in seen.all("hub:dead_letter")] == ["before"]


async def test_mail_that_comes_as_a_tree_is_claimed_brings_its_run_no_sooner_than_its_note():
    async with workers(bots, 1, grace=0, seconds=0.05) as store:
        (one,) = store.all
        runs = [await one.runtime.start("echo", "a") for _ in range(5)]
        await anyio.sleep(1)
        await one.left()
        two = await store.begin()
        for number, run in enumerate(runs):
            await anyio.sleep(0.03 * number)
            await two.runtime.hub.send_to_run(run.run_id, "b")
        await anyio.sleep(100)
        restores = [x for x in two.heard if x.type == "agent:restore"]
        assert [x.reason for x in restores] == [LEFT] * len(runs)
