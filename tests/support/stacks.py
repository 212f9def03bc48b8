"""A conversation with takeover frames in a store, made by hand: what the tests of stores need."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from hubbub import Hub
from hubbub.hub import events as e
from hubbub.hub.events import Event, InLane
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Commit, Journal
from hubbub.runtime.stores.open import sqlite_store
from support.shared_stores import owner_of

__all__ = ["FRAME", "MAIN", "OVER", "Stack", "fill_stack", "open_stack"]

MAIN, FRAME, OVER = "main-1", "frame-1", "frame-2"
"""The conversation's root; the frame on top; one above that, which is over."""


class Stack:
    """A hub, and pens for the runs of one conversation."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.lanes: dict[str, OwnLane] = {}

    async def begin(self, run_id: str, above: str | None = None) -> None:
        """Open a run and have it take its opening; ``above`` waits for it from now on."""
        root = MAIN if above else run_id
        opening = e.SessionOpen(
            open_agent=run_id, run_id=run_id, root_run_id=root if above else "",
            parent_run_id=above, session_key="" if above else "chat", frame=2 if above else 0,
        )  # fmt: skip
        if above is None:
            await self.hub.pipeline.open(opening)
        else:
            push = e.SessionPush(frame_run_id=run_id, frame_agent=run_id, call_id="1.0")
            delivery = self.hub.addressing.delivery(opening, to=run_id)
            child = e.AgentChild(child_run_id=run_id, child_agent=run_id, takeover=True)
            self.write(above, child, push, deliveries=(delivery,), status="waiting")
        self.lanes[run_id] = OwnLane(
            self.hub.pipeline, run_id=run_id, root_run_id=root, parent_run_id=above, agent=run_id
        )
        (item,) = await self.waiting(run_id)
        start = e.AgentStart(name=run_id), e.SessionStart(session=1, side="side_a")
        self.take(run_id, item, *start)

    def write(self, run_id: str, *events: Event, **options: object) -> Commit:
        return self.lanes[run_id].append(events, **options)  # type: ignore[arg-type]

    def take(self, run_id: str, item: InLane, *before: Event) -> Commit:
        """A run takes an item, of its own inbox or lent."""
        events = (*before, e.SessionTaken(items=(item,)))
        if item.run_id == run_id:
            return self.write(run_id, *events, taken=(item.seq,), status="parked")
        return self.write(run_id, *events, lent=((item.run_id, item.seq),), status="parked")

    def end(self, run_id: str, to: str, **options: object) -> Commit:
        """A frame is popped: its result and its messages go to the run below it."""
        result = e.SessionResult(child_run_id=run_id, content="found", final=True)
        delivery = self.hub.addressing.delivery(result, to=to)
        ending = e.AgentComplete(success=True)
        return self.write(
            run_id, ending, status="ended", leave_to=to, deliveries=(delivery,), **options
        )

    async def waiting(self, run_id: str) -> Sequence[InLane]:
        await self.hub.journal.flush()
        loaded = await self.hub.journal.load(run_id)
        assert loaded is not None
        return loaded.waiting

    async def texts(self, run_id: str) -> list[str]:
        """What waits for a run, in words."""
        return [getattr(x, "content", x.type) for x in await self.waiting(run_id)]


@asynccontextmanager
async def open_stack(journal: Journal, ports: Ports) -> AsyncIterator[Stack]:
    """A conversation whose root waits for one frame."""
    async with owner_of(journal, ports, MAIN, FRAME, OVER) as hub:
        stack = Stack(hub)
        await stack.begin(MAIN)
        await stack.begin(FRAME, above=MAIN)
        await hub.journal.flush()
        yield stack


async def fill_stack(path: Path, ports: Ports) -> None:
    """Make a store: of three messages to ``MAIN`` its frame has taken the second, and ``OVER``
    has left two to ``FRAME``, which has taken the first of them."""
    async with open_stack(sqlite_store(path, ports=ports, mirror=False), ports) as stack:
        for content in ("one", "two", "three"):
            await stack.hub.send_to_run(MAIN, content)
        _, two, _ = await stack.waiting(MAIN)
        stack.take(FRAME, two)
        await stack.begin(OVER, above=FRAME)
        for content in ("left", "over"):
            await stack.hub.send_to_run(OVER, content)
        stack.end(OVER, to=FRAME)
        left, *_ = await stack.waiting(FRAME)
        stack.take(FRAME, left)
        await stack.hub.journal.flush()
