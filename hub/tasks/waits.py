"""What holds up somebody who waits for code that has been cancelled, found by looking at tasks.

    a task ──► its coroutine ──► what that awaits ──► … : the function that hubbub has called

A task that is cancelled ends when its code lets it.  ``anyio.to_thread.run_sync`` waits for its
thread, unless it is given ``abandon_on_cancel=True``, and so does whatever shields itself.  A timer
runs while somebody waits, on Trio in a task of its own; tasks are looked at when a wait is long.
Where nobody watches (``Ports.is_watched``) there is neither: in a simulated world one more task
would change in which order its seed runs the others.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias

import anyio

from hubbub.hub.tasks.cancelling import is_on_asyncio
from hubbub.hub.tasks.loop_watch import called_by_us
from hubbub.hub.tasks.stepped import in_turn, stepped

__all__ = ["FIRST", "REMEDY", "held_up_by", "tell", "telling"]

FIRST: Final = 5.0
LONGEST: Final = 300.0
"""Seconds before the first line, and at most between two; each time it is twice as long."""

MOST: Final = 10
"""Tasks that a line names."""

REMEDY: Final = (
    "code in a thread ends when it likes: give anyio.to_thread.run_sync abandon_on_cancel=True, or "
    "use a plain def tool; what shields itself is waited for"
)

Say: TypeAlias = Callable[[float], object]
"""Is given the seconds that somebody has waited."""


@contextmanager
def telling(say: Say, is_watched: bool) -> Iterator[None]:
    """Call ``say`` inside whenever it has taken long, and ever more rarely, where it is watched."""
    end = tell(say, is_watched)
    try:
        yield
    finally:
        end()


def tell(say: Say, is_watched: bool) -> Callable[[], object]:
    """The same until what is returned is called."""
    if not is_watched:
        return _nothing
    if not is_on_asyncio():
        return _tell_on_trio(say)
    loop = asyncio.get_running_loop()
    context = copy_context()
    with suppress(ImportError):  # A timer is no task, by which anyio would know asyncio.
        from sniffio import current_async_library_cvar as library

        context.run(library.set, "asyncio")
    timer: list[asyncio.TimerHandle] = []

    def wait(waited: float, seconds: float) -> None:
        def act() -> None:
            wait(waited + seconds, min(2 * seconds, LONGEST))
            say(waited + seconds)

        timer[:] = [loop.call_later(seconds, act, context=context)]

    wait(0.0, FIRST)
    return lambda: timer[0].cancel()


def _nothing() -> None:
    """Nothing was begun."""


def _tell_on_trio(say: Say) -> Callable[[], object]:
    import trio

    scope = trio.CancelScope()

    async def wait() -> None:
        waited, seconds = 0.0, FIRST
        with scope:
            while True:
                await trio.sleep(seconds)
                waited, seconds = waited + seconds, min(2 * seconds, LONGEST)
                with suppress(Exception):  # Out of a task of Trio's own it would end the program.
                    say(waited)

    # In a group of the waiter's it would be one more that is waited for.
    trio.lowlevel.spawn_system_task(wait, name="hubbub telling")
    return scope.cancel


def held_up_by(owner: object, code: CodeType, ids: Collection[int] = ()) -> tuple[str, ...]:
    """What the tasks wait for in which that method of ``owner`` is at work, those of these ``ids``,
    and those that they have started: a text for each, with the function, where it has got to, and
    the task."""
    tasks = anyio.get_running_tasks()
    frames = {task.id: [*_frames_of(task.coro)] for task in tasks}
    found = {id_ for id_, each in frames.items() if any(_is(owner, code, frame) for frame in each)}
    found.update(ids)
    while more := {task.id for task in tasks if task.parent_id in found} - found:
        found |= more
    ours = [task for task in tasks if task.id in found]
    said = [
        f"{called[0]} ({called[1]}) in task {task.name}"
        for task in ours
        if (called := called_by_us(frames[task.id])) is not None
    ]
    return tuple((said or [f"task {task.name}" for task in ours])[:MOST])


def _is(owner: object, code: CodeType, frame: FrameType) -> bool:
    return frame.f_code is code and frame.f_locals.get("self") is owner


def _frames_of(coroutine: Any) -> Iterator[FrameType]:
    """The frames of a task that waits, from the outermost on."""
    while coroutine is not None:
        frame = _first(coroutine, "cr_frame", "gi_frame", "ag_frame")
        inner = _first(coroutine, "cr_await", "gi_yieldfrom", "ag_await")
        if frame is not None:
            yield frame
            if frame.f_code in (stepped.__code__, in_turn.__code__):  # It awaits step by step.
                inner = frame.f_locals.get("work")
        coroutine = inner


def _first(coroutine: Any, *names: str) -> Any:
    found = (getattr(coroutine, name, None) for name in names)
    return next((each for each in found if each is not None), None)
