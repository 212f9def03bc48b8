"""The official client of OpenAI, unmodified, on both loops."""

import anyio
import openai
import pytest
from support.openai_face import CHAT_WEATHER, WEATHER, talker, with_client

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.spec("W-05"),
    # On Trio the client leaves its own generators unclosed behind the end of a stream.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


async def test_agents_are_models(ports):
    async with with_client(ports, talker("one"), talker("two")) as (_, _, client):
        assert [model.id for model in (await client.models.list()).data] == ["one", "two"]
        assert (await client.models.retrieve("two")).object == "model"
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await client.models.retrieve("three")


async def test_a_response_is_what_came_of_the_input_and_can_be_read_again(ports):
    async with with_client(ports) as (_, _, client):
        made = await client.responses.create(model="talker", input="hello", metadata={"a": "b"})
        again = await client.responses.retrieve(made.id)
        assert (made.status, made.output_text) == ("completed", "hello (1)")
        assert (made.usage.input_tokens, made.usage.output_tokens) == (10, 5)
        assert made.metadata == {"a": "b"}
        assert again == made


async def test_a_response_is_continued_by_its_id(ports):
    async with with_client(ports) as (_, _, client):
        first = await client.responses.create(model="talker", input="one")
        second = await client.responses.create(
            model="talker", input="two", previous_response_id=first.id
        )
        assert second.output_text == "two (3)"
        assert second.previous_response_id == first.id
        assert second.id.rpartition("_")[0] == first.id.rpartition("_")[0]


async def test_what_does_not_continue_the_latest_response_has_a_run_of_its_own(ports):
    async with with_client(ports) as (rt, _, client):
        first = await client.responses.create(model="talker", input="one")
        await client.responses.create(model="talker", input="two", previous_response_id=first.id)
        other = await client.responses.create(
            model="talker", input="or", previous_response_id=first.id
        )
        assert other.output_text == "or (3)"  # One, its answer, and this.
        assert other.id.rpartition("_")[0] != first.id.rpartition("_")[0]
        assert len(await rt.hub.read(types="session:open")) == 2


async def test_a_conversation_is_a_session(ports):
    async with with_client(ports) as (rt, _, client):
        one = await client.responses.create(model="talker", input="one", conversation="c1")
        two = await client.responses.create(model="talker", input="two", conversation={"id": "c1"})
        assert two.output_text == "two (3)"
        assert two.conversation.id == one.conversation.id == "c1"
        assert (await rt.find("c1")).run_id in two.id


async def test_a_stream_tells_the_same_as_the_response(ports):
    async with with_client(ports) as (_, _, client):
        stream = await client.responses.create(model="talker", input="a b c d", stream=True)
        events = [event async for event in stream]
        text = "".join(x.delta for x in events if x.type == "response.output_text.delta")
        numbers = [x.sequence_number for x in events]
        assert text == "a b c d (1)" == events[-1].response.output_text
        assert numbers == sorted(set(numbers))
        assert [x.type for x in events[:2]] == ["response.created", "response.in_progress"]
        assert events[-1].type == "response.completed"
        assert await client.responses.retrieve(events[-1].response.id) == events[-1].response


async def test_the_client_collects_a_stream_of_calls_reasoning_and_text(ports):
    async with with_client(ports) as (_, _, client):
        async with client.responses.stream(
            model="talker", input="@Rome sum", tools=[WEATHER]
        ) as stream:
            types = [event.type async for event in stream]
            final = await stream.get_final_response()
        assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
        assert "response.function_call_arguments.done" in types


async def test_a_client_carries_out_its_tools(ports):
    async with with_client(ports) as (rt, _, client):
        asked = await client.responses.create(
            model="talker", input="@Rome @Oslo sum", tools=[WEATHER]
        )
        calls = [item for item in asked.output if item.type == "function_call"]
        assert [(x.name, x.arguments) for x in calls] == [
            ("weather", '{"city":"Rome"}'), ("weather", '{"city":"Oslo"}')
        ]  # fmt: skip
        results = [
            {"type": "function_call_output", "call_id": x.call_id, "output": f"fine {at}"}
            for at, x in enumerate(calls)
        ]
        with pytest.raises(openai.BadRequestError, match="No tool output found"):
            await client.responses.create(
                model="talker", input=results[:1], previous_response_id=asked.id, tools=[WEATHER]
            )
        done = await client.responses.create(
            model="talker", input=results, previous_response_id=asked.id, tools=[WEATHER]
        )
        assert done.output_text == "It is 3, fine 0, fine 1."
        assert [x.type for x in done.output] == ["message"]
        assert await client.responses.retrieve(asked.id) == asked
        assert await client.responses.retrieve(done.id) == done
        assert len(await rt.hub.read(types="session:open")) == 1


