"""``RunState``: what a tool or hook sees of the run it works for (SA 7.13, SB 11).

A tool parameter annotated ``RunState`` is injected and does not appear in the tool's schema.
"""

from typing import Any, Protocol, runtime_checkable

__all__ = ["RunState"]


@runtime_checkable
class RunState(Protocol):
    """The calling run, as its tools see it."""

    @property
    def run_id(self) -> str: ...

    @property
    def root_run_id(self) -> str: ...

    @property
    def agent(self) -> str:
        """The agent's name."""
        ...

    @property
    def call_id(self) -> str:
        """The tool call at work, unique within the run."""
        ...

    @property
    def hub(self) -> Any:
        """The hub through this run's scope: what is emitted here carries the run's ids."""
        ...

    def spawn(self, agent: Any, input: Any = None, *, name: str | None = None) -> Any:
        """Start a child run under this run's root; returns its handle (R-13)."""
        ...
