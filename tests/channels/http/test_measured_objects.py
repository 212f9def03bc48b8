"""What is too long is refused by its length, before anything is made of it: it would hold the loop
for seconds."""

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
MANY = 1_000_000


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
        assert problem["detail"] == f"arguments: 3,000,011 characters are too many; {most}"
        assert spent.seconds < max(built, 0.1)
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
        assert spent.seconds < max(built, 0.1)


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
