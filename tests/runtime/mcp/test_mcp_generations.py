"""Which generation of the protocol a server is spoken to by, so that it can ask as it does."""

import sys
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel
from support.mcp_raw import RawServer
from support.mcp_servers import Results, mcp_agent

from hubbub import Runtime, ScriptedModel, mcp
from hubbub.hub.events import SessionPrompt
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-09")]

PROGRAM = """
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

class Size(BaseModel):
    size: str

server = MCPServer("shop")

@server.tool()
async def order(context: Context) -> str:
    found = await context.elicit("Which one?", Size)
    return f"{found.action} {found.data.size}"

server.run("stdio")
"""


class Size(BaseModel):
    size: str


def shop() -> MCPServer:
    """A server of the SDK whose tool asks in the middle of its call."""
    server = MCPServer("shop")

    @server.tool()
    async def order(context: Context) -> str:
        """Order something."""
        found = await context.elicit("Which one?", Size)
        return f"{found.action} {found.data.size}" if found.action == "accept" else found.action

    return server


async def ordered(server: Any, ports: Ports | None = None) -> list[str]:
    """What a call of its tool comes to, where the user answers what is asked."""
    model = ScriptedModel([call(f"{server.name}_order"), "Done."])
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        rt.hub.subscribe(SessionPrompt, lambda asked: rt.hub.reply(asked.prompt_id, "large"))
        await rt.run("helper", "Go.")
        return results.outputs


async def test_a_server_of_the_sdk_in_this_process_asks_in_the_middle_of_a_call(
    ports: Ports,
) -> None:
    assert await ordered(mcp(shop()), ports) == ["accept large"]


async def test_a_question_in_this_process_reaches_the_conversation_of_its_call(
    ports: Ports, eventually: Any
) -> None:
    model = ScriptedModel([call("shop_order"), "Done."])
    agent = mcp_agent(model, mcp(shop()))
    async with Runtime([agent], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        prompts: list[SessionPrompt] = []
        rt.hub.subscribe(SessionPrompt, prompts.append)
        for key in ("one", "two", "three"):
            await rt.start("helper", "Go.", session_key=key)
        await eventually(lambda: len(prompts) == 3)
        for each in prompts:
            rt.hub.reply(each.prompt_id, each.run_id)
        await eventually(lambda: len(results.all) == 3)
    assert {x.run_id: x.output for x in results.all} == {
        x.run_id: f"accept {x.run_id}" for x in prompts
    }


@pytest.mark.long
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_command_of_the_sdk_asks_in_the_middle_of_a_call(tmp_path: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(PROGRAM)
    assert await ordered(mcp([sys.executable, str(program)])) == ["accept large"]


@pytest.mark.parametrize("code", [
    types.UNSUPPORTED_PROTOCOL_VERSION, types.METHOD_NOT_FOUND, types.INVALID_REQUEST, -1,
])  # fmt: skip
async def test_a_server_that_refuses_the_older_protocol_is_spoken_to_by_the_newer(
    ports: Ports, code: int
) -> None:
    class Newer(RawServer):
        def _answer_to(self, method: str, params: dict[str, Any]) -> Any:
            if method == "initialize":
                return types.ErrorData(code=code, message="I do not know that.")
            return super()._answer_to(method, params)

    tool = {"name": "order", "inputSchema": {"type": "object"}}
    raw = Newer("2026", page=lambda cursor: {"tools": [tool]})
    assert await ordered(mcp(raw, name="it"), ports) == ["(finished; nothing returned)"]
    assert raw.calls == ["order"]


@pytest.mark.parametrize("failures", [1, 2, 3])
async def test_a_server_that_was_away_asks_in_the_middle_of_a_call_as_before(
    ports: Ports, failures: int
) -> None:
    """However often it was tried in vain."""
    from mcp.client._memory import InMemoryTransport

    left = [failures]

    class Away:
        async def __aenter__(self) -> Any:
            if left[0]:
                left[0] -= 1
                raise OSError("nobody is there")
            self._there = InMemoryTransport(shop())
            return await self._there.__aenter__()

        async def __aexit__(self, *exc: Any) -> Any:
            return await self._there.__aexit__(*exc)

    server = mcp(Away(), name="it")
    model = ScriptedModel([call("it_order"), "Done."])
    async with Runtime([mcp_agent(model, server)], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        rt.hub.subscribe(SessionPrompt, lambda asked: rt.hub.reply(asked.prompt_id, "large"))
        await ports.clock.sleep(600)
        await rt.run("helper", "Go.")
        assert results.outputs == ["accept large"]
        assert rt.mcp_servers[0].protocol.startswith("2025")


async def test_a_server_that_asks_by_its_results_is_spoken_to_by_the_newer_where_that_is_chosen(
    ports: Ports,
) -> None:
    asked = types.ElicitRequest(
        params=types.ElicitRequestFormParams(
            message="Which one?",
            requested_schema={"type": "object", "properties": {"size": {"type": "string"}}},
        )
    )
    server = MCPServer("shop")

    @server.tool()
    async def order(context: Context) -> types.InputRequiredResult | str:
        """Order something."""
        if context.input_responses is None:
            return types.InputRequiredResult(input_requests={"q": asked})
        return str(context.input_responses["q"].content["size"])

    assert await ordered(mcp(server, protocol="2026"), ports) == ["large"]
