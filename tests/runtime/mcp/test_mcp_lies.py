"""MCP servers that lie: about their tools, about results, about what they want to know."""

import builtins
import json
import sys
import time
from contextlib import suppress
from typing import Any

import anyio
import mcp_types as types
import pytest
from support.mcp_servers import ERAS, Results, listing_server, mcp_agent, mcp_in, tool_of

from hubbub import Runtime, ScriptedModel, mcp
from hubbub.agents.definitions.answers import AnswerReader
from hubbub.agents.definitions.arguments import BadArguments
from hubbub.agents.mcp_server import McpServer
from hubbub.hub.errors import BadValue, MissingExtra
from hubbub.hub.ports import Ports
from hubbub.runtime.mcp.elicitation import answer_of, elicitation_of, why_not_asked
from hubbub.runtime.mcp.listing import ListedTool, listing_of
from hubbub.runtime.mcp.schema_check import ServerArguments
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-09")]


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


async def never(tool: str, arguments: Any, state: Any) -> Any:
    raise AssertionError("nothing is called")


def listed(*tools: ListedTool, **options: Any) -> Any:
    server: McpServer = mcp("x", name="it", **options)
    return listing_of(server, tools, never)


def described(name: str = "a", description: str = "", schema: Any = None) -> ListedTool:
    return ListedTool(name, description, {"type": "object"} if schema is None else schema, False)


def deep(levels: int) -> Any:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return {"type": "object", **schema}


