"""Whatever is sent: an error in the form of OpenAI's API, never a 500."""

import json

import httpx
import pytest
from support.openai_face import talker, with_client

from hubbub import Runtime
from hubbub.channels.http import HttpApp, HttpLimits

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-05")]

R, C = "/v1/responses", "/v1/chat/completions"
USER = {"role": "user", "content": "hi"}
DEEP = "[" * 5_000 + "]" * 5_000
TOOL = {"type": "function", "name": "t", "parameters": {}}
CALL = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}

BODIES = [
    (R, b""), (R, b"{"), (R, b"null"), (R, b"[]"), (R, b'"x"'), (R, b"7"), (R, b"\xff\xfe"),
    (R, DEEP.encode()), (R, b'{"model": "talker", "input": ' + DEEP.encode() + b"}"),
    (R, b'{"model": "talker", "input": "\\ud800"}'), (R, b'{"model": "talker", "input": 1e999}'),
    (C, b'{"model": "talker", "messages": [{"role": "user", "content": "\\udfff"}]}'),
    (C, b""), (C, b"{}"), (C, b"nope"),
]  # fmt: skip

RESPONSES = [
    {}, {"input": "x"}, {"model": "talker"}, {"model": 7, "input": "x"}, {"model": "", "input": ""},
    {"model": "nobody", "input": "x"}, {"model": "../x", "input": "x"},
    {"model": "\x00", "input": "x"}, {"model": "talker", "input": 7},
    {"model": "talker", "input": []}, {"model": "talker", "input": [7]},
    {"model": "talker", "input": [{}]}, {"model": "talker", "input": [{"role": "king"}]},
    {"model": "talker", "input": [{"role": "user", "content": 7}]},
    {"model": "talker", "input": [{"role": "user", "content": [{"type": "input_image"}]}]},
    {"model": "talker", "input": [{"role": "user", "content": [{"type": "input_text"}]}]},
    {"model": "talker", "input": [{"type": "magic"}]},
    {"model": "talker", "input": [{"type": "function_call", "name": "t"}]},
    {"model": "talker", "input": [{"type": "function_call_output", "output": "x"}]},
    {"model": "talker", "input": [{"type": "function_call_output", "call_id": "x", "output": "y"}]},
    {"model": "talker", "input": [
        {"type": "function_call_output", "call_id": "call_1_0_nobody", "output": "y"}]},
    {"model": "talker", "input": [
        {"type": "function_call", "call_id": "x", "name": "t", "arguments": "{"},
        {"type": "function_call_output", "call_id": "x", "output": "y"}, USER]},
    {"model": "talker", "input": [
        {"type": "function_call", "call_id": "x", "name": "t", "arguments": "{}"}, USER]},
    {"model": "talker", "input": "x", "tools": 7}, {"model": "talker", "input": "x", "tools": [7]},
    {"model": "talker", "input": "x", "tools": [{"type": "function"}]},
    {"model": "talker", "input": "x", "tools": [{"type": "function", "name": "a b"}]},
    {"model": "talker", "input": "x", "tools": [TOOL, TOOL]},
    {"model": "talker", "input": "x", "tools": [{**TOOL, "name": "add"}]},
    {"model": "talker", "input": "x", "tools": [{**TOOL, "parameters": 7}]},
    {"model": "talker", "input": "x", "tools": [{**TOOL, "parameters": {"type": 7}}]},
    {"model": "talker", "input": "x", "tools": [TOOL | {"name": f"t{i}"} for i in range(200)]},
    {"model": "talker", "input": "x", "stream": "yes"},
    {"model": "talker", "input": "x", "background": 1},
    {"model": "talker", "input": "x", "temperature": "hot"},
    {"model": "talker", "input": "x", "temperature": 10**400},
    {"model": "talker", "input": "x", "max_output_tokens": 0},
    {"model": "talker", "input": "x", "max_output_tokens": True},
    {"model": "talker", "input": "x", "metadata": 7},
    {"model": "talker", "input": "x", "metadata": {"a": 7}},
    {"model": "talker", "input": "x", "metadata": {str(i): "" for i in range(17)}},
    {"model": "talker", "input": "x", "metadata": {"a": "b" * 513}},
    {"model": "talker", "input": "x", "text": 7}, {"model": "talker", "input": "x", "text": {
        "format": {"type": "json_schema"}}},
    {"model": "talker", "input": "x", "previous_response_id": "resp_1"},
    {"model": "talker", "input": "x", "previous_response_id": "resp_nobody_1"},
    {"model": "talker", "input": "x", "previous_response_id": 7},
    {"model": "talker", "input": "x", "previous_response_id": "a", "conversation": "b"},
    {"model": "talker", "input": "x", "conversation": 7},
    {"model": "talker", "input": "x", "conversation": "x" * 600},
    {"model": "talker", "input": "x", "conversation": "{}"},
    {"model": "talker", "input": "x", "conversation": '{"type": "user"}'},
    {"model": "talker", "input": "x", "conversation": "a\x00b"},
    {"model": "talker", "input": "x" * 4_000_001},
]  # fmt: skip

