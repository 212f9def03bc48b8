"""When an answer is over, and what it says, for whatever an agent does."""

import anyio
import openai
import pytest
from support.agents import model_agent
from support.frames import complete, frame, use
from support.openai_face import WEATHER, talker, with_client

from hubbub import Agent, FunctionModel, RunState, ScriptedModel, agent, tool
from hubbub.agents.model import AssistantMessage
from hubbub.runtime.models.scripted import Fault, call, reply

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.spec("W-05"),
    # On Trio the client leaves its own generators unclosed behind the end of a stream.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


async def say(client, text, model="main", **how):
    """What is answered, which is the same when it is read again and when it is streamed."""
    made = await client.responses.create(model=model, input=text, conversation="c", **how)
    assert await client.responses.retrieve(made.id) == made
    stream = await client.responses.retrieve(made.id, stream=True)
    events = [event async for event in stream]
    assert events[-1].response == made
    told = [x.delta for x in events if x.type == "response.output_text.delta"]
    assert "".join(told) == made.output_text
    return made


async def text_of(client, text, **how):
    made = await say(client, text, **how)
    return [part.text for item in made.output if item.type == "message" for part in item.content]


async def test_whoever_has_the_conversation_answers(ports):
    """A frame takes over, talks with the user, and gives back."""
    helper = ScriptedModel(["What size?", "And the colour?", complete("it is ordered")])
    main = ScriptedModel([use("helper"), "Done: it is ordered.", "Bye."])
    agents = frame(main, name="main", agents=("helper",)), frame(helper, name="helper")
    async with with_client(ports, *agents) as (_, _, client):
        said = [await text_of(client, text) for text in ("order", "large", "red", "thanks")]
    assert said == [["What size?"], ["And the colour?"], ["Done: it is ordered."], ["Bye."]]


@pytest.mark.parametrize("is_late", [False, True], ids=["has spoken", "is at work"])
async def test_an_answer_is_over_when_the_next_frame_has_the_conversation(ports, is_late):
    """Frames of one parallel step lie beside each other; the second has spoken before, or not."""

    @tool
    async def give(who: str, state: RunState) -> str:
        """Give the conversation away."""
        await anyio.sleep(0.5 if who == "colour" else 0.0)
        state.use_agent(who, "Go.")

    size = ScriptedModel(["What size?", complete("large"), "No."])
    colour = ScriptedModel(["What colour?", complete("red")], latency=60.0 * is_late)
    calls = [call("give", who=who) for who in ("size", "colour")]
    main = frame(
        ScriptedModel([reply("", *calls), "It is ordered.", "Bye."]), give, name="main",
        agents=("size", "colour"), parallel_tool_calls=True,
    )  # fmt: skip
    agents = main, frame(size, name="size"), frame(colour, name="colour")
    async with with_client(ports, *agents) as (_, _, client):
        said = [await text_of(client, text) for text in ("order", "large", "red", "thanks")]
    assert said == [
        ["What size?"], ["What colour?" if is_late else "large"], ["It is ordered."], ["Bye."],
    ]  # fmt: skip


async def test_an_approval_is_asked_for_in_words_and_given_by_one(ports):
    paid = []

    @tool(approval=True)
    def refund(amount: int) -> str:
        """Pay back."""
        paid.append(amount)
        return f"{amount} paid"

    model = ScriptedModel(
        [reply("One moment.", call("refund", amount=5), call("refund", amount=7)), "All done."]
    )
    async with with_client(ports, model_agent(model, refund, name="main")) as (_, _, client):
        asked = await text_of(client, "both")
        assert asked[0] == "One moment." and len(asked) == 3
        assert '{"amount":5}' in asked[1] and 'Say "approve"' in asked[1]
        second = await text_of(client, "Approve")
        assert '{"amount":7}' in second[0] and len(second) == 1
        assert await text_of(client, "no, that is too much") == ["All done."]
    assert paid == [5]


async def test_a_question_is_asked_and_the_next_message_answers_it(ports):
    @tool
    async def paint(state: RunState) -> str:
        """Paint."""
        return "painted " + await state.ask("Which colour?", options=["red", "blue"])

    model = ScriptedModel([call("paint"), "It is done."])
    async with with_client(ports, model_agent(model, paint, name="main")) as (_, _, client):
        assert await text_of(client, "paint") == ["Which colour?\n\n- red\n- blue"]
        assert await text_of(client, "red") == ["It is done."]


