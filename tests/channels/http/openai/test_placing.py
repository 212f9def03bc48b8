"""Which run a request is told to."""

import anyio
import openai
import pytest
from support.agents import model_agent
from support.openai_face import CHAT_WEATHER, WEATHER, talker, with_client

from hubbub import FunctionModel, Retention, agent
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-05")]

SESSION = {"X-Session-Id": "s1"}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def words(completion):
    return completion.choices[0].message.content


async def opened(rt):
    return len(await rt.hub.read(types="session:open"))


async def test_a_chat_that_grows_is_one_conversation(ports):
    async with with_client(ports) as (rt, _, client):
        said = []
        for text in ("one", "two sum", "three"):
            said.append(user(text))
            made = await client.chat.completions.create(
                model="talker", messages=[{"role": "system", "content": "Today is Monday."}, *said],
                extra_headers=SESSION,
            )  # fmt: skip
            said.append(assistant(words(made)))
        assert said[3]["content"] == "Let me look.\n\nIt is 3."
        assert await opened(rt) == 1
        (found,) = (await rt.conversations()).conversations
        assert found.key == "s1"


@pytest.mark.parametrize("changed", [None, 1, -2], ids=["whole", "old", "new"])
async def test_a_chat_is_one_conversation_when_its_old_turns_have_gone(ports, changed):
    """What was said in turns that are left must be as it was."""
    async with with_client(ports, retention=Retention(keep_turns=2)) as (rt, _, client):
        said, how = [], {"model": "talker", "extra_headers": SESSION}
        for turn in range(8):
            said.append(user(f"turn {turn}"))
            made = await client.chat.completions.create(messages=said, **how)
            said.append(assistant(words(made)))
            await anyio.sleep(120)
        assert rt.hub.statistics().removed.cuts > 0
        assert await opened(rt) == 1
        if changed is not None:
            said[changed] = {**said[changed], "content": "something else"}
        await client.chat.completions.create(messages=[*said, user("and?")], **how)
        assert await opened(rt) == (2 if changed == -2 else 1)


async def test_a_title_that_is_asked_for_is_no_part_of_the_conversation(ports):
    """As Open WebUI asks: another transcript in the same chat."""
    async with with_client(ports) as (rt, _, client):
        how = {"model": "talker", "extra_headers": {"X-OpenWebUI-Chat-Id": "chat"}}
        made = await client.chat.completions.create(messages=[user("one")], **how)
        title = await client.chat.completions.create(
            messages=[user("### Task: Generate a title"), assistant("?"), user("title")], **how
        )
        again = await client.chat.completions.create(
            messages=[user("one"), assistant(words(made)), user("two")], **how
        )
        assert words(title) == "title (3)"
        assert words(again) == "two (3)"
        assert await opened(rt) == 2


@pytest.mark.parametrize(
    "said",
    [
        [user("other"), assistant("one (1)"), user("two")],
        [user("one"), assistant("edited"), user("two")],
        [user("one"), assistant("one (1)")],
        [user("two")],
        [user("one"), user("one"), assistant("one (1)"), user("two")],
    ],
)
async def test_a_chat_that_was_edited_has_a_run_of_its_own(ports, said):
    async with with_client(ports) as (rt, _, client):
        how = {"model": "talker", "extra_headers": SESSION}
        await client.chat.completions.create(messages=[user("one")], **how)
        await client.chat.completions.create(messages=said, **how)
        assert await opened(rt) == 2
        kept = await rt.find("s1")
        assert len(await rt.hub.read(kept.run_id, types=("session:open", "session:message"))) == 1


async def test_a_session_begins_in_the_middle_with_the_history_it_is_given(ports):
    async with with_client(ports) as (rt, _, client):
        how = {"model": "talker", "extra_headers": SESSION}
        said = [user("one"), assistant("first"), user("two")]
        made = await client.chat.completions.create(messages=said, **how)
        assert words(made) == "two (3)"
        said += [assistant(words(made)), user("three")]
        assert words(await client.chat.completions.create(messages=said, **how)) == "three (5)"
        assert await opened(rt) == 1


async def test_without_a_session_each_chat_has_its_run_which_is_over_with_it(ports):
    async with with_client(ports) as (rt, _, client):
        for _ in range(2):
            await client.chat.completions.create(model="talker", messages=[user("one")])
        assert await opened(rt) == 2
        assert len(await rt.hub.read(types="agent:complete")) == 2
        assert (await rt.conversations()).conversations == ()


