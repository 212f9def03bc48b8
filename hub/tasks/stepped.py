"""``stepped`` and ``in_turn``: await coroutines step by step, where that is not for their own task.

    stepped    one coroutine, in a task that may be somebody else's
    in_turn    one after the other, in a context, each of which decides what comes next

The second does in one frame what would take three: there is one for every run that waits.
"""

from collections.abc import Coroutine, Generator
from contextvars import Context
from types import coroutine
from typing import Any, Protocol, TypeVar

from hubbub.hub.tasks.outermost import awaited_here

__all__ = ["Pieces", "in_turn", "stepped"]

T = TypeVar("T")


class Pieces(Protocol):
    """Coroutines that are to be awaited one after the other."""

    def go_on(self, value: Any) -> Coroutine[Any, Any, Any] | None:
        """The next piece, if there is anything left to do.

        ``value`` is what the last one has returned; ``None`` at first, and after one that failed.
        """
        ...

    def waits(self) -> object:
        """The piece that was begun last waits for something, for the first time.

        Not called of one that ends without having to wait.
        """
        ...

    def failed(self, error: BaseException) -> bool:
        """A piece has raised ``error``; whether nobody else is to get that."""
        ...


@coroutine
def stepped(work: Coroutine[Any, Any, T], *, is_lent: bool = False) -> Generator[Any, Any, T]:
    """Await ``work``.

    ``is_lent``: the task is somebody else's, and is thrown nothing that a future holds for which
    ``work`` waits (``awaited_here``).
    """
    try:
        wanted = work.send(None)
        while True:
            if is_lent:
                wanted = awaited_here(wanted)
            try:
                got = yield wanted
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                wanted = work.throw(error)
            else:
                wanted = work.send(got)
    except StopIteration as end:
        value: T = end.value
        return value


@coroutine
def in_turn(
    pieces: Pieces, *, context: Context | None = None, is_lent: bool = False
) -> Generator[Any, Any, None]:
    """Await one piece after the other, all in ``context`` if one is given; ``is_lent`` as above."""
    # What is bound here stays in memory, of everybody who waits.
    work = pieces.go_on(None) if context is None else context.run(pieces.go_on, None)
    here: Any = None
    is_closed = False
    while work is not None:
        try:
            wanted = work.send(None) if context is None else context.run(work.send, None)
            pieces.waits()
            while True:
                if is_lent:
                    wanted = here = awaited_here(wanted, here)
                try:
                    got = yield wanted
                except GeneratorExit:
                    is_closed = True
                    work.close()
                    raise
                except BaseException as error:
                    throw = work.throw
                    wanted = throw(error) if context is None else context.run(throw, error)
                else:
                    wanted = work.send(got) if context is None else context.run(work.send, got)
        except StopIteration as end:
            value = end.value
        except BaseException as error:
            if not (pieces.failed(error) if context is None else context.run(pieces.failed, error)):
                raise
            if is_closed:
                return
            value = None
        work = pieces.go_on(value) if context is None else context.run(pieces.go_on, value)
        value = None
