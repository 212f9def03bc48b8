"""``OtherRuns``: what the code of one run may see and do of other runs."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from hubbub.agents.definitions.spawned import NamedAgent
from hubbub.agents.state.thread import Thread
from hubbub.hub.own_lane import OwnLane
from hubbub.runtime.kernel.handle import Run

__all__ = ["LookAt", "OtherRuns", "Spawn"]

LookAt: TypeAlias = Callable[[str], Awaitable[tuple[OwnLane, Callable[[], Thread]] | None]]
"""A run's lane and state, by its id: live while it is in memory, else as the journal has it."""


class Spawn(Protocol):
    """See ``Spawner.spawn``."""

    def __call__(
        self,
        parent_run_id: str,
        agent: str | NamedAgent,
        input: object = None,
        *,
        name: str | None = None,
        number: int = 0,
        result: str = "handle",
        call_id: str = "",
        identity: str = "",
        in_order: bool = False,
    ) -> Run: ...


@dataclass(frozen=True, slots=True)
class OtherRuns:
    """Put together where runs are: a runtime has them, a single turn driven by hand has none."""

    statuses_of: Callable[[str], Mapping[str, str]]
    """What a run's children that stay say of themselves, by run id."""
    look_at: LookAt
    spawn: Spawn
