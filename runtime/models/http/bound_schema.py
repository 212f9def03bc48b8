"""``SchemaRules``: the part of JSON Schema that a provider can bind an answer to.  Pure.

in a schema                         is sent as
──────────────────────────────────  ─────────────────────────────────────────────────────
keywords that the provider knows    themselves
limits that it does not, defaults   words in the description: what is said is checked here
an object with ``properties``       a closed one; with ``all_required`` each must be given,
                                    which is narrower, so what fits it fits the schema
``oneOf``, ``type`` as a list       ``anyOf``
``allOf`` of one, text at a ``$ref``  the one, ``anyOf`` of it
an open object, any value, a list   nothing: such an answer cannot be bound
of anything, fixed places
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

__all__ = ["SchemaRules"]

_TEXTS: Final = ("title", "description")
_LISTED: Final = ("enum", "const")
_OF_KIND: Final = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "minItems", "maxItems", "uniqueItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": (
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    ),
}  # fmt: skip
_KIND_OF: Final = {
    str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null",
}  # fmt: skip
_NAMES: Final = frozenset(("string", "boolean", "integer", "number", "null", "object", "array"))


class SchemaRules(Struct, frozen=True, kw_only=True):
    """What one provider knows."""

    keeps: frozenset[str]
    """Limits on values that it keeps to."""
    formats: frozenset[str]
    """Formats of strings that it keeps to."""
    all_required: bool = False
    keeps_one_item: bool = False
    """Whether it keeps to ``minItems`` of 0 or 1, and no other."""
    types_lists: bool = True
    """Whether listed values have their type beside them."""
    recursive: bool = False
    max_depth: int = 64

    def bound(self, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """The schema to send; ``None`` where this provider cannot be bound to it."""
        try:
            if not self.recursive:
                _refuse_circles(schema.get("$defs", {}))
            parts = {name: self._part(each, 2) for name, each in schema.get("$defs", {}).items()}
            found = self._part({k: v for k, v in schema.items() if k != "$defs"}, 1)
        except _Unbound:
            return None
        if found.get("type") != "object":
            return None
        return {**found, "$defs": parts} if parts else found

    def _part(self, schema: object, depth: int) -> dict[str, Any]:
        if not isinstance(schema, Mapping) or depth > self.max_depth:
            raise _Unbound
        left = dict(schema)
        found: dict[str, Any] = {}
        if "$ref" in left:
            found = {"$ref": left.pop("$ref")}
            if not left.keys() & set(_TEXTS):
                return found
            found = {"anyOf": [found]}
        elif branches := _branches(left):
            found = {"anyOf": [self._part(each, depth + 1) for each in branches]}
        elif listed := [name for name in _LISTED if name in left]:
            values = left["enum"] if listed[0] == "enum" else [left["const"]]
            if self.types_lists:
                kinds = list(dict.fromkeys(_kind_of(each) for each in values))
                found["type"] = kinds[0] if len(kinds) == 1 else kinds
            left.pop("type", None)
            found |= {name: left.pop(name) for name in listed}
        else:
            found = self._typed(left, depth)
        for name in _TEXTS:
            if name in left:
                found[name] = left.pop(name)
        return _with_words(found, left)

    def _typed(self, left: dict[str, Any], depth: int) -> dict[str, Any]:
        """The part of one type; what is taken over is no longer ``left``."""
        kind = left.pop("type", None)
        if kind not in _NAMES:
            raise _Unbound
        found: dict[str, Any] = {"type": kind}
        if kind == "object":
            properties = left.pop("properties", None)
            if not properties or left.pop("additionalProperties", False) is not False:
                raise _Unbound
            found["properties"] = {k: self._part(v, depth + 1) for k, v in properties.items()}
            required = left.pop("required", [])
            found["required"] = list(properties) if self.all_required else list(required)
            found["additionalProperties"] = False
        elif kind == "array":
            if "prefixItems" in left or not isinstance(left.get("items"), Mapping):
                raise _Unbound
            found["items"] = self._part(left.pop("items"), depth + 1)
        for name in [name for name in left if name in self.keeps]:
            found[name] = left.pop(name)
        if self.keeps_one_item and left.get("minItems") in (0, 1):
            found["minItems"] = left.pop("minItems")
        if left.get("format") in self.formats:
            found["format"] = left.pop("format")
        return found


class _Unbound(Exception):
    """There is no such schema at the provider."""


def _branches(left: dict[str, Any]) -> list[Any]:
    """What a value is one of, where the schema says so; taken out of ``left``."""
    for name in ("anyOf", "oneOf", "allOf"):
        if name in left:
            found = left.pop(name)
            left.pop("discriminator", None)
            if not isinstance(found, list) or not found or (name == "allOf" and len(found) > 1):
                raise _Unbound
            return found
    if not isinstance(left.get("type"), list) or left.keys() & set(_LISTED):
        return []
    kinds = left.pop("type")
    found = []
    for kind in kinds:
        own = _OF_KIND.get("number" if kind == "integer" else kind, ())
        found.append({"type": kind} | {name: left[name] for name in own if name in left})
    for names in _OF_KIND.values():
        for name in names:
            left.pop(name, None)
    return found


def _kind_of(value: object) -> str:
    if type(value) not in _KIND_OF:
        raise _Unbound
    return _KIND_OF[type(value)]


def _with_words(found: dict[str, Any], left: Mapping[str, Any]) -> dict[str, Any]:
    """What cannot be said otherwise is said to the model in words."""
    if left:
        words = "{" + ", ".join(f"{name}: {value}" for name, value in left.items()) + "}"
        found["description"] = "\n\n".join(filter(None, (found.get("description"), words)))
    return found


def _refuse_circles(parts: Mapping[str, Any]) -> None:
    """Raise for a part that holds itself."""

    def look(name: str, seen: tuple[str, ...]) -> None:
        if name in seen:
            raise _Unbound
        for other in _named_in(parts.get(name)):
            look(other, (*seen, name))

    for each in parts:
        look(each, ())


def _named_in(part: object) -> list[str]:
    if isinstance(part, Mapping):
        ref = part.get("$ref")
        inner = [name for each in part.values() for name in _named_in(each)]
        return [ref.rpartition("/")[2], *inner] if isinstance(ref, str) else inner
    return [n for each in part for n in _named_in(each)] if isinstance(part, list) else []
