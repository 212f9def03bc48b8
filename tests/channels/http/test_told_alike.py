"""What a client is told is true wherever the app is mounted, and the same however it asks."""

from contextlib import asynccontextmanager
from urllib.parse import urljoin

import anyio
import pytest
from http_apps import client_of, served
from starlette.applications import Starlette
from starlette.routing import Mount
from support.agents import model_agent
from support.asgi_clients import event_source, socket
from support.openai_face import talker

from hubbub import FunctionModel, Runtime
from hubbub.channels.http import HttpApp, HttpLimits
from hubbub.hub.errors import BadValue, ProviderError

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-02")]


def kind(problem):
    return problem["type"].rpartition("/")[2], problem["status"]


@asynccontextmanager
async def mounted(ports, path, **options):
    rt = Runtime([talker()], store="memory", ports=ports)
    app = HttpApp(rt.hub, **options)
    async with rt, app:
        yield Starlette(routes=[Mount(path, app)])


@pytest.mark.parametrize("path", ["/hubbub", "/a b/é;", "/deep/er"])
async def test_links_lead_back_below_a_mount(ports, path):
    async with mounted(ports, path) as outer, client_of(outer) as client:
        missing = await client.get(f"{path}/api/runs/nope")
        link = urljoin(str(missing.url), missing.json()["type"])
        assert link.endswith("/problems/unknown-run")
        meant = await client.get(link)
        assert (meant.status_code, meant.json()["title"]) == (200, missing.json()["title"])
        assert urljoin(link, meant.json()["type"]) == link
        document = await client.get(f"{path}/api/openapi.json")
        (server,) = document.json()["servers"]
        again = await client.get(urljoin(str(document.url), server["url"]) + "/api/agents")
        assert again.status_code == 200
        lost = (await client.get(f"{path}/nowhere")).json()["detail"]
        listed = lost.removeprefix("no such path; ").partition(" ")[0]
        assert (await client.get(listed)).status_code == 200
    async with mounted(ports, "/m") as outer, socket(outer, "/m/api/socket") as ws:
        ws.say("interrupt", run_id="nope")
        await anyio.sleep(1)
        assert ws.got[-1]["problem"]["type"] == "/m/problems/unknown-run"


@pytest.mark.parametrize("path", ["/hubbub", "/a b/é"])
async def test_a_session_s_cookie_is_sent_back_below_a_mount(ports, path):
    async with mounted(ports, path, token="t" * 30) as outer, client_of(outer) as client:
        begun = await client.post(f"{path}/api/session", json={"token": "t" * 30})
        assert begun.headers["set-cookie"].isascii()
        assert (await client.get(f"{path}/api/agents")).status_code == 200


COMMANDS = [
    ("open", {"agent": "nope", "input": "x"}, "/api/runs"),
    ("open", {"agent": "support", "input": "x", "timeout": -1}, "/api/runs"),
    ("send", {"run_id": "nope", "content": "x"}, "/api/runs/nope/messages"),
    ("send", {"session_key": "nope", "content": "x"}, "/api/conversations/nope/messages"),
    ("send", {"agent": "nope", "content": "x"}, "/api/agents/nope/messages"),
    ("send", {"content": "x"}, "/api/messages"),
    ("approve", {"prompt_id": "nope"}, "/api/prompts/nope/approve"),
    ("deny", {"prompt_id": "nope"}, "/api/prompts/nope/deny"),
    ("reply", {"prompt_id": "nope", "content": "x"}, "/api/prompts/nope/reply"),
    ("interrupt", {"run_id": "nope"}, "/api/runs/nope/interrupt"),
    ("close", {"run_id": "nope"}, "/api/runs/nope/close"),
    ("terminate", {"run_id": "nope"}, "/api/runs/nope/terminate"),
]


@pytest.mark.parametrize(("command", "fields", "path"), COMMANDS, ids=str)
async def test_a_socket_names_a_problem_as_a_request_does(ports, command, fields, path):
    async with served(ports) as (_, app, client), socket(app) as ws:
        said = ws.say(command, **fields)
        await anyio.sleep(1)
        in_path = path.split("/")
        body = {name: x for name, x in fields.items() if x not in in_path or name == "content"}
        if path == "/api/runs":
            body = fields
        answer = await client.post(path, json=body)
        assert answer.status_code >= 400
        assert kind(ws.answer(said)["problem"]) == kind(answer.json())


