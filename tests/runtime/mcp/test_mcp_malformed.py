"""MCP servers whose answers are malformed in a part: that part is lost, and said, nothing else."""

import json
from base64 import b64encode
from typing import Any

import anyio
import mcp_types as types
import pytest
from support.mcp_raw import RawServer
from support.mcp_servers import ERAS, Results, mcp_agent

from hubbub import Runtime, ScriptedModel, mcp
from hubbub.hub.ports import Ports
from hubbub.runtime.mcp import answers
from hubbub.runtime.mcp.lines import Lines
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-09")]

OBJECT = {"type": "object"}
FINE = {"name": "fine", "inputSchema": OBJECT}
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


# ── the opening ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "about",
    [
        {"serverInfo": None}, {"serverInfo": 3}, {"serverInfo": {"name": None, "icons": 7}},
        {"capabilities": None}, {"capabilities": "x"}, {"capabilities": {"tools": True}},
        {"capabilities": {"tools": {"listChanged": "yes"}, "logging": 3, "experimental": []}},
        {"instructions": 7}, {"_meta": "x"}, {"ttlMs": "soon", "cacheScope": 1, "resultType": 2},
        {"_meta": {"io.modelcontextprotocol/serverInfo": 3}},
    ],
)  # fmt: skip
async def test_what_nobody_reads_of_how_a_server_opens_is_not_looked_at(
    era: str, ports: Ports, about: dict[str, Any]
) -> None:
    raw = RawServer(era, page=lambda cursor: {"tools": [FINE]}, about=about)
    agent = mcp_agent(ScriptedModel(["Done."]), mcp(raw, name="it"))
    async with Runtime([agent], store="memory", ports=ports) as rt:
        await rt.run("helper", "Go.")
        assert rt.mcp_servers[0].tools == ("it_fine",)
        assert rt.mcp_servers[0].protocol[:4] == era


@pytest.mark.parametrize("version", [None, 7, "1999-01-01", "x" * 9_000])
async def test_a_server_of_no_known_protocol_is_said_at_once(ports: Ports, version: Any) -> None:
    raw = RawServer(page=lambda cursor: {"tools": [FINE]}, about={"protocolVersion": version})
    agent = mcp_agent(ScriptedModel(["Done."]), mcp(raw, name="it"))
    async with Runtime([agent], store="memory", ports=ports) as rt:
        began = anyio.current_time()
        assert (await rt.run("helper", "Go.")).output == "Done."
        assert anyio.current_time() - began < 5
        assert "rotocol" in rt.mcp_servers[0].problem
        assert len(rt.mcp_servers[0].problem) < 5_000


