"""Clients send a request again by themselves when they have heard nothing: that is the same one,
and answers nothing that was asked since."""

import anyio
import pytest
from support.openai_face import CHAT_WEATHER, WEATHER, impatient_client_of, with_client

from hubbub import Agent, FunctionModel, RunContext, RunState, agent, tool
from hubbub.agents.model import AssistantMessage
from hubbub.runtime.models.scripted import call, reply
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-05")]

WAYS = pytest.mark.parametrize("way", ["lone chat", "chat", "list", "conversation", "previous"])
RETRY = {"x-stainless-retry-count": "1"}


class Talk:
    """A client that says the same as ever, in one of five ways."""

    def __init__(self, way, tools=False):
        self.way, self.tools = way, tools
        self.sent, self.last, self.runs, self.calls = [], "", set(), []

    async def say(self, client, text="", results=(), **headers):
        """Say something; what was said before is kept only with ``hear``."""
        said = [*self.sent, *self._results(results)]
        if text:
            said.append({"role": "user", "content": text})
        self.saying = said
        return await self.again(client, **headers)

    async def again(self, client, **headers):
        """Send the same request again."""
        if "chat" in self.way:
            if self.way == "chat":
                headers["X-Session-Id"] = "s"
            tools = {"tools": [CHAT_WEATHER]} if self.tools else {}
            made = await client.chat.completions.create(
                model="main", messages=self.saying, extra_headers=headers, **tools
            )
            message = made.choices[0].message
            said, calls, text = [message.model_dump(exclude_none=True)], [], message.content or ""
            calls = [x.id for x in message.tool_calls or ()]
        else:
            how = {"tools": [WEATHER]} if self.tools else {}
            if self.way == "conversation":
                how["conversation"] = "s"
            if self.way == "previous" and self.last:
                how["previous_response_id"] = self.last
            made = await client.responses.create(
                model="main", input=self.saying, extra_headers=headers, **how
            )
            said = [x.model_dump(exclude_none=True) for x in made.output]
            calls, text = [x["call_id"] for x in said if "call_id" in x], made.output_text
        self.runs.add(made.id.rpartition("_")[0].removeprefix("chatcmpl-"))
        self._heard = [*self.saying, *said], made.id, calls
        return made.id, text

    def hear(self):
        """Go on from there."""
        said, self.last, self.calls = self._heard
        if "chat" in self.way or self.way == "list":
            self.sent = said

    def _results(self, call_ids):
        if "chat" in self.way:
            return [{"role": "tool", "tool_call_id": x, "content": "sunny"} for x in call_ids]
        return [{"type": "function_call_output", "call_id": x, "output": "sunny"} for x in call_ids]

    async def told(self, client, text="", results=(), **headers):
        """Say something, and go on from what is told."""
        _, answer = await self.say(client, text, results, **headers)
        self.hear()
        return answer


def cashier(paid, seconds=4.0):
    """Wants to pay A and B at once; each takes a while."""

    @tool(approval=True)
    async def pay(order: str) -> str:
        """Pay."""
        await anyio.sleep(seconds)
        paid.append(order)
        return f"{order} is paid"

    def answer(request):
        last = request.messages[-1]
        if isinstance(last, AssistantMessage):
            return ", ".join(x.output for x in last.calls)
        return reply("", call("pay", order="A"), call("pay", order="B"))

    return Agent("main", "You pay.", model=FunctionModel(answer), tools=[pay])


@WAYS
async def test_a_client_that_tries_again_by_itself_approves_one_call(ports, way):
    paid, talk = [], Talk(way)
    async with with_client(ports, cashier(paid)) as (rt, app, client):
        assert '"A"' in await talk.told(client, "go")
        async with impatient_client_of(app, 1.5) as impatient:
            told = await talk.told(impatient, "approve")
        await anyio.sleep(60)
        assert paid == ["A"] and '"B"' in told and '"A"' not in told
        assert await talk.told(client, "approve") == "A is paid, B is paid"
        assert paid == ["A", "B"] and len(talk.runs) == 1
        assert len(await rt.hub.read(types="session:open")) == 1


