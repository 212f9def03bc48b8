"""``Services``: what everything that runs is given by whoever composed it.

Made once, by a ``Runtime`` or by a driver of single turns, and never changed.  Who is given it
knows nothing of either.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hubbub.agents.resolution.definitions import Definitions
from hubbub.hub.hub import Hub
from hubbub.runtime.kernel.budgets import TreeBudgets
from hubbub.runtime.kernel.catalog import Catalog
from hubbub.runtime.kernel.phase import Phase
from hubbub.runtime.kernel.returns import Returns
from hubbub.runtime.kernel.timers import Timers

__all__ = ["Services"]


@dataclass(frozen=True, slots=True)
class Services:
    """The hub, the definitions, and what is kept beside them."""

    hub: Hub
    definitions: Definitions
    catalog: Catalog
    env: Mapping[str, str] = field(repr=False)
    """Values of variables that nothing else gives."""
    budgets: TreeBudgets
    timers: Timers
    phase: Phase = field(default_factory=Phase)
    returns: Returns = field(default_factory=Returns)