async def test_a_socket_that_commands_too_often_is_told_so_and_kept(ports):
    limits = HttpLimits(command_burst=1, command_rate=1)
    async with served(ports, limits=limits) as (_, app, _), socket(app) as ws:
        asked = [ws.say("send", content="x") for _ in range(40)]
        await anyio.sleep(0.5)
        told = [kind(ws.answer(each)["problem"]) for each in asked]
        assert told[1:] == [("too-many-requests", 429)] * 39
        assert not ws.is_over


async def test_a_socket_s_path_asks_for_the_upgrade(ports):
    async with served(ports) as (_, _, client):
        answer = await client.get("/api/socket")
        assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
        assert kind(answer.json()) == ("upgrade-required", 426)


@pytest.mark.parametrize("types", ["agent:nothing-of-ours", "agent:text,hub:nope:*", "agent:txet"])
async def test_a_type_that_no_event_can_have_is_refused(ports, types):
    async with served(ports) as (rt, app, client):
        run_id = (await rt.hub.open("support", "x")).run_id
        for path in ("/api/events", f"/api/runs/{run_id}/events"):
            async with event_source(app, path, types=types) as source:
                assert source.status == 400
        answer = await client.get(f"/api/runs/{run_id}/records", params={"types": types})
        assert kind(answer.json()) == ("invalid-value", 400)
        async with socket(app) as ws:
            said = ws.say("subscribe", types=types)
            await anyio.sleep(1)
            assert kind(ws.answer(said)["problem"]) == ("invalid-value", 400)
        async with event_source(app, types="mine") as source:
            assert source.status == 200, "an event of the program's own may be of any type"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "it is empty"), (b" \n", "it is empty"),
        (b'{"content": "\\ud800"}', "half of a surrogate pair"),
        (b'{"content": ', "ends too early"),
        (b'{"content": 3}', "Expected `str`, got `int`"),
    ],
)  # fmt: skip
async def test_a_body_that_is_no_json_is_told_what_it_lacks(ports, body, told):
    async with served(ports) as (_, _, client):
        for path in ("/api/messages", "/v1/responses"):
            answer = await client.post(
                path, content=body, headers={"content-type": "application/json"}
            )
            assert answer.status_code == 400
            if told.startswith("Expected") and path == "/v1/responses":
                continue
            assert told in answer.text


async def test_numbers_that_are_none_are_told_as_such(ports):
    async with served(ports) as (rt, _, client):
        run_id = (await rt.hub.open("support", "x")).run_id
        answer = await client.get(f"/api/runs/{run_id}/state", params={"record": "9" * 19})
        assert "record" in answer.json()["detail"] and answer.status_code == 400
        name = rt.hub.journal.name
        for position in (f"{name}@٣", f"{name}|{run_id}/in/١"):
            answer = await client.get(f"/api/runs/{run_id}/records", params={"after": position})
            assert kind(answer.json()) == ("invalid-value", 400)


@pytest.mark.parametrize("name", ["body_seconds", "ping_seconds", "stall_seconds"])
def test_a_limit_of_no_time_is_refused(name):
    with pytest.raises(BadValue, match=name):
        HttpLimits(**{name: 0})


@pytest.mark.parametrize("host", ["*", "*.example.org", "a b", "a,b", ""])
def test_a_host_that_is_no_name_is_refused(host):
    with pytest.raises(BadValue, match="hosts"):
        HttpApp(Runtime([talker()], store="memory").hub, hosts=[host])


@pytest.mark.spec("W-06")
async def test_a_client_of_v1_is_not_told_why_a_provider_failed(ports):
    def fail(request):
        raise ProviderError("m", "auth", "http://10.0.0.7:8000 refused; set INTERNAL_KEY")

    bot = model_agent(FunctionModel(fail), name="bot")
    async with served(ports, bot) as (rt, _, client):
        whole = await client.post("/v1/responses", json={"model": "bot", "input": "x"})
        chat = await client.post(
            "/v1/chat/completions",
            json={"model": "bot", "messages": [{"role": "user", "content": "x"}]},
        )
        streams = [
            await client.post("/v1/responses", json={"model": "bot", "input": "x", "stream": True})
        ]
        assert chat.status_code == 502
        for answer in (whole, chat, *streams):
            assert "10.0.0.7" not in answer.text and "INTERNAL_KEY" not in answer.text
            assert "the agent failed" in answer.text
        assert "INTERNAL_KEY" in str(await rt.hub.read(types="session:end")), "it is on record"
