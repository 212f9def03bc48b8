"""The figures of streams over HTTP: what they cost beside a bare server, and how late they are.

The server is this process, its clients are another one; both are real, on this machine.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from figures import Aim, Figure, Loop, on_loop, stopwatch

from hubbub import Event, Runtime
from hubbub.channels.http import HttpApp, HttpLimits
from hubbub.channels.http.serving.serving import serve

__all__ = ["sse_clients", "sse_latency", "sse_slow"]

READERS = Path(__file__).parent / "sse_readers.py"
RATE = 100
MAX_LINE = 10_000


class Paced(Event, tag="bench:paced", home="none"):
    """What is sent, and when."""

    sent: float = 0.0
    text: str = ""


TEXT = "x" * 60
"""With the rest about 190 bytes, as a token of text has."""


@asynccontextmanager
async def _readers(
    port: int, path: str, count: int, slow: int
) -> AsyncIterator[BufferedByteReceiveStream]:
    """Clients that have connected; what they got is the process's second line."""
    command = [sys.executable, str(READERS), str(port), path, str(count), str(slow)]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdout is not None
        try:
            said = BufferedByteReceiveStream(process.stdout)
            assert await said.receive_until(b"\n", MAX_LINE) == b"ready"
            yield said
        finally:
            process.terminate()


async def _pace(emit: Callable[[], None], seconds: float) -> None:
    """Emit at the rate; what is late is emitted at once."""
    begin = time.monotonic()
    for number in range(int(seconds * RATE)):
        if (early := begin + number / RATE - time.monotonic()) > 0:
            await anyio.sleep(early)
        emit()


async def _measured(
    app: Any, emit: Callable[[], None], end: Callable[[], None], count: int, slow: int,
    seconds: float,
) -> tuple[float, dict[str, float]]:  # fmt: skip
    """The CPU time of this process for it all, and what the clients say."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    async with anyio.create_task_group() as group:

        async def begin(*, task_status: Any) -> None:
            await serve(app, port=0, task_status=task_status)

        address = await group.start(begin)
        async with _readers(address.port, "/api/events?types=bench:*", count, slow) as said:
            with stopwatch() as watch:
                await _pace(emit, seconds)
                end()
                found: dict[str, float] = json.loads(await said.receive_until(b"\n", MAX_LINE))
        group.cancel_scope.cancel()
    return watch.seconds, found


async def _ours(count: int, slow: int, seconds: float) -> tuple[float, dict[str, float]]:
    limits = HttpLimits(streams_per_client=count + slow, burst=10 * (count + slow))
    async with Runtime([], store="memory") as rt, HttpApp(rt.hub, limits=limits) as app:

        def emit() -> None:
            rt.hub.emit(Paced(sent=time.monotonic(), text=TEXT, run_id="r", root_run_id="r"))

        return await _measured(app, emit, app.end_streams, count, slow, seconds)


class BareApp:
    """The same bytes from the least that can send them."""

    is_protected = True

    def __init__(self) -> None:
        self._clients: dict[Any, list[bytes]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise RuntimeError("there is none here")
        wake, queue = asyncio.Event(), []
        self._clients[wake] = queue
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b": hello\n\n", "more_body": True})
        is_over = False
        while not is_over:
            await wake.wait()
            wake.clear()
            body = b"".join(queue)
            queue.clear()
            is_over = b"hubbub:end" in body
            await send({"type": "http.response.body", "body": body, "more_body": not is_over})

    def broadcast(self, frame: bytes) -> None:
        for wake, queue in self._clients.items():
            queue.append(frame)
            wake.set()

    def emit(self) -> None:
        data = json.dumps({"type": "bench:paced", "text": TEXT, "sent": 0, "seq": 1 << 60})
        data = data.replace('"sent": 0', f'"sent":{time.monotonic()}')
        self.broadcast(f"event: bench:paced\ndata: {data}\n\n".encode())

    def end(self) -> None:
        self.broadcast(b"event: hubbub:end\ndata: {}\n\n")


async def _bare(count: int, slow: int, seconds: float) -> tuple[float, dict[str, float]]:
    app = BareApp()
    return await _measured(app, app.emit, app.end, count, slow, seconds)


Measured = Callable[[int, int, float], Awaitable[tuple[float, dict[str, float]]]]


def _in_turns(
    loop: Loop, rounds: int, count: int, slow: int, seconds: float
) -> list[tuple[tuple[float, dict[str, float]], tuple[float, dict[str, float]]]]:
    return [
        (
            on_loop(loop, _ours, count, slow, seconds),
            on_loop("asyncio", _bare, count, slow, seconds),
        )
        for _ in range(min(rounds, 3))
    ]


def sse_clients(loop: Loop, rounds: int, scale: float) -> Figure:
    count, seconds = int(1000 * max(scale, 0.05)), 5.0 * max(scale, 0.2)
    pairs = []
    for (ours, got), (bare, _) in _in_turns(loop, rounds, count, 0, seconds):
        assert got["received"] == count * int(seconds * RATE), "somebody has missed something"
        sent = count * int(seconds * RATE)
        pairs.append((sent / ours, sent / bare))
    pairs.sort(key=lambda pair: pair[0] / pair[1])
    mine, floor = pairs[len(pairs) // 2]
    return Figure(
        what="1,000 SSE clients at 100 events/s, one core", loop=loop, unit="events/CPU s",
        value=mine, floor=floor, aim=Aim(">=", 100_000),
        note="floor: the same bytes from a bare ASGI app on uvicorn",
    )  # fmt: skip


def sse_latency(loop: Loop, rounds: int, scale: float) -> Figure:
    return _late("hub to client, 100 SSE clients at 100 events/s, p99", loop, rounds, scale, 0)


def sse_slow(loop: Loop, rounds: int, scale: float) -> Figure:
    return _late("the same beside 20 clients that take nothing, p99", loop, rounds, scale, 20)


def _late(what: str, loop: Loop, rounds: int, scale: float, slow: int) -> Figure:
    count, seconds = int(100 * max(scale, 0.1)), 5.0 * max(scale, 0.2)
    found = _in_turns(loop, rounds, count, slow, seconds)
    found.sort(key=lambda each: each[0][1]["p99"])
    (_, mine), (_, floor) = found[len(found) // 2]
    return Figure(
        what=what, loop=loop, unit="ms", value=1000 * mine["p99"], floor=1000 * floor["p99"],
        aim=Aim("<=", 50), note="floor: a bare ASGI app on uvicorn",
    )  # fmt: skip
