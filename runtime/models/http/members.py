"""Members of an answer, read no further than somebody needs them.  Pure.

Objects made of JSON take fifty times its room, and a server may send as much of it as it likes
where a few words are expected.  So what may be of any form is a ``Raw`` in the types of answers:
decoding steps over it, and here it is read, by what it is for:

    a count, a code          ``said``        nothing, where it is large
    a text                   ``text_in``     nothing, where it is none
    an object kept as JSON   ``object_in``   compacted as it is, nothing is made of it
    parts in a list          ``counted_in``  refused, where they are too many to go through
"""

from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw

from hubbub.runtime.models.http.halves import UNREADABLE, AnswerDecoder

__all__ = [
    "MAX_MEMBER_BYTES",
    "MAX_PARTS",
    "counted_in",
    "first_of",
    "is_given",
    "object_in",
    "said",
    "text_in",
]

MAX_MEMBER_BYTES: Final = 64 * 1024
"""The most that a member may hold of which values are made whatever its form."""

MAX_PARTS: Final = 50_000
"""The most blocks, items or calls that an answer may list at once."""

_NOTHING: Final = Raw()
_NULL: Final = Raw(b"null")
_T = TypeVar("_T")
_decode_text: Final = AnswerDecoder(str)
_decode_any: Final[AnswerDecoder[Any]] = AnswerDecoder(Any)


def is_given(member: Raw) -> bool:
    """Whether it is there, and not ``null``."""
    return member != _NOTHING and member != _NULL


def first_of(member: Raw) -> bytes:
    """The first byte, which tells what it is; none where it is not there."""
    return bytes(memoryview(member)[:1])


def said(member: Raw) -> Any:
    """What a small member says; None where it says nothing, is large or cannot be read."""
    if not is_given(member) or len(memoryview(member)) > MAX_MEMBER_BYTES:
        return None
    try:
        return _decode_any(member)
    except UNREADABLE:
        return None


def text_in(member: Raw) -> str:
    """The text that it is; empty where it is none."""
    return _decode_text(member) if first_of(member) == b'"' else ""


def object_in(member: Raw) -> str:
    """The same JSON without blanks."""
    return msgspec.json.format(bytes(member), indent=-1).decode()


def counted_in(parts: list[_T] | None, what: str) -> list[_T]:
    """``parts``; raises ``msgspec.ValidationError`` for more than anybody may go through."""
    if parts is not None and len(parts) > MAX_PARTS:
        raise msgspec.ValidationError(f"more than {MAX_PARTS:,} {what}")
    return parts or []
