"""``CodeScope``: a code run, as its context, its inbox and its conversations see it."""

from collections.abc import Callable
from typing import Protocol

from hubbub.agents.code.lifecycle import CodeThread
from hubbub.hub.events import Event, SessionMessage
from hubbub.hub.run_hub import RunScope
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.runs.dependencies import RunDependencies

__all__ = ["CodeScope"]


class CodeScope(RunScope, Protocol):
    """A run that is a function in a task of its own."""

    @property
    def services(self) -> Services: ...

    @property
    def shared(self) -> RunDependencies: ...

    @property
    def thread(self) -> CodeThread: ...

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, or is being released."""
        ...

    def record(self, event: Event, done: Callable[[], None] | None) -> None:
        """Write an event of the runtime's own on the agent's behalf."""
        ...

    def consume(self, item: SessionMessage) -> None:
        """Record that the agent has consumed a message."""
        ...

    def left_unread(self, error: Exception) -> None:
        """What is on record of the run cannot be read: it is left as it is."""
        ...

    def will_wait(self) -> None:
        """The agent is about to wait for a message."""
        ...

    def number_step(self) -> int:
        """The number of the next model step: no two of the run have the same."""
        ...
