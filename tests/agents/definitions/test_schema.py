"""Which schemas are read, what they then accept, and what is said of the others (C-19)."""

import contextlib
import copy
import json
import re
import time
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct

from hubbub.agents.definitions.answers import AnswerReader
from hubbub.agents.definitions.arguments import Arguments, BadArguments
from hubbub.agents.definitions.schema import read_schema

pytestmark = pytest.mark.spec("C-19")


def top(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def accepts(schema: Any, value: Any) -> bool:
    parameters, _, problems = read_schema(schema)
    assert not problems, problems
    try:
        found = Arguments("agent", parameters).parse(json.dumps(value))
    except BadArguments:
        return False
    assert msgspec.to_builtins(found) == value, "what was accepted comes back unchanged"
    return True


def problems_of(schema: Any) -> tuple[str, ...]:
    parameters, shown, problems = read_schema(schema)
    assert (parameters, shown) == ((), {}) or not problems
    return problems


# ── a tiny checker of its own, and what to try it on ─────────────────────────────────────────

IS_OF: dict[str, Any] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def fits(schema: dict[str, Any], value: Any) -> bool:
    if "anyOf" in schema:
        return any(fits(each, value) for each in schema["anyOf"])
    if "enum" in schema:
        return any(type(each) is type(value) and each == value for each in schema["enum"])
    types = schema.get("type", list(IS_OF))
    if not any(IS_OF[each](value) for each in (types if isinstance(types, list) else [types])):
        return False
    match value:
        case bool() | None:
            return True
        case int() | float():
            return (
                schema.get("minimum", value) <= value <= schema.get("maximum", value)
                and not ("exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"])
                and not ("exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"])
                and value % schema.get("multipleOf", value or 1) == 0
            )
        case str():
            return schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 99) and bool(
                re.search(schema.get("pattern", ""), value)
            )
        case list():
            return schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", 99) and all(
                fits(schema.get("items", {}), each) for each in value
            )
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    if others is None:
        others = False if "properties" in schema else {}
    return all(each in value for each in schema.get("required", ())) and all(
        fits(known[name], each)
        if name in known
        else others is not False and fits({} if others is True else others, each)
        for name, each in value.items()
    )


names = st.sampled_from(["a", "b", "__class__", "p0", "not a name", "é"])
small = st.integers(0, 3)
bounds = st.integers(-3, 3) | st.sampled_from([-1.5, 0.5, 2.5])
numeric = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number"])},
    optional={
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), bounds),
        "multipleOf": st.integers(1, 3),
    },
)
texts = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={"minLength": small, "maxLength": small, "pattern": st.sampled_from(["a", "^b+"])},
)
listed = st.sampled_from(["a", "b", 0, 1, 2, True, False, None])
leaves = st.one_of(
    numeric,
    texts,
    st.sampled_from([{}, {"type": "boolean"}, {"type": ["null", "string"], "title": "T"}]),
    st.fixed_dictionaries({"enum": st.lists(listed, min_size=1, max_size=4)}),
)


def objects(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    made = st.dictionaries(names, parts, max_size=3)
    return made.flatmap(
        lambda known: st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.just(known),
                "required": st.lists(st.sampled_from(sorted(known) or ["a"]), unique=True)
                if known
                else st.just([]),
            },
            optional={"additionalProperties": st.just(False)},
        )
    )


schemas = st.recursive(
    leaves,
    lambda parts: st.one_of(
        objects(parts),
        st.fixed_dictionaries(
            {"type": st.just("array")},
            optional={"items": parts, "minItems": small, "maxItems": small},
        ),
        st.fixed_dictionaries(
            {"type": st.just("object")}, optional={"additionalProperties": parts | st.booleans()}
        ),
        st.fixed_dictionaries({"anyOf": st.lists(parts, min_size=1, max_size=3)}),
    ),
    max_leaves=5,
)
scalars = st.one_of(
    listed, st.integers(-5, 5), st.sampled_from([0.5, 2.0, -1.5, 10**20]), st.text("ab", max_size=4)
)
values = st.recursive(
    scalars,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(names, parts, max_size=3),
    max_leaves=5,
)


