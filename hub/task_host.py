"""``TaskHost``: the task group of a hub, which any task may close.

A task group must be left by the task that entered it.  ``async with Hub()`` cannot promise that
inside asyncio fixtures and lifespan handlers of web frameworks, which enter and leave in
different tasks.  So on asyncio the group lives in a task of its own: one of the two places where
the library speaks to an event loop directly.  Trio forbids such use altogether, so there the
group simply lives in the caller's task.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any

import anyio
import anyio.lowlevel
from anyio import TaskHandle
from anyio.abc import TaskGroup

from hubbub.hub.errors import Closed
from hubbub.hub.logs import log

__all__ = ["TaskHost", "is_stray_cancellation"]


class TaskHost:
    """Starts tasks that live until they end or the host is closed."""

    __slots__ = ("_group", "_leave", "_shields", "_task")

    def __init__(self) -> None:
        self._shields: list[anyio.CancelScope] = []
        self._group: TaskGroup | None = None
        self._leave: anyio.Event | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._group is not None

    async def open(self) -> None:
        if isinstance(anyio.lowlevel.current_token().native_token, asyncio.AbstractEventLoop):
            self._leave = anyio.Event()
            entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._hold(entered), name="hubbub")
            try:
                await entered
            except BaseException:  # Cancelled on the way in: nobody will come to close.
                await self.aclose()
                raise
        else:
            self._group = await anyio.create_task_group().__aenter__()

    async def _hold(self, entered: "asyncio.Future[None]") -> None:
        assert self._leave is not None
        async with anyio.create_task_group() as group:
            self._group = group
            if not entered.done():
                entered.set_result(None)
            await self._leave.wait()
            group.cancel_scope.cancel()

    def start(
        self, coroutine: Coroutine[Any, Any, Any], name: str = "", *, lives_on: bool = False
    ) -> TaskHandle[Any, None]:
        """Start a task in an empty context: nothing of the caller's variables leaks in.

        One that ``lives_on`` ends with the host and not before, for others wait for it to leave:
        on Trio, whoever has opened the host may be cancelled, and the tasks in its group with it.
        """
        if self._group is None:
            coroutine.close()
            raise Closed("the hub", "enter it first: async with Hub() as hub")
        if lives_on:
            shield = anyio.CancelScope(shield=True)
            self._shields.append(shield)
            coroutine = _inside(shield, coroutine)
        return self._group.create_task(_guarded(coroutine), name=name or None, context=Context())

    async def aclose(self) -> None:
        """Cancel what still runs and wait for its end; idempotent."""
        for shield in self._shields:
            shield.cancel()
        self._shields.clear()
        task, self._task = self._task, None
        group, self._group = self._group, None
        if task is not None:
            assert self._leave is not None
            self._leave.set()
            # Shielded: leaving must finish even when the caller is being cancelled.
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        elif group is not None:
            group.cancel_scope.cancel()
            await group.__aexit__(None, None, None)


def is_stray_cancellation(error: BaseException) -> bool:
    """Whether ``error`` is asyncio's cancellation, but nobody has cancelled the task at work.

    Code that awaits somebody else's cancelled task or future raises it.  Passed on, it would end
    the whole task group, and with it every other run.
    """
    if not isinstance(error, asyncio.CancelledError):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # On Trio asyncio's exception is nobody's cancellation.
        return True
    return task is not None and not task.cancelling()


async def _inside(scope: anyio.CancelScope, coroutine: Coroutine[Any, Any, Any]) -> None:
    with scope:
        await coroutine


async def _guarded(coroutine: Coroutine[Any, Any, Any]) -> None:
    try:
        await coroutine
    except BaseException as error:
        if not is_stray_cancellation(error):
            raise
        log.error("task.cancelled_from_within", exc_info=error)
