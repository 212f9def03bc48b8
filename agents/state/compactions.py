"""``Compactions``: what a run remembers of the summaries that stand for its older messages.

A summary takes the place of the first messages of one side's view, once, by one event.  What that
event replaced is in the journal; here is what the next decision depends on.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.model import AssistantMessage, ModelMessage, UserMessage
from hubbub.hub import events as e
from hubbub.hub.events import Usage

__all__ = [
    "NEVER", "NO_COMPACTIONS", "PART", "Compacted", "Compactions", "after_step", "boundary_of",
    "compactions_after", "is_own", "length_of", "tokens_shown", "wanted", "wanted_by",
]  # fmt: skip

MIN_COVERED: Final = 2
"""A summary of one message would be a message, too."""

PART: Final = 4_000
"""Characters that an image, a document or a recording counts for: it is about a thousand tokens."""


class Compacted(Struct, frozen=True, gc=False, omit_defaults=True):
    """The compactions of one side's view."""

    number: int = 0
    """How many summaries there have been since it began, or began anew."""
    at: int = 0
    """When the last one was made (µs since the epoch)."""
    own: int = 0
    """How many messages of the model's own the summary stands for."""
    tried: int = 0
    """The last step before it was last tried."""
    has_failed: bool = False
    first: Usage | None = None
    """The usage of the first step after the summary: whether that helped."""


NEVER = Compacted()


class Compactions(Struct, frozen=True, gc=False, omit_defaults=True):
    """Of both sides, and the sides for which one is wanted, whatever has been used."""

    side_a: Compacted = NEVER
    side_b: Compacted = NEVER
    wanted: tuple[str, ...] = ()

    def of(self, side: str) -> Compacted:
        return self.side_a if side == "side_a" else self.side_b

    def with_side(self, side: str, compacted: Compacted) -> "Compactions":
        if side == "side_a":
            return replace(self, side_a=compacted)
        return replace(self, side_b=compacted)


NO_COMPACTIONS: Final = Compactions()


def wanted(compactions: Compactions, two_sided: bool) -> Compactions:
    """After somebody asked for a summary."""
    return replace(compactions, wanted=("side_a", "side_b") if two_sided else ("side_a",))


def wanted_by(compactions: Compactions, side: str) -> Compactions:
    """After a side's request was refused for what is old in it."""
    if side in compactions.wanted:
        return compactions
    return replace(compactions, wanted=(*compactions.wanted, side))


def after_step(compactions: Compactions, side: str, usage: Usage) -> Compactions:
    """After a step of a side: the first one behind a summary shows whether that helped."""
    compacted = compactions.of(side)
    if compacted.first is not None or compacted.has_failed or not compacted.number:
        return compactions
    return compactions.with_side(side, replace(compacted, first=usage))


def compactions_after(compactions: Compactions, event: e.SessionCompaction) -> Compactions:
    """After a summary, or after it has failed."""
    side = event.side or "side_a"
    before = compactions.of(side)
    if event.error or not event.summary:
        # Where there was nothing to summarise, nothing has gone wrong.
        failed = replace(before, tried=event.step, has_failed=True)
        compacted = failed if event.covers else before
    else:
        own = before.own + event.own
        compacted = Compacted(before.number + 1, event.at, own, event.step)
    left = tuple([each for each in compactions.wanted if each != side])
    return replace(compactions.with_side(side, compacted), wanted=left)


def tokens_shown(usage: Usage) -> int:
    """How many tokens of the window a step has filled, its answer included.

    Providers differ in whether the tokens of the cache are among those of the input.  Where these
    are more, they are not.
    """
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    shown = usage.input_tokens + (cached if cached > usage.input_tokens else 0)
    return shown + usage.output_tokens


def boundary_of(view: Sequence[ModelMessage], keep: float) -> int:
    """How many messages of a side's view a summary would cover; 0 where there is nothing to gain.

    What comes after the model's last own message stays, since it has not been answered, and so
    does that message with its calls, whose results it may not have seen.  So the boundary stands
    still until the next step, whatever arrives.  It stands before something that was said to the
    model, where that is possible.

    Of what is before that message ``keep`` bounds what stays, not what is covered: a first message
    that outweighs all the rest is covered, together with the one behind it.
    """
    last = len(view) - 1
    while last >= 0 and not is_own(view[last]):
        last -= 1
    if last < MIN_COVERED:
        return 0
    lengths = [length_of(message) for message in view[: last + 1]]
    whole = sum(lengths)
    if not whole:
        return 0
    start, kept = last, lengths[last]
    while start > MIN_COVERED and kept + lengths[start - 1] <= keep * whole:
        start -= 1
        kept += lengths[start]
    said = (place for place in range(start, last) if isinstance(view[place], UserMessage))
    return next(said, start)


def is_own(message: ModelMessage) -> bool:
    """Whether the model has written it."""
    return isinstance(message, AssistantMessage) and not message.is_given


def length_of(message: ModelMessage) -> int:
    """How many characters of it the model is shown; a part that is no text counts as ``PART``."""
    if isinstance(message, UserMessage):
        return len(message.content) + sum(map(len, message.notes)) + PART * len(message.parts)
    length = len(message.text) + sum(len(each.text) for each in message.thinking)
    for call in message.calls:
        length += len(call.name) + len(call.arguments) + len(call.output)
        length += sum(map(len, call.notes)) + PART * len(call.parts)
    return length
