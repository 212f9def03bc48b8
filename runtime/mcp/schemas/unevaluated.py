"""What is demanded of the parts of a value that no other keyword of its schema speaks of."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from hubbub.runtime.mcp.schemas.dialect import SchemaDialect
from hubbub.runtime.mcp.schemas.trial import (
    Keyword,
    Problem,
    SchemaMisfit,
    SchemaPlace,
    Trial,
    TrialOutcome,
)

__all__ = ["UNEVALUATED"]

_Schema = dict[str, Any]
_Found = Iterator[Problem]


class _Spoken(NamedTuple):
    """The names or positions of the parts that a schema speaks of, with those schemas inside it
    that the value fits."""

    surely: set[Any]
    maybe: set[Any]


def _unevaluated_properties(
    trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
) -> _Found:
    if not isinstance(value, dict):
        return
    spoken = _spoken_of(trial, _without(schema, "unevaluatedProperties"), value, place)
    extra, is_known = _extra(trial, given, value.items(), spoken, place)
    if not is_known:
        yield None
    were = "was" if len(extra) == 1 else "were"
    if extra and given is False:
        words = f"Unevaluated properties are not allowed ({{}} {were} unexpected)"
        yield SchemaMisfit(place, words, (tuple(extra),))
    elif extra:
        words = (
            "Unevaluated properties are not valid under the given schema "
            f"({{}} {were} unevaluated and invalid)"
        )
        yield SchemaMisfit(place, words, (tuple(extra),))


def _unevaluated_items(
    trial: Trial, given: Any, value: Any, schema: _Schema, place: SchemaPlace
) -> _Found:
    if not isinstance(value, list):
        return
    spoken = _spoken_of(trial, _without(schema, "unevaluatedItems"), value, place)
    extra, is_known = _extra(trial, given, enumerate(value), spoken, place)
    if not is_known:
        yield None
    if extra:
        were = "was" if len(extra) == 1 else "were"
        words = f"Unevaluated items are not allowed ({{}} {were} unexpected)"
        yield SchemaMisfit(place, words, (tuple(value[at] for at in extra),))


def _without(schema: _Schema, word: str) -> _Schema:
    return {key: each for key, each in schema.items() if key != word}


def _extra(
    trial: Trial,
    given: Any,
    parts: Iterable[tuple[Any, Any]],
    spoken: _Spoken,
    place: SchemaPlace,
) -> tuple[list[Any], bool]:
    """The parts that surely do not fit, and whether all is known of the others."""
    extra, is_known = [], True
    for key, each in parts:
        if key in spoken.surely:
            continue
        outcome = trial.outcome(given, each, place)
        if outcome is TrialOutcome.MISFIT and key not in spoken.maybe:
            extra.append(key)
        elif outcome is not TrialOutcome.FITS:
            is_known = False
    return extra, is_known


_MAYBE_OF_ALL: Final = ("$dynamicRef", "$recursiveRef", "additionalItems", "dependencies")
"""Left to the server, and they may speak of any part."""


def _spoken_of(trial: Trial, schema: Any, value: Any, place: SchemaPlace) -> _Spoken:
    spoken = _Spoken(set(), set())
    if not isinstance(schema, dict):
        return spoken
    trial.spend(1 + len(schema) + len(value) // 4)
    if trial.is_foreign(schema):
        spoken.maybe.update(_keys(value))
    elif _speaks_of_all(trial, schema, value):
        spoken.surely.update(_keys(value))
    else:
        if any(word in schema for word in _MAYBE_OF_ALL):
            spoken.maybe.update(_keys(value))
        if isinstance(value, dict):
            _add_names(schema, value, spoken)
        else:
            _add_items(trial, schema, value, spoken, place)
        for part, is_surely in _fitting(trial, schema, value, place):
            inside = _spoken_of(trial, part, value, place.inside())
            (spoken.surely if is_surely else spoken.maybe).update(inside.surely)
            spoken.maybe.update(inside.maybe)
    return spoken


def _keys(value: Any) -> Iterable[Any]:
    return value if isinstance(value, dict) else range(len(value))


def _speaks_of_all(trial: Trial, schema: _Schema, value: Any) -> bool:
    """Whether a schema has a keyword for every part that the others leave."""
    if isinstance(value, dict):
        return "additionalProperties" in schema or "unevaluatedProperties" in schema
    if isinstance(schema.get("items"), list):
        is_older = trial.dialect is SchemaDialect.DRAFT_2019_09
        return "unevaluatedItems" in schema or (is_older and "additionalItems" in schema)
    return "items" in schema or "unevaluatedItems" in schema


def _add_names(schema: _Schema, value: dict[str, Any], spoken: _Spoken) -> None:
    spoken.surely.update(schema.get("properties", {}).keys() & value.keys())
    if schema.get("patternProperties"):
        spoken.maybe.update(value)


def _add_items(
    trial: Trial, schema: _Schema, value: list[Any], spoken: _Spoken, place: SchemaPlace
) -> None:
    """``prefixItems`` is ``items`` in 2019-09, where ``contains`` says nothing of the rest; some
    implementations take it otherwise."""
    is_older = trial.dialect is SchemaDialect.DRAFT_2019_09
    first = _first(schema.get("prefixItems", ()), value)
    if isinstance(listed := schema.get("items"), list):
        if is_older:
            spoken.surely.update(_first(listed, value))
        else:
            spoken.maybe.update(_keys(value))
    (spoken.maybe if is_older else spoken.surely).update(first)
    if (wanted := schema.get("contains")) is not None:
        for at, each in enumerate(value):
            outcome = trial.outcome(wanted, each, place)
            if outcome is TrialOutcome.FITS and not is_older:
                spoken.surely.add(at)
            elif outcome is not TrialOutcome.MISFIT:
                spoken.maybe.add(at)


def _first(listed: Any, value: list[Any]) -> Iterable[int]:
    return range(min(len(listed), len(value)))


def _fitting(
    trial: Trial, schema: _Schema, value: Any, place: SchemaPlace
) -> Iterator[tuple[Any, bool]]:
    """The schemas inside a schema that are of the same value and that it fits, or may fit; and
    whether it surely does."""
    if (reference := schema.get("$ref")) is not None:
        yield trial.referred(reference), True
    for word in ("allOf", "anyOf", "oneOf"):
        for part in schema.get(word, ()):
            outcome = trial.outcome(part, value, place)
            if outcome is not TrialOutcome.MISFIT:
                yield part, outcome is TrialOutcome.FITS
    if (condition := schema.get("if")) is not None:
        outcome = trial.outcome(condition, value, place)
        is_known = outcome is not TrialOutcome.UNKNOWN
        if outcome is not TrialOutcome.MISFIT:
            yield condition, is_known
            yield schema.get("then", True), is_known
        if outcome is not TrialOutcome.FITS:
            yield schema.get("else", True), is_known
    if isinstance(value, dict):
        for name, part in schema.get("dependentSchemas", {}).items():
            trial.spend(1)
            if name in value:
                yield part, True


UNEVALUATED: Final[Mapping[str, Keyword]] = {
    "unevaluatedItems": _unevaluated_items,
    "unevaluatedProperties": _unevaluated_properties,
}
