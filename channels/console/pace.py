"""``Pace``: when the answer of a run that is one long session counts as finished.

A model's answer is finished when its session has ended.  A code agent's run is one session, so
there it counts as finished when the agent has said something, has no call open and has been quiet
for a while.  This decides over the prompt and over the pace of a pipe, never over what is sent or
shown.
"""

from typing import Final, Literal, TypeAlias

from hubbub.hub import events as e
from hubbub.hub.events import Event

__all__ = ["QUIET", "Pace", "Phase"]

QUIET: Final = 0.25
"""Seconds of silence after which a code agent that has spoken counts as waiting."""

Phase: TypeAlias = Literal["working", "perhaps", "resting"]


class Pace:
    """What one run is at, as far as one can know; ``perhaps`` rests if it stays quiet."""

    __slots__ = ("_open_calls", "phase")

    def __init__(self) -> None:
        self.phase: Phase = "working"
        self._open_calls: set[str] = set()

    def stayed_quiet(self) -> None:
        """Nothing has happened for ``QUIET`` seconds."""
        if self.phase == "perhaps":
            self.phase = "resting"

    def follow(self, event: Event) -> None:
        """Note what an event of the run says about it."""
        if isinstance(event, e.AgentTextDelta | e.AgentThinkingDelta) or (
            # Taking says nothing: a code agent takes a message when it asks for the next.
            event.lane == "own" and not isinstance(event, e.SessionTaken)
        ):
            self.phase = "working"
        match event:
            case e.SessionEnd() | e.AgentComplete():
                self._open_calls.clear()
            case e.AgentToolStart():
                self._open_calls.add(event.call_id)
            case e.AgentToolComplete():
                self._open_calls.discard(event.call_id)
            case e.AgentText(step=0) | e.AgentStep(calls=()) if not self._open_calls:
                self.phase = "perhaps"
