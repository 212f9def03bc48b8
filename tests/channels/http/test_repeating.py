"""A request with an ``Idempotency-Key`` counts once, whatever has become of it since."""

import anyio
import pytest
from http_apps import client_of, served, support
from msgspec import Struct
from support.agents import model_agent

from hubbub import FunctionModel, Runtime
from hubbub.channels.http import HttpApp
from hubbub.channels.http.wire.request_keys import request_key
from hubbub.hub.values import Secret
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-02", "H-09")]


def agents(said):
    def answer(request):
        said.append(request.messages[-1].content)
        return "ok"

    return [model_agent(FunctionModel(answer), name=name) for name in ("support", "other")]


def keyed(key="k"):
    return {"Idempotency-Key": key}


def kind(answer):
    return answer.status_code, answer.json().get("type", "").removeprefix("/problems/")


OPENINGS = [
    {"input": "pay"},
    {"input": "pay", "session_key": "s"},
    {"input": {"sum": 3}, "session_key": "s"},
    {"message": {"content": "pay", "key": "m"}, "session_key": "s"},
    {"input": "pay", "run_id": "mine"},
    {"input": "pay", "descriptor": {"type": "user", "connector": "c", "userId": "u",
                                    "channelId": "d"}},
]  # fmt: skip


@pytest.mark.parametrize("body", OPENINGS, ids=str)
@pytest.mark.parametrize("is_found", [False, True])
async def test_an_opening_counts_once_though_its_conversation_is_over(ports, body, is_found):
    said = []
    async with served(ports, *agents(said)) as (_, _, client):
        body = {"agent": "support", **body}
        if is_found:
            found = {**body, "input": "before", "message": None}
            await client.post("/api/runs", json=found)
            await anyio.sleep(1)
        first = await client.post("/api/runs", json=body, headers=keyed())
        assert first.status_code == 202
        run_id = first.json()["run_id"]
        await anyio.sleep(1)
        heard = list(said)
        for after in ("at once", "ended", "opened anew"):
            if after == "ended":
                await client.post(f"/api/runs/{run_id}/close", json={})
            elif after == "opened anew" and "run_id" not in body:
                new = {**body, "input": "new", "message": None}
                assert (await client.post("/api/runs", json=new)).status_code == 202
                heard.append("new")
            await anyio.sleep(1)
            again = await client.post("/api/runs", json=body, headers=keyed())
            await anyio.sleep(1)
            assert (again.status_code, again.json()["status"]) == (200, "duplicate")
            assert (again.json()["run_id"], again.json()["cursor"]) == (
                run_id, first.json()["cursor"],
            )  # fmt: skip
        assert len(said) == len(heard)


@pytest.mark.parametrize(
    "other",
    [
        {"input": "other"}, {"agent": "other"}, {"name": "n"}, {"timeout": 5}, {"once": True},
        {"history": [{"role": "user", "content": "q"}]}, {"session_key": "s"}, {"run_id": "mine"},
        {"correlation_id": "c"}, {"tools": [{"name": "t"}]}, {"env": {"A": "b"}},
        {"descriptor": {"type": "user", "connector": "c", "userId": "u", "channelId": "d"}},
        {"input": None, "message": {"content": "pay"}},
    ],
    ids=str,
)  # fmt: skip
async def test_another_opening_under_the_same_key_is_refused(ports, other):
    async with served(ports, *agents([])) as (rt, _, client):
        body = {"agent": "support", "input": "pay"}
        assert (await client.post("/api/runs", json=body, headers=keyed())).status_code == 202
        answer = await client.post("/api/runs", json=body | other, headers=keyed())
        assert kind(answer) == (409, "key-reused")
        assert len(await rt.hub.read(types="session:open")) == 1


async def test_the_same_opening_in_another_order_is_the_same(ports):
    async with served(ports, *agents([])) as (_, _, client):
        texts = (
            '{"agent": "support", "input": {"a": 1, "b": {"c": 2, "d": 3}}, "once": false}',
            '{"input":{"b":{"d":3,"c":2},"a":1},"agent":"support"}',
        )
        found = [
            await client.post(
                "/api/runs", content=text, headers={**keyed(), "content-type": "application/json"}
            )
            for text in texts
        ]
        assert [x.status_code for x in found] == [202, 200]


