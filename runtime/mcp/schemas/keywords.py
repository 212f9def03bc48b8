"""What the keywords of JSON Schema demand of a value, in 2020-12 and in older dialects.

Which dialect has which keyword is in ``vocabulary.py``.
"""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

from hubbub.runtime.mcp.schemas.dialect import SchemaDialect
from hubbub.runtime.mcp.schemas.trial import (
    GivenUp,
    Keyword,
    Problem,
    SchemaMisfit,
    SchemaPlace,
    Trial,
    TrialOutcome,
)

__all__ = ["COMMON"]

_Schema = dict[str, Any]
_Found = Iterator[Problem]

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
    fitting = {kind for kind in kinds if _KINDS[kind](value)}
    if not fitting:
        yield SchemaMisfit(place, "{} is not of type {}", (value, tuple(kinds)))
    elif (
        trial.dialect is SchemaDialect.DRAFT_4
        and fitting == {"integer"}
        and isinstance(value, float)
    ):
        yield None  # 1.0 is no integer there, where whoever reads it can tell it from 1.


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
    is_known = True
    for each in _schemas(given):
        outcome = trial.outcome(each, value, place)
        if outcome is TrialOutcome.FITS:
            return
        is_known = is_known and outcome is TrialOutcome.MISFIT
    yield SchemaMisfit(place, _NONE_FITS, (value,)) if is_known else None


def _one_of(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    fitting, is_known = [], True
    for each in _schemas(given):
        outcome = trial.outcome(each, value, place)
        if outcome is TrialOutcome.FITS:
            fitting.append(each)
        is_known = is_known and outcome is not TrialOutcome.UNKNOWN
    if len(fitting) > 1:
        several = (*fitting[1:], fitting[0])
        yield SchemaMisfit(place, "{} is valid under each of {}", (value, several))
    elif not is_known:
        yield None
    elif not fitting:
        yield SchemaMisfit(place, _NONE_FITS, (value,))


_NONE_FITS: Final = "{} is not valid under any of the given schemas"


def _not(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    outcome = trial.outcome(given, value, place)
    if outcome is TrialOutcome.FITS:
        yield SchemaMisfit(place, "{} should not be valid under {}", (value, given))
    elif outcome is TrialOutcome.UNKNOWN:
        yield None


def _if(trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace) -> _Found:
    outcome = trial.outcome(given, value, place)
    if outcome is not TrialOutcome.UNKNOWN:
        branch = "then" if outcome is TrialOutcome.FITS else "else"
        if branch in schema:
            yield from trial.problems(schema[branch], value, place.inside())
        return
    both = {trial.outcome(schema.get(branch, True), value, place) for branch in ("then", "else")}
    if both == {TrialOutcome.MISFIT}:
        yield SchemaMisfit(place, _NONE_FITS, (value,))
    elif both != {TrialOutcome.FITS}:
        yield None


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


def _exclusive(bound: str, words: str, fits: Callable[[Any, Any], bool]) -> Keyword:
    """A number of its own; in draft 4, whether that of another keyword is left out itself."""
    of_number = _number(words, fits)

    def keyword(
        trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
    ) -> _Found:
        if isinstance(given, bool) is not (trial.dialect is SchemaDialect.DRAFT_4):
            yield None
        elif given is True:
            if bound in schema:
                yield from of_number(trial, schema[bound], value, schema, place)
        elif given is not False:
            yield from of_number(trial, given, value, schema, place)

    return keyword


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
    if not isinstance(given, list):
        yield from _items_after(trial, given, value, len(schema.get("prefixItems", ())), place)
    elif trial.dialect is SchemaDialect.DRAFT_2020_12:
        yield None
    else:
        yield from _prefix_items(trial, given, value, schema, place)


def _additional_items(
    trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
) -> _Found:
    if isinstance(before := schema.get("items"), list):
        yield from _items_after(trial, given, value, len(before), place)


def _items_after(trial: Trial, given: Any, value: Any, first: int, place: SchemaPlace) -> _Found:
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
    if trial.dialect <= SchemaDialect.DRAFT_7 and (
        "minContains" in schema or "maxContains" in schema
    ):
        yield None
        return
    least, most = schema.get("minContains", 1), schema.get("maxContains", len(value))
    sure = unknown = 0
    for each in value:
        outcome = trial.outcome(given, each, place)
        sure += outcome is TrialOutcome.FITS
        unknown += outcome is TrialOutcome.UNKNOWN
        if sure > most:
            words = "Too many items match the given schema (expected at most {})"
            yield SchemaMisfit(place, words, (most,))
            return
    count = sure + unknown
    if count < least and not count:
        yield SchemaMisfit(place, "{} does not contain items matching the given schema", (value,))
    elif count < least:
        words = "Too few items match the given schema (expected at least {} but only {} matched)"
        yield SchemaMisfit(place, words, (least, count))
    elif sure < least or count > most:
        yield None


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
    if not isinstance(value, dict) or given is True:
        return
    trial.spend(len(value) // 4)
    known = schema.get("properties", {})
    if not isinstance(known, dict):
        raise GivenUp
    extra = [name for name in value if name not in known]
    if extra and schema.get("patternProperties"):
        yield None  # Any of them may be one of those.
    elif given is not False:
        for name in extra:
            yield from trial.problems(given, value[name], place.inside(name))
    elif extra:
        were = "was" if len(extra) == 1 else "were"
        words = f"Additional properties are not allowed ({{}} {were} unexpected)"
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


def _dependencies(
    trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
) -> _Found:
    """Names and schemas, as they were before each had a keyword."""
    if isinstance(value, dict):
        trial.spend(len(given))
        for name, part in given.items():
            if name in value:
                keyword = _dependent if isinstance(part, list) else _dependent_schemas
                yield from keyword(trial, {name: part}, value, schema, place)


COMMON: Final[Mapping[str, Keyword]] = {
    "$ref": _ref,
    "additionalItems": _additional_items,
    "additionalProperties": _additional,
    "allOf": _all_of,
    "anyOf": _any_of,
    "const": _const,
    "contains": _contains,
    "dependencies": _dependencies,
    "dependentRequired": _dependent,
    "dependentSchemas": _dependent_schemas,
    "enum": _enum,
    "exclusiveMaximum": _exclusive(
        "maximum", "greater than or equal to the maximum of", lambda value, most: value < most
    ),
    "exclusiveMinimum": _exclusive(
        "minimum", "less than or equal to the minimum of", lambda value, least: value > least
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
}
"""Those of which each is told by itself."""
