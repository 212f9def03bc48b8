"""Who sees what in a conversation of two sides.

                       on the speaker's own side      on the other side
    ─────────────────  ─────────────────────────────  ─────────────────────────────────────────
    a model step       ``assistant``, with its calls  its text as ``user``; nothing of its calls
                       and their results
    said to a side     ``user``                       its own words: ``assistant``, as given
    a child's result   ``user``, to the side that     nothing
                       started the child

An ``ai_human`` agent has one such view, side A's: the person is its other side.
"""

from msgspec.structs import replace

from hubbub.agents.model import AssistantMessage, UserMessage
from hubbub.agents.state.thread import Thread

__all__ = ["NO_MESSAGE", "hear", "other_side", "said", "tell", "with_unseen"]

NO_MESSAGE = "(no message)"
"""Handed over by a turn that ends with nothing for the other side."""


def other_side(side: str) -> str:
    return "side_b" if side == "side_a" else "side_a"


def said(thread: Thread, step: AssistantMessage) -> Thread:
    """The thread after a step of the side at work."""
    if not thread.two_sided:
        return replace(thread, transcript=(*thread.transcript, step))
    mine, yours = _views(thread, thread.side)
    mine = (*mine, step)
    if step.text:
        yours = (*yours, UserMessage(content=step.text))
    return _with_views(thread, thread.side, mine, yours)


def hear(thread: Thread, message: UserMessage, to: str = "side_a") -> Thread:
    """The thread after something was said to one of its sides."""
    if not thread.two_sided:
        return replace(thread, transcript=(*thread.transcript, message))
    theirs, others = _views(thread, to)
    given = AssistantMessage(text=message.content, is_given=True)
    return _with_views(thread, to, (*theirs, message), (*others, given))


def tell(thread: Thread, message: UserMessage, to: str) -> Thread:
    """The thread after something was said to one side alone."""
    if not thread.two_sided:
        return replace(thread, transcript=(*thread.transcript, message))
    theirs, others = _views(thread, to)
    return _with_views(thread, to, (*theirs, message), others)


def with_unseen(thread: Thread, side: str) -> Thread:
    """The thread after something was said to a side, on which it has yet to take a step."""
    return thread if side in thread.unseen else replace(thread, unseen=(*thread.unseen, side))


def _views(thread: Thread, side: str) -> tuple[tuple, tuple]:  # type: ignore[type-arg]
    if side == "side_a":
        return thread.transcript, thread.transcript_b
    return thread.transcript_b, thread.transcript


def _with_views(thread: Thread, side: str, its: tuple, others: tuple) -> Thread:  # type: ignore[type-arg]
    if side == "side_a":
        return replace(thread, transcript=its, transcript_b=others)
    return replace(thread, transcript=others, transcript_b=its)
