"""MCP servers that are commands and print what is no message: said at once, within bounds."""

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.mcp_servers import Results, mcp_agent

from hubbub import McpServer, Runtime, ScriptedModel, mcp
from hubbub.runtime.mcp import lines
from hubbub.runtime.models.scripted import call

pytestmark = [
    pytest.mark.long,
    pytest.mark.anyio,
    pytest.mark.spec("L-09"),
    pytest.mark.skipif(sys.platform == "win32", reason="there the SDK starts commands"),
]

PROGRAM = Path(__file__).parents[2] / "support" / "mcp_hostile.py"
PROMPT = 20.0
"""Seconds within which a call ends whose timeout is far longer."""


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Processes live in the machine's own time."""
    found: str = request.param
    return found


def command(kind: str = "", **options: Any) -> McpServer:
    return mcp([sys.executable, "-P", str(PROGRAM), kind], name="it", **options)


async def outputs_of(*tools: str, kind: str = "") -> Results:
    """What calls of these tools come to, one after another."""
    model = ScriptedModel([*(call(f"it_{each}") for each in tools), "Done."])
    async with Runtime([mcp_agent(model, command(kind))], store="memory") as rt:
        results = Results(rt.hub)
        with anyio.fail_after(PROMPT * len(tools)):
            await rt.run("helper", "Go.")
        return results


async def test_what_can_still_be_read_of_an_answer_is_read() -> None:
    fine = (
        "fine", "byte_order_mark", "float_id", "text_id", "twice", "noise_before", "logs",
        "changes", "surrogate", "raw_surrogate", "nan", "ten_megabytes", "fine",
    )  # fmt: skip
    results = await outputs_of(*fine)
    assert results.failures == [False] * len(fine)
    assert results.outputs[:8] == ["fine"] * 8
    assert results.outputs[8] == "fine\ufffd"
    assert results.outputs[9].startswith("fine\ufffd")
    assert results.outputs[10].replace(" ", "") == '{"a":null}'
    assert results.outputs[11].startswith("xxxx")
    assert not results.errors


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("null_result", "(result: expected an object, not None)"),
        ("text_result", "(result: expected an object, not 'done')"),
        ("no_result", "(it has neither a result nor an error)"),
        ("no_version", "(jsonrpc: expected '2.0', not None)"),
        ("text_error", "(error: expected a code and a message, not 'broken')"),
        ("null_id", "(what?)"),
        ("cut_off", "(it is no JSON: "),
        ("two_in_a_line", "(it is no JSON: "),
        ("deep", "(it is no JSON: "),
        ("quite_deep", "(its values are nested too deeply)"),
    ],
)
async def test_an_answer_that_is_none_ends_its_call_at_once_and_nothing_else(
    tool: str, said: str
) -> None:
    results = await outputs_of(tool, "fine")
    assert results.failures == [True, False]
    assert results.outputs[0].startswith("the answer of the MCP server 'it' is not valid (")
    assert said in results.outputs[0]
    assert results.outputs[0].endswith("; it may or may not have had its effect")
    assert "\n" not in results.outputs[0]
    assert not results.errors


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("endless_line", "it has printed a line of more than 64 MB"),
        ("endless_noise", "10,000 lines that are no message: 'garbage'"),
        ("endless_questions", "it asks more than 1,000 things at once"),
    ],
)
async def test_a_server_that_prints_without_end_is_ended_and_started_again(
    tool: str, said: str
) -> None:
    results = await outputs_of(tool, "fine")
    assert results.failures == [True, False]
    assert "the connection to the MCP server 'it' has ended during the call" in results.outputs[0]
    assert said in results.outputs[0]
    assert said in results.errors[0].error


async def test_what_a_server_prints_before_it_speaks_is_skipped() -> None:
    results = await outputs_of("fine", kind="banner")
    assert results.outputs == ["fine"]


async def test_a_server_that_only_babbles_is_ended_before_its_time_to_start_is_over() -> None:
    model = ScriptedModel(["Done."])
    async with Runtime([mcp_agent(model, command("babbles"))], store="memory") as rt:
        with anyio.fail_after(PROMPT):
            await rt.run("helper", "Go.")
        assert "lines that are no message: 'garbage'" in rt.mcp_servers[0].problem


async def test_a_list_that_changes_whenever_it_is_read_keeps_no_step_waiting() -> None:
    model = ScriptedModel([call("it_fine")] * 5 + ["Done."])
    server = command("changes always", start_timeout=60.0)
    async with Runtime([mcp_agent(model, server)], store="memory") as rt:
        results = Results(rt.hub)
        with anyio.fail_after(PROMPT):
            await rt.run("helper", "Go.")
        assert results.outputs == ["fine"] * 5


async def test_why_a_server_has_died_is_known() -> None:
    results = await outputs_of("dies", "fine")
    assert results.failures == [True, False]
    assert "the connection to the MCP server 'it' has ended during the call" in results.outputs[0]
    assert "out of memory" in results.errors[0].error


def test_a_line_is_kept_in_pieces_and_never_beyond_its_limit() -> None:
    found = lines.Lines()
    piece = b"x" * (1 << 20)
    for _ in range(lines.MAX_LINE // len(piece)):
        assert not list(found.read(piece))
        assert not found.fault
    assert not list(found.read(b"y"))
    assert found.fault
    assert not list(found.read(b'\n{"jsonrpc":"2.0","method":"a"}\n'))
