"""The table of routes, row by row: each does its work, and each is guarded in the same way."""

import logging

import anyio
import httpx
import pytest
from http_apps import served, support

from hubbub import Runtime
from hubbub.channels.http import HttpApp
from hubbub.hub.errors import BadValue
from hubbub.runtime.models.scripted import call, reply

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-02", "W-06")]

TABLE = HttpApp(Runtime([], store="memory").hub, token="t").routes
TOKEN = {"Authorization": "Bearer t0ken-of-the-test"}

ELSEWHERE = {
    "GET /": "the inspector's tests",
    "GET /inspector/{name:path}": "the inspector's tests",
    "GET /api/events": "the tests of streams",
    "GET /api/runs/{run_id}/events": "the tests of streams",
    "WEBSOCKET /api/socket": "the tests of streams",
    "GET /v1/models": "the tests of the compatible endpoints",
    "GET /v1/models/{model:path}": "the tests of the compatible endpoints",
    "POST /v1/responses": "the tests of the compatible endpoints",
    "GET /v1/responses/{id}": "the tests of the compatible endpoints",
    "POST /v1/responses/{id}/cancel": "the tests of the compatible endpoints",
    "POST /v1/chat/completions": "the tests of the compatible endpoints",
    "GET /threads/{parent}/variables/{request_id}": "test_variables",
    "POST /threads/{parent}/variables/{request_id}": "test_variables",
}

STORY = (
    ("GET", "/health", {}, 200),
    ("GET", "/ready", {}, 200),
    ("GET", "/api/statistics", {}, 200),
    ("GET", "/api/openapi.json", {}, 200),
    ("GET", "/problems/unknown-run", {}, 200),
    ("GET", "/api/agents", {}, 200),
    ("GET", "/api/agents/support", {}, 200),
    ("POST", "/api/session", {"json": {"token": "t0ken-of-the-test"}}, 204),
    ("DELETE", "/api/session", {}, 204),
    ("POST", "/api/runs", {"json": {"agent": "support", "input": "x", "session_key": "k"}}, 202),
    ("GET", "/api/runs", {}, 200),
    ("GET", "/api/runs/RUN", {}, 200),
    ("GET", "/api/runs/RUN/state", {}, 200),
    ("GET", "/api/runs/RUN/records", {}, 200),
    ("GET", "/api/runs/RUN/test", {}, 200),
    ("GET", "/api/runs/RUN/test/recording", {}, 200),
    ("GET", "/api/prompts", {}, 200),
    ("POST", "/api/prompts/RUN.call_1_0/approve", {}, 202),
    ("POST", "/api/prompts/RUN.call_1_1/reply", {"json": {"content": "it"}}, 202),
    ("POST", "/api/prompts/RUN.call_1_2/deny", {}, 202),
    ("GET", "/api/conversations", {}, 200),
    ("GET", "/api/conversations/k", {}, 200),
    ("POST", "/api/conversations/k/messages", {"json": {"content": "x"}}, 202),
    ("POST", "/api/agents/support/messages", {"json": {"content": "x"}}, 202),
    ("POST", "/api/messages", {"json": {"content": "x"}}, 202),
    ("POST", "/api/runs/RUN/messages", {"json": {"content": "x"}}, 202),
    ("PUT", "/api/runs/RUN/files/a.txt", {"content": b"x"}, 202),
    ("GET", "/api/runs/RUN/files", {}, 200),
    ("GET", "/api/runs/RUN/files/a.txt", {}, 200),
    ("GET", "/api/schedules", {}, 200),
    ("GET", "/api/workers", {}, 200),
    ("GET", "/api/variables", {}, 200),
    ("POST", "/api/runs/RUN/interrupt", {}, 202),
    ("POST", "/api/runs/RUN/compact", {}, 202),
    ("POST", "/api/runs/RUN/limits", {"json": {"limits": {"model_calls": 99}}}, 202),
    ("POST", "/api/runs/RUN/reset", {}, 202),
    ("POST", "/api/runs/RUN/close", {}, 202),
    ("POST", "/api/runs", {"json": {"agent": "support", "input": "x"}}, 202),
    ("POST", "/api/runs/RUN/terminate", {}, 202),
)


async def test_every_route_does_its_work(ports):
    asks = reply("", call("refund", order=1), call("pick", what="x"), call("pick", what="y"))
    agent = support(asks, *["Hello."] * 50)
    seen, run_id = set(), ""
    async with served(ports, agent, token="t0ken-of-the-test") as (_, app, client):
        for method, path, how, status in STORY:
            path = path.replace("RUN", run_id)
            answer = await client.request(method, path, headers=TOKEN, **how)
            assert answer.status_code == status, (method, path, answer.text)
            if path == "/api/runs" and method == "POST":
                run_id = answer.json()["run_id"]
            await anyio.sleep(1)
            scope = {"type": "http", "method": method, "path": path, "root_path": ""}
            seen.add(app._paths.find(scope)[0].name)
    assert seen | set(ELSEWHERE) >= {route.name for route in TABLE}
    assert not seen & set(ELSEWHERE)


