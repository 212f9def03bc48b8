"""Channels that continue where they were: nothing that happened meanwhile is missed."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from support.agents import echo_model, model_agent

from hubbub import START, CustomEvent, Hub, Runtime
from hubbub.channels import Channel, ChannelContext, Channels
from hubbub.hub.errors import DefinitionError
from hubbub.hub.events import AgentText, Event, HubGap
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal
from hubbub.runtime.stores.open import sqlite_store

pytestmark = pytest.mark.anyio


class Place:
    """Where a channel keeps its place, and what it has told, over all attachments."""

    def __init__(self, kept: str | None = None) -> None:
        self.kept = kept
        self.told: list[Any] = []
        self.begun: list[str] = []

    def channel(self, pattern: str = "shop:said", **options: Any) -> Channel:
        def tell(event: Event, context: ChannelContext) -> None:
            self.told.append(getattr(event, "data", {}).get("number", event.type))
            self.kept = context.cursor

        return Channel(
            "keeper", {(pattern, "hub:gap"): tell}, after=lambda: self.kept, lossless=True,
            on_start=lambda context: self.begun.append(context.cursor), **options,
        )  # fmt: skip


def said(number: int) -> CustomEvent:
    return CustomEvent.of("shop:said", number=number)


@pytest.fixture
async def hub(journal: Journal, ports: Ports) -> Any:
    async with Hub(journal=journal, ports=ports) as hub:
        yield hub


@pytest.mark.spec("K-01", "H-06")
async def test_a_channel_is_told_what_happened_while_it_was_detached(
    hub: Hub, eventually: Any
) -> None:
    place = Place()
    await hub.publish(said(0))  # Nothing is kept yet: it begins with what comes.
    async with Channels(hub, place.channel()):
        hub.emit(said(1))
        await eventually(lambda: place.told == [1])
    await hub.publish(said(2))
    await hub.publish(said(3))
    async with Channels(hub, place.channel()):
        hub.emit(said(4))
        await eventually(lambda: len(place.told) == 4)
    assert place.told == [1, 2, 3, 4]


async def test_its_place_is_known_before_anything_happens(hub: Hub, eventually: Any) -> None:
    place = Place()
    async with Channels(hub, place.channel()):
        pass
    await hub.publish(said(1))
    place.kept = place.begun[0]  # Kept by ``on_start``: nothing since then is missed.
    async with Channels(hub, place.channel()):
        await eventually(lambda: place.told == [1])
    assert place.begun[1] == place.begun[0]


async def test_from_the_beginning_is_a_place(hub: Hub, eventually: Any) -> None:
    place = Place(START)
    await hub.publish(said(0))
    async with Channels(hub, place.channel()):
        await eventually(lambda: place.told == [0])


async def test_a_place_may_be_read_while_others_go_on(hub: Hub, eventually: Any) -> None:
    place = Place(START)

    async def read() -> str | None:
        hub.emit(said(1))
        await anyio.sleep(5)
        hub.emit(said(2))
        return place.kept

    first = place.channel()
    channel = Channel(first.name, first.handlers, lossless=True, after=read)
    async with Channels(hub, channel):
        hub.emit(said(3))
        await eventually(lambda: len(place.told) == 3)
    assert place.told == [1, 2, 3]


@pytest.mark.spec("H-06")
async def test_a_place_that_the_store_does_not_know_is_a_gap_first(
    hub: Hub, eventually: Any
) -> None:
    place = Place("from another store")
    async with Channels(hub, place.channel()):
        hub.emit(said(1))
        await eventually(lambda: len(place.told) == 2)
    assert place.told == [HubGap.type, 1]


@pytest.mark.spec("K-01")
async def test_a_place_that_cannot_be_read_fails_its_channel_alone(hub: Hub) -> None:
    def broken() -> str:
        raise OSError("no such disk")

    errors: list[Any] = []
    hub.subscribe("channel:error", errors.append)
    place = Place()
    async with Channels(hub, Channel("broken", after=broken), place.channel()) as channels:
        assert isinstance(channels.attached["broken"].error, OSError)
        assert channels.attached["keeper"].status == "running"
    assert [(each.channel, each.during) for each in errors] == [("broken", "after")]


async def test_a_channel_that_is_stopped_while_it_reads_its_place_ends(hub: Hub) -> None:
    async def slow() -> str:
        await anyio.sleep(1)
        return START

    channels = Channels(hub, Channel("slow", {"shop:*": print}, after=slow), grace=60)
    async with anyio.create_task_group() as group:
        group.start_soon(channels.start)
        await anyio.sleep(0.5)
        with anyio.fail_after(10):
            await channels.stop()


def test_what_gives_no_place_is_refused() -> None:
    with pytest.raises(DefinitionError, match="after: expected a function"):
        Channel("bad", after="start")  # type: ignore[arg-type]


@pytest.mark.spec("K-01", "H-06")
async def test_an_answer_that_was_given_while_nobody_was_attached_is_delivered_after_a_restart(
    ports: Ports, tmp_path: Path
) -> None:
    agent = model_agent(echo_model(), name="echo")
    place = Place()
    posted: list[str] = []

    def post(event: AgentText, context: ChannelContext) -> None:
        posted.append(event.text)
        place.kept = context.cursor

    chat = Channel("chat", {"agent:text": post}, after=lambda: place.kept, lossless=True)
    for number in range(3):
        store = sqlite_store(tmp_path, ports=ports, mirror=False)
        async with Runtime([agent], store=store, ports=ports) as rt:
            if number:  # Answered before the channel is attached.
                run = await rt.start("echo", f"missed {number}", session_key="chat_ada")
                await run.result()
            async with Channels(rt.hub, chat):
                run = await rt.start("echo", f"heard {number}", session_key="chat_ada")
                await run.result()
    words = [text.removeprefix("echo: ") for text in posted]
    assert len(words) == 5, words
    for said_, wanted in zip(words, ("heard 0", "missed 1", "heard 1", "missed 2", "heard 2"),
                             strict=True):  # fmt: skip
        assert wanted in said_
