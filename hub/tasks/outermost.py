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

__all__ = ["awaited_here", "end_instead", "start_bystander", "start_in", "start_on"]

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
    A ``steady`` task awaits no code of users', and only scopes and a loop that ends cancel it.
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


def start_bystander(work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    """Start a task that is cancelled by nobody but a loop that ends."""
    return _Bystander(work, loop=asyncio.get_running_loop(), name="hubbub bystander")


def end_instead(task: "asyncio.Task[Any]", leave: Callable[[], object]) -> None:
    """Have a task, if it is the library's, call ``leave``, which ends the process, where it would
    go on."""
    outermost = task.get_coro()
    if isinstance(outermost, _Outermost):
        outermost.send = _Ending(leave)


def _task(
    kind: "type[_Outermost]",
    within: tuple[Any, ...],
    loop: asyncio.AbstractEventLoop,
    coroutine: Any,
    **options: Any,
) -> "asyncio.Task[Any]":
    outermost: Any = kind(coroutine, within)
    return asyncio.Task(outermost, loop=loop, **options)


class _Bystander(asyncio.Task[Any]):
    def cancel(self, msg: Any | None = None) -> bool:
        # Who ends a loop cancels all its tasks from outside, and then runs it until they have
        # ended.  Code in the loop may do that, too, to tasks that it does not know.
        return not self.get_loop().is_running() and super().cancel(msg)


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
        try:
            return self._throw(error)
        except asyncio.CancelledError as cancelled:
            cancelled.__traceback__, args = None, cancelled.args  # ``_throw`` has it, too.
        del error
        raise asyncio.CancelledError(*args)

    def _throw(self, error: BaseException) -> Any:
        if isinstance(error, GeneratorExit):
            return self.send(None)  # Who awaits the future raises what it holds.
        if isinstance(self.send, _Ending):
            self.send(None)
        if getcoroutinestate(self._coroutine) == CORO_CREATED:
            for each in self._within:
                each.close()
        if isinstance(error, asyncio.CancelledError) and not isinstance(self.send, _Bare):
            self.send = _Bare(self.send)
        return self._coroutine.throw(error)

    def __await__(self) -> Any:
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)  # ``cr_frame`` and the like, for debuggers.


class _Ending:
    """What a step of a task calls in a forked child, where it ends the process."""

    def __init__(self, leave: Callable[[], object]) -> None:
        self._leave = leave

    def __call__(self, value: object) -> None:
        self._leave()


class _Bare:
    """What a step of a task calls that is being cancelled: the exception by which it ends holds no
    frame of it.

    anyio keeps that exception in a cycle of references.  With its traceback, whatever the frames of
    the task held would stay in memory until the garbage collector comes.
    """

    __slots__ = ("_send",)

    def __init__(self, send: Callable[[Any], Any]) -> None:
        self._send = send

    def __call__(self, value: object) -> Any:
        try:
            return self._send(value)
        except asyncio.CancelledError as cancelled:
            args = cancelled.args
        raise asyncio.CancelledError(*args)


class _Steady(_Outermost):
    """One whose task goes on where somebody cancels it who is none of its scopes.

    the task is cancelled ──► what it waits for is not ──► at its next step it is known who did it:
        a scope, or a loop that ends ──► what it waits for is cancelled, and the coroutine told
        anybody else ─────────────────► the task waits for the same again

    That is a function that it has called, or code that cancels all tasks that it finds.
    """

    __slots__ = ("_wanted",)

    def __init__(self, coroutine: Coroutine[Any, Any, Any], within: tuple[Any, ...]) -> None:
        super().__init__(coroutine, within)
        self._wanted: asyncio.Future[Any] | None = None
        self.send = self._step

    def _step(self, value: Any) -> Any:
        return self._waits_for(self._coroutine.send(value))

    def _waits_for(self, wanted: Any) -> Any:
        self._wanted = wanted
        return None if wanted is None else _Kept(wanted)

    def _throw(self, error: BaseException) -> Any:
        if isinstance(error, asyncio.CancelledError):
            wanted = self._wanted
            # The future itself may have been cancelled: that is told, like all that it holds.
            if (wanted is None or not wanted.cancelled()) and not is_being_cancelled():
                return self.send(None) if wanted is None else self._waits_for(wanted)
            if wanted is not None:
                wanted.cancel(*error.args)
        elif isinstance(error, GeneratorExit):
            return self.send(None)
        return self._waits_for(super()._throw(error))


class _Kept:
    """A future as a task sees it that may be cancelled by anybody: the future then is not."""

    __slots__ = (
        "_args", "_asyncio_future_blocking", "_context", "_future", "_is_cancelled", "_wake",
        "get_loop",
    )  # fmt: skip

    def __init__(self, future: "asyncio.Future[Any]") -> None:
        self._asyncio_future_blocking = True
        future._asyncio_future_blocking = False
        self._future = future
        self._is_cancelled = False
        self.get_loop = future.get_loop

    def add_done_callback(
        self, fn: Callable[[Any], object], /, *, context: Context | None = None
    ) -> None:
        self._wake, self._context = fn, context
        self._future.add_done_callback(fn, context=context)

    def cancel(self, msg: Any | None = None) -> bool:
        if self._is_cancelled:
            return True
        if self._future.done():
            return False
        self._is_cancelled = True
        self._args = () if msg is None else (msg,)
        self._future.remove_done_callback(self._wake)
        self.get_loop().call_soon(self._wake, self, context=self._context)
        return True

    def done(self) -> bool:
        return self._is_cancelled or self._future.done()

    def result(self) -> None:
        raise asyncio.CancelledError(*self._args)


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
