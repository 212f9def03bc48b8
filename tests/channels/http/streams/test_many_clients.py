"""A hundred clients, and a thousand: each gets everything, encoded once, and nothing is left."""

import anyio
import pytest
from support.asgi_clients import EventSource, event_source, turns

from hubbub import CustomEvent
from hubbub.channels.http.streams import sse

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-04")]

LIMITS = {"streams_per_client": 2000, "burst": 100_000}


@pytest.fixture(params=[100, pytest.param(1000, marks=pytest.mark.long)])
def many(request):
    """How many clients."""
    return request.param


@pytest.fixture
def encoded(monkeypatch):
    """The events that were encoded, each as often as it was."""
    found = []

    def encode(hub, event):
        found.append(event.id)
        return real(hub, event)

    real = sse.sse_of
    monkeypatch.setattr(sse, "sse_of", encode)
    return found


def tick(n):
    return CustomEvent.of("test:tick", durable=True, n=n)


def numbers(source):
    return [frame.json["data"]["n"] for frame in source.frames if frame.type == "test:tick"]


async def stay(app, client, leave, **how):
    async with event_source(app, client=client, types="test:tick", **how):
        await leave.wait()


async def wait_until(condition):
    with anyio.fail_after(3600):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.001)


async def connected(group, app, many, leave, ids=()):
    """So many clients, all of them served."""
    before = app.open_streams
    clients = [EventSource() for _ in range(many)]
    for number, client in enumerate(clients):
        headers = {"Last-Event-ID": ids[number]} if ids else {}
        how = {"headers": headers}
        group.start_soon(lambda c=client, h=how: stay(app, c, leave, **h))
    await wait_until(lambda: app.open_streams == before + many)
    await wait_until(lambda: all(client.status == 200 for client in clients))
    return clients


async def test_each_of_many_gets_every_event_and_each_is_encoded_once(served, encoded, many):
    async with served(**LIMITS) as (rt, app):
        async with event_source(app):
            pass
        before, tasks = rt.hub.statistics(), len(anyio.get_running_tasks())
        leave = anyio.Event()
        async with anyio.create_task_group() as group:
            clients = await connected(group, app, many, leave)
            assert rt.hub.statistics().subscribers == before.subscribers + many
            for n in range(30):
                rt.hub.emit(tick(n))
                await anyio.sleep(0.01 if n % 3 else 0)
            await wait_until(lambda: all(len(client.frames) == 30 for client in clients))
            leave.set()
        assert all(numbers(client) == [*range(30)] for client in clients)
        assert len(encoded) == len(set(encoded)) == 30
        assert rt.hub.statistics() == before
        assert app.open_streams == 0
        await turns()
        assert len(anyio.get_running_tasks()) <= tasks


async def test_a_storm_of_reconnections_loses_nothing_and_leaves_nothing(served, many):
    async with served(**LIMITS) as (rt, app):
        async with event_source(app) as first:
            ids = [first.parser.last_id] * many
        before, number = rt.hub.statistics(), 0
        for _ in range(3):
            for _ in range(10):
                rt.hub.emit(tick(number))
                number += 1
            leave = anyio.Event()
            async with anyio.create_task_group() as group:
                clients = await connected(group, app, many, leave, ids)
                rt.hub.emit(tick(number))
                number += 1
                await wait_until(lambda c=clients: all(len(each.frames) == 11 for each in c))
                # Half of them break in the middle of a write.
                for client in clients[::2]:
                    client.vanishes_at = client.sends + 1
                rt.hub.emit(CustomEvent.of("test:tick", durable=False, n=-1))
                await turns(200)
                leave.set()
            expected = [*range(number - 11, number)]
            assert all(numbers(client)[:11] == expected for client in clients)
            ids = [client.frames[10].id for client in clients]
        assert rt.hub.statistics() == before
        assert app.open_streams == 0


async def test_many_that_take_nothing_hold_up_nobody(served, many):
    async with served(**LIMITS) as (rt, app):
        leave = anyio.Event()
        async with anyio.create_task_group() as group:
            slow = await connected(group, app, many, leave)
            for client in slow:
                client.gate = anyio.sleep_forever
            async with event_source(app, types="test:tick") as quick:
                rt.hub.emit(tick(0))
                for n in range(1, 50):
                    rt.hub.emit(tick(n))
                    await anyio.sleep(0.001)
                await anyio.sleep(0.1)
                assert numbers(quick) == [*range(50)]
            assert app.open_streams == many
            # Those who take nothing for a minute are cut, so that they hold nothing either.
            await anyio.sleep(100)
            await wait_until(lambda: app.open_streams == 0)
            leave.set()


@pytest.mark.spec("W-03")
async def test_what_comes_in_quick_succession_is_written_together_where_many_are_written_to(served):
    sends = {}
    async with served(**LIMITS) as (rt, app):
        for many in (50, 400):
            leave = anyio.Event()
            async with anyio.create_task_group() as group:
                clients = await connected(group, app, many, leave)
                before = sum(client.sends for client in clients)
                for n in range(50):
                    rt.hub.emit(tick(n))
                    await anyio.sleep(0.001)
                await anyio.sleep(1)
                sends[many] = (sum(client.sends for client in clients) - before) / many
                leave.set()
            assert all(numbers(client) == [*range(50)] for client in clients)
    assert sends[50] == 50
    assert sends[400] < 10
