"""What waited for clients that took nothing is gone with them; no garbage collector need come."""

import gc
import tracemalloc
from contextlib import AsyncExitStack, contextmanager
from functools import partial

import anyio
import pytest
from http_apps import served
from support.asgi_clients import EventSource, event_source, scope_of, socket
from support.stores import sqlite_store

from hubbub import Agent, CustomEvent, FunctionModel
from hubbub.channels.http import HttpLimits

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-06")]

SIZE = 400_000
CLIENTS = 20
SMALL = SIZE * 8
"""What may differ: an app keeps the frames that it has made last."""

LIMITS = HttpLimits(streams_per_client=100, rate=10_000, burst=10_000)


@contextmanager
def without_collector():
    """While nothing but references that are dropped frees memory; says how much more there is."""
    gc.collect()
    gc.disable()
    tracemalloc.start(1)
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()


class Stalled:
    """A client whose request is answered at length, and that takes nothing of that.

    When it has left, some servers raise an exception in the app, and others do not.
    """

    def __init__(self, app, path, query, *, raises):
        self.app, self.path, self.query, self.raises = app, path, query, raises
        self.is_asked = False
        self.left = anyio.Event()
        self.sent = 0

    async def __call__(self):
        scope = {**scope_of(self.path, self.query, {}), "type": "http", "method": "GET"}
        await self.app(scope, self.receive, self.send)

    async def receive(self):
        if not self.is_asked:
            self.is_asked = True
            return {"type": "http.request", "body": b""}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        if len(message.get("body", b"")) > 10_000:
            self.sent += 1
            await self.left.wait()
            if self.raises:
                raise OSError("nobody is there")


def takes(client, most):
    """Have a client take so many messages, and no more."""

    async def gate():
        if client.sends > most:
            await anyio.sleep_forever()

    client.gate = gate


async def with_sockets(app, stack):
    for _ in range(CLIENTS):
        client = await stack.enter_async_context(socket(app))
        takes(client, 4)  # That it was accepted, and where its selections begin.
        for _ in range(3):
            client.say("subscribe", types=["test:large"], after="start")


async def with_streams(app, stack, path="/api/events", **query):
    for _ in range(CLIENTS):
        client = EventSource()
        takes(client, 2)
        opened = event_source(app, path, client=client, after="start", **query)
        await stack.enter_async_context(opened)


async def with_requests(app, stack, path, **query):
    group = await stack.enter_async_context(anyio.create_task_group())
    clients = [Stalled(app, path, query, raises=n % 2 == 0) for n in range(CLIENTS)]
    for each in clients:
        group.start_soon(each)
    for each in clients:
        stack.callback(each.left.set)
    await anyio.sleep(5)
    assert all(each.sent == 1 for each in clients)


async def prepared(rt, client, what):
    """What begins so many requests of a kind."""
    for n in range(3):
        rt.hub.emit(CustomEvent.of("test:large", durable=True, n=n, text="x" * SIZE))
    started = await rt.start("teller", "Tell.")
    await started.result()
    run_id = started.run_id
    match what:
        case "sockets":
            return with_sockets
        case "events":
            return partial(with_streams, types="test:large")
        case "events of a run":
            return partial(with_streams, path=f"/api/runs/{run_id}/events")
        case "a file":
            path = f"/api/runs/{run_id}/files/a.bin"
            assert (await client.put(path, content=bytes(SIZE))).is_success
            return partial(with_requests, path=path)
        case "records":
            return partial(with_requests, path=f"/api/runs/{run_id}/records")
        case _:
            said = {"model": "teller", "input": "Tell."}
            made = await client.post("/v1/responses", json=said)
            path = f"/v1/responses/{made.json()['id']}"
            return partial(with_requests, path=path, stream="true")


KINDS = ["sockets", "events", "events of a run", "a file", "records", "a response"]


@pytest.mark.parametrize("what", KINDS)
async def test_what_waited_for_clients_is_gone_when_they_have_left(ports, tmp_path, what):
    teller = Agent("teller", "You tell.", model=FunctionModel(lambda request: "x" * SIZE))
    store = sqlite_store(tmp_path, ports=ports)
    async with served(ports, teller, store=store, limits=LIMITS) as (rt, app, client):
        begin = await prepared(rt, client, what)
        with without_collector() as used:
            before = 0
            for _ in range(2):
                before = used()  # After the first time the app keeps what it keeps.
                async with AsyncExitStack() as stack:
                    await begin(app, stack)
                    await anyio.sleep(5)
                    assert used() - before > CLIENTS * SIZE / 2, "nothing has waited"
                await anyio.sleep(5)
            left = used() - before
        assert left < SMALL, f"{left:,} bytes are left"
