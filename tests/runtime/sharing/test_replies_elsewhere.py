"""What a run asks is answered wherever somebody replies, and the first reply counts."""

import anyio
import pytest
from support.agents import model_agent
from support.families import Recorder, answers, child, config, parent
from support.workers import until, workers

from hubbub import RunState, agent, tool
from hubbub.agents.model import UserMessage
from hubbub.hub.delivery.asked_notes import LOST
from hubbub.hub.errors import BadValue, Closed, PromptClosed
from hubbub.hub.events import AgentComplete, SessionPrompt, SessionPromptEnd
from hubbub.runtime.models.scripted import FunctionModel, call, reply

pytestmark = pytest.mark.anyio


@tool(approval=True)
async def book(city: str) -> str:
    """Book a trip."""
    return f"booked {city}"


def books(request):
    last = request.messages[-1]
    if isinstance(last, UserMessage):
        return reply("", call("book", city="Paris"))
    return f"it says: {last.calls[-1].output}"


def traveller():
    return [model_agent(FunctionModel(books, latency=0.1), book, name="travel")]


@agent("asker")
async def asker(input, ctx):
    return await ctx.ask("What is it?")


async def shown(worker, count=1):
    """The first prompts that a worker has heard of."""
    await until(lambda: sum(isinstance(x, SessionPrompt) for x in worker.heard) >= count)
    return [x for x in worker.heard if isinstance(x, SessionPrompt)]


async def test_reply_from_another_process_reaches_the_code_that_asks():
    async with workers(lambda: [asker]) as store, store.channel() as hub:
        one, other = store.all
        for replier in (other.hub, hub):
            run = await one.runtime.start("asker", "a")
            prompts = await shown(other, 1 if replier is other.hub else 2)
            receipt = await replier.reply(prompts[-1].prompt_id, "a dog")
            assert receipt.accepted
            assert (await run.result()).output == "a dog"
            late = await replier.reply(prompts[-1].prompt_id, "a cat")
            assert (late.status, late.reason) == ("rejected", "answered")


async def test_reply_from_another_process_reaches_a_run_whose_id_a_caller_chose():
    async with workers(lambda: [asker]) as store:
        one, other = store.all
        run = await one.runtime.start("asker", "a", run_id="order-7")
        (prompt,) = await shown(other)
        assert (await other.hub.reply(prompt.prompt_id, "a dog")).accepted
        assert (await run.result()).output == "a dog"
        late = await other.hub.reply(prompt.prompt_id, "a cat")
        assert (late.status, late.reason) == ("rejected", "answered")


@pytest.mark.parametrize("taken", ["hub", "user"])
async def test_no_run_is_called_as_somebody_else_is(taken):
    async with workers(lambda: [asker], 1) as store:
        with pytest.raises(BadValue, match=f"run_id: .*{taken}"):
            store.all[0].hub.open("asker", run_id=taken)


async def test_of_replies_from_several_processes_one_counts():
    async with workers(lambda: [asker], 3) as store:
        one, *others = store.all
        run = await one.runtime.start("asker", "a")
        (prompt,) = await shown(others[1])
        receipts = [x.hub.reply(prompt.prompt_id, f"from {x.life.number}") for x in store.all]
        for receipt in receipts:
            await receipt
        accepted = [n for n, receipt in enumerate(receipts) if receipt.accepted]
        assert len(accepted) == 1
        assert {x.reason for x in receipts if x.rejected} == {"answered"}
        assert (await run.result()).output == f"from {accepted[0]}"


async def test_reply_that_does_not_fit_is_rejected_everywhere():
    async with workers(lambda: [asker]) as store:
        one, other = store.all
        run = await one.runtime.start("asker", "a")
        (prompt,) = await shown(other)
        for worker in store.all:
            receipt = await worker.hub.approve(prompt.prompt_id)
            assert receipt.rejected
        unknown = await other.hub.reply(f"{run.run_id}.0.99", "a dog")
        assert unknown.reason == "unknown"
        assert (await other.hub.reply(prompt.prompt_id, "a dog")).accepted
        await run.result()


async def test_approval_is_given_in_another_process_and_waited_for_by_whoever_takes_over():
    async with workers(traveller) as store:
        one, other = store.all
        run = await one.runtime.start("travel", "go")
        (prompt,) = await shown(other)
        await one.die()
        await until(lambda: other.owns(run.run_id))
        third = await store.begin()
        receipt = await third.hub.reply(prompt.prompt_id, "approve")
        assert receipt.accepted, receipt
        outcome = await third.runtime.outcomes.result(run.run_id)
        assert outcome.output == "it says: booked Paris"


async def test_worker_that_has_lost_a_run_answers_nothing_for_it():
    async with workers(traveller) as store:
        one, other = store.all
        run = await one.runtime.start("travel", "go")
        (prompt,) = await shown(other)
        one.link.cut()
        await until(lambda: other.owns(run.run_id))
        one.link.mend()
        await anyio.sleep(1)
        assert (await one.hub.deny(prompt.prompt_id, "no")).accepted
        assert (await other.hub.approve(prompt.prompt_id)).reason == "answered"
        outcome = await one.runtime.outcomes.result(run.run_id)
        assert "no" in outcome.output
        assert not any(isinstance(x, AgentComplete) for x in one.heard)


async def asks(hub, told):
    """Ask in nobody's name; what became of it goes to ``told``."""
    try:
        told.append(await hub.ask("user", "Which one?"))
    except PromptClosed as error:
        told.append(error.reason)
    except Closed as error:  # Its process is gone.
        told.append(str(error))


def ends_of(worker):
    return [x.reason for x in worker.heard if isinstance(x, SessionPromptEnd)]


