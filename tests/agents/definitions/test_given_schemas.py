"""The schemas of clients' tools: read once, and their patterns never tried."""

import time
from typing import Any

import pytest

from hubbub.agents.definitions.arguments import BadArguments
from hubbub.agents.definitions.external import external_tool, given_tool
from hubbub.agents.resolution.given_tools import MAX_PARTS, made_of
from hubbub.hub.events import GivenTool
from hubbub.hub.values import decode_value, encode_value

pytestmark = pytest.mark.spec("L-09")


def of_fields(count: int) -> dict[str, Any]:
    fields = {f"p{at}": {"type": "string", "enum": ["a", "b"]} for at in range(count)}
    return {"type": "object", "properties": fields}


def seconds_for(make: Any, schema: Any) -> float:
    best = 60.0
    for _ in range(3):
        started = time.process_time()
        make(schema)
        best = min(best, time.process_time() - started)
    return best


def test_a_schema_without_patterns_is_read_once() -> None:
    """It was read a second time for the patterns that it does not have."""
    schema = of_fields(2_000)
    one = seconds_for(lambda given: external_tool("a", given), schema)
    assert (
        seconds_for(lambda given: given_tool("a", given, description="", timeout=None), schema)
        < 1.6 * one
    )


@pytest.mark.parametrize("beside", [{}, {"oneOf": [{}]}], ids=("read", "shown as it is"))
def test_a_long_name_is_not_repeated_for_each_part_of_it(beside: dict[str, Any]) -> None:
    """Every part had the whole path made, several times: half a megabyte took 8 s to read."""

    def named(name: str) -> dict[str, Any]:
        fields: dict[str, Any] = {f"p{at}": {} for at in range(20_000)}
        inner = {"type": "object", "properties": fields}
        return {"type": "object", "properties": {name: inner}, **beside}

    short, long = (
        seconds_for(lambda given: given_tool("a", given, description="", timeout=None), named(name))
        for name in ("a", "a" * 700_000)
    )
    assert long < 4 * max(short, 0.1)


def test_a_pattern_is_shown_and_not_tried_and_a_property_of_that_name_is_one() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^b$"}, "pattern": {"type": "string"}},
    }
    tool = given_tool("a", schema, description="", timeout=None)
    assert tool.schema["properties"]["a"]["pattern"] == "^b$"
    assert tool.parse('{"a": "c", "pattern": "d"}') == {"a": "c", "pattern": "d"}


def given(name: str, count: int) -> GivenTool:
    properties = {f"p{at}": {"type": "integer"} for at in range(count)}
    schema = {"type": "object", "properties": properties}
    return GivenTool(name=name, schema_json=encode_value("schema", schema))


@pytest.mark.spec("W-06")
def test_of_the_schemas_of_a_run_so_many_parts_are_read_and_the_rest_is_shown() -> None:
    """A megabyte of them held the event loop for seconds, three times a run."""
    small, large = given("small", 100), given("large", MAX_PARTS)
    found = made_of([small, large, given("last", 1)])
    assert [len(found[x].schema["properties"]) for x in found] == [100, MAX_PARTS, 1]
    with pytest.raises(BadArguments):
        found["small"].parse('{"p0": "x"}')
    for shown_only in ("large", "last"):
        assert found[shown_only].parse('{"p0": "x"}') == {"p0": "x"}


@pytest.mark.spec("W-06")
def test_a_schema_is_read_once_for_all_who_bring_it_and_a_long_one_is_not_kept() -> None:
    one, other = made_of([given("a", 50)]), made_of([given("a", 50)])
    assert one["a"] is other["a"]
    one, other = made_of([given("b", 1_000)]), made_of([given("b", 1_000)])
    assert one["b"] is not other["b"]


@pytest.mark.spec("W-06")
def test_a_schema_of_a_megabyte_costs_about_what_its_values_cost() -> None:
    large = given("large", 40_000)
    assert len(bytes(large.schema_json)) > 900_000

    def read(tool: GivenTool) -> None:
        made_of([tool])

    def decode(tool: GivenTool) -> None:
        decode_value(tool.schema_json)

    assert seconds_for(read, large) < 25 * seconds_for(decode, large)