async def test_results_reach_their_run_without_any_session(ports):
    async with with_client(ports) as (rt, _, client):
        asked = await client.responses.create(
            model="talker", input=[{"role": "user", "content": "@Rome"}], tools=[WEATHER],
            store=False,
        )  # fmt: skip
        (call,) = (item for item in asked.output if item.type == "function_call")
        done = await client.responses.create(
            model="talker", tools=[WEATHER], store=False,
            input=[
                {"role": "user", "content": "@Rome"}, *asked.output,
                {"type": "function_call_output", "call_id": call.call_id, "output": "hot"},
            ],
        )  # fmt: skip
        assert done.output_text == "It is hot."
        assert len(await rt.hub.read(types="session:open")) == 1


async def test_results_of_calls_of_another_service_are_history(ports):
    async with with_client(ports) as (_, _, client):
        done = await client.responses.create(
            model="talker", tools=[WEATHER],
            input=[
                {"role": "user", "content": "@Rome"},
                {"type": "function_call", "call_id": "x", "name": "weather", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "x", "output": "cold"},
                {"role": "user", "content": "and?"},
            ],
        )  # fmt: skip
        assert done.output_text == "and? (3)"


async def test_a_response_in_the_background_goes_on_and_is_asked_for_again(ports):
    async with with_client(ports, talker(latency=5.0)) as (_, _, client):
        begun = await client.responses.create(model="talker", input="a b", background=True)
        assert (begun.status, begun.output) == ("queued", [])
        assert (await client.responses.retrieve(begun.id)).status == "in_progress"
        stream = await client.responses.retrieve(begun.id, stream=True)
        first = [event async for event in stream]
        assert first[-1].response.output_text == "a b (1)"
        place = next(x.sequence_number for x in first if x.type == "response.output_text.delta")
        rest = await client.responses.retrieve(begun.id, stream=True, starting_after=place)
        assert first[-1].response == [event async for event in rest][-1].response


async def test_a_response_is_cancelled(ports):
    async with with_client(ports, talker(latency=60.0)) as (_, _, client):
        begun = await client.responses.create(model="talker", input="a b", background=True)
        await anyio.sleep(1)
        ended = await client.responses.cancel(begun.id)
        assert ended.status == "cancelled"
        assert (await client.responses.retrieve(begun.id)).status == "cancelled"
        assert (await client.responses.cancel(begun.id)).status == "cancelled"


async def test_a_chat_completion_is_answered_from_the_history_it_brings(ports):
    async with with_client(ports) as (_, _, client):
        made = await client.chat.completions.create(
            model="talker",
            messages=[
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "one"},
                {"role": "assistant", "content": "first"},
                {"role": "user", "content": "two"},
            ],
        )
        (choice,) = made.choices
        assert (choice.message.content, choice.finish_reason) == ("two (4)", "stop")
        assert made.usage.total_tokens == 15


async def test_chunks_of_a_chat_completion_tell_the_same(ports):
    async with with_client(ports) as (_, _, client):
        stream = await client.chat.completions.create(
            model="talker", messages=[{"role": "user", "content": "a b c"}], stream=True,
            stream_options={"include_usage": True},
        )  # fmt: skip
        chunks = [chunk async for chunk in stream]
        assert "".join(x.choices[0].delta.content or "" for x in chunks[:-1]) == "a b c (1)"
        assert [x.choices[0].finish_reason for x in chunks[-2:-1]] == ["stop"]
        assert (chunks[-1].choices, chunks[-1].usage.total_tokens) == ([], 15)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_client_carries_out_its_tools(ports, stream):
    async with with_client(ports) as (rt, _, client):
        messages = [{"role": "user", "content": "@Rome sum"}]
        how = {"model": "talker", "tools": [CHAT_WEATHER]}
        if stream:
            async with client.chat.completions.stream(messages=messages, **how) as chunks:
                choice = (await chunks.get_final_completion()).choices[0]
        else:
            choice = (await client.chat.completions.create(messages=messages, **how)).choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == "Let me look."
        (call,) = choice.message.tool_calls
        assert (call.function.name, call.function.arguments) == ("weather", '{"city":"Rome"}')
        result = {"role": "tool", "tool_call_id": call.id, "content": "warm"}
        done = await client.chat.completions.create(
            messages=[*messages, choice.message, result], **how
        )
        assert done.choices[0].message.content == "It is 3, warm."
        assert len(await rt.hub.read(types="session:open")) == 1
