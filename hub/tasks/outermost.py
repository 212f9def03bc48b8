"""What a task of asyncio throws into the code that it runs.

    a future that holds GeneratorExit ──► the task throws it in from the outermost frame on:
    Python closes every frame, ours among them, and none of them may wait or continue.

asyncio throws what a future holds into the outermost frame of the task that waits for it.  Python
passes every class of exception on to the innermost frame but ``GeneratorExit``, by which frames
are closed.  So a function that raises it in a thread (``anyio.to_thread.run_sync``), or a task
that somebody awaits and that has failed by it, would close frames of ours instead of being raised
where it is awaited.  There it is raised on every loop, if the innermost frame looks into the
future itself: that is what this module sees to, in tasks of ours (``start_in``) and in those that
are lent to us (``awaited_here``).
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, Final, TypeVar

from anyio import TaskHandle
from anyio.abc import TaskGroup

from hubbub.hub.tasks.cancelling import is_being_cancelled, is_on_asyncio

__all__ = ["awaited_here", "start_in", "start_on"]

T = TypeVar("T")


def start_in(
    group: TaskGroup,
    coroutine: Coroutine[Any, Any, T],
    *,
    name: str | None = None,
    context: Context | None = None,
    within: Sequence[Coroutine[Any, Any, Any]] = (),
    steady: bool = False,
    on_asyncio: bool | None = None,
) -> TaskHandle[T, Any]:
    """Start a task in ``group`` that no ``GeneratorExit`` of a future closes.

    The one way in which the library starts a task that may run anybody's code.  A task factory of
    the loop's owner has no part in these tasks.  ``within``: coroutines that ``coroutine`` is to
    await.  A loop that ends cancels tasks before their first step; these are then closed, too.
    A ``steady`` task awaits no code of users'; plain listeners that it calls cannot cancel it.
    ``on_asyncio``: whose loop it is, for who knows it.
    """
    if not (is_on_asyncio() if on_asyncio is None else on_asyncio):
        return group.create_task(coroutine, name=name, context=context)
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    kind = _Steady if steady else _Outermost
    loop.set_task_factory(partial(_task, kind, (coroutine, *within)))
    try:
        return group.create_task(coroutine, name=name, context=context)
    finally:
        loop.set_task_factory(factory)


def start_on(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, T],
    **options: Any,
) -> "asyncio.Task[T]":
    """Start a task of ``loop``, in it, that is in no group: who starts it sees to its end."""
    return _task(_Outermost, (), loop, coroutine, **options)


def _task(
    kind: "type[_Outermost]",
    within: tuple[Any, ...],
    loop: asyncio.AbstractEventLoop,
    coroutine: Any,
    **options: Any,
) -> "asyncio.Task[Any]":
    outermost: Any = kind(coroutine, within)
    return asyncio.Task(outermost, loop=loop, **options)


class _Outermost:
    """A coroutine as its task sees it."""

    is_outermost: Final = True
    """By which a task shows that it is the library's."""

    __slots__ = ("_coroutine", "_within", "send")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], within: tuple[Any, ...]) -> None:
        self._coroutine = coroutine
        self._within = within
        # Called at every step of the task: it is the coroutine's own.
        self.send = coroutine.send

    def close(self) -> None:
        self._coroutine.close()

    def throw(self, error: BaseException, *_: object) -> Any:
        if isinstance(error, GeneratorExit):
            return self.send(None)  # Who awaits the future raises what it holds.
        if getcoroutinestate(self._coroutine) == CORO_CREATED:
            for each in self._within:
                each.close()
        return self._coroutine.throw(error)

    def __await__(self) -> Any:
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)  # ``cr_frame`` and the like, for debuggers.


class _Steady(_Outermost):
    """One whose task goes on where a function that it has called cancels it.

    step ──► the function cancels the task ──► what is waited for is held back for one step
         ──► the cancellation comes, and ends here ──► the task waits for what was held back
    """

    __slots__ = ("_held",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any], within: tuple[Any, ...]) -> None:
        super().__init__(coroutine, within)
        self._held: list[Any] = []
        self.send = self._step

    def _step(self, value: Any) -> Any:
        wanted = self._coroutine.send(value)
        if getattr(asyncio.current_task(), "_must_cancel", False) and not is_being_cancelled():
            self._held.append(wanted)
            return None
        return wanted

    def throw(self, error: BaseException, *_: object) -> Any:
        if self._held:
            wanted = self._held.pop()
            if isinstance(error, asyncio.CancelledError) and not is_being_cancelled():
                return wanted
        return super().throw(error)


Coroutine.register(_Outermost)


def awaited_here(wanted: Any, last: Any = None) -> Any:
    """What to yield to a task of somebody else's in place of ``wanted``, for which code waits.

    The task waits for the same, at the same moment, and then gets no exception: the code
    that waits finds it out by itself.  ``last``: what this has returned before to the same code,
    which is used again.
    """
    if not isinstance(wanted, asyncio.Future):
        return wanted
    wanted._asyncio_future_blocking = False
    if last.__class__ is not _Watched:
        return _Watched(wanted)
    last.watch(wanted)
    return last


class _Watched(asyncio.Future[None]):
    """A future as a task sees it that must be thrown nothing of what it holds."""

    __slots__ = ("_future", "_wake")

    def __init__(self, future: "asyncio.Future[Any]") -> None:
        super().__init__(loop=future.get_loop())
        self.watch(future)

    def watch(self, future: "asyncio.Future[Any]") -> None:
        """Be this one, for the task that waits next."""
        self._future = future
        self._asyncio_future_blocking = True

    def add_done_callback(
        self, fn: Callable[[Any], object], /, *, context: Context | None = None
    ) -> None:
        self._wake = fn
        self._future.add_done_callback(self, context=context)

    def __call__(self, _: object) -> None:
        """The future is done."""
        self._wake(self)

    def cancel(self, msg: Any | None = None) -> bool:
        return self._future.cancel(msg=msg)

    def done(self) -> bool:
        return self._future.done()

    def cancelled(self) -> bool:
        return self._future.cancelled()

    def result(self) -> None:
        return None