async def test_another_agent_continues_in_a_run_of_its_own(ports):
    async with with_client(ports, talker("one"), talker("two")) as (rt, _, client):
        first = await client.responses.create(model="one", input="a", conversation="c")
        other = await client.responses.create(model="two", input="b", conversation="c")
        third = await client.responses.create(model="two", input="c", previous_response_id=first.id)
        again = await client.responses.create(model="one", input="d", conversation="c")
        assert [x.output_text for x in (other, third, again)] == ["b (3)", "c (3)", "d (3)"]
        assert await opened(rt) == 3


async def test_other_tools_are_a_run_of_their_own(ports):
    async with with_client(ports) as (rt, _, client):
        first = await client.responses.create(model="talker", input="a")
        second = await client.responses.create(
            model="talker", input="@Rome", previous_response_id=first.id, tools=[WEATHER]
        )
        assert second.output[-1].type == "function_call"
        assert await opened(rt) == 2


async def test_a_run_has_the_tools_it_was_opened_with(ports):
    async with with_client(ports) as (rt, _, client):
        first = await client.responses.create(model="talker", input="a", tools=[WEATHER])
        await client.responses.create(
            model="talker", input="b", previous_response_id=first.id, tools=[WEATHER]
        )
        await client.responses.create(model="talker", input="c", conversation="c", tools=[WEATHER])
        await client.responses.create(model="talker", input="d", conversation="c", tools=[WEATHER])
        assert await opened(rt) == 2


async def test_two_that_continue_from_one_response_do_not_meet(ports):
    """Only one of them goes on in its run, also where both come at once."""
    async with with_client(ports) as (rt, _, client):
        first = await client.responses.create(model="talker", input="a")
        found = []

        async def go_on(text):
            found.append(await client.responses.create(
                model="talker", input=text, previous_response_id=first.id
            ))  # fmt: skip

        async with anyio.create_task_group() as group:
            for text in ("b", "c", "c"):
                group.start_soon(go_on, text)
        assert sorted(x.output_text for x in found) == ["b (3)", "c (3)", "c (3)"]
        assert await opened(rt) == 3


async def test_a_request_that_is_repeated_with_its_key_counts_once(ports):
    async with with_client(ports) as (_, _, client):
        key = {"Idempotency-Key": "k1"}
        first = await client.responses.create(model="talker", input="a", extra_headers=key)
        again = await client.responses.create(model="talker", input="a", extra_headers=key)
        chats = [
            await client.chat.completions.create(
                model="talker", messages=[user("x")], extra_headers={"Idempotency-Key": "k2"}
            )
            for _ in range(2)
        ]
        said = [
            await client.responses.create(
                model="talker",
                input="b",
                conversation="c",
                extra_headers={"Idempotency-Key": "k4"},
            )
            for _ in range(3)
        ]
        more = [
            await client.responses.create(
                model="talker", input="c", previous_response_id=first.id,
                extra_headers={"Idempotency-Key": "k3"},
            )
            for _ in range(2)
        ]  # fmt: skip
        assert first == again
        assert chats[0] == chats[1]
        assert said[0] == said[1] == said[2]
        assert more[0].output_text == more[1].output_text == "c (3)"
        with pytest.raises(openai.ConflictError):
            await client.responses.create(model="talker", input="other", extra_headers=key)


@pytest.mark.parametrize(
    "more",
    [
        {"model": "other"}, {"input": "b"}, {"conversation": "d"}, {"conversation": None},
        {"tools": [WEATHER]}, {"instructions": "Be brief."}, {"background": True},
        {"metadata": {"a": "b"}}, {"input": [user("x"), assistant("y"), user("a")]},
    ],
    ids=str,
)  # fmt: skip
async def test_another_request_under_the_same_key_is_refused(ports, more):
    async with with_client(ports, talker(), talker("other")) as (rt, _, client):
        body = {"model": "talker", "input": "a", "conversation": "c"}
        how = {"extra_headers": {"Idempotency-Key": "k"}}
        await client.responses.create(**body, **how)
        with pytest.raises(openai.ConflictError, match="used for something else"):
            await client.responses.create(**(body | more), **how)
        assert await opened(rt) == 1


