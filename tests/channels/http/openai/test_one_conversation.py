"""A chat that repeats what it was told stays one conversation, whatever it was told it by."""

import msgspec
import pytest
from support.openai_face import with_client

from hubbub import Agent, FunctionModel, ScriptedModel, tool
from hubbub.agents.model import AssistantMessage
from hubbub.runtime.models.scripted import call, reply

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.spec("W-05"),
    # On Trio the client leaves its own generators unclosed behind the end of a stream.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@tool(approval=True)
def refund(order: str) -> str:
    """Pay back."""
    return f"{order} is paid"


@tool
def sell(article: str) -> str:
    """Sell."""
    return f"sold: {article}"


class Chat:
    """A client that sends all that was said each time, as chats do."""

    def __init__(self, client, model, *, stream=False, session="c", **options):
        self.client, self.model, self.stream, self.options = client, model, stream, options
        self.headers = {"X-Session-Id": session} if session else {}
        self.said, self.runs = [], set()

    async def say(self, text):
        self.said.append({"role": "user", "content": text})
        made = await self.client.chat.completions.create(
            model=self.model, messages=self.said, extra_headers=self.headers,
            stream=self.stream, **self.options,
        )  # fmt: skip
        if self.stream:
            told = ""
            async for chunk in made:
                run = chunk.id
                told += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        else:
            run, told = made.id, made.choices[0].message.content
        self.said.append({"role": "assistant", "content": told})
        self.runs.add(run.rpartition("_")[0])
        return told


@pytest.mark.parametrize("stream", [False, True])
async def test_approvals_are_part_of_a_chat(ports, stream):
    calls = [call("refund", order="A"), "Done.", "Hello.", call("refund", order="B"), "Done, too."]
    agent = Agent("support", "You help.", model=ScriptedModel(calls), tools=[refund])
    async with with_client(ports, agent) as (_, _, client):
        chat = Chat(client, "support", stream=stream)
        told = [
            await chat.say(x) for x in ("refund A", "approve", "hello", "refund B", " Approve ")
        ]
        assert told[1:3] == ["Done.", "Hello."] and told[4] == "Done, too."
        assert len(chat.runs) == 1


async def test_approvals_of_two_calls_are_given_one_after_the_other(ports):
    calls = [
        reply("", call("refund", order="A"), call("refund", order="B")),
        "Both are done.",
        "Bye.",
    ]
    agent = Agent("support", "You help.", model=ScriptedModel(calls), tools=[refund])
    async with with_client(ports, agent) as (_, _, client):
        chat = Chat(client, "support")
        told = [await chat.say(x) for x in ("two", "approve", "approve", "bye")]
        assert told[2:] == ["Both are done.", "Bye."] and len(chat.runs) == 1


async def test_an_approval_by_somebody_else_is_no_message_of_the_client(ports):
    calls = [call("refund", order="A"), "Done.", "Hello."]
    agent = Agent("support", "You help.", model=ScriptedModel(calls), tools=[refund])
    async with with_client(ports, agent) as (rt, _, client):
        chat = Chat(client, "support")
        await chat.say("refund A")
        (asked,) = await rt.hub.read(types="session:prompt")
        await rt.hub.approve(asked.prompt_id)
        await rt.result(asked.run_id)
        chat.said[-1]["content"] += "\n\nDone."  # As its page may show it.
        assert await chat.say("hello") == "Hello." and len(chat.runs) == 1


class Price(msgspec.Struct):
    article: str
    euros: float


@pytest.mark.parametrize("stream", [False, True])
async def test_a_value_is_part_of_a_chat(ports, stream):
    bad, good = '{"article": "teapot"}', '{"article":  "teapot", "euros": 4.50}'
    model = ScriptedModel([good, bad, good, good, good])
    agent = Agent("fixer", "You price.", model=model, output=Price)
    async with with_client(ports, agent) as (_, _, client):
        chat = Chat(client, "fixer", stream=stream)
        for text in "wxyz":
            await chat.say(text)
        assert len(chat.runs) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_what_a_stop_tool_returns_is_part_of_a_chat(ports, stream):
    model = FunctionModel(lambda request: call("sell", article=request.messages[-1].content))
    agent = Agent("seller", "You sell.", model=model, tools=[sell], stop_tool="sell")
    async with with_client(ports, agent) as (_, _, client):
        chat = Chat(client, "seller", stream=stream)
        assert [await chat.say(x) for x in "xyz"] == ["sold: x", "sold: y", "sold: z"]
        assert len(chat.runs) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("limit", [{"max_tokens": 2}, {"stop": ["three"]}], ids=str)
async def test_an_answer_that_was_cut_for_its_client_is_part_of_a_chat(ports, stream, limit):
    agent = Agent("teller", "You tell.", model=FunctionModel(lambda _: "one two three four"))
    async with with_client(ports, agent) as (_, _, client):
        chat = Chat(client, "teller", stream=stream, **limit)
        assert {(await chat.say(x)).strip() for x in "xyz"} == {"one two"}
        assert len(chat.runs) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stop", ["one", "two"])
async def test_nothing_is_told_behind_a_stop_wherever_it_is(ports, stop, stream):
    agent = Agent("teller", "You tell.", model=FunctionModel(lambda _: "one two three"))
    async with with_client(ports, agent) as (_, _, client):
        chat = Chat(client, "teller", stream=stream, stop=[stop])
        assert ((await chat.say("x")) or "").strip() == ("" if stop == "one" else "one")


async def test_another_transcript_is_still_another_conversation(ports):
    agent = Agent("teller", "You tell.", model=FunctionModel(lambda _: "one two three four"))
    async with with_client(ports, agent) as (_, _, client):
        chat = Chat(client, "teller")
        await chat.say("x")
        chat.said[-1]["content"] = "one two"  # It was not cut for this client.
        await chat.say("y")
        assert len(chat.runs) == 2


# ── without a session ────────────────────────────────────────────────────────────────────────


def cashier(paid):
    """An agent that pays when it is told to, and says what came of it."""

    @tool(approval=True)
    def pay(order: str) -> str:
        """Pay."""
        paid.append(order)
        return f"{order} is paid"

    def answer(request):
        last = request.messages[-1]
        if isinstance(last, AssistantMessage):
            return "; ".join(each.output for each in last.calls)
        if last.content.startswith("pay "):
            return call("pay", order=last.content[4:])
        return f"heard {last.content}"

    return Agent("cashier", "You pay.", model=FunctionModel(answer), tools=[pay])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_without_a_session_approves_or_denies_what_it_was_asked(ports, stream):
    paid = []
    async with with_client(ports, cashier(paid)) as (rt, _, client):
        chat = Chat(client, "cashier", stream=stream, session="")
        told = [await chat.say(x) for x in ("pay A", "approve", "hello", "pay B", "too much")]
        assert told[1:3] == ["A is paid", "heard hello"] and "too much" in told[4]
        assert len(await rt.hub.read(types="session:prompt:end")) == 2, "nothing is open"
    assert paid == ["A"]


async def test_a_client_without_a_session_approves_nothing_of_another_transcript(ports):
    paid = []
    async with with_client(ports, cashier(paid)) as (_, _, client):
        one, other = (Chat(client, "cashier", session="") for _ in range(2))
        await one.say("pay A")
        await other.say("pay B")
        one.said[0]["content"] = "pay  B"
        assert await one.say("approve") == "heard approve"
        assert paid == []
        assert await other.say("approve") == "B is paid"
    assert paid == ["B"]
