"""Which arguments are taken, what they become, and what a refusal tells the model (D-04)."""

import contextlib
import enum
import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from hubbub import external_tool
from hubbub.agents.definitions.tools import MAX_ARGUMENTS_CHARS, BadArguments, Tool, tool

pytestmark = pytest.mark.spec("D-04")


class Unit(enum.Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


@dataclass
class Place:
    """Where it is."""

    city: str
    zip: str | None = None
    tags: list[str] = field(default_factory=list)


class Leg(TypedDict):
    to: Place
    by: NotRequired[Literal["train", "foot"]]


class Point(NamedTuple):
    x: float
    y: float = 0.0


class Circle(Struct, tag="circle"):
    centre: Point
    radius: Annotated[float, Meta(gt=0)] = 1.0


class Square(Struct, tag="square"):
    side: float
    at: Place | None = None


@dataclass
class Tree:
    name: str
    children: list["Tree"] = field(default_factory=list)


@tool
def plan(
    start: Place,
    legs: list[Leg],
    unit: Unit = Unit.CELSIUS,
    shape: Circle | Square | None = None,
    points: tuple[Point, ...] = (),
    days: Annotated[int, Meta(ge=1, le=30)] = 3,
    named: dict[str, Place] | None = None,
    extra: dict[str, Any] | None = None,
    pair: tuple[int, str] = (1, "a"),
    either: int | str | bool | None = None,
    tree: Tree | None = None,
) -> str:
    """Plan a journey."""
    return start.city


@tool
def weather(city: str, days: int = 3) -> str:
    """Weather for a city."""
    return f"{city} {days}"


def refusal(of: Tool[..., Any], arguments: str) -> str:
    with pytest.raises(BadArguments) as caught:
        of.parse(arguments)
    return caught.value.message


def objects_in(schema: Any) -> list[dict[str, Any]]:
    """Every subschema of an object with known fields (no test type has a field "properties")."""
    found = []
    if isinstance(schema, dict):
        found += [schema] if "properties" in schema else []
        found += [each for part in schema.values() for each in objects_in(part)]
    elif isinstance(schema, list):
        found += [each for part in schema for each in objects_in(part)]
    return found


def test_objects_are_closed_at_every_depth() -> None:
    assert len(objects_in(plan.schema)) == 6
    assert all(each["additionalProperties"] is False for each in objects_in(plan.schema))


def test_references_resolve_inside_the_schema_and_all_of_it_is_json() -> None:
    text = json.dumps(plan.schema, allow_nan=False)
    refs = {part.split('"')[0] for part in text.split('"$ref": "')[1:]}
    assert refs
    assert all(ref.removeprefix("#/$defs/") in plan.schema["$defs"] for ref in refs)


def test_arguments_have_their_declared_types_and_omitted_ones_are_left_out() -> None:
    assert weather.parse('{"city": "Paris"}') == {"city": "Paris"}
    found = plan.parse(
        '{"start": {"city": "Rome"}, "legs": [{"to": {"city": "Bari"}}], "unit": "f"}'
    )
    assert found == {
        "start": Place("Rome"),
        "legs": [{"to": Place("Bari")}],
        "unit": Unit.FAHRENHEIT,
    }


def test_each_parse_gives_fresh_values() -> None:
    @tool
    def fn(a: list[int]) -> None: ...

    fn.parse('{"a": [1]}')["a"].append(2)
    assert fn.parse('{"a": [1]}') == {"a": [1]}


def test_empty_text_counts_as_no_arguments() -> None:
    @tool
    def now() -> str:
        return ""

    assert now.parse("") == now.parse("{}") == {}
    assert "missing field `city`" in refusal(weather, "")


def test_parameters_may_have_awkward_names() -> None:
    def fn(__a: int, __class__: int, p1: int, self: int) -> None: ...

    arguments = dict.fromkeys(("__a", "__class__", "p1", "self"), 1)
    assert tool(fn).parse(json.dumps(arguments)) == arguments


def test_all_unknown_and_missing_names_are_told_at_once_with_the_known_ones() -> None:
    assert refusal(weather, '{"town": "Paris", "day": 1}') == (
        "Bad arguments for weather:\n"
        "- unknown field `town`; known fields: `city`, `days`\n"
        "- unknown field `day`; known fields: `city`, `days`\n"
        "- missing field `city`\n"
        "Correct the arguments and call weather again."
    )


START = '{"start": {"city": "Rome"}, "legs": [], '


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ('"start": {"city": "x", "q": 1}', "`start`: unknown field `q`; known fields: `city`"),
        ('"legs": [{"to": {"city": "x", "q": 1}}]', "`legs[0].to`: unknown field `q`"),
        ('"legs": [{"to": {"city": "x"}, "q": 1}]', "`legs[0]`: unknown field `q`"),
        ('"named": {"a": {"city": "x", "q": 1}}', "`named.a`: unknown field `q`"),
        ('"shape": {"type": "square", "side": 1, "q": 1}', "`shape`: unknown field `q`"),
        (
            '"shape": {"type": "square", "side": 1, "at": {"city": "x", "q": 1}}',
            "`shape.at`: unknown field `q`",
        ),
        (
            '"tree": {"name": "a", "children": [{"name": "b", "q": 1}]}',
            "`tree.children[0]`: unknown field `q`; known fields: `name`, `children`",
        ),
        ('"start": {}', "`start`: missing field `city`"),
        ('"start": {"city": 1}', "`start.city`: expected `str`, got `int`"),
        ('"days": 31', "`days`: expected `int` <= 30"),
        ('"unit": "k"', "`unit`: 'k' is not one of 'c', 'f'"),
        ('"legs": [{"to": {"city": "x"}, "by": "car"}]', "`legs[0].by`: 'car' is not one of"),
        ('"shape": {"type": "star"}', "'star'"),
        ('"points": [[1, 2, 3]]', "`points[0]`: expected `array` of"),
    ],
)
def test_what_is_wrong_is_told_with_its_path(rest: str, expected: str) -> None:
    assert expected in refusal(plan, f"{START}{rest}}}")


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        ({"enum": ["x", None]}, "y", "`a`: 'y' is not one of 'x', null"),
        ({"enum": ["x", None, True]}, False, "`a`: false is not one of 'x', null, true"),
        ({"anyOf": [{"enum": ["x"]}, {"type": "null"}]}, "y", "'y' is not one of 'x', null"),
    ],
)
def test_every_listed_value_is_named_in_the_words_of_json(
    schema: Any, value: Any, expected: str
) -> None:
    whole = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    assert expected in refusal(external_tool("t", whole), json.dumps({"a": value}))


