"""What is asked of a process about runs that another one drives."""

import anyio
import pytest
from support.agents import echo_model, model_agent
from support.families import child, config, parent
from support.workers import until, workers

from hubbub import Limits, agent, tool
from hubbub.agents.model import UserMessage
from hubbub.hub.errors import CallerError
from hubbub.hub.events import SessionPrompt
from hubbub.runtime.models.scripted import FunctionModel, call, reply

pytestmark = pytest.mark.anyio


@tool
async def hold(seconds: float) -> str:
    """Take a while."""
    await anyio.sleep(seconds)
    return "done"


def busy(request):
    last = request.messages[-1]
    if isinstance(last, UserMessage):
        return reply("", call("hold", seconds=1_000))
    return "it is over"


def steps(request):
    """A turn of many short steps."""
    return reply("", call("hold", seconds=1))


async def test_limits_are_given_from_anywhere_and_count_what_was_used_before():
    agents = [model_agent(FunctionModel(steps, latency=0.1), hold, name="steps")]
    async with workers(lambda: agents, 1) as store, store.channel_runtime() as channel:
        run = await channel.start("steps", "go")
        await anyio.sleep(5.5)
        receipt = await channel.limit(run.run_id, Limits(model_calls=4))
        assert receipt.accepted
        outcome = await run.result()
        assert outcome.outcome == "limit"
        calls = [x for x in store.all[0].heard if x.type == "agent:step"]
        assert len(calls) <= 6, "what was used before the limits counts"


async def test_what_a_tree_has_used_is_never_of_yesterday():
    agents = [model_agent(echo_model(0.1), name="echo")]
    async with workers(lambda: agents) as store:
        one, other = store.all
        run = await one.runtime.start("echo", "a")
        for turns in range(1, 12):
            outcome = await other.runtime.result(run.run_id)
            assert outcome.tree.model_calls == turns
            await one.hub.send_to_run(run.run_id, "again")
            await until(lambda: one.has(run.run_id))


async def test_interruption_from_anywhere_names_every_run_that_it_reaches():
    def delegates(request):
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            return reply("", call("helper", message="go"))
        return "it is over"

    above = parent(FunctionModel(delegates, latency=0.1), config())
    agents = [above, child(FunctionModel(busy, latency=0.1), hold)]
    async with workers(lambda: agents, 1) as store, store.channel_runtime() as channel:
        run = await channel.start("main", "go")
        await anyio.sleep(3)
        tree = await channel.hub.journal.runs(root_run_id=run.run_id)
        assert len(tree) == 2
        receipt = await channel.hub.interrupt(run.run_id)
        assert receipt.accepted
        assert set(receipt.run_ids) == {info.run_id for info in tree}
        await run.result()
        idle = await channel.hub.interrupt(run.run_id)
        assert idle.run_ids == (run.run_id,)


async def test_termination_from_anywhere_names_every_run_that_it_ends():
    @agent("child")
    async def child(input, ctx):
        await anyio.sleep(1_000)

    @agent("parent")
    async def parent(input, ctx):
        await ctx.spawn("child", "go").result()

    async with workers(lambda: [child, parent], 1) as store, store.channel_runtime() as channel:
        run = await channel.start("parent", "go")
        await anyio.sleep(3)
        tree = await channel.hub.journal.runs(root_run_id=run.run_id)
        receipt = await channel.terminate(run.run_id)
        assert set(receipt.run_ids) == {info.run_id for info in tree}
        assert len(tree) == 2
        assert (await run.finished()).outcome == "terminated"


async def test_prompt_of_nobodys_run_is_answered_where_it_is_asked():
    async with workers(list, 2) as store:
        one, other = store.all
        answers = []
        async with anyio.create_task_group() as group:

            async def ask():
                answers.append(await one.hub.ask("user", "What is it?"))

            group.start_soon(ask)
            await until(lambda: any(isinstance(x, SessionPrompt) for x in other.heard))
            (prompt,) = [x for x in other.heard if isinstance(x, SessionPrompt)]
            refused = await other.hub.reply(prompt.prompt_id, "a cat")
            assert refused.status == "rejected"
            assert "only the process that asks" in refused.reason
            assert (await one.hub.reply(prompt.prompt_id, "a dog")).accepted
        assert answers == ["a dog"]


