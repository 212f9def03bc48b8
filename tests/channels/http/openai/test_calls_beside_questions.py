"""A step that calls a client's tool and asks its user: the client sends all that back, and goes on
in the same run, whatever it was told when, and whatever it leaves out."""

import anyio
import msgspec
import pytest
from support.openai_face import CHAT_WEATHER, WEATHER, with_client

from hubbub import Agent, FunctionModel, ScriptedModel, agent, tool
from hubbub.agents.model import AssistantMessage
from hubbub.channels.http.openai.requests.wanted import CalledFunction, Entry, split
from hubbub.runtime.models.scripted import call, reply

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.spec("W-05"),
    # On Trio the client leaves its own generators unclosed behind the end of a stream.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

LOOK = call("weather", city="Rome")
SESSION = {"X-Session-Id": "s"}


def cashier(paid, *answers):
    """Pays when it is allowed to; without ``answers`` it looks and pays at once, and says Done."""

    @tool(approval=True)
    def pay(order: str) -> str:
        """Pay."""
        paid.append(order)
        return "paid"

    def both(request):
        last = request.messages[-1]
        if isinstance(last, AssistantMessage):
            return "Done."
        return reply("", LOOK, call("pay", order="A")) if last.content == "go" else "Hello."

    model = ScriptedModel(list(answers)) if answers else FunctionModel(both)
    return Agent("main", "You pay.", model=model, tools=[pay])


class Chat:
    """A client that sends all that was said each time, the assistant's messages as they came."""

    def __init__(self, client, *, session=True, stream=False, drops=False, **options):
        self.client, self.stream, self.drops, self.options = client, stream, drops, options
        self.headers = SESSION if session else {}
        self.said, self.runs, self.calls = [], set(), []

    async def say(self, text="", *, results=True):
        """Send the results of what was called, and what the user says."""
        if results:
            self.said += [
                {"role": "tool", "tool_call_id": x.id, "content": "sunny"} for x in self.calls
            ]
        if text:
            self.said.append({"role": "user", "content": text})
        how = {
            "model": "main", "messages": self.said, "tools": [CHAT_WEATHER],
            "extra_headers": self.headers, **self.options,
        }  # fmt: skip
        if self.stream:
            async with self.client.chat.completions.stream(**how) as chunks:
                made = await chunks.get_final_completion()
        else:
            made = await self.client.chat.completions.create(**how)
        message = made.choices[0].message
        self.calls = message.tool_calls or []
        said = {"role": "assistant", "content": message.content}
        if self.calls:
            said["tool_calls"] = [x.model_dump(exclude_none=True) for x in self.calls]
            if self.drops:
                said["content"] = None
        self.said.append(said)
        self.runs.add(made.id.rpartition("_")[0])
        return message.content or ""


@pytest.mark.parametrize("session", [True, False])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("drops", [True, False])
async def test_a_chat_gives_a_result_and_then_an_approval(ports, session, stream, drops):
    paid = []
    async with with_client(ports, cashier(paid)) as (rt, _, client):
        chat = Chat(client, session=session, stream=stream, drops=drops)
        assert '"approve"' in await chat.say("go")
        assert '"approve"' in await chat.say()
        assert await chat.say("approve") == "Done."
        assert paid == ["A"] and len(chat.runs) == 1
        await chat.say("hello")
        assert len(chat.runs) == (1 if session else 2)
        asked = await rt.hub.read(types="session:prompt")
        assert len(await rt.hub.read(types="session:prompt:end")) == len(asked)


@pytest.mark.parametrize("session", [True, False])
async def test_results_and_an_approval_in_one_request_are_both_taken(ports, session):
    paid = []
    async with with_client(ports, cashier(paid)) as (_, _, client):
        chat = Chat(client, session=session)
        await chat.say("go")
        assert await chat.say("approve") == "Done."
        assert paid == ["A"] and len(chat.runs) == 1
        assert await chat.say("hello") == "Hello."
        assert len(chat.runs) == (1 if session else 2)


@pytest.mark.parametrize("session", [True, False])
async def test_results_that_are_sent_again_with_an_approval_do_not_hide_it(ports, session):
    """As by a client that was cut off before it heard what came of them."""
    paid = []
    async with with_client(ports, cashier(paid)) as (_, _, client):
        chat = Chat(client, session=session)
        await chat.say("go")
        await chat.say()
        del chat.said[-1]
        assert await chat.say("approve") == "Done."
        assert paid == ["A"] and len(chat.runs) == 1


