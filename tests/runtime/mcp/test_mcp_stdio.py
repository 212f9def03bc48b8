"""MCP servers that are commands: real processes, which die, lie and are cancelled."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from support.mcp_servers import Results, mcp_agent

from hubbub import McpServer, Runtime, ScriptedModel, Secret, mcp
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-09")]

SERVER = Path(__file__).parents[2] / "support" / "mcp_stdio.py"


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Processes live in the machine's own time."""
    found: str = request.param
    return found


@pytest.fixture
def eventually() -> Any:
    async def wait(condition: Any) -> None:
        with anyio.fail_after(30):
            while not condition():  # noqa: ASYNC110
                await anyio.sleep(0.01)

    return wait


def command(kind: str = "", **options: Any) -> McpServer:
    options.setdefault("name", "it")
    return mcp([sys.executable, "-P", str(SERVER), kind], **options)


async def test_a_command_is_started_and_ended_with_the_runtime() -> None:
    model = ScriptedModel([call("it_echo", word="hello"), "Done."])
    async with Runtime([mcp_agent(model, command())], store="memory") as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert results.outputs == ['{"word": "hello"}']
        assert rt.mcp_servers[0].protocol.startswith("2025")


@pytest.mark.long
@pytest.mark.parametrize(("protocol", "spoken"), [("auto", "2025"), ("2026", "2026")])
async def test_a_server_of_the_sdk_is_spoken_to_by_the_protocol_that_is_chosen(
    tmp_path: Path, protocol: Any, spoken: str
) -> None:
    program = tmp_path / "weather.py"
    program.write_text(
        "from mcp.server.mcpserver import MCPServer\n"
        "server = MCPServer('weather')\n"
        "@server.tool()\n"
        "async def sun(city: str) -> str:\n"
        "    return f'Sun in {city}'\n"
        "server.run('stdio')\n"
    )
    model = ScriptedModel([call("weather_sun", city="Rome"), "Done."])
    server = mcp([sys.executable, str(program)], protocol=protocol)
    async with Runtime([mcp_agent(model, server)], store="memory") as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert results.outputs == ["Sun in Rome"]
        assert rt.mcp_servers[0].protocol.startswith(spoken)


@pytest.mark.long
async def test_a_server_that_dies_in_a_call_is_an_error_result_and_is_started_again() -> None:
    model = ScriptedModel([call("it_die"), call("it_echo", word="back"), "Done."])
    async with Runtime([mcp_agent(model, command())], store="memory") as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert results.failures == [True, False]
        assert "it may or may not have had its effect" in results.outputs[0]
        assert results.outputs[1] == '{"word": "back"}'
        assert len(results.errors) == 1
        assert results.errors[0].error_type == "mcp server"


@pytest.mark.long
async def test_a_server_that_dies_between_calls_is_started_again(eventually: Any) -> None:
    model = ScriptedModel([call("it_die_after"), "Done."])
    async with Runtime([mcp_agent(model, command())], store="memory") as rt:
        results = Results(rt.hub)
        for _ in range(2):
            await rt.run("helper", "Go.")
            await eventually(lambda: rt.mcp_servers[0].state != "open")
        assert results.failures == [False, False]


async def test_a_server_that_cannot_start_stops_no_run_and_says_why() -> None:
    model = ScriptedModel([call("it_echo"), "Without it, then."])
    for server in (command("dead"), mcp("/no/such/program", name="it")):
        async with Runtime([mcp_agent(model, server)], store="memory") as rt:
            results = Results(rt.hub)
            assert (await rt.run("helper", "Go.")).output == "Without it, then."
            assert results.failures == [True]
            assert rt.mcp_servers[0].state in ("down", "starting")
            assert any(
                word in rt.mcp_servers[0].problem
                for word in ("no configuration found", "No such file")
            )


async def test_garbage_and_wrong_ids_reach_nobody() -> None:
    model = ScriptedModel([call("it_noise", n=1), call("it_lie", n=2), "Done."])
    async with Runtime([mcp_agent(model, command())], store="memory") as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert results.outputs == ['{"n": 1}', '{"n": 2}']


async def test_an_answer_that_is_none_is_said_in_one_line() -> None:
    model = ScriptedModel([call("it_echo", broken=True), "Done."])
    async with Runtime([mcp_agent(model, command())], store="memory") as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
    (output,) = results.outputs
    assert output.startswith("the answer of the MCP server 'it' is not valid (content: ")
    assert output.endswith("; it may or may not have had its effect")
    assert "\n" not in output
    assert "pydantic" not in output
    assert results.failures == [True]


@pytest.mark.long
async def test_a_stalled_call_is_cancelled_and_what_still_comes_is_dropped(
    tmp_path: Path, eventually: Any
) -> None:
    told = tmp_path / "cancelled"
    model = ScriptedModel([call("it_wait"), call("it_echo", word="next"), "Done."])
    # The call after it has as long, from a process of its own.
    server = command(timeout=1.5, env={"CANCELLED": str(told)})
    async with Runtime([mcp_agent(model, server)], store="memory") as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert results.outputs == [
            "timed out: the tool did not finish within 1.5 s", '{"word": "next"}',
        ]  # fmt: skip
        await eventually(told.exists)


async def test_ten_thousand_tools_are_cut_and_an_endless_list_is_left() -> None:
    for kind, count in (("many", 128), ("endless", 8)):
        async with Runtime(
            [mcp_agent(ScriptedModel(["Done."]), command(kind))], store="memory"
        ) as rt:
            await rt.run("helper", "Go.")
            assert len(rt.mcp_servers[0].tools) == count
            assert rt.mcp_servers[0].left_out


async def test_a_server_that_cannot_bear_the_newer_protocol_is_spoken_to_by_the_older() -> None:
    model = ScriptedModel([call("it_echo", word="hello"), "Done."])
    server = command("dies when asked", protocol="2026")
    async with Runtime([mcp_agent(model, server)], store="memory") as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        assert results.outputs == ['{"word": "hello"}']


@pytest.mark.long
async def test_a_mute_server_is_not_waited_for_twice() -> None:
    model = ScriptedModel(["Done."])
    async with Runtime([mcp_agent(model, command("mute", start_timeout=2))], store="memory") as rt:
        took = []
        for _ in range(2):
            began = anyio.current_time()
            await rt.run("helper", "Go.")
            took.append(anyio.current_time() - began)
        first, second = took
        assert second < first / 2, "beside the first: both take as long as the machine is slow"
        assert "did not answer within 2 s" in rt.mcp_servers[0].problem


async def test_a_command_finds_what_it_is_given_and_nothing_secret_of_the_programs_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-program")
    model = ScriptedModel([call("it_env"), "Done."])
    server = command(env={"TOKEN": Secret("t0p-secret"), "PLAIN": "seen"})
    async with Runtime([mcp_agent(model, server)], store="memory") as rt:
        results = Results(rt.hub)
        await rt.run("helper", "Go.")
        found = json.loads(results.outputs[0])
    assert found["PLAIN"] == "seen"
    assert "TOKEN" in found
    assert "OPENAI_API_KEY" not in found
