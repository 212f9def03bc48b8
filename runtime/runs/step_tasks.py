"""The tasks that code makes its calls in: ``SoleTask`` and ``StepTasks``.

What one task does comes in the same order whenever the code is executed, and so do tasks that
follow each other; what tasks do that run at once has no order.
"""

from anyio import TaskInfo, get_current_task, get_running_tasks

from hubbub.hub.tasks.cancelling import current_task_id

__all__ = ["SoleTask", "StepTasks"]


class SoleTask:
    """The task ``id_`` that code begins in, until another one is noticed.

    What one task does comes in the same order whenever the code is executed; what several do at
    once does not.
    """

    __slots__ = ("_id",)

    def __init__(self, id_: int) -> None:
        self._id = id_

    def notice(self) -> None:
        """The code does something, in the task at work."""
        if self._id and self._id != current_task_id():
            self._id = 0

    def is_alone(self) -> bool:
        """Whether no other task has been noticed so far, the one at work included."""
        self.notice()
        return self._id != 0


class StepTasks:
    """For each name, the task that has made the last step of it.

    ``function``: the id of the task that the code's function is called in.
    """

    __slots__ = ("_function", "_last", "_under_way")

    def __init__(self, function: int) -> None:
        self._function = function
        self._last: dict[str, TaskInfo] = {}
        self._under_way: set[str] = set()

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
        return last.id != self._function and last.id not in _ancestors(now)

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
