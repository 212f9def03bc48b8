"""``HomeLoop``: where a hub lives: the event loop, thread and process in which it was opened.

    a call ──► here? ──► goes on
               └──► in another thread, in another loop, after the loop has ended, in a forked child:
                    refused, for nobody would ever answer it

What is waited for comes by the loop that opened the hub: in another one a wait would not end.  A
fork copies the memory of its process without its threads, so that in the child nothing is written.
Python collects garbage whenever something is allocated, so a finalizer that is run by that calls in
the midst of whatever the hub does, and is refused as well.
"""

import os
import sys
from asyncio import AbstractEventLoop
from asyncio import _get_running_loop as running_loop
from collections.abc import Callable
from contextlib import suppress
from os import _exit, getpid
from threading import get_ident
from typing import Final, TypeVar
from weakref import WeakSet

import anyio

from hubbub.hub.errors import CallerError, WrongLoop, WrongThread
from hubbub.hub.logs import log
from hubbub.hub.tasks.collecting import CollectingThread
from hubbub.hub.tasks.forked import end_loop
from hubbub.hub.tasks.stack_room import StackRoom
from hubbub.hub.tasks.waiter import MakeWaiter, waiters

__all__ = ["HomeLoop", "ending_forks", "running_loop"]

T = TypeVar("T")

NOWHERE: Final = 0
"""What no thread is."""


class HomeLoop:
    """Until ``begin`` it is nowhere."""

    __slots__ = (
        "__weakref__", "_token", "has_begun", "is_forked", "loop", "make_event", "make_scope",
        "make_waiter", "stack", "thread",
    )  # fmt: skip

    def __init__(self) -> None:
        self.has_begun = False
        """Whether the hub has been opened."""
        self.thread = NOWHERE
        """The thread in which it runs; of none, until there is one, and in a forked child."""
        self.is_forked = False
        """Whether the caller runs in a child that was forked off."""
        self.loop: AbstractEventLoop | None = None
        """asyncio's; ``None`` on Trio, whose tasks cannot leave a hub behind them."""
        self._token: object = None
        """By which either loop is known, as long as tasks of the hub go on in it."""
        self.make_event: Callable[[], anyio.Event] = anyio.Event
        """Makes an event; once begun, without asking each time whose loop it is."""
        self.make_scope: Callable[..., anyio.CancelScope] = anyio.CancelScope
        """The same of a cancel scope."""
        self.stack = StackRoom(_collecting, _refuse_finalizer)
        """Whether what is called here has room on Python's stack."""
        self.make_waiter: MakeWaiter
        """Makes what one task waits for once; there is one as soon as it has begun."""
        _homes.add(self)

    def begin(self) -> None:
        """Live where the caller runs."""
        self.thread, self.is_forked, self.loop = get_ident(), False, running_loop()
        self.make_event, self.make_scope = type(anyio.Event()), type(anyio.CancelScope())
        self.make_waiter = waiters()
        self.has_begun = True

    def begin_tasks(self) -> None:
        """From now on tasks go on here: a child that is forked off must not go on with them."""
        self._token = anyio.lowlevel.current_token().native_token

    def end_tasks(self) -> None:
        """They have ended."""
        self._token = None

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs in the loop's thread."""
        return get_ident() == self.thread

    @property
    def has_ended(self) -> bool:
        """Whether the loop is closed: nothing of it goes on."""
        return self.loop is not None and self.loop.is_closed()

    def check(self, call: str, remedy: str = "") -> None:
        """Raise ``WrongThread``, ``WrongLoop``, or as ``StackRoom`` and ``check_begun`` do, where
        ``call`` may not be made.

        ``remedy``: what to do instead from another thread.
        """
        if get_ident() != self.thread or running_loop() is not self.loop:
            self.refuse(call, remedy)
        self.stack.check(call)

    def refuse(self, call: str, remedy: str = "") -> None:
        """``check``, for who has seen by the same comparison that the caller is elsewhere."""
        if self.is_forked:
            raise WrongLoop(call, _FORKED)
        self.check_begun(call)
        if self.has_ended:
            raise WrongLoop(call, "that loop has ended: open a new runtime in this one")
        if not self.is_current_thread:
            raise WrongThread(call, remedy)
        # Without any loop nothing else is at work: it stands still, and will go on.
        if running_loop() is not None:
            raise WrongLoop(call, "that loop is not the one at work: use one loop for all of it")

    def check_begun(self, call: str) -> None:
        """Raise ``CallerError`` for a ``call`` of a hub that has not been entered."""
        if not self.has_begun:
            remedy = "async with Hub() as hub, or async with Runtime(...) as rt"
            raise CallerError(f"{call}: this hub is not open; enter it first: {remedy}")

    def is_left(self, call: str) -> bool:
        """Whether the caller runs in a forked child, where there is nothing to let go of.

        For what closes, which may also be done after the loop has ended, with little of the stack
        left, and by a finalizer.  Raises ``WrongThread``, and ``WrongLoop`` in another loop than
        one that stands still: what is waited for there would not end.
        """
        if self.is_forked:
            return True
        is_here = get_ident() == self.thread and running_loop() is self.loop
        if not is_here and self.has_begun and not self.has_ended:
            self.refuse(call)
        return False

    def end_forked(self, error: BaseException | None = None) -> None:
        """In a forked child that leaves by the end of its ``async with``, or whose code returns to
        what called it here, or raises ``error`` there: end the process.

        Neither loop can be left there.  Trio's waits without end for what the parent reads, and
        asyncio's, at its end, takes from the parent's what wakes that, which then hears no thread
        any more: a parent that writes by one would never hear that something is written.  Nor may
        anything go on that goes on in the parent.
        """
        if self.is_forked:
            _end_forked(error)


