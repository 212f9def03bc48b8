"""The app: one way of a request, whatever it asks for."""

import subprocess
import sys

import httpx
import pytest
from http_apps import client_of
from http_apps import served as served_app

from hubbub import Agent, Runtime, ScriptedModel
from hubbub.channels.http import HttpApp, HttpLimits
from hubbub.channels.http.wire.receipts import refusal_of_receipt
from hubbub.hub.errors import BadValue, CallerError
from hubbub.hub.receipt import REMEDIES, Receipt

pytestmark = pytest.mark.anyio


def hello():
    return Agent("support", "You help.", model=ScriptedModel(["Hello."] * 20))


def served(ports, **options):
    return served_app(ports, hello(), **options)


async def test_a_message_is_accepted_once_with_its_key(ports):
    async with served(ports) as (rt, _, client):
        run = await rt.start("support", "hi")
        url = f"/api/runs/{run.run_id}/messages"
        first = await client.post(url, json={"content": "more", "key": "k"})
        again = await client.post(url, json={"content": "more"}, headers={"Idempotency-Key": "k"})
        other = await client.post(url, json={"content": "less", "key": "k"})
    assert first.status_code == 202 and first.json()["run_id"] == run.run_id
    assert again.status_code == 200 and again.json()["status"] == "duplicate"
    assert other.status_code == 409 and other.json()["type"] == "/problems/key-reused"


async def test_requests_before_and_after_its_life_are_told_that_it_is_closed(ports):
    rt = Runtime([Agent("a", "A.", model=ScriptedModel(["x"]))], store="memory", ports=ports)
    app = HttpApp(rt.hub)
    async with client_of(app) as client:
        before = [(await client.get(path)).status_code for path in ("/ready", "/api/agents")]
        async with rt, app:
            within = (await client.get("/ready")).status_code
        after = [(await client.get(path)).status_code for path in ("/ready", "/api/agents")]
    assert (before, within, after) == ([503, 503], 200, [503, 503])


async def test_a_store_that_has_failed_for_good_is_not_called_healthy(ports):
    async with served(ports) as (rt, _, client):
        before = [(await client.get(path)).status_code for path in ("/health", "/ready")]
        rt.hub.journal.failure = "the disk is gone; restore it"
        after = [await client.get(path) for path in ("/health", "/ready")]
    assert before == [200, 200]
    assert [x.status_code for x in after] == [503, 503]
    assert {x.json()["type"] for x in after} == {"/problems/store-failed"}


async def test_an_app_is_entered_once(ports):
    async with served(ports) as (_, app, _):
        with pytest.raises(CallerError, match="entered already"):
            await app.__aenter__()


async def test_what_is_not_there_says_what_is(ports):
    async with served(ports) as (_, _, client):
        absent = await client.get("/nothing")
        method = await client.put("/api/agents")
        head = await client.head("/health")
    assert absent.status_code == 404
    assert absent.headers["content-type"] == "application/problem+json"
    assert (method.status_code, method.headers["allow"]) == (405, "GET")
    assert (head.status_code, head.content) == (200, b"")


