"""What a model refuses ends the turn that asked, and no later one.

    the provider refuses a request ─► the turn ends, and says what is left out from now on
                                   ─► the next request: a few words stand in its place

Rules
-----
* An answer shows that all of its request was accepted.  So only what stands behind the model's last
  own message can be blamed, and the results of the calls in that; where nothing is new, nobody is.
* Images, documents and recordings are blamed first, and the words that they came with stay; unless
  a request is too long, and words alone are longer than what such a part counts for.
* Of words all are blamed: nothing says which of them.  Where a request is too long it is the long
  ones: what has less than a tenth of the longest stays.
* Where a request is too long, and most of it had been accepted before, its older messages become a
  summary, if the prompt has compaction and no summary was tried since the last step.  Nobody is
  blamed then.
* What is left out stays on record, in its place are words; so places and pairs of calls and results
  are as before.  It follows from ``session:end`` alone, in every process that reads it.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.model import AnsweredCall, AssistantMessage, ModelMessage, UserMessage
from hubbub.agents.retry import Refused
from hubbub.agents.state.compactions import (
    PART,
    Compactions,
    boundary_of,
    is_own,
    length_of,
    wanted_by,
)
from hubbub.agents.state.thread import Thread
from hubbub.hub.events import ContentPart, LeftOut, SessionEnd
from hubbub.hub.near_misses import shown

__all__ = ["blamed_by", "summary_helps", "with_refusal", "without"]

SHARE: Final = 0.1
"""Of the longest: what is shorter is not blamed beside it for a request that is too long."""

FEW: Final = 3
MAX_WORDS: Final = 100
"""Parts that are named, and the most characters of each."""

PLACEHOLDER: Final = "(Left out here: {}. The model's provider refused it.)"


class _New(Struct, frozen=True):
    """A message, or a call's result, that no answer has followed yet."""

    place: int
    call: int | None
    kind: str
    length: int
    parts: tuple[ContentPart, ...] = ()

    def blamed(self, *, only_parts: bool) -> LeftOut:
        if only_parts:
            what = f"{_words_of(self.parts)}, of {self.kind}"
        else:
            what = f"{self.kind}, {self.length:,} characters"
        return LeftOut(place=self.place, call=self.call, only_parts=only_parts, what=what)


def blamed_by(view: Sequence[ModelMessage], refused: Refused) -> tuple[LeftOut, ...]:
    """What is left out of a side's view after its request was refused; nothing where nothing in it
    is new."""
    new = _new_in(view)
    longest = max([each.length for each in new], default=0)
    with_parts = [each for each in new if each.parts]
    if with_parts and not (refused == "length" and longest > PART):
        return tuple([each.blamed(only_parts=True) for each in with_parts])
    least = SHARE * longest if refused == "length" else 0
    return tuple([each.blamed(only_parts=False) for each in new if each.length >= least])


def summary_helps(
    view: Sequence[ModelMessage], side: str, step: int, compactions: Compactions, keep: float
) -> bool:
    """Whether a request that is too long is so for its older messages, and these can become a
    summary that has not been tried since step ``step``."""
    last = compactions.of(side)
    if (last.number or last.has_failed) and last.tried == step:
        return False
    new = sum([each.length + PART * len(each.parts) for each in _new_in(view)])
    return 2 * new < sum(map(length_of, view)) and boundary_of(view, keep) > 0


def with_refusal(thread: Thread, event: SessionEnd) -> Thread:
    """The thread after the request of its side at work was refused."""
    if event.summarise:
        return replace(thread, compactions=wanted_by(thread.compactions, thread.side))
    view = without(thread.view, event.left_out)
    if thread.side == "side_a":
        return replace(thread, transcript=view)
    return replace(thread, transcript_b=view)


def without(
    view: tuple[ModelMessage, ...], left_out: Iterable[LeftOut]
) -> tuple[ModelMessage, ...]:
    """A side's view with words in the place of what is left out."""
    changed = list(view)
    for each in left_out:
        if each.place < len(changed):
            changed[each.place] = _without(changed[each.place], each)
    return tuple(changed)


# ── what is new ──────────────────────────────────────────────────────────────────────────────


def _new_in(view: Sequence[ModelMessage]) -> list[_New]:
    first = len(view)
    while first and not is_own(view[first - 1]):
        first -= 1
    new: list[_New] = []
    if first:
        asked = view[first - 1]
        assert isinstance(asked, AssistantMessage)
        new += [_of_call(first - 1, at, call) for at, call in enumerate(asked.calls)
                if not call.is_left_out]  # fmt: skip
    for place in range(first, len(view)):
        message = view[place]
        if not message.is_left_out:
            new.append(_of_message(place, message))
    return new


def _of_call(place: int, at: int, call: AnsweredCall) -> _New:
    length = len(call.output) + sum(map(len, call.notes))
    return _New(place, at, f"the result of {shown(call.name)}", length, call.parts)


def _of_message(place: int, message: ModelMessage) -> _New:
    if isinstance(message, AssistantMessage):
        return _New(place, None, "a message", length_of(message))
    kind = "a message" if message.role == "user" else f"a {shown(message.role)} message"
    length = length_of(message) - PART * len(message.parts)
    return _New(place, None, kind, length, message.parts)


def _words_of(parts: Sequence[ContentPart]) -> str:
    """A few of them in words that are no longer than a line."""
    said = [part.words[:MAX_WORDS] for part in parts[:FEW]]
    if len(parts) > FEW:
        said.append(f"{len(parts) - FEW} more")
    return ", ".join(said)


# ── what stands in its place ─────────────────────────────────────────────────────────────────


def _without(message: ModelMessage, left_out: LeftOut) -> ModelMessage:
    words = PLACEHOLDER.format(left_out.what)
    if isinstance(message, UserMessage):
        if left_out.only_parts:
            return replace(message, notes=(*message.notes, words), parts=())
        return UserMessage(content=words, role=message.role, is_left_out=True)
    if left_out.call is None:
        return replace(message, text=words, thinking=(), calls=(), is_left_out=True)
    calls = list(message.calls)
    if left_out.call < len(calls):
        calls[left_out.call] = _without_result(calls[left_out.call], left_out, words)
    return replace(message, calls=tuple(calls))


def _without_result(call: AnsweredCall, left_out: LeftOut, words: str) -> AnsweredCall:
    if left_out.only_parts:
        return replace(call, notes=(*call.notes, words), parts=())
    return replace(call, output=words, notes=(), parts=(), is_left_out=True)
