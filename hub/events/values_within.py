"""The values within an event: JSON that is decoded only when somebody looks (``hub/values.py``).

Reading an event skips them.  So it takes what no reader of theirs could: texts that are no UTF-8,
numbers out of range.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, get_args

import msgspec
from msgspec import Struct, structs

from hubbub.hub.events.event import Event
from hubbub.hub.values import NULL, Json, decode_value

__all__ = ["value_problem"]


def value_problem(event: Event) -> str:
    """Why a value of an event, or of what it holds, cannot be read; empty if each can."""
    for name, value in _values(event):
        try:
            found = decode_value(value)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            return f"its {name} cannot be read ({error})"
        if name in _OBJECTS and not isinstance(found, dict | None):
            return f"its {name} is {found!r:.40}, not an object"
    return ""


_OBJECTS: Final = frozenset(("metadata",))


def _values(holder: Struct) -> Iterator[tuple[str, Json]]:
    for field, name, is_value in _places(holder.__class__):
        held = getattr(holder, field)
        if is_value:
            if held is not NULL:
                yield name, held
        elif isinstance(held, tuple):
            for each in held:
                yield from _values(each)
        elif held is not None:
            yield from _values(held)


@cache
def _places(kind: type[Struct]) -> tuple[tuple[str, str, bool], ...]:
    """The fields of a struct that are values (with their names in JSON), or hold some."""
    found = []
    for field in structs.fields(kind):
        if field.type is Json:
            found.append((field.name, field.encode_name, True))
        elif any(_places(part) for part in _structs_in(field.type)):
            found.append((field.name, field.encode_name, False))
    return tuple(found)


def _structs_in(kind: Any) -> Iterator[type[Struct]]:
    """The structs that a type is made of."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        yield kind
    for part in get_args(kind):
        yield from _structs_in(part)
