"""Very many chats of which no session is named wait for their users, and each finds its run."""

import anyio
import msgspec
import openai
import pytest
from support.openai_face import with_client

from hubbub import Agent, FunctionModel, RunContext, RunState, agent, tool
from hubbub.agents.model import AssistantMessage
from hubbub.runtime.models.scripted import call
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-05")]

DAY = 24 * 3600.0


def shop(paid):
    """Pays what the last message names, when it is allowed to."""

    @tool(approval=True)
    def refund(order: str) -> str:
        """Pay back."""
        paid.append(order)
        return "paid"

    orders = iter(range(1_000))

    def answer(request):
        last = request.messages[-1]
        if isinstance(last, AssistantMessage):
            return f"Done with {last.calls[0].arguments}."
        text = last.content
        return call("refund", order=f"last {next(orders)}" if text == "my last order" else text)

    return Agent("main", "You pay.", model=FunctionModel(answer), tools=[refund])


async def say(client, said, text, **options):
    """Add what is said, and what is answered to it."""
    said.append({"role": "user", "content": text})
    made = await client.chat.completions.create(model="main", messages=said, **options)
    said.append({"role": "assistant", "content": made.choices[0].message.content})
    return said[-1]["content"]


async def ask(client, text, before=()):
    said = [*before]
    await say(client, said, text)
    return said


@pytest.mark.parametrize("lives", [1, 2])
async def test_whoever_was_asked_first_is_found_among_very_many(ports, tmp_path, lives):
    paid, chats = [], []
    store = sqlite_store(tmp_path, ports=ports)
    async with with_client(ports, shop(paid), store=store) as (_, _, client):
        for at in range(45):
            hello = [
                {"role": "user", "content": f"I am {at}."},
                {"role": "assistant", "content": "Hello."},
            ]
            chats.append(await ask(client, f"order {at}", hello if at % 2 else ()))
        if lives == 1:
            for said in chats:
                assert "Done with" in await say(client, said, "approve")
    if lives == 2:
        store = sqlite_store(tmp_path, ports=ports)
        async with with_client(ports, shop(paid), store=store) as (_, _, client):
            for said in chats:
                assert "Done with" in await say(client, said, "approve")
    assert paid == [f"order {at}" for at in range(45)]


async def test_chats_that_began_alike_are_told_apart_by_what_they_were_asked(ports):
    paid = []
    async with with_client(ports, shop(paid)) as (rt, _, client):
        chats = [await ask(client, "my last order") for _ in range(45)]
        for said in chats:
            await say(client, said, "approve")
        assert paid == [f"last {at}" for at in range(45)]
        assert await rt.hub.ask("runtime", "prompts") == []


async def test_a_chat_that_goes_on_elsewhere_reads_no_other(ports):
    """What began otherwise is not looked at, however much of it waits."""
    paid = []
    async with with_client(ports, shop(paid)) as (rt, _, client):
        for at in range(30):
            await ask(client, f"order {at}")
        said = [
            {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."},
        ]  # fmt: skip
        reads, read = [], rt.hub.read

        async def counted(*args, **more):
            reads.append((args, more))
            return await read(*args, **more)

        rt.hub.read = counted
        before = len(reads)
        await say(client, said, "more")
        assert len(reads) - before < 10
        assert paid == []


async def test_nobody_finds_a_run_that_waits_by_the_words_of_another(ports):
    paid = []
    async with with_client(ports, shop(paid)) as (_, _, client):
        said = await ask(client, "order A")
        said[0] = {"role": "user", "content": "order B"}
        await say(client, said, "approve")
        assert paid == []


# ── questions ────────────────────────────────────────────────────────────────────────────────


def painter():
    @tool
    async def paint(state: RunState) -> str:
        """Paint."""
        size = await state.ask("How large?")
        colour = await state.ask("Which colour?", options=["red", "blue"])
        return f"{size}, {colour}"

    def answer(request):
        last = request.messages[-1]
        if isinstance(last, AssistantMessage):
            return f"Here it is: {last.calls[0].output}."
        return call("paint")

    return Agent("main", "You paint.", model=FunctionModel(answer), tools=[paint])


def code():
    @agent("main")
    async def main(input: str, ctx: RunContext) -> str:
        size = await ctx.ask("How large?")
        colour = await ctx.ask("Which colour?", options=["red", "blue"])
        return f"Here it is: {size}, {colour}."

    return main


MAKES = pytest.mark.parametrize("make", [painter, code])


@MAKES
async def test_the_next_message_of_a_chat_answers_what_its_run_asks(ports, make):
    async with with_client(ports, make()) as (rt, _, client):
        chats = [await ask(client, f"A picture for {name}.") for name in ("Ann", "Bob")]
        for said in chats:
            assert said[-1]["content"] == "How large?"
            assert "Which colour?" in await say(client, said, f"{len(said)} cm")
        for said in reversed(chats):
            assert await say(client, said, "red") == "Here it is: 2 cm, red."
        assert len(await rt.hub.read(types="session:open")) == 2
        assert await rt.hub.ask("runtime", "prompts") == []


class Size(msgspec.Struct):
    width: int


@agent("main")
async def framer(input: str, ctx: RunContext) -> str:
    size = await ctx.ask("How wide?", schema=Size)
    return f"It is {size.width} cm."


async def test_an_answer_to_code_that_does_not_fit_is_refused_and_the_question_stays(ports):
    async with with_client(ports, framer) as (rt, _, client):
        said = await ask(client, "A frame.")
        for _ in range(2):
            with pytest.raises(openai.BadRequestError, match="width"):
                await say(client, [*said], '{"width": "x"}')
        assert await say(client, said, '{"width": 7}') == "It is 7 cm."
        assert len(await rt.hub.read(types="session:open")) == 1


@MAKES
async def test_the_list_of_items_answers_what_is_asked(ports, make):
    async with with_client(ports, make()) as (rt, _, client):
        items = []
        for text in ("A picture.", "2 cm", "red"):
            items.append({"role": "user", "content": text})
            made = await client.responses.create(model="main", input=items)
            items += made.output
        assert made.output_text == "Here it is: 2 cm, red."
        assert len(await rt.hub.read(types="session:open")) == 1


@MAKES
async def test_a_question_that_nobody_comes_back_to_ends_with_its_run(ports, make):
    async with with_client(ports, make()) as (rt, _, client):
        said = await ask(client, "A picture.")
        await anyio.sleep(DAY + 60)
        assert await rt.hub.ask("runtime", "prompts") == []
        await say(client, said, "2 cm")
        assert len(await rt.hub.read(types="session:open")) == 2


async def test_instructions_that_change_hide_no_question(ports):
    async with with_client(ports, painter()) as (rt, _, client):
        said = [{"role": "system", "content": "It is 12:00."}]
        await say(client, said, "A picture.")
        said[0] = {"role": "system", "content": "It is 12:01."}
        assert "Which colour?" in await say(client, said, "2 cm")
        assert len(await rt.hub.read(types="session:open")) == 1
