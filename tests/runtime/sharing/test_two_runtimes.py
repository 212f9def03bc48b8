"""Several runtimes share a store: one of them drives each tree, and another one if that dies."""

from functools import partial

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.workers import until, workers

from hubbub import agent
from hubbub.agents.turn.crash_limit import LEFT
from hubbub.hub.events import AgentComplete, SessionMessage, SessionPrompt, SessionTaken

pytestmark = pytest.mark.anyio


def echoes(latency=1.0):
    return lambda: [model_agent(echo_model(latency), name="echo")]


def texts(worker, run_id):
    """What a run has said, as a worker has heard it."""
    return [x.text for x in worker.heard if x.type == "agent:text" and x.run_id == run_id]


async def all_heard(*members):
    """Everybody has heard everything."""
    for _ in range(2):
        for worker in members:
            await worker.hub.journal.flush()
    assert all(worker.durable == members[0].durable for worker in members)


async def test_everybody_hears_what_one_of_them_does_in_the_same_order():
    async with workers(echoes()) as store:
        one, other = store.all
        mine, theirs = await one.runtime.start("echo", "a"), await other.runtime.start("echo", "b")
        assert (await mine.result()).output == "echo: a"
        assert (await theirs.result()).output == "echo: b"
        await all_heard(one, other)
        assert texts(one, theirs.run_id) == ["echo: b"]
        assert one.has(theirs.run_id) is False


async def test_message_sent_anywhere_is_handled_by_the_owner():
    async with workers(echoes()) as store:
        one, other = store.all
        run = await one.runtime.start("echo", "a")
        await run.result()
        receipt = await other.hub.send_to_run(run.run_id, "b")
        assert receipt.accepted
        outcome = await other.runtime.outcomes.result(run.run_id)
        assert outcome.output == "echo: b"
        assert store.owner_of(run.run_id) is one
        await all_heard(one, other)


async def test_channel_opens_what_a_worker_drives():
    async with workers(echoes()) as store, store.channel() as hub:
        heard = []
        hub.subscribe("agent:text", heard.append)
        receipt = await hub.open("echo", "a", session_key="chat")
        assert receipt.accepted
        await until(lambda: heard)
        assert heard[0].text == "echo: a"
        again = await hub.send("b", session_key="chat")
        assert again.run_id == receipt.run_id
        await until(lambda: len(heard) == 2)
        assert heard[1].text == "echo: b"


async def test_run_of_a_killed_worker_is_continued_by_another_within_the_lease_and_a_second():
    async with workers(echoes(latency=1.0)) as store:
        one, other = store.all
        run = await one.runtime.start("echo", "a")
        await anyio.sleep(0.5)  # The model is being asked.
        await one.die()
        died = anyio.current_time()
        assert (await other.runtime.outcomes.result(run.run_id)).output == "echo: a"
        assert anyio.current_time() - died <= store.place.ttl + 1 + 1.1
        assert store.owner_of(run.run_id) is other
        restores = [x for x in other.heard if x.type == "agent:restore"]
        assert len(restores) == 1


async def test_parked_run_of_a_killed_worker_takes_what_was_sent_meanwhile_once():
    async with workers(echoes()) as store:
        one, other = store.all
        run = await one.runtime.start("echo", "a")
        await run.result()
        await one.die()
        assert (await other.hub.send_to_run(run.run_id, "b")).accepted
        assert (await other.runtime.outcomes.result(run.run_id)).output == "echo: b"
        taken = [x for x in other.heard if isinstance(x, SessionTaken)]
        said = [y.content for x in taken for y in x.items if isinstance(y, SessionMessage)]
        assert said == ["b"]


async def test_what_a_worker_leaves_is_continued_at_once_and_counts_as_left():
    async with workers(echoes(latency=60.0)) as store:
        one, other = store.all
        run = await one.runtime.start("echo", "a")
        await anyio.sleep(1)
        one.runtime._grace = 0.0
        await one.left()
        left = anyio.current_time()
        await until(lambda: other.has(run.run_id))
        assert anyio.current_time() - left <= 1
        assert (await other.runtime.outcomes.result(run.run_id)).output == "echo: a"
        (restore,) = [x for x in other.heard if x.type == "agent:restore"]
        assert restore.reason == LEFT


async def test_worker_that_is_cut_off_changes_nothing_once_another_has_taken_over():
    calls = []

    @agent("slow", on_restart="resume")
    async def slow(input, ctx):
        calls.append(input)
        await anyio.sleep(8)
        ctx.say("done")
        return "done"

    async with workers(lambda: [slow]) as store:
        one, other = store.all
        run = await one.runtime.start("slow", "a")
        await anyio.sleep(1)
        one.link.cut()
        outcome = await other.runtime.outcomes.finished(run.run_id)
        assert outcome.output == "done"
        one.link.mend()
        await anyio.sleep(5)
        await all_heard(one, other)
        assert calls == ["a", "a"]  # It may run twice, and is recorded once.
        assert sum(isinstance(x, AgentComplete) for x in one.heard) == 1
        assert not one.has(run.run_id)


