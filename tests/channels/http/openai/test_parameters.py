"""The parameters of tools as clients write them: what says nothing refuses nobody."""

from typing import Any

import pytest

from hubbub.agents.definitions.schema import read_schema
from hubbub.channels.http.openai.requests.parameters import plain_parameters

NONE = {"type": "object", "properties": {}}


def of(**said: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": said}}


@pytest.mark.spec("W-05")
@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ({}, NONE),
        ({"type": "object"}, NONE),
        ({"type": "object", "additionalProperties": False},
         {**NONE, "additionalProperties": False}),
        ({"$id": "x", **NONE}, NONE),
        ({"$comment": "x", **NONE}, NONE),
        (of(type="string", deprecated=True), of(type="string")),
        (of(type="string", readOnly=True, writeOnly=False), of(type="string")),
        (of(type="string", contentEncoding="base64"), of(type="string")),
        (of(type="string", **{"x-foo": {"any": 1}}), of(type="string")),
        (of(type="string", nullable=True), of(type=["string", "null"])),
        (of(type="string", nullable=False), of(type="string")),
        (of(enum=["a"], nullable=True), of(enum=["a", None])),
        (of(type="array", items={"type": "string", "$comment": "x"}),
         of(type="array", items={"type": "string"})),
        (of(anyOf=[{"type": "string", "x-a": 1}, {"type": "null"}]),
         of(anyOf=[{"type": "string"}, {"type": "null"}])),
        (
            {"type": "object", "properties": {"deprecated": {"type": "string"}, "x-a": {}}},
            {"type": "object", "properties": {"deprecated": {"type": "string"}, "x-a": {}}},
        ),
    ],
)  # fmt: skip
def test_words_that_say_nothing_are_left_out(given: Any, plain: Any) -> None:
    found = plain_parameters(given)
    assert found == plain
    assert read_schema(found)[2] == ()


def test_a_schema_that_is_nested_without_end_is_left_to_who_reads_it() -> None:
    schema: dict[str, Any] = {}
    for _ in range(10_000):
        schema = {"items": schema}
    assert plain_parameters(schema)["items"]
