"""An app is served on both loops: it begins and ends in order, and no client ends it."""

import logging
import re
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import pytest
from support.served import ON_EACH_SERVER, read_until, request, run_on, served

from hubbub.channels.http.serving.listening import Address, CannotServe, is_loopback, listen
from hubbub.channels.http.serving.serving import ServerName, serve

UPGRADE = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


class ExampleApp:
    """Streams that end when they are told to, others that do not, and some mistakes."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._ending = anyio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise RuntimeError("there is none here")
        scope["extensions"]["hubbub.ending"](self.end)
        routes: dict[str, Callable[..., Awaitable[None]]] = {
            "/": self._hello, "/stream": self._stream, "/deaf": self._deaf, "/flood": self._flood,
            "/raise": self._raise, "/socket": self._socket, "/wrong": self._wrong,
        }  # fmt: skip
        await routes[scope["path"]](receive, send)

    def end(self) -> None:
        self.log.append("told to end")
        self._ending.set()

    async def _hello(self, receive: Any, send: Any) -> None:
        await _start(send, (b"content-length", b"5"))
        await send({"type": "http.response.body", "body": b"hello"})

    async def _stream(self, receive: Any, send: Any) -> None:
        await _start(send)
        await send({"type": "http.response.body", "body": b"first ", "more_body": True})
        async with anyio.create_task_group() as group:
            group.start_soon(_until_gone, receive, group.cancel_scope)
            await self._ending.wait()
            group.cancel_scope.cancel()
        await send({"type": "http.response.body", "body": b"last"})

    async def _deaf(self, receive: Any, send: Any) -> None:
        try:
            await _start(send)
            await send({"type": "http.response.body", "body": b"first ", "more_body": True})
            await anyio.sleep_forever()
        finally:
            self.log.append("cut off")

    async def _flood(self, receive: Any, send: Any) -> None:
        await _start(send)
        while True:
            await send({"type": "http.response.body", "body": bytes(65536), "more_body": True})

    async def _raise(self, receive: Any, send: Any) -> None:
        raise ValueError("a mistake of the app")

    async def _socket(self, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})

    async def _wrong(self, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept", "subprotocol": "nobody.asked"})


async def _start(send: Any, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [*headers]})


async def _until_gone(receive: Any, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _hello(address: Address) -> None:
    """The server answers."""
    stream = await request(address)
    async with stream:
        assert b"hello" in await read_until(stream, b"hello")


async def _is_answered(address: Address) -> bool:
    try:
        await _hello(address)
    except (AssertionError, anyio.BrokenResourceError):
        return False
    return True


@ON_EACH_SERVER
def test_a_request_is_answered_and_a_free_port_is_reported(loop: str, server: ServerName) -> None:
    async def test() -> None:
        async with served(ExampleApp(), server) as address:
            assert address.port > 0
            assert address.url == f"http://127.0.0.1:{address.port}"
            await _hello(address)

    run_on(loop, test)


@ON_EACH_SERVER
def test_streams_end_with_a_last_frame_when_the_caller_is_cancelled(
    loop: str, server: ServerName
) -> None:
    async def test() -> None:
        app = ExampleApp()
        async with anyio.create_task_group() as clients, served(app, server) as address:
            stream = await request(address, "/stream")
            await read_until(stream, b"first ")
            clients.start_soon(_reads_last, stream)
        assert app.log == ["told to end"]

    async def _reads_last(stream: Any) -> None:
        async with stream:
            assert b"last" in await read_until(stream)

    run_on(loop, test)


@ON_EACH_SERVER
@pytest.mark.parametrize("path", ["/deaf", "/flood"])
def test_who_does_not_end_or_does_not_read_is_cut_off(
    loop: str, server: ServerName, path: str
) -> None:
    async def test() -> float:
        app = ExampleApp()
        async with served(app, server) as address:
            stream = await request(address, path)
            await anyio.sleep(0.2)
            began = anyio.current_time()
        took = anyio.current_time() - began
        await stream.aclose()
        return took

    assert run_on(loop, test) < 5


@ON_EACH_SERVER
def test_what_one_connection_does_wrong_ends_no_other(
    loop: str, server: ServerName, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with served(ExampleApp(), server) as address:
            kept = await request(address, "/stream")
            await read_until(kept, b"first ")
            for path, head in (("/wrong", UPGRADE), ("/raise", ""), ("/unknown", "")):
                stream = await request(address, path, head=head)
                await read_until(stream)
                await stream.aclose()
                await _hello(address)
            async with anyio.create_task_group() as clients:
                clients.start_soon(_is_alive, kept)

    async def _is_alive(stream: Any) -> None:
        with anyio.move_on_after(0.2) as limit:
            await stream.receive()
        assert limit.cancelled_caught
        await stream.aclose()

    caplog.set_level(logging.CRITICAL)
    run_on(loop, test)


HOSTILE = {
    "garbage": b"\x00\xff\x16\x03\x01" * 200 + b"\r\n\r\n",
    "a huge header": b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 300_000 + b"\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "a preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 40,
    "a bad chunk": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a bad length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "a path that is no ASCII": b"GET /\xc3\xa4 HTTP/1.1\r\nHost: x\r\n\r\n",
    "a bad escape": b"GET /%zz%ff HTTP/1.1\r\nHost: x\r\n\r\n",
    "an unknown method": b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n",
    "many at once": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 500,
    "an upgrade to nothing": b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\n"
        b"Upgrade: y\r\n\r\n",
    "an upgrade to HTTP/2": b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade, http2-settings\r\n"
        b"Upgrade: h2c\r\nHTTP2-Settings: !!!!\r\n\r\n",
    "a socket without a key": b"GET /socket HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
    "a socket of version 99": b"GET /socket HTTP/1.1\r\nHost: x\r\n"
        + UPGRADE.replace("13", "99").encode() + b"\r\n",
}  # fmt: skip

FRAMES = {
    "unmasked": b"\x81\x05hello",
    "reserved bits": b"\xf1\x85\x00\x00\x00\x00hello",
    "an unknown kind": b"\x83\x85\x00\x00\x00\x00hello",
    "a large control": b"\x89\xfe\x00\x7e\x00\x00\x00\x00" + b"a" * 126,
    "no UTF-8": b"\x81\x84\x00\x00\x00\x00\xff\xfe\xff\xfe",
    "an impossible length": b"\x81\xff" + b"\x7f" + b"\xff" * 7 + b"\x00" * 4,
    "a close of one byte": b"\x88\x81\x00\x00\x00\x00\x03",
    "random": bytes(range(256)) * 8,
}


@pytest.mark.long
@ON_EACH_SERVER
def test_hostile_input_ends_no_server(
    loop: str, server: ServerName, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with served(ExampleApp(), server) as address:
            for data in HOSTILE.values():
                await _send(address, data)
                await _hello(address)
            opening = f"GET /socket HTTP/1.1\r\nHost: x\r\n{UPGRADE}\r\n".encode()
            for data in FRAMES.values():
                await _send(address, opening, data)
                await _hello(address)

    async def _send(address: Address, *parts: bytes) -> None:
        """Send, read what comes for a moment, and vanish with a reset."""
        stream = await anyio.connect_tcp("127.0.0.1", address.port)
        with anyio.move_on_after(0.1):
            try:
                for part in parts:
                    await stream.send(part)
                    await anyio.sleep(0.02)
                while True:
                    await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass
        with suppress(OSError):  # The server has closed it already.
            raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await anyio.aclose_forcefully(stream)

    caplog.set_level(logging.CRITICAL)
    run_on(loop, test, 60)


REFUSED = (
    "garbage", "no host", "a bad chunk", "a bad length", "two lengths",
    "a path that is no ASCII",
)  # fmt: skip


@ON_EACH_SERVER
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "behind another one"])
def test_what_is_no_http_is_answered_by_a_line_of_text(
    loop: str, server: ServerName, is_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with served(ExampleApp(), server) as address:
            for name in REFUSED:
                async with await anyio.connect_tcp("127.0.0.1", address.port) as stream:
                    if not is_first:
                        await stream.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                        await read_until(stream, b"hello")
                    await stream.send(HOSTILE[name])
                    head, _, body = (await read_until(stream)).partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 4"), name
                assert b"content-type: text/plain; charset=utf-8" in head.split(b"\r\n"), name
                if b"chunked" in head:
                    body = body.split(b"\r\n")[1]
                assert len(body.splitlines()) == 1 and body.strip(), name
                length = re.search(rb"content-length: (\d+)", head)
                assert length is None or int(length[1]) == len(body), name
            await _hello(address)

    caplog.set_level(logging.CRITICAL)
    run_on(loop, test)


@ON_EACH_SERVER
def test_an_app_that_answers_with_nothing_has_said_so_itself(loop: str, server: ServerName) -> None:
    """What the server puts in the place of its own empty answers stands in no app's."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = [(b"content-length", b"0"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 404, "headers": headers})
            await send({"type": "http.response.body"})

    async def test() -> None:
        async with served(app, server) as address:
            async with await request(address, "/") as stream:
                answer = await read_until(stream)
            assert answer.startswith(b"HTTP/1.1 404") and answer.endswith(b"\r\n\r\n")

    run_on(loop, test)