async def test_worker_that_is_left_hands_over_at_once_what_rests():
    def agents():
        return [
            model_agent(echo_model(0.1), name="quick"), model_agent(echo_model(3.0), name="slow"),
        ]  # fmt: skip

    async with workers(agents) as store:
        one, other = store.all
        rests = await one.runtime.start("quick", "a")
        await rests.result()
        works = await one.runtime.start("slow", "b")
        await anyio.sleep(0.5)
        one.leave()
        left = anyio.current_time()
        await until(lambda: other.owns(rests.run_id))
        assert anyio.current_time() - left <= 1
        assert one.owns(works.run_id)
        assert (await other.hub.send_to_run(rests.run_id, "c")).accepted
        assert (await other.runtime.outcomes.result(rests.run_id)).output == "echo: c"
        await one.wait_ended()
        outcome = await other.runtime.outcomes.result(works.run_id)
        assert outcome.output == "echo: b"
        assert not any(x.type == "agent:restore" for x in other.heard), "it had time to finish"


async def test_tree_that_comes_back_is_read_again():
    async with workers(echoes()) as store:
        one, other = store.all
        run = await one.runtime.start("echo", "a")
        await run.result()
        for sender, receiver, text in ((one, other, "b"), (other, one, "c"), (one, other, "d")):
            sender.link.cut()
            await until(partial(receiver.owns, run.run_id))
            sender.link.mend()
            assert (await sender.hub.send_to_run(run.run_id, text)).accepted
            outcome = await receiver.runtime.outcomes.result(run.run_id)
            assert outcome.output == f"echo: {text}"
        await all_heard(one, other)


async def test_session_key_is_one_run_whoever_opens_it():
    async with workers(echoes()) as store:
        one, other = store.all
        runs = []
        async with anyio.create_task_group() as group:
            for worker in (one, other):

                async def start(worker=worker):
                    runs.append(await worker.runtime.start("echo", "a", session_key="chat"))

                group.start_soon(start)
        assert len({run.run_id for run in runs}) == 1
        for run in runs:
            await run.result()
        await all_heard(one, other)


async def test_children_go_where_their_tree_goes():
    @agent("child", on_restart="resume")
    async def child(input, ctx):
        await anyio.sleep(10)
        return f"child of {input}"

    @agent("parent", on_restart="resume")
    async def parent(input, ctx):
        started = ctx.spawn("child", input)
        return (await started.result()).output

    async with workers(lambda: [child, parent]) as store:
        one, other = store.all
        run = await one.runtime.start("parent", "a")
        await anyio.sleep(1)
        await one.die()
        outcome = await other.runtime.outcomes.finished(run.run_id)
        assert outcome.output == "child of a"
        tree = await other.hub.journal.runs(live=False, root_run_id=run.run_id)
        assert len(tree) == 2


@pytest.mark.parametrize("wait", [0.0, 0.3, 0.7])
async def test_conversation_that_was_opened_and_left_before_its_next_owner_heard_of_it_goes_on(
    wait,
):
    async with workers(echoes(0.1)) as store:
        one, other = store.all
        await anyio.sleep(wait)
        other.link.cut()
        run = await one.runtime.start("echo", "a")
        await run.result()
        await one.left()
        other.link.mend()
        await until(lambda: other.owns(run.run_id))
        assert (await other.hub.send_to_run(run.run_id, "b")).accepted
        outcome = await other.runtime.outcomes.result(run.run_id)
        assert outcome.output == "echo: b"
        assert texts(other, run.run_id) == ["echo: a", "echo: b"]


async def test_runs_below_that_were_opened_and_left_unheard_go_on():
    @agent("child", on_restart="resume")
    async def child(input, ctx):
        return f"child of {await ctx.ask('Whose?')}"

    @agent("parent", on_restart="resume")
    async def parent(input, ctx):
        started = ctx.spawn("child", input)
        return (await started.result()).output

    async with workers(lambda: [child, parent]) as store:
        one, other = store.all
        other.link.cut()
        run = await one.runtime.start("parent", "a")
        await anyio.sleep(1)
        await one.left()
        other.link.mend()
        await until(lambda: other.owns(run.run_id))
        await anyio.sleep(1)
        asked = [x for x in other.heard if isinstance(x, SessionPrompt)]
        assert (await other.hub.reply(asked[-1].prompt_id, "mine")).accepted
        outcome = await other.runtime.outcomes.finished(run.run_id)
        assert outcome.output == "child of mine"
