"""``LightTasks``: tasks that nobody awaits, of which there may be very many.

    start ──► a task, in a cancel scope of its own ──► it ends
                                                   └─► it raises: whoever holds these is told

A task of a group has a handle besides, an event by which its end is awaited, and a coroutine around
it: with what its run has in memory that is a fifth of an idle agent.  On asyncio they are in no
group, and are held here; on Trio they are in the nursery of one (``trio_light.py``).
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from contextvars import Context
from typing import Any, Protocol, TypeAlias

import anyio

from hubbub.hub.tasks.cancelling import outlast
from hubbub.hub.tasks.outermost import start_on

__all__ = ["Cancellable", "LightTasks", "Work"]


class Cancellable(Protocol):
    """What a task is cancelled by."""

    def cancel(self) -> None: ...


Work: TypeAlias = Callable[[AbstractContextManager[Any, Any]], Coroutine[Any, Any, None]]
"""Makes the coroutine of a task, which works inside of what it is given."""


class LightTasks:
    """Those of one host on asyncio; ``raised`` is told what ends one of them."""

    __slots__ = (
        "_context",
        "_ended",
        "_is_closed",
        "_make_scope",
        "_raised",
        "_scopes",
        "_when_ended",
    )

    def __init__(
        self,
        make_scope: Callable[[], anyio.CancelScope],
        raised: Callable[[BaseException], object],
    ) -> None:
        self._make_scope = make_scope
        self._raised = raised
        self._scopes: dict[asyncio.Task[None], anyio.CancelScope] = {}
        self._ended: anyio.Event | None = None
        self._is_closed = False
        self._when_ended = self._end
        self._context = Context()

    def start(self, work: Work, name: str, context: Context) -> anyio.CancelScope:
        """Start a task of ``work``, which enters the scope by which it is cancelled."""
        scope = self._make_scope()
        if self._is_closed:
            scope.cancel()
        task = start_on(asyncio.get_running_loop(), work(scope), name=name, context=context)
        self._scopes[task] = scope
        task.add_done_callback(self._when_ended, context=self._context)
        return scope

    @property
    def ids(self) -> frozenset[int]:
        """The ids of those at work."""
        return frozenset(map(id, self._scopes))

    def _end(self, task: "asyncio.Task[None]") -> None:
        del self._scopes[task]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._raised(error)
        if self._ended is not None and not self._scopes:
            self._ended.set()

    async def aclose(self) -> None:
        """Cancel them all, and return when they have ended."""
        self._is_closed = True
        for scope in tuple(self._scopes.values()):
            scope.cancel()
        if self._scopes:
            self._ended = anyio.Event()
            await outlast(self._ended)
