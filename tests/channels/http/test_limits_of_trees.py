"""Limits of trees over HTTP: given with an opening, raised and lowered afterwards."""

from typing import Any

import pytest
from http_apps import parsed, served

from hubbub import Agent, Limits, Price, Runtime, ScriptedModel
from hubbub.channels.http.wire.receipts import ReceiptView
from hubbub.hub.errors import BadValue
from hubbub.hub.events import SessionLimits
from hubbub.hub.ports import Ports

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-05", "W-02")]


def talker() -> Agent:
    return Agent("support", "You help.", model=ScriptedModel(["Hello."] * 50))


async def said(rt: Runtime, run_id: str, words: str) -> tuple[str, str]:
    run = await rt.handle(run_id)
    outcome = await run.ask(words)
    return outcome.outcome, outcome.reason


async def test_a_tree_is_opened_with_limits_which_are_raised_and_lowered(ports: Ports) -> None:
    async with served(ports, talker()) as (rt, _, client):
        opening = {"agent": "support", "session_key": "k", "limits": {"model_calls": 1}}
        run_id = (await client.post("/api/runs", json=opening)).json()["run_id"]
        path = f"/api/runs/{run_id}/limits"
        assert await said(rt, run_id, "One") == ("completed", "")
        assert await said(rt, run_id, "Two") == ("limit", "tree.model_calls")
        raised = await client.post(path, json={"limits": {"model_calls": 3, "seconds": 60}})
        assert raised.status_code == 202
        receipt = parsed(raised, ReceiptView)
        assert (receipt.status, receipt.run_id) == ("accepted", run_id)
        assert await said(rt, run_id, "Three") == ("completed", "")
        assert (await client.post(path, json={"limits": {"output_tokens": 1}})).status_code == 202
        assert (await client.post(path, json={"limits": None})).status_code == 202
        assert await said(rt, run_id, "Four") == ("completed", "")
        records = (await client.get(f"/api/runs/{run_id}/records")).json()["records"]
        given = [x.get("limits") for x in records if x["type"] == "session:limits"]
        assert given == [{"model_calls": 3, "seconds": 60.0}, {"output_tokens": 1}, None]


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({}, 400, "invalid-request"),
        ({"limits": 3}, 400, "invalid-request"),
        ({"limits": {"costs": 3}}, 400, "invalid-request"),
        ({"limits": {"model_calls": 0}}, 400, "invalid-request"),
        ({"limits": {"seconds": 1e308}}, 400, "invalid-request"),
        ({"limits": {"model_calls": 10**30}}, 400, "invalid-request"),
        ({"limits": {"cost": 5}}, 400, "invalid-value"),  # There are no prices.
    ],
)
async def test_what_are_no_limits_is_refused(
    ports: Ports, body: Any, status: int, kind: str
) -> None:
    async with served(ports, talker()) as (_, _, client):
        opening = {"agent": "support", "input": "Hello"}
        run_id = (await client.post("/api/runs", json=opening)).json()["run_id"]
        refused = await client.post(f"/api/runs/{run_id}/limits", json=body)
        assert (refused.status_code, refused.json()["type"]) == (status, f"/problems/{kind}")
        assert refused.json()["detail"]


async def test_limits_are_those_of_a_root_that_there_is(ports: Ports) -> None:
    body = {"limits": {"model_calls": 3}}
    async with served(ports, talker()) as (rt, _, client):
        for unknown in ("nobody", "no%20body"):
            missing = await client.post(f"/api/runs/{unknown}/limits", json=body)
            assert missing.json()["type"] == "/problems/unknown-run"
        over = await rt.run("support", "Hello")
        ended = await client.post(f"/api/runs/{over.run_id}/limits", json=body)
        assert (ended.status_code, ended.json()["type"]) == (409, "/problems/run-ended")
        root = await rt.start("support", "Hello")
        child = {"type": "subagent", "id": "one", "parentAgentId": root.run_id, "name": "one"}
        receipt = await rt.hub.open("support", "x", descriptor=child)
        below = await client.post(f"/api/runs/{receipt.run_id}/limits", json=body)
        assert below.json()["type"] == "/problems/refused"
        assert root.run_id in below.json()["detail"]


async def test_a_runtime_is_asked_for_limits_in_words(ports: Ports) -> None:
    prices = {"scripted": Price(input=1, output=1)}
    given: list[SessionLimits] = []
    async with Runtime([talker()], store="memory", ports=ports, prices=prices) as rt:
        rt.hub.subscribe(SessionLimits, given.append)
        run = await rt.start("support", "Hello")
        receipt = await rt.hub.ask("runtime", f'limit {run.run_id} {{"cost": 2}}')
        assert receipt.accepted
        for wrong in (
            "",
            "{",
            "[]",
            "3",
            '{"costs": 3}',
            '{"cost": 0}',
            '{"cost": "3"}',
            "[" * 9999,
        ):
            with pytest.raises(BadValue, match="limits: "):
                await rt.hub.ask("runtime", f"limit {run.run_id} {wrong}")
    assert [event.limits for event in given] == [Limits(cost=2)]
