"""When the older messages of a side become a summary.

    the last step has filled a share of the window, or somebody asked for it
      ─► Summarize ─► the side's model ─► session:compaction, with a summary or with an error

Rules
-----
* It is due where the model would be asked, or where the run would park: never while a call is open.
  What has been taken and not answered is behind the boundary.  Messages that arrive meanwhile wait,
  as during a model call.
* By itself it is due for the side at work.  After a summary that did not help (the first step was
  over the limit again), and after a failure, it is tried again ``PAUSE`` steps later at the
  earliest.
* It costs nothing where nobody wants it and no window is known.
"""

from typing import Final

from msgspec import Struct

from hubbub.agents.model import ModelMessage
from hubbub.agents.state.compactions import NO_COMPACTIONS, boundary_of, tokens_shown
from hubbub.agents.state.thread import Thread

__all__ = [
    "NOTHING_TO_SUMMARISE", "NO_LIMIT", "ContextLimit", "Summarize", "summary_due",
    "tokens_after_summary", "view_of",
]  # fmt: skip

PAUSE: Final = 10

NOTHING_TO_SUMMARISE: Final = "there is nothing to summarise yet"


class ContextLimit(Struct, frozen=True, gc=False):
    """Beyond how many tokens of a step a side's older messages become a summary; 0 for none."""

    over: int = 0
    keep: float = 0.25


NO_LIMIT: Final = ContextLimit()


class Summarize(Struct, frozen=True, gc=False):
    """Have the first ``covers`` messages of a side's view summarised by its model, after ``step``.

    0 where there is nothing to summarise, which is to be said.
    """

    side: str
    step: int
    covers: int


def view_of(thread: Thread, side: str) -> tuple[ModelMessage, ...]:
    """The conversation as a side sees it."""
    return thread.transcript if side == "side_a" else thread.transcript_b


def summary_due(thread: Thread, limit: ContextLimit) -> Summarize | None:
    """The summary that is to be made now, where no call is open."""
    if thread.compactions.wanted:
        side = thread.compactions.wanted[0]
        return Summarize(side, thread.step, boundary_of(view_of(thread, side), limit.keep))
    if not thread.in_session or not _is_over(thread, limit) or _is_pausing(thread, limit):
        return None
    covers = boundary_of(thread.view, limit.keep)
    return Summarize(thread.side, thread.step, covers) if covers else None


def tokens_after_summary(thread: Thread, limit: ContextLimit) -> int:
    """The tokens of the first step behind the last summary, where that was still over the limit.

    0 where the summary helped, and where none was made.
    """
    if thread.compactions is NO_COMPACTIONS:
        return 0
    first = thread.compactions.of(thread.side).first
    tokens = 0 if first is None else tokens_shown(first)
    return tokens if tokens > limit.over else 0


def _is_over(thread: Thread, limit: ContextLimit) -> bool:
    """Whether the last step of the side at work has filled more of the window than it may."""
    seen = thread.seen if thread.side == "side_a" else thread.seen_b
    return 0 < limit.over < tokens_shown(seen)


def _is_pausing(thread: Thread, limit: ContextLimit) -> bool:
    if thread.compactions is NO_COMPACTIONS:
        return False
    last = thread.compactions.of(thread.side)
    has_helped = last.first is not None and not tokens_after_summary(thread, limit)
    if not (last.has_failed or last.number) or (has_helped and not last.has_failed):
        return False
    return thread.step < last.tried + PAUSE