def likely(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that often fit ``schema``."""
    if "anyOf" in schema:
        return st.one_of([likely(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("type") == "array":
        return st.lists(likely(schema.get("items", {})), max_size=3)
    if schema.get("type") == "object":
        known = {name: likely(part) for name, part in schema.get("properties", {}).items()}
        required = {name: known[name] for name in schema.get("required", ())}
        others = {name: part for name, part in known.items() if name not in required}
        if "properties" in schema:
            return st.fixed_dictionaries(required, optional=others)
        part = schema.get("additionalProperties")
        return st.dictionaries(names, likely(part if isinstance(part, dict) else {}), max_size=2)
    return scalars


# ── claims ───────────────────────────────────────────────────────────────────────────────────


@given(objects(schemas), st.data())
def test_what_is_accepted_is_what_the_schema_says(schema: dict[str, Any], data: Any) -> None:
    problems = problems_of(schema)
    # Generated schemas are all supported, but for branches that msgspec would mix up.
    told = re.compile("a second branch for|a string with a pattern cannot")
    assert all(told.search(each) for each in problems), problems
    if not problems:
        value = data.draw(likely(schema) | st.dictionaries(names, values, max_size=3))
        assert accepts(schema, value) == fits(schema, value)


@given(objects(schemas))
def test_shown_schema_is_a_copy_closed_at_every_depth(schema: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    _, shown, problems = read_schema(schema)
    assert schema == before

    def closed(part: Any) -> Any:
        if isinstance(part, list):
            return [closed(each) for each in part]
        if not isinstance(part, dict):
            return part
        made = {key: closed(each) for key, each in part.items()}
        return {"additionalProperties": False} | made if "properties" in part else made

    assert shown == ({} if problems else closed(schema))


def test_data_that_looks_like_a_schema_is_not_closed() -> None:
    look = {"properties": {"type": "object"}}
    _, shown, problems = read_schema(top(a={"default": look, "examples": [look]}))
    assert not problems
    assert shown["properties"]["a"] == {"default": look, "examples": [look]}


@pytest.mark.parametrize("wrap", [
    lambda inner: inner,
    lambda inner: top(a=inner),
    lambda inner: top(a={"type": "array", "items": inner}),
    lambda inner: top(a={"type": "object", "additionalProperties": inner}),
    lambda inner: top(a={"anyOf": [{"type": "null"}, inner]}),
])  # fmt: skip
def test_unknown_fields_are_refused_at_every_depth(wrap: Any) -> None:
    schema = top(a=wrap(top(known={"type": "string"})))

    def value(part: Any, *extra: str) -> Any:
        if "anyOf" in part:
            return value(part["anyOf"][1], *extra)
        if part["type"] == "array":
            return [value(part["items"], *extra)]
        if part["type"] == "string":
            return "x"
        if isinstance(part.get("additionalProperties"), dict):
            return {"any": value(part["additionalProperties"], *extra)}
        found = {name: value(each, *extra) for name, each in part["properties"].items()}
        return found | dict.fromkeys(extra if "known" in found else (), 1)

    assert accepts(schema, value(schema))
    assert not accepts(schema, value(schema, "stray"))


NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}


@pytest.mark.parametrize(
    "schema",
    [
        top(next={"$ref": "#"}),
        {**top(next={"$ref": "#/$defs/node"}), "$defs": {"node": NODE}},
        {**top(next={"$ref": "#/definitions/node"}), "definitions": {
            "node": {"type": "array", "items": {"$ref": "#/definitions/node"}}}},
        {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
        {**top(a={"$ref": "#/$defs/b"}), "$defs": {
            "b": top(c={"$ref": "#/$defs/d"}), "d": {"anyOf": [{"$ref": "#/$defs/b"}]}}},
    ],
)  # fmt: skip
def test_a_schema_that_refers_to_itself_is_refused_as_such(schema: dict[str, Any]) -> None:
    said = "it refers to itself; give a Struct, dataclass or TypedDict that holds itself"
    assert problems_of(schema) == (said,)
    (of_output,) = read_schema(schema, is_made=True)[2]
    assert "give a Struct, dataclass, TypedDict or pydantic model that holds" in of_output


def test_shared_parts_that_are_not_referred_to_may_refer_to_themselves() -> None:
    assert problems_of({**top(a={"type": "string"}), "$defs": {"node": NODE}}) == ()
    assert problems_of(top(a={"type": "object", "default": {"$ref": "#"}})) == ()


@pytest.mark.parametrize("output", [int, int | str, list[int]], ids=str)
def test_what_is_no_type_with_fields_is_refused_with_what_is(output: Any) -> None:
    (problem,) = read_schema(output, is_made=True)[2]
    assert "a Struct, dataclass, TypedDict or pydantic model of named fields" in problem


UNSUPPORTED = (
    "$ref", "$defs", "oneOf", "allOf", "not", "if", "then", "else", "patternProperties",
    "uniqueItems", "prefixItems", "minProperties", "dependentRequired", "nullable", "contains",
)  # fmt: skip


@given(st.lists(st.sampled_from(UNSUPPORTED), min_size=1, unique=True))
def test_every_unsupported_keyword_is_named_with_its_path(keywords: list[str]) -> None:
    odd: dict[str, Any] = {key: [] for key in keywords}
    schema = top(
        size=odd,
        tags={"type": "array", "items": odd},
        some={"type": "object", "additionalProperties": odd},
        either={"anyOf": [{"type": "null"}, {"type": "string", **odd}]},
        box={"type": "object", "properties": {"in": odd}},
    )
    where = (
        "properties.size",
        "properties.tags.items",
        "properties.some.additionalProperties",
        "properties.either.anyOf[1]",
        "properties.box.properties.in",
    )
    found = [each.split(": ")[0] for each in problems_of({**schema, **odd})]
    assert sorted(found) == sorted(
        [*keywords, *(f"{at}.{key}" for at in where for key in keywords)]
    )


@pytest.mark.parametrize(("part", "problem"), [
    ({"oneOf": []}, "a.oneOf: not supported; use anyOf"),
    ({"type": "text"}, "a.type: "),
    ({"type": []}, "a.type: "),
    ({"minimum": 1}, "a.minimum: needs the type integer or number"),
    ({"type": "string", "minimum": 1}, "a.minimum: needs the type integer or number"),
    ({"type": "integer", "minimum": "1"}, "a.minimum: "),
    ({"type": "integer", "exclusiveMinimum": True}, "a.exclusiveMinimum: "),
    ({"type": "integer", "minimum": 2**70}, "a: "),
    ({"type": "number", "minimum": 2**53 + 1}, "a: "),
    ({"type": "number", "multipleOf": 0.1}, "a.multipleOf: "),
    ({"type": "number", "multipleOf": 0}, "a.multipleOf: "),
    ({"type": "string", "minLength": -1}, "a.minLength: "),
    ({"type": "string", "pattern": "("}, "a: "),
    ({"type": "array", "items": [{}]}, "a.items: "),
    ({"type": "array", "items": {"type": 1}}, "a.items.type: "),
    ({"enum": []}, "a.enum: "),
    ({"enum": [1.5]}, "a.enum: "),
    ({"enum": [{}]}, "a.enum: "),
    ({"enum": [2**70]}, "a.enum: "),
    ({"const": []}, "a.const: "),
    ({"type": "string", "enum": ["a", None]}, "a.enum: None is not of the type"),
    ({"type": "integer", "enum": [1], "minimum": 1}, "a.minimum: cannot stand beside enum"),
    ({"anyOf": []}, "a.anyOf: "),
    ({"type": "string", "anyOf": [{}]}, "a.type: cannot stand beside anyOf"),
    ({"anyOf": [top(), top(b={})]}, "a.anyOf[1]: a second branch for object; make them one"),
    ({"anyOf": [{"type": "integer", "minimum": 3}, {"type": "number"}]}, "a.anyOf[1]: "),
    ({"anyOf": [{"const": "a"}, {"type": "string"}]}, "a.anyOf[1]: a second branch for string"),
    ({**top(b={}), "additionalProperties": True}, "a.additionalProperties: must be false"),
    ({**top(b={}), "required": ["c"]}, "a.required: 'c' is not among the properties"),
    ({"type": "object", "properties": {'"': {}}}, "a: "),
    ({"type": "object", "properties": {"b": True}}, "a.properties.b: expected a schema"),
    ({"type": "object", "properties": {1: {}}}, "a.properties.1: a name must be a string"),
    ({"type": ["string", "array"], "pattern": "a"}, "a: a string with a pattern cannot stand"),
    ({"anyOf": [{"type": "object"}, {"type": "string", "pattern": "a"}]}, "a: a string with a"),
    ({"default": object()}, "a.default: "),
    ({"default": float("nan")}, "a.default: "),
])  # fmt: skip
def test_what_cannot_be_read_faithfully_is_one_problem(part: Any, problem: str) -> None:
    (found,) = problems_of(top(a=part))
    assert found.startswith(f"properties.{problem}")


@pytest.mark.parametrize("schema", [
    {}, {"type": "object"}, {"type": "array"}, {"anyOf": [top()]}, {"properties": {}},
    {**top(), "type": ["object"]}, {**top(), "additionalProperties": {}}, {"enum": [1]},
    [1], None, 3, "object", object(), int, dict, object, type, Literal["a"], list[int],
])  # fmt: skip
def test_the_top_must_be_an_object_of_known_fields(schema: Any) -> None:
    assert problems_of(schema)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda parts: st.one_of(
        st.lists(parts, max_size=3),
        st.dictionaries(st.sampled_from(sorted({"type", "properties", "items", "anyOf", "enum",
            "const", "required", "additionalProperties", "minimum", "exclusiveMaximum",
            "multipleOf", "minLength", "pattern", "maxItems", "$ref"})) | st.integers(),
            parts | st.sampled_from([*IS_OF, *([each] for each in IS_OF)]), max_size=4),
    ),
)  # fmt: skip


@given(anything, st.dictionaries(st.text() | st.integers(), anything, max_size=3))
def test_garbage_never_raises(garbage: Any, properties: Any) -> None:
    read_schema(garbage)
    for schema in ({"type": "object", "properties": properties}, top(a=garbage, b=garbage)):
        parameters, _, problems = read_schema(schema)
        if not problems:
            with contextlib.suppress(BadArguments):
                Arguments("agent", parameters).parse("{}")


def test_endless_schemas_are_a_problem() -> None:
    schema: dict[str, Any] = top(a={})
    schema["properties"]["a"] = schema["properties"]["b"] = schema
    assert "nested" in problems_of(schema)[0]


def test_optional_parameters_are_left_out_and_null_is_not_the_same() -> None:
    schema = {**top(a={"type": "string", "description": "The A."}, b={}), "required": ["b"]}
    (a, b), _, _ = read_schema(schema)
    assert (a.name, a.default, a.description, a.is_required) == ("a", UNSET, "The A.", False)
    assert b.is_required
    assert accepts(schema, {"b": None})
    assert not accepts(schema, {"a": None, "b": 1})


# ── types ────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Place:
    city: Annotated[str, "Its name."]
    tags: list[str] = field(default_factory=list)


class Order(Struct, rename="camel"):
    ship_to: Place
    count: Annotated[int, Meta(ge=1)] = 1


class Wish(TypedDict):
    place: Place
    why: NotRequired[str]


class Row(Struct, array_like=True):
    cell: int


class Careful(Struct):
    count: int

    def __post_init__(self) -> None: ...


class Opaque(Struct):
    thing: Any
    other: contextlib.ExitStack
    third: contextlib.ExitStack


@pytest.mark.parametrize(("cls", "good", "stray"), [
    (Place, {"city": "Paris"}, {"city": "Paris", "x": 1}),
    (Order, {"shipTo": {"city": "P", "tags": []}}, {"shipTo": {"city": "P", "x": 1}}),
    (Wish, {"place": {"city": "P", "tags": ["a"]}, "why": "w"}, {"place": {"city": "P", "x": 1}}),
])  # fmt: skip
def test_fields_of_a_type_are_the_parameters(cls: type, good: Any, stray: Any) -> None:
    assert accepts(cls, good)
    assert not accepts(cls, stray)
    assert not accepts(cls, {})
    _, shown, _ = read_schema(cls)
    parts = [shown, *shown.get("$defs", {}).values()]
    assert all(each["additionalProperties"] is False for each in parts)


def test_type_tells_names_defaults_and_texts() -> None:
    (city, tags), shown, _ = read_schema(Place)
    assert (city.name, city.description, city.is_required) == ("city", "Its name.", True)
    assert (tags.name, tags.is_required) == ("tags", False)
    assert shown["properties"]["city"]["description"] == "Its name."
    assert [each.name for each in read_schema(Order)[0]] == ["shipTo", "count"]
    assert read_schema(Order)[1]["properties"]["count"]["default"] == 1


def test_types_that_are_no_record_of_fields_or_do_more_are_a_problem() -> None:
    assert "Row" in problems_of(Row)[0]
    assert problems_of(Careful)[0].startswith("__post_init__: ")
    assert [each.split(":")[0] for each in problems_of(Opaque)] == ["other", "third"]


@pytest.mark.parametrize(
    "of",
    [
        lambda words: {"enum": words},
        lambda words: {"anyOf": [{"const": word} for word in words]},
        lambda words: {
            "type": "object", "properties": {x: {} for x in words[::100]}, "required": words[::100],
        },
    ],
)  # fmt: skip
def test_a_schema_of_very_many_values_costs_what_its_values_cost(of: Any) -> None:
    """With a copy of all values for each one it would take minutes: 103 s for 200,000."""
    words = [f"word-{number}" for number in range(40_000)]
    started = time.process_time()
    AnswerReader(of(words[:4_000]))
    small = time.process_time() - started
    started = time.process_time()
    AnswerReader(of(words))
    assert time.process_time() - started < 30 * max(small, 0.02)
