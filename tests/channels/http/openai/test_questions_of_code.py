"""What a code agent asks its user over /v1 is answered by the next message, as an agent's is."""

import anyio
import msgspec
import openai
import pytest
from support.openai_face import with_client

from hubbub import RunContext, agent

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-05")]


class Size(msgspec.Struct):
    width: int


@agent("deployer")
async def deployer(input: str, ctx: RunContext) -> str:
    first = await ctx.ask(f"Deploy {input}?", options=["yes", "no"])
    second = await ctx.ask("Really?")
    return f"{first}, {second}"


@agent("clerk")
async def clerk(input: str, ctx: RunContext) -> None:
    ctx.say(f"Hello, {input}.")
    async for message in ctx.messages():
        if message.content == "order":
            size = await ctx.ask("How wide?", schema=Size)
            ctx.say(f"Ordered: {size.width}.")
        else:
            ctx.say(f"You said {message.content}.")


async def test_each_question_is_answered_by_the_next_message(ports):
    async with with_client(ports, deployer) as (_, _, client):
        found = [await client.responses.create(model="deployer", input="v2", conversation="c")]
        for text in ("yes", "I said so"):
            with anyio.fail_after(60):
                found.append(
                    await client.responses.create(
                        model="deployer", input=text, previous_response_id=found[-1].id
                    )
                )
        said = [made.output_text for made in found]
        assert "Deploy v2?" in said[0] and said[1:] == ["Really?", "yes, I said so"]
        assert [made.status for made in found] == ["completed"] * 3
        again = [(await client.responses.retrieve(made.id)).output_text for made in found]
        assert again == said


async def test_a_chat_answers_what_code_asks(ports):
    said = []
    async with with_client(ports, deployer) as (_, _, client):
        for text in ("v2", "yes", "sure"):
            said.append({"role": "user", "content": text})
            made = await client.chat.completions.create(
                model="deployer", messages=said, extra_headers={"X-Session-Id": "c"}
            )
            answer = made.choices[0].message.content
            said.append({"role": "assistant", "content": answer})
    assert answer == "yes, sure"


async def test_code_that_reads_messages_asks_in_between_and_reads_on(ports):
    async with with_client(ports, clerk) as (_, _, client):
        heard = []
        await client.responses.create(model="clerk", input="Ann", conversation="c")
        for text in ("hi", "order", "400", "hi again"):
            with anyio.fail_after(60):
                made = await client.responses.create(
                    model="clerk",
                    conversation="c",
                    input='{"width": 400}' if text == "400" else text,
                )
            heard.append(made.output_text)
    assert heard == ["You said hi.", "How wide?", "Ordered: 400.", "You said hi again."]


async def test_an_answer_that_does_not_fit_is_refused_and_the_question_stays(ports):
    async with with_client(ports, clerk) as (_, _, client):
        await client.responses.create(model="clerk", input="Ann", conversation="c")
        await client.responses.create(model="clerk", input="order", conversation="c")
        with anyio.fail_after(60), pytest.raises(openai.BadRequestError, match="width"):
            await client.responses.create(model="clerk", input='{"width": "x"}', conversation="c")
        with anyio.fail_after(60):
            made = await client.responses.create(
                model="clerk", input='{"width": 7}', conversation="c"
            )
        assert made.output_text == "Ordered: 7."


async def test_an_answer_that_is_sent_again_answers_nothing_else(ports):
    async with with_client(ports, deployer) as (_, _, client):
        await client.responses.create(model="deployer", input="v2", conversation="c")
        headers = {"Idempotency-Key": "k"}
        with anyio.fail_after(60):
            made = [
                await client.responses.create(
                    model="deployer", input="yes", conversation="c", extra_headers=headers
                )
                for _ in range(2)
            ]
    assert made[0].id == made[1].id
    assert [each.output_text for each in made] == ["Really?", "Really?"]
