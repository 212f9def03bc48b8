"""An answer that is sent again with its ``Idempotency-Key`` is the first one, and no other's."""

from contextlib import asynccontextmanager

import anyio
import openai
import pytest
from support.agents import model_agent
from support.openai_face import CHAT_WEATHER, WEATHER, with_client

from hubbub import Agent, FunctionModel, ScriptedModel, tool
from hubbub.agents.model import AssistantMessage, ModelReply
from hubbub.runtime.models.scripted import call
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-05")]


def keyed(key="k", **more):
    return {"extra_headers": {"Idempotency-Key": key, **more}}


def cashier(paid):
    """Wants to pay X and Y back at once, then Z, and each waits for an approval."""

    @tool(approval=True)
    def refund(order: str) -> str:
        """Pay back."""
        paid.append(order)
        return f"{order} is paid"

    def answer(request):
        last = request.messages[-1]
        if isinstance(last, AssistantMessage):
            count = sum(len(x.calls) for x in request.messages if isinstance(x, AssistantMessage))
            return call("refund", order="Z") if count < 3 else "Done."
        if "refund" in last.content:
            return ModelReply(calls=(call("refund", order="X"), call("refund", order="Y")))
        return f"Heard {last.content}."

    return model_agent(FunctionModel(answer), refund, name="main")


def boss(paid):
    """Its child waits for an approval, and then it does itself."""

    @tool(approval=True)
    def refund(order: str) -> str:
        """Pay back."""
        paid.append(order)
        return f"{order} is paid"

    clerk = ScriptedModel([call("refund", order="X"), "It is paid."])
    child = Agent("clerk", "You pay.", model=clerk, tools=[refund])
    model = ScriptedModel([call("clerk", message="go"), call("refund", order="Y"), "Finished."])
    return Agent("main", "You ask.", model=model, tools=[child.as_tool(blocking=True), refund])


def store_of(kind, tmp_path):
    return "memory" if kind == "memory" else sqlite_store(tmp_path)


class Responses:
    """A conversation by the responses endpoint."""

    def __init__(self, client):
        self.client = client

    async def say(self, text, key):
        made = await self.client.responses.create(
            model="main", input=text, conversation="c", **keyed(key)
        )
        return made.id, made.output_text


class Chat:
    """A conversation by the chat endpoint; its transcript is the first exchange."""

    def __init__(self, client):
        self.client = client
        self.before = []

    async def say(self, text, key):
        said = {"role": "user", "content": text}
        made = await self.client.chat.completions.create(
            model="main", messages=[*self.before, said], **keyed(key, **{"X-Session-Id": "c"})
        )
        answer = made.choices[0].message.content
        if not self.before:
            self.before = [said, {"role": "assistant", "content": answer}]
        return made.id, answer


STORES = pytest.mark.parametrize("store", ["memory", "sqlite"])
FACES = pytest.mark.parametrize("face", [Responses, Chat])


@STORES
@FACES
async def test_approve_sent_again_approves_nothing_else(ports, tmp_path, store, face):
    paid = []
    async with with_client(ports, cashier(paid), store=store_of(store, tmp_path)) as (
        rt,
        _,
        client,
    ):
        talk = face(client)
        await talk.say("refund both", "1")
        first = await talk.say("approve", "2")
        for _ in range(3):
            assert await talk.say("approve", "2") == first
            await anyio.sleep(60)
        assert paid == ["X"]
        second = await Responses(client).say("approve", "3")
        assert paid == ["X", "Y"] and second[0] != first[0]
        assert await talk.say("approve", "2") == first
        await rt.hub.close_run((await rt.find("c")).run_id)
        await anyio.sleep(1)
        assert await talk.say("approve", "2") == first
        assert len(await rt.hub.read(types="session:open")) == 1
    assert paid == ["X", "Y"]


@FACES
async def test_approve_sent_again_after_a_restart_approves_nothing_else(ports, tmp_path, face):
    paid, found, before = [], set(), []
    for life in range(3):
        store = sqlite_store(tmp_path)
        async with with_client(ports, cashier(paid), store=store) as (_, _, client):
            talk = face(client)
            if face is Chat:
                talk.before = before
            if life == 0:
                await talk.say("refund both", "1")
                before = getattr(talk, "before", [])
            found.add(await talk.say("approve", "2"))
            await anyio.sleep(1)
    assert len(found) == 1 and paid == ["X"]


