"""What is left to a server when its schemas are checked: nothing right is refused for it."""

from typing import Any

import mcp_types as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.json_schemas import (
    VALIDATORS,
    VALUES,
    any_schemas,
    own_schemas,
    with_parts,
)
from support.mcp_servers import ERAS, Results, listing_server, mcp_agent, mcp_in, tool_of
from support.profiles import examples

from hubbub import Runtime, ScriptedModel
from hubbub.hub.ports import Ports
from hubbub.runtime.mcp.schema_check import misfit
from hubbub.runtime.models.scripted import call

pytestmark = pytest.mark.spec("L-09")

DIGITS = {"type": "string", "pattern": "^[0-9]+$"}
LETTERS = {"type": "string", "pattern": "^[a-z]+$"}
UNIQUE = {"uniqueItems": True}
NAMED = {"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": False}
DRAFT = "http://json-schema.org/draft-{}/schema#"


LATER = {"$schema": "https://json-schema.org/draft/2019-09/schema"}


def in_draft(number: str, **words: Any) -> dict[str, Any]:
    return {"$schema": DRAFT.format(number), **words}


RIGHT: dict[str, tuple[Any, Any]] = {
    "not a pattern": ({"not": {"pattern": "^admin"}}, "bob"),
    "one of two patterns": ({"oneOf": [DIGITS, LETTERS]}, "abc"),
    "if a pattern": ({"if": {"pattern": "^/etc"}, "then": False}, "/home"),
    "else a pattern": ({"if": {"pattern": "^/"}, "then": {"maxLength": 9}, "else": False}, "/a"),
    "few items of a pattern": ({"contains": {"pattern": "^m"}, "maxContains": 1}, ["m", "u"]),
    "no item of a pattern": (
        {"contains": {"pattern": "^m"}, "minContains": 0, "maxContains": 0}, ["u"],
    ),
    "not all different": ({"not": UNIQUE}, [1, 1]),
    "not a format": ({"not": {"format": "email"}}, "bob"),
    "names of one of two patterns": (
        {"oneOf": [NAMED, {**NAMED, "patternProperties": {"^b": {}}}]}, {"a": "1"},
    ),
    "not names of a pattern": ({"not": {"propertyNames": {"pattern": "^x"}}}, {"a": 1}),
    "not all other names": ({"not": NAMED}, {"b": 1}),
    "not what another name demands": (
        {"not": {"dependentSchemas": {"a": {"required": ["b"], "minProperties": 2}},
                 "propertyNames": {"pattern": "^x"}}},
        {"a": 1, "b": 2},
    ),
    "not what depends on a name": (
        {"not": {"dependentSchemas": {"a": {"patternProperties": {"b": False}}}}},
        {"a": 1, "b": 2},
    ),
    "names of a branch with a pattern": (
        {"anyOf": [{"properties": {"a": DIGITS}}, {"properties": {"b": True}}],
         "unevaluatedProperties": False},
        {"a": "1"},
    ),
    "not names that nothing speaks of": (
        {"not": {"patternProperties": {"^b": {}}, "unevaluatedProperties": False}}, {"a": 1},
    ),
    "items of a branch with a pattern": (
        {"if": {"contains": DIGITS}, "then": {"prefixItems": [True]}, "unevaluatedItems": False},
        ["1"],
    ),
    "not items that nothing speaks of": (
        {"not": {"contains": DIGITS, "unevaluatedItems": False}}, ["1", "a"],
    ),
    "not what is referred to when it is followed": (
        {"not": {"$dynamicRef": "#n"}, "$defs": {"n": {"$dynamicAnchor": "n", "type": "null"}}}, 1,
    ),
    "names that are found when a reference is followed": (
        {"$dynamicRef": "#n", "unevaluatedProperties": False,
         "$defs": {"n": {"$dynamicAnchor": "n", "properties": {"a": {}}}}},
        {"a": 1},
    ),
    "a bound that is left out itself": (in_draft("04", minimum=0, exclusiveMinimum=True), 0.5),
    "a bound that is not": (in_draft("04", minimum=0, exclusiveMinimum=False), 0),
    "a bound of another dialect": ({"minimum": 0, "exclusiveMinimum": True}, 0.5),
    "not a whole number": (in_draft("04", **{"not": {"type": "integer"}}), 1.0),
    "what stands beside a reference": (
        in_draft("07", definitions={"a": {}}, items={"$ref": "#/definitions/a", "maxLength": 1}),
        ["abc"],
    ),
    "not what stands beside a reference": (
        in_draft("07", definitions={"a": {"type": "null"}},
                 **{"not": {"$ref": "#/definitions/a", "maxLength": 1}}),
        1,
    ),
    "not what a name demands": (
        in_draft("07", **{"not": {"dependencies": {"a": ["b"], "b": {"maxProperties": 1}}}}),
        {"a": 1, "b": 1},
    ),
    "not items in a row": (in_draft("07", **{"not": {"items": [{"type": "null"}]}}), [1]),
    "not items after others": (
        in_draft("07", **{"not": {"items": [{}], "additionalItems": False}}), [1, 2],
    ),
    "items in a row, unsaid": ({"items": [{"type": "null"}], "not": {"items": [DIGITS]}}, [None]),
    "a name of the dialect's own": (
        in_draft("04", properties={"a": {"id": "#x", "$ref": "#/properties/b"}, "b": {}}),
        {"a": 1},
    ),
    "not a word of a later dialect": (in_draft("06", **{"not": {"if": {}, "then": False}}), 1),
    "how many items, of a later dialect": (
        in_draft("07", contains={"type": "null"}, maxContains=1), [None, None],
    ),
    "items that contains speaks of": (
        {**LATER, "not": {"contains": {"type": "null"}, "unevaluatedItems": False}}, [None],
    ),
    "a dialect that is not known": ({"$schema": "urn:own", "type": "null", "not": {}}, 1),
    "a part of another dialect": (
        {"items": in_draft("04", minimum=0, exclusiveMinimum=True)}, [0.5],
    ),
    "not a part of another dialect": (
        {"not": {"items": in_draft("04", minimum=1, exclusiveMinimum=True)}}, [1],
    ),
    "a number in a part of another dialect": (
        {"items": in_draft("04", **{"not": {"type": "integer"}})}, [1.0],
    ),
    "names in a part of another dialect": (
        {"anyOf": [{"$schema": "urn:own"}], "unevaluatedProperties": False}, {"a": 1},
    ),
    "not either of two patterns": ({"not": {"anyOf": [DIGITS, False]}}, "a"),
    "not a pattern twice": ({"not": {"not": LETTERS}}, "1"),
    "not if a pattern": ({"not": {"if": LETTERS, "then": False}}, "a"),
    "not an item of a pattern": ({"not": {"contains": DIGITS}}, ["a"]),
    "not few items of a pattern": (
        {"not": {"contains": LETTERS, "minContains": 0, "maxContains": 0}}, ["a"],
    ),
    "not a bound of an older dialect": ({"not": {"exclusiveMinimum": True}}, 0),
    "not a bound of a later dialect": (in_draft("04", **{"not": {"exclusiveMinimum": 3}}), 2),
    "not what may be read beside a reference": (
        in_draft("07", definitions={"a": {}},
                 **{"not": {"$ref": "#/definitions/a", "maxLength": 1}}),
        "abc",
    ),
    "a part with references of its own": (
        in_draft("04", definitions={"d": {"type": "null"}}, properties={
            "a": {"id": "urn:a", "items": {"$ref": "#/definitions/d"}, "definitions": {"d": {}}}}),
        {"a": [1]},
    ),
    "a word of a later dialect": (in_draft("06", **{"if": {}, "then": False}), 1),
    "items that may be of a pattern": ({"contains": DIGITS, "unevaluatedItems": False}, ["1"]),
    "items in a row, and no others": ({"items": [{}], "unevaluatedItems": False}, [1]),
    "not names of a branch that may not fit": (
        {"not": {"anyOf": [{"properties": {"a": DIGITS}}, {}], "unevaluatedProperties": False}},
        {"a": "x"},
    ),
    "not names of a condition that may not fit": (
        {"not": {"if": {"properties": {"a": DIGITS}}, "unevaluatedProperties": False}},
        {"a": "x"},
    ),
    "names of what is else": (
        {"if": {"propertyNames": DIGITS}, "else": {"properties": {"a": {}}},
         "unevaluatedProperties": False},
        {"a": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "value"), RIGHT.values(), ids=RIGHT)
def test_nothing_right_is_refused_for_what_is_left_to_the_server(schema: Any, value: Any) -> None:
    """What was left out was taken to fit: ``not`` made a refusal of it, which the server could not
    correct."""
    assert misfit(schema, value) == ""


TEXTS = ["a", "b"]

WRONG: dict[str, tuple[Any, Any, str]] = {
    "none of several kinds": ({"anyOf": [DIGITS, {"type": "null"}]}, 5, "not valid under any"),
    "two, whatever the third": ({"oneOf": [{}, DIGITS, {}]}, "a", "valid under each of"),
    "neither branch": ({"if": DIGITS, "then": False, "else": {"maxLength": 1}}, "ab", "under any"),
    "not what fits in any case": ({"not": {"anyOf": [DIGITS, {}]}}, "a", "should not be valid"),
    "not what no pattern is for": ({"not": {"pattern": "a"}}, 5, "should not be valid"),
    "too few in any case": ({"contains": DIGITS, "minContains": 3}, TEXTS, "Too few"),
    "too many in any case": (
        {"contains": {"anyOf": [{"maxLength": 1}, DIGITS]}, "maxContains": 1}, TEXTS, "Too many",
    ),
    "a known name beside patterns": (
        {**NAMED, "properties": {"k": {"type": "null"}}}, {"k": 1, "ab": ""}, "`k`: 1 is not of",
    ),
    "names too long": ({"propertyNames": {**DIGITS, "maxLength": 1}}, {"ab": 1}, "too long"),
    "names of a branch that does not fit": (
        {"anyOf": [{"properties": {"a": DIGITS}}, {}], "unevaluatedProperties": False},
        {"a": 1}, "Unevaluated properties",
    ),
    "items of a branch that does not fit": (
        {"if": DIGITS, "then": {"items": {}}, "unevaluatedItems": {"type": "null"}},
        [None, 1], "",
    ),
    "one that is no list of different": ({**UNIQUE, "type": "array"}, 1, "is not of type"),
    "a bound itself": (in_draft("04", minimum=0, exclusiveMinimum=True), 0, "less than or equal"),
    "a name that is demanded": (in_draft("07", dependencies={"a": ["b"]}), {"a": 1}, "dependency"),
    "a schema that is demanded": (
        in_draft("06", dependencies={"a": {"maxProperties": 1}}), {"a": 1, "b": 1}, "too many",
    ),
    "an item in a row": (in_draft("04", items=[{"type": "null"}]), [1], "`0`: 1 is not of"),
    "an item after others": (in_draft("07", items=[{}], additionalItems=False), [1, 2], "at most"),
    "not items that are all spoken of": (
        {**LATER, "not": {"items": [{}], "additionalItems": {}, "unevaluatedItems": False}},
        [1, 2], "should not be valid",
    ),
    "a reference with others": (
        in_draft("07", definitions={"a": {"type": "null"}},
                 items={"$ref": "#/definitions/a", "maxLength": 1}),
        [1], "is not of type",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "words"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_in_any_case_is_refused_beside_what_is_left_to_the_server(
    schema: Any, value: Any, words: str
) -> None:
    assert misfit(schema, value)
    assert words in misfit(schema, value)


def of_each(strategy: Any) -> st.SearchStrategy[tuple[str, Any]]:
    """A dialect, and a schema of it."""
    return st.sampled_from(sorted(VALIDATORS)).flatmap(
        lambda dialect: st.tuples(st.just(dialect), strategy(dialect))
    )


@settings(max_examples=examples(600))
@given(of_each(any_schemas), VALUES, st.booleans())
def test_what_is_refused_does_not_fit_as_json_schema_says(
    drawn: tuple[str, Any], value: Any, is_turned: bool
) -> None:
    dialect, schema = drawn
    whole = with_parts({"not": schema} if is_turned else schema, dialect)
    if misfit(whole, value):
        assert not VALIDATORS[dialect](whole).is_valid(value)


@settings(max_examples=examples(600))
@given(of_each(own_schemas), VALUES)
def test_where_nothing_is_left_out_a_schema_of_each_dialect_says_what_json_schema_says(
    drawn: tuple[str, Any], value: Any
) -> None:
    dialect, schema = drawn
    whole = with_parts(schema, dialect)
    assert (misfit(whole, value) == "") == VALIDATORS[dialect](whole).is_valid(value)


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_a_payment_that_is_done_is_told_as_done(era: str, ports: Ports) -> None:
    """Its number fits one of two patterns: its call was never made, or its result was called an
    error, after which a model pays again."""
    number = {"type": "object", "properties": {"id": {"oneOf": [DIGITS, LETTERS]}}}
    pay = tool_of("pay")
    pay.input_schema = pay.output_schema = number
    paid = []

    async def answer(name: str, arguments: dict[str, Any]) -> Any:
        paid.append(arguments)
        return types.CallToolResult(content=[], structured_content={"id": "17"})

    server = mcp_in(era, listing_server(lambda: [pay], answer))
    model = ScriptedModel([call("it_pay", id="abc"), "Done."])
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
    assert paid == [{"id": "abc"}]
    assert results.failures == [False]
    assert results.outputs == ['{"id":"17"}']
