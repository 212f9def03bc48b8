"""Whatever comes in, on whatever route: a documented status, and the hub is well afterwards."""

import json
import sqlite3

import anyio
import httpx
import msgspec
import pytest
from http_apps import client_of, served, support

from hubbub import Agent, FunctionModel, Runtime
from hubbub.channels.http import HttpApp, HttpLimits
from hubbub.channels.http.wire.problem_kinds import KINDS
from hubbub.runtime.stores.open import sqlite_store

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-02")]

LIMITS = HttpLimits(body_bytes=20_000, file_bytes=20_000, rate=1_000_000, burst=1_000_000)

TABLE = HttpApp(Runtime([], store="memory").hub, token="t").routes
ROUTES = [route for route in TABLE if route.method != "WEBSOCKET"]
STREAMS = {route.name for route in ROUTES if route.method == "GET" and route.is_stream}
"""They answer without end; what they do about bad input has its own tests."""

JSON = "application/json"
NAMES = (
    "nobody", "%00", "%ff", "%ED%A0%80", "..", "%2e%2e%2f", "%2F", "a%20b", "'\"<>", "%C3%A9",
    "x" * 5000, "%F0%9F%98%80", "%", "%zz", "*", "null",
)  # fmt: skip
BODIES = {
    "nothing": (b"", None),
    "no JSON": (b"{", JSON),
    "a text": (b'"x"', JSON),
    "a list": (b"[]", JSON),
    "null": (b"null", JSON),
    "a number": (b"1e999", JSON),
    "a huge number": (b"9" * 4000, JSON),
    "NaN": (b'{"content": NaN}', JSON),
    "deep": (b"[" * 9_000 + b"]" * 9_000, JSON),
    "deep objects": (b'{"a":' * 3_000 + b"1" + b"}" * 3_000, JSON),
    "deep input": (b'{"input":' + b"[" * 4_000 + b"]" * 4_000 + b"}", JSON),
    "no UTF-8": (b'{"content": "\xff\xfe"}', JSON),
    "half a pair": (b'{"content": "\\ud800"}', JSON),
    "NUL": (b'{"content": "a\\u0000b", "reason": "\\u0000", "agent": "\\u0000"}', JSON),
    "a long name": (b'{"' + b"x" * 5000 + b'": 1}', JSON),
    "unknown fields": (b'{"content": "x", "nothing": 1}', JSON),
    "wrong types": (b'{"content": 1, "reason": [], "input": {}, "agent": 3, "key": {}}', JSON),
    "a key twice": (b'{"content": "x", "content": "y"}', JSON),
    "a label that is none": (b'{"content": "x", "key": "a\\u0000", "role": ""}', JSON),
    "too large": (b'{"content": "' + b"x" * 30_000 + b'"}', JSON),
    "another type": (b'{"content": "x"}', "text/plain"),
    "a form": (b"content=x&%00=%ff&a=%ED%A0%80", "application/x-www-form-urlencoded"),
    "parts": (b"--x\r\n\r\n--x--", "multipart/form-data; boundary=x"),
    "no type": (b'{"content": "x"}', None),
    "a type that is none": (b'{"content": "x"}', "\xff/;;;"),
    "UTF-16": ('{"content": "x"}'.encode("utf-16"), JSON),
}
QUERIES = (
    "", "x", "limit=-1", "limit=x", "limit=99999999999999999999", "record=-1", "after=%ff",
    "after=%00", "types=agent*&types=x", "types=%ED%A0%80", "ended=maybe", "=&&==",
    "limit=1&limit=2",
    "before=x&after=y", "status=%00", "agent=%00", "after=" + "x" * 5000, "full=%F0%9F%98%80",
    "x" * 5000 + "=1", "status=" + "x" * 5000,
    "after=1.1", "limit=1e3", "record=1.5", "types=,,,", "types=",
)  # fmt: skip
HEADERS = (
    {"Content-Encoding": "gzip"}, {"Content-Length": "5"}, {"Idempotency-Key": "x" * 300},
    {"Idempotency-Key": "\x7f\xff"}, {"Cookie": "hubbub_session=x.y.z; =;;"},
    {"Accept": "text/html"},
    {"If-None-Match": "*"}, {"Last-Event-ID": "nothing"}, {"Authorization": "Bearer"},
    {"Authorization": "Basic \xff"}, {"Range": "bytes=0-"}, {"Expect": "100-continue"},
)  # fmt: skip


