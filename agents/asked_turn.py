"""``AskedTurn``: which turn took a message, and how that ended.

    waits in the inbox ──► taken by a session ──► that session ends
                               │    ▲                 │
                a frame is pushed  it is popped   a frame's end: popped, or it waits for the user

It follows the events of a whole tree, in their order:

* The session that takes the message is the one whose end counts; in a conversation with a takeover
  frame that is the session of the frame on top.
* Where the session gives the conversation to a frame, the turn goes on there, and where a frame
  gives it back, in the session below.  So a turn is over when the conversation waits for the user.
* Frames of one parallel step lie beside each other: what one gives back may be the next one's,
  which has spoken already.  Then the turn is over with the frame that gave back; whoever sees that
  the conversation waits for the user says so.
* A session that is interrupted from below is over with the one below.
"""

from collections.abc import Callable, Iterable
from typing import Final

from hubbub.hub.events import (
    AgentComplete,
    AgentPark,
    AgentRestore,
    Ending,
    Event,
    InLane,
    SessionDropped,
    SessionEnd,
    SessionMessage,
    SessionPop,
    SessionPush,
    SessionStart,
    SessionTaken,
)

__all__ = ["TURN_TYPES", "AskedTurn"]

TURN_TYPES: Final = tuple(
    kind.type
    for kind in (
        AgentComplete, AgentPark, AgentRestore, SessionDropped, SessionEnd, SessionPop, SessionPush,
        SessionStart, SessionTaken,
    )
)  # fmt: skip
"""The events that it must see, of the whole tree."""


class AskedTurn:
    """The turn that takes one message of run ``run_id``.

    ``see`` events first, then ``expect`` the message: what was seen before counts.
    """

    __slots__ = (
        "_at", "_early", "_ends", "_given_back", "_is_asked", "ending", "lost", "run_id",
    )  # fmt: skip

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.ending: Ending | None = None
        """How the turn ended; its ``run_id`` is that of the run which had the last word."""
        self.lost = ""
        """Why no turn will take the message."""
        self._is_asked: Callable[[InLane], bool] | None = None
        self._early: list[Event] = []
        self._at = ""
        """The run whose session is waited for, once one has taken the message."""
        self._ends: dict[str, Ending] = {}
        """How the sessions ended that have ended since, by run, while no other has begun."""
        self._given_back: Ending | None = None
        """How the frame ended that has given the conversation back, while no other has it."""

    @property
    def is_over(self) -> bool:
        """Whether it is known what became of the message."""
        return self.ending is not None or self.lost != ""

    @property
    def is_given_back(self) -> bool:
        """Whether a frame has given the conversation back, and nothing has come of that yet."""
        return self._given_back is not None and not self.is_over

    def rest(self) -> None:
        """Say that the conversation, which ``is_given_back``, waits for the user."""
        if self.is_given_back:
            self.ending = self._given_back

    def expect(self, is_asked: Callable[[InLane], bool], before: Iterable[Event] = ()) -> None:
        """Say which item of the run's inbox it is, and what had happened ``before`` it was known.

        What is among ``before`` and has been seen as well counts once.
        """
        self._is_asked = is_asked
        known = set()
        for event in before:
            known.add(event.id)
            self.see(event)
        early, self._early = self._early, []
        for event in early:
            if event.id not in known:
                self.see(event)

    def see(self, event: Event) -> None:
        """Take note of the next event."""
        if self._is_asked is None:
            self._early.append(event)
        elif self.is_over:
            return
        elif self._at:
            self._follow(event)
        else:
            self._look_for(event, self._is_asked)

    def _look_for(self, event: Event, is_asked: Callable[[InLane], bool]) -> None:
        if isinstance(event, SessionTaken):
            if any(item.run_id == self.run_id and is_asked(item) for item in event.items):
                self._at = event.run_id
        elif isinstance(event, SessionDropped):
            if any(item.run_id == self.run_id and is_asked(item) for item in event.items):
                self.lost = event.reason or "dropped"
        elif isinstance(event, AgentComplete) and event.run_id == self.run_id:
            self.lost = "terminated" if event.outcome == "terminated" else "ended"

    def _follow(self, event: Event) -> None:
        if isinstance(event, Ending):
            self._ended(event)
        elif event.run_id == self._at and (held := self._ends.get(self._at)) is not None:
            self.ending = held  # The frame was not popped: it waits for the user.
        elif isinstance(event, SessionPush) and event.run_id == self._at:
            self._at, self._given_back = event.frame_run_id, None
        elif isinstance(event, SessionPop) and event.frame_run_id == self._at:
            self._at = event.run_id
        elif isinstance(event, SessionStart):
            self._ends.pop(event.run_id, None)
        elif self._given_back is not None and _is_heard_elsewhere(event, self.run_id, self._at):
            self.ending = self._given_back  # A frame beside it had the conversation by then.

    def _ended(self, event: Ending) -> None:
        if event.run_id == self.run_id:  # With its session ends that of any frame above it.
            self.ending = event
            return
        self._ends[event.run_id] = event
        if event.run_id != self._at or isinstance(event, SessionEnd):
            return  # What the run at work does next says whether it is popped.
        end: Ending | None = event
        while isinstance(end, AgentComplete):
            self._at = end.parent_run_id or self.run_id
            end = self._ends.pop(self._at, None)
        self.ending = end
        if end is None:
            self._given_back = event


def _is_heard_elsewhere(event: Event, run_id: str, at: str) -> bool:
    """Whether another run than ``at`` has taken what was said to ``run_id``."""
    return (
        isinstance(event, SessionTaken)
        and event.run_id != at
        and any(item.run_id == run_id and isinstance(item, SessionMessage) for item in event.items)
    )
