"""What an answer consists of, and the moves by which it is told.

PartOpened ──► PartGrew … ──► PartClosed ──► PartRecorded    a part of the answer
     └────────────┴──────────────┴─────────► PartsVoided     it was withdrawn
AnswerRestarted                                              the model begins it again
"""

from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = [
    "AnswerMove",
    "AnswerPart",
    "AnswerRestarted",
    "PartClosed",
    "PartGrew",
    "PartKind",
    "PartOpened",
    "PartRecorded",
    "PartsVoided",
]  # fmt: skip

PartKind: TypeAlias = Literal["reasoning", "text", "call"]


class AnswerPart(Struct, frozen=True, kw_only=True):
    """A part of an answer: reasoning, text, or a call that the client carries out."""

    kind: PartKind
    text: str = ""
    """Of a call its arguments, as JSON."""
    call_id: str = ""
    name: str = ""
    """The tool of a call."""


class PartOpened(Struct, frozen=True):
    """A part begins; its text is still to come."""

    part: AnswerPart


class PartGrew(Struct, frozen=True):
    """More of the part that was opened last."""

    text: str


class PartClosed(Struct, frozen=True):
    """The part that was opened last is whole; ``part`` is all of it."""

    part: AnswerPart


class PartRecorded(Struct, frozen=True):
    """The first of the closed parts that were not on record is."""


class PartsVoided(Struct, frozen=True):
    """What was told since the last part on record is void, ``parts`` of it with what they had."""

    parts: tuple[AnswerPart, ...]
    is_open: bool
    """Whether the last of them was never closed."""


class AnswerRestarted(Struct, frozen=True):
    """The model begins its answer again, whether or not anything of it was told."""


AnswerMove: TypeAlias = (
    PartOpened | PartGrew | PartClosed | PartRecorded | PartsVoided | AnswerRestarted
)
