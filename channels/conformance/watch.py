"""``HubWatch``: what a hub has seen of a conversation, to be compared with what was shown."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio

from hubbub.channels.conformance.driver import ANN, ChannelDriver, ChannelKit
from hubbub.channels.conformance.partner_agent import PARTNER
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.hub import Hub

__all__ = ["HubWatch", "eventually", "shows", "watched"]

PATIENCE: Final = 20.0
"""Seconds within which a channel must have done what it does."""

EVERY: Final = 0.02


class HubWatch:
    """All events of a hub, in order."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.events: list[Event] = []
        hub.subscribe("*", self.events.append)

    @property
    def conversations(self) -> list[e.AgentStart]:
        """The runs of the partner, in the order in which they began."""
        return [
            each
            for each in self.events
            if isinstance(each, e.AgentStart) and each.agent == PARTNER and not each.parent_run_id
        ]

    @property
    def prompts(self) -> list[e.SessionPrompt]:
        """The questions that were asked."""
        return [each for each in self.events if isinstance(each, e.SessionPrompt)]

    def is_over(self, run_id: str) -> bool:
        """Whether a run has ended."""
        return any(
            isinstance(each, e.AgentComplete) and each.run_id == run_id for each in self.events
        )

    async def only_run(self) -> e.AgentStart:
        """The one conversation that there must be."""
        await eventually(lambda: bool(self.conversations), "no run was started")
        found = self.conversations
        assert len(found) == 1, f"{len(found)} runs were started for one conversation"
        assert found[0].session_key, "the run was started without a session key"
        return found[0]


@asynccontextmanager
async def watched(kit: ChannelKit) -> AsyncIterator[HubWatch]:
    """A hub of its own, watched."""
    async with kit.open_hub() as hub:
        yield HubWatch(hub)


async def eventually(condition: Callable[[], bool], problem: str) -> None:
    """Wait until something holds; ``AssertionError`` with the problem where it does not."""
    with anyio.move_on_after(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(EVERY)
    assert condition(), problem


async def shows(driver: ChannelDriver, text: str, *, person: str = ANN, times: int = 1) -> None:
    """Wait until a person is shown ``text``; it must be there so often, and not more often."""
    await eventually(
        lambda: driver.shown(person).count(text) >= times,
        f"{person} was not shown {text!r}, but: {driver.shown(person)[-500:]!r}",
    )
    count = driver.shown(person).count(text)
    assert count == times, f"{person} was shown {text!r} {count} times"
