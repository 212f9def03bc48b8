"""``Following``: the events behind a question, from the journal and then live, to who tells them.

hub.subscribe(after=the item, partial) ──► batches ──► a teller: response frames, chat chunks
"""

from types import TracebackType
from typing import Final, Protocol, Self

import anyio

from hubbub.channels.http.openai.answers.question import ClientQuestion
from hubbub.channels.http.openai.answers.refusals import Refused
from hubbub.channels.http.openai.answers.turn import AgentTurn
from hubbub.hub.events import Event, HubGap, SessionMessage
from hubbub.hub.hub import Hub

__all__ = ["QUIET", "TYPES", "Following", "Teller", "recorded"]

TYPES: Final = (
    "agent:text", "agent:text:delta", "agent:thinking", "agent:thinking:delta", "agent:step",
    "agent:retry", "agent:restore", "agent:tool:start", "agent:tool:complete", "agent:child",
    "agent:park", "agent:complete", "session:message", "session:reply", "session:abort",
    "session:result", "session:timer", "session:cancel", "session:close", "session:terminate",
    "session:start", "session:taken", "session:dropped", "session:end", "session:push",
    "session:pop", "session:prompt", "session:prompt:end",
)  # fmt: skip
"""What a turn and its answer follow from."""

PING: Final = 15.0
"""Seconds of silence after which a client is sent a comment."""

QUIET: Final = 0.5
"""Seconds of silence after which a code agent that has answered counts as waiting."""

COMMENT: Final = b": waiting\n"
"""Keeps a connection open.  No blank line: some clients take what ends there for an event."""

PAGE: Final = 500
MAX_BATCH: Final = 200
"""Events that are told at once."""


class Teller(Protocol):
    """Makes of events what a client is sent."""

    @property
    def turn(self) -> AgentTurn:
        """The turn that it tells."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to tell."""
        ...

    def see(self, event: Event) -> list[bytes]:
        """What an event makes."""
        ...

    def settle(self) -> list[bytes]:
        """Nothing more is there for now."""
        ...

    def rested(self) -> list[bytes]:
        """A code agent has been quiet for a while."""
        ...


class Following:
    """Follows one question.  ``async with``; ``next`` until the teller is over."""

    __slots__ = ("_hub", "_question", "_stream", "_teller")

    def __init__(self, hub: Hub, question: ClientQuestion, teller: Teller) -> None:
        self._hub = hub
        self._question = question
        self._teller = teller
        self._stream = hub.subscribe(
            TYPES, root_run_id=question.run_id, after=_cursor_before(hub, question),
            lossless=True, partial=True,
        )  # fmt: skip

    async def next(self) -> list[bytes] | None:
        """What is told next, a comment after a while of silence; ``None`` when the hub closes.

        Raises ``StoreFailed`` and ``Refused``.
        """
        teller, stream = self._teller, self._stream
        is_resting = teller.turn.is_resting
        with anyio.move_on_after(QUIET if is_resting else PING) as scope:
            try:
                event = await anext(stream)
            except StopAsyncIteration:
                return None
        if scope.cancelled_caught:
            self._hub.check_store()
            return teller.rested() if is_resting else [COMMENT]
        found: list[bytes] = []
        for _ in range(MAX_BATCH):
            if isinstance(event, HubGap):
                raise Refused(404, "the record of this response is not kept any more")
            found += teller.see(event)
            if teller.is_over:
                return found
            if not stream.buffered:
                break
            event = await anext(stream)
        if not stream.buffered:
            found += teller.settle()
        return found

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stream.__aexit__(exc_type, exc, traceback)


async def recorded(hub: Hub, question: ClientQuestion, teller: Teller) -> None:
    """Have ``teller`` see what is on record, and no more."""
    after = _cursor_before(hub, question)
    last: Event | None = None
    while not teller.is_over:
        events = await hub.read(root_run_id=question.run_id, after=after, types=TYPES, limit=PAGE)
        for event in events:
            teller.see(event)
            last = event
        if len(events) < PAGE:
            break
        after = hub.cursor(events[-1])
    if not teller.is_over:
        teller.settle()
        turn = teller.turn
        # A time that is still to come was written before the clock was set back.
        since = abs(hub.ports.clock.now() - last.at) if last is not None else 0
        is_quiet = last is not None and since >= QUIET * 1_000_000
        if turn.is_resting and is_quiet:
            teller.rested()


def _cursor_before(hub: Hub, question: ClientQuestion) -> str:
    """The place behind the item."""
    place = SessionMessage(run_id=question.run_id, lane="in", seq=question.seq)
    return hub.cursor(place)
