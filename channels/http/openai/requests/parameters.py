"""The parameters of a client's function tools, as clients write them.

What says nothing of which values fit is left out, and ``nullable`` is written as the type that it
means: a client is not refused for a word that its provider passes over.
"""

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["plain_parameters"]

_MAX_DEPTH: Final = 64
"""Schemas in schemas; what is deeper is refused where it is read."""

_SAYS_NOTHING: Final = frozenset((
    "$comment", "$id", "$anchor", "$vocabulary", "deprecated", "readOnly", "writeOnly",
    "contentEncoding", "contentMediaType", "example", "nullable",
))  # fmt: skip
_ONE: Final = frozenset(("items", "additionalProperties", "not", "if", "then", "else"))
_SEVERAL: Final = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_NAMED: Final = frozenset(("properties", "patternProperties", "$defs", "definitions"))
_OF_OBJECTS: Final = _SEVERAL | {"properties", "$ref", "patternProperties"}


def plain_parameters(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of arguments; one that names no parameters is that of a tool without any."""
    plain: dict[str, Any] = _plain(schema, 0)
    is_closed = plain.get("additionalProperties", False) is False
    if plain.get("type", "object") == "object" and is_closed and _OF_OBJECTS.isdisjoint(plain):
        plain = {**plain, "type": "object", "properties": {}}
    return plain


def _plain(schema: Any, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _SAYS_NOTHING or key.startswith("x-"):
            continue
        if key in _ONE:
            value = _plain(value, depth + 1)
        elif key in _SEVERAL and isinstance(value, list):
            value = [_plain(each, depth + 1) for each in value]
        elif key in _NAMED and isinstance(value, Mapping):
            value = {name: _plain(each, depth + 1) for name, each in value.items()}
        found[key] = value
    return _nullable(found) if schema.get("nullable") is True else found


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    kinds, values = schema.get("type"), schema.get("enum")
    if isinstance(kinds, str):
        kinds = [kinds]
    if isinstance(kinds, list) and "null" not in kinds:
        schema["type"] = [*kinds, "null"]
    if isinstance(values, list) and None not in values:
        schema["enum"] = [*values, None]
    return schema
