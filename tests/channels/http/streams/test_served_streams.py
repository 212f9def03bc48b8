"""Streams over real connections, on each server and loop: read, resumed, cut, vanished, ended."""

import json
import socket as sockets
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import httpx
import httpx2
import pytest
from support.asgi_clients import Frame, SseParser
from support.served import ON_EACH_SERVER, request, run_on, served

from hubbub import Agent, CustomEvent, Runtime
from hubbub.channels.http import HttpApp, HttpLimits
from hubbub.channels.http.serving.listening import Address
from hubbub.channels.http.serving.serving import ServerName
from hubbub.runtime.models.scripted import FunctionModel

pytestmark = [pytest.mark.long, pytest.mark.spec("W-03", "W-04")]

repeat: Final = FunctionModel(
    lambda request: f"word by word: {request.messages[-1].content}", latency=0.4, chunk=None
)
echo: Final = Agent("echo", "You repeat.", model=repeat)


def tick(n: int, size: int = 0) -> CustomEvent:
    return CustomEvent.of("test:tick", durable=True, n=n, text="x" * size)


def numbers(frames: list[Frame]) -> list[int]:
    return [frame.json["data"]["n"] for frame in frames if frame.type == "test:tick"]


@asynccontextmanager
async def hub_at(
    server: ServerName, **limits: Any
) -> AsyncIterator[tuple[Runtime, HttpApp, Address]]:
    runtime = Runtime([echo], store="memory")
    app = HttpApp(runtime.hub, limits=HttpLimits(**limits))
    async with runtime, app, served(app, server) as address:
        yield runtime, app, address


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await anyio.sleep(0.01)