@ON_EACH_SERVER
def test_more_connections_than_are_allowed_end_none_of_those_that_are(
    loop: str, server: ServerName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hubbub.channels.http.serving.serving.CONNECTIONS", 4)

    async def test() -> None:
        async with served(ExampleApp(), server) as address:
            kept = [await request(address, "/stream") for _ in range(4)]
            for stream in kept:
                await read_until(stream, b"first ")
            refused = await request(address)
            assert await read_until(refused) == b""
            await refused.aclose()
            await kept.pop().aclose()
            # Until the server has noticed.
            while not await _is_answered(address):  # noqa: ASYNC110
                await anyio.sleep(0.01)
            for stream in kept:
                await stream.aclose()

    run_on(loop, test)


@ON_EACH_SERVER
def test_who_connects_and_asks_for_nothing_is_cut_off(
    loop: str, server: ServerName, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("uvicorn_server", "anycorn_server"):
        monkeypatch.setattr(f"hubbub.channels.http.serving.{module}.IDLE_SECONDS", 0.3)

    async def test() -> None:
        async with served(ExampleApp(), server) as address:
            stream = await anyio.connect_tcp("127.0.0.1", address.port)
            await stream.send(b"GET / HTTP/1.1\r\nX")
            assert await read_until(stream) == b""
            await stream.aclose()

    run_on(loop, test)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_what_cannot_be_listened_on_is_one_line_with_a_remedy(loop: str) -> None:
    async def test() -> list[str]:
        taken, address = await listen("127.0.0.1", 0)
        said = []
        with taken:
            for host, port in (
                ("127.0.0.1", address.port), ("127.0.0.1", 70000), ("192.0.2.1", 0),
                ("no.such.host.invalid", 0), ("0.0.0.0", 0), ("", 0),
            ):  # fmt: skip
                is_protected = host in ("192.0.2.1", "no.such.host.invalid")
                with pytest.raises(CannotServe) as raised:
                    await serve(ExampleApp(), host=host, port=port, is_protected=is_protected)
                said.append(str(raised.value))
        return said

    said = run_on(loop, test)
    assert all("\n" not in each for each in said)
    assert "is in use; stop what listens there" in said[0]
    assert said[1] == "port 70000: expected a number from 0 to 65535"
    assert "is no address of this machine" in said[2]
    assert "has no address" in said[3]
    assert "nothing asks them for a token; give one" in said[4]
    assert "nothing asks them for a token; give one" in said[5]


def test_only_addresses_of_this_machine_are_loopback() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.8.8.8", "::1", "localhost"]))
    assert not any(map(is_loopback, ["", "0.0.0.0", "::", "10.0.0.1", "example.org", "localhost."]))


@ON_EACH_SERVER
def test_an_app_starts_and_shuts_down_once_and_one_that_cannot_is_not_served(
    loop: str, server: ServerName
) -> None:
    log = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            log.append((await receive())["type"])
            scope["state"]["name"] = b"hello"
            await send({"type": "lifespan.startup.complete"})
            log.append((await receive())["type"])
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await _start(send, (b"content-length", b"5"))
            await send({"type": "http.response.body", "body": scope["state"]["name"]})

    async def failing(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "Traceback:\nno database"})

    async def test() -> None:
        async with served(app, server) as address:
            await _hello(address)
        with pytest.raises(CannotServe, match="the app did not start: no database"):
            await serve(failing, port=0, server=server)

    run_on(loop, test)
    assert log == ["lifespan.startup", "lifespan.shutdown"]


def test_in_another_thread_signals_are_not_the_servers_affair() -> None:
    failures: list[BaseException] = []

    async def test() -> None:
        async with served(ExampleApp(), "anycorn") as address:
            await _hello(address)

    def work() -> None:
        try:
            for loop in ("asyncio", "trio"):
                run_on(loop, test)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []


def test_uvicorn_is_refused_on_trio() -> None:
    with pytest.raises(CannotServe, match="uvicorn runs on asyncio only"):
        run_on("trio", partial(serve, ExampleApp(), port=0, server="uvicorn"))