async def test_a_request_that_is_repeated_later_is_told_what_was_said_then(ports):
    """Though its conversation has gone on, or is over: streamed or not is the same request."""
    async with with_client(ports) as (rt, _, client):
        body = {"model": "talker", "input": "a", "conversation": "c"}
        how = {"extra_headers": {"Idempotency-Key": "k"}}
        await client.responses.create(**(body | {"input": "before"}))
        first = await client.responses.create(**body, **how)
        later = await client.responses.create(**(body | {"input": "more"}))
        assert (await client.responses.create(**body, **how)) == first
        (await rt.hub.close_run((await rt.find("c")).run_id)).raise_if_rejected()
        await anyio.sleep(1)
        assert (await client.responses.create(**body, **how)) == first
        raw = await client.responses.with_raw_response.create(**body, **how, stream=True)
        assert first.id in (await raw.http_response.aread()).decode() and first.id != later.id
        assert await opened(rt) == 1


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_the_same_request_at_once_is_one(ports, store, tmp_path):
    store = "memory" if store == "memory" else sqlite_store(tmp_path)
    async with with_client(ports, store=store) as (rt, _, client):
        before = await client.responses.create(model="talker", input="a", conversation="c")
        for n, more in enumerate(({"conversation": "c"}, {"previous_response_id": before.id}, {})):
            found = []

            async def ask(more=more, key=f"k{n}", found=found):
                made = await client.responses.create(
                    model="talker", input="more", extra_headers={"Idempotency-Key": key}, **more
                )
                found.append((made.id, made.output_text))

            async with anyio.create_task_group() as group:
                for _ in range(8):
                    group.start_soon(ask)
            assert len(set(found)) == 1
        assert len(await rt.hub.read(types=("session:open", "session:message"))) == 4


async def test_results_of_a_call_that_are_sent_at_once_are_taken_once(ports):
    async with with_client(ports) as (rt, _, client):
        how = {"model": "talker", "conversation": "c", "tools": [WEATHER]}
        asked = await client.responses.create(input="@Rome", **how)
        (wanted,) = [x for x in asked.output if x.type == "function_call"]
        result = {"type": "function_call_output", "call_id": wanted.call_id, "output": "sunny"}
        found = []

        async def answer():
            made = await client.responses.create(
                input=[result], extra_headers={"Idempotency-Key": "k"}, **how
            )
            found.append((made.id, made.output_text))

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(answer)
        assert len(set(found)) == 1 and "sunny" in found[0][1]
        assert await opened(rt) == 1


async def test_instructions_are_heard_when_a_run_begins(ports):
    heard = []

    def note(request):
        heard.append([x.content for x in request.messages if hasattr(x, "content")])
        return "yes"

    agent_ = model_agent(FunctionModel(note), name="talker")
    async with with_client(ports, agent_) as (_, _, client):
        first = await client.responses.create(model="talker", input="a", instructions="Be brief.")
        later = await client.responses.with_raw_response.create(
            model="talker", input="b", previous_response_id=first.id, instructions="Be long.",
            temperature=0.5,
        )  # fmt: skip
        assert heard[0] == ["Instructions of the caller:\nBe brief.", "a"]
        assert heard[1][0] == heard[0][0] and heard[1][-1] == "b"
        assert set(later.headers["x-hubbub-ignored"].split(", ")) == {"instructions", "temperature"}
        assert first.instructions == "Be brief."


async def test_an_agent_of_code_is_told_what_is_new(ports):
    @agent("coder")
    async def coder(input, ctx):
        return f"ran {input}"

    async with with_client(ports, coder) as (_, _, client):
        made = await client.chat.completions.with_raw_response.create(
            model="coder", messages=[user("old"), assistant("ran old"), user("new")]
        )
        assert words(made.parse()) == "ran new"
        assert made.headers["x-hubbub-ignored"] == "history"
        with pytest.raises(openai.BadRequestError, match="no conversation"):
            await client.chat.completions.create(
                model="coder", messages=[user("x")], tools=[CHAT_WEATHER]
            )


async def test_a_conversation_that_was_closed_begins_anew(ports):
    async with with_client(ports) as (rt, _, client):
        first = await client.responses.create(model="talker", input="a", conversation="c")
        run = await rt.find("c")
        await rt.hub.terminate(run.run_id)
        new = await client.responses.create(model="talker", input="b", conversation="c")
        old = await client.responses.create(
            model="talker", input="d", previous_response_id=first.id
        )
        assert (new.output_text, old.output_text) == ("b (1)", "d (3)")
        assert await client.responses.retrieve(first.id) == first


async def test_a_response_that_is_under_way_is_steered(ports):
    async with with_client(ports, talker(latency=10.0)) as (rt, _, client):
        begun = await client.responses.create(model="talker", input="a", background=True)
        steered = await client.responses.create(
            model="talker", input="b", previous_response_id=begun.id
        )
        assert steered.output_text == "b (3)"
        assert (await client.responses.retrieve(begun.id)).output_text.startswith("a (1)")
        assert await opened(rt) == 1


async def test_tool_choice_none_gives_no_tool(ports):
    async with with_client(ports) as (_, _, client):
        made = await client.chat.completions.create(
            model="talker", messages=[user("hi")], tools=[CHAT_WEATHER], tool_choice="none"
        )
        assert words(made) == "hi (1)"
