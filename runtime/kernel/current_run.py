"""Which run the current code works for, so that none waits for itself.

Set once in each task of a run, whose context is the run's own; copied into the threads and
tasks that its tools start.
"""

from contextvars import ContextVar

__all__ = ["CURRENT_RUN"]

CURRENT_RUN: ContextVar[str] = ContextVar("hubbub_current_run", default="")
