"""``stepped``: await a coroutine step by step, in a context or a task that is not its own."""

from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from types import coroutine
from typing import Any, TypeVar

from hubbub.hub.tasks.outermost import awaited_here

__all__ = ["stepped"]

T = TypeVar("T")


@coroutine
def stepped(
    work: Coroutine[Any, Any, T],
    *,
    context: Context | None = None,
    on_wait: Callable[[], object] | None = None,
    is_lent: bool = False,
) -> Generator[Any, Any, T]:
    """Await ``work``, in ``context`` if one is given.

    ``on_wait`` is called once, just before ``work`` waits for something for the first time; not
    at all when it ends without having to wait.  ``is_lent``: the task is somebody else's, and is
    thrown nothing that a future holds for which ``work`` waits (``awaited_here``).
    """
    # Nothing is bound ahead: of everybody who waits, it would stay in memory.
    try:
        wanted = work.send(None) if context is None else context.run(work.send, None)
        if on_wait is not None:
            on_wait()
            on_wait = None
        while True:
            if is_lent:
                wanted = awaited_here(wanted)
            try:
                got = yield wanted
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                wanted = work.throw(error) if context is None else context.run(work.throw, error)
            else:
                wanted = work.send(got) if context is None else context.run(work.send, got)
    except StopIteration as end:
        value: T = end.value
        return value
