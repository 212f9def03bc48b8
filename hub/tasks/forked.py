"""``end_loop``: in a forked child the loop of its parent does not go on.

    the code that forked ──► returns to the library, or waits ──► the child ends
                         └─► ends the process itself, as ``multiprocessing`` does, or has another
                             program in its place: nothing of this comes into play

A child has a copy of every task.  Were these to go on, each call of a model and of a tool would be
made in both processes.  What the loop waits for, both share as well: a child that waits takes from
its parent what wakes that.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress

from hubbub.hub.tasks.outermost import end_instead

__all__ = ["end_loop"]


def end_loop(loop: object, leave: Callable[[], object]) -> None:
    """Have ``leave``, which ends the process, called where a loop would have its next turn, and
    where a task of the library's would.

    ``loop``: the native token of anyio's.  For the thread at work in the child, once it has forked.
    """
    if isinstance(loop, asyncio.AbstractEventLoop):
        for task in asyncio.all_tasks(loop):
            end_instead(task, leave)
        if loop.is_running():
            loop.call_soon(leave)
        return
    trio = sys.modules.get("trio")
    with suppress(RuntimeError):  # It is no loop of this thread, or not any more.
        if trio is not None and trio.lowlevel.current_trio_token() is loop:
            trio.lowlevel.add_instrument(_AtNextTurn(leave))


class _AtNextTurn:
    """Told by Trio: also when the task at work has had its turn."""

    def __init__(self, leave: Callable[[], object]) -> None:
        self._leave = leave

    def before_task_step(self, task: object) -> None:
        self._leave()

    def after_task_step(self, task: object) -> None:
        self._leave()
