"""Which run the current code works for, and whether it reads that run's inbox, so that none waits
for itself.

Set once in each task of a run, whose context is the run's own; copied into the threads and
tasks that its tools start.
"""

from contextvars import ContextVar

__all__ = ["CURRENT_READER", "CURRENT_RUN"]

CURRENT_RUN: ContextVar[str] = ContextVar("hubbub_current_run", default="")

CURRENT_READER: ContextVar[object] = ContextVar("hubbub_current_reader", default=None)
"""The token of the reader of an inbox whose message the current code handles."""
