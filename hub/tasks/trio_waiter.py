"""``TrioWaiter``: a ``Waiter`` on Trio.  Only there it is imported."""

from collections.abc import Generator
from typing import Any

from trio.lowlevel import Abort, Task, current_task, reschedule, wait_task_rescheduled

__all__ = ["TrioWaiter"]


class TrioWaiter:
    """The task that waits, and whether it has been woken or cancelled."""

    __slots__ = ("_is_done", "_task")

    def __init__(self) -> None:
        self._is_done = False
        self._task: Task | None = None

    def done(self) -> bool:
        return self._is_done

    def set_result(self, result: None, /) -> None:
        self._is_done = True
        if self._task is not None:
            reschedule(self._task)

    def __await__(self) -> Generator[Any, Any, None]:
        if self._is_done:
            return iter(())  # type: ignore[return-value]  # It is only gone through.
        self._task = current_task()
        # No generator of its own: of each task that waits, that would be one more frame.
        return wait_task_rescheduled(self._abort).__await__()  # noqa: ASYNC105 - it is awaited

    def _abort(self, _: object) -> Abort:
        self._is_done = True
        return Abort.SUCCEEDED