CHATS = [
    {}, {"model": "talker"}, {"model": "talker", "messages": []},
    {"model": "talker", "messages": "hi"}, {"model": "talker", "messages": {}},
    {"model": "nobody", "messages": [USER]}, {"messages": [USER]},
    {"model": "talker", "messages": [7]}, {"model": "talker", "messages": [{"role": 7}]},
    {"model": "talker", "messages": [{"role": "user", "content": {"a": 1}}]},
    {"model": "talker", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
    {"model": "talker", "messages": [{"role": "tool", "content": "x"}]},
    {"model": "talker", "messages": [{"role": "tool", "tool_call_id": "x", "content": "x"}]},
    {"model": "talker", "messages": [
        {"role": "assistant", "tool_calls": [CALL, CALL]}, {"role": "user", "content": "x"}]},
    {"model": "talker", "messages": [{"role": "assistant", "tool_calls": [7]}]},
    {"model": "talker", "messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}, USER]},
    {"model": "talker", "messages": [{"role": "assistant", "tool_calls": 7}, USER]},
    {"model": "talker", "messages": [USER], "n": 2},
    {"model": "talker", "messages": [USER], "logprobs": True},
    {"model": "talker", "messages": [USER], "max_tokens": -1},
    {"model": "talker", "messages": [USER], "stop": 7},
    {"model": "talker", "messages": [USER], "stop": ["x"] * 17},
    {"model": "talker", "messages": [USER], "stream_options": 7},
    {"model": "talker", "messages": [USER], "response_format": 7},
    {"model": "talker", "messages": [USER], "tools": [TOOL]},
    {"model": "talker", "messages": [USER], "tools": [{"type": "function", "function": 7}]},
]  # fmt: skip

GETS = [
    "/v1", "/v1/", "/v1/nothing", "/v1/models/nobody", "/v1/models/%00", "/v1/models/a/b",
    "/v1/responses/x", "/v1/responses/resp_x_1", "/v1/responses/resp_x_999999999999999999999",
    "/v1/responses/%ff", "/v1/responses/resp_" + "x" * 5_000 + "_1", "/v1/responses",
    "/v1/chat/completions", "/v1/responses/x/cancel",
]  # fmt: skip


@pytest.fixture
async def http(ports):
    rt = Runtime([talker()], store="memory", ports=ports)
    app = HttpApp(rt.hub)
    transport = httpx.ASGITransport(app)
    async with (
        rt, app, httpx.AsyncClient(transport=transport, base_url="http://localhost") as client
    ):  # fmt: skip
        yield client


def assert_refused(answer, what):
    assert 400 <= answer.status_code < 500, (what, answer.status_code, answer.text[:500])
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}, what
    assert error["message"] and error["type"].endswith("_error"), what
    assert len(answer.content) < 2_000, what


async def test_bodies_that_are_no_request(http):
    for path, body in BODIES:
        answer = await http.post(path, content=body, headers={"content-type": "application/json"})
        assert_refused(answer, body[:80])


async def test_what_a_response_cannot_be_made_of(http):
    for body in RESPONSES:
        content = json.dumps(body)
        for extra in ({}, {"stream": True}, {"background": True}):
            if extra.keys() & body.keys():
                continue
            content = json.dumps({**body, **extra})
            answer = await http.post(R, content=content)
            assert_refused(answer, content[:300])


async def test_what_a_completion_cannot_be_made_of(http):
    for body in CHATS:
        for extra in ({}, {"stream": True}):
            answer = await http.post(C, json={**body, **extra})
            assert_refused(answer, str(body)[:300])


OTHER = [[], [7], {}, {"a": []}, None, True, 0, -1, 10**30, 0.5, "", "x" * 3_000, "\x00"]
"""A value of each type of JSON."""

TEXT = [{"type": "text", "text": "t"}, {"type": "refusal", "refusal": "r"}]
IMAGE = "data:image/png;base64,iVBORw0KGgo="
FULL_CHAT = {
    "model": "talker", "stream": False, "stream_options": {"include_usage": True}, "n": 1,
    "logprobs": False, "max_tokens": 5, "stop": ["x"], "metadata": {"a": "b"}, "user": "u",
    "response_format": {
        "type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
    "tool_choice": "auto", "tools": [{"type": "function", "function": {
        "name": "g", "description": "d", "parameters": {"properties": {"a": {"enum": [1]}}}}}],
    "messages": [
        {"role": "system", "content": TEXT}, USER, {"role": "assistant", "content": "x",
        "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c", "content": TEXT},
        {"role": "user", "content": [
            *TEXT, {"type": "image_url", "image_url": {"url": IMAGE}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": IMAGE}},
            {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}]},
    ],
}  # fmt: skip
FULL_RESPONSE = {
    "model": "talker", "instructions": "i", "store": True, "background": False, "stream": False,
    "metadata": {"a": "b"}, "max_output_tokens": 5, "temperature": 1.0, "truncation": "auto",
    "text": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    "conversation": {"id": "c"}, "reasoning": {"effort": "low"}, "tool_choice": "auto",
    "tools": [{"type": "function", "name": "g", "parameters": {"type": "object"}}],
    "input": [
        USER, {"type": "function_call", "call_id": "c", "name": "t", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": TEXT},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": IMAGE},
            {"type": "input_file", "filename": "a.pdf", "file_data": IMAGE}]},
    ],
}  # fmt: skip


def with_others(value):
    """The value with another one in each of its places, one after the other."""
    yield from OTHER
    places = value.items() if isinstance(value, dict) else ()
    for key, inner in enumerate(value) if isinstance(value, list) else places:
        for other in with_others(inner):
            changed = value.copy()
            changed[key] = other
            yield changed


@pytest.mark.parametrize(("path", "whole"), [(C, FULL_CHAT), (R, FULL_RESPONSE)])
async def test_a_value_of_any_type_in_any_place_is_answered_or_refused(http, path, whole):
    for body in with_others(whole):
        answer = await http.post(path, json=body)
        if answer.status_code != 200:
            assert_refused(answer, str(body)[:600])


@pytest.mark.parametrize("kind", [[], {}, ["text"], {"type": "text"}, 7, None])
async def test_a_part_whose_type_is_no_text_is_refused_by_its_place(http, kind):
    said = [{"role": "user", "content": [{"type": kind, "text": "a"}]}]
    for path, name in ((C, "messages"), (R, "input")):
        answer = await http.post(path, json={"model": "talker", name: said})
        assert (answer.status_code, answer.json()["error"]["param"]) == (
            400, f"{name}[0].content[0].type",
        )  # fmt: skip


async def test_what_is_not_there(http):
    for path in GETS:
        assert_refused(await http.get(path), path)


async def test_places_in_a_stream_that_are_none(http):
    made = (await http.post(R, json={"model": "talker", "input": "x"})).json()
    url = f"{R}/{made['id']}"
    for query in (
        "starting_after=1", "stream=true&starting_after=-1", "stream=true&starting_after=x",
        "stream=true&starting_after=", "stream=true&starting_after=1.5",
        "stream=true&starting_after=10000", "stream=true&starting_after=99999999999999999999",
        "stream=true&starting_after=%ff", "stream=true&starting_after=%C2%B2",
    ):  # fmt: skip
        assert_refused(await http.get(f"{url}?{query}"), query)
    for seq in (0, 2, 7):
        assert_refused(await http.get(f"{R}/{made['id'][:-1]}{seq}"), seq)


async def test_only_what_is_said_to_a_conversation_has_a_response(ports):
    """A child's run, and an item that nobody said, have none."""
    async with with_client(ports) as (rt, app, client):
        made = await client.responses.create(model="talker", input="x", conversation="c")
        run_id = made.id.removeprefix("resp_").rpartition("_")[0]
        await rt.hub.interrupt(run_id)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            assert_refused(await http.get(f"{R}/resp_{run_id}_2"), "an interruption")


async def test_large_compressed_and_foreign_bodies(ports):
    limits = HttpLimits(body_bytes=10_000)
    async with with_client(ports, limits=limits) as (_, app, _):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            body = {"model": "talker", "input": "x" * 20_000}
            large = await http.post(R, json=body)
            zipped = await http.post(R, content=b"x", headers={"content-encoding": "gzip"})
            other = await http.post(C, content=b"<x/>", headers={"content-type": "text/xml"})
    assert [x.status_code for x in (large, zipped, other)] == [413, 415, 415]
    for answer in (large, zipped, other):
        assert_refused(answer, answer.text)


async def test_who_has_no_token_is_told_so_in_that_form(ports):
    async with with_client(ports, token="s3cret") as (_, app, client):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            answer = await http.get("/v1/models")
        assert_refused(answer, "no token")
        assert answer.json()["error"]["type"] == "authentication_error"
        assert (await client.with_options(api_key="s3cret").models.list()).data


async def test_pages_of_other_sites_that_are_allowed_read_answers_and_streams(ports):
    async with with_client(ports, origins=["https://page.example"]) as (_, app, _):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            for body in ({"input": "x"}, {"input": "x", "stream": True}, {"input": 7}):
                answer = await http.post(
                    R, json={"model": "talker", **body}, headers={"origin": "https://page.example"}
                )
                found = answer.headers.get_list("access-control-allow-origin")
                assert found == ["https://page.example"], answer.text


async def test_without_a_runtime_and_after_its_end_it_is_closed(ports):
    rt = Runtime([talker()], store="memory", ports=ports)
    app = HttpApp(rt.hub)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        answers = [await http.post(R, json={"model": "talker", "input": "x"})]
        async with rt, app:
            pass
        answers.append(await http.get("/v1/models"))
    for answer in answers:
        assert answer.status_code == 503
        assert answer.json()["error"]["type"] == "server_error"
        assert answer.headers["x-should-retry"] == "true"