@pytest.mark.parametrize("stored", [True, False])
async def test_the_list_of_items_that_openai_documents_is_understood(ports, stored):
    paid = []
    async with with_client(ports, cashier(paid)) as (rt, _, client):
        items, ids = [{"role": "user", "content": "go"}], []
        for said in (None, "approve", None):
            made = await client.responses.create(
                model="main", input=items, tools=[WEATHER], store=stored
            )
            ids.append(made.id.rpartition("_")[0])
            items += made.output
            items += [
                {"type": "function_call_output", "call_id": x.call_id, "output": "sunny"}
                for x in made.output
                if x.type == "function_call"
            ]
            if said:
                items.append({"role": "user", "content": said})
        assert made.output_text == "Done." and paid == ["A"] and len(set(ids)) == 1
        assert len(await rt.hub.read(types="session:prompt:end")) == 2


async def test_what_was_said_between_calls_and_results_is_history_with_them(ports):
    """Of another service's calls, or where the run that called is over."""
    heard = []

    def note(request):
        heard.extend(request.messages)
        return "Yes."

    main = Agent("main", "You note.", model=FunctionModel(note))
    called = [
        {"type": "function_call", "call_id": x, "name": "weather", "arguments": "{}"} for x in "xy"
    ]
    results = [{"type": "function_call_output", "call_id": x, "output": x * 2} for x in "xy"]
    said = {"role": "assistant", "content": "May I?"}
    async with with_client(ports, main) as (_, _, client):
        for row in ([*called, said], [called[0], said, called[1]], [said, *called]):
            heard.clear()
            await client.responses.create(
                model="main", tools=[WEATHER],
                input=[{"role": "user", "content": "go"}, *row, *results,
                       {"role": "user", "content": "and?"}],
            )  # fmt: skip
            assert next(x.text for x in heard if isinstance(x, AssistantMessage)) == "May I?"
            calls = [y for x in heard if isinstance(x, AssistantMessage) for y in x.calls]
            assert [x.output for x in calls] == ["xx", "yy"]


def test_calls_without_results_are_still_refused() -> None:
    entries = [
        Entry(role="user", text="go"),
        Entry(role="assistant", calls=(CalledFunction(id="c", name="f"),)),
        Entry(role="assistant", text="May I?"),
        Entry(role="user", text="yes"),
        Entry(role="assistant", text="Thanks."),
        Entry(role="user", text="and?"),
    ]
    with pytest.raises(Exception, match="No tool output found for function call c"):
        split(entries, "input")


# ── what else comes back otherwise than it was recorded ──────────────────────────────────────


@pytest.mark.parametrize("drops", [True, False])
async def test_words_beside_calls_may_be_left_out(ports, drops):
    paid = []
    looks = [reply("Let me look.", LOOK), reply("Once more.", LOOK), "It is sunny.", "Hello."]
    async with with_client(ports, cashier(paid, *looks)) as (_, _, client):
        chat = Chat(client, drops=drops)
        said = [await chat.say(x) for x in ("go", "", "", "hello")]
        assert said[2:] == ["It is sunny.", "Hello."] and len(chat.runs) == 1


async def test_words_that_were_not_said_are_still_another_conversation(ports):
    looks = [reply("Let me look.", LOOK), "It is sunny.", "Hello."]
    for at, other in ((1, "Let me see."), (3, "It rains."), (1, None)):
        async with with_client(ports, cashier([], *looks)) as (_, _, client):
            chat = Chat(client)
            await chat.say("go")
            await chat.say()
            chat.said[at]["content"] = other
            await chat.say("hello")
            assert len(chat.runs) == (1 if other is None else 2), other


@pytest.mark.parametrize("stream", [True, False])
async def test_a_value_behind_words_beside_calls_is_part_of_a_chat(ports, stream):
    class Weather(msgspec.Struct):
        sky: str

    value = '{"sky": "blue"}'
    model = ScriptedModel([reply("Let me look.", LOOK), value, reply("Again.", LOOK), value])
    main = Agent("main", "You look.", model=model, output=Weather)
    async with with_client(ports, main) as (_, _, client):
        chat = Chat(client, stream=stream)
        said = [await chat.say(x) for x in ("go", "", "again", "")]
        assert "blue" in said[1] and "blue" in said[3] and len(chat.runs) == 1


async def test_a_limit_counts_for_each_answer(ports):
    looks = [reply("One two three.", LOOK), "Four five six.", "Hello."]
    async with with_client(ports, cashier([], *looks)) as (_, _, client):
        chat = Chat(client, max_tokens=2)
        said = [(await chat.say(x)).strip() for x in ("go", "", "hello")]
        assert said == ["One two", "Four five", "Hello."] and len(chat.runs) == 1