def test_open_dicts_take_any_name() -> None:
    found = plan.parse(f'{START}"extra": {{"anything": {{"at": ["all"]}}}}}}')
    assert found["extra"] == {"anything": {"at": ["all"]}}


def test_malformed_json_is_told_with_its_position() -> None:
    assert "(byte 9)" in refusal(weather, '{"city": Paris}')
    assert "9 characters" in refusal(weather, '{"city": ')
    assert "expected `object`, got `array`" in refusal(weather, "[]")


def test_huge_and_deep_arguments_are_refused_briefly() -> None:
    @tool
    def anything(value: Any, tree: Tree | None = None) -> None: ...

    deep = '{"name": "", "children": [' * 10_000
    flat = "[" * 450 + "]" * 450
    assert "too many" in refusal(weather, " " * (MAX_ARGUMENTS_CHARS + 1))
    assert "deep" in refusal(anything, '{"value": ' + "[" * 100_000)
    assert "deep" in refusal(anything, '{"value": 0, "tree": ' + deep)
    assert anything.parse(f'{{"value": {flat}}}')
    many = json.dumps({f"{'k' * 1000}{n}": n for n in range(900)})
    assert len(refusal(weather, many)) < 20_000


def test_what_a_type_of_the_authors_raises_is_a_bad_argument() -> None:
    @dataclass
    class Picky:
        n: int

        def __post_init__(self) -> None:
            if self.n == 1:
                raise ValueError("not one")
            if self.n == 2:
                raise LookupError("nor two")

    @tool
    def fn(it: Picky) -> None: ...

    assert "`it`: not one" in refusal(fn, '{"it": {"n": 1}}')
    assert "LookupError: nor two" in refusal(fn, '{"it": {"n": 2}}')


# Values that fit, values that nearly fit, and texts that hardly do.

