"""A store that fails ends every stream aloud, and begins none."""

import anyio
import pytest
from support.asgi_clients import event_source, socket
from support.openai_face import StreamedRequest, talker

from hubbub import CustomEvent, Runtime, agent
from hubbub.channels.http import HttpApp
from hubbub.hub.errors import StoreFailed
from hubbub.hub.store.memory import MemoryJournal

pytestmark = [pytest.mark.anyio, pytest.mark.spec("W-02", "W-03")]


class BreakableStore(MemoryJournal):
    """Fails when it is told to: from then on nothing is kept, and each commit is told so."""

    failure = ""

    def submit(self, commit):
        if not self.failure:
            super().submit(commit)
            return
        commit.error = self.failure
        if commit.done is not None:
            commit.done(commit)


@pytest.fixture
def store(ports):
    return BreakableStore(ids=ports.ids)


@agent("sleeper")
async def sleeper(input, ctx):
    await anyio.sleep_forever()


async def breaks(rt, store, *, silently=False):
    store.failure = "no room on the disk"
    if not silently:
        await rt.hub.open("sleeper", "x")
    await anyio.sleep(20)


@pytest.mark.parametrize("silently", [False, True])
@pytest.mark.parametrize("after", [None, "start"])
async def test_a_stream_of_events_ends_with_the_store(served, store, silently, after):
    async with served(sleeper, store=store) as (rt, app):
        run_id = (await rt.hub.open("sleeper", "x")).run_id
        query = {} if after is None else {"after": after}
        async with (
            event_source(app, **query) as every,
            event_source(app, f"/api/runs/{run_id}/events", **query) as one,
        ):
            await breaks(rt, store, silently=silently)
            for source in (every, one):
                assert source.is_over
                assert source.frames[-1].type == "hubbub:end"
                assert source.frames[-1].json == {"reason": "store failed"}
        for path in ("/api/events", f"/api/runs/{run_id}/events"):
            async with event_source(app, path, after="start") as source:
                assert source.status == 503


async def test_a_socket_ends_with_the_store(served, store):
    async with served(sleeper, store=store) as (rt, app):
        async with socket(app) as client:
            client.say("subscribe")
            await anyio.sleep(1)
            await breaks(rt, store)
            assert client.is_over
            assert client.got[-1] == {"kind": "end", "reason": "store failed"}
            assert client.code == 1013
        async with socket(app) as client:
            assert (client.accepted, client.status) == (None, 503)


async def test_a_stream_in_a_program_says_that_the_store_has_failed_and_then_goes_on(store, ports):
    async with Runtime([sleeper], store=store, ports=ports) as rt:
        found = []

        async def read(events):
            async for event in events:
                found.append(event.type)  # noqa: PERF401

        async with rt.hub.subscribe("*") as events:
            await rt.hub.open("sleeper", "x")
            store.failure = "no room on the disk"
            await rt.hub.open("sleeper", "y")
            with pytest.raises(StoreFailed, match="no room"):
                await read(events)
            assert "session:open" in found
            rt.hub.emit(CustomEvent.of("test:fleeting", durable=False))
            with anyio.move_on_after(1):
                await read(events)
            assert found[-1] == "test:fleeting"


async def test_a_reader_that_waits_learns_at_once_that_the_store_has_failed(store, ports):
    async with (
        Runtime([sleeper], store=store, ports=ports) as rt,
        anyio.create_task_group() as group,
    ):
        run = await rt.start("sleeper", "x")
        told = []

        async def read(events):
            try:
                async for _ in events:
                    pass
            except StoreFailed:
                told.append(anyio.current_time())

        for events in (rt.hub.subscribe("*"), rt.hub.subscribe("*", after="start"), run.events()):
            group.start_soon(read, events)
        await anyio.sleep(1)
        now = anyio.current_time()
        store.failure = "no room on the disk"
        await rt.hub.open("sleeper", "y")
        await anyio.sleep(1)
        assert told == [now] * 3


async def test_a_handler_goes_on_when_the_store_has_failed(store, ports):
    async with Runtime([sleeper], store=store, ports=ports) as rt:
        heard = []

        async def hear(event):
            heard.append(event.type)

        rt.hub.subscribe("test:*", hear)
        await breaks(rt, store)
        rt.hub.emit(CustomEvent.of("test:fleeting", durable=False))
        await anyio.sleep(1)
        assert heard == ["test:fleeting"]


@pytest.mark.parametrize("streams", [False, True])
async def test_an_answer_of_v1_ends_with_the_store(ports, store, streams):
    rt = Runtime([talker(), sleeper], store=store, ports=ports)
    app = HttpApp(rt.hub)
    async with rt, app, anyio.create_task_group() as group:
        body = {"model": "sleeper", "input": "x", "stream": streams}
        request = StreamedRequest(app, "POST", "/v1/responses", body)
        group.start_soon(request.run)
        await anyio.sleep(1)
        await breaks(rt, store)
        assert request.is_over
        assert b"the store has failed" in request.body
        assert request.status == (200 if streams else 503)
        again = StreamedRequest(app, "POST", "/v1/responses", body)
        await again.run()
        assert again.status == 503
