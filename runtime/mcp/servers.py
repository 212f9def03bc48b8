"""``McpServers``: the servers of one runtime, and which tools there are just now."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import anyio
from msgspec import Struct

from hubbub.agents.definitions.tools import Tool
from hubbub.agents.mcp_server import ListedTools, McpServer
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.listed_tools import clashes_of
from hubbub.hub.errors import DefinitionError, MissingExtra
from hubbub.hub.events import Event, HubErrorEvent
from hubbub.hub.hub import Hub
from hubbub.hub.logs import log

if TYPE_CHECKING:
    from anyio import TaskHandle

    from hubbub.runtime.mcp.connection import ServerConnection

__all__ = ["McpServers", "McpStatus"]

CLOSE_SECONDS: Final = 5.0
"""How long servers may take to end in order."""


class McpStatus(Struct, frozen=True, kw_only=True):
    """What is known of one MCP server.

    ``state`` is ``new``, ``starting``, ``open``, ``ending``, ``down`` or ``closed``; ``tools`` are
    the names that models see, of the last list; ``problem`` says why it is down, ``left_out`` which
    tools are not used, and why.
    """

    name: str
    state: str
    tools: tuple[str, ...] = ()
    protocol: str = ""
    problem: str = ""
    left_out: tuple[str, ...] = ()


class McpServers:
    """Connects what the definitions need (``ToolServers``)."""

    def __init__(self, definitions: Definitions, hub: Hub) -> None:
        self._base = definitions
        used = {x.name: x for side in definitions.sides.values() for x in side.servers}
        self._used: dict[str, McpServer] = {}
        self._given: dict[str, tuple[Tool[..., Any], ...]] = {}
        for name, server in used.items():
            if isinstance(server.target, ListedTools):
                self._given[name] = server.target.tools
            else:
                self._used[name] = server
        self.definitions = definitions.with_listed(self._given) if self._given else definitions
        self._hub = hub
        self._connections: dict[str, ServerConnection] = {}
        self._tasks: list[TaskHandle[None, None]] = []
        self._say: Callable[[Event], None] = lambda event: None
        self._clashes: frozenset[str] = frozenset()

    def prepare(self) -> None:
        """Make the connections; raises ``MissingExtra``, and ``DefinitionError`` for an object that
        can be no server."""
        if not self._used:
            return
        try:
            from hubbub.runtime.mcp.connection import ServerConnection
            from hubbub.runtime.mcp.opening import target_problem
        except ModuleNotFoundError as missing:
            if (missing.name or "").startswith("hubbub"):
                raise
            raise MissingExtra("an MCP server among the tools", "mcp") from None
        used = self._used
        wrong = {name: target_problem(each.target) for name, each in used.items()}
        if problems := [f"mcp {name!r}: {text}" for name, text in wrong.items() if text]:
            raise DefinitionError("runtime", problems)
        for name in sorted(used):
            self._connections[name] = ServerConnection(
                used[name], self._hub.ports, self._changed, self._missed
            )

    def begin(self, say: Callable[[Event], None]) -> None:
        """Connect; ``say`` emits what is to be known of it."""
        self._say = say
        for name, each in self._connections.items():
            task = self._hub.tasks.start(each.run(), name=f"hubbub mcp {name}", steady=True)
            self._tasks.append(task)

    async def settled(self, servers: tuple[McpServer, ...]) -> None:
        for each in servers:
            if (connection := self._connections.get(each.name)) is not None:
                await connection.settled()

    async def aclose(self) -> None:
        """End all connections; those that do not end in order are cancelled."""
        connections = self._connections.values() if self._tasks else ()
        for each in connections:
            each.close()
        try:
            with anyio.move_on_after(CLOSE_SECONDS):
                for each in connections:
                    await each.gone()
        finally:
            for task in self._tasks:
                task.cancel()

    @property
    def statuses(self) -> tuple[McpStatus, ...]:
        """What is known of each."""
        return tuple(
            McpStatus(
                name=name,
                state=each.state,
                tools=tuple(tool.name for tool in each.listing.tools),
                protocol=each.protocol,
                problem=each.problem,
                left_out=each.listing.problems,
            )
            for name, each in self._connections.items()
        )

    def _missed(self, name: str, problem: str) -> None:
        error = f"the MCP server {name!r} is not there: {problem}"
        self._say(HubErrorEvent(error=error, error_type="mcp server", listener=name))

    def _changed(self) -> None:
        """Some list is another one."""
        listed = {name: each.listing.tools for name, each in self._connections.items()}
        listed |= self._given
        self.definitions = self._base.with_listed(listed)
        sides = self._base.sides.values()
        clashes = frozenset(text for side in sides for text in clashes_of(side, listed))
        for text in sorted(clashes - self._clashes):
            log.warning("mcp.name_taken", problem=text)
        self._clashes = clashes
