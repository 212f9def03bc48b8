"""Answers that are not of the form they are to be, and what the model reads of it.

One that was given by a call has its result, which says why; to one that was a text the reason is
said, in the transcript, so that later requests of the side begin with it, too.
"""

from typing import Final

from msgspec.structs import replace

from hubbub.agents.model import UserMessage
from hubbub.agents.state.thread import Thread
from hubbub.agents.state.transcript import tell
from hubbub.hub.events import AgentRetry

__all__ = ["MISFIT", "misfits_of_turn", "with_misfit"]

MISFIT: Final = "output"
"""The kind of a retry by which the model is told that its answer does not fit."""


def misfits_of_turn(thread: Thread) -> int:
    """How many answers of this turn have not fitted."""
    turn, count = thread.misfits
    return count if turn == thread.turn else 0


def with_misfit(thread: Thread, event: AgentRetry) -> Thread:
    """The thread when the model has been told."""
    thread = replace(thread, misfits=(thread.turn, misfits_of_turn(thread) + 1))
    step = thread.closed
    if step is not None and step.calls:
        return thread
    return tell(thread, UserMessage(content=event.error, role="system"), thread.side)
