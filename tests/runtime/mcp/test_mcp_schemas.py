"""Values tried by the schemas of servers: as JSON Schema says, in bounded time and memory."""

import json
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from support.json_schemas import SCHEMAS, VALUES, with_parts
from support.profiles import examples

from hubbub import mcp
from hubbub.agents.definitions.arguments import BadArguments
from hubbub.runtime.mcp.listing import ListedTool, ServerListing, listing_of
from hubbub.runtime.mcp.schema_check import ServerArguments, misfit

pytestmark = pytest.mark.spec("L-09")

OLDER = "http://json-schema.org/draft-07/schema#"


def of_x(part: Any, **defs: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": part}, "$defs": defs}


def refs(name: str, count: int) -> dict[str, Any]:
    return {"anyOf": [{"$ref": f"#/$defs/{name}"}] * count}


def names(count: int, length: int = 1) -> dict[str, Any]:
    return {"n" * length + str(at): at for at in range(count)}


WORDS = [f"v{at}" for at in range(4_000)]

COSTLY: dict[str, Callable[[], tuple[Any, Any]]] = {
    "a long value in many branches": lambda: (
        of_x(refs("e", 2_000), e={"type": "integer"}),
        {"x": "n" * 1_000_000},
    ),
    "a long list in many branches": lambda: (
        of_x(refs("d", 150), d=refs("e", 150), e={"enum": WORDS}),
        {"x": "nnnnn"},
    ),
    "long names in many branches": lambda: (
        of_x(refs("e", 2_000), e={"additionalProperties": False}),
        {"x": names(10, 500_000)},
    ),
    "many names in many branches": lambda: (
        of_x(refs("e", 1_500), e={"additionalProperties": False}),
        {"x": names(100_000)},
    ),
    "names that are in no mapping": lambda: (
        of_x({"additionalProperties": False, "properties": WORDS}),
        {"x": names(50_000)},
    ),
    "what no keyword speaks of": lambda: (
        {"allOf": [{"properties": {f"p{at}": {}}} for at in range(1_500)],
         "unevaluatedProperties": False},
        names(100_000),
    ),
    "what no item speaks of": lambda: (
        of_x({"allOf": [{"prefixItems": [{}]}] * 1_500, "unevaluatedItems": False}),
        {"x": list(range(100_000))},
    ),
    "words that mean nothing": lambda: (
        of_x(refs("e", 2_500), e={**dict.fromkeys(WORDS, 1), "type": "integer"}),
        {"x": [1]},
    ),
    "properties that are not there": lambda: (
        of_x(refs("e", 2_000), e={"properties": dict.fromkeys(WORDS, True), "type": "integer"}),
        {"x": {}},
    ),
    "names for a part": lambda: (
        of_x({"allOf": [{"$ref": "#n"}] * 1_000}, n={"$anchor": "n"}, **dict.fromkeys(WORDS, True)),
        {"x": 1},
    ),
    "a pattern of another version": lambda: (
        of_x({"$schema": OLDER, "pattern": "^(a+)+$"}),
        {"x": "a" * 30 + "!"},
    ),
    "items that are compared, of another version": lambda: (
        of_x({"$schema": OLDER, "uniqueItems": True}),
        {"x": [{"a": at} for at in range(3_000)]},
    ),
    "names that depend on others, in many branches": lambda: (
        {"$schema": OLDER,
         **of_x(refs("e", 2_000), e={"dependencies": dict.fromkeys(WORDS, True), "type": "null"})},
        {"x": {}},
    ),
    "branches of which none is known": lambda: (
        of_x(refs("d0", 2), **{
            f"d{at}": {"if": {"pattern": "a"}, "then": refs(f"d{at + 1}", 2), "else": False}
            for at in range(30)}, d30={"pattern": "(a+)+$"}),
        {"x": "a" * 30 + "!"},
    ),
    "names by patterns that nothing else speaks of": lambda: (
        of_x({"allOf": [{"patternProperties": {f"^p{at}": {}}} for at in range(1_000)],
              "unevaluatedProperties": False}),
        {"x": names(100_000)},
    ),
    "items in long rows, that nothing else speaks of": lambda: (
        of_x({"allOf": [{"$ref": "#/$defs/e"}] * 1_500, "unevaluatedItems": False},
             e={"prefixItems": [True] * 8_000}),
        {"x": [1]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("of", COSTLY.values(), ids=COSTLY)
def test_no_schema_and_no_value_make_a_check_long(of: Callable[[], tuple[Any, Any]]) -> None:
    """Each step of the checks made its message, and was as long as what it looked at: a call or a
    result held the event loop for seconds, and a pattern for ever."""
    schema, value = of()
    tool, text = ServerArguments("t", schema), json.dumps(value)
    started = time.process_time()
    misfit(schema, value)
    if len(text) < 1 << 20:
        with suppress(BadArguments):
            tool.parse(text)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("of", COSTLY.values(), ids=COSTLY)
def test_no_schema_and_no_value_make_a_check_large(of: Callable[[], tuple[Any, Any]]) -> None:
    """A result of a megabyte was held once for each of 2,000 branches, in two gigabytes."""
    schema, value = of()
    tracemalloc.start()
    try:
        misfit(schema, value)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 30_000_000


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        (of_x({"type": "integer"}), {"x": "n" * 9_000}, "`x`: 'nnn… is not of type 'integer'"),
        (of_x({"enum": WORDS}), {"x": "no"}, "`x`: 'no' is not one of ['v0', 'v1', …, 'v50'"),
        (of_x({"maxItems": 2}), {"x": [1] * 9_000}, "`x`: [1, 1, … is too long"),
        ({"required": ["a" * 9_000]}, {}, "'aaa… is a required property"),
        ({"additionalProperties": {"type": "null"}}, {"n" * 9_000: 1}, "`nnn…`: 1 is not of type"),
        ({"additionalProperties": False}, names(900), "not allowed ('n0', … were unexpected)"),
    ],
)
def test_a_problem_says_what_is_wrong_however_long_the_value_is(
    schema: Any, value: Any, words: str
) -> None:
    """The reason came after the whole of the value, and was cut off."""
    found = misfit(schema, value)
    assert len(found) < 800
    rest = found
    for part in words.split("…"):
        assert part in rest, found
        rest = rest.partition(part)[2]


def test_names_by_patterns_inside_a_schema_are_left_to_the_server() -> None:
    schema = {"allOf": [{"patternProperties": {"^x": {}}}], "unevaluatedProperties": False}
    assert misfit(schema, {"x1": 1}) == ""


def test_parts_that_are_schemas_of_their_own_are_left_to_the_server() -> None:
    """What they refer to is in themselves."""
    inner = {"$id": "urn:b", "$ref": "#/$defs/y", "$defs": {"y": {"type": "string"}}}
    schema = of_x(inner, y={"type": "integer"})
    assert misfit(schema, {"x": "fits"}) == ""


def test_a_tool_whose_results_have_too_long_a_schema_is_used_and_this_is_said() -> None:
    long = {"type": "object", "required": ["a"], "title": "x" * 70_000}
    odd = {"type": "object", "title": "\ud800"}
    fine = {"type": "object", "required": ["a"]}
    found = listed(long=long, odd=odd, fine=fine)
    assert [each.name for each in found.tools] == ["it_fine", "it_long", "it_odd"]
    assert found.promises == {"fine": fine}
    of_long, of_odd = sorted(found.problems)
    assert of_long == (
        "'long': its results are not checked: their schema is longer than 65,536 bytes"
    )
    assert of_odd.startswith("'odd': its results are not checked: their schema: ")


def test_many_tools_with_schemas_of_many_values_are_listed_in_little_time() -> None:
    """Each value had a path of its own made, as long as the names above it: 100 tools took 8 s.
    Now it is a few times as long as it takes to write them as JSON."""
    schema = {"type": "object", "x": {"a" * 30_000: [1] * 15_000}}
    tools = [ListedTool(f"t{at}", "", schema, False) for at in range(100)]
    started = time.process_time()
    for each in tools:
        json.dumps(each.schema)
    written = time.process_time()
    found = listing_of(mcp("x", name="it"), tools, never)
    assert time.process_time() - written < 20 * (written - started)
    assert len(found.tools) == 100


def test_a_reference_to_an_item_with_an_endless_number_is_to_nothing() -> None:
    """Python reads no number of that many digits: the whole list was lost."""
    schema = of_x({"$ref": f"#/allOf/{'9' * 5_000}"}) | {"allOf": [{}]}
    found = listing_of(mcp("x", name="it"), [ListedTool("a", "", schema, False)], never)
    assert "which is not there" in found.problems[0]


async def never(tool: str, arguments: Any, state: Any) -> Any:
    raise AssertionError("nothing is called")


def listed(**promises: Any) -> ServerListing:
    tools = [
        ListedTool(name, "", {"type": "object"}, False, each) for name, each in promises.items()
    ]
    return listing_of(mcp("x", name="it"), tools, never)


# ── as JSON Schema says ──────────────────────────────────────────────────────────────────────


@settings(max_examples=examples(600))
@given(SCHEMAS, VALUES)
def test_problems_are_those_that_json_schema_finds_in_the_same_words(
    schema: Any, value: Any
) -> None:
    whole = with_parts(schema)
    expected = []
    for error in Draft202012Validator(whole).iter_errors(value):
        where = ".".join(str(each) for each in error.absolute_path)
        expected.append(in_order(f"`{where}`: {error.message}" if where else error.message))
    found = problems_of(whole, value)
    assert sorted(map(in_order, found)) == sorted(expected[:20] if len(found) == 20 else expected)


def in_order(words: str) -> str:
    """Without the two differences that are meant: names that are too many are in the order of the
    value, not by name, and of what no schema allows the place is said."""
    if "False schema" in words:
        return words.partition("False schema")[2]
    start, bracket, rest = words.partition("not allowed (")
    return start + bracket + ("".join(sorted(rest)) if bracket else "")


def problems_of(schema: Any, value: Any) -> list[str]:
    try:
        ServerArguments("t", of_x(schema, **schema["$defs"])).parse(json.dumps({"x": value}))
    except BadArguments as refused:
        return [each.removeprefix("`x`: ").replace("`x.", "`") for each in refused.problems]
    return []


@settings(max_examples=examples(600))
@given(SCHEMAS, st.sampled_from(["unevaluatedProperties", "unevaluatedItems"]), SCHEMAS, VALUES)
def test_parts_that_no_keyword_speaks_of_are_found_as_json_schema_finds_them(
    schema: Any, word: str, rest: Any, value: Any
) -> None:
    whole = {**with_parts(schema), word: rest}
    assert (misfit(whole, value) == "") == Draft202012Validator(whole).is_valid(value)
