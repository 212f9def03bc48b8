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

from collections.abc import Iterable
from typing import TypeAlias

from msgspec.structs import replace

from hubbub.agents.model import AnsweredCall, AssistantMessage, ModelMessage, UserMessage
from hubbub.agents.state.area import (
    attachment_note,
    find_files,
    marked,
    parts_of_files,
    place_files,
    with_files,
)
from hubbub.agents.state.thread import Thread
from hubbub.hub.events import ContentPart, FileRef, HistoryMessage, SessionResult

__all__ = [
    "GIVEN_STEP", "NO_MESSAGE", "before_it_began", "hear", "other_side", "placed_files",
    "received", "said", "tell", "with_unseen",
]  # fmt: skip

Parts: TypeAlias = tuple[ContentPart, ...]

GIVEN_STEP = 0
"""The number of the step that the calls of a history are of; a run's own begin with 1."""

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


def before_it_began(history: Iterable[HistoryMessage]) -> tuple[ModelMessage, ...]:
    """A history that a run was opened with, as its model sees it."""
    found: list[ModelMessage] = []
    number = 0
    for message in history:
        if message.role != "assistant":
            found.append(UserMessage(content=message.content, parts=message.parts))
            continue
        calls = tuple(
            [
                AnsweredCall(
                    id=f"call_{GIVEN_STEP}_{at}", name=call.name, arguments=call.arguments,
                    output=call.output, is_error=call.is_error,
                )
                for at, call in enumerate(message.calls, number)
            ]
        )  # fmt: skip
        number += len(calls)
        found.append(AssistantMessage(text=message.content, calls=calls, is_given=True))
    return tuple(found)


# ── what comes with words: files, which get names of the run's own, and parts for its model ──


def received(
    thread: Thread, files: tuple[FileRef, ...], named: tuple[str, ...], parts: Parts
) -> tuple[Thread, tuple[str, ...], Parts]:
    """The thread with these files, the notes about them, and all parts: files are, too, where
    their names say that a model may read them.  A file that is not there is said to be missing."""
    if files:
        placed = place_files(thread.area, files)
        thread = replace(thread, area=with_files(thread.area, placed))
        named = (*named, *(ref.path for ref in placed))
    if named:
        parts = (*parts, *parts_of_files(find_files(thread.area, named)[0]))
    if parts and not thread.has_parts:
        thread = replace(thread, has_parts=True)
    return thread, attachment_note(marked(thread.area, named)), parts


def placed_files(thread: Thread, item: SessionResult) -> tuple[FileRef, ...]:
    """The files of a result under the names they get here."""
    return place_files(thread.area, item.files) if item.files else ()
