"""``Capacity``: how many runs may be in memory, and when one more may come than that.

At most ``most`` runs are there at once; ready ones beyond wait for their turn.  But whom
they wait for may wait for them: code that waits for another run stays in memory meanwhile, since a
function cannot be put away and taken up again.  So while everybody there waits for some other run,
the next one that is ready is let in all the same, one at a time: something always continues.

Code waits for another run where it awaits its result or its answer, or its events or any others;
and, when it has children, the next message.  Who waits for people keeps others out.  A
model's run that waits leaves memory, unless it must be there to lend what was said to it.
What ends a run waits for no room (``ready``).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, TypeAlias

from hubbub.runtime.kernel.current_run import CURRENT_RUN
from hubbub.runtime.kernel.live import LiveModelRun, LiveRuns

__all__ = ["Capacity", "IsHeard"]

IsHeard: TypeAlias = Callable[[], bool]

_NOBODY: Final = nullcontext()


class Capacity:
    """Whether there is room for one more run.

    Code of a run waits as soon as one of its tasks does, whatever the others are at.
    """

    __slots__ = (
        "_by_id", "_keeping_nobody", "_let_go", "_loading", "_on_wait", "idle", "most", "waits",
    )  # fmt: skip

    def __init__(
        self,
        most: int,
        live: LiveRuns,
        loading: Sized,
        let_go: Callable[[str, LiveModelRun], object],
        on_wait: Callable[[str], object],
        keeping_nobody: Callable[[IsHeard], AbstractContextManager[None]],
    ) -> None:
        self.most = most
        self._by_id = live.by_id
        self._loading = loading
        """The runs that are on their way into memory."""
        self._let_go = let_go
        """Takes a run out of memory that only waits."""
        self._on_wait = on_wait
        self._keeping_nobody = keeping_nobody
        """Inside, the run does not keep the runtime from being left, until what it waits for."""
        self.waits: dict[str, int] = {}
        """The runs whose code waits, and in how many of their tasks."""
        self.idle: OrderedDict[str, LiveModelRun] = OrderedDict()
        """Models' runs that may have nothing to do but to wait for their children."""

    def has_room(self) -> bool:
        """Whether one more run may come into memory; one that only waits leaves it for that."""
        there = len(self._by_id) + len(self._loading)
        return there < self.most or self._free() or self._is_stuck()

    @property
    def is_full(self) -> bool:
        """Whether as many runs are in memory, or on their way there, as may be."""
        return len(self._by_id) + len(self._loading) >= self.most

    def _free(self) -> bool:
        """Let a run that only waits leave memory, unrecorded: its journal says all of it."""
        while self.idle:
            run_id, run = self.idle.popitem(last=False)
            if self._by_id.get(run_id) is run and run.is_idle:
                self._let_go(run_id, run)
                return True
        return False

    def _is_stuck(self) -> bool:
        """Whether all runs in memory wait for others, so that nothing continues."""
        waits = self.waits
        return not self._loading and all(
            run_id in waits or run.only_lends for run_id, run in self._by_id.items()
        )

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
        if self.waits:
            self.waits.pop(run_id, None)
        if self.idle:
            self.idle.pop(run_id, None)