# ── lists ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ({"name": "bad"}, "'bad': it has no inputSchema"),
        ({"name": "bad", "inputSchema": None}, "'bad': its schema is not one of an object"),
        ({"name": "bad", "inputSchema": [1]}, "'bad': its schema is not one of an object"),
        ({"name": "bad", "inputSchema": {"type": "array"}}, "not one of an object, but of 'array'"),
        ({"name": "bad", "inputSchema": {"type": ["object"]}}, "not one of an object, but of ["),
        ({"name": "bad", "inputSchema": {**OBJECT, "properties": []}}, "inputSchema.properties"),
        ({"name": "bad", "inputSchema": {**OBJECT, "properties": {"a": 3}}}, "properties.a"),
        ({"name": "bad", "inputSchema": {**OBJECT, "required": "a"}}, "inputSchema.required"),
        ({"name": "bad", "inputSchema": {**OBJECT, "$schema": 7}}, "inputSchema.$schema"),
        ({"name": None, "inputSchema": OBJECT}, "tool 1: its name is no text, but None"),
        ({"name": 7, "inputSchema": OBJECT}, "tool 1: its name is no text, but 7"),
        ({"inputSchema": OBJECT}, "tool 1: its name is no text"),
        ({"name": "bad", "description": 3, "inputSchema": OBJECT}, "its description is no text"),
        ({"name": "bad", "title": [], "inputSchema": OBJECT}, "its title is no text"),
        (None, "tool 1: it is no object, but None"),
        ("bad", "tool 1: it is no object"),
        ([], "tool 1: it is no object"),
    ],
)
async def test_a_malformed_tool_is_left_out_and_the_others_work(
    era: str, ports: Ports, tool: Any, said: str
) -> None:
    raw = RawServer(
        era,
        page=lambda cursor: {"tools": [tool, FINE]},
        result=lambda name: {"content": [{"type": "text", "text": "done"}]},
    )
    model = ScriptedModel([call("it_fine"), "Done."])
    agent = mcp_agent(model, mcp(raw, name="it"))
    async with Runtime([agent], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert rt.mcp_servers[0].tools == ("it_fine",)
        assert said in rt.mcp_servers[0].left_out[0]
        assert results.outputs == ["done"]
        assert not results.errors


@pytest.mark.parametrize(
    "extra",
    [
        {"unknown": object}, {"annotations": "x"}, {"annotations": {"readOnlyHint": "yes"}},
        {"icons": 3}, {"execution": {"taskSupport": 9}}, {"_meta": 7}, {"outputSchema": "x"},
        {"outputSchema": {"type": "array"}}, {"title": None}, {"description": None},
    ],
)  # fmt: skip
async def test_what_nobody_reads_of_a_tool_is_not_looked_at(
    era: str, ports: Ports, extra: dict[str, Any]
) -> None:
    raw = RawServer(era, page=lambda cursor: {"tools": [{**FINE, **extra}], "_meta": 3, "x": 1})
    agent = mcp_agent(ScriptedModel(["Done."]), mcp(raw, name="it"))
    async with Runtime([agent], store="memory", ports=ports) as rt:
        await rt.run("helper", "Go.")
        assert rt.mcp_servers[0].tools == ("it_fine",)
        assert rt.mcp_servers[0].left_out == ()


@pytest.mark.parametrize("answer", [{}, {"tools": None}, {"tools": {"a": 1}}, {"tools": "x"}])
async def test_a_list_that_is_none_is_said_in_one_line_and_stops_no_run(
    era: str, ports: Ports, answer: Any
) -> None:
    raw = RawServer(era, page=lambda cursor: answer)
    agent = mcp_agent(ScriptedModel(["Done."]), mcp(raw, name="it"))
    async with Runtime([agent], store="memory", ports=ports) as rt:
        began = anyio.current_time()
        assert (await rt.run("helper", "Go.")).output == "Done."
        assert anyio.current_time() - began < 5
        assert rt.mcp_servers[0].problem.startswith("its answer is not valid (tools: ")


async def test_pages_that_never_end_are_read_as_far_as_they_say_something_new(
    era: str, ports: Ports
) -> None:
    def endless(cursor: str | None) -> Any:
        n = int(cursor or 0)
        return {"tools": [{**FINE, "name": f"t{n:03}"}], "nextCursor": str(n + 1)}

    pages = [
        (endless, "after 100 pages and 100 tools the list still goes on"),
        (lambda cursor: {"tools": [FINE], "nextCursor": "again"}, "pages of the list repeat"),
        (lambda cursor: {"tools": [FINE], "nextCursor": 7}, "the cursor 7 is no text"),
    ]
    for page, said in pages:
        raw = RawServer(era, page=page)
        agent = mcp_agent(ScriptedModel(["Done."]), mcp(raw, name="it"))
        async with Runtime([agent], store="memory", ports=ports) as rt:
            await rt.run("helper", "Go.")
            assert rt.mcp_servers[0].tools
            assert any(said in each for each in rt.mcp_servers[0].left_out)
        assert raw.lists <= 100


async def test_ten_thousand_malformed_tools_are_named_up_to_a_limit(era: str, ports: Ports) -> None:
    raw = RawServer(era, page=lambda cursor: {"tools": [{"name": "x"}] * 10_000 + [FINE]})
    agent = mcp_agent(ScriptedModel(["Done."]), mcp(raw, name="it"))
    async with Runtime([agent], store="memory", ports=ports) as rt:
        await rt.run("helper", "Go.")
        assert rt.mcp_servers[0].tools == ("it_fine",)
        assert rt.mcp_servers[0].left_out[-1] == "9,000 more are not listed here"


async def test_of_ten_thousand_tools_only_those_that_are_wanted_are_checked(
    era: str, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Any] = []
    check = answers.validate_server_result

    def counted(method: str, version: str, data: Any) -> Any:
        checked.append(data)
        return check(method, version, data)

    monkeypatch.setattr(answers, "validate_server_result", counted)
    listed = [FINE | {"name": f"t{each:04}"} for each in range(9_997)]
    listed += [{"name": "broken"}, {"name": "t0broken"}, {"name": None}]
    raw = RawServer(era, page=lambda cursor: {"tools": listed})
    server = mcp(raw, name="it", allow=["t000*", "t0b*"], deny=["*9"])
    agent = mcp_agent(ScriptedModel(["Done."]), server)
    async with Runtime([agent], store="memory", ports=ports) as rt:
        await rt.run("helper", "Go.")
        (status,) = rt.mcp_servers
    assert status.tools == tuple(f"it_t000{each}" for each in range(9))
    assert [each.split(":")[0] for each in status.left_out] == ["'t0broken'", "tool 10000"]
    assert len(checked) == 9


async def test_an_error_of_any_length_is_said_up_to_a_limit(era: str, ports: Ports) -> None:
    long = types.ErrorData(code=1, message="x" * 1_000_000)
    raw = RawServer(era, page=lambda cursor: long)
    agent = mcp_agent(ScriptedModel(["Done."]), mcp(raw, name="it"))
    async with Runtime([agent], store="memory", ports=ports) as rt:
        await rt.run("helper", "Go.")
        assert rt.mcp_servers[0].problem.startswith("xxxx")
        assert len(rt.mcp_servers[0].problem) < 5_000
    found = await told(era, ports, long)
    assert found.output.startswith("the MCP server 'it' refused the call: xxxx")
    assert len(found.output) < 5_000


async def test_a_notification_of_any_form_is_heard_or_dropped_and_never_logged(
    ports: Ports, caplog: pytest.LogCaptureFixture, eventually: Any
) -> None:
    listed = [FINE]
    raw = RawServer(page=lambda cursor: {"tools": listed})
    agent = mcp_agent(ScriptedModel(["Done."]), mcp(raw, name="it"))
    async with Runtime([agent], store="memory", ports=ports) as rt:
        await rt.run("helper", "Go.")
        for method in ("cancelled", "subscriptions/acknowledged", "message", "progress", "x"):
            for params in (None, {}, {"_meta": 3}, {"requestId": [1], "notifications": 7}):
                await raw.notify(f"notifications/{method}", params)
        listed.append({**FINE, "name": "new"})
        await raw.notify("notifications/tools/list_changed", {"_meta": "x"})
        await eventually(lambda: rt.mcp_servers[0].tools == ("it_fine", "it_new"))
    assert not caplog.records


async def test_a_tool_whose_schema_is_nested_without_end_is_left_out_and_the_others_work(
    era: str, ports: Ports
) -> None:
    deep = {"name": "deep", "inputSchema": {"type": "object", "x": nested(400)}}
    raw = RawServer(era, page=lambda cursor: {"tools": [deep, FINE]})
    agent = mcp_agent(ScriptedModel(["Done."]), mcp(raw, name="it"))
    async with Runtime([agent], store="memory", ports=ports) as rt:
        await rt.run("helper", "Go.")
        (status,) = rt.mcp_servers
    assert status.tools == ("it_fine",)
    assert status.left_out == ("'deep': its schema is nested deeper than 64 levels",)


def nested(depth: int) -> Any:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"x": found}
    return found