def of_part(part: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object with a part that is defined beside."""
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": part}}


@pytest.mark.parametrize("part", [
    {"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/x"}},
    {"properties": {"all": {"$ref": "#"}, "first": {"$ref": "#/properties/a"}}},
    {"allOf": [{}, {"$ref": "#/$defs/x/allOf/0"}]}, {"$ref": "#name"},
])  # fmt: skip
def test_a_schema_may_refer_to_itself(part: dict[str, Any]) -> None:
    found = listed(described(schema=of_part(part)))
    assert (len(found.tools), found.problems) == (1, ())


def test_references_that_lead_to_each_other_cost_what_they_are() -> None:
    """Each was followed to the end: 50 tools with 1,700 in a row held the event loop for 58 s."""

    def seconds_for(count: int, last: dict[str, Any]) -> float:
        row = {f"x{at}": {"$ref": f"#/$defs/x{at + 1}"} for at in range(count)}
        parts = {"x": {"$ref": "#/$defs/x0"}, **row, f"x{count}": last}
        schema = {**of_part({}), "$defs": parts}
        started = time.process_time()
        found = listed(*(described(f"a{at}", schema=schema) for at in range(20)))
        is_refused = bool(last.get("$ref"))
        assert (len(found.tools), len(found.problems)) == ((0, 20) if is_refused else (20, 0))
        return time.process_time() - started

    for last in ({}, {"$ref": "#/$defs/x9"}, {"$ref": "#/$defs/none"}):
        small = seconds_for(170, last)
        assert seconds_for(1_700, last) < 30 * max(small, 0.01)


@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        (described(schema="x"), "not one of an object"),
        (described(schema={"type": "string"}), "not one of an object"),
        (described(schema={"type": "object", "properties": []}), "no mapping"),
        (described(schema=deep(200)), "nested more than"),
        (described(schema={"type": "object", "x": float("nan")}), "is not JSON"),
        (described(schema={"type": "object", "title": "x" * 70_000}), "longer than"),
        (described(schema={"type": "object", "$ref": "http://evil.example/s"}), "elsewhere"),
        (described(schema={"type": "object", "$ref": "#/$defs/no"}), "'#/$defs/no', which is not"),
        (described(schema=of_part({"$ref": "#/$defs/x"})), "refers to nothing but itself"),
        (described(schema=of_part({"$ref": "#/$defs/x/y"})), "which is not there"),
        (described(schema={"type": "object", "title": "\ud800"}), ""),
        (described(description="\ud800"), "half of a surrogate pair"),
        (described(name=""), "it has no name"),
    ],
)
def test_a_tool_that_cannot_be_used_is_left_out_and_said(tool: ListedTool, problem: str) -> None:
    found = listed(tool, described("fine"))
    assert [each.name for each in found.tools] == ["it_fine"]
    assert problem in found.problems[0]


def test_of_two_tools_with_one_name_the_first_is_taken() -> None:
    found = listed(described(description="one"), described(description="two"))
    assert [each.description for each in found.tools] == ["one"]
    assert "another tool's name already" in found.problems[0]


def test_ten_thousand_tools_become_the_first_by_name() -> None:
    found = listed(*(described(f"t{n:05}") for n in range(10_000, 0, -1)), max_tools=3)
    assert [each.name for each in found.tools] == ["it_t00001", "it_t00002", "it_t00003"]
    assert found.problems == (
        "10,000 tools are too many: those after the first 3 by name are left out; choose by "
        "allow=…, or give max_tools=…",
    )


BOMB = {
    "type": "object",
    "$ref": "#/$defs/n0",
    "$defs": {f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}] * 2} for n in range(60)}
    | {"n60": {}},
}
"""Two to the sixty steps."""


@pytest.mark.parametrize(
    "schema",
    [
        BOMB,
        {"type": "object", "$ref": "#"},
        {"type": "object", "$ref": "#/nowhere"},
        {"type": "object", "properties": {"a": {"pattern": "(a+)+$"}}},
        {"type": "object", "patternProperties": {"(a+)+$": {}}, "additionalProperties": False},
        {"type": "object", "properties": {"a": {"format": "regex"}}},
        {"type": "object", "properties": {"a": {"type": "strange"}}},
        {"type": "object", "required": 3},
        {"type": "object", "minProperties": "x"},
        {"type": "object", "allOf": {"a": 1}},
    ],
)
def test_no_schema_keeps_the_loop_busy_or_breaks_a_call(schema: Any) -> None:
    """The server has the last word on what it means."""
    found = ServerArguments("t", schema).parse('{"a": "' + "a" * 40 + '!"}')
    assert found["arguments"]["a"].endswith("!")


@pytest.mark.parametrize("text", ["[]", "{", '"x"', "\ud800", "[" * 5_000, "x" * 2_000_000])
def test_arguments_that_are_no_object_are_refused(text: str) -> None:
    with pytest.raises(BadArguments):
        ServerArguments("t", {"type": "object"}).parse(text)


async def test_a_schema_that_changes_between_list_and_call_is_the_servers_to_judge(
    era: str, ports: Ports, eventually: Any
) -> None:
    shapes = [{"type": "object", "properties": {"city": {"type": "string"}}}]
    asked: list[Any] = []

    async def answer(name: str, arguments: dict[str, Any]) -> Any:
        asked.append(arguments)
        return types.CallToolResult(
            content=[types.TextContent(text="now it is called town")], is_error=True
        )

    server = mcp_in(era, listing_server(lambda: [tool_of("look", shapes[-1])], answer))
    model = ScriptedModel([call("it_look", city="Rome"), "Done."])
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        await eventually(lambda: rt.mcp_servers[0].state == "open")
        shapes.append({"type": "object", "required": ["town"]})
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert results.outputs == ["now it is called town"]
    assert asked == [{"city": "Rome"}]


async def test_a_tool_that_is_gone_at_the_call_is_an_error_result(era: str, ports: Ports) -> None:
    tools = [tool_of("look")]

    async def answer(name: str, arguments: dict[str, Any]) -> Any:
        tools.clear()
        raise RuntimeError("unknown tool")

    server = mcp_in(era, listing_server(lambda: tools, answer))
    model = ScriptedModel([call("it_look"), call("it_look"), "Done."])
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert results.failures == [True, True]
        assert "lists no tool 'it_look' now" in results.outputs[1]


async def test_a_server_that_always_wants_to_know_more_is_left(ports: Ports) -> None:
    async def answer(name: str, arguments: dict[str, Any]) -> Any:
        return types.InputRequiredResult(request_state="again")

    server = mcp_in("2026", listing_server(lambda: [tool_of("ask")], answer))
    model = ScriptedModel([call("it_ask"), "Done."])
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert "InputRequiredResult for more than 10 rounds" in results.outputs[0]


async def test_a_result_that_does_not_keep_its_own_promise_is_an_error(
    era: str, ports: Ports
) -> None:
    promised = tool_of("count")
    promised.output_schema = {"type": "object", "required": ["many"]}

    async def answer(name: str, arguments: dict[str, Any]) -> Any:
        return types.CallToolResult(content=[], structured_content={"few": 1})

    server = mcp_in(era, listing_server(lambda: [promised], answer))
    model = ScriptedModel([call("it_count"), "Done."])
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert "Invalid structured content" in results.outputs[0]
        assert results.failures == [True]


@pytest.mark.parametrize(
    "schema",
    [
        {}, {"properties": []}, {"properties": {"a": 3}}, {"properties": {"a": {"enum": "x"}}},
        {"properties": {"a": {"oneOf": 3}, "b": {"items": {"anyOf": [{"const": 1}]}}}},
        {"properties": {"a": {"type": "strange"}}, "required": "a"},
        {"properties": {"a" * 9_000: {"description": "x" * 9_000, "type": "string"}}},
    ],
)  # fmt: skip
def test_whatever_a_server_asks_for_is_a_question(schema: Any) -> None:
    params = types.ElicitRequestFormParams(message="What?", requested_schema=schema)
    asked = elicitation_of("it", params)
    assert asked.text.startswith("it asks: What?")
    if asked.schema is not None:
        with suppress(BadValue):  # Then it is asked without.
            AnswerReader(asked.schema)


@pytest.mark.parametrize(
    ("field", "many"),
    [
        (lambda words: {"enum": words}, 1_000),
        (lambda words: {"oneOf": [{"const": word} for word in words]}, 1_000),
        (lambda words: {"type": "array", "items": {"enum": words}}, 1_000),
        (lambda words: {"type": "array", "items": {"anyOf": [{"const": x} for x in words]}}, 1_000),
    ],
)
def test_nobody_is_asked_to_choose_among_very_many(field: Any, many: int) -> None:
    for count, is_asked in ((many - 1, True), (many, False), (200_000, False)):
        schema = {"properties": {"a": field([f"w{number}" for number in range(count)])}}
        params = types.ElicitRequestFormParams(message="What?", requested_schema=schema)
        assert (why_not_asked(params) == "") == is_asked


def test_nobody_is_asked_for_a_form_with_very_many_fields() -> None:
    for count, is_asked in ((1_000, True), (1_001, False)):
        schema = {"properties": {f"a{number}": {} for number in range(count)}}
        params = types.ElicitRequestFormParams(message="What?", requested_schema=schema)
        assert (why_not_asked(params) == "") == is_asked


TEXT = {"type": "string"}
ANYTHING = ["q", "5", "true", "null", '{"y": 1}', "[1]", '["a"]', '[{"y": 1}]', "1e999", '"a"']


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"x": {"type": "object", "properties": {"y": TEXT}}}, "ask for its fields one by one"),
        ({"a": TEXT, "x": {"type": ["object", "null"]}}, "ask for its fields one by one"),
        ({"": TEXT}, "without a name"), ({"a": TEXT, "": TEXT}, "without a name"),
        ({"a": TEXT, "b": {"type": "strange"}}, "no answer can be read"),
        ({"x": {"type": "strange"}}, ""), ({"x": {}}, ""), ({"x": {"properties": {"y": TEXT}}}, ""),
        ({"x": {"type": ["string", "null"]}}, ""), ({"x": {"type": "array"}}, ""),
        ({"x": {"type": "array", "items": {"type": "object"}}}, ""), ({"x": {"items": True}}, ""),
        ({"x": {"type": ["array", "integer"]}}, ""), ({"x": {"type": "null"}}, ""),
        ({"x": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}}, ""),
        ({"a": {}, "x": {"anyOf": [{"type": "integer"}], "default": None}}, ""),
        ({"a": {"items": {}}, "x": {"type": "array"}}, ""),
    ],
)  # fmt: skip
def test_every_answer_that_is_taken_can_be_told_to_the_server(fields: Any, problem: str) -> None:
    """Else nobody is asked: who answers has done so in vain."""
    schema = {"type": "object", "properties": fields}
    params = types.ElicitRequestFormParams(message="What?", requested_schema=schema)
    if problem:
        assert problem in why_not_asked(params)
        return
    assert why_not_asked(params) == ""
    asked = elicitation_of("it", params)
    answers: list[Any] = list(ANYTHING)
    with suppress(BadValue):
        reader = AnswerReader(asked.schema)
        texts = ANYTHING
        if not asked.name:
            texts = [json.dumps({name: json.loads(x)}) for name in fields for x in ANYTHING[1:]]
        answers = []
        for text in texts:
            with suppress(BadArguments):
                answers.append(reader.read(text))
    assert answers
    for each in answers:
        assert answer_of(asked, each).action == "accept"


def test_a_question_of_a_server_is_a_text_of_bounded_length() -> None:
    schema = {"properties": {"\ud800": {"type": "string", "description": "\ud800" * 9_000}}}
    for many in (schema, {"properties": {**schema["properties"], "b" * 9_000: {}}}):
        params = types.ElicitRequestFormParams(message="\ud800" * 9_000, requested_schema=many)
        text = elicitation_of("it", params).text
        assert text.encode()
        assert len(text) < 20_000


def test_without_the_extra_it_says_in_one_line_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def lacking(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] in ("mcp", "mcp_types"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **more)

    for module in [x for x in sys.modules if x.startswith("hubbub.runtime.mcp.")]:
        if module != "hubbub.runtime.mcp.servers":
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", lacking)

    async def main() -> None:
        agents = [mcp_agent(ScriptedModel(["x"]), mcp("uvx x"))]
        async with Runtime(agents, store="memory"):
            pass

    with pytest.raises(MissingExtra) as error:
        anyio.run(main)
    assert str(error.value) == (
        "an MCP server among the tools needs the extra 'mcp'; in the checkout of hubbub: "
        "uv sync --extra mcp, or pip install '.[mcp]'"
    )
