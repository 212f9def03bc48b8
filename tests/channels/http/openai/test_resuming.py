"""A stream that was cut is taken up again at any number: together it is the stream that was not."""

import json

import anyio
import httpx
import pytest
from support.agents import model_agent
from support.openai_face import WEATHER, StreamedRequest, frames_of, merged, talker, with_client

from hubbub import FunctionModel, Runtime, agent
from hubbub.channels.http import HttpApp
from hubbub.hub.virtual import EPOCH, LoopClock, virtual_ports
from hubbub.runtime.models.scripted import Fault

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-05")]

BODY = {"model": "talker", "input": "@Rome sum a b", "tools": [WEATHER], "stream": True}


async def read(app, path):
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://localhost"
    ) as http:
        return await http.get(path)


async def streamed(app, path, body=None):
    request = StreamedRequest(app, "GET" if body is None else "POST", path, body)
    return frames_of((await request.run()).body)


async def test_a_response_that_is_over_is_streamed_again_from_every_number(ports):
    async with with_client(ports, talker(latency=3.0, chunk=2)) as (_, app, _):
        whole = await streamed(app, "/v1/responses", BODY)
        path = f"/v1/responses/{whole[0]['response']['id']}?stream=true"
        assert merged(await streamed(app, path)) == merged(whole)
        for at, frame in enumerate(whole[:-1]):
            rest = await streamed(app, f"{path}&starting_after={frame['sequence_number']}")
            assert merged(whole[: at + 1] + rest) == merged(whole), frame


async def test_every_number_is_a_place_in_the_middle_of_a_text_too(ports):
    async with with_client(ports, talker(latency=3.0, chunk=3)) as (_, app, _):
        whole = await streamed(app, "/v1/responses", BODY)
        path = f"/v1/responses/{whole[0]['response']['id']}?stream=true"
        for number in range(whole[-1]["sequence_number"]):
            rest = await streamed(app, f"{path}&starting_after={number}")
            assert all(x["sequence_number"] > number for x in rest)
            before = [x for x in whole if x["sequence_number"] <= number]
            cut = next(x for x in whole if x["sequence_number"] > number)
            if "delta" in cut:
                told = len(cut["delta"]) - (cut["sequence_number"] - number)
                if told:
                    part = {**cut, "delta": cut["delta"][:told], "sequence_number": number}
                    before.append(part)
            assert merged(before + rest) == merged(whole), number


async def test_a_client_that_was_cut_off_at_any_frame_goes_on_with_the_live_stream(ports):
    async with with_client(ports, talker(latency=3.0, chunk=4)) as (_, app, _):
        whole = await streamed(app, "/v1/responses", BODY)
        for count in range(1, len(whole)):
            request = StreamedRequest(app, "POST", "/v1/responses", BODY)
            await request.run(
                lambda count=count, request=request: request.body.count(b"\n\n") >= count
            )
            got = request.body.replace(b"data: [DONE]\n\n", b"")
            begun = frames_of(got + b"data: [DONE]\n\n")
            last = begun[-1]["sequence_number"]
            path = f"/v1/responses/{begun[0]['response']['id']}?stream=true&starting_after={last}"
            rest = [] if begun[-1]["type"] == "response.completed" else await streamed(app, path)
            assert shape(merged(begun + rest)) == shape(merged(whole)), count


async def test_who_joins_in_the_middle_of_an_answer_gets_all_of_it(ports):
    async with with_client(ports, talker(latency=10.0, chunk=2)) as (_, app, client):
        begun = await client.responses.create(model="talker", input="a b c d e f", background=True)
        found = []

        async def join(after):
            await anyio.sleep(after)
            found.append(await streamed(app, f"/v1/responses/{begun.id}?stream=true"))

        async with anyio.create_task_group() as group:
            for after in (0, 2.5, 5.1, 7.7, 11):
                group.start_soon(join, after)
        assert all(merged(x) == merged(found[0]) for x in found)
        assert len({len(x) for x in found}) > 1, "they were cut into the same pieces"


async def test_what_is_withdrawn_is_told_and_numbers_go_on(ports):
    answers = iter([Fault("cut", after=6), "Hello again, world."])
    model = FunctionModel(lambda request: next(answers), latency=1.0, chunk=2)
    async with with_client(ports, model_agent(model, name="talker")) as (_, app, _):
        whole = await streamed(app, "/v1/responses", {**BODY, "tools": []})
        numbers = [x["sequence_number"] for x in whole]
        assert numbers == sorted(set(numbers))
        final = whole[-1]["response"]
        assert [x["content"][0]["text"] for x in final["output"]] == ["Hello again, world."]
        path = f"/v1/responses/{final['id']}?stream=true"
        again = await streamed(app, path)
        void = [x for x in whole if "_void" not in json.dumps(x)]
        assert merged(again)[-7:] == merged(void)[-7:]


async def test_a_restarted_process_tells_the_same(ports, tmp_path):
    def agents():
        return [talker()]

    store = f"sqlite:{tmp_path / 'kept'}"
    async with Runtime(agents(), store=store, ports=virtual_ports()) as rt, HttpApp(rt.hub) as app:
        whole = await streamed(app, "/v1/responses", BODY)
        response = whole[-1]["response"]
        path = f"/v1/responses/{response['id']}"
    async with Runtime(agents(), store=store, ports=virtual_ports()) as rt, HttpApp(rt.hub) as app:
        assert (await read(app, path)).json() == response
        assert merged(await streamed(app, f"{path}?stream=true")) == merged(whole)
        (call_,) = (x for x in response["output"] if x["type"] == "function_call")
        result = {"type": "function_call_output", "call_id": call_["call_id"], "output": "warm"}
        body = {**BODY, "input": [result], "previous_response_id": response["id"]}
        with anyio.fail_after(20):
            done = await streamed(app, "/v1/responses", body)
        assert done[-1]["response"]["output"][0]["content"][0]["text"] == "It is 3, warm."


def shape(frames):
    """Frames without what differs between two runs."""
    run_id = frames[0]["response"]["id"].removeprefix("resp_").rpartition("_")[0]
    text = json.dumps(frames).replace(run_id, "RUN")
    found = json.loads(text)
    for frame in found:
        for name in ("created_at", "completed_at"):
            if "response" in frame:
                frame["response"][name] = 0
    return found


async def test_a_code_agent_that_waits_has_answered_though_the_clock_was_set_back(ports):
    @agent("listens")
    async def listens(input, ctx):
        ctx.say(f"heard {input}")
        async for message in ctx.messages():
            ctx.say(f"heard {message.content}")

    async with with_client(ports, listens) as (_, app, _):
        frames = await streamed(
            app, "/v1/responses", {"model": "listens", "input": "x", "stream": True}
        )
        ports.clock = LoopClock(EPOCH - 3_600_000_000)
        found = (await read(app, f"/v1/responses/{frames[0]['response']['id']}")).json()
        assert found["status"] == "completed"