async def test_a_message_that_answers_a_question_is_the_latest(ports):
    """The run notes it as a reply, too: nobody else has said that."""

    @tool
    async def paint(state: RunState) -> str:
        """Paint."""
        return "painted " + await state.ask("Which colour?")

    model = ScriptedModel([call("paint"), "It is done.", "Hello."])
    async with with_client(ports, model_agent(model, paint, name="main")) as (rt, _, client):
        made = await client.responses.create(model="main", input="paint")
        for text in ("red", "hello"):
            made = await client.responses.create(
                model="main", input=text, previous_response_id=made.id
            )
        assert made.output_text == "Hello."
        assert len(await rt.hub.read(types="session:open")) == 1


@pytest.mark.parametrize(
    ("answered", "result"), [("approve", "wiped"), ("wait", "not run: denied: wait")]
)
async def test_a_child_that_is_waited_for_asks_the_user(ports, answered, result):
    @tool(approval=True)
    def wipe() -> str:
        """Wipe."""
        return "wiped"

    cleaner = ScriptedModel([call("wipe"), "wiped it"])
    child = Agent("cleaner", "You clean.", model=cleaner, tools=[wipe])
    model = ScriptedModel([call("cleaner", message="go"), "Finished."])
    main = Agent("main", "You delegate.", model=model, tools=[child.as_tool(blocking=True)])
    async with with_client(ports, main) as (rt, _, client):
        asked = await text_of(client, "clean")
        assert "wipe" in asked[0]
        assert await text_of(client, answered) == ["Finished."]
        results = await rt.hub.read(types="agent:tool:complete")
    assert results[0].output == result


async def test_an_agent_that_fails_says_so(ports):
    model = ScriptedModel([Fault("auth", times=None, message="no")])
    async with with_client(ports, model_agent(model, name="main")) as (_, _, client):
        made = await say(client, "x")
        assert (made.status, made.error.code) == ("failed", "server_error")
        assert made.error.message
        with pytest.raises(openai.APIStatusError) as raised:
            await client.chat.completions.create(
                model="main", messages=[{"role": "user", "content": "x"}]
            )
        assert raised.value.status_code == 502
        assert raised.value.response.headers["x-should-retry"] == "false"
        stream = await client.chat.completions.create(
            model="main", messages=[{"role": "user", "content": "x"}], stream=True
        )
        with pytest.raises(openai.APIError):
            [chunk async for chunk in stream]


async def test_an_answer_that_a_provider_cuts_is_incomplete(ports):
    model = ScriptedModel([reply("Once upon", stop_reason="length")] * 2)
    async with with_client(ports, model_agent(model, name="main")) as (_, _, client):
        made = await say(client, "x")
        assert (made.status, made.incomplete_details.reason) == ("incomplete", "max_output_tokens")


async def test_an_agent_of_code_answers_by_what_it_says_or_returns(ports):
    @agent("sayer")
    async def sayer(input, ctx):
        ctx.say(f"got {input}")
        async for message in ctx.messages():
            if message.content == "bye":
                return "never mind"
            await anyio.sleep(2)
            ctx.say(f"echo {message.content}")
        return "over"

    @agent("adder")
    async def adder(input, ctx):
        return {"sum": 3}

    async with with_client(ports, sayer, adder) as (_, _, client):
        said = [await text_of(client, text, model="sayer") for text in ("a", "b", "c", "bye")]
        assert said == [["got a"], ["echo b"], ["echo c"], ["never mind"]]
        made = await client.responses.create(model="adder", input="x")
        assert made.output_text == '{"sum":3}'


async def test_tools_of_the_agent_run_unseen(ports):
    async with with_client(ports, talker("main")) as (_, _, client):
        made = await say(client, "sum")
        assert [item.type for item in made.output] == ["reasoning", "message", "message"]
        assert made.output_text == "Let me look.It is 3."
        assert made.usage.output_tokens == 10


async def test_a_message_while_calls_wait_gives_them_up(ports):
    async with with_client(ports, talker("main")) as (_, _, client):
        asked = await say(client, "@Rome", tools=[WEATHER])
        assert asked.output[-1].type == "function_call"
        made = await say(client, "never mind", tools=[WEATHER])
        assert made.status == "completed" and "never mind" not in made.output[0].type
        late = {
            "type": "function_call_output", "call_id": asked.output[-1].call_id, "output": "hot",
        }  # fmt: skip
        with pytest.raises(openai.BadRequestError, match="No tool call found"):
            await client.responses.create(
                model="main", input=[late], previous_response_id=asked.id, tools=[WEATHER]
            )


