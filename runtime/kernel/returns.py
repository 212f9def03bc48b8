"""``Returns``: what the callers of ``rt.run`` get besides the record of their runs.

An exception as it was raised, a value as it was returned, and the function of a run that has said
that it is over and is still at work.  Kept only while a caller in this process waits.
"""

from typing import Protocol

from msgspec import Struct

from hubbub.hub.values import Json

__all__ = ["LingeringRun", "Return", "Returns"]


class LingeringRun(Protocol):
    """A run that is over while its function is not."""

    async def wait_function(self) -> None:
        """Return when the function has ended."""
        ...


class Return(Struct):
    """What one caller gets."""

    error: Exception | None = None
    output: Json | None = None
    lingering: LingeringRun | None = None


class Returns:
    """What callers in this process wait for, by run id."""

    __slots__ = ("expected",)

    def __init__(self) -> None:
        self.expected: dict[str, Return] = {}
        """Put there by the caller, who also takes it away."""

    def keep_error(self, run_id: str, error: Exception) -> None:
        """A run has ended by ``error``."""
        if (found := self.expected.get(run_id)) is not None:
            found.error = error

    def keep_output(self, run_id: str, output: Json) -> None:
        """A run's function has returned ``output``."""
        if (found := self.expected.get(run_id)) is not None:
            found.output = output

    def linger(self, run_id: str, run: LingeringRun | None) -> None:
        """A run has said that it is over, but its function is at work; ``None``: no longer."""
        if (found := self.expected.get(run_id)) is not None:
            found.lingering = run
