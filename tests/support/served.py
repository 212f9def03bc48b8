"""An app on a real port, on each server and loop, and clients of it.  Real time."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import anyio
import pytest
from anyio.abc import SocketStream
from anyio.from_thread import start_blocking_portal

from hubbub import Runtime
from hubbub.channels.http.app import HttpApp
from hubbub.channels.http.serving.listening import Address
from hubbub.channels.http.serving.serving import ServerName, serve

__all__ = [
    "ON_EACH_SERVER", "SERVERS", "ServedHub", "read_until", "request", "run_on", "served",
    "served_hub",
]  # fmt: skip

SERVERS: Final[tuple[tuple[str, ServerName], ...]] = (
    ("asyncio", "uvicorn"), ("asyncio", "anycorn"), ("trio", "anycorn"),
)  # fmt: skip
"""Each loop with each server that runs on it."""

ON_EACH_SERVER: Final = pytest.mark.parametrize(
    ("loop", "server"), SERVERS, ids=[f"{server} on {loop}" for loop, server in SERVERS]
)


class ServedHub(NamedTuple):
    """A hub over HTTP, and the runtime behind it, which is another thread's."""

    url: str
    runtime: Runtime


def run_on(loop: str, test: Callable[[], Awaitable[Any]], seconds: float = 30.0) -> Any:
    """Run ``test`` on an event loop in real time, for at most so long."""

    async def bounded() -> Any:
        with anyio.fail_after(seconds):
            return await test()

    return anyio.run(bounded, backend=loop)


@asynccontextmanager
async def served(app: Any, server: ServerName, **options: Any) -> AsyncIterator[Address]:
    """``app`` on a free port, until the end of the block."""
    async with anyio.create_task_group() as group:
        options = {"port": 0, "server": server, **options}
        yield await group.start(partial(serve, app, **options))
        group.cancel_scope.cancel()


async def request(
    address: Address, path: str = "/", *, method: str = "GET", head: str = ""
) -> SocketStream:
    """A connection on which something has been asked for."""
    stream = await anyio.connect_tcp("127.0.0.1", address.port)
    await stream.send(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())
    return stream


async def read_until(stream: SocketStream, wanted: bytes = b"") -> bytes:
    """What comes up to and with ``wanted``; without it, all until the other side has closed."""
    found = b""
    while not wanted or wanted not in found:
        try:
            found += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            if wanted:
                raise AssertionError(f"no {wanted!r} in {found!r}") from None
            break
    return found


@asynccontextmanager
async def _served_hub(
    agents: Sequence[Any], server: ServerName, options: Mapping[str, Any]
) -> AsyncIterator[ServedHub]:
    runtime = Runtime(agents, store="memory")
    app = HttpApp(runtime.hub, **options)
    async with runtime, app, served(app, server) as address:
        yield ServedHub(address.url, runtime)


@contextmanager
def served_hub(
    agents: Sequence[Any], loop: str, server: ServerName, **options: Any
) -> Iterator[ServedHub]:
    """A runtime with these agents behind an ``HttpApp``, in a thread with an event loop."""
    with (
        start_blocking_portal(backend=loop) as portal,
        portal.wrap_async_context_manager(_served_hub(agents, server, options)) as found,
    ):
        yield found
