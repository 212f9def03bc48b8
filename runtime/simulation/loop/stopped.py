"""``StoppedTasks``: tasks that do not run for a while, although virtual time goes on.

    stop ─► what is scheduled is held back ─► resume ─► it runs, late

It is what SIGSTOP does to a process: deadlines pass and answers arrive meanwhile, and are noticed
afterwards.  A task belongs to the life in whose task it was started, or that one above it.  Trio
has no public way to hold a task back: this takes it off the run queue, a private name.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import trio
import trio._core
from trio.abc import Instrument

__all__ = ["StoppedTasks"]

_run: Any = trio._core._run


class StoppedTasks:
    """Knows the tasks of each life by its number, and holds them back."""

    def __init__(self) -> None:
        self._numbers: dict[trio.lowlevel.Task, int] = {}
        """Of the tasks in which lives are lived."""
        self._held: dict[int, list[trio.lowlevel.Task]] = {}
        self._instrument: _Holding | None = None

    @contextmanager
    def life(self, number: int) -> Iterator[None]:
        """Meanwhile the current task, and those that begin below it, belong to this life."""
        task = trio.lowlevel.current_task()
        self._numbers[task] = number
        try:
            yield
        finally:
            del self._numbers[task]

    def here(self) -> int | None:
        """The life that the current task belongs to."""
        return self._number_of(trio.lowlevel.current_task())

    def _number_of(self, task: trio.lowlevel.Task | None) -> int | None:
        while task is not None:
            if (number := self._numbers.get(task)) is not None:
                return number
            task = task.parent_nursery.parent_task if task.parent_nursery is not None else None
        return None

    def stop(self, number: int) -> None:
        """Hold back the tasks of a life, each from its next step on.  Idempotent."""
        if number in self._held:
            return
        self._held[number] = []
        if self._instrument is None:
            self._instrument = _Holding(self)
            trio.lowlevel.add_instrument(self._instrument)
        waiting = _run_queue()
        tasks = tuple(waiting)
        waiting.clear()
        waiting.extend([task for task in tasks if not self.hold(task)])

    def resume(self, number: int) -> None:
        """Let the tasks of a life run again.  Idempotent."""
        tasks: Sequence[trio.lowlevel.Task] = self._held.pop(number, ())
        if self._instrument is not None and not self._held:
            trio.lowlevel.remove_instrument(self._instrument)
            self._instrument = None
        _run_queue().extend(tasks)

    def resume_all(self) -> None:
        """Let all tasks run again."""
        for number in tuple(self._held):
            self.resume(number)

    def is_stopped(self, number: int) -> bool:
        """Whether the tasks of a life are held back."""
        return number in self._held

    def hold(self, task: trio.lowlevel.Task) -> bool:
        """Keep a scheduled task, if it is one of those that are held back."""
        number = self._number_of(task)
        if number is None or (held := self._held.get(number)) is None:
            return False
        held.append(task)
        return True


class _Holding(Instrument):
    """Takes tasks off the run queue as they are scheduled."""

    def __init__(self, tasks: StoppedTasks) -> None:
        self._tasks = tasks

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        if self._tasks.hold(task):
            _run_queue().pop()  # It was put there just now.


def _run_queue() -> deque[trio.lowlevel.Task]:
    found: deque[trio.lowlevel.Task] = _run.GLOBAL_RUN_CONTEXT.runner.runq
    return found
