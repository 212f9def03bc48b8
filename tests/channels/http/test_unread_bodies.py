"""What is refused while its body is still on its way: the client gets the answer, not a reset."""

import http.client
import json
import socket

import anyio
import httpx
import pytest
from http_apps import served, support
from support.served import SERVERS, served_hub

from hubbub.channels.http.wire.incoming import MOST_BYTES, MOST_SECONDS

pytestmark = pytest.mark.spec("W-02", "W-06")

MEGABYTE = 1 << 20
LARGE = 15 * MEGABYTE


# ── real servers ─────────────────────────────────────────────────────────────────────────────

REFUSED = [
    ("POST", "/api/runs", {}, 413),
    ("POST", "/v1/responses", {}, 413),
    ("POST", "/api/nothing", {}, 404),
    ("POST", "/api/runs", {"origin": "http://elsewhere.example"}, 403),
    ("POST", "/api/runs", {"content-encoding": "gzip"}, 415),
    ("DELETE", "/api/runs", {}, 405),
]


@pytest.fixture(params=SERVERS, ids="-".join)
def port(request):
    loop, server = request.param
    with served_hub([support()], loop, server) as found:
        yield httpx.URL(found.url).port


def in_pieces():
    for _ in range(LARGE // MEGABYTE):
        yield b" " * MEGABYTE


@pytest.mark.long
def test_a_client_that_writes_all_before_it_reads_gets_the_refusal(port):
    for method, path, headers, status in REFUSED:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        with_type = {"content-type": "application/json", **headers}
        connection.request(method, path, b" " * LARGE, with_type)
        answer = connection.getresponse()
        assert answer.status == status, path
        found = json.loads(answer.read())
        assert found.get("status", status) == status
        connection.close()


@pytest.mark.long
@pytest.mark.parametrize("body", ["whole", "pieces"])
def test_a_client_that_reads_while_it_writes_gets_the_refusal(port, body):
    async def ask(client, method, path, headers):
        async def pieces():
            for each in in_pieces():
                yield each

        content = b" " * LARGE if body == "whole" else pieces()
        return await client.request(method, path, headers=headers, content=content)

    async def main():
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=20
        ) as client:
            return [
                (await ask(client, method, path, headers)).status_code
                for method, path, headers, _ in REFUSED
            ]

    assert anyio.run(main) == [status for *_, status in REFUSED]


@pytest.mark.long
def test_a_client_that_waits_to_be_asked_for_its_body_is_refused_at_once(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(
            b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 15000000\r\nExpect: 100-continue\r\n\r\n"
        )
        found = b""
        while b"HTTP/1.1 413" not in found:  # anycorn asks for each body, uvicorn for none here.
            found += client.recv(4096)
        client.shutdown(socket.SHUT_WR)
        while client.recv(4096):
            pass


@pytest.mark.long
def test_a_server_ends_the_connection_of_a_body_whose_end_is_said_in_two_ways(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(
            b"POST /api/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        found = b""
        while part := client.recv(4096):
            found += part
        assert b"HTTP/1.1 400" in found
        assert b"not both" in found


# ── limits ───────────────────────────────────────────────────────────────────────────────────


class Client:
    """Says that it sends a large body, and sends so many parts of it."""

    def __init__(self, parts, *, path="/api/nothing", length=b"999999999", is_whole=False):
        self.sent = []
        """What came back."""
        self.read = 0
        self._parts = parts
        self._is_whole = is_whole
        self.scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
            "query_string": b"", "root_path": "", "scheme": "http", "client": ("127.0.0.1", 9),
            "headers": [(b"host", b"localhost"), (b"content-length", length)],
        }  # fmt: skip

    async def receive(self):
        if self.read == self._parts:
            await anyio.sleep_forever()
        self.read += 1
        more = not (self._is_whole and self.read == self._parts)
        return {"type": "http.request", "body": bytes(MEGABYTE), "more_body": more}

    async def send(self, message):
        self.sent.append((message["type"], message.get("more_body"), self.read))

    async def ask(self, app):
        await app(self.scope, self.receive, self.send)


START, BODY = "http.response.start", "http.response.body"


@pytest.mark.anyio
async def test_the_answer_is_sent_first_and_complete_when_the_rest_has_been_read(ports):
    async with served(ports) as (_, app, _):
        client = Client(20, is_whole=True)
        await client.ask(app)
    assert client.sent == [(START, None, 0), (BODY, True, 0), (BODY, None, 20)]


@pytest.mark.anyio
async def test_no_more_is_read_than_so_many_bytes(ports):
    async with served(ports) as (_, app, _):
        client = Client(10_000)
        await client.ask(app)
    assert client.read == MOST_BYTES // MEGABYTE + 1
    assert client.sent[-1] == (BODY, None, client.read)


@pytest.mark.anyio
async def test_a_rest_that_does_not_come_is_not_waited_for_long(ports):
    async with served(ports) as (_, app, _):
        before = ports.clock.monotonic()
        await Client(3).ask(app)
        assert ports.clock.monotonic() - before == pytest.approx(MOST_SECONDS)


@pytest.mark.anyio
async def test_nothing_is_waited_for_where_there_is_no_body(ports):
    async with served(ports) as (_, app, _):
        client = Client(0, length=b"0")
        await client.ask(app)
    assert client.sent == [(START, None, 0), (BODY, None, 0)]


@pytest.mark.anyio
async def test_an_app_that_closes_waits_for_no_rest(ports):
    async with served(ports) as (_, app, _), anyio.create_task_group() as group:
        client = Client(3)
        group.start_soon(client.ask, app)
        await anyio.sleep(1)
        assert client.read == 3
        before = ports.clock.monotonic()
        app.end_streams()
        await anyio.sleep(0.1)
        assert client.sent[-1] == (BODY, None, 3)
        assert ports.clock.monotonic() - before < 0.2
