"""``KEYWORDS``: what the keywords of JSON Schema (2020-12) demand of a value.

Left to whoever wrote the schema: ``pattern`` and ``patternProperties``, which may take without end,
and with them what is said of all other names; ``format``, ``uniqueItems`` and ``$dynamicRef``.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from fractions import Fraction
from typing import Any, Final

from hubbub.runtime.mcp.schema_trial import GivenUp, Keyword, SchemaMisfit, SchemaPlace, Trial

__all__ = ["KEYWORDS"]

_Schema = dict[str, Any]
_Found = Iterator[SchemaMisfit]

_KINDS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "number": lambda value: _is_number(value),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ── any value ────────────────────────────────────────────────────────────────────────────────


def _type(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    kinds = [given] if isinstance(given, str) else given
    trial.spend(len(kinds))
    if not any(_KINDS[kind](value) for kind in kinds):
        yield SchemaMisfit(place, "{} is not of type {}", (value, tuple(kinds)))


def _enum(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    if not isinstance(given, list):
        raise GivenUp
    if isinstance(value, dict | list):
        is_listed = any(_is_same(trial, each, value) for each in given)
    elif isinstance(value, bool) or value is None:
        trial.spend(len(given) // 10)
        is_listed = any(each is value for each in given)
    else:
        trial.spend(len(given) // 10)
        is_listed = any(each == value and not isinstance(each, bool) for each in given)
    if not is_listed:
        yield SchemaMisfit(place, "{} is not one of {}", (value, given))


def _const(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    if not _is_same(trial, given, value):
        yield SchemaMisfit(place, "{} was expected", (given,))


def _is_same(trial: Trial, one: Any, other: Any) -> bool:
    """Whether two values are the same JSON."""
    trial.spend(1)
    if isinstance(one, dict) and isinstance(other, dict):
        return len(one) == len(other) and all(
            key in other and _is_same(trial, each, other[key]) for key, each in one.items()
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(
            _is_same(trial, each, beside) for each, beside in zip(one, other, strict=True)
        )
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


# ── schemas of the same value ────────────────────────────────────────────────────────────────


def _ref(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    return trial.problems(trial.referred(given), value, place.inside())


def _all_of(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    for each in _schemas(given):
        yield from trial.problems(each, value, place.inside())


def _any_of(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    if not any(trial.fits(each, value, place) for each in _schemas(given)):
        yield SchemaMisfit(place, _NONE_FITS, (value,))


def _one_of(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    fitting = [each for each in _schemas(given) if trial.fits(each, value, place)]
    if not fitting:
        yield SchemaMisfit(place, _NONE_FITS, (value,))
    elif len(fitting) > 1:
        several = (*fitting[1:], fitting[0])
        yield SchemaMisfit(place, "{} is valid under each of {}", (value, several))


_NONE_FITS: Final = "{} is not valid under any of the given schemas"


def _not(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    if trial.fits(given, value, place):
        yield SchemaMisfit(place, "{} should not be valid under {}", (value, given))


def _if(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    branch = "then" if trial.fits(given, value, place) else "else"
    if branch in schema:
        yield from trial.problems(schema[branch], value, place.inside())


def _schemas(given: Any) -> list[Any]:
    if not isinstance(given, list):
        raise GivenUp
    return given


# ── numbers, and how long something is ───────────────────────────────────────────────────────


def _number(words: str, fits: Callable[[Any, Any], bool]) -> Keyword:
    def keyword(
        trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
    ) -> _Found:
        if _is_number(value) and not fits(value, given):
            yield SchemaMisfit(place, f"{{}} is {words} {{}}", (value, given))

    return keyword


def _is_multiple(value: Any, of: Any) -> bool:
    if isinstance(of, float):
        try:
            quotient = value / of
            return bool(int(quotient) == quotient)
        except OverflowError:  # As fractions of whole numbers they are exact.
            return (Fraction(value) / Fraction(of)).denominator == 1
    return not value % of


def _multiple_of(
    trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
) -> _Found:
    trial.spend(20)
    if _is_number(value) and not _is_multiple(value, given):
        yield SchemaMisfit(place, "{} is not a multiple of {}", (value, given))


def _least(kind: type, empty: str, short: str) -> Keyword:
    def keyword(
        trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
    ) -> _Found:
        if isinstance(value, kind) and len(value) < given:  # type: ignore[arg-type]
            yield SchemaMisfit(place, f"{{}} {empty if given == 1 else short}", (value,))

    return keyword


def _most(kind: type, long: str) -> Keyword:
    def keyword(
        trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
    ) -> _Found:
        if isinstance(value, kind) and len(value) > given:  # type: ignore[arg-type]
            words = "is expected to be empty" if given == 0 else long
            yield SchemaMisfit(place, f"{{}} {words}", (value,))

    return keyword


# ── arrays ───────────────────────────────────────────────────────────────────────────────────


def _prefix_items(
    trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
) -> _Found:
    if isinstance(value, list):
        for at, (each, part) in enumerate(zip(value, _schemas(given), strict=False)):
            yield from trial.problems(part, each, place.inside(at))


def _items(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    first = len(schema.get("prefixItems", ()))
    if not isinstance(value, list) or len(value) <= first:
        return
    if given is False:
        extra = len(value) - first
        rest = value[first] if extra == 1 else value[first : first + 100]
        words = f"Expected at most {{}} item{'' if first == 1 else 's'} but found {{}} extra: {{}}"
        yield SchemaMisfit(place, words, (first, extra, rest))
        return
    for at in range(first, len(value)):
        yield from trial.problems(given, value[at], place.inside(at))


def _contains(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    if not isinstance(value, list):
        return
    least, most = schema.get("minContains", 1), schema.get("maxContains", len(value))
    count = 0
    for each in value:
        count += trial.fits(given, each, place)
        if count > most:
            words = "Too many items match the given schema (expected at most {})"
            yield SchemaMisfit(place, words, (most,))
            return
    if count < least and not count:
        yield SchemaMisfit(place, "{} does not contain items matching the given schema", (value,))
    elif count < least:
        words = "Too few items match the given schema (expected at least {} but only {} matched)"
        yield SchemaMisfit(place, words, (least, count))


# ── objects ──────────────────────────────────────────────────────────────────────────────────


def _properties(
    trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
) -> _Found:
    if isinstance(value, dict):
        trial.spend(len(given) // 4)
        for name, part in given.items():
            if name in value:
                yield from trial.problems(part, value[name], place.inside(name))


def _required(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    if isinstance(value, dict):
        trial.spend(len(given) // 4)
        for name in given:
            if name not in value:
                yield SchemaMisfit(place, "{} is a required property", (name,))


def _additional(
    trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
) -> _Found:
    if not isinstance(value, dict) or given is True or "patternProperties" in schema:
        return
    trial.spend(len(value) // 4)
    known = schema.get("properties", {})
    if not isinstance(known, dict):
        raise GivenUp
    extra = [name for name in value if name not in known]
    if given is not False:
        for name in extra:
            yield from trial.problems(given, value[name], place.inside(name))
    elif extra:
        words = f"Additional properties are not allowed ({{}} {_were(extra)} unexpected)"
        yield SchemaMisfit(place, words, (tuple(extra),))


def _property_names(
    trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
) -> _Found:
    if isinstance(value, dict):
        for name in value:
            yield from trial.problems(given, name, place.inside())


def _dependent(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    if not isinstance(value, dict):
        return
    trial.spend(len(given))
    for name, needed in given.items():
        if name in value:
            trial.spend(len(needed))
            for each in needed:
                if each not in value:
                    yield SchemaMisfit(place, "{} is a dependency of {}", (each, name))


def _dependent_schemas(
    trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
) -> _Found:
    if isinstance(value, dict):
        trial.spend(len(given))
        for name, part in given.items():
            if name in value:
                yield from trial.problems(part, value, place.inside())


def _were(extra: list[Any]) -> str:
    return "was" if len(extra) == 1 else "were"


# ── what no other keyword speaks of ──────────────────────────────────────────────────────────


def _unevaluated_properties(
    trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
) -> _Found:
    if not isinstance(value, dict):
        return
    known = _spoken_of(trial, _without(schema, "unevaluatedProperties"), value, place)
    extra = [
        name for name in value if name not in known and not trial.fits(given, value[name], place)
    ]
    if extra and given is False:
        words = f"Unevaluated properties are not allowed ({{}} {_were(extra)} unexpected)"
        yield SchemaMisfit(place, words, (tuple(extra),))
    elif extra:
        words = (
            "Unevaluated properties are not valid under the given schema "
            f"({{}} {_were(extra)} unevaluated and invalid)"
        )
        yield SchemaMisfit(place, words, (tuple(extra),))


def _unevaluated_items(
    trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
) -> _Found:
    if not isinstance(value, list):
        return
    known = _spoken_of(trial, _without(schema, "unevaluatedItems"), value, place)
    extra = [
        each
        for at, each in enumerate(value)
        if at not in known and not trial.fits(given, each, place)
    ]
    if extra:
        words = f"Unevaluated items are not allowed ({{}} {_were(extra)} unexpected)"
        yield SchemaMisfit(place, words, (tuple(extra),))


def _without(schema: _Schema, word: str) -> _Schema:
    return {key: each for key, each in schema.items() if key != word}


_OF_ALL_NAMES: Final = ("additionalProperties", "unevaluatedProperties", "patternProperties")
_OF_ALL_ITEMS: Final = ("items", "unevaluatedItems")
"""The keywords that speak of every part, or may."""


def _spoken_of(trial: Trial, schema: Any, value: Any, place: SchemaPlace) -> Set[Any]:
    """The names or positions of the parts that a schema speaks of, with those inside it that the
    value fits."""
    if not isinstance(schema, dict):
        return frozenset()
    trial.spend(1 + len(schema) + len(value) // 4)
    is_object = isinstance(value, dict)
    if any(word in schema for word in (_OF_ALL_NAMES if is_object else _OF_ALL_ITEMS)):
        return frozenset(value if is_object else range(len(value)))
    found: set[Any] = set()
    if is_object:
        found.update(schema.get("properties", {}).keys() & value.keys())
    else:
        found.update(range(len(schema.get("prefixItems", ()))))
        if (wanted := schema.get("contains")) is not None:
            found.update(at for at, each in enumerate(value) if trial.fits(wanted, each, place))
    for part in _fitting(trial, schema, value, place):
        found |= _spoken_of(trial, part, value, place.inside())
    return found


def _fitting(trial: Trial, schema: _Schema, value: Any, place: SchemaPlace) -> Iterator[Any]:
    """The schemas inside a schema that are of the same value, and that it fits."""
    if (reference := schema.get("$ref")) is not None:
        yield trial.referred(reference)
    for word in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(word, ()):
            if trial.fits(part, value, place):
                yield part
    if (condition := schema.get("if")) is not None:
        is_met = trial.fits(condition, value, place)
        if is_met:
            yield condition
        if (part := schema.get("then" if is_met else "else")) is not None:
            yield part
    if isinstance(value, dict):
        for name, part in schema.get("dependentSchemas", {}).items():
            trial.spend(1)
            if name in value:
                yield part


KEYWORDS: Final[Mapping[str, Keyword]] = {
    "$ref": _ref,
    "additionalProperties": _additional,
    "allOf": _all_of,
    "anyOf": _any_of,
    "const": _const,
    "contains": _contains,
    "dependentRequired": _dependent,
    "dependentSchemas": _dependent_schemas,
    "enum": _enum,
    "exclusiveMaximum": _number(
        "greater than or equal to the maximum of", lambda value, most: value < most
    ),
    "exclusiveMinimum": _number(
        "less than or equal to the minimum of", lambda value, least: value > least
    ),
    "if": _if,
    "items": _items,
    "maxItems": _most(list, "is too long"),
    "maxLength": _most(str, "is too long"),
    "maxProperties": _most(dict, "has too many properties"),
    "maximum": _number("greater than the maximum of", lambda value, most: value <= most),
    "minItems": _least(list, "should be non-empty", "is too short"),
    "minLength": _least(str, "should be non-empty", "is too short"),
    "minProperties": _least(dict, "should be non-empty", "does not have enough properties"),
    "minimum": _number("less than the minimum of", lambda value, least: value >= least),
    "multipleOf": _multiple_of,
    "not": _not,
    "oneOf": _one_of,
    "prefixItems": _prefix_items,
    "properties": _properties,
    "propertyNames": _property_names,
    "required": _required,
    "type": _type,
    "unevaluatedItems": _unevaluated_items,
    "unevaluatedProperties": _unevaluated_properties,
}
