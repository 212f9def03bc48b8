"""``HubOwnership``: what a hub knows of the runtime that works on it.

A hub alone accepts whatever is well-formed.  With a runtime on it, what no agent could take is
refused where it is sent.
"""

from hubbub.agents.resolution.definitions import Definitions
from hubbub.hub.events import Limits
from hubbub.hub.hub import Hub
from hubbub.runtime.spending.prices import PriceList
from hubbub.runtime.supervision.named_files import NamedFiles
from hubbub.runtime.supervision.supervisor import Supervisor

__all__ = ["HubOwnership"]


class HubOwnership:
    """Makes a runtime's runs the ones that a hub's mail is for, from ``begin`` to ``end``."""

    __slots__ = ("_default_agent", "_definitions", "_hub", "_prices", "_runs", "opens_any")

    def __init__(
        self,
        hub: Hub,
        runs: Supervisor,
        definitions: Definitions,
        prices: PriceList,
        default_agent: str,
        *,
        is_worker: bool,
    ) -> None:
        self.opens_any = not (is_worker or definitions.names)
        """Whether agents are named here that only other processes know."""
        if default_agent and not self.opens_any:
            definitions.agent(default_agent)
        self._hub = hub
        self._runs = runs
        self._definitions = definitions
        self._prices = prices
        self._default_agent = default_agent

    def begin(self) -> None:
        """Raises ``CallerError`` if the hub has another runtime."""
        self._hub.set_owner(self._runs)
        addressing = self._hub.addressing
        names = self._definitions.names
        addressing.agents = None if self.opens_any else frozenset(names)
        addressing.refusal_of_files = NamedFiles(self._definitions).refusal
        addressing.refusal_of_reply = self._runs.refusal_of_reply
        if not self.opens_any:
            addressing.refusal_of_seed = self._definitions.refusal_of_seed
            addressing.refusal_of_limits = self._refusal_of_limits
        addressing.default_agent = self._default_agent

    @property
    def is_begun(self) -> bool:
        """Whether this is the runtime that the hub has."""
        return self._hub.dispatcher.owner is self._runs

    def end(self) -> None:
        """Nothing is refused any more; does nothing where another runtime has the hub."""
        if not self.is_begun:
            return
        self._hub.set_owner(None)
        addressing = self._hub.addressing
        addressing.agents = addressing.refusal_of_seed = None
        addressing.refusal_of_files = addressing.refusal_of_limits = None
        addressing.refusal_of_reply = None

    def _refusal_of_limits(self, limits: Limits) -> str:
        """Why a tree cannot be begun with these limits."""
        return "; ".join(self._prices.problems(self._definitions, limits))
