"""``ThreadOffload``: threads in which blocking functions run, apart from anyio's own.

run ──► a place? ──► a thread, at work ──► (awaits something in the loop: its place is
                                           another's meanwhile) ──► the place is free
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from hubbub.hub.tasks.cancelling import ending_cancelled, is_on_asyncio
from hubbub.hub.tasks.kept_threads import KeptThreads
from hubbub.hub.tasks.outermost import start_on

__all__ = ["THREADS", "ThreadOffload"]

T = TypeVar("T")

THREADS: Final = 500
"""Functions at work at once, where nobody says otherwise."""


class ThreadOffload:
    """Threads for functions, at most ``threads`` of them at work at once, apart from anyio's own.

    A thread that awaits something in the loop (``anyio.from_thread.run``) leaves its place to
    another meanwhile, and goes on at once when it has it: waiting keeps nobody from working.  At
    most ``9 * threads`` have left their places; a function that nobody waits for any longer keeps
    its own until it returns.

    They do one function after another, and end when they have had nothing to do for a while, or
    when they are dismissed; ``Ports`` does that with its own when a hub is closed.  None holds the
    process: when that ends, what still blocks ends with it.  ``anyio.from_thread`` works in them.
    """

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = KeptThreads("hubbub offload")
        self._most = threads
        self._limiters: WeakKeyDictionary[Any, anyio.CapacityLimiter] = WeakKeyDictionary()
        """By event loop: a program may run one after another."""

    async def run(self, fn: Callable[[], T]) -> T:
        # Neither a value nor an exception passes through the loop: Trio takes no value that could
        # be awaited, and asyncio throws what was raised into the task, which GeneratorExit would
        # close from the outermost frame on.
        results: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(fn())
            except BaseException as error:
                errors.append(error)

        limiter = self._limiter()
        token = anyio.lowlevel.current_token()
        kind = _WayToAsyncio if is_on_asyncio() else _WayBack
        backend: Any = kind(token.backend_class, limiter, 10 * self._most)
        way_back = replace(token, backend_class=backend)
        if is_on_asyncio():
            await _run_in(self._threads, work, limiter, way_back)
        else:  # Trio keeps threads itself: daemons, for a while.

            def live() -> None:
                anyio.from_thread.threadlocals.current_token = way_back  # type: ignore[attr-defined]
                work()

            await anyio.to_thread.run_sync(live, abandon_on_cancel=True, limiter=limiter)
        if errors:
            raise errors.pop()
        return results[0]

    def _limiter(self) -> anyio.CapacityLimiter:
        loop = anyio.lowlevel.current_token().native_token
        limiter = self._limiters.get(loop)
        if limiter is None:
            limiter = self._limiters[loop] = anyio.CapacityLimiter(self._most)
        return limiter

    def dismiss(self) -> None:
        """Let the threads end: idle ones now, others with their functions, which nobody awaits
        here.  It can still be used, and then starts new ones."""
        self._threads.dismiss()


async def _run_in(
    threads: KeptThreads, work: Callable[[], None], limiter: anyio.CapacityLimiter, way_back: Any
) -> None:
    """As ``anyio.to_thread.run_sync``, whose threads are waited for at the interpreter's exit on
    asyncio."""
    await anyio.lowlevel.checkpoint()
    call_back = way_back.native_token.call_soon_threadsafe
    context = copy_context()
    with suppress(ImportError):  # In the thread there is no loop: ``anyio.run`` may begin one.
        from sniffio import current_async_library_cvar as library

        context.run(library.set, None)
    done = anyio.Event()

    def live() -> None:
        # What anyio keeps of its own threads, by which ``from_thread`` finds the way back.
        about = anyio.from_thread.threadlocals  # type: ignore[attr-defined]
        about.current_token, about.current_cancel_scope = way_back, scope
        try:
            context.run(work)
        finally:
            del about.current_token, about.current_cancel_scope

    def ended() -> None:
        limiter.release_on_behalf_of(done)
        done.set()

    def report() -> None:
        with suppress(RuntimeError):  # The loop has ended, and with it the waiter.
            call_back(ended)

    await limiter.acquire_on_behalf_of(done)
    try:
        with anyio.CancelScope() as scope:
            threads.start(live, report)
            await done.wait()
    finally:
        way_back.backend_class.give_up()


class _WayBack:
    """The loop as anyio knows it, from a thread.

    What a thread awaits there (``from_thread.run``) is a task.  anyio makes a failure of its
    cancellation, of which asyncio complains when the program ends meanwhile.
    """

    __slots__ = ("_backend", "_limiter", "_most")

    def __init__(self, backend: Any, limiter: anyio.CapacityLimiter, most: int) -> None:
        self._backend = backend
        self._limiter = limiter
        self._most = most

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def run_async_from_thread(self, func: Any, args: tuple[Any, ...], token: object) -> Any:
        args = (self._elsewhere, func, *args)
        return self._backend.run_async_from_thread(ending_cancelled, args, token=token)

    async def _elsewhere(self, func: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Await it while another thread may have the place of the one that waits."""
        limiter = self._limiter
        if limiter.total_tokens >= self._most:
            return await func(*args)
        limiter.total_tokens += 1
        try:
            return await func(*args)
        finally:
            limiter.total_tokens -= 1


class _WayToAsyncio(_WayBack):
    """asyncio's: a coroutine is made in the loop.  Of one that is made in the thread, and that the
    loop ends before it begins, asyncio says that it was never awaited."""

    __slots__ = ("_is_given_up", "_loop", "_scopes")

    def __init__(self, backend: Any, limiter: anyio.CapacityLimiter, most: int) -> None:
        super().__init__(backend, limiter, most)
        self._loop = asyncio.get_running_loop()
        self._scopes: dict[asyncio.Task[Any], anyio.CancelScope] = {}
        self._is_given_up = False

    def run_async_from_thread(self, func: Any, args: tuple[Any, ...], token: object) -> Any:
        loop: Any = token or self._loop
        answer: Future[Any] = Future()

        def begin() -> None:
            if self._is_given_up:  # Maybe the loop ends before anything else that begins.
                answer.cancel()
                return
            task = start_on(loop, ending_cancelled(self._within_scope, func, args))
            task.add_done_callback(ended)

        def ended(task: "asyncio.Task[Any]") -> None:
            self._scopes.pop(task, None)
            if task.cancelled():
                answer.cancel()
            elif (error := task.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

        loop.call_soon_threadsafe(begin, context=copy_context())
        return answer.result()

    async def _within_scope(self, func: Any, args: tuple[Any, ...]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        with anyio.CancelScope() as scope:
            self._scopes[task] = scope
            if self._is_given_up:
                scope.cancel()
            return await self._elsewhere(func, *args)
        raise asyncio.CancelledError

    def give_up(self) -> None:
        """Nobody waits for the thread any longer: what it asks is cancelled."""
        self._is_given_up = True
        for scope in self._scopes.values():
            scope.cancel()