async def test_without_a_token_only_names_of_this_machine_are_served(ports):
    async with served(ports, hosts=["hub.example"]) as (_, app, client):
        for host, status in (
            ("127.0.0.1", 200), ("[::1]:8700", 200), ("localhost:1", 200), ("hub.example", 200),
            ("evil.example", 403), ("127.0.0.1.evil.example", 403), ("", 403),
        ):  # fmt: skip
            found = await client.get("/health", headers={"host": host})
            assert found.status_code == status, host
        transport = httpx.ASGITransport(app, client=("192.0.2.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as far:
            assert (await far.get("/health")).json()["type"] == "/problems/beyond-loopback"


async def test_a_token_is_demanded_and_a_browser_gets_a_session_for_it(ports):
    async with served(ports, token="s3cret") as (_, app, client):
        assert (await client.get("/api/agents")).status_code == 401
        wrong = await client.get("/api/agents", headers={"Authorization": "Bearer s3cre"})
        right = await client.get("/api/agents", headers={"Authorization": "Bearer s3cret"})
        assert (wrong.status_code, right.status_code) == (401, 200)
        assert "s3cre" not in wrong.text
        begun = await client.post("/api/session", json={"token": "s3cret"})
        cookie = begun.headers["set-cookie"]
        assert begun.status_code == 204
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and "s3cret" not in cookie
        assert (await client.get("/api/agents")).status_code == 200
        kept = dict(client.cookies)
        assert (await client.delete("/api/session")).status_code == 204
        async with client_of(app) as other:
            other.cookies.update(kept)
            assert (await other.get("/api/agents")).status_code == 401


async def test_pages_of_other_sites_are_refused_unless_they_are_allowed(ports):
    async with served(ports, origins=["https://app.example"]) as (_, _, client):
        statuses = {
            origin: (await client.get("/api/agents", headers={"Origin": origin})).status_code
            for origin in ("http://localhost", "https://app.example", "http://evil.example", "null")
        }
        allowed = await client.get("/api/agents", headers={"Origin": "https://app.example"})
        preflight = await client.options(
            "/api/agents",
            headers={"Origin": "https://app.example", "Access-Control-Request-Method": "POST"},
        )
    assert list(statuses.values()) == [200, 200, 403, 403]
    assert allowed.headers["access-control-allow-origin"] == "https://app.example"
    assert preflight.status_code == 204
    assert "authorization" in preflight.headers["access-control-allow-headers"]


async def test_only_a_listed_page_reads_with_a_cookie_and_by_its_own_name(ports):
    listed = "https://app.example"
    async with served(ports, token="s3cret", origins=[listed]) as (_, _, client):
        asks = {"Access-Control-Request-Method": "POST"}
        login = {"json": {"token": "s3cret"}}
        for origin in (listed, "https://app.example.evil", "http://app.example", "null", "*"):
            headers = {"Origin": origin}
            answers = [
                await client.post("/api/session", headers=headers, **login),
                await client.options("/api/session", headers=headers | asks),
                await client.get("/api/agents", headers=headers),
            ]
            for answer in answers:
                if origin == listed:
                    assert answer.headers["access-control-allow-origin"] == listed
                    assert answer.headers["access-control-allow-credentials"] == "true"
                    assert "origin" in answer.headers["vary"]
                else:
                    assert "access-control-allow-origin" not in answer.headers
                    assert "access-control-allow-credentials" not in answer.headers
            if origin == listed:
                assert [x.status_code for x in answers] == [204, 204, 200]
                shown = answers[2].headers["access-control-expose-headers"]
                assert {"etag", "retry-after"} < {*shown.split(", ")}
            client.cookies.clear()
    with pytest.raises(BadValue):
        HttpApp(Runtime([], store="memory", ports=ports).hub, origins=["*"])


@pytest.mark.parametrize(
    "options",
    [{"token": ""}, {"token": 7}, {"hosts": "x"}, {"origins": ["x"]}, {"origins": ["http://x/y"]}],
)
async def test_what_cannot_be_meant_is_refused_at_once(ports, options):
    rt = Runtime([], store="memory", ports=ports)
    with pytest.raises(BadValue):
        HttpApp(rt.hub, **options)


async def test_one_who_asks_too_often_waits(ports):
    async with served(ports, limits=HttpLimits(rate=1, burst=2)) as (_, _, client):
        statuses = [(await client.get("/health")).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


def test_without_the_extra_one_line_says_which_it_is() -> None:
    program = (
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *of: None if name == 'starlette' else find(name, *of)\n"
        "try:\n"
        "    import hubbub.channels.http\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.startswith("hubbub.channels.http needs the extra 'http'")
    assert done.stdout.count("\n") == 1


async def test_what_a_client_over_http_reads_names_no_command_and_no_argument_of_a_program(ports):
    async with served(ports) as (_, _, client):
        said = {"content": "x"}
        answers = [
            await client.post("/api/runs/nobody/messages", json=said),
            await client.post("/api/conversations/nobody/messages", json=said),
            await client.post("/api/agents/support/messages", json=said),
            await client.post("/api/prompts/nobody.x/reply", json=said),
        ]
        for answer in answers:
            assert answer.status_code == 404
            assert "`hubbub" not in answer.text and "Runtime(" not in answer.text
            assert "GET /api/runs" in answer.json()["detail"]
    for reason in REMEDIES:
        receipt = Receipt()
        receipt.settle("rejected", reason)
        detail = refusal_of_receipt(receipt).detail
        assert "hubbub " not in detail and "=…" not in detail and "[…" not in detail, detail
