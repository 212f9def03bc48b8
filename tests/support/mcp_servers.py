"""MCP servers for tests: one that behaves, and ones that list and answer what they are told."""

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.client._memory import InMemoryTransport
from mcp.server import Server, ServerRequestContext
from mcp.server.mcpserver import MCPServer

from hubbub import Agent, AgentDefinition, Event, Hub, McpServer, Model, mcp
from hubbub.hub import events as e

__all__ = ["ERAS", "Results", "listing_server", "mcp_agent", "mcp_in", "tool_of", "weather_server"]

ERAS = ("2026", "2025")
"""The generations of the protocol."""

Answer = Callable[..., Awaitable[Any]]
"""Of a tool's name, its arguments and, if it is told, what was asked before and answered."""


def mcp_in(era: str, server: Any, **options: Any) -> McpServer:
    """The server in this process, spoken to by one generation of the protocol."""
    options.setdefault("name", "it")
    if era == "2026":
        return mcp(server, protocol="2026", **options)
    return mcp(InMemoryTransport(server), protocol="2025", **options)


def mcp_agent(model: Model, *servers: Any, **options: Any) -> AgentDefinition:
    """An agent with these servers' tools."""
    name = options.pop("name", "helper")
    return Agent(name, "You help.", model=model, tools=servers, **options)


def weather_server() -> MCPServer:
    """A server of the SDK."""
    server = MCPServer("weather")

    @server.tool()
    async def forecast(city: str, days: int = 1) -> str:
        """The weather of the next days."""
        return f"{days} days of sun in {city}"

    return server


def tool_of(
    name: str,
    schema: Any = None,
    *,
    description: str = "",
    hints: types.ToolAnnotations | None = None,
) -> types.Tool:
    """A tool as a server lists it."""
    shape = {"type": "object", "properties": {}} if schema is None else schema
    return types.Tool(
        name=name, description=description, annotations=hints, input_schema=shape
    )  # fmt: skip


def listing_server(
    tools: Callable[[], list[types.Tool]], answer: Answer, *, sees_answers: bool = False
) -> Server[Any]:
    """A server that lists what it is told to and answers so."""

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools())

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> Any:
        asked = (params.input_responses,) if sees_answers else ()
        found = await answer(params.name, params.arguments or {}, *asked)
        if isinstance(found, str):
            return types.CallToolResult(content=[types.TextContent(text=found)])
        return found

    return Server("listing", on_list_tools=list_tools, on_call_tool=call_tool)


class Results:
    """What calls came to, as a listener hears it."""

    def __init__(self, hub: Hub) -> None:
        self.all: list[e.AgentToolComplete] = []
        self.errors: list[e.HubErrorEvent] = []
        hub.subscribe(("agent:tool:complete", "hub:error"), self._heard)

    def _heard(self, event: Event) -> None:
        if isinstance(event, e.AgentToolComplete):
            self.all.append(event)
        elif isinstance(event, e.HubErrorEvent):
            self.errors.append(event)

    @property
    def outputs(self) -> list[str]:
        return [each.output for each in self.all]

    @property
    def failures(self) -> list[bool]:
        return [each.is_error for each in self.all]
