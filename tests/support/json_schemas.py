"""JSON schemas of each dialect, and values to try by them."""

from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st
from jsonschema import (  # type: ignore[import-untyped]
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)

__all__ = [
    "NEWEST",
    "SCHEMAS",
    "VALIDATORS",
    "VALUES",
    "any_schemas",
    "own_schemas",
    "with_parts",
]

NEWEST: Final = "2020-12"
"""What is meant where a schema names none."""

VALIDATORS: Final[Mapping[str, Any]] = {
    "04": Draft4Validator,
    "06": Draft6Validator,
    "07": Draft7Validator,
    "2019-09": Draft201909Validator,
    NEWEST: Draft202012Validator,
}
"""By the dialect, those that tell what is right; a later dialect's name is greater."""

_LATER = frozenset({"2019-09", NEWEST})

NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.sampled_from([0, 1, 2, 3, -1, 1.0, 0.5, 2.5, 1e308, 10**30])
SCALARS = st.one_of(NUMBERS, st.booleans(), st.none(), st.sampled_from(["", "a", "b", "abc"]))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
SIZES = st.integers(0, 3)
KINDS = st.sampled_from(["object", "array", "string", "null", "boolean", "number", "integer"])
POINTERS = st.sampled_from(["#/$defs/a", "#/$defs/b", "#/$defs/c~1d%25"])
PATTERNS = st.sampled_from(["^a", "b", "c$", "^$"])

_Words = dict[str, st.SearchStrategy[Any]]
_Inner = st.SearchStrategy[Any]


def _common(inner: _Inner) -> _Words:
    """The words that every dialect has."""
    several = st.lists(inner, min_size=1, max_size=3)
    return {
        "type": KINDS | st.lists(KINDS, min_size=1, max_size=2, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "allOf": several, "anyOf": several, "oneOf": several, "not": inner, "$ref": POINTERS,
        "minimum": NUMBERS, "maximum": NUMBERS, "multipleOf": st.sampled_from([1, 2, 3, 0.5, 1e-5]),
        "minLength": SIZES, "maxLength": SIZES, "minItems": SIZES, "maxItems": SIZES,
        "minProperties": SIZES, "maxProperties": SIZES, "items": inner,
        "properties": st.dictionaries(NAMES, inner, max_size=2),
        "required": st.lists(NAMES, min_size=1, max_size=2, unique=True),
        "additionalProperties": inner,
    }  # fmt: skip


def _newer(dialect: str, inner: _Inner) -> _Words:
    """The words that came later, as far as a dialect has them."""
    found: _Words = {}
    if dialect != "04":
        found |= {
            "const": VALUES, "contains": inner, "propertyNames": inner,
            "exclusiveMinimum": NUMBERS, "exclusiveMaximum": NUMBERS,
        }  # fmt: skip
    if dialect not in {"04", "06"}:
        found |= {"if": inner, "then": inner, "else": inner}
    if dialect in _LATER:
        found |= {
            "minContains": SIZES, "maxContains": SIZES, "$ref": POINTERS | st.just("#named"),
            "dependentSchemas": st.dictionaries(NAMES, inner, max_size=2),
            "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True)),
        }  # fmt: skip
    if dialect == NEWEST:
        found["prefixItems"] = st.lists(inner, min_size=1, max_size=3)
    return found


def _older(dialect: str, inner: _Inner) -> _Words:
    """The words that the newest dialect has no more, as far as a dialect has them."""
    found: _Words = {}
    # jsonschema fails at those that are no mapping.
    objects = inner.map(lambda each: {"not": {} if each is False else {"not": {}}})
    if dialect != NEWEST:
        found["items"] = objects | st.lists(inner, min_size=1, max_size=3)
        found["additionalItems"] = inner
    if dialect not in _LATER:
        names = st.lists(NAMES, min_size=1, max_size=2, unique=True)
        found["dependencies"] = st.dictionaries(NAMES, objects | names, max_size=2)
    if dialect == "04":
        found |= {"exclusiveMinimum": st.booleans(), "exclusiveMaximum": st.booleans()}
        found["type"] = KINDS.filter(lambda each: each != "integer")
    return found


def _left_out(inner: _Inner) -> _Words:
    return {
        "pattern": PATTERNS, "uniqueItems": st.booleans(), "format": st.just("email"),
        "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
        "unevaluatedProperties": inner, "type": KINDS,
    }  # fmt: skip


def _some(words: _Words, most: int = 3) -> st.SearchStrategy[Any]:
    chosen = st.lists(st.sampled_from(sorted(words)), max_size=most, unique=True)
    return chosen.flatmap(lambda some: st.fixed_dictionaries({word: words[word] for word in some}))


def own_schemas(dialect: str) -> st.SearchStrategy[Any]:
    """Schemas of which all can be told, as the dialect has it."""

    def schemas_of(inner: _Inner) -> st.SearchStrategy[Any]:
        found = _some(_common(inner) | _newer(dialect, inner) | _older(dialect, inner))
        return found if dialect in _LATER else found.map(_alone)

    return st.recursive(st.booleans() | schemas_of(st.booleans()), schemas_of, max_leaves=6)


def _alone(schema: dict[str, Any]) -> dict[str, Any]:
    """A reference without what stands beside it, which older dialects do not read."""
    return {"$ref": schema["$ref"]} if "$ref" in schema else schema


def any_schemas(dialect: str) -> st.SearchStrategy[Any]:
    """Schemas with words that are left to the server, and with those of other dialects."""

    def schemas_of(inner: _Inner) -> st.SearchStrategy[Any]:
        everything = _common(inner) | _newer(NEWEST, inner) | {"$ref": POINTERS}
        everything |= _older(dialect, inner) | _left_out(inner)
        if dialect == NEWEST:
            everything["$dynamicRef"] = POINTERS
        else:
            everything["dependencies"] = _older("07", inner)["dependencies"]
        left = _some(_left_out(inner), 1).flatmap(
            lambda one: _some(everything).map(lambda others: {**others, **one})
        )
        return left | _some(everything)

    return st.recursive(st.booleans() | schemas_of(st.booleans()), schemas_of, max_leaves=6)


SCHEMAS = own_schemas(NEWEST)


def with_parts(schema: Any, dialect: str = "") -> dict[str, Any]:
    """A schema with parts that it may refer to, which says its dialect where one is given."""
    parts = {
        "a": {"type": "string", "minLength": 2}, "b": {"items": {"$ref": "#/$defs/a"}},
        "c/d%": {"required": ["a"]}, "e": {"$anchor": "named", "maximum": 1},
    }  # fmt: skip
    whole = {"$defs": parts, "allOf": [schema]}
    return {"$schema": VALIDATORS[dialect].META_SCHEMA["$schema"], **whole} if dialect else whole
