"""Cancelling, where the event loops differ: whose it is, and what it must not cut short.

On asyncio anybody may cancel a task, shielded or not, and anybody's code may raise
``CancelledError``.  On Trio Ctrl-C is raised in whatever code is at work.  This is the one place
that knows of either.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from contextvars import ContextVar
from types import CodeType, SimpleNamespace, coroutine
from typing import Any, Final, TypeVar

import anyio
import anyio.lowlevel

__all__ = [
    "ENDING", "absorb_cancellation", "cancellations", "current_task_id", "defer_interrupts",
    "ending_cancelled",
    "is_being_cancelled",
    "is_cancellation", "is_of_the_loop", "is_on_asyncio", "others_turn", "outlast",
    "put_off_cancellation",
    "renew_cancellation",
]  # fmt: skip

T = TypeVar("T")

ENDING: Final[ContextVar[Callable[[], bool]]] = ContextVar("hubbub_ending")
"""In the tasks of a hub on asyncio: whether the loop is ending them."""


def is_on_asyncio() -> bool:
    """Whether the loop at work is asyncio's, or one like it."""
    return isinstance(anyio.lowlevel.current_token().native_token, asyncio.AbstractEventLoop)


@coroutine
def others_turn() -> Generator[None, None, None]:
    """Let others have their turn, on asyncio: what its ``sleep(0)`` is."""
    yield


def current_task_id() -> int:
    """The id of the task at work, as anyio has it; 0 in a callback of the loop, which is none."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return anyio.get_current_task().id
    return 0 if task is None else id(task)


def is_cancellation(error: BaseException) -> bool:
    """Whether ``error`` is of a class by which tasks and coroutines are ended from outside."""
    # ``isinstance`` would ask the exception, which may raise.
    if issubclass(type(error), GeneratorExit | asyncio.CancelledError):
        return True
    return is_of_the_loop(error)


def is_of_the_loop(error: BaseException) -> bool:
    """Whether ``error`` is of the class by which the loop at work cancels its tasks.

    Only that is taken, from a task that is being cancelled, for the end of it.  Without a loop
    coroutines are closed.
    """
    try:
        return issubclass(type(error), anyio.get_cancelled_exc_class())
    except anyio.NoEventLoopError:
        return issubclass(type(error), GeneratorExit)


def cancellations() -> int:
    """How often the current task has been cancelled; always 0 on Trio."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return 0 if task is None else task.cancelling()


def is_being_cancelled(since: int = 0) -> bool:
    """Whether the current task is being cancelled, by its loop or a cancel scope of anybody's.

    ``since``: the ``cancellations`` that are known of.  Code that no task runs is being closed.
    What code of users' does to the hub's task in which it runs (``current_task().cancel()``, as
    timers made by hand do) ends that code and no task: it is forgotten, since a task that has been
    cancelled ends by the next scope that is, and its group with it.
    """
    try:
        if cancellations() > since:
            if not _is_from_within():
                return True
            _forget(since)
            return False
        return not is_on_asyncio() and anyio.current_effective_deadline() == -math.inf
    except anyio.NoEventLoopError:
        return True


def _is_from_within() -> bool:
    """Whether only code that runs in it can have cancelled the current task, which is the hub's."""
    is_ending = ENDING.get(None)
    if is_ending is None or not getattr(_task().get_coro(), "is_outermost", False):
        return False
    return not is_ending() and anyio.current_effective_deadline() != -math.inf


def _forget(since: int) -> None:
    task = _task()
    while task.cancelling() > since:
        task.uncancel()


async def absorb_cancellation() -> None:
    """Have the current task, if code that runs in it has cancelled it, not told of that at its next
    wait.  On asyncio only."""
    if not _is_from_within():
        return
    _forget(0)
    if getattr(_task(), "_must_cancel", False):  # Python 3.13 forgets that, too.
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)


async def outlast(
    event: anyio.Event, make_scope: Callable[..., anyio.CancelScope] = anyio.CancelScope
) -> None:
    """Return when ``event`` is set, and not before; only for what is sure to come.

    A task that is cancelled meanwhile is told at its next wait, one that Ctrl-C reaches on Trio
    when this returns.  ``make_scope``: of the loop at work, for who knows it.
    """
    interruption: BaseException | None = None
    with make_scope(shield=True):
        while not event.is_set():
            try:
                await event.wait()
            except BaseException as error:
                if isinstance(error, GeneratorExit):
                    raise
                interruption = error
                if isinstance(error, asyncio.CancelledError):
                    _task().uncancel()
    if isinstance(interruption, asyncio.CancelledError):
        _task().cancel(*interruption.args)
    elif interruption is not None:
        raise interruption


def put_off_cancellation(error: BaseException) -> None:
    """The current task goes on though it was cancelled by ``error``, and is told at its next wait.

    For who has got, before that, what cannot be given to it a second time.
    """
    # The scopes of anyio tell it again by themselves; a task's own cancellation comes once.
    is_of_the_task = isinstance(error, asyncio.CancelledError)
    if is_of_the_task and anyio.current_effective_deadline() != -math.inf:
        _task().uncancel()
        _task().cancel(*error.args)


def renew_cancellation() -> None:
    """Have the current task cancelled at its next wait, if it has been and did not end by it.

    A cancel scope does that by itself.
    """
    if cancellations() > 0:
        put_off_cancellation(asyncio.CancelledError())


async def ending_cancelled(function: Callable[..., Awaitable[T]], *args: Any) -> T | None:
    """Await ``function``; where that is cancelled, a task of asyncio's ends as cancelled though
    who awaits this makes another exception of it."""
    try:
        return await function(*args)
    except asyncio.CancelledError as error:
        _task().cancel(*error.args)  # It is taken note of when the task returns.
        return None


def _task() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None
    return task


def defer_interrupts(*functions: Callable[..., Any] | CodeType) -> None:
    """Have Ctrl-C reach none of these, nor what they call, in the middle of its work.

    Trio then raises it where its main task waits.  asyncio does so anyway, at first.
    """
    if is_on_asyncio():
        return
    import trio

    for each in functions:
        code = each if isinstance(each, CodeType) else each.__code__
        trio.lowlevel.enable_ki_protection(SimpleNamespace(__code__=code))