def filled(path, name):
    """A path with a name in the place of each variable part."""
    return "/".join(name if "{" in part else part for part in path.split("/"))


def check(route, answer, about):
    """A documented status; what is refused is a problem, of a documented kind."""
    assert answer.status_code < 500, (route.name, about, answer.text)
    if answer.status_code >= 400 and route.is_documented:
        assert answer.headers["content-type"].startswith(
            ("application/problem+json", "text/html")
        ), (route.name, about, answer.text)
        if "json" in answer.headers["content-type"] and answer.request.method != "HEAD":
            found = answer.json()
            kind = KINDS[found["type"].removeprefix("/problems/")]
            assert (found["status"], found["title"]) == (answer.status_code, kind.title)
            assert found["detail"] and len(answer.content) < 1_000


async def request(client, method, url, **how):
    with anyio.fail_after(1000):
        try:
            return await client.request(method, url, **how)
        except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeError):
            return None  # No client can send it.


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
async def test_every_route_answers_bad_input_with_what_is_documented(route, ports):
    hello = Agent("support", "You help.", model=FunctionModel(lambda request: "Hello."))
    async with served(ports, hello, token="t", limits=LIMITS) as (rt, _, client):
        client.headers["Authorization"] = "Bearer t"
        run = await rt.start("support", "hi", session_key="k")
        await run.result()
        if route.name in STREAMS:
            wrong = await request(client, "GET", filled(route.path, "nobody") + "?nothing=1")
            check(route, wrong, "nothing=1")
            return
        names = (run.run_id, "support", "k", *NAMES) if "{" in route.path else ("",)
        for name in names:
            answer = await request(client, route.method, filled(route.path, name))
            if answer is not None:
                check(route, answer, name)
        path = filled(route.path, run.run_id)
        for query in QUERIES:
            url = httpx.URL(f"http://localhost{path}").copy_with(query=query.encode())
            check(route, await request(client, route.method, url), query)
        if route.body is not None or route.method != "GET":
            for about, (body, type_) in BODIES.items():
                headers = {"Content-Type": type_.encode("latin-1")} if type_ else {}
                answer = await request(client, route.method, path, content=body, headers=headers)
                check(route, answer, about)
        for given in HEADERS:
            raw = {k: v.encode("latin-1") for k, v in given.items()}
            body = {} if route.method == "GET" else {"json": {"content": "x"}}
            check(route, await request(client, route.method, path, headers=raw, **body), given)
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HEAD", "X"):
            answer = await request(client, method, path)
            if not (method == "GET" and f"GET {route.path}" in STREAMS):
                check(route, answer, method)
            if answer.status_code == 405:
                assert answer.headers["allow"]
        again = await rt.start("support", "still there?")
        assert (await again.result()).success
        assert (await client.get("/ready")).status_code == 200


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
async def test_a_hub_that_is_closed_and_a_store_that_has_failed_are_unavailable(
    route, ports, tmp_path
):
    store = sqlite_store(tmp_path / "s", ports=ports)
    rt = Runtime([support()], store=store, ports=ports)
    app = HttpApp(rt.hub, limits=LIMITS, token="t")
    body = {"json": {"content": "x"}} if route.method != "GET" else {}
    async with client_of(app) as client:
        client.headers["Authorization"] = "Bearer t"
        closed = await request(client, route.method, filled(route.path, "x"), **body)
        async with rt, app:
            run = await rt.start("support", "hi", session_key="k")
            await anyio.sleep(1)
            with sqlite3.connect(tmp_path / "s" / "hubbub.db") as db:
                for (name,) in db.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                ).fetchall():
                    db.execute(f"ALTER TABLE {name} RENAME TO gone_{name}")
            db.close()
            failed = []
            if route.name not in STREAMS:
                for name in (run.run_id, "k"):
                    path = filled(route.path, name)
                    failed.append(await request(client, route.method, path, **body))
                    await anyio.sleep(1)
        after = await request(client, route.method, filled(route.path, "x"), **body)
    is_of_the_app = route.path in ("/health", "/problems/{kind}", "/", "/inspector/{name:path}")
    is_of_the_app |= route.name == "DELETE /api/session"
    for answer in (closed, after):
        if not is_of_the_app:
            assert answer.status_code in (503, 400, 401, 415), (route.name, answer.text)
        assert answer.status_code != 500
    for answer in failed:
        assert answer.status_code != 500, answer.text
        if answer.status_code > 500 and route.is_documented:
            assert answer.json()["type"] in ("/problems/store-failed", "/problems/closed")
        if route.path == "/api/runs/{run_id}/messages":
            assert answer.status_code == 503


