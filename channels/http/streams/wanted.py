"""What a client asks for, and the stream of the hub that has it.

no id              everything
one run, one tree  the hub selects
several of either  the hub gives everything, and what is of none of them is left out here
a run's subtree    the hub gives the tree, and what is not below the run is left out here
"""

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeAlias

from msgspec import Struct

from hubbub.channels.http.streams.frames import StreamLive
from hubbub.channels.http.streams.positions import position_of
from hubbub.channels.http.wire.problems import Refusal
from hubbub.hub.delivery.patterns import Patterns
from hubbub.hub.delivery.stream import EventStream
from hubbub.hub.errors import BadValue
from hubbub.hub.events import AgentComplete, AgentStart, Event, HubGap
from hubbub.hub.hub import Hub

__all__ = ["RunWanted", "Wanted", "WantedEvents", "patterns"]

Shows: TypeAlias = Callable[[Event], bool]

_ALWAYS: Final = frozenset((HubGap, StreamLive))
"""What is about the stream itself."""


def patterns(types: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns of a list, each of which may be a list with commas; none: everything.

    Raises ``Refusal`` for one that would be the library's and that no event can have, and
    ``BadPattern`` for what is none.
    """
    found = tuple(part.strip() for each in types for part in each.split(",") if part.strip())
    for part in Patterns(found or "*").unmatched:
        raise Refusal("invalid-value", f"types: no event has a type such as {part[:200]!r}")
    return found or ("*",)


class WantedEvents:
    """A stream of the hub, and what of it is shown.  ``async with`` ends it."""

    __slots__ = ("is_new", "shows", "stream")

    def __init__(self, stream: EventStream[Event], after: str | None) -> None:
        self.stream = stream
        self.is_new = after is None
        """Whether it begins now, and not at a position that the client has."""
        self.shows: Shows | None = None
        """Whether an event is one of those asked for; ``None``: all are."""

    @property
    def position(self) -> str:
        """Where it continues."""
        return position_of(self.stream.cursor)

    async def take(self) -> list[Event] | None:
        """Wait for events, and take what is buffered then; ``None`` at the end."""
        events = await self.stream.take()
        if not events:
            return None
        shows = self.shows
        if shows is None:
            return events
        return [event for event in events if event.__class__ in _ALWAYS or shows(event)]

    def mark_live(self) -> None:
        """Say once when everything that was on record has been given."""
        self.stream.mark_live(lambda cursor: StreamLive(cursor=cursor))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stream.__aexit__(exc_type, exc, traceback)


class Wanted(Struct, frozen=True, kw_only=True):
    """Events of these types, of any of these runs and trees; without either, of all."""

    types: tuple[str, ...] = ("*",)
    run_ids: tuple[str, ...] = ()
    root_run_ids: tuple[str, ...] = ()
    after: str | None = None

    def listen(self, hub: Hub) -> WantedEvents:
        """Begin to listen.  Raises what ``hub.subscribe`` raises, and ``StoreFailed``."""
        hub.check_store()
        is_one = len(self.run_ids) + len(self.root_run_ids) == 1
        stream = hub.subscribe(
            self.types,
            run_id=self.run_ids[0] if is_one and self.run_ids else None,
            root_run_id=self.root_run_ids[0] if is_one and self.root_run_ids else None,
            after=self.after, lossless=True, partial=True,
        )  # fmt: skip
        listening = WantedEvents(stream, self.after)
        if not is_one and (self.run_ids or self.root_run_ids):
            listening.shows = _of_any(frozenset(self.run_ids), frozenset(self.root_run_ids))
        return listening


class RunWanted(Struct, frozen=True, kw_only=True):
    """Events of these types of one run, until it ends; with ``tree`` also of all below it."""

    run_id: str
    root_run_id: str
    types: tuple[str, ...] = ("*",)
    after: str | None = None
    tree: bool = False

    def listen(self, hub: Hub) -> WantedEvents:
        """Begin to listen.  Raises what ``hub.subscribe`` raises, and ``StoreFailed``."""
        hub.check_store()
        run_id = self.run_id

        def is_end(event: Event) -> bool:
            return (
                isinstance(event, AgentComplete) and event.run_id == run_id and event.lane == "own"
            )

        stream = hub.subscribe_until(
            self.types, is_end, (AgentComplete,), run_id=None if self.tree else run_id,
            root_run_id=self.root_run_id if self.tree else None, after=self.after, lossless=True,
            partial=True,
        )  # fmt: skip
        return WantedEvents(stream, self.after)

    async def shown(self, hub: Hub) -> Shows | None:
        """What of the tree's events is the run's or below it; ``None``: all."""
        if not self.tree or self.run_id == self.root_run_id:
            return None
        shows = _below(self.run_id)
        for started in await hub.read(root_run_id=self.root_run_id, types=AgentStart.type):
            shows(started)
        return shows

    async def is_over(self, hub: Hub) -> bool:
        """Whether the run has ended, and its end is not behind the position asked for; or is kept
        no longer."""
        end = await hub.read(self.run_id, types=AgentComplete.type, limit=1)
        if not end:
            return not await hub.read(self.run_id, limit=1)
        if self.after is None:
            return True
        try:
            return not await hub.read(
                self.run_id, after=self.after, types=AgentComplete.type, limit=1
            )
        except BadValue:  # No position of this store: the stream says so, and begins anew.
            return False


def _of_any(run_ids: frozenset[str], root_run_ids: frozenset[str]) -> Shows:
    return lambda event: event.run_id in run_ids or event.root_run_id in root_run_ids


def _below(run_id: str) -> Shows:
    """Whether an event is of a run or of one below it.

    What a run says names its parent, and no run says anything before its parent has.
    """
    below = {run_id}

    def shows(event: Event) -> bool:
        if event.run_id in below:
            return True
        if event.parent_run_id is None or event.parent_run_id not in below:
            return False
        below.add(event.run_id)
        return True

    return shows