places = st.builds(Place, st.text(), st.none() | st.text(), st.lists(st.text()))
points = st.builds(Point, *[st.floats(allow_nan=False, allow_infinity=False)] * 2)
legs = st.fixed_dictionaries({"to": places}, optional={"by": st.sampled_from(["train", "foot"])})
shapes = st.builds(Circle, points, st.floats(0.5, 9)) | st.builds(
    Square, st.floats(0, 9), st.none() | places
)
plans = st.fixed_dictionaries(
    {"start": places, "legs": st.lists(legs, max_size=3)},
    optional={
        "unit": st.sampled_from(Unit),
        "shape": st.none() | shapes,
        "points": st.lists(points, max_size=3).map(tuple),
        "days": st.integers(1, 30),
        "named": st.none() | st.dictionaries(st.text(), places, max_size=2),
        "pair": st.tuples(st.integers(-9, 9), st.text()),
        "either": st.none() | st.booleans() | st.integers(-9, 9) | st.text(),
        "tree": st.recursive(
            st.builds(Tree, st.text()),
            lambda inner: st.builds(Tree, st.text(), st.lists(inner, max_size=2)),
            max_leaves=4,
        ),
    },
)
scalars = st.none() | st.booleans() | st.integers(-99, 99) | st.just(0.5) | st.text(max_size=3)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(plans)
def test_what_is_encoded_is_what_is_parsed(arguments: dict[str, Any]) -> None:
    assert plan.parse(msgspec.json.encode(arguments).decode()) == arguments


@given(st.text() | json_values.map(json.dumps))
def test_no_text_raises_anything_but_bad_arguments(text: str) -> None:
    for each in (weather, plan):
        with contextlib.suppress(BadArguments):
            each.parse(text)


@given(plans, st.data())
def test_no_damaged_text_raises_anything_but_bad_arguments(
    arguments: dict[str, Any], data: st.DataObject
) -> None:
    text = msgspec.json.encode(arguments).decode()
    start, end = (data.draw(st.integers(0, len(text))) for _ in range(2))
    with contextlib.suppress(BadArguments):
        plan.parse(text[:start] + data.draw(st.text(max_size=3)) + text[end:])


def fits(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> bool:
    """Whether ``value`` validates: the part of JSON Schema that our schemas use."""
    if "$ref" in schema and not fits(
        root["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, root
    ):
        return False
    if "anyOf" in schema and not any(fits(each, value, root) for each in schema["anyOf"]):
        return False
    if "enum" in schema and not any(
        type(each) is type(value) and each == value for each in schema["enum"]
    ):
        return False
    kinds = {"null": type(None), "boolean": bool, "integer": int, "string": str}
    match schema.get("type"):
        case "object":
            return isinstance(value, dict) and fits_object(schema, value, root)
        case "array":
            return isinstance(value, list) and fits_array(schema, value, root)
        case "integer" | "number" as kind:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return False
            low = value >= schema.get("minimum", value) and value <= schema.get("maximum", value)
            above = "exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"]
            return low and above and (kind == "number" or isinstance(value, int))
        case None:
            return True
        case kind:
            return isinstance(value, kinds[kind])


def fits_object(schema: dict[str, Any], value: dict[str, Any], root: dict[str, Any]) -> bool:
    known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    if not set(schema.get("required", ())) <= set(value):
        return False
    others = [value[key] for key in value if key not in known]
    if others and isinstance(rest, bool) and not rest:
        return False
    return all(fits(known[key], value[key], root) for key in value if key in known) and (
        isinstance(rest, bool) or all(fits(rest, each, root) for each in others)
    )


def fits_array(schema: dict[str, Any], value: list[Any], root: dict[str, Any]) -> bool:
    prefix, rest = schema.get("prefixItems", []), schema.get("items", True)
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return False
    return all(fits(each, part, root) for each, part in zip(prefix, value, strict=False)) and (
        isinstance(rest, bool) or all(fits(rest, part, root) for part in value[len(prefix) :])
    )


@st.composite
def spoilt(draw: st.DrawFn) -> Any:
    """Arguments that fit, but for at most one place where anything at all may stand."""
    arguments = msgspec.to_builtins(draw(plans))
    target = arguments
    for _ in range(draw(st.integers(0, 4))):
        inner = [each for each in places_in(target) if isinstance(target[each], dict | list)]
        if not inner:
            break
        target = target[draw(st.sampled_from(inner))]
    if keys := places_in(target):
        target[draw(st.sampled_from(keys))] = draw(json_values)
    if isinstance(target, dict) and draw(st.booleans()):
        target[draw(st.sampled_from(["city", "type", "q", "to", "unit"]))] = draw(json_values)
    return json.loads(json.dumps(arguments))


def places_in(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value) if isinstance(value, dict) else list(range(len(value)))


@given(spoilt())
def test_schema_and_parser_agree_on_what_fits(arguments: dict[str, Any]) -> None:
    try:
        plan.parse(json.dumps(arguments))
        taken = True
    except BadArguments:
        taken = False
    assert taken == fits(plan.schema, arguments, plan.schema)