@pytest.mark.parametrize("depth", [40, 100, 400])
def test_a_list_with_a_tool_that_is_nested_too_deeply_is_read_off_a_line(depth: int) -> None:
    deep = {"name": "deep", "inputSchema": {"type": "object", "x": nested(depth)}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": [deep, FINE, 7]}})
    (message,) = Lines().read(line.encode() + b"\n")
    assert isinstance(message, types.JSONRPCResponse)
    page = answers.usable_answer(
        "tools/list", message.result, is_modern=True, admits=lambda _: True
    )
    assert [each["name"] for each in page["tools"]] == (["deep"] if depth < 64 else []) + ["fine"]


# ── results ──────────────────────────────────────────────────────────────────────────────────


async def told(era: str, ports: Ports, result: Any, tool: Any = FINE) -> Any:
    """What a model is told of a result."""
    raw = RawServer(era, page=lambda cursor: {"tools": [tool]}, result=lambda name: result)
    model = ScriptedModel([call("it_fine"), "Done."])
    agent = mcp_agent(model, mcp(raw, name="it"))
    async with Runtime([agent], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        began = anyio.current_time()
        await rt.run("helper", "Go.")
        assert anyio.current_time() - began < 5
        (found,) = results.all
        return found


TEXT = {"type": "text", "text": "known"}


async def test_a_result_of_too_many_parts_is_an_error_in_one_line(era: str, ports: Ports) -> None:
    found = await told(era, ports, {"content": [TEXT] * 1_001})
    assert found.is_error
    assert "content: 1,001 parts are too many, at most 1,000 are read" in found.output
    found = await told(era, ports, {"content": [TEXT] * 1_000})
    assert not found.is_error


@pytest.mark.parametrize(
    "value", ['[1],' * 300_000, '{"a": "\\","},' * 300_000, '"unended ' + '\\"' * 900_000]
)  # fmt: skip
def test_a_line_of_more_values_than_are_read_is_an_error_for_its_request(value: str) -> None:
    line = f'{{"jsonrpc": "2.0", "id": 5, "result": {{"content": [{value}1]}}}}\n'
    (message,) = Lines().read(line.encode())
    assert isinstance(message, types.JSONRPCError)
    assert message.id == 5
    is_text = "unended" in value
    assert ("values" in message.error.message) != is_text


def test_what_a_long_text_says_does_not_count_as_values() -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": 5, "result": {"text": '[{"a": 1}, {}], ' * 400_000}})
    (message,) = Lines().read(line.encode() + b"\n")
    assert isinstance(message, types.JSONRPCResponse)


async def test_an_error_by_the_code_of_a_lost_connection_is_the_servers(
    era: str, ports: Ports
) -> None:
    found = await told(era, ports, types.ErrorData(code=-32000, message="no more seats"))
    assert found.output == "the MCP server 'it' refused the call: no more seats"


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"type": "video", "data": "x"}, "[a part of the type 'video' was left out]"),
        ({"type": "x" * 9_000}, "was left out]"),
        ({"type": None, "text": "x"}, "[a part of no type was left out]"),
        ({"text": "x"}, "[a part of no type was left out]"),
        ("loose", "[a part of no type was left out]"),
        (None, "[a part of no type was left out]"),
        ({"type": "text"}, "[a part of the type 'text' was left out: it lacks"),
        ({"type": "text", "text": None}, "[a part of the type 'text' was left out: it lacks"),
        ({"type": "image", "mimeType": "image/png"}, "type 'image' was left out: it lacks"),
        ({"type": "image", "data": "§§", "mimeType": "image/png"}, "are left out: "),
        ({"type": "image", "data": "AAAA", "mimeType": 3}, "are left out: "),
        ({"type": "audio", "data": [1]}, "type 'audio' was left out: it lacks"),
        ({"type": "resource_link", "uri": "a:b", "name": 3}, "[a resource: a:b]"),
        ({"type": "resource_link", "name": "x"}, "type 'resource_link' was left out: it lacks"),
        ({"type": "resource", "resource": {"text": "inner"}}, "[a resource]\ninner"),
        ({"type": "resource", "resource": {"uri": "a:b", "text": "inner"}}, "[a:b]\ninner"),
        ({"type": "resource", "resource": {"uri": "a:b"}}, "type 'resource' was left out"),
        ({"type": "resource", "resource": {"blob": "§"}}, "are left out: "),
        ({"type": "resource", "resource": None}, "type 'resource' was left out: it lacks"),
        ({"type": "text", "text": "\ud800", "annotations": 3, "_meta": 9}, "\ufffd"),
    ],
)
async def test_one_part_that_is_none_leaves_the_others_of_a_result(
    era: str, ports: Ports, block: Any, said: str
) -> None:
    found = await told(era, ports, {"content": [TEXT, block, TEXT]})
    assert found.output.startswith("known\n\n")
    assert found.output.endswith("\n\nknown")
    assert said in found.output
    assert not found.is_error


