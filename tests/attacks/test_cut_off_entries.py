"""What is cancelled on its way in leaves nothing behind: no listener, no name, no task."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import pytest

from hubbub import Hub
from hubbub.channels import Channel, ChannelContext, Channels
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Journal

pytestmark = [pytest.mark.anyio, pytest.mark.spec("K-01")]

Entry = Callable[[Channels, Callable[[str], Channel]], Awaitable[object]]


async def enter(channels: Channels, slow: Callable[[str], Channel]) -> None:
    async with channels:
        raise AssertionError("it was entered")


async def start(channels: Channels, slow: Callable[[str], Channel]) -> None:
    await channels.start()


async def add(channels: Channels, slow: Callable[[str], Channel]) -> None:
    await channels.remove("first")
    await channels.remove("second")
    await channels.start()
    await channels.add(slow("first"))
    await channels.add(slow("second"))


ENTRIES: Final[tuple[Entry, ...]] = (enter, start, add)


@pytest.mark.parametrize("after", [0, 0.5, 1.5, 2.5])
@pytest.mark.parametrize("entry", ENTRIES)
async def test_channels_that_are_cut_off_on_their_way_in_are_detached(
    entry: Entry, after: float, journal: Journal, ports: Ports
) -> None:
    done: list[str] = []
    heard: list[str] = []

    def slow(name: str) -> Channel:
        async def begin(context: ChannelContext) -> None:
            await anyio.sleep(1 if name == "first" else 3)

        def hear(event: Any, context: ChannelContext) -> None:
            heard.append(name)

        return Channel(
            name, {"test:*": hear}, on_start=begin, on_complete=lambda _: done.append(name)
        )

    async with Hub(journal=journal, ports=ports) as hub:
        tasks = len(anyio.get_running_tasks())
        channels = Channels(hub, slow("first"), slow("second"))
        with anyio.move_on_after(after) as scope:
            await entry(channels, slow)
        assert scope.cancelled_caught
        if entry is add and after > 1:  # The first was in already, and stays.
            assert [*channels.attached] == ["first"]
            await channels.stop()
        assert (dict(channels.attached), hub.statistics().subscribers) == ({}, 0)
        await anyio.sleep(10)
        assert len(anyio.get_running_tasks()) == tasks
        assert done == (["first"] if after > 1 else [])
        # Their names are free, and they can be entered again.
        async with Channels(hub, slow("first"), slow("second")):
            assert hub.statistics().subscribers == 2