# ── bodies that come in their own way ────────────────────────────────────────────────────────


def posted(path, headers=()):
    return {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "scheme": "http", "client": ("127.0.0.1", 9),
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json"), *headers],
    }  # fmt: skip


async def driven(app, messages, path="/api/messages", headers=(), client="127.0.0.1"):
    """What the app sends to a client that sends these messages and then is silent."""
    scope = {**posted(path, headers), "client": (client, 1)}
    sent, given = [], iter(messages)

    async def receive():
        message = next(given, None)
        return message if message is not None else await anyio.sleep_forever()

    async def send(message):
        sent.append(message)

    await app(scope, receive, send)
    return sent


def part(body, *, more=True):
    return {"type": "http.request", "body": body, "more_body": more}


@pytest.mark.spec("W-06")
async def test_who_has_no_token_can_send_no_long_body_that_is_kept(ports):
    limits = HttpLimits(open_bytes=1_000)
    async with served(ports, limits=limits, token="t" * 20) as (_, app, _):
        parts = [part(b"x" * 400) for _ in range(3)]
        start, *_ = await driven(app, parts, path="/api/session")
    assert start["status"] == 413


@pytest.mark.spec("W-06")
async def test_bodies_that_do_not_end_hold_so_much_together_and_one_alone_as_much_as_it_may(ports):
    limits = HttpLimits(arriving_bytes=10_000, body_bytes=30_000)
    async with served(ports, limits=limits) as (_, app, _):
        alone = [part(b" " * 15_000), part(b"{" + b" " * 5_000, more=False)]
        assert (await driven(app, alone))[0]["status"] == 400, "it has come, and is no JSON"
        statuses = []

        async def send(size):
            start, *_ = await driven(app, [part(b" " * size), part(b" " * size)])
            statuses.append(start["status"])

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(send, 2_400)
        assert sorted(statuses) == [408] * statuses.count(408) + [429] * statuses.count(429)
        assert statuses.count(408) in (2, 3, 4)
        assert (await driven(app, alone))[0]["status"] == 400, "what was given up is forgotten"


@pytest.mark.spec("W-06")
async def test_who_has_no_token_keeps_nobody_out(ports):
    """All places were taken by bodies for the one route that needs none, for half a minute."""
    limits = HttpLimits(requests=4, open_requests=5, open_requests_per_client=3)
    token = "t" * 20
    async with served(ports, limits=limits, token=token) as (_, app, client):
        statuses = []

        async def begin(stranger):
            start, *_ = await driven(app, [part(b"{")], path="/api/session", client=stranger)
            statuses.append(start["status"])

        async with anyio.create_task_group() as group:
            for stranger in ("1.1.1.1", "2.2.2.2", "3.3.3.3"):
                for _ in range(5):
                    group.start_soon(begin, stranger)
            await ports.clock.sleep(1.0)
            assert statuses == [503] * 10, "three of the first, two of the second"
            headers = {"authorization": f"Bearer {token}"}
            assert (await client.get("/api/agents", headers=headers)).status_code == 200
            for path in ("/health", "/ready"):
                assert (await client.get(path)).status_code == 200
        assert sorted(statuses) == [408] * 5 + [503] * 10
        await begin("3.3.3.3")
        assert statuses[-1] == 408


@pytest.mark.spec("W-06")
async def test_a_body_that_does_not_end_is_given_up(ports):
    async with served(ports) as (_, app, _):
        start, end = await driven(app, [part(b'{"content"')])
        assert start["status"] == 408
        assert json.loads(end["body"])["type"] == "/problems/slow-body"


@pytest.mark.spec("W-02")
@pytest.mark.parametrize("path", ["/api/runs", "/v1/responses", "/threads/p/variables/r"])
async def test_a_body_that_is_still_coming_when_the_app_closes_is_not_waited_for(ports, path):
    async with served(ports) as (_, app, _), anyio.create_task_group() as group:
        sent = []

        async def send():
            sent.extend(await driven(app, [part(b'{"content"')], path))

        group.start_soon(send)
        await anyio.sleep(1)
        app.end_streams()
        await anyio.sleep(0.1)
        start, end = sent
        assert start["status"] == 503
        assert (b"retry-after", b"1") in start["headers"]
        assert b"the app closes before the body is here" in end["body"]
        # One that is sent in one piece is still answered, unless it begins a stream.
        start, _ = await driven(app, [part(b'{"content": "hi"}', more=False)], path)
        assert start["status"] in ((503,) if path == "/v1/responses" else (400, 404))


