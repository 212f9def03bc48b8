"""What clients send as the schemas of their tools: shown as it is, checked where it can be."""

from typing import Any

import pydantic
import pytest

from hubbub import external_tool
from hubbub.agents.definitions.arguments import BadArguments
from hubbub.agents.definitions.external import given_tool
from hubbub.hub.errors import DefinitionError

pytestmark = pytest.mark.spec("W-05")


class Tree(pydantic.BaseModel):
    value: int
    children: list["Tree"]


class Order(pydantic.BaseModel):
    tags: set[str] = set()
    extra: dict[str, int] = {}
    where: tuple[int, str] = (1, "a")


def of(part: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"q": part}, **more}


TEXT = {"type": "string"}

SHOWN_ONLY = [
    of({"oneOf": [TEXT, {"type": "integer"}]}), of({"allOf": [TEXT]}), of({"not": TEXT}), of(True),
    of({"type": "array", "items": TEXT, "uniqueItems": True}), of(TEXT, minProperties=1),
    of({"type": "array", "prefixItems": [TEXT]}), of({"type": "array", "items": [TEXT]}),
    of({"type": "number", "multipleOf": 0.1}), of({"type": "string", "contentEncoding": "base64"}),
    of(TEXT, additionalProperties=True), of(TEXT, additionalProperties=TEXT),
    of({"type": "object", "propertyNames": {"pattern": "(a+)+$"}}), of(TEXT, required=["q", "r"]),
    of(TEXT, **{"if": {}, "then": {}}), of({"type": "string", "x-order": 1}), {"type": "object"},
    of({"$ref": "#/$defs/t"}, **{"$defs": {"t": {"anyOf": [TEXT, {"$ref": "#/$defs/t"}]}}}), {},
    {"properties": {"q": TEXT}}, Tree.model_json_schema(), Order.model_json_schema(),
]  # fmt: skip


@pytest.mark.parametrize("schema", SHOWN_ONLY, ids=str)
def test_a_schema_that_there_is_no_type_for_is_shown_and_takes_any_object(schema) -> None:
    made = given_tool("t", schema, description="", timeout=None)
    assert made.schema == {"type": "object", "properties": {}, **schema}
    assert made.parse('{"q": "x", "other": [1]}') == {"q": "x", "other": [1]}
    assert made.parse("") == {}
    for wrong in ("[1]", '{"q": ', "7", "[" * 100_000, '{"q": "' + "x" * 2_000_000 + '"}'):
        with pytest.raises(BadArguments):
            made.parse(wrong)
    with pytest.raises(DefinitionError):  # Who writes it here is told what there is instead.
        external_tool("t", schema)


def test_a_schema_that_there_is_a_type_for_is_checked() -> None:
    made = given_tool("t", of(TEXT, required=["q"]), description="", timeout=None)
    assert made.parse('{"q": "x"}') == {"q": "x"}
    with pytest.raises(BadArguments):
        made.parse('{"q": 7}')


WRONG = [
    {"type": "string"}, of(7), of({"type": "text"}), of({"type": []}), of({"enum": "a"}),
    of(TEXT, required="q"), {"type": "object", "properties": [TEXT]}, of({"anyOf": TEXT}),
    of({"oneOf": [7]}), of({"$ref": 7}), of({"not": "x"}), of({"type": "array", "items": [7]}),
    of({"oneOf": [TEXT]}, **{"$defs": {"a": 7}}), of({"oneOf": [{"const": "\ud800"}]}),
]  # fmt: skip


@pytest.mark.parametrize("schema", WRONG, ids=ascii)
def test_what_is_no_schema_is_refused_in_one_line(schema) -> None:
    with pytest.raises(DefinitionError) as raised:
        given_tool("t", schema, description="", timeout=None)
    assert "\n" not in str(raised.value)


def test_a_schema_nested_too_deeply_is_refused() -> None:
    schema: Any = TEXT
    for _ in range(10_000):
        schema = {"not": schema}
    with pytest.raises(DefinitionError, match="nested"):
        given_tool("t", of(schema), description="", timeout=None)
