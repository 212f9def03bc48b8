"""``InlineCaller``: a task that waits for a run, and meanwhile lends itself to it.

``rt.run`` waits for the run it started, so the run's activities may as well happen in that task:
a task of their own would cost more than everything else the run does.  Everything said of
activities holds all the same: they are cancelled alone, without the caller, when they are no
longer wanted, and see nothing of the caller's context variables.
"""

from collections.abc import Callable

import anyio
from msgspec import Struct

from hubbub.hub.logs import log
from hubbub.hub.task_host import TaskHost
from hubbub.hub.tasks.cancelling import renew_cancellation
from hubbub.hub.tasks.raised import is_of, is_plain_cancellation, uncontained
from hubbub.hub.tasks.stepped import Pieces, in_turn
from hubbub.hub.tasks.waiter import Waiter, wake
from hubbub.hub.tasks.waits import REMEDY, held_up_by, tell
from hubbub.runtime.kernel.outcome import RunOutcome

__all__ = ["InlineCaller"]


class InlineCaller(Struct, eq=False):
    """Does what the run it waits for wants done, one piece of work at a time."""

    tasks: TaskHost
    outcome: RunOutcome | None = None
    """How the run ended; ``None`` when it left memory without an end that is known here."""
    _is_done: bool = False
    _end_telling: Callable[[], object] | None = None
    _scope: anyio.CancelScope | None = None
    _waiter: Waiter | None = None
    _work: Pieces | None = None

    # ── the run's side ───────────────────────────────────────────────────────────────────────

    def takes(self, work: Pieces) -> bool:
        """Have ``work`` done by the caller's task; False where that is not free."""
        if self._work is not None or self._scope is not None or self._is_done:
            return False
        self._work = work
        if self._waiter is not None:
            wake(self._waiter)
        return True

    def cancel(self) -> None:
        """Cancel the current work, but not the caller."""
        work, self._work = self._work, None
        if work is None and self._scope is not None:
            self._scope.cancel()
            if self._end_telling is None:
                self._end_telling = tell(self._tell, self.tasks.is_watched)

    def is_dismissed(self) -> bool:
        """Whether nothing more is asked of the caller."""
        return self._is_done

    def dismiss(self, outcome: RunOutcome | None = None) -> None:
        """Ask nothing more of the caller: the run has left memory."""
        self._is_done = True
        self.outcome = outcome
        if self._waiter is not None:
            wake(self._waiter)

    # ── the caller's side ────────────────────────────────────────────────────────────────────

    async def serve(self) -> None:
        """Do what the run wants done, until it has left memory."""
        while True:
            work, self._work = self._work, None
            if work is not None:
                try:
                    with self.tasks.home.make_scope() as self._scope:
                        await in_turn(work, context=self.tasks.lent.copy(), is_lent=True)
                except BaseException as error:
                    passed = _passed(error)
                    if passed is not None:
                        raise passed from None
                finally:
                    self._scope = None
                    if self._end_telling is not None:
                        self._end_telling()
                        self._end_telling = None
            elif self._is_done:
                return
            else:
                self._waiter = self.tasks.home.make_waiter()
                await self._waiter
                self._waiter = None

    def _tell(self, seconds: float) -> None:
        """Log what the caller's task still does, which the run has given up so long ago."""
        held_by = held_up_by(self, InlineCaller.serve.__code__)
        log.warning("caller.waits", seconds=seconds, held_by=held_by, remedy=REMEDY)


def _passed(error: BaseException) -> BaseException | None:
    """What of it the caller must get.  One who is being cancelled ends by that, and not by what his
    work has made of it."""
    passed = error if is_of(error, Exception) else uncontained(error)
    if passed is None:
        if not is_plain_cancellation(error):
            log.error("task.ended_from_within", exc_info=error)
        renew_cancellation()
    return passed
