"""``AT_WORK``: the step that code is part of, in which it must not do what is kept by itself."""

from contextvars import ContextVar
from typing import Final

from hubbub.hub.errors import InsideStep

__all__ = ["AT_WORK", "refuse_inside_step"]

AT_WORK: Final[ContextVar[tuple[str, str, int]]] = ContextVar("hubbub_step", default=("", "", 0))
"""The run, and the name and number of the step that this code is part of."""


def refuse_inside_step(run_id: str, call: str) -> None:
    """Raise ``InsideStep`` in code that is part of a step of this run."""
    at_work, step, _ = AT_WORK.get()
    if at_work == run_id:
        raise InsideStep(call, step)
