"""The schemas of clients' tools: read once, and their patterns never tried."""

import time
from typing import Any

import pytest

from hubbub.agents.definitions.external import external_tool, given_tool

pytestmark = pytest.mark.spec("L-09")


def of_fields(count: int) -> dict[str, Any]:
    fields = {f"p{at}": {"type": "string", "enum": ["a", "b"]} for at in range(count)}
    return {"type": "object", "properties": fields}


def seconds_for(make: Any, schema: dict[str, Any]) -> float:
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
