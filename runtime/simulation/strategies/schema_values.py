"""Values that a JSON Schema describes, for the arguments of tools.

Of the schema it reads what ``@tool`` and ``required_schema`` write (agents/definitions/schema.py).
What it does not know is any value: for exactness ask the tool itself.
"""

from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from hubbub.runtime.simulation.strategies.event_strategies import json_values

__all__ = ["values_of"]

MAX_ITEMS: Final = 3
_WORDS: Final = ("a", "parcel", "order 7", "été")

Schema = Mapping[str, Any]


def values_of(schema: Schema) -> SearchStrategy[Any]:
    """Values that fit ``schema``, small ones first; optional properties may be left out."""
    return _values(schema, schema.get("$defs", {}), depth=0)


def _values(schema: Schema, defs: Schema, depth: int) -> SearchStrategy[Any]:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return st.deferred(lambda: _values(defs[name], defs, depth + 1))
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(list(schema["enum"]))
    if branches := schema.get("anyOf", schema.get("oneOf")):
        return st.one_of(*(_values(each, defs, depth) for each in branches))
    kinds = schema.get("type", ())
    if not isinstance(kinds, str):
        return st.one_of(*(_typed(kind, schema, defs, depth) for kind in kinds or ("any",)))
    return _typed(kinds, schema, defs, depth)


def _typed(kind: str, schema: Schema, defs: Schema, depth: int) -> SearchStrategy[Any]:
    match kind:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer":
            return _integers(schema)
        case "number":
            low, high = _limits(schema)
            return st.floats(low, high, allow_nan=False, allow_infinity=False, width=32)
        case "string":
            return _texts(schema)
        case "array":
            items = _values(schema.get("items", {}), defs, depth)
            least = int(schema.get("minItems", 0))
            most = int(schema.get("maxItems", max(MAX_ITEMS, least)))
            return st.lists(items, min_size=least, max_size=min(most, least + MAX_ITEMS))
        case "object":
            return _objects(schema, defs, depth)
    return json_values()


def _integers(schema: Schema) -> SearchStrategy[int]:
    low, high = _limits(schema)
    step = int(schema.get("multipleOf", 1)) or 1
    least, most = -(-int(low) // step), int(high) // step
    return st.integers(least, most).map(lambda number: number * step)


def _limits(schema: Schema) -> tuple[float, float]:
    whole = schema.get("type") == "integer"
    step = 1 if whole else 0.5
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1_000 - step) + step)
    high = schema.get("maximum", schema.get("exclusiveMaximum", max(low, 0) + 1_000 + step) - step)
    return (min(low, high), high)


def _texts(schema: Schema) -> SearchStrategy[str]:
    if "pattern" in schema:
        return st.from_regex(str(schema["pattern"]))
    least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
    words = [word for word in _WORDS if len(word) >= least and (most is None or len(word) <= most)]
    if words:
        return st.sampled_from(words)
    return st.text("abc", min_size=least, max_size=most)


def _objects(schema: Schema, defs: Schema, depth: int) -> SearchStrategy[dict[str, Any]]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    if not properties:
        others = schema.get("additionalProperties")
        inner = _values(others, defs, depth) if isinstance(others, Mapping) else json_values()
        return st.dictionaries(st.sampled_from(_WORDS), inner, max_size=MAX_ITEMS)
    required = schema.get("required", ())
    fields = {name: _values(each, defs, depth) for name, each in properties.items()}
    # What refers to itself would continue forever, if it did not become less likely.
    left = {} if depth > MAX_ITEMS else {k: v for k, v in fields.items() if k not in required}
    return st.fixed_dictionaries({name: fields[name] for name in required}, optional=left)
