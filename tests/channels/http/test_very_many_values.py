"""Variables and parts of a request: there is a most of them, and more are refused unread."""

import time
from typing import Any

import pytest
from http_apps import served
from support.openai_face import with_client

from hubbub import Agent, ScriptedModel
from hubbub.channels.http.openai.answers.refusals import Refused
from hubbub.channels.http.openai.requests.shown import shown_in
from hubbub.channels.http.wire.parts import PartBody, parts_shown
from hubbub.hub.errors import BadValue
from hubbub.hub.message import MAX_VARIABLES, variables_of

MANY = 50_000
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


def talker() -> Agent:
    return Agent("support", "You help.", model=ScriptedModel(["Hello."] * 9))


def values(count: int) -> dict[str, str]:
    return {f"V{at}": "x" for at in range(count)}


@pytest.mark.anyio
@pytest.mark.spec("W-02")
async def test_a_run_is_given_so_many_values_of_variables_and_no_more(ports: Any) -> None:
    async with served(ports, talker()) as (rt, _, client):
        body = {"agent": "support", "input": "x"}
        most = await client.post("/api/runs", json={**body, "env": values(MAX_VARIABLES)})
        assert most.status_code == 202
        for count in (MAX_VARIABLES + 1, MANY):
            more = await client.post("/api/runs", json={**body, "env": values(count)})
            assert (more.status_code, more.json()["type"]) == (400, "/problems/invalid-value")
            problem = f"env: {count:,} values; a run is given 1,000 at most"
            assert more.json()["detail"] == problem
            with pytest.raises(BadValue, match=problem):
                await rt.start("support", "x", env=values(count))
        opened = (await client.get("/api/runs", params={"ended": True})).json()["runs"]
        assert len(opened) == 1


@pytest.mark.anyio
@pytest.mark.spec("L-02", "W-05")
async def test_a_message_with_too_many_parts_is_refused_in_each_spelling(ports: Any) -> None:
    picture = {"kind": "image", "url": "https://example.com/a.png"}
    async with served(ports, talker()) as (_, _, client):
        for count, status in ((100, 202), (101, 400), (MANY, 400)):
            said = {"content": "x", "parts": [picture] * count}
            answer = await client.post("/api/runs", json={"agent": "support", "message": said})
            assert answer.status_code == status
        assert answer.json()["detail"] == "parts: 50,000 parts; at most 100 are taken"
    async with with_client(ports, talker()) as (_, _, openai):
        said = [{"role": "user", "content": [IMAGE] * 101}]
        with pytest.raises(Exception, match="content': at most 100 of its parts"):
            await openai.chat.completions.create(model="support", messages=said)


def test_what_is_too_many_is_not_looked_at_one_by_one() -> None:
    body = PartBody(kind="image", url="https://example.com/a.png")

    def seconds_for(count: int) -> float:
        started = time.process_time()
        for read, error in (
            (lambda: parts_shown([body] * count), BadValue),
            (lambda: shown_in("content", [IMAGE] * count), Refused),
            (lambda: variables_of(dict.fromkeys(map(str, range(count * 10)), "x")), BadValue),
        ):
            with pytest.raises(error):
                read()
        return time.process_time() - started

    small = seconds_for(101)
    assert seconds_for(MANY) < 50 * max(small, 0.01)
