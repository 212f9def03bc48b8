"""What ``state.spawn`` returns, as tools see it: a handle on a child, and how it ended."""

from typing import Any, Protocol

from hubbub.hub.delivery.stream import EventStream
from hubbub.hub.events import Event, OutcomeName, Usage
from hubbub.hub.message import Sayable
from hubbub.hub.receipt import Receipt

__all__ = ["NamedAgent", "SpawnedOutcome", "SpawnedRun"]


class NamedAgent(Protocol):
    """An agent's definition (``AgentDefinition``), which stands for its name here."""

    @property
    def name(self) -> str:
        """What it is known by."""
        ...

    @property
    def is_code(self) -> bool:
        """Whether its runs execute a function instead of talking to a model."""
        ...


class SpawnedOutcome(Protocol):
    """How a session, or a run, ended (``RunOutcome``)."""

    @property
    def run_id(self) -> str:
        """The run whose outcome it is."""
        ...

    @property
    def success(self) -> bool:
        """Whether it completed."""
        ...

    @property
    def outcome(self) -> OutcomeName:
        """How it ended."""
        ...

    @property
    def reason(self) -> str:
        """Why, in words, where it did not complete."""
        ...

    @property
    def usage(self) -> Usage:
        """The tokens that it took."""
        ...

    @property
    def output(self) -> Any:
        """What it came to, decoded again at each access; ``None`` if there is nothing."""
        ...

    def value(self) -> Any:
        """The output of what succeeded; raises ``RunFailed`` with the reason where it did not."""
        ...


class SpawnedRun(Protocol):
    """A handle on a child (``Run``)."""

    @property
    def run_id(self) -> str:
        """The child's id."""
        ...

    @property
    def agent(self) -> str:
        """Its agent's name."""
        ...

    async def result(self) -> SpawnedOutcome:
        """The latest session's outcome, once everything accepted so far is handled."""
        ...

    async def finished(self) -> SpawnedOutcome:
        """The outcome of the whole run, after its terminal event."""
        ...

    async def ask(self, message: Sayable, *, source: str = "") -> SpawnedOutcome:
        """Send a message and wait for the turn that takes it."""
        ...

    def events(self, *, lossless: bool = True) -> EventStream[Event]:
        """The run's events from its beginning on, as a stream that ends with it."""
        ...

    def send(self, message: Sayable) -> Receipt:
        """Send a message to it."""
        ...

    def interrupt(self, reason: str = "") -> Receipt:
        """Interrupt the turn at work."""
        ...

    def close(self, reason: str = "") -> Receipt:
        """Accept no more messages, handle what waits, then end the run."""
        ...

    def terminate(self, reason: str = "") -> Receipt:
        """End it, and its descendants, now; acts at the call."""
        ...

    async def read(self) -> list[Event]:
        """Its durable events so far."""
        ...