async def knock(app, route, *, client=("127.0.0.1", 1), host="localhost", headers=()):
    """The status of a request to a route, whatever it says: nothing of it is to be done."""
    path = "/".join("x" if "{" in part else part for part in route.path.split("/"))
    is_socket = route.method == "WEBSOCKET"
    scope = {
        "type": "websocket" if is_socket else "http", "method": route.method, "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "client": client,
        "scheme": "ws" if is_socket else "http", "subprotocols": [],
        "extensions": {"websocket.http.response": {}},
        "headers": [(b"host", host.encode()), *headers],
    }  # fmt: skip
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    with anyio.move_on_after(5):
        await app(scope, receive, send)
    return sent[0].get("status", 0)


@pytest.mark.parametrize("route", TABLE, ids=lambda route: route.name)
async def test_every_route_is_guarded(route, ports):
    async with served(ports, support("Hello."), token="t0ken-of-the-test") as (_, app, _):
        wrong = [(b"authorization", b"Bearer t")]
        cookie = [(b"cookie", b"hubbub_session=9999999999.x.abc")]
        foreign = [(b"origin", b"https://evil.example")]
        right = [(b"authorization", TOKEN["Authorization"].encode())]
        if not route.is_open:
            for headers in ([], wrong, cookie, [(b"authorization", b"Basic dDp0")]):
                assert await knock(app, route, headers=headers) == 401
        assert await knock(app, route, headers=[*right, *foreign]) == 403
    async with served(ports, support("Hello.")) as (_, app, _):
        if any(route.name == each.name for each in app.routes):
            assert await knock(app, route, client=("192.0.2.1", 1)) == 403
            assert await knock(app, route, host="evil.example") == 403
            assert await knock(app, route, headers=[(b"origin", b"null")]) == 403
            cross = [(b"sec-fetch-site", b"cross-site"), (b"sec-fetch-mode", b"cors")]
            assert await knock(app, route, headers=cross) == 403


async def test_only_what_says_nothing_of_runs_needs_no_token(ports):
    assert {route.name for route in TABLE if route.is_open} == {
        "GET /health", "GET /ready", "GET /problems/{kind}", "POST /api/session",
        "DELETE /api/session", "GET /", "GET /inspector/{name:path}",
    }  # fmt: skip


async def test_wrong_tokens_are_counted_and_the_token_is_shown_nowhere(ports, caplog):
    caplog.set_level(logging.DEBUG)
    texts = []
    async with served(ports, token="t0ken-of-the-test") as (_, app, client):
        for number in range(30):
            answer = await client.post("/api/session", json={"token": f"guess {number}"})
            texts.append(answer.text + str(answer.headers))
            assert answer.status_code == (401 if number < 20 else 429)
        locked = await client.get("/api/agents", headers=TOKEN)
        assert locked.status_code == 429  # Or a guess could be confirmed that way.
        transport = httpx.ASGITransport(app, client=("192.0.2.9", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://hub") as other:
            assert (await other.get("/api/agents", headers=TOKEN)).status_code == 200
        await anyio.sleep(61)
        begun = await client.post("/api/session", json={"token": "t0ken-of-the-test"})
        assert begun.status_code == 204
        texts += [begun.text + str(begun.headers), repr(app), repr(app.access), caplog.text]
    assert "t0ken-of-the-test" not in "".join(texts) and "guess" not in "".join(texts)


async def test_a_session_ends_by_itself(ports):
    async with served(ports, token="t") as (_, _, client):
        await client.post("/api/session", json={"token": "t"})
        assert (await client.get("/api/agents")).status_code == 200
        cookie = f"hubbub_session={client.cookies['hubbub_session']}"
        await anyio.sleep(8 * 3600 + 1)
        again = await client.get("/api/agents", headers={"Cookie": cookie})
        assert again.status_code == 401


async def test_a_session_holds_over_a_restart_and_not_for_another_token(ports):
    async with served(ports, token="t") as (_, _, client):
        await client.post("/api/session", json={"token": "t"})
        kept = dict(client.cookies)
    for token, status in (("t", 200), ("u", 401)):
        async with served(ports, token=token) as (_, _, client):
            client.cookies.update(kept)
            assert (await client.get("/api/agents")).status_code == status


async def test_the_cookie_is_for_where_the_app_is_mounted_and_for_https_only_there(ports):
    async with served(ports, token="t") as (_, app, _):
        transport = httpx.ASGITransport(app, root_path="/hubbub")
        async with httpx.AsyncClient(transport=transport, base_url="https://hub") as client:
            begun = await client.post("/hubbub/api/session", json={"token": "t"})
            cookie = begun.headers["set-cookie"]
            assert "Path=/hubbub;" in cookie and cookie.endswith("; Secure")
            assert (await client.get("/hubbub/api/agents")).status_code == 200


async def test_an_app_shows_no_token_and_takes_no_host_of_everybody(ports):
    hub = Runtime([], store="memory").hub
    assert "s3cret" not in repr(vars(HttpApp(hub, token="s3cret")))
    for wrong in (
        {"origins": ["*"]},
        {"hosts": ["a/b"]},
        {"hosts": [""]},
        *({"token": x} for x in ("é", "", " ", "a\nb", "a ", "\x7f")),
    ):
        with pytest.raises(BadValue):
            HttpApp(hub, **wrong)
