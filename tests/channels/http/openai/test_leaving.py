"""What becomes of a run whose client has left."""

import anyio
import pytest
from support.openai_face import WEATHER, StreamedRequest, frames_of, talker, with_client

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-04")]

SLOW = 100.0
HELLO = [{"role": "user", "content": "a b c"}]
THROWN_AWAY = (
    ("/v1/chat/completions", {"model": "talker", "messages": HELLO, "stream": True}),
    ("/v1/chat/completions", {"model": "talker", "messages": HELLO}),
    ("/v1/responses", {"model": "talker", "input": "a b c", "stream": True}),
    ("/v1/responses", {"model": "talker", "input": "a b c"}),
)
KEPT = (
    ("/v1/responses", {"model": "talker", "input": "a", "conversation": "c", "stream": True}),
    ("/v1/responses", {"model": "talker", "input": "a", "conversation": "c"}),
    ("/v1/responses", {"model": "talker", "input": "a", "background": True, "stream": True}),
)


async def leave(app, path, body, after):
    request = StreamedRequest(app, "POST", path, body)
    async with anyio.create_task_group() as group:
        group.start_soon(request.run)
        await anyio.sleep(after)
        request.leave()
    assert not request.is_over
    return request


async def outcome(rt):
    """How the only session has ended, and after how many seconds; nothing while it has not."""
    events = await rt.hub.read(types=("session:open", "session:end"))
    return [(x.outcome, (x.at - events[0].at) // 1_000_000) for x in events[1:]]


@pytest.mark.parametrize(("path", "body"), THROWN_AWAY)
async def test_a_run_for_one_request_is_interrupted_after_a_grace(ports, path, body):
    async with with_client(ports, talker(latency=SLOW)) as (rt, app, _):
        await leave(app, path, body, after=5)
        await anyio.sleep(29)
        assert await outcome(rt) == []
        await anyio.sleep(2)
        assert await outcome(rt) == [("interrupted", 35)]


@pytest.mark.parametrize(("path", "body"), KEPT)
async def test_what_a_session_does_ends_with_no_connection(ports, path, body):
    async with with_client(ports, talker(latency=SLOW)) as (rt, app, _):
        await leave(app, path, body, after=5)
        await anyio.sleep(SLOW)
        assert await outcome(rt) == [("completed", 100)]


async def test_who_comes_back_within_the_grace_keeps_it(ports):
    path, body = THROWN_AWAY[2]
    async with with_client(ports, talker(latency=SLOW)) as (rt, app, _):
        request = await leave(app, path, body, after=5)
        begun = frames_of(request.body + b"data: [DONE]\n\n")
        await anyio.sleep(20)
        again = StreamedRequest(app, "GET", f"{path}/{begun[0]['response']['id']}?stream=true")
        await again.run()
        assert frames_of(again.body)[-1]["type"] == "response.completed"
        assert await outcome(rt) == [("completed", 100)]


async def test_who_comes_back_and_leaves_again_has_the_grace_again(ports):
    path, body = THROWN_AWAY[2]
    async with with_client(ports, talker(latency=SLOW)) as (rt, app, _):
        request = await leave(app, path, body, after=5)
        begun = frames_of(request.body + b"data: [DONE]\n\n")
        await anyio.sleep(20)
        url = f"{path}/{begun[0]['response']['id']}?stream=true"
        again = StreamedRequest(app, "GET", url)
        async with anyio.create_task_group() as group:
            group.start_soon(again.run)
            await anyio.sleep(20)
            again.leave()
        await anyio.sleep(40)
        assert await outcome(rt) == [("interrupted", 75)]


async def test_who_goes_on_in_another_way_is_not_interrupted(ports):
    path, body = THROWN_AWAY[2]
    async with with_client(ports, talker(latency=20.0)) as (rt, app, _):
        request = await leave(app, path, body, after=5)
        begun = frames_of(request.body + b"data: [DONE]\n\n")
        more = {
            "model": "talker", "input": "more", "background": True,
            "previous_response_id": begun[0]["response"]["id"],
        }  # fmt: skip
        await StreamedRequest(app, "POST", path, more).run()
        await anyio.sleep(60)
        assert await outcome(rt) == [("completed", 20), ("completed", 40)]


@pytest.mark.parametrize("at", range(5))
async def test_a_connection_that_breaks_while_it_is_written_to_is_a_client_that_left(
    ports, caplog, at
):
    path, body = THROWN_AWAY[2]
    async with with_client(ports, talker(latency=SLOW)) as (rt, app, _):
        request = StreamedRequest(app, "POST", path, body, breaks_at=at)
        await request.run()
        await anyio.sleep(SLOW)
        assert [x for x, _ in await outcome(rt)] == ["interrupted"]
        assert "http.failed" not in caplog.text
        assert app.open_streams == 0


async def test_a_call_that_the_client_carries_out_has_its_time(ports):
    """The client has left because it was answered."""
    async with with_client(ports) as (_, _, client):
        asked = await client.responses.create(model="talker", input="@Rome", tools=[WEATHER])
        await anyio.sleep(3600)
        result = {
            "type": "function_call_output", "call_id": asked.output[-1].call_id, "output": "hot",
        }  # fmt: skip
        done = await client.responses.create(
            model="talker", input=[result], previous_response_id=asked.id, tools=[WEATHER]
        )
        assert done.output_text == "It is hot."


async def test_clients_that_leave_leave_nothing_behind(ports):
    async with with_client(ports, talker(latency=SLOW)) as (rt, app, _):
        before = rt.hub.statistics().subscribers
        for path, body in (*THROWN_AWAY, *KEPT):
            await leave(app, path, body, after=1)
        assert rt.hub.statistics().subscribers == before
        assert app.open_streams == 0


async def test_streams_are_told_that_the_app_ends(ports):
    async with with_client(ports, talker(latency=SLOW)) as (_, app, _):
        requests = [StreamedRequest(app, "POST", path, body) for path, body in THROWN_AWAY]
        async with anyio.create_task_group() as group:
            for request in requests:
                group.start_soon(request.run)
            await anyio.sleep(1)
            app.end_streams()
        chat, whole_chat, responses, whole = requests
        assert "shutting down" in frames_of(chat.body)[-1]["error"]["message"]
        assert frames_of(responses.body)[-1]["type"] == "error"
        assert (whole_chat.status, whole.status) == (503, 503)
        # Its message was taken: the official client would say it again by itself.
        assert [x.headers[b"x-should-retry"] for x in (whole_chat, whole)] == [b"false"] * 2
        assert all(request.is_over for request in requests)