_FORKED: Final = (
    "this process was forked from it: open a runtime of its own here, or start processes by spawn "
    "(multiprocessing.get_context('spawn'))"
)

_collecting: Final = CollectingThread()


def _refuse_finalizer(call: str) -> None:
    raise CallerError(
        f"{call}: called by a finalizer that Python's garbage collector runs, in the midst of "
        "anything; hand it over by loop.call_soon_threadsafe or TrioToken.run_sync_soon"
    )


_homes: Final[WeakSet[HomeLoop]] = WeakSet()
"""Those that a forked child gets copies of.  Nobody else looks at them."""


def _leave_in_child() -> None:
    """A forked child is at home in none of them: no call has to ask in which process it is made,
    which would take the operating system each time."""
    for home in _homes:
        here, home.thread, home.is_forked = home.thread, NOWHERE, True
        if home._token is not None and here == get_ident():
            end_loop(home._token, _end_waiting)


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_leave_in_child)


def ending_forks(fn: Callable[[], T]) -> Callable[[], T]:
    """``fn``, in whose forked children the process ends with it: nobody there waits for it."""
    here = getpid()

    def call() -> T:
        try:
            result = fn()
        except BaseException as error:
            if getpid() != here:
                _end_forked(error)
            raise
        if getpid() != here:
            _end_forked(None)
        return result

    return call


def _end_waiting() -> None:
    """End this process, whose code waits for what its parent's loop alone could bring."""
    log.error("process.forked_and_waited", problem=_FORKED)
    _end_forked(SystemExit(1))


def _end_forked(error: BaseException | None) -> None:
    """End this process: by the code of a ``SystemExit``, by 1 for another error, else by 0.

    Nothing of the parent's is left properly: not its loop, which the child does not run, nor its
    threads, which it does not have.
    """
    code = error.code if isinstance(error, SystemExit) else error
    if not (code is None or isinstance(code, int)):
        log.error("process.forked_and_failed", exc_info=error)
        code = 1
    for name in ("stdout", "stderr"):  # What the child has printed is not lost.
        with suppress(Exception):
            getattr(sys, name).flush()
    _exit(code or 0)
