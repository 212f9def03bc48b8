"""What is wrong with a definition: each problem a sentence that opens with the path of its field.

Each definition collects its own, so that an author sees all of them at once; here are those that
need nothing but values: names, ids, texts, limits, lists.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import force_setattr

from hubbub.hub.near_misses import kind_of, shown
from hubbub.hub.texts import text_problem
from hubbub.hub.values import is_count

__all__ = [
    "absent_or_named",
    "id_problems",
    "is_limit",
    "keep_tuples",
    "listed_problems",
    "name_problems",
    "text_problems",
]

MAX_NESTED: Final = 100
"""How deep a definition's own values may be nested."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def name_problems(name: object) -> Iterable[str]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield "name: expected 1 to 128 letters, digits, '_', '-', '.' or ':'"


def id_problems(path: str, ids: object) -> Iterable[str]:
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        yield f"{path}: expected a list of hook ids"
        return
    seen: set[object] = set()
    for index, each in enumerate(ids):
        if not isinstance(each, str):
            yield f"{path}[{index}]: expected a hook's id, not {kind_of(each)}"
        elif each in seen:
            yield f"{path}[{index}]: {shown(each)} is listed twice"
        else:
            seen.add(each)


def absent_or_named(path: str, holder: object, *fields: str) -> Iterable[str]:
    """Those of fields that are a name or ``None``."""
    for field in fields:
        value = getattr(holder, field)
        if not isinstance(value, str | None) or value == "":
            yield f"{path}.{field}: expected a name".lstrip(".")


def text_problems(path: str, value: object, *, depth: int = 0) -> Iterable[str]:
    """The texts in a definition that UTF-8 cannot hold, each by its path.

    Not those of definitions within it: each has looked at its own when it was made.
    """
    if isinstance(value, str):
        if problem := text_problem(value):
            yield f"{path}: {problem}"
    elif depth > MAX_NESTED:
        yield f"{path}: nested more than {MAX_NESTED} deep"
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from text_problems(f"{path} (a key)", key)
            yield from text_problems(f"{path}.{ascii(key)[1:-1]}", each, depth=depth + 1)
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from text_problems(f"{path}[{index}]", each, depth=depth + 1)
    elif depth and hasattr(value, "__post_init__"):
        return
    elif isinstance(value, Struct) and value.__class__.__module__.startswith("hubbub.agents."):
        for field in value.__struct_fields__:
            name = f"{path}.{field}".lstrip(".")
            yield from text_problems(name, getattr(value, field), depth=depth + 1)


def is_limit(value: object) -> bool:
    """Whether it bounds something, or is absent; True is no number here."""
    return value is None or is_count(value)


def listed_problems(path: str, listed: object, kinds: Any, wanted: str) -> Iterable[str]:
    """What is wrong with a list of things that have names, or of their names."""
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        yield f"{path}: expected a list, each {wanted}"
        return
    seen: set[str] = set()
    for index, each in enumerate(listed):
        name = each if isinstance(each, str) else getattr(each, "name", None)
        if not isinstance(each, kinds) or not name:
            yield f"{path}[{index}]: expected {wanted}, not {kind_of(each)}"
        elif name in seen:
            yield f"{path}[{index}]: {shown(name)} is listed twice"
        else:
            seen.add(str(name))


def keep_tuples(holder: Struct, *fields: str) -> None:
    """Lists become tuples before they are looked at: an iterator can be read only once."""
    for field in fields:
        value = getattr(holder, field)
        if isinstance(value, Iterable) and not isinstance(value, str):
            force_setattr(holder, field, tuple(value))
