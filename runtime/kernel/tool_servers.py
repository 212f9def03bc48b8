"""``ToolServers``: the servers whose tools runs may call, as runs see them."""

from typing import Protocol

from hubbub.agents.definitions.mcp_server import McpServer
from hubbub.agents.resolution.definitions import Definitions

__all__ = ["NoToolServers", "ToolServers"]


class ToolServers(Protocol):
    """Says which tools there are just now."""

    @property
    def definitions(self) -> Definitions:
        """The definitions, with the tools that the servers list."""
        ...

    async def settled(self, servers: tuple[McpServer, ...]) -> None:
        """Return when each of these has said what it lists, has failed, or has had its time."""
        ...


class NoToolServers:
    """None at all."""

    __slots__ = ("definitions",)

    def __init__(self, definitions: Definitions) -> None:
        self.definitions = definitions

    async def settled(self, servers: tuple[McpServer, ...]) -> None:
        return