@pytest.mark.parametrize("way", ["lone chat", "chat", "list"])
@pytest.mark.parametrize("later", [0.0, 1.0, 60.0])
async def test_a_transcript_that_ends_as_before_is_the_same_answer(ports, way, later):
    """Whoever sends it, whatever its headers say, and whether the answer is over or not."""
    paid, talk, found = [], Talk(way), []
    async with with_client(ports, cashier(paid)) as (rt, _, client):
        await talk.told(client, "go")

        async def approve():
            found.append(await talk.say(client, "approve"))

        async with anyio.create_task_group() as group:
            group.start_soon(approve)
            await anyio.sleep(later)
            group.start_soon(approve)
        assert found[0] == found[1] and paid == ["A"]
        talk.hear()
        assert await talk.told(client, "approve") == "A is paid, B is paid"
        assert (await talk.again(client))[1] == "A is paid, B is paid"
        assert paid == ["A", "B"] and len(await rt.hub.read(types="session:open")) == 1


async def test_the_same_words_while_their_answer_is_coming_are_the_same_answer(ports):
    paid, talk, found = [], Talk("conversation"), []
    async with with_client(ports, cashier(paid)) as (_, _, client):
        await talk.told(client, "go")

        async def approve():
            found.append(await talk.say(client, "approve"))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(approve)
                await anyio.sleep(1)
        assert len(set(found)) == 1 and paid == ["A"]
        await talk.say(client, "approve", **RETRY)
        assert paid == ["A"]
        await talk.say(client, "approve")
        assert paid == ["A", "B"]


@WAYS
async def test_a_retry_after_a_restart_approves_nothing_else(ports, tmp_path, way):
    paid, talk = [], Talk(way)
    async with with_client(ports, cashier(paid), store=sqlite_store(tmp_path, ports=ports)) as (
        _,
        _,
        client,
    ):
        await talk.told(client, "go")
        first = await talk.say(client, "approve")
    async with with_client(ports, cashier(paid), store=sqlite_store(tmp_path, ports=ports)) as (
        _,
        _,
        client,
    ):
        assert await talk.again(client, **RETRY) == first
        await anyio.sleep(60)
    assert paid == ["A"]


async def test_of_two_chats_that_are_alike_a_retry_approves_for_one(ports):
    paid = []
    async with with_client(ports, cashier(paid)) as (_, app, client):
        ann, bob = Talk("lone chat"), Talk("lone chat")
        await ann.told(client, "go")
        await bob.told(client, "go")
        async with impatient_client_of(app, 1.5) as impatient:
            await ann.told(impatient, "approve")
        await anyio.sleep(60)
        assert paid == ["A"]
        await bob.told(client, "approve")
        assert paid == ["A", "A"] and ann.runs | bob.runs == bob.runs | ann.runs
        await ann.told(client, "approve")
        await bob.told(client, "approve")
        assert sorted(paid) == ["A", "A", "B", "B"]


def painter(painted):
    """Asks its user two things, one after the other; it takes a while between them."""

    @tool
    async def paint(state: RunState) -> str:
        """Paint."""
        first = await state.ask("Which colour?")
        await anyio.sleep(4)
        second = await state.ask("Which ground?")
        await anyio.sleep(4)
        painted.append((first, second))
        return f"{first} on {second}"

    def answer(request):
        last = request.messages[-1]
        return last.calls[0].output if isinstance(last, AssistantMessage) else call("paint")

    return Agent("main", "You paint.", model=FunctionModel(answer), tools=[paint])


