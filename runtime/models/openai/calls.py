"""What single services ask of the calls in a history.  Pure.

* Gemini signs calls, with what it thought before them, and refuses them later without that.  The
  signature is kept as a thought, ``gemini:INDEX:TEXT``.  Calls of another model have none: in its
  place stands the word by which Gemini's documentation lets it be left out.
* Mistral's ids of calls have nine letters and digits: the number of the call in the request.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Raw, Struct
from msgspec.structs import replace

from hubbub.agents.model import Thinking
from hubbub.runtime.models.http.halves import UNREADABLE, AnswerDecoder
from hubbub.runtime.models.http.members import is_given
from hubbub.runtime.models.http.messages import Turn, UserTurn
from hubbub.runtime.models.http.thoughts import owned, signed

__all__ = ["sign_calls", "signatures_of", "with_short_ids"]

_OWNER: Final = "gemini"
_UNSIGNED: Final = "skip_thought_signature_validator"


class _Google(Struct, gc=False):
    thought_signature: str | None = None


class _Extra(Struct, gc=False):
    google: _Google | None = None


_decode_extra: Final = AnswerDecoder(_Extra)


def signatures_of(extras: Iterable[Raw]) -> tuple[Thinking, ...]:
    """The thoughts that keep the signatures in the ``extra_content`` of calls, in their order."""
    return tuple(
        Thinking(signature=signed(_OWNER, f"{index}:{text}"))
        for index, extra in enumerate(extras)
        if (text := _signature_in(extra))
    )


def _signature_in(extra: Raw) -> str:
    if not is_given(extra):
        return ""
    try:
        google = _decode_extra(extra).google
    except UNREADABLE:
        return ""
    return (google and google.thought_signature) or ""


def sign_calls(calls: Sequence[dict[str, Any]], thoughts: Iterable[Thinking]) -> None:
    """Give calls back what they were signed with."""
    known: dict[str, str] = {}
    for each in thoughts:
        index, _, text = owned(each, _OWNER).partition(":")
        known[index] = text
    for at, call in enumerate(calls):
        text = known.get(str(at)) or ("" if at else _UNSIGNED)
        if text:
            call["extra_content"] = {"google": {"thought_signature": text}}


def with_short_ids(turns: Iterable[Turn]) -> Iterator[Turn]:
    """The turns, with each call's id the number of the call."""
    number = 0
    for turn in turns:
        if isinstance(turn, UserTurn) or not turn.calls:
            yield turn
            continue
        first, number = number, number + len(turn.calls)
        calls = [replace(each, id=f"c{at:08}") for at, each in enumerate(turn.calls, first)]
        yield replace(turn, calls=tuple(calls))
