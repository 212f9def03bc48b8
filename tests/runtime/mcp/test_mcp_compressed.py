"""Compressed answers of MCP servers, which nobody asks for: read within bounds, or refused."""

import gzip
import json
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from support.mcp_addresses import answering, at_calls, plain
from support.mcp_servers import Results, mcp_agent

from hubbub import Runtime, ScriptedModel, mcp
from hubbub.runtime.mcp.lines import MAX_LINE
from hubbub.runtime.models.scripted import call

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.spec("L-09"),
    # Trio says so of generators of httpx2, which the SDK's client leaves to the collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

JSON, EVENTS = "application/json", "text/event-stream"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Other threads live in the machine's own time."""
    found: str = request.param
    return found


def bare(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("X-GZIP", gzip.compress),
    "zlib": ("deflate", zlib.compress),
    "bare": ("deflate", bare),
    "none": ("identity", bytes),
}


async def called(answer: Any, *, timeout: float = 300.0) -> str:
    """What a model reads of a call that is answered so."""
    with answering(answer) as (url, _):
        model = ScriptedModel([call("it_act"), "Done."])
        async with Runtime(
            [mcp_agent(model, mcp(url, name="it", timeout=timeout))], store="memory"
        ) as rt:
            results = Results(rt.hub)
            with anyio.fail_after(30):
                await rt.run("helper", "Go.")
            (output,) = results.outputs
            assert "\n" not in output
            found: str = output
            return found


def packs_all(packer: str, kind: str) -> Any:
    """A server, all of whose answers are compressed."""
    name, pack = PACKERS[packer]

    def answer(handler: Any, asked: Any) -> None:
        put = handler.put

        def packed(status: int, body: bytes, _: str, **headers: str) -> None:
            if kind == EVENTS:
                body = b"event: message\ndata: " + body + b"\n\n"
            put(status, pack(body), kind, **{"content-encoding": name}, **headers)

        if "id" in asked:
            handler.put = packed
        at_calls(fine)(handler, asked)

    return answer


def fine(handler: Any, asked: Any) -> None:
    # Another id, and half a pair: no answer to the letter.
    handler.say(77, result={"content": [{"type": "text", "text": "fine\ud800"}]})


@pytest.mark.parametrize("kind", [JSON, EVENTS])
@pytest.mark.parametrize("packer", PACKERS)
async def test_a_server_that_compresses_everything_is_read_like_any_other(
    packer: str, kind: str
) -> None:
    assert await called(packs_all(packer, kind)) == "fine\ufffd"


@pytest.mark.parametrize("kind", [JSON, EVENTS])
@pytest.mark.parametrize("name", ["br", "zstd", "gzip, gzip", "gzip, deflate", "utf-8"])
async def test_what_cannot_be_unpacked_in_bounds_is_refused_by_its_name(
    name: str, kind: str
) -> None:
    answer = plain(200, gzip.compress(gzip.compress(b"x")), kind, **{"content-encoding": name})
    assert f"the answer is compressed ({name}), which" in await called(at_calls(answer))


async def test_a_body_that_is_no_gzip_is_damaged() -> None:
    for kind in (JSON, EVENTS):
        answer = plain(200, b"no gzip", kind, **{"content-encoding": "gzip"})
        assert "the compressed answer is damaged" in await called(at_calls(answer))


MUCH = 3 * MAX_LINE


def large(pattern: bytes, *, times: int = 1) -> bytes:
    """Some hundred bytes that become ``MUCH``, packed so often."""
    packer = zlib.compressobj(9, wbits=31)
    piece = pattern * (1_000_000 // len(pattern))
    found = b"".join(packer.compress(piece) for _ in range(MUCH // len(piece))) + packer.flush()
    for _ in range(times - 1):
        found = gzip.compress(found)
    return found


BOMBS: dict[str, tuple[int, str, bytes, str]] = {
    "JSON": (200, JSON, large(b" "), "gzip"),
    "JSON, twice": (200, JSON, large(b" ", times=2), "gzip, gzip"),
    "JSON, in two headers": (200, JSON, large(b" ", times=2), "gzip,gzip"),
    "an error": (500, JSON, large(b" "), "gzip"),
    "an error, twice": (400, JSON, large(b" ", times=2), "gzip, gzip"),
    "an event": (200, EVENTS, b"".join((gzip.compress(b"data: "), large(b"x"))), "gzip"),
    "lines of an event": (200, EVENTS, large(b"data:\n"), "gzip"),
    "no events": (200, EVENTS, large(b"\n"), "gzip"),
    "events, twice": (200, EVENTS, large(b"\n", times=2), "gzip, gzip"),
    "another kind of event": (
        200, EVENTS, gzip.compress(b"event: x\n" + b"data:\n" * 1_000_000 + b"\n", 9), "gzip",
    ),
}  # fmt: skip


@contextmanager
def memory_within(most: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most


async def longest_wait(found: list[float]) -> None:
    """How long, by the work of this thread, others have had to wait at most."""
    last = time.thread_time()
    while True:
        await checkpoint()
        now = time.thread_time()
        found[0] = max(found[0], now - last)
        last = now


@pytest.mark.long
@pytest.mark.parametrize("bomb", BOMBS)
async def test_an_answer_that_unpacks_without_bound_takes_little_memory_and_lets_others_work(
    bomb: str,
) -> None:
    status, kind, packed, name = BOMBS[bomb]
    assert len(packed) < 1_000_000
    answer = plain(status, packed, kind, **{"content-encoding": name})
    waited = [0.0]
    async with anyio.create_task_group() as group:
        group.start_soon(longest_wait, waited)
        with memory_within(4 * MAX_LINE):
            # Lines without end that are no event may be read until then.
            output = await called(at_calls(answer), timeout=5.0)
        group.cancel_scope.cancel()
    assert output
    assert waited[0] < 2.0


@pytest.mark.long
async def test_a_body_that_becomes_nothing_ends_like_a_long_one() -> None:
    def empties(handler: Any, asked: Any) -> None:
        handler.send_response(200)
        handler.send_header("content-type", JSON)
        handler.send_header("content-encoding", "gzip")
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(gzip.compress(b"") * 50_000)
        except OSError:
            handler.close_connection = True

    assert "it is longer than 64 MB" in await called(at_calls(empties))


@pytest.mark.parametrize("charset", ["punycode", "utf-16", "zlib_codec", "nothing"])
async def test_events_are_read_as_utf_8_whatever_they_say(charset: str) -> None:
    def answer(handler: Any, asked: Any) -> None:
        # To read these letters as punycode takes a time by the square of their number.
        text = "fine-" + "a" * 100_000
        said = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}]}}
        body = b"data: " + json.dumps(said).encode() + b"\n\n"
        handler.put(200, body, f"{EVENTS}; charset={charset}")

    assert (await called(at_calls(answer))).startswith("fine-aaa")
