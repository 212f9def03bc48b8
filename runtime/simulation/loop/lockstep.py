"""``Lockstep``: threads that work while virtual time, and the loop with it, stands still.

    loop      ── starts it ─┐             ┌─ does what it asks for ─┐             ┌─► its result
    thread                  └─► asks ─────┘                         └─► is done ──┘

One of the two works at a time, so what they do is as repeatable as if there were no thread.  They
are real threads all the same: what is of a thread (locals, connections, ``hub`` in the wrong one)
is as it would be.
"""

import sys
import threading
from collections.abc import Callable
from pathlib import PurePath
from queue import Empty, SimpleQueue
from typing import Any, Final

from hubbub.hub.errors.copied import CopiedWhole
from hubbub.hub.tasks.lockstep_offload import PATIENCE, LockstepOffload

__all__ = [
    "MAX_THREAD_SECONDS", "Baton", "Lockstep", "LockstepThread", "StuckThread", "WatchedOffload",
]  # fmt: skip

MAX_THREAD_SECONDS: Final = PATIENCE
"""Real seconds after which a thread that neither asks for anything nor is done is stuck."""

_LOOPS: Final = ("trio", "anyio", "hubbub.runtime.simulation.loop.seeded", __name__)


class StuckThread(CopiedWhole, AssertionError):
    """A thread works on and on in real time, and the simulation waits for it."""

    def __init__(self, who: str, seconds: float) -> None:
        super().__init__(
            f"the thread of {who} still works after {seconds:g} s of real time; "
            "the simulation stands still meanwhile, so a thread must not wait for what other "
            "tasks do: give the simulation a stand-in for it"
        )


class WatchedOffload(LockstepOffload):
    """Threads for the plain functions of a world, which is wrong if one of them is stuck: what the
    tool then raises is an answer to its model."""

    def __init__(self) -> None:
        super().__init__(self._note, MAX_THREAD_SECONDS)
        self._stuck: StuckThread | None = None

    def check(self) -> None:
        """Raise ``StuckThread`` if one was."""
        if self._stuck is not None:
            raise self._stuck

    def _note(self, who: str, seconds: float) -> StuckThread:
        self._stuck = StuckThread(who, seconds)
        return self._stuck


class LockstepThread:
    """A thread at work, and who has begun it."""

    def __init__(self) -> None:
        self.who = _caller()
        self.pauses: SimpleQueue[None] = SimpleQueue()
        """Has one whenever it is the loop's turn."""


class Lockstep:
    """The threads of the loop in the current thread; ``on_stuck`` is called when one is stuck."""

    def __init__(self, on_stuck: Callable[[], object]) -> None:
        self.stuck: StuckThread | None = None
        self._loop = threading.get_ident()
        self._on_stuck = on_stuck
        self._here = threading.local()
        self._is_over = False

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs in the thread of this loop."""
        return not self._is_over and threading.get_ident() == self._loop

    @property
    def worker(self) -> LockstepThread | None:
        """The one whose thread the caller runs in."""
        return getattr(self._here, "worker", None)

    def end(self) -> None:
        """Have nothing more to do with threads that begin from now on."""
        self._is_over = True

    def begin(
        self,
        start: Callable[[Callable[[], Any], Callable[[Any], object]], object],
        fn: Callable[[], Any],
        deliver: Callable[[Any], object],
    ) -> None:
        """Have ``start`` start a thread for ``fn``, and wait until it is the loop's turn again.

        Raises ``StuckThread``.
        """
        worker = LockstepThread()

        def work() -> Any:
            self._here.worker = worker
            try:
                return fn()
            finally:
                del self._here.worker  # Threads are used again.

        def done(result: Any) -> None:
            try:
                deliver(result)
            finally:
                worker.pauses.put(None)

        start(work, done)
        self.wait(worker)

    def wait(self, worker: LockstepThread) -> None:
        """Wait, in the loop, until the thread is done or asks for something."""
        try:
            worker.pauses.get(timeout=MAX_THREAD_SECONDS)
        except Empty:
            self.stuck = StuckThread(worker.who, MAX_THREAD_SECONDS)
            self._on_stuck()
            raise self.stuck from None


class Baton:
    """The queue over which a thread is given what it has asked the loop for, and its turn."""

    def __init__(self, lockstep: Lockstep, worker: LockstepThread) -> None:
        self._lockstep = lockstep
        self._worker = worker
        self._answers: SimpleQueue[Any] = SimpleQueue()

    def get(self) -> Any:
        """Give the loop its turn, and wait for the answer; called in the thread."""
        self._worker.pauses.put(None)
        return self._answers.get()

    def put_nowait(self, answer: Any) -> None:
        """Give the thread its answer, and wait until it is the loop's turn again."""
        self._answers.put(answer)
        self._lockstep.wait(self._worker)


def _caller() -> str:
    """The innermost line of code at work that is not the loop's."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "")
        if name not in _LOOPS and name.partition(".")[0] not in _LOOPS:
            break
        frame = frame.f_back
    code = frame.f_code
    return f"{code.co_qualname} ({PurePath(code.co_filename).name}:{frame.f_lineno})"
