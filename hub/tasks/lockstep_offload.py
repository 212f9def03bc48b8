"""``LockstepOffload``: threads for plain functions, while which the loop stands still.

    loop      ── starts it ─┐             ┌─ does what it asks for ─┐             ┌─► its result
    thread                  └─► asks ─────┘                         └─► is done ──┘

One of the two works at a time, so what they do is as repeatable as if there were no thread, and
takes no virtual time.  It is a real thread all the same: what is of a thread is as it would be.
What it asks for (``anyio.from_thread``) is done in the task that waits for it, and is cancelled
with that.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel

from hubbub.hub.tasks.kept_threads import KeptThreads
from hubbub.hub.tasks.loop_watch import called_in

__all__ = ["PATIENCE", "LockstepOffload", "in_loop"]

T = TypeVar("T")

PATIENCE: Final = 60.0
"""Real seconds after which a thread that neither asks for anything nor is done is stuck."""

_HERE: Final = threading.local()
"""The work of the current thread, where it does some."""


class LockstepOffload:
    """Threads for functions, each of which works while the loop waits for it.

    ``on_stuck`` makes the exception that is raised where one is still at work after ``patience``
    real seconds, from what it does and these: it must not wait for what other tasks do.
    """

    def __init__(
        self,
        on_stuck: Callable[[str, float], Exception] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._threads = KeptThreads("hubbub lockstep")
        self._on_stuck = on_stuck or _stuck
        self._patience = patience

    async def run(self, fn: Callable[[], T]) -> T:
        await anyio.lowlevel.checkpoint()
        work = _Work(fn)
        self._threads.start(work.live, work.end)
        try:
            while (asked := work.turns.get(timeout=self._patience)) is not None:
                await asked.answer()
        except Empty:
            raise self._on_stuck(work.place, self._patience) from None
        if work.errors:
            raise work.errors.pop()
        result: T = work.results[0]
        return result


def in_loop(act: Callable[[], T]) -> T:
    """Do it in the loop, whether the caller is there or in such a thread."""
    work: _Work | None = getattr(_HERE, "work", None)
    return act() if work is None else work.ask(act, is_async=False)


def _stuck(place: str, seconds: float) -> Exception:
    return TimeoutError(
        f"{place} still works after {seconds:g} s of real time, while which the event loop stands "
        "still; a plain function must not wait for what other tasks do"
    )


class _Work:
    """A function at work in a thread."""

    def __init__(self, fn: Callable[[], Any]) -> None:
        self.results: list[Any] = []
        self.errors: list[BaseException] = []
        self.turns: SimpleQueue[_Asked | None] = SimpleQueue()
        """What the thread asks for, each time it is the loop's turn; ``None`` when it is done."""
        self._fn = fn
        self._thread = 0
        self._context = copy_context()
        with suppress(ImportError):  # In the thread there is no loop: ``anyio.run`` may begin one.
            from sniffio import current_async_library_cvar as library

            self._context.run(library.set, None)
        token = anyio.lowlevel.current_token()
        backend: Any = _WayBack(token.backend_class, self)
        self._way_back = replace(token, backend_class=backend)

    # ── in the thread ────────────────────────────────────────────────────────────────────────

    def live(self) -> None:
        self._thread = threading.get_ident()
        # What anyio keeps of its own threads, by which ``from_thread`` finds the way back.
        about = anyio.from_thread.threadlocals  # type: ignore[attr-defined]
        about.current_token, _HERE.work = self._way_back, self
        try:
            self.results.append(self._context.run(self._fn))
        except BaseException as error:
            self.errors.append(error)
        finally:
            del about.current_token, _HERE.work  # Threads are used again.

    def end(self) -> None:
        self.turns.put(None)

    def ask(self, act: Callable[[], Any], *, is_async: bool) -> Any:
        """Have the loop do something, and wait for what it comes to."""
        asked = _Asked(act, is_async)
        self.turns.put(asked)
        return asked.take()

    # ── in the loop ──────────────────────────────────────────────────────────────────────────

    @property
    def place(self) -> str:
        """Name and place of the function that is at work there."""
        name, place = called_in(self._thread) or ("a function", "in a thread")
        return f"{name} ({place})"


class _Asked:
    """Something that a thread wants done in the loop."""

    def __init__(self, act: Callable[[], Any], is_async: bool) -> None:
        self._act = act
        self._is_async = is_async
        self._answers: SimpleQueue[tuple[Any, list[BaseException]]] = SimpleQueue()

    async def answer(self) -> None:
        """Do it.  Whatever is raised, cancellation too, is the thread's, which ends by it."""
        value, errors = None, []
        try:
            value = self._act()
            if self._is_async:
                value = await value
        except BaseException as error:
            errors.append(error)
        self._answers.put((value, errors))

    def take(self) -> Any:
        value, errors = self._answers.get()
        if errors:
            raise errors.pop()
        return value


class _WayBack:
    """The loop as anyio knows it, from a thread."""

    __slots__ = ("_backend", "_work")

    def __init__(self, backend: Any, work: _Work) -> None:
        self._backend = backend
        self._work = work

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def run_async_from_thread(self, func: Any, args: tuple[Any, ...], token: object) -> Any:
        return self._work.ask(lambda: func(*args), is_async=True)

    def run_sync_from_thread(self, func: Any, args: tuple[Any, ...], token: object) -> Any:
        return self._work.ask(lambda: func(*args), is_async=False)

    def check_cancelled(self) -> None:
        self._work.ask(anyio.lowlevel.checkpoint_if_cancelled, is_async=True)