@pytest.mark.spec("W-02")
async def test_a_request_that_its_server_cancels_is_told_that_the_app_closes(ports):
    async with served(ports) as (_, app, _):
        with anyio.CancelScope() as scope:
            sent = []

            async def send(message):
                sent.append(message)

            async def receive():
                scope.cancel()
                return await anyio.sleep_forever()

            await app(posted("/api/runs"), receive, send)
        assert scope.cancelled_caught
        assert [x.get("status", 0) for x in sent] == [503, 0]


@pytest.mark.spec("W-06")
async def test_a_body_in_many_small_parts_is_bounded_in_size_and_in_time(ports):
    async with served(ports, limits=LIMITS) as (_, app, _):
        start, *_ = await driven(app, [part(b"x" * 1000)] * 21)
        assert start["status"] == 413
        whole = json.dumps({"content": "hello"}).encode()
        start, end = await driven(
            app, [*(part(bytes([byte])) for byte in whole), part(b"", more=False)]
        )
        assert (start["status"], json.loads(end["body"])["status"]) == (404, 404)  # None is open.


@pytest.mark.spec("W-06")
async def test_a_length_that_is_too_large_is_refused_before_anything_is_read(ports):
    async with served(ports, limits=LIMITS) as (_, app, _):
        for length in (b"20001", b"9" * 40):
            start, *_ = await driven(app, [], headers=[(b"content-length", length)])
            assert start["status"] == 413


@pytest.mark.spec("W-06")
async def test_a_body_whose_end_is_said_in_two_ways_is_refused_and_its_connection_ends(ports):
    async with served(ports, limits=LIMITS) as (_, app, _):
        both = [(b"content-length", b"5"), (b"transfer-encoding", b"chunked")]
        start, *rest = await driven(app, [part(b"{}", more=False)], headers=both)
        assert (start["status"], (b"connection", b"close") in start["headers"]) == (400, True)
        body = b"".join(each["body"] for each in rest)
        assert "not both" in json.loads(body)["detail"]


@pytest.mark.spec("W-06")
async def test_nothing_is_decompressed(ports):
    async with served(ports) as (_, app, _):
        for encoding in (b"gzip", b"br", b"deflate", b"zstd, gzip", b"x"):
            start, _ = await driven(app, [], headers=[(b"content-encoding", encoding)])
            assert start["status"] == 415


async def test_a_client_that_leaves_in_its_body_is_answered_by_nobody(ports):
    async with served(ports) as (_, app, client):
        left = [part(b'{"content"'), {"type": "http.disconnect"}]
        assert await driven(app, left) == []
        assert (await client.get("/ready")).status_code == 200


async def test_what_cannot_be_sent_to_a_client_that_left_is_nobodys_error(ports, caplog):
    async with served(ports) as (_, app, client):

        async def send(message):
            raise OSError("gone")

        scope = {
            "type": "http", "method": "GET", "path": "/health", "raw_path": b"/health",
            "query_string": b"", "headers": [(b"host", b"localhost")], "client": None,
        }  # fmt: skip
        await app(scope, None, send)
        assert (await client.get("/ready")).status_code == 200
    assert not caplog.records


async def test_a_defect_is_told_without_what_it_holds_and_is_logged(ports, caplog):
    async with served(ports) as (_, app, client):
        app.hub.statistics = lambda: 1 / 0
        answer = await client.get("/api/statistics")
    assert answer.status_code == 500 and "division" not in answer.text
    assert msgspec.json.decode(answer.content)["type"] == "/problems/internal-error"


@pytest.mark.spec("W-06")
async def test_no_more_is_at_work_at_once_than_may(ports):
    async with served(ports, limits=HttpLimits(requests=2)) as (_, app, _):
        statuses = []

        async def slow():
            start, *_ = await driven(app, [part(b"{")])
            statuses.append(start["status"])

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(slow)
    assert sorted(statuses) == [408, 408, 503]