async def test_question_that_no_answer_could_reach_is_refused():
    @agent("answers")
    async def answers(input, ctx):
        async for message in ctx.messages():
            ctx.hub.reply(message.prompt_id, "yes")

    @agent("asks")
    async def asks(input, ctx):
        return await ctx.hub.ask(input, "Is it?")

    async with workers(lambda: [answers, asks]) as store:
        one, other = store.all
        run = await one.runtime.start("answers")
        with pytest.raises(CallerError, match="another process drives it"):
            await other.hub.ask(run.run_id, "Is it?")
        assert await one.hub.ask(run.run_id, "Is it?") == "yes"
        asking = await other.runtime.run("asks", run.run_id)
        assert asking.output == "yes"


async def test_reply_is_checked_before_it_is_accepted_wherever_it_is_given():
    @agent("asker")
    async def asker(input, ctx):
        return await ctx.ask("How many?", schema=int)

    async with workers(lambda: [asker], 1) as store, store.channel_runtime() as channel:
        run = await channel.start("asker", "a")
        heard = store.all[0].heard
        await until(lambda: any(isinstance(x, SessionPrompt) for x in heard))
        (prompt,) = [x for x in heard if isinstance(x, SessionPrompt)]
        wrong = await channel.hub.reply(prompt.prompt_id, "many")
        assert wrong.status == "rejected", wrong
        assert (await channel.hub.reply(prompt.prompt_id, "12")).accepted
        assert (await run.result()).output == 12


async def test_arguments_of_an_approval_are_checked_where_the_tool_is_known():
    @tool(approval=True)
    async def book(city: str) -> str:
        """Book a trip."""
        return f"booked {city}"

    def books(request):
        last = request.messages[-1]
        if isinstance(last, UserMessage):
            return reply("", call("book", city="Paris"))
        return f"it says: {last.calls[-1].output}"

    agents = [model_agent(FunctionModel(books, latency=0.1), book, name="travel")]
    async with (
        workers(lambda: agents, 1) as store,
        store.channel_runtime(agents) as channel,
    ):
        run = await channel.start("travel", "go")
        heard = store.all[0].heard
        await until(lambda: any(isinstance(x, SessionPrompt) for x in heard))
        (prompt,) = [x for x in heard if isinstance(x, SessionPrompt)]
        wrong = await channel.hub.approve(prompt.prompt_id, {"city": 7})
        assert wrong.status == "rejected", wrong
        assert (await channel.hub.approve(prompt.prompt_id, {"city": "Rome"})).accepted
        assert (await run.result()).output == "it says: booked Rome"
        asked = await channel.hub.ask("runtime", "prompts")
        assert asked == []


async def test_agents_that_are_known_are_those_of_all_workers():
    """Whoever begins later, and whoever only carries channels."""
    one, other = ([model_agent(echo_model(0.1), name=name)] for name in ("one", "other"))
    async with workers(lambda: one, 1) as store:
        await store.begin(agents=other)
        async with store.channel_runtime() as channel:
            assert sorted(await channel.hub.ask("runtime", "agents")) == ["one", "other"]
            found = await channel.hub.ask("runtime", "agent one")
            assert found["name"] == "one"


async def test_what_is_listed_is_that_of_the_store():
    agents = [model_agent(echo_model(0.1), name="echo")]
    async with workers(lambda: agents) as store, store.channel_runtime() as channel:
        one, other = store.all
        first = await one.runtime.start("echo", "a", session_key="first")
        second = await other.runtime.start("echo", "b", session_key="second")
        for run in (first, second):
            await run.result()
        for asked in (one.runtime, other.runtime, channel):
            await asked.hub.journal.flush()
            assert {x.run_id for x in await asked.conversations()} == {first.run_id, second.run_id}
            for run, key in ((first, "first"), (second, "second")):
                found = await asked.find(key)
                assert found is not None
                assert found.run_id == run.run_id
                assert (await asked.handle(run.run_id)).run_id == run.run_id
            assert len(await asked.hub.ask("runtime", "runs")) == 2