def test_a_body_that_later_versions_say_more_by_is_the_same_request():
    class Part(Struct):
        text: str
        role: str = "user"

    class Body(Struct):
        parts: tuple[Part, ...] = ()
        env: dict[str, Secret] = {}

    class LaterPart(Part):
        tone: tuple[str, ...] = ()

    class LaterBody(Body):
        mood: str | None = None

    one = request_key("k", ("p",), Body((Part("a"),), {"A": Secret("b")}))
    later = request_key("k", ("p",), LaterBody((LaterPart("a"),), {"A": Secret("c")}))
    assert one == later
    for other in (LaterBody((LaterPart("b"),)), LaterBody((LaterPart("a", tone=("x",)),))):
        assert request_key("k", ("p",), other) != one
    for name, path in (("k", ("q",)), ("j", ("p",)), ("k", ("p", ""))):
        assert request_key(name, path, one).name != one.name
    assert request_key("", ("p",), one) is None


@pytest.mark.parametrize(
    "path", ["/api/conversations/s/messages", "/api/agents/support/messages", "/api/messages"]
)
async def test_a_message_counts_once_though_its_address_leads_elsewhere(ports, path):
    said = []
    async with served(ports, *agents(said)) as (_, _, client):
        opening = {"agent": "support", "input": "hi", "session_key": "s"}
        run_id = (await client.post("/api/runs", json=opening)).json()["run_id"]
        first = await client.post(path, json={"content": "pay"}, headers=keyed())
        assert (first.status_code, first.json()["run_id"]) == (202, run_id)
        await client.post(f"/api/runs/{run_id}/close", json={})
        await anyio.sleep(1)
        for _ in range(2):
            for to in (path, f"/api/runs/{run_id}/messages"):
                again = await client.post(to, json={"content": "pay"}, headers=keyed())
                assert (again.status_code, again.json()["run_id"]) == (200, run_id)
                other = await client.post(to, json={"content": "more"}, headers=keyed())
                assert kind(other) == (409, "key-reused")
            await client.post("/api/runs", json=opening)
        await anyio.sleep(1)
        assert said.count("pay") == 1


async def test_a_reset_counts_once_by_its_key(ports):
    async with served(ports, *agents([])) as (rt, _, client):
        run_id = (await client.post("/api/runs", json={"agent": "support", "input": "hi"})).json()[
            "run_id"
        ]
        await anyio.sleep(1)
        url = f"/api/runs/{run_id}/reset"
        answers = [
            await client.post(url, json={"message": said}, headers=keyed())
            for said in ("fresh", "fresh", "other")
        ]
        assert [x.status_code for x in answers] == [202, 200, 409]
        assert len(await rt.hub.read(run_id, types="session:reset")) == 1


async def test_requests_count_once_over_restarts(ports, tmp_path):
    said = []
    body = {"agent": "support", "input": "pay", "session_key": "s", "once": True}
    found = []
    for _ in range(2):
        rt = Runtime(agents(said), store=sqlite_store(tmp_path), ports=ports)
        app = HttpApp(rt.hub)
        async with rt, app, client_of(app) as client:
            for each in (body, {**body, "name": "n"}):
                answer = await client.post("/api/runs", json=each, headers=keyed())
                found.append((answer.status_code, answer.json().get("run_id")))
            await anyio.sleep(1)
    (first, run_id), *more = found
    assert first == 202
    assert more == [(409, None), (200, run_id), (409, None)]
    assert said == ["pay"]


async def test_the_same_opening_at_once_is_one(ports):
    async with served(ports, support()) as (_, _, client):
        found = []

        async def post():
            body = {"agent": "support", "input": "hi", "session_key": "s"}
            answer = await client.post("/api/runs", json=body, headers=keyed())
            found.append((answer.status_code, answer.json()["run_id"], answer.json()["cursor"]))

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(post)
        assert sorted(x[0] for x in found) == [200] * 7 + [202]
        assert len({x[1:] for x in found}) == 1
