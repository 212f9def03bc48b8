"""What a signature says about a tool: parameters, texts, schema, problems (D-04)."""

import datetime
import enum
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from hubbub.agents.definitions.run_state import RunState
from hubbub.agents.definitions.tools import BadArguments, Tool, tool
from hubbub.hub.errors import DefinitionError

if TYPE_CHECKING:
    from decimal import Decimal

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


def refusal(of: Tool[..., Any], arguments: str) -> str:
    with pytest.raises(BadArguments) as caught:
        of.parse(arguments)
    return caught.value.message


def problems_of(fn: Any, **options: Any) -> tuple[str, ...]:
    with pytest.raises(DefinitionError) as caught:
        tool(fn, **options)
    return caught.value.problems


def schema_of(hint: Any) -> dict[str, Any]:
    def fn(value: Any) -> None: ...

    fn.__annotations__["value"] = hint
    schema = tool(fn).schema
    return {**schema["properties"]["value"], **{k: schema[k] for k in schema if k == "$defs"}}


def test_run_state_is_injected_and_not_in_the_schema() -> None:
    @tool
    def a(city: str, state: RunState) -> None: ...

    @tool
    def b(state: "RunState | None" = None) -> None: ...

    assert a.state_parameter == b.state_parameter == "state"
    assert list(a.schema["properties"]) == a.schema["required"] == ["city"]
    assert b.schema["properties"] == {}
    assert "unknown field `state`" in refusal(a, '{"city": "Rome", "state": {}}')


def test_texts_come_from_annotations_then_from_the_docstring() -> None:
    @tool
    def google(
        a: Annotated[str, "own"], b: Annotated[str, Meta(description="meta")], c: Unit
    ) -> None:
        """First line,
        second line.

        Not this.

        Args:
            a: not this
            b: nor this
            c (Unit): of the
                answer

        Returns:
            c: nothing
        """

    @tool
    def fields(a: str, b: int) -> None:
        """
        Short.
        :param a: the a
          goes on
        :param int b: the b
        :returns: nothing
        """

    texts = {k: v.get("description") for k, v in google.schema["properties"].items()}
    assert google.description == "First line, second line."
    assert texts == {"a": "own", "b": "meta", "c": "of the answer"}
    texts = {k: v.get("description") for k, v in fields.schema["properties"].items()}
    assert fields.description == "Short."
    assert texts == {"a": "the a goes on", "b": "the b"}


def test_string_annotations_resolve_also_inside_a_function() -> None:
    @dataclass
    class Local:
        n: int

    @tool
    def bare(it: "Local", many: "list[Local]", place: "Place") -> None: ...

    @tool(timeout=1)
    def with_arguments(it: "Annotated[Local, 'text']") -> None: ...

    assert bare.parse('{"it": {"n": 1}, "many": [], "place": {"city": "Rome"}}') == {
        "it": Local(1),
        "many": [],
        "place": Place("Rome"),
    }
    assert with_arguments.parse('{"it": {"n": 1}}') == {"it": Local(1)}


# ── wrong definitions ────────────────────────────────────────────────────────────────────────


def test_every_problem_of_a_definition_is_told_at_once() -> None:
    class Custom: ...

    def bad(a, b: Custom, /, c: list[Custom], *args: int, d: "Nowhere", **rest: int):  # type: ignore # noqa: F821
        yield 1

    found = problems_of(bad, name="not a name", timeout=0)
    starts = ["name 'not a name'", "timeout 0", "the function yields", "parameter 'a': positional"]
    starts += ["parameter 'b': positional", "parameter 'c': ", "parameter 'args': *args"]
    starts += ["parameter 'd': cannot resolve 'Nowhere'", "parameter 'rest': **rest"]
    assert len(found) == len(starts)
    assert all(text.startswith(start) for text, start in zip(found, starts, strict=True))


def test_missing_annotation_is_told_with_an_example() -> None:
    def bad(city, self):  # type: ignore
        return city

    assert problems_of(bad) == (
        "parameter 'city': annotate it, for example  city: str",
        "parameter 'self': make a tool of the bound method, for example  tool(object.method)",
    )


@pytest.mark.parametrize(
    "hint",
    [
        object,
        list[int] | set[int],
        Annotated[str, Meta(ge=1)],
        msgspec.msgpack.Ext,
        Annotated[type("Custom", (), {}), Meta(extra_json_schema={"type": "string"})],
        "list[",
    ],
)
def test_unreadable_type_is_refused_with_the_parameter(hint: Any) -> None:
    def fn(value: Any) -> None: ...

    fn.__annotations__["value"] = hint
    (problem,) = problems_of(fn)
    assert problem.startswith("parameter 'value': ")


def test_name_known_only_to_type_checkers_is_explained() -> None:
    def fn(amount: "Decimal") -> None: ...

    (problem,) = problems_of(fn)
    assert "TYPE_CHECKING" in problem


def test_only_one_run_state_and_no_streams() -> None:
    async def numbers(a: RunState, b: RunState) -> AsyncIterator[int]:
        yield 1

    assert len(problems_of(numbers)) == 2


# ── the schema ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (list[float], {"type": "array", "items": {"type": "number"}}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (Annotated[str, Meta(min_length=2)], {"type": "string", "minLength": 2}),
        (Any, {}),
    ],
)
def test_types_have_their_schema(hint: Any, schema: dict[str, Any]) -> None:
    assert schema_of(hint) == schema


def test_defaults_are_in_the_schema_as_json_or_left_out() -> None:
    @tool
    def fn(a: Unit = Unit.CELSIUS, b: Place = Place("x"), c: Any = object()) -> None: ...  # noqa: B008

    properties = fn.schema["properties"]
    assert fn.schema["required"] == []
    assert properties["a"]["default"] == "c"
    assert properties["b"]["default"] == {"city": "x", "zip": None, "tags": []}
    assert "default" not in properties["c"]


def test_dicts_stay_open() -> None:
    assert schema_of(dict) == {"type": "object"}
    assert schema_of(dict[str, int]) == {
        "type": "object",
        "additionalProperties": {"type": "integer"},
    }
