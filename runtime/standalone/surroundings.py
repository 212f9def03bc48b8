"""``Surroundings``: what a turn that is driven by hand finds of a runtime, and of a hub.

Definitions, models, ports and variables are there; other runs, subscribers and a journal are not.
Who asks for these is told so by ``CallerError``.
"""

from collections.abc import Callable
from typing import Any, Final

from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.state.thread import Thread
from hubbub.hub.addressing import Addressing
from hubbub.hub.errors import CallerError
from hubbub.hub.events import Event
from hubbub.hub.ports import Ports
from hubbub.runtime.kernel.budgets import Trees
from hubbub.runtime.kernel.catalog import Resolved

__all__ = ["ALONE", "Mouth", "Surroundings"]

ALONE: Final = "a turn that is driven by hand has no {}; use a Runtime"


class Surroundings:
    """What a turn finds of a runtime where there is none."""

    def __init__(
        self, definitions: Definitions, resolved: Resolved, ports: Ports, env: dict[str, str]
    ) -> None:
        self.definitions = definitions
        self.resolved = resolved
        self.ports = ports
        self.env = env
        self.hub = _NoHub(ports)
        self.runs = _NoRuns()
        self.trees = Trees(max_depth=16, max_live=1_000, max_spawns=10_000)

    def left(self, thread: Thread) -> None:
        """A turn is over: of a frame that is over with it nothing is kept."""
        if thread.phase != "ended":
            return
        origin = thread.origin
        for run_id in self.trees.ended(origin.run_id, origin.root_run_id):
            self.hub.addressing.run_ended(run_id)

    def remember_error(self, run_id: str, error: Exception) -> None:
        """Nobody waits for an outcome: the turn's result says what went wrong."""

    def __getattr__(self, name: str) -> Any:
        raise CallerError(ALONE.format(name))


class _NoHub:
    """Nobody listens."""

    changes = 0
    """How often somebody has begun or ceased to listen."""

    is_at_hand = True
    """Nothing has to be done in another thread."""

    def __init__(self, ports: Ports) -> None:
        self.addressing = Addressing(ports, 0)
        self.pipeline = self.dispatcher = self

    def has(self, *_: object, **__: object) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        raise CallerError(ALONE.format("hub"))


class _NoRuns:
    """There are no other runs."""

    def statuses_of(self, run_id: str) -> dict[str, str]:
        return {}

    def __getattr__(self, name: str) -> Any:
        raise CallerError(ALONE.format("runs"))


class Mouth:
    """The hub of a tool: it can speak, and reaches nobody."""

    def __init__(self, speak: Callable[[Event], None]) -> None:
        self._speak = speak

    def emit(self, event: Event) -> None:
        self._speak(event)

    async def publish(self, event: Event) -> None:
        self._speak(event)

    def __getattr__(self, name: str) -> Any:
        raise CallerError(ALONE.format("hub"))
