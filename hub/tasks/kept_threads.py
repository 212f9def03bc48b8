"""``KeptThreads``: threads that do one function after another, as many as are at work at once.

    start ──► an idle one, the last that was at work, or a new one ──► work ──► idle ──► …
                     IDLE seconds without work, or ``dismiss`` ──► it ends

To start a thread costs several times as much as to wake one, and each that starts may take a
memory arena of its own, which the process then keeps.
"""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final, TypeAlias

__all__ = ["KeptThreads"]

IDLE: Final = 10.0
"""Seconds after which a thread ends that has nothing to do."""

_Given: TypeAlias = tuple[Callable[[], None], Callable[[], None]]


class KeptThreads:
    """Starts functions in threads, from any thread.  They hold no process: all are daemons."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._crew = _Crew()

    def start(self, work: Callable[[], None], report: Callable[[], None]) -> None:
        """Have ``work`` and then ``report`` done at once in a thread; neither may raise.

        From ``report`` on the thread counts as idle: who has another function for it then needs
        no second one.
        """
        crew = self._crew
        thread = crew.take_idle() or _KeptThread(self._name, crew)
        thread.given.put((work, report))

    def dismiss(self) -> None:
        """End the threads: idle ones now, each of the others with its work; none is waited for.

        What is started later gets new ones.
        """
        crew, self._crew = self._crew, _Crew()
        crew.dismiss()


class _Crew:
    """Threads that end together.

    The code that removes a thread from ``idle`` decides what becomes of it; a dict's operations are
    atomic, so it is one alone, whether that is who has work, who dismisses, or the thread itself.
    """

    def __init__(self) -> None:
        self.idle: dict[_KeptThread, bool] = {}
        self.is_dismissed = False

    def take_idle(self) -> "_KeptThread | None":
        while self.idle:
            try:
                thread, _ = self.idle.popitem()
            except KeyError:
                break
            if thread.is_alive():  # In a forked process none of the parent's is.
                return thread
        return None

    def dismiss(self) -> None:
        self.is_dismissed = True
        while (thread := self.take_idle()) is not None:
            thread.given.put(None)


class _KeptThread(Thread):
    def __init__(self, name: str, crew: _Crew) -> None:
        super().__init__(name=name, daemon=True)
        self.given: SimpleQueue[_Given | None] = SimpleQueue()
        self._crew = crew
        self.start()

    def run(self) -> None:
        while True:
            try:
                given = self.given.get(timeout=IDLE)
            except Empty:
                if self._leave():
                    return
                continue
            if given is None:
                return
            work, report = given
            work()
            self._crew.idle[self] = True
            report()
            del given, work, report  # An idle thread keeps nothing alive.
            # Noticed here, or else ``dismiss`` finds the thread idle.
            if self._crew.is_dismissed and self._leave():
                return

    def _leave(self) -> bool:
        """Whether nobody has anything for this thread, nor will have."""
        return self._crew.idle.pop(self, False)