class RawReader:
    """Reads a chunked answer off a socket, as it comes."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.frames: list[Frame] = []
        self.parser = SseParser()
        self.is_complete = False
        """Whether the answer ended as HTTP has it, and not because the connection did."""
        self._rest = b""
        self._is_in_body = False

    async def read_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._rest += await self.stream.receive()
            self._take()

    def _take(self) -> None:
        if not self._is_in_body and b"\r\n\r\n" in self._rest:
            head, self._rest = self._rest.split(b"\r\n\r\n", 1)
            assert b"text/event-stream" in head and b" 200" in head.splitlines()[0]
            self._is_in_body = True
        while self._is_in_body and b"\r\n" in self._rest:
            size, rest = self._rest.split(b"\r\n", 1)
            length = int(size, 16)
            if len(rest) < length + 2:
                return
            self.frames += self.parser.feed(rest[:length])
            self._rest = rest[length + 2 :]
            self.is_complete = self.is_complete or not length


@ON_EACH_SERVER
def test_a_socket_that_is_cut_comes_back_and_has_everything_once(
    loop: str, server: ServerName
) -> None:
    async def test() -> None:
        async with hub_at(server) as (rt, app, address):
            seen: list[int] = []
            place = "start"
            for first in range(0, 60, 20):
                stream = await request(
                    address, "/api/events?types=test:*", head=f"Last-Event-ID: {place}\r\n"
                )
                for n in range(first, first + 20):
                    rt.hub.emit(tick(n, 3000))
                async with stream:
                    reader = RawReader(stream)
                    # It leaves somewhere in the middle.
                    await reader.read_until(lambda r=reader: len(r.frames) >= 7)
                seen += numbers(reader.frames)
                place = reader.parser.last_id
            async with await request(
                address, "/api/events?types=test:*", head=f"Last-Event-ID: {place}\r\n"
            ) as stream:
                reader = RawReader(stream)
                await reader.read_until(lambda: seen + numbers(reader.frames) == [*range(60)])
            await until(lambda: not app.open_streams)

    run_on(loop, test)


@ON_EACH_SERVER
def test_clients_that_vanish_in_any_way_leave_nothing_behind(loop: str, server: ServerName) -> None:
    async def test() -> None:
        async with hub_at(server) as (rt, app, address):
            async with await request(address, "/api/events") as stream:
                await RawReader(stream).stream.receive()
            await until(lambda: not app.open_streams)
            before = rt.hub.statistics().subscribers
            for number in range(30):
                stream = await request(address, "/api/events?types=test:*")
                await stream.receive()
                if number % 3 == 0:
                    raw = stream.extra_attributes[anyio.abc.SocketAttribute.raw_socket]()
                    raw.setsockopt(
                        sockets.SOL_SOCKET, sockets.SO_LINGER, struct.pack("ii", 1, 0)
                    )  # A reset.
                elif number % 3 == 1:
                    await stream.send(b"rubbish in the middle of it\r\n\r\n")
                rt.hub.emit(tick(number, 300_000))
                await stream.aclose()
                rt.hub.emit(tick(number, 300_000))
            await until(lambda: not app.open_streams)
            assert rt.hub.statistics().subscribers == before
            run = await rt.run("echo", "still here")
            assert run.output == "word by word: still here"

    run_on(loop, test)


@ON_EACH_SERVER
def test_a_server_that_ends_ends_its_streams_in_order_first(loop: str, server: ServerName) -> None:
    async def serving(app: HttpApp, *, task_status: Any) -> None:
        with anyio.CancelScope() as scope:
            async with served(app, server) as address:
                task_status.started((address, scope))
                await anyio.sleep_forever()

    async def test() -> None:
        runtime = Runtime([echo], store="memory")
        app = HttpApp(runtime.hub)
        async with runtime, app, anyio.create_task_group() as group, httpx2.AsyncClient() as client:
            address, scope = await group.start(serving, app)
            url = f"ws://127.0.0.1:{address.port}/api/socket"
            async with await request(address, "/api/events") as stream, client.websocket(url) as ws:
                reader = RawReader(stream)
                await until(lambda: app.open_streams == 2)
                scope.cancel()
                await reader.read_until(lambda: reader.is_complete)
                said = json.loads(await ws.receive_text())
            assert reader.frames[-1].type == "hubbub:end"
            assert reader.frames[-1].json == {"reason": "shutdown"}
            assert said == {"kind": "end", "reason": "shutdown"}

    run_on(loop, test)


@ON_EACH_SERVER
@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_client_of_a_library_reads_an_answer_as_it_is_written(
    loop: str, server: ServerName, library: Any
) -> None:
    async def test() -> None:
        async with (
            hub_at(server) as (rt, _, address),
            library.AsyncClient(base_url=address.url, timeout=10) as client,
        ):
            run = await rt.start("echo", "a b c", session_key="web_1")
            parser, frames = SseParser(), []
            path = f"/api/runs/{run.run_id}/events?tree=1&after=start"
            async with client.stream("GET", path) as response:
                async for chunk in response.aiter_bytes():
                    frames += parser.feed(chunk)
                    types = [frame.type for frame in frames]
                    if "session:end" in types:
                        run.close()
            deltas = [frame.json for frame in frames if frame.type == "agent:text:delta"]
            assert "".join(delta["text"] for delta in deltas) == "word by word: a b c"
            assert frames[-1].json == {"reason": "run ended"}
            again = await client.get(path, headers={"Last-Event-ID": parser.last_id})
            assert again.status_code == 204

    run_on(loop, test)


@ON_EACH_SERVER
def test_a_conversation_over_a_real_websocket(loop: str, server: ServerName) -> None:
    async def test() -> None:
        async with hub_at(server) as (rt, app, address), httpx2.AsyncClient() as client:
            url = f"ws://127.0.0.1:{address.port}/api/socket"
            async with client.websocket(url, subprotocols=["other", "hubbub.v1"]) as ws:
                assert ws.subprotocol == "hubbub.v1"

                async def say(**command: Any) -> None:
                    await ws.send_text(json.dumps(command))

                async def next_of(kind: str) -> Any:
                    while True:
                        said = json.loads(await ws.receive_text())
                        if said["kind"] == kind:
                            return said

                await say(id="1", command="open", agent="echo", input="hi", session_key="web_1")
                run_id = (await next_of("receipt"))["run_id"]
                await say(id="2", command="subscribe", run_id=run_id, after="start")
                found: list[Any] = []
                while "session:end" not in [item["event"]["type"] for item in found]:
                    found += (await next_of("events"))["events"]
                texts = [i["event"]["text"] for i in found if i["event"]["type"] == "agent:text"]
                assert texts == ["word by word: hi"]
                # Frames stay below what clients take by default.
                for n in range(300):
                    rt.hub.emit(tick(n, 1000))
                await say(id="3", command="subscribe", types="test:*", after="start")
                ticks: list[int] = []
                while len(ticks) < 300:
                    said = await next_of("events")
                    if said["selection"] == "3":
                        ticks += [item["event"]["data"]["n"] for item in said["events"]]
                assert ticks == [*range(300)]
                await ws.send_text("nonsense")
                assert (await next_of("error"))["id"] is None
            await until(lambda: not app.open_streams)

    run_on(loop, test)


@ON_EACH_SERVER
def test_a_subprotocol_that_nobody_knows_ends_no_server(loop: str, server: ServerName) -> None:
    async def test() -> None:
        async with hub_at(server) as (_, _, address), httpx2.AsyncClient() as client:
            url = f"ws://127.0.0.1:{address.port}/api/socket"
            for offered in (["unknown"], None, ["hubbub.v1"]):
                async with client.websocket(url, subprotocols=offered) as ws:
                    await ws.send_text('{"id": "1", "command": "subscribe"}')
                    assert json.loads(await ws.receive_text())["kind"] == "receipt"

    run_on(loop, test)


@ON_EACH_SERVER
def test_a_client_that_takes_nothing_is_cut_and_slows_nobody(loop: str, server: ServerName) -> None:
    async def test() -> None:
        limits = {"ping_seconds": 0.5, "stall_seconds": 2.0}
        async with hub_at(server, **limits) as (rt, app, address):
            async with await request(address, "/api/events?types=test:*") as slow:
                await slow.receive()
                async with await request(address, "/api/events?types=test:*") as quick:
                    reader = RawReader(quick)
                    await reader.read_until(lambda: reader.parser.retry == 1000)
                    for n in range(40):
                        rt.hub.emit(tick(n, 500_000))
                        await reader.read_until(lambda n=n: n in numbers(reader.frames[-1:]))
                    assert numbers(reader.frames) == [*range(40)]
                    await until(lambda: app.open_streams == 1)
            await until(lambda: app.open_streams == 0)

    run_on(loop, test, 40)