async def test_a_picture_is_shown_whatever_its_media_type_claims(era: str, ports: Ports) -> None:
    data = b64encode(PNG).decode()
    for claim in ("image/png", "image/jpeg", "text/plain", "application/pdf", "", None):
        block = {"type": "image", "data": data, "mimeType": claim}
        found = await told(era, ports, {"content": [block]})
        assert [each.media_type for each in found.parts] == ["image/png"]


@pytest.mark.parametrize(
    ("result", "output", "is_error"),
    [
        ({"content": [TEXT], "isError": None}, "known", False),
        ({"content": [TEXT], "isError": "perhaps"}, "known", True),
        ({"content": [TEXT], "_meta": [1], "more": 2, "resultType": None}, "known", False),
        ({"content": [TEXT], "structuredContent": "x"}, "known", False),
        ({"content": [], "structuredContent": [1, 2]}, "[1, 2]", False),
        ({"content": [], "structuredContent": {"a": float("nan")}}, '{"a":null}', False),
        ({"structuredContent": {"a": 1}}, '{"a":1}', False),
    ],
)
async def test_what_is_usable_of_a_result_is_used(
    era: str, ports: Ports, result: Any, output: str, is_error: bool
) -> None:
    found = await told(era, ports, result)
    assert found.output.replace(" ", "") == output.replace(" ", "")
    assert found.is_error is is_error


