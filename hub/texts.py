"""Texts that come from outside, checked once where they enter.

    text    what is said: any str that UTF-8 can hold
    label   what something is called, found or told apart by (name, key, id): a text without NUL
    key     a label that a store indexes: at most ``MAX_KEY`` bytes

Half of a surrogate pair, which any JSON can bring, is in no UTF-8: no store, terminal or provider
takes it.  The caller gets an error at the call.  Texts that nobody can correct, such as
those of exceptions, are made ``readable`` instead.  Other control characters, U+FFFE, marks of
direction and the like are texts like any other, and names may hold them.
"""

from enum import StrEnum
from typing import Final

import msgspec

from hubbub.hub.errors import BadValue

__all__ = [
    "MAX_KEY",
    "SHORT_KEY",
    "check_id_size",
    "check_key_size",
    "check_label",
    "check_labels",
    "check_names",
    "check_text",
    "key_problem",
    "label_problem",
    "readable",
    "text_problem",
    "text_problem_in",
]

MAX_ID: Final = 255
"""Characters of an id that an event may be emitted with.  It need not be that of a run, which is
shorter: events may be about what has other ids."""

MAX_KEY: Final = 1_000
"""Bytes of a key or name by which a store finds something: what is sent, a conversation, a run.
Every store refuses a longer one: an index of a database server takes no more than two of these."""

SHORT_KEY: Final = MAX_KEY // 4
"""Characters that are no more bytes than ``MAX_KEY``, whichever they are."""

_REMEDY: Final = "decode it with errors='replace', or send bytes as a file"


def text_problem(value: object) -> str:
    """Why ``value`` is no text; empty when it is one."""
    if value.__class__ is not str and not isinstance(value, StrEnum):
        # A user's own kind of text (markupsafe's, numpy's) cannot be written everywhere.
        remedy = "; use str(...)" if isinstance(value, str) else ""
        return f"expected a str, not {type(value).__name__}{remedy}"
    assert isinstance(value, str)
    if value.isascii():
        return ""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        half = value[error.start]
        return f"{half!r} at {error.start} is half of a surrogate pair, no text; {_REMEDY}"
    return ""


def label_problem(value: object) -> str:
    """Why ``value`` is no name, key or id; empty when it is one."""
    problem = text_problem(value)
    if not problem and "\0" in value:  # type: ignore[operator]
        return "a name, key or id holds no NUL character"
    return problem


def key_problem(value: str) -> str:
    """Why a text is too long for a key or name that a store finds something by; empty if not."""
    size = len(value) if value.isascii() else len(value.encode())
    if size <= MAX_KEY:
        return ""
    return (
        f"a key or name has {MAX_KEY:,} bytes of UTF-8 at most; this one has {size:,}; give a "
        "shorter one, or its digest: hashlib.sha256(…).hexdigest()"
    )


def text_problem_in(said: object) -> str:
    """Why plain data holds a text that is none; empty too for what is no plain data."""
    try:
        msgspec.json.encode(said)
    except UnicodeEncodeError as error:
        return f"half of a surrogate pair is in it ({error.object[error.start]!a}), no text"
    except Exception:  # Somebody else's to refuse.
        return ""
    return ""


def check_text(what: str, value: object) -> None:
    """Raise ``BadValue`` for what is no text."""
    if value.__class__ is str and value.isascii():
        return
    if problem := text_problem(value):
        raise BadValue(what, problem)


def check_label(what: str, value: object) -> None:
    """Raise ``BadValue`` for what is no name, key or id."""
    # Nearly all are plain, and this stands at every call.
    if value.__class__ is str and value.isascii() and "\0" not in value:
        return
    if problem := label_problem(value):
        raise BadValue(what, problem)


def check_id_size(what: str, value: str | None) -> None:
    """Raise ``BadValue`` for an id that no event is emitted with."""
    if value is not None and len(value) > MAX_ID:
        raise BadValue(what, f"an id has {MAX_ID} characters at most; this one has {len(value):,}")


def check_key_size(what: str, value: str | None) -> None:
    """Raise ``BadValue`` for a text that is too long for a key or name that a store indexes; None
    is none given."""
    if value is not None and len(value) > SHORT_KEY and (problem := key_problem(value)):
        raise BadValue(what, problem)


def check_labels(**values: object) -> None:
    """Raise ``BadValue`` for the first that is no name, key or id; None is none given."""
    for what, value in values.items():
        if value is not None and not (
            value.__class__ is str and value.isascii() and "\0" not in value
        ):
            check_label(what, value)


def check_names(**values: object) -> None:
    """As ``check_labels``, for what is empty where none is given."""
    for what, value in values.items():
        if not (value.__class__ is str and value.isascii() and "\0" not in value):
            check_label(what, value)


def readable(text: str) -> str:
    """``text`` with ``�`` for each half of a surrogate pair that lacks the other."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
