"""A stream that is over holds nothing: its events go with who had it, before any collection."""

import gc
import weakref

import anyio
import pytest

from hubbub import CustomEvent, Hub
from hubbub.hub.events import Event

pytestmark = [pytest.mark.anyio, pytest.mark.spec("H-05")]


class Said(str):
    """A text that can be asked after; an event cannot."""


class Noted(Event, tag="test:noted", home="none"):
    """An event with such a text."""

    said: str = ""


@pytest.fixture
async def hub(journal, ports):
    async with Hub(journal=journal, ports=ports) as hub:
        gc.collect()
        gc.disable()
        try:
            yield hub
        finally:
            gc.enable()


@pytest.fixture
def gone():
    """What was said and is no longer in memory."""
    return []


async def emit(hub, gone, *texts):
    for text in map(Said, texts):
        weakref.finalize(text, gone.append, str(text))
        hub.emit(Noted(said=text))
    del text
    await anyio.sleep(1)


@pytest.mark.parametrize("partial", [False, True])
async def test_what_a_closed_stream_has_buffered_goes_with_it(hub, gone, partial):
    stream = hub.subscribe("test:*", partial=partial)
    await emit(hub, gone, "a", "b")
    stream.close()
    assert gone == []  # It can still be read.
    del stream
    assert sorted(gone) == ["a", "b"]


async def test_a_stream_that_was_left_holds_no_event(hub, gone):
    async with hub.subscribe("test:*") as events:
        await emit(hub, gone, "a", "b", "c")
        assert (await anext(events)).said == "a"
    assert sorted(gone) == ["a", "b", "c"]
    assert [event async for event in events] == []


async def test_the_stream_of_a_reader_that_was_cancelled_goes_when_it_is_closed(hub, gone):
    async def read():
        async for _ in hub.subscribe("test:*"):
            await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await anyio.sleep(1)
        await emit(hub, gone, "a", "b")
        group.cancel_scope.cancel()
    await hub.aclose()
    assert "b" in gone


async def test_a_handler_that_was_left_behind_by_its_events_holds_none_when_it_is_unsubscribed(
    hub, gone
):
    gate = anyio.Event()

    async def wait(event):
        await gate.wait()

    subscription = hub.subscribe("test:*", wait)
    await emit(hub, gone, "a", "b", "c")
    subscription.close()
    assert sorted(gone) == ["b", "c"]
    gate.set()
    await anyio.sleep(1)
    assert sorted(gone) == ["a", "b", "c"]


async def test_a_stream_that_was_left_still_says_where_it_has_come_to(hub):
    async with hub.subscribe("test:*") as events:
        hub.emit(CustomEvent.of("test:kept", durable=True))
        event = await anext(events)
    assert events.cursor == hub.cursor(event)