@pytest.mark.parametrize("result", [{}, {"content": "x"}, {"content": {"a": 1}}, {"content": None}])
async def test_a_result_with_nothing_usable_is_an_error_in_one_line(
    era: str, ports: Ports, result: Any
) -> None:
    found = await told(era, ports, result)
    assert found.is_error
    assert found.output.startswith("the answer of the MCP server 'it' is not valid (content: ")
    assert "\n" not in found.output


BOMB = {
    "type": "object",
    "$ref": "#/$defs/n0",
    "$defs": {f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}] * 2} for n in range(60)}
    | {"n60": {}},
}


@pytest.mark.parametrize(
    ("promise", "is_error"),
    [
        ({"type": "object", "required": ["many"]}, True),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, False),
        ({"type": "object", "properties": {"a": {"pattern": "(a+)+$"}}}, False),
        ({"type": "object", "$ref": "http://far.example/schema"}, False),
        ({"type": 9}, False),
        (BOMB, False),
    ],
)
async def test_a_schema_of_results_neither_hides_a_result_nor_keeps_the_loop_busy(
    era: str, ports: Ports, promise: Any, is_error: bool
) -> None:
    result = {"content": [TEXT], "structuredContent": {"a": "a" * 40 + "!"}}
    found = await told(era, ports, result, {**FINE, "outputSchema": promise})
    assert found.output.startswith("known")
    assert found.is_error is is_error
    assert ("[Invalid structured content: " in found.output) is is_error
