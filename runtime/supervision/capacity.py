"""``Capacity``: how many runs may be in memory, and when one more may come than that.

At most ``most`` runs are there at once; ready ones beyond wait for their turn.  But whom
they wait for may wait for them: code that waits for another run stays in memory meanwhile, since a
function cannot be put away and taken up again.  So while everybody there waits for some other run,
the next one that is ready is let in all the same, one at a time: something always continues.

Code waits for another run where it awaits its result or its answer, or its events or any others;
and, when it has children, the next message.  Who waits for people keeps others out.  A
model's run that waits leaves memory, unless it must be there to lend what was said to it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, TypeAlias

from hubbub.runtime.kernel.current_run import CURRENT_RUN

__all__ = ["Capacity", "IsHeard"]

IsHeard: TypeAlias = Callable[[], bool]

_NOBODY: Final = nullcontext()


class Capacity:
    """Counts the runs whose code waits for other runs.

    A run waits as soon as one of its tasks does, whatever the others are at.
    """

    __slots__ = ("_keeping_nobody", "_on_wait", "most", "waits")

    def __init__(
        self,
        most: int,
        on_wait: Callable[[str], object],
        keeping_nobody: Callable[[IsHeard], AbstractContextManager[None]],
    ) -> None:
        self.most = most
        self._on_wait = on_wait
        self._keeping_nobody = keeping_nobody
        """Inside, the run does not keep the runtime from being left, until what it waits for."""
        self.waits: dict[str, int] = {}
        """The runs that wait, and in how many of their tasks."""

    def waiting(self, is_heard: IsHeard | None = None) -> AbstractContextManager[None]:
        """What the current code does inside only waits, if it is a run's.

        With ``is_heard`` the run also keeps nobody from leaving, until that is true.
        """
        run_id = CURRENT_RUN.get()
        return self._waiting(run_id, is_heard) if run_id else _NOBODY

    @contextmanager
    def _waiting(self, run_id: str, is_heard: IsHeard | None) -> Iterator[None]:
        self.waits[run_id] = self.waits.get(run_id, 0) + 1
        self._on_wait(run_id)
        try:
            with nullcontext() if is_heard is None else self._keeping_nobody(is_heard):
                yield
        finally:
            left = self.waits.pop(run_id, 0) - 1
            if left > 0:
                self.waits[run_id] = left

    def left(self, run_id: str) -> None:
        """A run is no longer in memory; its function may still be on its way out."""
        self.waits.pop(run_id, None)