async def test_an_answer_of_which_nothing_may_be_told_is_part_of_a_chat(ports):
    async with with_client(ports, cashier([], "One two.", "One three.")) as (_, _, client):
        chat = Chat(client, stop=["One"])
        await chat.say("x")
        await chat.say("y")
        assert len(chat.runs) == 1


async def test_code_that_reads_messages_is_one_conversation_of_a_chat(ports):
    @agent("main")
    async def main(input, ctx):
        ctx.say(f"Hello, {input}.")
        async for message in ctx.messages():
            if message.content == "order":
                ctx.say(f"It is {await ctx.ask('Which colour?')}.")
            else:
                ctx.say(f"You said {message.content}.")

    async with with_client(ports, main) as (_, _, client):
        said, runs = [], set()
        for text in ("Ann", "hi", "order", "red", "bye"):
            said.append({"role": "user", "content": text})
            made = await client.chat.completions.create(
                model="main", messages=said, extra_headers=SESSION
            )
            said.append({"role": "assistant", "content": made.choices[0].message.content})
            runs.add(made.id.rpartition("_")[0])
        told = [x["content"] for x in said if x["role"] == "assistant"]
        assert told == [
            "Hello, Ann.",
            "You said hi.",
            "Which colour?",
            "It is red.",
            "You said bye.",
        ]
        assert len(runs) == 1


async def test_a_question_of_a_child_that_was_told_behind_other_words_is_part_of_a_chat(ports):
    paid = []

    @tool(approval=True)
    def refund(order: str) -> str:
        """Pay back."""
        paid.append(order)
        return "paid"

    child = Agent("clerk", "You pay.", model=ScriptedModel([call("refund", order="A"), "Paid."]),
                  tools=[refund])  # fmt: skip
    answers = iter([
        reply("I ask.", call("clerk", message="go")), reply("Meanwhile.", LOOK), "Done.", "Hello.",
        "It has paid.", "Bye.",
    ])  # fmt: skip
    model = FunctionModel(lambda _: next(answers), latency=5)
    main = Agent("main", "You ask.", model=model, tools=[child.as_tool(blocking=False)])
    async with with_client(ports, main) as (_, _, client):
        chat = Chat(client)
        told = await chat.say("go")
        assert told.index("Meanwhile.") < told.index("refund")
        assert '"approve"' not in await chat.say()
        await chat.say("approve")
        await anyio.sleep(60)
        await chat.say("bye")
        assert paid == ["A"] and len(chat.runs) == 1


# ── others ───────────────────────────────────────────────────────────────────────────────────


async def allow(rt):
    """Somebody else approves what was asked first."""
    await rt.hub.approve((await rt.hub.read(types="session:prompt"))[0].prompt_id)


@pytest.mark.parametrize("shows", [True, False])
async def test_what_came_of_an_approval_by_somebody_else_may_be_seen_or_not(ports, shows):
    paid = []
    answers = [call("pay", order="A"), "Done.", "Hello."]
    async with with_client(ports, cashier(paid, *answers)) as (rt, _, client):
        chat = Chat(client)
        await chat.say("go")
        await allow(rt)
        await anyio.sleep(1)
        if shows:
            chat.said[-1]["content"] += "\n\nDone."
        assert await chat.say("hello") == "Hello."
        assert len(chat.runs) == 1


@pytest.mark.parametrize("session", [True, False])
@pytest.mark.parametrize("second", ["A", "B"])
@pytest.mark.parametrize("is_others", [True, False])
async def test_nobody_approves_what_was_asked_since(ports, session, second, is_others):
    """Not by the word that was meant for what somebody else has approved meanwhile, nor by a
    request that is sent again, though the second question may read as the first."""
    paid = []
    answers = [call("pay", order="A"), call("pay", order=second), "Done.", "Other.", "Other."]
    async with with_client(ports, cashier(paid, *answers)) as (rt, _, client):
        chat = Chat(client, session=session)
        await chat.say("go")
        if is_others:
            await allow(rt)
            await anyio.sleep(1)
        else:
            await chat.say("approve")
            del chat.said[-2:]
        await chat.say("approve")
        assert paid == ["A"]


async def test_nobody_approves_what_its_transcript_does_not_show(ports):
    paid = []
    async with with_client(ports, cashier(paid)) as (_, _, client):
        chat = Chat(client, drops=True)
        await chat.say("go")
        await chat.say()
        del chat.said[-1]
        await chat.say("approve")
        assert paid == []
