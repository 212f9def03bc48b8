"""MCP servers that die again and again: started again after growing pauses, and visibly down."""

from typing import Any

import anyio
import pytest
from support.mcp_raw import RawServer
from support.mcp_servers import Results, mcp_agent

from hubbub import Runtime, ScriptedModel, mcp
from hubbub.hub.ports import Ports
from hubbub.runtime.models.scripted import call

pytestmark = [pytest.mark.anyio, pytest.mark.spec("L-09")]

TOOL = {"name": "act", "inputSchema": {"type": "object"}}


class Dying(RawServer):
    """A server that is gone ``after`` so many seconds; at once, if it is None."""

    def __init__(self, after: float | None) -> None:
        super().__init__(page=lambda cursor: {"tools": [TOOL]})
        self.after = after
        self.opened: list[float] = []

    async def __aenter__(self) -> Any:
        self.opened.append(anyio.current_time())
        if self.after is None:
            raise ConnectionRefusedError("nobody listens there")
        return await super().__aenter__()

    async def _serve(self, asked: Any, group: Any) -> None:
        async with anyio.create_task_group() as lasting:
            lasting.start_soon(super()._serve, asked, group)
            await anyio.sleep(self.after or 0)
            lasting.cancel_scope.cancel()
        await self._send.aclose()


@pytest.mark.parametrize("after", [None, 0.5, 5.0])
async def test_a_server_that_dies_in_a_loop_is_started_ever_more_seldom(
    ports: Ports, after: float | None
) -> None:
    server = Dying(after)
    agent = mcp_agent(ScriptedModel(["Done."]), mcp(server, name="it"))
    async with Runtime([agent], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        await anyio.sleep(3_600)
        pauses = [b - a for a, b in zip(server.opened, server.opened[1:], strict=False)]
        assert 50 < len(server.opened) < 140
        assert max(pauses) < 60 + (after or 0) + 1
        assert min(pauses[8:]) > 20
        assert rt.mcp_servers[0].state == "down"
        assert rt.mcp_servers[0].problem
        # It is said whenever it was there, and is not any more.
        assert len(results.errors) == (1 if after is None else len(server.opened))


async def test_calls_of_a_server_that_dies_in_a_loop_end_at_once(ports: Ports) -> None:
    server = Dying(0.5)
    model = ScriptedModel([*(call("it_act") for _ in range(20)), "Done."])
    agent = mcp_agent(model, mcp(server, name="it"))
    server._result = lambda name: anyio.sleep_forever()
    async with Runtime([agent], store="memory", ports=ports) as rt:
        results = Results(rt.hub)
        began = anyio.current_time()
        await rt.run("helper", "Go.")
        assert anyio.current_time() - began < 20 * 3
        assert results.failures == [True] * 20
        assert all("the MCP server 'it'" in each for each in results.outputs)
        assert len(server.opened) <= 21
