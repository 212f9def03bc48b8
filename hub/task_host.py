"""``TaskHost``: the task group of a hub, which any task may close.

A task group must be left by the task that entered it.  ``async with Hub()`` cannot promise that
inside asyncio fixtures and lifespan handlers of web frameworks, which enter and leave in
different tasks.  So on asyncio the group lives in a task of its own: one of the two places where
the library speaks to an event loop directly.  Trio forbids such use altogether, so there the
group simply lives in the caller's task.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext, suppress
from contextvars import Context, ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.lowlevel
from anyio import TaskHandle
from anyio.abc import TaskGroup

from hubbub.hub.errors import CallerError, Closed, WrongLoop
from hubbub.hub.home_loop import HomeLoop
from hubbub.hub.logs import log
from hubbub.hub.tasks.cancelling import (
    ENDING,
    absorb_cancellation,
    defer_interrupts,
    is_on_asyncio,
    others_turn,
    outlast,
)
from hubbub.hub.tasks.light import Cancellable, LightTasks, Work
from hubbub.hub.tasks.outermost import start_bystander, start_in
from hubbub.hub.tasks.raised import exit_in, is_of, is_plain_cancellation, uncontained
from hubbub.hub.tasks.waits import REMEDY, held_up_by, telling

if TYPE_CHECKING:
    from hubbub.hub.tasks.trio_light import TrioLightTasks

__all__ = ["TaskHost"]


T = TypeVar("T")

_WITHIN: Final[ContextVar[tuple[object, ...]]] = ContextVar("hubbub_within", default=())
"""The hosts that wait for this code: it is in a task of theirs, or in one that was begun there."""


class TaskHost:
    """Starts tasks that live until they end or the host is closed."""

    __slots__ = (
        "_bystander",
        "_context",
        "_ended",
        "_group",
        "_has_exited",
        "_leave",
        "_light",
        "_mark",
        "_opener",
        "_shields",
        "_task",
        "breathe",
        "home",
        "is_watched",
        "lent",
    )  # fmt: skip

    def __init__(self, is_watched: bool = False) -> None:
        self.home = HomeLoop()
        self.is_watched = is_watched
        """Whether it is logged what holds up those who wait for its tasks."""
        self._context = Context()
        """What tasks start in, each in a copy: nothing but whose they are, and on asyncio which
        library it is that runs them, and how to know that the loop ends."""
        self._opener: int | None = None
        """The task that holds the group, where only that one can leave it."""
        self._mark = object()
        marks = (*_WITHIN.get(), self._mark)
        self._context.run(_WITHIN.set, marks)
        self.breathe: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint
        """Lets others have their turn; once opened, without asking each time whose loop it is."""
        self.lent = Context()
        """What its work starts in, in a copy, in somebody else's task: nothing but whose it is."""
        self.lent.run(_WITHIN.set, marks)
        self._shields: list[anyio.CancelScope] = []
        self._has_exited = False
        """Whether a task has ended the program."""
        self._bystander: asyncio.Task[None] | None = None
        """A task that is cancelled by nobody but a loop that ends."""
        self._group: TaskGroup | None = None
        self._light: LightTasks | TrioLightTasks | None = None
        self._leave: anyio.Event | None = None
        self._ended: anyio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether tasks can be started."""
        return self._group is not None

    @property
    def is_stranded(self) -> bool:
        """Whether the loop was closed over tasks: they neither go on nor end, and can no longer
        even be cancelled."""
        return self._task is not None and not self._task.done() and self.home.has_ended

    @property
    def is_ending(self) -> bool:
        """Whether the program is being ended, and its tasks with it."""
        return self._is_ending()

    def _is_ending(self) -> bool:
        """Whether the program is being ended, by a task of this host or by any other."""
        bystander = self._bystander
        return self._has_exited or (bystander is not None and bystander.cancelling() > 0)

    async def lend(self, work: Awaitable[T]) -> T:
        """Await work of the host's in the task of somebody else."""
        token = _WITHIN.set((*_WITHIN.get(), self._mark))
        try:
            return await work
        finally:
            _WITHIN.reset(token)

    def refuse_within(self, call: str) -> None:
        """Raise ``CallerError`` where the host cannot be closed.

        In a task of its own, or one begun there, that would wait for its own end; on Trio, in any
        but the one that opened it, scopes would be ended that are another task's.
        """
        if self._group is None:
            return
        if self._mark in _WITHIN.get():
            raise CallerError(
                f"{call} waits for this very task; set an Event here, wait for it where the hub or "
                "the runtime was entered, and leave there"
            )
        if self._opener not in (None, anyio.get_current_task().id):
            raise CallerError(f"{call} is for the task that entered it, on Trio; leave it there")

    async def open(self) -> None:
        """Make the task group; on Trio it is the calling task's."""
        self.home.begin()
        self.home.begin_tasks()
        if is_on_asyncio():
            self.breathe = others_turn
            self._leave, self._ended = anyio.Event(), anyio.Event()
            # What a thread calls here runs in no task, by which anyio would know asyncio.
            with suppress(ImportError):
                from sniffio import current_async_library_cvar as library

                self._context.run(library.set, "asyncio")
            self._context.run(ENDING.set, self._is_ending)
            entered = anyio.Event()
            self._bystander = start_bystander(self._ended.wait())
            self._task = asyncio.create_task(self._hold(entered), name="hubbub")
            self._task.add_done_callback(partial(_set_both, entered, self._ended))
            try:
                await entered.wait()
            except BaseException:  # Cancelled on the way in: nobody will come to close.
                await self.aclose()
                raise
        else:
            from hubbub.hub.tasks.trio_light import TrioLightTasks

            self._group = await anyio.create_task_group().__aenter__()
            self._light = TrioLightTasks.of(self._group)
            self._opener = anyio.get_current_task().id

    async def _hold(self, entered: anyio.Event) -> None:
        assert self._leave is not None
        self._light = light = LightTasks(self.home.make_scope, self._raised_by_light)
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                entered.set()
                try:
                    await self._stay(group)
                finally:
                    group.cancel_scope.cancel()
                    await light.aclose()
        except BaseExceptionGroup as errors:
            # asyncio has raised it out of the loop, which it ends by itself.  Once more, it would
            # break off what ends the loop in order.
            if exit_in(errors) is None:
                raise
        finally:
            self._group = None

    async def _stay(self, group: TaskGroup) -> None:
        """Return when the host is left, and not because somebody has cancelled the task."""
        assert self._leave is not None and self._task is not None
        while not self._leave.is_set():
            try:
                await self._leave.wait()
            except asyncio.CancelledError:
                if self._is_ending() or group.cancel_scope.cancel_called:
                    raise
                while self._task.cancelling():
                    self._task.uncancel()

    def start(
        self,
        coroutine: Coroutine[Any, Any, Any],
        name: str = "",
        *,
        lives_on: bool = False,
        steady: bool = False,
    ) -> TaskHandle[Any, None]:
        """Start a task in an empty context: nothing of the caller's variables leaks in.

        One that ``lives_on`` ends with the host and not before, for others wait for it to leave:
        on Trio, the task that opened the host may be cancelled, and the tasks in its group with it.
        It is ``steady``, as others may be (``start_in``).
        """
        if self._group is None:
            coroutine.close()
            raise Closed("the hub", "enter it first: async with Hub() as hub")
        within = [coroutine]
        if lives_on:
            shield = anyio.CancelScope(shield=True)
            self._shields.append(shield)
            coroutine = _inside(shield, coroutine)
            within.append(coroutine)
            defer_interrupts(_inside)
        guarded, context = self._guarded(coroutine), self._context.copy()
        return start_in(
            self._group, guarded, name=name or None, context=context, within=within,
            steady=steady or lives_on, on_asyncio=self._bystander is not None,
        )  # fmt: skip

    def start_light(self, work: Work, name: str = "") -> Cancellable:
        """The same of a task that nobody awaits, of which there may be very many.

        ``work`` enters what it is given, and raises what ``contained`` returns for what ends it.
        """
        if self._light is None or self._group is None:
            return self.start(work(nullcontext()), name)
        return self._light.start(work, name, self._context.copy())

    def contained(self, error: BaseException) -> BaseException | None:
        """What a light task raises whose work has ended by ``error``, if anything."""
        self.home.end_forked(error)
        if self._light is None or is_of(error, Exception):  # Or its guard sees to it.
            return error
        return self._passed(error)

    def _raised_by_light(self, error: BaseException) -> None:
        """A light task has raised: all others end by that, as those of a group do."""
        if self._group is None:
            return
        if exit_in(error) is not None:  # asyncio has raised it out of the loop.
            self._group.cancel_scope.cancel()
        else:
            self.start(_raise(error), name="hubbub failed")

    def end_program(self, error: BaseException) -> bool:
        """Raise ``error`` where it ends the program; whether there is such a place.

        Where an earlier one ends it already, what asyncio then does in order is not broken off.
        """
        if self._is_ending():
            log.error("task.ended_from_within", exc_info=error)
            return True
        if self._group is None:
            return False
        self.start(_raise(error), name="hubbub exit")
        return True

    async def _guarded(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except BaseException as error:
            self.home.end_forked(error)
            if is_of(error, Exception):
                raise
            if (passed := self._passed(error)) is not None:
                raise passed from None
        task: Any = None if self._bystander is None else asyncio.current_task()
        if task is not None and (task.cancelling() or getattr(task, "_must_cancel", False)):
            # A task that returns with a cancellation to come ends by it, and its group with it.
            await absorb_cancellation()

    def _passed(self, error: BaseException) -> BaseException | None:
        """What a task passes on of what has ended its work, and is no ``Exception``."""
        # Code that awaits somebody else's cancelled task raises its cancellation, alone or in a
        # group.  Passed on, it would end the whole task group, and with it every other run.
        passed = uncontained(error)
        is_exit = passed is not None and exit_in(passed) is not None
        if passed is not None and not (is_exit and self._is_ending()):
            self._has_exited = self._has_exited or is_exit
            return passed
        # Nor may one more exit break off what asyncio does to end the program in order; out of
        # a group that is wound up meanwhile it is the one that asyncio has raised.
        is_known = is_exit and not self._has_exited
        if not is_known and not is_plain_cancellation(error):
            log.error("task.ended_from_within", exc_info=error)
        return None

    def refuse_stranded(self, call: str) -> None:
        """Raise ``WrongLoop`` for what would wait for stranded tasks, if there are any."""
        if self.is_stranded:
            raise WrongLoop(
                call, "that loop was closed while tasks were at work in it; leave the runtime "
                "before loop.close(), or use asyncio.run"
            )  # fmt: skip

    async def aclose(self) -> None:
        """Cancel what still runs and wait for its end; idempotent.  Stranded tasks are left."""
        if self.is_stranded:
            return
        for shield in self._shields:
            shield.cancel()
        self._shields.clear()
        task, self._task = self._task, None
        group, self._group = self._group, None
        try:
            if task is not None:
                assert self._leave is not None and self._ended is not None
                self._leave.set()
                with telling(self._tell, self.is_watched):
                    await outlast(self._ended)
                with suppress(asyncio.CancelledError):
                    task.result()
            elif group is not None:
                group.cancel_scope.cancel()
                with telling(self._tell, self.is_watched):
                    await group.__aexit__(None, None, None)
        except BaseExceptionGroup as errors:
            ending = exit_in(errors)
            if ending is None:
                raise
            # It ends the program by itself, not as part of a group that is an error.
            raise ending from None
        finally:
            self.home.end_tasks()

    def _tell(self, seconds: float) -> None:
        """Log what tasks still do that were cancelled so long ago."""
        ids = () if self._light is None else self._light.ids
        if held_by := held_up_by(self, TaskHost._guarded.__code__, ids):
            log.warning("leaving.waits", seconds=seconds, held_by=held_by, remedy=REMEDY)


async def _raise(error: BaseException) -> None:
    raise error


def _set_both(one: anyio.Event, other: anyio.Event, _task: object) -> None:
    one.set()
    other.set()


async def _inside(scope: anyio.CancelScope, coroutine: Coroutine[Any, Any, Any]) -> None:
    with scope:
        await coroutine
