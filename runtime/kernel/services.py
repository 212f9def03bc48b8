"""``Services``: what everything that runs is given by its composer.

Made once, by a ``Runtime`` or by a driver of single turns, and never changed.  Who is given it
knows nothing of either.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.spawned import NamedAgent
from hubbub.agents.mcp_server import McpServer
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.turn.crash_limit import MAX_CRASHES
from hubbub.hub.errors import BadValue
from hubbub.hub.hub import Hub
from hubbub.hub.message import opening_message
from hubbub.hub.near_misses import kind_of
from hubbub.runtime.kernel.budgets import TreeBudgets
from hubbub.runtime.kernel.catalog import Catalog
from hubbub.runtime.kernel.phase import Phase
from hubbub.runtime.kernel.returns import Returns
from hubbub.runtime.kernel.timers import Timers
from hubbub.runtime.spending.accounts import TreeAccounts
from hubbub.runtime.spending.prices import PriceList

__all__ = ["KeptTurns", "NoToolServers", "Services", "ToolServers", "definition_of", "no_agent"]


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


class KeptTurns:
    """How many turns of a run at work are kept at least; 0 for all, and as long as the store takes
    no bases."""

    __slots__ = ("kept",)

    def __init__(self, kept: int = 0) -> None:
        self.kept = kept


@dataclass(frozen=True, slots=True)
class Services:
    """The hub, the definitions, and what is kept beside them."""

    hub: Hub
    definitions: Definitions
    catalog: Catalog
    env: Mapping[str, str] = field(repr=False)
    """Values of variables that nothing else gives."""
    budgets: TreeBudgets
    accounts: TreeAccounts
    """What each tree has used of what it may use."""
    timers: Timers
    phase: Phase
    servers: ToolServers
    """Whose tools there are, besides those of the definitions."""
    prices: PriceList = field(default_factory=PriceList)
    returns: Returns = field(default_factory=Returns)
    max_crashes: int = MAX_CRASHES
    """Deaths of its process in a row after which a run fails."""
    turns: KeptTurns = field(default_factory=KeptTurns)


def no_agent(given: object) -> BadValue:
    """What is said of what is neither an agent's name nor its definition."""
    return BadValue("agent", f"expected an agent's name or AgentDefinition, not {kind_of(given)}")


def definition_of(
    services: Services, agent: str | NamedAgent, input: object, *, check_input: bool = True
) -> AgentDefinition:
    """The definition of an agent that is to be started with ``input``.

    Raises ``UnknownAgent``, and ``BadValue`` for what is no agent and for an input that does not
    fit.
    """
    if not isinstance(agent, str | AgentDefinition):
        raise no_agent(agent)
    name = agent if isinstance(agent, str) else agent.name
    definition = services.definitions.agents.get(name) or services.definitions.agent(name)
    if check_input and definition.execute is not None:
        services.catalog.input_of(definition)(opening_message(input)[0])
    return definition
