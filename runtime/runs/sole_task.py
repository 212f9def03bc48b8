"""``SoleTask``: whether code does all that it does in one task."""

import anyio

__all__ = ["SoleTask"]


class SoleTask:
    """The task that code begins in, until another one is noticed.

    What one task does comes in the same order whenever the code is executed; what several do at
    once does not.
    """

    __slots__ = ("_id",)

    def __init__(self) -> None:
        self._id = 0

    def begin(self) -> None:
        """The code begins, here."""
        self._id = _current()

    def notice(self) -> None:
        """The code does something, in the task at work."""
        if self._id and self._id != _current():
            self._id = 0

    def is_alone(self) -> bool:
        """Whether no other task has been noticed so far, the one at work included."""
        self.notice()
        return self._id != 0


def _current() -> int:
    try:
        return anyio.get_current_task().id
    except RuntimeError:  # A callback of the event loop's is no task.
        return 0
