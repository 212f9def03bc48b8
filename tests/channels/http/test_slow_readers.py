"""Answers that their clients take slowly, or not at all: none is cut short, none piles up."""

import json
import socket
import time

import anyio
import httpx
import pytest
from http_apps import served, support
from support.served import SERVERS, served_hub

from hubbub import Agent, FunctionModel
from hubbub.channels.http import HttpLimits
from hubbub.channels.http.wire.outgoing import PIECE

SIZE = 20 * PIECE


async def with_file(client, content):
    """The path of a file that a run has been sent."""
    run_id = (await client.post("/api/runs", json={"agent": "support"})).json()["run_id"]
    path = f"/api/runs/{run_id}/files/a.bin"
    assert (await client.put(path, content=content)).is_success
    return path


class Reader:
    """A request by hand, of a client that takes so many pieces at once, and no more until then."""

    def __init__(self, app, path, pieces, body=None, query=""):
        self.app, self.path, self.query = app, path, query.encode()
        self.given = b"" if body is None else json.dumps(body).encode()
        self.is_asked = False
        self.room = anyio.Semaphore(pieces)
        self.status, self.body, self.is_whole = 0, b"", False

    async def __call__(self):
        scope = {
            "type": "http", "method": "POST" if self.given else "GET",
            "path": self.path, "raw_path": self.path.encode(), "http_version": "1.1",
            "query_string": self.query, "root_path": "", "scheme": "http",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        await self.app(scope, self.receive, self.send)

    async def receive(self):
        if self.is_asked:
            await anyio.sleep_forever()
        self.is_asked = True
        return {"type": "http.request", "body": self.given}

    async def send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        await self.room.acquire()
        self.body += message["body"]
        self.is_whole = not message.get("more_body", False)


@pytest.mark.anyio
@pytest.mark.spec("W-06")
async def test_a_large_answer_waits_for_its_client_piece_by_piece(ports):
    async with served(ports) as (_, app, client), anyio.create_task_group() as group:
        path = await with_file(client, bytes(SIZE))
        reader = Reader(app, path, 3)
        group.start_soon(reader)
        for taken in range(3, 20):
            await ports.clock.sleep(50.0)
            assert (len(reader.body), reader.is_whole) == (taken * PIECE, False)
            reader.room.release()
        await ports.clock.sleep(1.0)
        assert (len(reader.body), reader.is_whole) == (SIZE, True)


@pytest.mark.anyio
@pytest.mark.spec("W-06")
async def test_a_client_that_takes_nothing_of_a_large_answer_is_cut(ports):
    async with served(ports) as (_, app, client):
        path = await with_file(client, bytes(SIZE))
        reader = Reader(app, path, 3)
        with anyio.fail_after(200):
            await reader()
        assert (len(reader.body), reader.is_whole) == (3 * PIECE, False)
        assert app._host.leaving == 0


@pytest.mark.anyio
@pytest.mark.spec("W-06")
async def test_answers_that_nobody_takes_are_bounded_together(ports):
    limits = HttpLimits(leaving_bytes=3 * SIZE)
    async with (
        served(ports, limits=limits) as (_, app, client), anyio.create_task_group() as group
    ):  # fmt: skip
        path = await with_file(client, bytes(SIZE))
        readers = [Reader(app, path, 1) for _ in range(5)]
        for each in readers:
            group.start_soon(each)
        await ports.clock.sleep(1.0)
        assert sorted(each.status for each in readers) == [200, 200, 200, 429, 429]
        assert (await client.get(path)).headers["retry-after"] == "5"
        assert (await client.get("/api/agents")).status_code == 200, (
            "what is small waits for nobody"
        )
        for each in readers:
            for _ in range(20):
                each.room.release()
        await ports.clock.sleep(1.0)
        assert [len(each.body) for each in readers if each.status == 200] == [SIZE] * 3
        assert len((await client.get(path)).content) == SIZE


@pytest.mark.anyio
@pytest.mark.spec("W-06")
async def test_one_answer_alone_may_be_larger_than_all_may_be_together(ports):
    async with served(ports, limits=HttpLimits(leaving_bytes=1)) as (_, _, client):
        path = await with_file(client, bytes(SIZE))
        assert len((await client.get(path)).content) == SIZE


@pytest.mark.anyio
@pytest.mark.spec("W-06")
async def test_a_client_that_takes_nothing_of_a_chat_is_cut(ports):
    words = "word " * 100_000
    agent = Agent("teller", "You tell.", model=FunctionModel(lambda request: words))
    async with served(ports, agent) as (_, app, _):
        body = {"model": "teller", "stream": True, "messages": [{"role": "user", "content": "x"}]}
        reader = Reader(app, "/v1/chat/completions", 1, body)
        with anyio.fail_after(200):
            await reader()
        assert reader.status == 200 and not reader.is_whole


@pytest.mark.anyio
@pytest.mark.spec("W-06")
async def test_streamed_answers_that_nobody_takes_are_bounded_together(ports):
    words = "word " * 100_000  # Half a megabyte, which a stream of a response says five times.
    agent = Agent("teller", "You tell.", model=FunctionModel(lambda request: words))
    limits = HttpLimits(leaving_bytes=6_000_000)
    async with (
        served(ports, agent, limits=limits) as (_, app, client),
        anyio.create_task_group() as group,
    ):
        made = await client.post("/v1/responses", json={"model": "teller", "input": "x"})
        path = f"/v1/responses/{made.json()['id']}"
        readers = [Reader(app, path, 1, query="stream=true") for _ in range(5)]
        for each in readers:
            group.start_soon(each)
        await ports.clock.sleep(1.0)
        assert 5_000_000 < app._host.leaving < 6_000_000
        for each in readers:
            for _ in range(100):
                each.room.release()
        await ports.clock.sleep(1.0)
        assert all(each.is_whole for each in readers)
        ends = [b"response.completed" in each.body for each in readers]
        assert sorted(ends) == [False, False, False, True, True]
        assert all(b"others fetch much" in x.body for x in readers if len(x.body) < 2_000_000)
        assert app._host.leaving == 0


@pytest.mark.long
@pytest.mark.spec("W-06")
@pytest.mark.parametrize(("loop", "server"), SERVERS, ids=["-".join(each) for each in SERVERS])
def test_a_download_that_goes_on_is_not_taken_for_an_idle_connection(loop, server, monkeypatch):
    """Real time: the server's idea of what is idle is."""
    module = f"{server}_server"
    monkeypatch.setattr(f"hubbub.channels.http.serving.{module}.IDLE_SECONDS", 0.3)
    with served_hub([support()], loop, server) as hub:
        content = bytes(8 << 20)
        run_id = httpx.post(f"{hub.url}/api/runs", json={"agent": "support"}).json()["run_id"]
        path = f"/api/runs/{run_id}/files/a.bin"
        assert httpx.put(f"{hub.url}{path}", content=content).is_success
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            client.connect(("127.0.0.1", httpx.URL(hub.url).port))
            client.settimeout(20)
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            got = b""
            end = time.monotonic() + 2.0
            while time.monotonic() < end:  # Six times what an idle connection may take.
                got += client.recv(64 << 10)
                time.sleep(0.05)
            while got.partition(b"\r\n\r\n")[2] != content:
                more = client.recv(1 << 20)
                assert more, f"cut after {len(got):,} bytes"
                got += more