@STORES
@pytest.mark.parametrize("agent", [cashier, boss])
async def test_the_same_approval_at_once_is_one(ports, tmp_path, store, agent):
    paid, found = [], []
    async with with_client(ports, agent(paid), store=store_of(store, tmp_path)) as (_, _, client):
        talk = Responses(client)
        await talk.say("refund both", "1")

        async def approve(late):
            for _ in range(late):
                await anyio.lowlevel.checkpoint()
            found.append(await talk.say("approve", "2"))

        async with anyio.create_task_group() as group:
            for late in range(0, 40, 4):
                group.start_soon(approve, late)
        assert len(found) == 10 and len(set(found)) == 1
        await anyio.sleep(1)
    assert paid == ["X"]


@STORES
async def test_what_a_child_asks_is_approved_once(ports, tmp_path, store):
    paid = []
    async with with_client(ports, boss(paid), store=store_of(store, tmp_path)) as (_, _, client):
        talk = Responses(client)
        await talk.say("go", "1")
        first = await talk.say("approve", "2")
        for _ in range(3):
            assert await talk.say("approve", "2") == first
            await anyio.sleep(60)
    assert paid == ["X"]


@asynccontextmanager
async def cancelled_after(checkpoints):
    """Cancels what is in it so much later."""
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def cancel():
                for _ in range(checkpoints):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()

            group.start_soon(cancel)
            yield
            group.cancel_scope.cancel()


@pytest.mark.parametrize("agent", [cashier, boss])
async def test_an_approval_whose_request_broke_off_anywhere_counts_once(ports, agent):
    for checkpoints in range(0, 60, 2):
        paid = []
        async with with_client(ports, agent(paid)) as (_, _, client):
            talk = Responses(client)
            await talk.say("refund both", "1")
            async with cancelled_after(checkpoints):
                await talk.say("approve", "2")
            await anyio.sleep(1)
            first = await talk.say("approve", "2")
            await anyio.sleep(1)
            assert await talk.say("approve", "2") == first
        assert paid == ["X"], checkpoints


@STORES
async def test_another_text_under_the_key_of_an_approval_is_refused(ports, tmp_path, store):
    paid = []
    async with with_client(ports, cashier(paid), store=store_of(store, tmp_path)) as (_, _, client):
        talk = Responses(client)
        await talk.say("refund both", "1")
        with pytest.raises(openai.ConflictError, match="used for something else"):
            await talk.say("approve", "1")
        await talk.say("approve", "2")
        for other in ("no, not that", "Approve"):
            with pytest.raises(openai.ConflictError, match="used for something else"):
                await talk.say(other, "2")
    assert paid == ["X"]


@STORES
async def test_words_that_deny_count_once(ports, tmp_path, store):
    paid = []
    async with with_client(ports, cashier(paid), store=store_of(store, tmp_path)) as (
        rt,
        _,
        client,
    ):
        talk = Responses(client)
        await talk.say("refund both", "1")
        found = {await talk.say("too much", "2") for _ in range(3)}
        assert len(found) == 1
        said = [x.content for x in await rt.hub.read(types="session:message")]
        assert said == ["too much"]
    assert paid == []


@pytest.mark.parametrize(
    ("store", "has_session"), [("memory", True), ("sqlite", True), ("memory", False)]
)
async def test_results_of_calls_count_once(ports, tmp_path, store, has_session):
    session = {"conversation": "c"} if has_session else {}
    async with with_client(ports, store=store_of(store, tmp_path)) as (rt, _, client):
        how = {"model": "talker", "tools": [WEATHER], **session}
        asked = await client.responses.create(input="@Rome @Oslo", **how)
        wanted = [x for x in asked.output if x.type == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": x.call_id, "output": "sunny"}
            for x in wanted
        ]
        first = await client.responses.create(input=results, **how, **keyed())
        for _ in range(3):
            await anyio.sleep(60)
            assert await client.responses.create(input=results, **how, **keyed()) == first
        with pytest.raises(openai.ConflictError, match="used for something else"):
            await client.responses.create(input="more", **how, **keyed())
        assert len(await rt.hub.read(types="session:reply")) == 2
        assert len(await rt.hub.read(types="session:open")) == 1


async def test_results_in_a_chat_without_a_session_count_once(ports):
    async with with_client(ports) as (rt, _, client):
        how = {"model": "talker", "tools": [CHAT_WEATHER]}
        said = [{"role": "user", "content": "@Rome"}]
        asked = (await client.chat.completions.create(messages=said, **how)).choices[0].message
        said += [
            asked.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": "sunny"},
        ]
        found = []

        async def tell():
            found.append(await client.chat.completions.create(messages=said, **how, **keyed()))

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(tell)
        await anyio.sleep(60)
        await tell()
        assert len({(x.id, x.choices[0].message.content) for x in found}) == 1
        assert len(await rt.hub.read(types="session:open")) == 1