async def test_what_nobody_asks_ends_once_when_the_process_that_asked_has_died():
    async with workers(lambda: [asker], 4) as store, anyio.create_task_group() as group:
        one, *others = store.all
        group.start_soon(asks, one.hub, [])
        (prompt,) = await shown(others[0])
        await anyio.sleep(60)
        assert not ends_of(others[0]), "it is at work"
        await one.die()
        await until(lambda: all(ends_of(x) for x in others), 2 * store.place.ttl)
        late = await others[0].hub.reply(prompt.prompt_id, "this one")
        assert (late.status, late.reason) == ("rejected", LOST)
        await anyio.sleep(60)
        assert [ends_of(x) for x in others] == [[LOST]] * 3


async def test_what_nobody_asks_ends_though_nobody_else_was_there_when_its_process_died():
    async with workers(lambda: [asker], 1) as store, anyio.create_task_group() as group:
        (one,) = store.all
        group.start_soon(asks, one.hub, [])
        await shown(one)
        await one.die()
        next_one = await store.begin()
        await until(lambda: ends_of(next_one) == [LOST], 2 * store.place.ttl)


async def test_who_was_taken_for_dead_hears_that_what_it_asked_has_ended():
    async with workers(lambda: [asker]) as store, anyio.create_task_group() as group:
        one, other = store.all
        told = []
        group.start_soon(asks, one.hub, told)
        await shown(other)
        one.link.cut()
        await until(lambda: ends_of(other) == [LOST], 2 * store.place.ttl)
        one.link.mend()
        await until(lambda: told == [LOST])
        group.start_soon(asks, one.hub, told)
        (_, again) = await shown(one, 2)
        await anyio.sleep(60)
        assert (await one.hub.reply(again.prompt_id, "that one")).accepted
        await until(lambda: told == [LOST, "that one"])
        assert ends_of(other) == [LOST, "answered"]


def ended(worker):
    """The prompts whose ends a worker has heard of, each as often as it has."""
    return sorted(x.prompt_id for x in worker.heard if isinstance(x, SessionPromptEnd))


def end_lease(store, worker):
    """The store takes a worker for dead, which is not."""
    store.place.memory.end(worker.hub.share.sharing.number)


async def test_what_was_asked_before_a_lease_was_over_and_after_it_ends_once():
    async with workers(lambda: [asker]) as store, anyio.create_task_group() as group:
        one, other = store.all
        group.start_soon(asks, one.hub, [])
        await shown(other)
        other.link.cut()  # It does not see that the lease is over.
        end_lease(store, one)
        await anyio.sleep(1)
        group.start_soon(asks, one.hub, [])
        prompts = await shown(one, 2)
        await one.die()
        other.link.mend()
        await anyio.sleep(60)
        assert ended(other) == sorted(x.prompt_id for x in prompts)


async def test_what_others_have_ended_is_not_ended_again_with_what_is_asked_meanwhile():
    async with workers(lambda: [asker], 3) as store, anyio.create_task_group() as group:
        one, other, _ = store.all
        told = []
        group.start_soon(asks, one.hub, told)
        await shown(other)
        one.link.cut()
        await until(lambda: ends_of(other) == [LOST], 2 * store.place.ttl)
        group.start_soon(asks, one.hub, told)  # Under the lease that is over, as far as it knows.
        await anyio.sleep(1)
        one.link.mend()
        prompts = await shown(other, 2)
        await anyio.sleep(60)
        assert ended(other) == sorted(x.prompt_id for x in prompts)
        assert told == [LOST, LOST]


async def test_who_comes_back_before_it_was_missed_is_answered_once():
    async with workers(lambda: [asker]) as store, anyio.create_task_group() as group:
        one, other = store.all
        told = []
        group.start_soon(asks, one.hub, told)
        (prompt,) = await shown(other)
        group.start_soon(asks, other.hub, [])
        await shown(one, 2)  # So it looks who is at work, itself.
        other.link.cut()
        end_lease(store, one)
        await anyio.sleep(5)
        assert (await one.hub.reply(prompt.prompt_id, "this one")).accepted
        await until(lambda: told == ["this one"])
        await one.hub.journal.flush()
        assert ends_of(one) == ["answered"]
        other.link.mend()
        await anyio.sleep(60)
        assert ended(other).count(prompt.prompt_id) == 1
        group.cancel_scope.cancel()


@tool
async def wonder(state: RunState) -> str:
    """Think for a minute, and ask."""
    await anyio.sleep(60)
    return await state.ask("Sure?")


@pytest.mark.parametrize("is_below", [False, True], ids=["itself", "a child"])
async def test_words_that_the_store_has_before_a_question_are_no_answer_to_it(is_below):
    asking = Recorder(call("wonder"), call("finish", result="done") if is_below else "Done.", "Oh.")
    main = Recorder(call("helper", message="Go."), "Done.", "Oh.")
    agents = [parent(main, config()), child(asking, wonder)]
    if not is_below:
        agents = [model_agent(asking, wonder, name="main")]
    async with workers(lambda: agents, 1) as store, store.channel() as hub:
        (worker,) = store.all
        run = await worker.runtime.start("main", "Go.")
        await anyio.sleep(59.5)
        worker.link.cut()  # What it asks is on its way for a while.
        await anyio.sleep(1)
        assert (await hub.send_to_run(run.run_id, "By the way!")).accepted
        await anyio.sleep(1)
        worker.link.mend()
        await shown(worker)
        await anyio.sleep(10)
        assert len(asking.requests) == 1, "it waits for the answer"
        assert (await hub.send_to_run(run.run_id, "Yes.")).accepted
        await anyio.sleep(10)
    assert [x.output for x in answers(asking.requests[1])] == ["Yes."]
