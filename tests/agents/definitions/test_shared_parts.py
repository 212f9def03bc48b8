"""Schemas with shared parts, and the classes of pydantic that write them."""

from typing import Any

import pytest
from pydantic import BaseModel

from hubbub import RunContext, Runtime, agent, external_tool, tool
from hubbub.agents.definitions.answers import AnswerReader
from hubbub.agents.definitions.arguments import Arguments, BadArguments
from hubbub.agents.definitions.schema import read_schema
from hubbub.agents.shared_parts import in_place
from hubbub.hub.errors import BadValue, DefinitionError
from hubbub.hub.events import SessionReply


class Seat(BaseModel):
    car: int
    row: str | None = None


class Trip(BaseModel):
    """A trip."""

    seats: list[Seat] = []
    back: Seat | None = None


class Tree(BaseModel):
    left: "Tree | None" = None


def test_the_schema_of_a_pydantic_model_is_read_with_its_parts_in_place() -> None:
    parameters, shown, problems = read_schema(Trip.model_json_schema())
    assert problems == () and "$" not in str(shown)
    assert shown["properties"]["seats"]["items"]["required"] == ["car"]
    arguments = Arguments("trip", parameters)
    arguments.parse('{"seats": [{"car": 1}], "back": {"car": 2, "row": "a"}}')
    with pytest.raises(BadArguments, match=r"seats\[0\]"):
        arguments.parse('{"seats": [{"car": "one"}]}')


def test_an_answer_is_read_by_the_schema_of_a_pydantic_model() -> None:
    reader = AnswerReader(Trip.model_json_schema())
    found = reader.read('{"seats": [{"car": 1}]}')
    assert Trip.model_validate(found).seats[0].car == 1
    assert "car" in reader.problem(SessionReply(prompt_id="p", content='{"seats": [{}]}'))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a"}, {"$defs": {}, "$ref": "#/$defs/a"},
        {"$defs": {"a": 3}, "$ref": "#/$defs/a"}, {"$defs": 3, "$ref": "#/$defs/a"},
        {"$defs": {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)},
         "$ref": "#/$defs/a0"},
    ],
)  # fmt: skip
def test_a_reference_without_end_or_target_is_named_as_a_problem(schema: Any) -> None:
    assert in_place(schema) is schema
    wrapped = {"type": "object", "properties": {"it": schema}}
    assert any("$ref: not supported" in each for each in read_schema(schema)[2])
    assert any("$ref: not supported" in each for each in read_schema(wrapped)[2])
    with pytest.raises(BadValue, match=r"\$ref: not supported"):
        AnswerReader(schema)


def test_a_schema_that_refers_to_itself_is_told_to_be_a_type_instead() -> None:
    schema = Tree.model_json_schema()
    assert in_place(schema) is schema
    (problem,) = read_schema(schema)[2]
    assert problem.startswith("it refers to itself; give a Struct, dataclass or TypedDict")
    with pytest.raises(BadValue, match="not supported"):
        AnswerReader(schema)


@pytest.mark.parametrize("schema", [{1: 2}, {"type": object()}, {"default": float("nan")}])
def test_what_is_no_json_is_refused_as_a_schema(schema: Any) -> None:
    with pytest.raises(BadValue, match="schema"):
        AnswerReader(schema)
    with pytest.raises(DefinitionError, match="schema"):
        external_tool("position", schema)


@pytest.mark.spec("U-05", "U-09")
@pytest.mark.parametrize("type_", [Trip, list[Trip], Trip | None])
def test_a_pydantic_class_for_a_schema_is_refused_in_one_line_with_the_remedy(type_: Any) -> None:
    with pytest.raises(BadValue) as refused:
        AnswerReader(type_)
    assert "Trip.model_json_schema()" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.spec("U-04", "U-09")
def test_an_external_tool_of_a_pydantic_class_is_refused_with_the_remedy() -> None:
    with pytest.raises(DefinitionError, match=r"give Trip\.model_json_schema\(\)"):
        external_tool("book", Trip)
    external_tool("book", Trip.model_json_schema())


@pytest.mark.spec("U-09")
def test_a_tool_that_takes_a_pydantic_model_is_refused_with_the_remedy() -> None:
    def book(trip: list[Trip] | None) -> str:
        """Book a trip."""
        return ""

    with pytest.raises(DefinitionError, match=r"Trip is a pydantic model.*Trip\.model_validate"):
        tool(book)


@pytest.mark.anyio
@pytest.mark.spec("R-01", "U-09")
async def test_a_code_agent_whose_input_is_a_pydantic_model_is_refused_one_with_the_remedy() -> (
    None
):
    @agent("books")
    async def books(input: Trip, ctx: RunContext) -> str:
        return ""

    async with Runtime([books], store="memory") as rt:
        with pytest.raises(BadValue, match=r"take a dict, for Trip\.model_validate"):
            await rt.start("books", {"seats": []})