def code(painted):
    """The same as an agent of code."""

    @agent("main")
    async def main(input: str, ctx: RunContext) -> str:
        first = await ctx.ask("Which colour?")
        await anyio.sleep(4)
        second = await ctx.ask("Which ground?")
        await anyio.sleep(4)
        painted.append((first, second))
        return f"{first} on {second}"

    return main


@WAYS
@pytest.mark.parametrize("make", [painter, code])
async def test_a_client_that_tries_again_answers_one_question(ports, way, make):
    painted, talk = [], Talk(way)
    async with with_client(ports, make(painted)) as (rt, app, client):
        assert await talk.told(client, "go") == "Which colour?"
        async with impatient_client_of(app, 1.5) as impatient:
            assert await talk.told(impatient, "red") == "Which ground?"
            assert await talk.told(impatient, "red") == "red on red"
        await anyio.sleep(60)
        assert painted == [("red", "red")] and len(talk.runs) == 1
        assert len(await rt.hub.read(types="session:open")) == 1
        assert await rt.hub.ask("runtime", "prompts") == []


@WAYS
async def test_results_that_are_sent_again_are_the_same_results(ports, way):
    looked, talk = [], Talk(way, tools=True)

    @tool
    async def note(sky: str) -> str:
        """Note."""
        await anyio.sleep(4)
        looked.append(sky)
        return "noted"

    def answer(request):
        last = request.messages[-1]
        if not isinstance(last, AssistantMessage):
            return call("weather", city="Rome")
        return call("note", sky="sunny") if last.calls[0].name == "weather" else "It is noted."

    main = Agent("main", "You note.", model=FunctionModel(answer), tools=[note])
    async with with_client(ports, main) as (rt, app, client):
        await talk.told(client, "go")
        async with impatient_client_of(app, 1.5) as impatient:
            first = await talk.say(impatient, results=talk.calls)
        assert first[1] == "It is noted."
        await anyio.sleep(60)
        assert await talk.again(client) == first
        assert looked == ["sunny"] and len(await rt.hub.read(types="session:open")) == 1


@WAYS
async def test_a_message_that_is_sent_again_is_said_once(ports, way):
    heard, talk = [], Talk(way)

    @tool
    async def note(text: str) -> str:
        """Note."""
        await anyio.sleep(4)
        heard.append(text)
        return "noted"

    def answer(request):
        last = request.messages[-1]
        if isinstance(last, AssistantMessage):
            return "Noted."
        return call("note", text=last.content)

    main = Agent("main", "You note.", model=FunctionModel(answer), tools=[note])
    async with with_client(ports, main) as (_, app, _):
        async with impatient_client_of(app, 1.5) as impatient:
            for text in ("one", "two", "two"):
                assert await talk.told(impatient, text) == "Noted."
        await anyio.sleep(60)
        assert heard == ["one", "two", "two"]


async def test_a_message_is_said_once_in_a_conversation_over_restarts(ports, tmp_path):
    store, main = (
        sqlite_store(tmp_path, ports=ports),
        Agent("main", "x", model=FunctionModel(lambda _: "Yes.")),
    )
    talk = Talk("conversation")
    async with with_client(ports, main, store=store) as (_, _, client):
        await talk.told(client, "hello")
        first = await talk.say(client, "there")
    async with with_client(ports, main, store=sqlite_store(tmp_path, ports=ports)) as (
        rt,
        _,
        client,
    ):
        assert await talk.again(client, **RETRY) == first
        assert (await talk.again(client)) != first, "who does not retry says it again"
        said = [x.content for x in await rt.hub.read(types="session:message")]
    assert said == ["there", "there"]


async def test_a_chat_that_is_regenerated_has_another_answer(ports):
    """Its client does not try again: its user does."""
    for way in ("chat", "lone chat"):
        talk, main = Talk(way), Agent("main", "x", model=FunctionModel(lambda _: "Yes."))
        async with with_client(ports, main) as (_, _, client):
            await talk.told(client, "hello")
            first = await talk.say(client, "there")
            assert await talk.again(client) != first
