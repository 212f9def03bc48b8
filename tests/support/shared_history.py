"""What must hold of a store that several workers were at work on, whatever happened to them."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from hubbub import Event
from hubbub.hub.events import AgentComplete, SessionMessage, SessionOpen, SessionTaken
from hubbub.hub.store.journal import Selection
from hubbub.hub.store.shared.memory import SharedMemory
from hubbub.runtime.simulation.invariants.sharing import two_owners
from support.shared_stores import SharedPlace
from support.workers import Worker

__all__ = ["Audited", "check_history"]


class Audited(SharedMemory):
    """A shared store that knows who has written what."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.writers = []


async def check_history(
    place: SharedPlace, members: Sequence[Worker], sent: set[str], coded: Collection[str] = ()
) -> None:
    """``sent``: the keys of the messages that were accepted; ``coded``: agents that are code, which
    waits for messages in memory."""
    events, _ = await place.memory.kept.read(Selection(), limit=10**9)
    _check_lanes(events)
    _check_messages(events, sent)
    _check_subscribers(events, members)
    _check_owners(place)
    for info in await place.memory.kept.runs():
        is_idle = info.agent in coded or info.status in ("parked", "waiting")
        assert is_idle and not info.waiting, f"{info.run_id} still has something to do"


def _check_lanes(events: Sequence[Event]) -> None:
    last: Counter[tuple[str, str]] = Counter()
    over: set[str] = set()
    for event in events:
        lane = (event.run_id, event.lane)
        if event.lane != "hub":
            assert event.seq == last[lane] + 1, f"{lane} has {event.seq} after {last[lane]}"
        last[lane] = event.seq
        if event.lane == "own":
            assert event.run_id not in over, f"{event.run_id} goes on after its end"
        if isinstance(event, AgentComplete):
            over.add(event.run_id)


def _check_messages(events: Sequence[Event], sent: set[str]) -> None:
    taken: Counter[str] = Counter()
    for event in events:
        if isinstance(event, SessionTaken):
            said = (x.message if isinstance(x, SessionOpen) else x for x in event.items)
            taken.update(x.key for x in said if isinstance(x, SessionMessage) and x.key)
    assert max(taken.values(), default=1) == 1, "a message was taken twice"
    assert sent <= taken.keys(), f"accepted and never taken: {sorted(sent - taken.keys())}"


def _check_subscribers(events: Sequence[Event], members: Sequence[Worker]) -> None:
    stored = [(event.run_id, event.lane, event.seq) for event in events]
    for member in members:
        heard = member.durable
        if heard:
            first = stored.index(heard[0])
            assert heard == stored[first : first + len(heard)], (
                f"worker {member.life.number} has heard another order than the store's"
            )
        if not member.is_over:
            assert heard == stored[len(stored) - len(heard) :], (
                f"worker {member.life.number} has not heard everything"
            )


def _check_owners(place: SharedPlace) -> None:
    assert place.memory.writers is not None
    assert not [*two_owners(place.memory.writers)]
