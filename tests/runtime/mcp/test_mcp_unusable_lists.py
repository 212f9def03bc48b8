"""A list of tools that cannot be used is said to be so at once; one that can in part is used."""

import json
import time
from typing import Any

import anyio
import mcp_types as types
import pytest
from support.mcp_raw import RawServer
from support.mcp_servers import mcp_agent

from hubbub import Runtime, ScriptedModel, mcp
from hubbub.hub.ports import Ports
from hubbub.runtime.mcp import answers
from hubbub.runtime.mcp.lines import Lines, answer_in, said_in

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-09")]

FINE = {"name": "fine", "inputSchema": {"type": "object"}}


class Silent(RawServer):
    """It does not answer to what it does not know, as some do."""

    def _answer_to(self, method: str, params: dict[str, Any]) -> Any:
        known = method in ("initialize", "tools/list")
        return super()._answer_to(method, params) if known else anyio.sleep_forever()


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ({"tools": None}, "tools: expected a list, not None"),
        ({}, "tools: expected a list, not None"),
        (types.ErrorData(code=types.INTERNAL_ERROR, message="no database"), "no database"),
    ],
)
async def test_what_is_wrong_with_a_list_is_said_at_once(
    ports: Ports, page: Any, problem: str
) -> None:
    """Another generation of the protocol was tried, which such a server does not answer to."""

    raw = Silent(page=lambda cursor: page)
    agent = mcp_agent(ScriptedModel(["Done."]), mcp(raw, name="it", start_timeout=30))
    async with Runtime([agent], store="memory", ports=ports) as rt:
        began = ports.clock.monotonic()
        await rt.run("helper", "Go.")
        assert ports.clock.monotonic() - began < 1
        (status,) = rt.mcp_servers
        assert problem in status.problem
        assert raw.lives == 1


def line_with(tool_depth: int, *, beside: int = 0) -> bytes:
    """A list of a tool that is nested so deeply and a fine one, beside something else."""

    def nested(depth: int) -> str:
        return '{"]":' * depth + '"{"' + "}" * depth

    deep = f'{{"name": "deep", "inputSchema": {{"type": "object", "x": {nested(tool_depth)}}}}}'
    result = f'{{"tools": [{deep}, {json.dumps(FINE)}], "beside": {nested(beside)}}}'
    return f'{{"jsonrpc": "2.0", "id": 1, "result": {result}}}'.encode()


def read(how: str, line: bytes) -> Any:
    if how == "a line":
        (message,) = Lines().read(line + b"\n")
        return message
    given = answer_in(line, 1) if how == "a body" else said_in(line, 1)
    return types.jsonrpc_message_adapter.validate_json(given)


@pytest.mark.parametrize("how", ["a line", "a body", "an event"])
@pytest.mark.parametrize("depth", [100, 900, 3_000, 100_000])
def test_only_a_tool_that_is_nested_without_end_is_left_out(how: str, depth: int) -> None:
    message = read(how, line_with(depth))
    assert isinstance(message, types.JSONRPCResponse)
    page = answers.usable_answer(
        "tools/list", message.result, is_modern=True, admits=lambda _: True
    )
    assert [each["name"] for each in page["tools"]] == ["fine"]
    assert page["_meta"][answers.LEFT_OUT] == ["'deep': its schema is nested deeper than 64 levels"]


@pytest.mark.parametrize("beside", [190, 900, 3_000])
@pytest.mark.parametrize("how", ["a line", "a body", "an event"])
def test_nothing_else_is_cut_short_silently(how: str, beside: int) -> None:
    message = read(how, line_with(3_000, beside=beside))
    if beside == 190:
        assert isinstance(message, types.JSONRPCResponse)
        assert json.dumps(message.result["beside"]).count("{") == beside + 1
    else:
        assert isinstance(message, types.JSONRPCError)
        assert "nested too deeply" in message.error.message


@pytest.mark.parametrize("tail", [b'"', b"x", b"]", b'"\\'])
def test_a_line_that_is_no_list_takes_no_longer_for_its_depth(tail: bytes) -> None:
    line = line_with(3_000)[:-1] + tail * 1_000_000
    began = time.process_time()
    list(Lines().read(line + b"\n"))
    assert time.process_time() - began < 5
