"""A server all of whose places are taken by those who ask for nothing."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import anyio
import pytest
from anyio.abc import SocketStream
from hypothesis import given
from hypothesis import strategies as st
from support.served import ON_EACH_SERVER, read_until, request, run_on, served

from hubbub.channels.http.serving import serving
from hubbub.channels.http.serving.asgi import Message, Receive, Scope, Send
from hubbub.channels.http.serving.crowding import making_room
from hubbub.channels.http.serving.listening import Address
from hubbub.channels.http.serving.serving import ServerName

PLACES = 40


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 40))
def test_each_that_goes_is_the_oldest_of_whoever_has_most(addresses: list[str], most: int) -> None:
    silent = [(address, number) for number, address in enumerate(addresses)]
    left = list(silent)
    for number in making_room(silent, most):
        held = Counter(address for address, _ in left)
        address = addresses[number]
        assert held[address] == max(held.values())
        assert (address, number) == next(each for each in left if each[0] == address)
        left.remove((address, number))
    assert len(left) == max(0, len(silent) - most)


class Slow:
    """Says the beginning of an answer, and the end of it when it is told to."""

    def __init__(self) -> None:
        self.end = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/slow":
            first: Message = {"type": "http.response.body", "body": b"first", "more_body": True}
            await send(first)
            await self.end.wait()
        await send({"type": "http.response.body", "body": b"last"})


async def _strangers(address: Address, number: int, host: str) -> Sequence[SocketStream]:
    """Connections of another client, which asks for nothing; half of them have begun to."""
    found = []
    for index in range(number):
        stream = await anyio.connect_tcp("127.0.0.1", address.port, local_host=host)
        if index % 2:
            await stream.send(b"GET /never HTTP/1.1\r\nHost: loc")
        found.append(stream)
    return found


@pytest.mark.spec("W-06")
@ON_EACH_SERVER
def test_who_asks_for_nothing_takes_no_place_from_who_does(
    loop: str, server: ServerName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_connections", lambda: PLACES)

    async def test() -> None:
        app = Slow()
        async with served(app, server) as address:
            slow = await request(address, "/slow")
            await read_until(slow, b"first")
            kept = await request(address)
            await read_until(kept, b"last")
            for _ in range(3):
                held = await _strangers(address, PLACES, "127.0.0.2")
                for _ in range(5):
                    async with await request(address, head="Connection: close\r\n") as mine:
                        assert b"last" in await read_until(mine)
                for each in held:
                    await each.aclose()
            # Neither what is under way nor the connection of who has fewer was cut off for them.
            await kept.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await read_until(kept, b"last")
            app.end.set()
            await read_until(slow, b"last")
            await slow.aclose()
            await kept.aclose()

    run_on(loop, test)


@pytest.mark.spec("W-06")
@ON_EACH_SERVER
def test_where_every_place_is_at_work_a_newcomer_is_cut_off(
    loop: str, server: ServerName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_connections", lambda: PLACES)

    async def test() -> None:
        app = Slow()
        async with served(app, server) as address:
            slow = [await request(address, "/slow") for _ in range(PLACES)]
            for each in slow:
                await read_until(each, b"first")
            async with await anyio.connect_tcp("127.0.0.1", address.port) as late:
                assert await read_until(late) == b""
            app.end.set()
            for each in slow:
                await read_until(each, b"last")
                await each.aclose()

    run_on(loop, test)


SETTINGS = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00" + b"\x00\x03\x00\x00\x00\x05"
UPGRADE = b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n"


@pytest.mark.spec("W-06")
@ON_EACH_SERVER
def test_no_other_protocol_is_spoken_whose_frames_nothing_counts(
    loop: str, server: ServerName
) -> None:
    async def test() -> None:
        app = Slow()
        async with served(app, server) as address:
            async with await anyio.connect_tcp("127.0.0.1", address.port) as stream:
                await stream.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS)
                with suppress(anyio.BrokenResourceError):
                    found = await read_until(stream)
                    assert found.startswith(b"HTTP/1.1 ") or not found
            head = UPGRADE.decode() + "Accept: */*\r\n"
            async with await request(address, head=head) as stream:
                found = await read_until(stream, b"last")
                assert found.startswith(b"HTTP/1.1 200")

    run_on(loop, test)
