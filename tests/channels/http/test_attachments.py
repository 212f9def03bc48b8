"""Attachments of messages from outside: the run has them, or nothing is sent."""

from typing import Any

import pytest
from http_apps import served, support
from support.asgi_clients import socket, turns

from hubbub import Agent, FunctionModel, Message, ModelRequest

pytestmark = [pytest.mark.anyio, pytest.mark.spec("A-01", "W-02")]


async def messages(rt: Any) -> int:
    return len(await rt.hub.read(types=["session:message", "session:open"]))


async def test_a_file_that_is_not_there_is_refused_and_nothing_is_sent(ports):
    async with served(ports, support(*["Hello."] * 9)) as (rt, _, client):
        opened = await client.post(
            "/api/runs", json={"agent": "support", "session_key": "web_ada", "input": "x"}
        )
        run_id = opened.json()["run_id"]
        before = await messages(rt)
        body = {"content": "See it.", "attachments": ["in/none", "in/orders.csv"], "key": "m1"}
        paths = [
            f"/api/runs/{run_id}/messages", "/api/conversations/web_ada/messages",
            "/api/agents/support/messages", "/api/messages",
        ]  # fmt: skip
        for path in paths:
            refused = await client.post(path, json=body)
            assert (refused.status_code, refused.json()["type"]) == (404, "/problems/unknown-file")
            assert "in/none" in refused.json()["detail"]
        for more in ({"session_key": "web_ada"}, {"session_key": "new"}, {"run_id": run_id}, {}):
            opening = {"agent": "support", "message": body, **more}
            refused = await client.post("/api/runs", json=opening)
            assert refused.json()["type"] == "/problems/unknown-file", more
        assert await messages(rt) == before
        await client.put(f"/api/runs/{run_id}/files/in/orders.csv", content=b"a,b")
        await client.put(f"/api/runs/{run_id}/files/in/none", content=b"it is")
        sent = [await client.post(path, json={**body, "key": path}) for path in paths]
        assert [x.status_code for x in sent] == [202] * 4
        # As models write it, too; and who is not there is told so, not of files.
        body["attachments"] = ["/attachments/in/orders.csv"]
        assert (await client.post(paths[0], json=body)).status_code == 202
        for path in ("/api/runs/nobody/messages", "/api/conversations/nobody/messages"):
            answer = await client.post(path, json=body)
            assert answer.json()["type"] in (
                "/problems/unknown-run",
                "/problems/unknown-conversation",
            )


async def test_what_was_accepted_before_its_file_went_is_a_duplicate(ports):
    async with served(ports, support(*["Hello."] * 9)) as (rt, _, client):
        opened = await client.post("/api/runs", json={"agent": "support", "input": "x"})
        url = f"/api/runs/{opened.json()['run_id']}"
        await client.put(f"{url}/files/a.txt", content=b"it")
        body = {"content": "See it.", "attachments": ["a.txt"], "key": "m1"}
        assert (await client.post(f"{url}/messages", json=body)).status_code == 202
        # As if its agent had deleted it.
        rt.hub.addressing.refusal_of_files = lambda *_: "the run has no file 'a.txt'"
        assert (await client.post(f"{url}/messages", json=body)).status_code == 200
        body["key"] = "m2"
        assert (await client.post(f"{url}/messages", json=body)).status_code == 404


async def test_a_socket_refuses_it_too_and_knows_how_to_reset(ports):
    async with served(ports, support(*["Hello."] * 9)) as (rt, app, _), socket(app) as client:
        run = await rt.start("support", "x", session_key="web_ada")
        await run.result()
        before = await messages(rt)
        said = {"content": "See it.", "attachments": ["in/none"]}
        refused = [
            client.say("send", run_id=run.run_id, **said),
            client.say("send", session_key="web_ada", **said), client.say("send", **said),
            client.say("open", agent="support", message=said),
        ]  # fmt: skip
        unknown = client.say("restart", run_id=run.run_id)
        await turns(50)
        for each in refused:
            assert client.answer(each)["problem"]["type"] == "/problems/unknown-file"
        assert (
            "there are subscribe, unsubscribe, open" in client.answer(unknown)["problem"]["detail"]
        )
        assert await messages(rt) == before
        reset = client.say("reset", run_id=run.run_id, message="Anew.")
        await turns(50)
        assert client.answer(reset)["status"] == "accepted"
        assert [x.message for x in await rt.hub.read(types="session:reset")] == ["Anew."]


async def test_a_selection_says_when_everything_on_record_has_come(ports):
    async with served(ports, support(*["Hello."] * 9)) as (rt, app, _), socket(app) as client:
        run = await rt.start("support", "x")
        await run.result()
        name = client.say("subscribe", run_id=run.run_id, after="start", live=True)
        await turns(50)
        *record, mark = client.events(name)
        assert mark["event"]["type"] == "hub:live" and mark["position"]
        assert len(record) == len(await rt.hub.read(run.run_id))


async def test_a_file_that_was_named_and_is_not_there_is_shown_as_missing(ports):
    seen: list[str] = []

    def answer(request: ModelRequest) -> str:
        seen.append(str(request.messages[-1]))
        return "Hello."

    agent = Agent("support", "You help.", model=FunctionModel(answer))
    async with served(ports, agent) as (rt, _, client):
        run = await rt.start("support", "x", session_key="web_ada")
        await run.result()
        await client.put(f"/api/runs/{run.run_id}/files/a.txt", content=b"it")
        said = Message("See them.", attachments=("/a.txt", "b.txt"))
        rt.hub.addressing.refusal_of_files = None  # As an earlier version has accepted it.
        await rt.hub.send_to_run(run.run_id, said)
        await run.result()
        assert "- /a.txt\\n- b.txt (missing)" in seen[-1]
