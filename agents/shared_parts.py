"""References of a schema to its shared parts (``$defs``), and what writes it without them.

What a library writes for a type has them, msgspec and pydantic for one; a model is shown none.
"""

from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

__all__ = ["in_place", "refers_to_itself"]

_SHARED: Final = "#/$defs/"
_VALUES: Final = frozenset(("const", "default", "enum", "examples"))
_MAX_DEPTH: Final = 64
_MAX_PARTS: Final = 10_000


def in_place(schema: Any) -> Any:
    """The schema with each shared part written where it is referred to.

    It is returned as it is if it has none, if one refers to itself, and if one is missing.
    """
    if not isinstance(schema, dict) or not isinstance(schema.get("$defs"), dict):
        return schema
    try:
        return _References(schema).replaced()
    except (LookupError, RecursionError):
        return schema


def refers_to_itself(schema: Any) -> bool:
    """Whether a schema, or a shared part that it refers to, refers to itself."""
    if not isinstance(schema, dict):
        return False
    shared = {
        f"#/{key}/{name}": part
        for key in ("$defs", "definitions")
        if isinstance(schema.get(key), dict)
        for name, part in schema[key].items()
    }
    top = {key: part for key, part in schema.items() if key not in ("$defs", "definitions")}
    graph: dict[str, set[str]] = {"#": _referred(top)}
    left = [*graph["#"]]
    while left:
        name = left.pop()
        if name in shared and name not in graph:
            graph[name] = _referred(shared[name])
            left += graph[name]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return True
    return False


def _referred(part: Any) -> set[str]:
    """What is referred to anywhere in a part."""
    found: set[str] = set()
    left = [part]
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        elif isinstance(each, dict):
            left += [inner for key, inner in each.items() if key not in _VALUES]
            if isinstance(name := each.get("$ref"), str):
                found.add(name)
    return found


class _References:
    """Raises ``LookupError`` where a reference leads nowhere, or has no end."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._shared: dict[str, Any] = schema["$defs"]
        self._schema = {key: part for key, part in schema.items() if key != "$defs"}
        self._parts = 0

    def replaced(self) -> Any:
        return self._replaced(self._schema, 0)

    def _replaced(self, part: Any, depth: int) -> Any:
        self._parts += 1
        if depth > _MAX_DEPTH or self._parts > _MAX_PARTS:
            raise LookupError("the schema refers to itself, or to too much")
        if isinstance(part, list):
            return [self._replaced(each, depth + 1) for each in part]
        if not isinstance(part, dict):
            return part
        if isinstance(name := part.get("$ref"), str):
            beside = {key: each for key, each in part.items() if key != "$ref"}
            meant = self._shared[name.removeprefix(_SHARED)]
            if not isinstance(meant, dict):
                raise LookupError(f"{name} refers to no schema")
            return self._replaced({**meant, **beside}, depth + 1)
        return {key: self._replaced(each, depth + 1) for key, each in part.items()}
