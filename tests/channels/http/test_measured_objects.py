"""What is too long is refused by its length, before anything is made of it: it would hold the loop
for seconds."""

import json
import time
from typing import Any

import anyio
import msgspec
import pytest
from http_apps import served, support
from support.asgi_clients import socket

from hubbub.channels.http.wire.objects import size_at_least
from hubbub.hub.ports import Ports

pytestmark = pytest.mark.anyio

JSON = {"content-type": "application/json"}
MANY = 2_700_000


def lists(count: int) -> str:
    return f'{{"order":[{",".join(["[]"] * count)}]}}'


class Spent:
    """Processor time that something took, of this process."""

    def __init__(self) -> None:
        self.seconds = -time.process_time()

    def __enter__(self) -> "Spent":
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time()


def seconds_to_build(count: int) -> float:
    """What it takes to make objects of as much, once."""
    text = lists(count)
    with Spent() as spent:
        msgspec.json.decode(text)
    return spent.seconds


async def asked(client: Any) -> str:
    """A call that waits to be approved."""
    await client.post("/api/runs", json={"agent": "support", "input": "refund"})
    await anyio.sleep(1)
    found: str = (await client.get("/api/prompts")).json()["prompts"][0]["prompt_id"]
    return found


@pytest.mark.spec("W-02", "W-03", "W-06")
@pytest.mark.parametrize("way", ["http", "websocket"])
async def test_arguments_that_are_too_long_are_refused_unread_and_the_call_waits_on(
    way: str, ports: Ports
) -> None:
    async with served(ports, support()) as (_, app, client):
        prompt_id = await asked(client)
        built = seconds_to_build(MANY)
        with Spent() as spent:
            if way == "http":
                body = f'{{"arguments":{lists(MANY)}}}'
                url = f"/api/prompts/{prompt_id}/approve"
                problem = (await client.post(url, content=body, headers=JSON)).json()
            else:
                async with socket(app) as other:
                    said = f'{{"id":"1","command":"approve","prompt_id":"{prompt_id}","arguments":'
                    other.say_text(said + lists(MANY) + "}")
                    await anyio.sleep(1)
                    problem = other.answer("1")["problem"]
        assert problem["type"] == "/problems/invalid-value"
        most = "send at most 1,048,576"
        assert problem["detail"] == f"arguments: 8,100,011 characters are too many; {most}"
        assert spent.seconds < max(built / 2, 0.1)
        assert len((await client.get("/api/prompts")).json()["prompts"]) == 1
        url = f"/api/prompts/{prompt_id}/approve"
        assert (await client.post(url, json={"arguments": {"order": 8}})).status_code == 202


@pytest.mark.spec("W-02", "W-03", "W-06")
@pytest.mark.parametrize("field", ["descriptor", "tools"])
async def test_a_descriptor_and_schemas_that_are_too_long_are_refused_unread(
    field: str, ports: Ports
) -> None:
    async with served(ports, support()) as (_, _, client):
        told = lists(MANY)
        given = told if field == "descriptor" else f'[{{"name":"t","schema":{told}}}]'
        built = seconds_to_build(MANY)
        with Spent() as spent:
            body = f'{{"agent":"support","input":"x","{field}":{given}}}'
            answer = await client.post("/api/runs", content=body, headers=JSON)
        assert (answer.status_code, answer.json()["type"]) == (400, "/problems/invalid-value")
        assert spent.seconds < max(built / 2, 0.1)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ('{"a": [1,\n 2]}', len('{"a":[1,2]}')),
        (r'{"a":"\u00e9\u00e9"}', len('{"a":"éé"}')),
        ('{"a":"éé"}', len('{"a":"éé"}')),
        (r'{"a":"\\u00e9"}', len(r'{"a":"\\u00e9"}')),
        (r'{"a":"\\\u00e9"}', len(r'{"a":"\\é"}')),
        ("null", 4),
    ],
)
def test_a_text_is_measured_as_it_would_be_written(text: str, size: int) -> None:
    assert size_at_least(msgspec.Raw(text.encode())) == size


CHAT = '{"model":"support","messages":['
USER = '{"role":"user","content":"x"}'
CALLED = (
    '{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"a",'
    '"arguments":%s}}]},{"role":"tool","tool_call_id":"c","content":"x"},'
)


@pytest.mark.spec("W-05", "W-06")
@pytest.mark.parametrize(
    ("path", "begun"),
    [
        ("chat/completions", f'{CHAT}{USER}],"x":'),
        ("chat/completions", f'{CHAT}{USER}],"metadata":'),
        ("responses", '{"model":"support","input":"x","x":'),
    ],
    ids=["chat", "metadata", "responses"],
)
async def test_of_a_field_that_nobody_hears_nothing_is_made(
    path: str, begun: str, ports: Ports
) -> None:
    async with served(ports, support("Hello.")) as (_, _, client):
        built = seconds_to_build(MANY)
        body = f"{begun}{lists(MANY)}}}"
        with Spent() as spent:
            answer = await client.post(f"/v1/{path}", content=body, headers=JSON)
        assert answer.status_code == 200
        assert spent.seconds < max(built / 2, 0.1)


@pytest.mark.spec("U-13", "W-05", "W-06")
async def test_arguments_in_a_transcript_are_no_longer_than_those_of_a_call(ports: Ports) -> None:
    async with served(ports, support("Hello.")) as (_, _, client):
        built = seconds_to_build(MANY)
        said = f"{CHAT}{CALLED % json.dumps(lists(MANY))}{USER}]}}"
        with Spent() as spent:
            answer = await client.post("/v1/chat/completions", content=said, headers=JSON)
        assert answer.status_code == 400
        assert "8,100,011 characters are too many" in answer.json()["error"]["message"]
        assert spent.seconds < max(built / 2, 0.1)


@pytest.mark.spec("W-05")
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"[]", "must be a JSON object"),
        (b'"x"', "must be a JSON object"),
        (b'{"model":"support"', "the JSON ends too early"),
        (b'{"model":"\\ud800"}', "half of a surrogate pair"),
        (b'{"model":"\xff"}', "could not parse the JSON body"),
        (b'{"model":1e999}', "could not parse the JSON body"),
        (b"", "it is empty"),
    ],
)
async def test_a_body_that_is_no_json_object_is_refused_in_openai_s_words(
    body: bytes, problem: str, ports: Ports
) -> None:
    async with served(ports, support()) as (_, _, client):
        for path in ("chat/completions", "responses"):
            answer = await client.post(f"/v1/{path}", content=body, headers=JSON)
            assert answer.status_code == 400, path
            assert problem in answer.json()["error"]["message"]
