"""``StepTasks``: which task makes the steps of a name.

Steps of one name are told apart by their order, which one task has, and tasks that follow each
other.  Tasks that run at once have none.
"""

from anyio import TaskInfo, get_current_task, get_running_tasks

__all__ = ["StepTasks"]


class StepTasks:
    """For each name, the task that has made the last step of it."""

    __slots__ = ("_function", "_last", "_under_way")

    def __init__(self) -> None:
        self._function: TaskInfo | None = None
        self._last: dict[str, TaskInfo] = {}
        self._under_way: set[str] = set()

    def begin(self) -> None:
        """The code's function is called, in this task."""
        self._function = get_current_task()

    def may_make(self, name: str) -> bool:
        """Whether a step of this name comes in the same order each time, for all that is known.

        Not so while another one is under way, or the task that made it runs beside this one.  One
        that has started this one, as the code's function has, may have made it before.
        """
        if name in self._under_way:
            return False
        now, last = get_current_task(), self._last.get(name)
        if last is not None and self._is_beside(last, now):
            return False
        self._last[name] = now
        return True

    def _is_beside(self, last: TaskInfo, now: TaskInfo) -> bool:
        """Whether ``last`` runs at the same time as ``now``, as far as that can be told."""
        if last.coro is now.coro or getattr(last.coro, "cr_frame", None) is None:  # It is over.
            return False
        is_functions = self._function is not None and last.coro is self._function.coro
        return not is_functions and last.id not in _ancestors(now)

    def under_way(self, name: str) -> None:
        """A step of this name begins."""
        self._under_way.add(name)

    def ended(self, name: str) -> None:
        """It has ended, in whatever way."""
        self._under_way.discard(name)


def _ancestors(task: TaskInfo) -> set[int]:
    parents = {each.id: each.parent_id for each in get_running_tasks()}
    found: set[int] = set()
    parent = task.parent_id
    while parent is not None and parent not in found:
        found.add(parent)
        parent = parents.get(parent)
    return found