async def test_results_that_are_sent_again_count_once(ports):
    async with with_client(ports, talker("main")) as (rt, _, client):
        asked = await say(client, "@Rome", tools=[WEATHER])
        result = {
            "type": "function_call_output", "call_id": asked.output[-1].call_id, "output": "hot",
        }  # fmt: skip
        how = {"model": "main", "previous_response_id": asked.id, "tools": [WEATHER]}
        made = [await client.responses.create(input=[result], **how) for _ in range(2)]
        assert made[0] == made[1]
        with pytest.raises(openai.BadRequestError, match="No tool call found"):
            await client.responses.create(input=[{**result, "output": "cold"}], **how)
        assert len(await rt.hub.read(types="session:reply")) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_no_more_words_are_told_than_tokens_are_asked_for(ports, stream):
    async with with_client(ports, talker(latency=2.0, chunk=2)) as (_, _, client):
        made = await client.chat.completions.create(
            model="talker", messages=[{"role": "user", "content": "a b  c d e f"}],
            max_tokens=3, stream=stream,
        )  # fmt: skip
        if stream:
            chunks = [chunk.choices[0] async for chunk in made]
            told = "".join(x.delta.content or "" for x in chunks), chunks[-1].finish_reason
        else:
            told = made.choices[0].message.content, made.choices[0].finish_reason
        assert told == ("a b  c ", "length")
        cut = await client.responses.create(model="talker", input="a b c", max_output_tokens=2)
        assert (cut.status, cut.output_text) == ("incomplete", "a b ")
        assert await client.responses.retrieve(cut.id) == cut


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("stop", "told"), [("d e", "a b c "), (["zz", "b"], "a "), ("x", None)])
async def test_nothing_is_told_from_a_stop_text_on(ports, stream, stop, told):
    async with with_client(ports, talker(latency=2.0, chunk=3)) as (_, _, client):
        how = {
            "model": "talker", "messages": [{"role": "user", "content": "a b c d e f"}],
            "stop": stop, "stream": stream,
        }  # fmt: skip
        made = await client.chat.completions.create(**how)
        if stream:
            text = "".join([x.choices[0].delta.content or "" async for x in made])
        else:
            text = made.choices[0].message.content
        assert text == ("a b c d e f (1)" if told is None else told)


async def test_a_turn_is_cancelled_by_others(ports):
    async with with_client(ports, talker("main", latency=50.0)) as (rt, _, client):
        begun = await client.responses.create(model="main", input="x", background=True)
        run_id = begun.id.removeprefix("resp_").rpartition("_")[0]
        await anyio.sleep(1)
        await rt.hub.terminate(run_id)
        await anyio.sleep(1)
        assert (await client.responses.retrieve(begun.id)).status == "cancelled"
        with pytest.raises(openai.APIStatusError):
            await client.responses.create(
                model="main", previous_response_id=begun.id,
                input=[{"type": "function_call_output", "call_id": "x", "output": "y"}],
            )  # fmt: skip


@pytest.mark.parametrize("answer", ["results", "approval", "question", "message"])
async def test_what_a_request_says_beside_its_answer_is_told_with_the_response(ports, answer):
    """The response that it continues from, too: who walks a chain back lost it behind results."""

    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    calls = {"results": call("weather", city="Rome"), "approval": call("pay")}

    def model(request):
        last = request.messages[-1]
        return "Done so far." if isinstance(last, AssistantMessage) else calls.get(answer, "Hi.")

    @agent("main")
    async def code(input, ctx):
        return f"Done {await ctx.ask('How?')} far."

    main = Agent("main", "You answer.", model=FunctionModel(model), tools=[pay])
    async with with_client(ports, code if answer == "question" else main) as (_, _, client):
        how = {"model": "main", "tools": [] if answer == "question" else [WEATHER]}
        first = await client.responses.create(input="go", **how)
        said = "approve" if answer == "approval" else "so"
        if answer == "results":
            call_id = first.output[-1].call_id
            said = [{"type": "function_call_output", "call_id": call_id, "output": "sunny"}]
        made = await client.responses.create(
            input=said, previous_response_id=first.id, metadata={"a": "b"}, user="Ann",
            max_output_tokens=2, **how,
        )  # fmt: skip
        again = await client.responses.retrieve(made.id)
        for each in (made, again):
            assert each.previous_response_id == first.id
            assert each.metadata == {"a": "b"} and each.user == "Ann"
            if answer in ("results", "approval"):
                assert each.output_text.strip() == "Done so" and each.status == "incomplete"
        assert first.previous_response_id is None
