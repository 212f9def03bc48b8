"""What the fields of steps and faults may be.

A mistyped step or fault would be a test that always passes: so it is refused when it is made.
"""

import math
from typing import Final, get_args

from msgspec import Struct

from hubbub.hub.errors import BadValue
from hubbub.hub.values import check_flag, is_count

__all__ = ["check_amount", "check_fields", "check_whole", "shown"]

MAX_SHOWN: Final = 60
"""Letters of a value that stand in an error."""

MAX_SECONDS: Final = 10_000_000_000
"""Beyond it ids, cron and calendars cannot hold the time."""


def check_fields(
    made: Struct,
    *,
    counts: tuple[str, ...] = (),
    ordinals: tuple[str, ...] = (),
    amounts: tuple[str, ...] = (),
    numbers: tuple[str, ...] = (),
    texts: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
    **words: object,
) -> None:
    """Raise ``BadValue`` for the first field of ``made`` that is none of what it must be.

    ``counts`` are whole numbers from 1 and ``ordinals`` from 0; ``amounts`` are numbers of
    seconds that are not negative, ``numbers`` may be, both bounded; ``flags`` are true or false;
    ``words`` says by field which ones there are.
    """
    name = type(made).__name__
    for field in texts:
        _check_text(f"{name}.{field}", getattr(made, field))
    for field in (*counts, *ordinals):
        check_whole(f"{name}.{field}", getattr(made, field), least=int(field in counts))
    for field in (*amounts, *numbers):
        check_amount(f"{name}.{field}", getattr(made, field), is_signed=field in numbers)
    for field in flags:
        check_flag(f"{name}.{field}", getattr(made, field))
    for field, known in words.items():
        if (word := getattr(made, field)) not in get_args(known):
            raise BadValue(f"{name}.{field}", f"{word!r}: one of {', '.join(get_args(known))}")


def shown(value: object) -> str:
    """A value as it is in an error: what is long, or cannot be shown, goes by its type."""
    try:
        text = repr(value)
    except Exception:
        return f"something of type {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else f"something of type {type(value).__name__}"


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        name = getattr(value, "name", None)
        remedy = f"; give its name, {name!r}" if isinstance(name, str) else ""
        raise BadValue(what, f"expected a text, not {type(value).__name__}{remedy}")


def check_whole(what: str, value: object, *, least: int) -> None:
    """Raise ``BadValue`` for what is no whole number that counts from ``least``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadValue(what, f"expected a whole number, not {shown(value)}")
    if value < least:
        raise BadValue(what, f"counts from {least}, there is no {shown(value)}")
    if not is_count(value, least):
        raise BadValue(what, f"expected a number that fits into 64 bits, not {shown(value)}")


def check_amount(what: str, value: object, *, is_signed: bool = False) -> None:
    """Raise ``BadValue`` for what is no number of seconds that a world can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValue(what, f"expected a number, not {shown(value)}")
    if not abs(value) < math.inf or (value < 0 and not is_signed):
        problem = "endless" if is_signed else "negative or endless"
        raise BadValue(what, f"cannot be {problem}, as {shown(value)} is")
    if abs(value) > MAX_SECONDS:
        raise BadValue(what, f"at most {MAX_SECONDS:,} seconds, three hundred years")
