"""Calls of MCP tools over crashes: what may be made again, and what may have run."""

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from support.mcp_servers import listing_server, mcp_agent, tool_of
from support.restarts import Lives, last_outcome

from hubbub import McpServer, ScriptedModel, mcp
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("P-10", "L-09")]

LOST = "it may or may not have had its effect"


class Server:
    """A server whose calls hang until they are told not to."""

    def __init__(self, **hints: Any) -> None:
        self.calls: list[str] = []
        self.hangs = True
        self.tools = [tool_of("act", hints=types.ToolAnnotations(**hints))]

    def object(self) -> Any:
        return listing_server(lambda: self.tools, self.answer)

    async def answer(self, name: str, arguments: dict[str, Any]) -> str:
        self.calls.append(name)
        if self.hangs:
            await anyio.sleep_forever()
        return "acted"


@pytest.mark.parametrize(
    ("hints", "is_repeated"),
    [
        ({}, False),
        ({"destructive_hint": False}, False),
        ({"idempotent_hint": True}, True),
        ({"read_only_hint": True}, True),
    ],
)
async def test_a_lost_call_is_made_again_only_where_the_server_says_that_it_may(
    tmp_path: Path, ports: Ports, eventually: Any, hints: dict[str, bool], is_repeated: bool
) -> None:
    lives = Lives(tmp_path, ports, is_killed=True)
    server = Server(**hints)
    agent = mcp_agent(ScriptedModel([call("it_act"), "Done."]), mcp(server.object(), name="it"))
    async with lives.life(agent) as rt:
        run = await rt.start("helper", "Go.", session_key="one")
        await eventually(lambda: server.calls == ["act"])
    server.hangs = False
    async with lives.life(agent) as rt:
        await eventually(lambda: bool(lives.seen.all("session:end")))
        (result,) = lives.seen.all("agent:tool:complete")
        assert (LOST in result.output) is not is_repeated
        assert result.is_error is not is_repeated
        assert (await last_outcome(rt, run.run_id)).output == "Done."
    assert len(server.calls) == 1 + is_repeated


async def test_a_run_comes_back_where_its_server_does_not(
    tmp_path: Path, ports: Ports, eventually: Any
) -> None:
    """The call may have run; the run goes on without the server."""
    lives = Lives(tmp_path, ports, is_killed=True)
    server = Server(idempotent_hint=True)

    def agent(reached: Any) -> Any:
        there: McpServer = mcp(reached, name="it", start_timeout=2)
        return mcp_agent(ScriptedModel([call("it_act"), "Done."]), there)

    async with lives.life(agent(server.object())) as rt:
        await rt.start("helper", "Go.", session_key="one")
        await eventually(lambda: server.calls == ["act"])
    async with lives.life(agent(Gone())) as rt:
        await eventually(lambda: bool(lives.seen.all("session:end")))
        (result,) = lives.seen.all("agent:tool:complete")
        assert LOST in result.output


async def test_a_call_that_waits_for_approval_still_does_after_a_restart(
    tmp_path: Path, ports: Ports, eventually: Any
) -> None:
    lives = Lives(tmp_path, ports, is_killed=True)
    server = Server()
    server.hangs = False
    there = mcp(server.object(), name="it", approval=True)
    agent = mcp_agent(ScriptedModel([call("it_act"), "Done."]), there)
    async with lives.life(agent) as rt:
        await rt.start("helper", "Go.", session_key="one")
        await eventually(lambda: bool(lives.seen.all("session:prompt")))
        (prompt,) = lives.seen.all("session:prompt")
    async with lives.life(agent) as rt:
        await rt.hub.approve(prompt.prompt_id)
        await eventually(lambda: bool(lives.seen.all("session:end")))
        (result,) = lives.seen.all("agent:tool:complete")
        assert (result.output, result.is_error) == ("acted", False)
    assert server.calls == ["act"]


async def test_a_call_whose_server_is_away_may_be_approved_with_other_arguments(
    tmp_path: Path, ports: Ports, eventually: Any
) -> None:
    """Whether they fit the call itself says."""
    lives = Lives(tmp_path, ports, is_killed=True)
    server = Server()

    def agent(reached: Any) -> Any:
        there = mcp(reached, name="it", approval=True, start_timeout=2)
        return mcp_agent(ScriptedModel([call("it_act"), "Done."]), there)

    async with lives.life(agent(server.object())) as rt:
        await rt.start("helper", "Go.", session_key="one")
        await eventually(lambda: bool(lives.seen.all("session:prompt")))
        (prompt,) = lives.seen.all("session:prompt")
    async with lives.life(agent(Gone())) as rt:
        assert (await rt.hub.approve(prompt.prompt_id, {"how": "slowly"})).accepted
        await eventually(lambda: bool(lives.seen.all("session:end")))
        (result,) = lives.seen.all("agent:tool:complete")
        assert result.is_error
    assert server.calls == []


class Gone:
    """A transport whose server is not there any more."""

    async def __aenter__(self) -> Any:
        raise ConnectionRefusedError("nobody listens there")

    async def __aexit__(self, *_: object) -> None:
        return None
