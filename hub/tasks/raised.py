"""What users' code has raised: whose affair it is.

Whatever its class, an exception is the affair of what raised it, with three exceptions: what ends
the process, the loop's own cancellation of the current task, and ``ChildActivated``, which is no
error.

An exception's class may answer for its attributes as it likes, also by raising, and ``isinstance``
asks it.  Here, and wherever users' exceptions are looked at, the class itself is asked (``is_of``),
and the members of a group are those that Python keeps (``members_of``).
"""

from collections.abc import Iterator
from typing import Any, Final, TypeGuard, TypeVar

from hubbub.hub.tasks.cancelling import is_being_cancelled, is_cancellation, is_of_the_loop

__all__ = [
    "exit_in", "is_contained", "is_of", "is_plain_cancellation", "members_of", "parts_of",
    "uncontained",
]  # fmt: skip

E = TypeVar("E", bound=BaseException)

_EXCEPTIONS: Final[Any] = BaseExceptionGroup.__dict__["exceptions"]


def is_of(error: BaseException, *kinds: type[E]) -> TypeGuard[E]:
    """Whether ``error`` is of one of these classes; nothing of its own is called."""
    return issubclass(type(error), kinds)


def members_of(error: BaseException) -> tuple[BaseException, ...]:
    """The members of a group; none of anything else."""
    if not is_of(error, BaseExceptionGroup):
        return ()
    members: tuple[BaseException, ...] = _EXCEPTIONS.__get__(error)
    return members


def parts_of(error: BaseException) -> Iterator[BaseException]:
    """``error``, and of a group all that it holds, however deep, each once."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += reversed(members_of(each))


def exit_in(error: BaseException) -> BaseException | None:
    """What ends the process, if ``error`` is that or a group that holds it."""
    if is_of(error, Exception):  # A group of these holds no other.
        return None
    return next(
        (each for each in parts_of(error) if is_of(each, KeyboardInterrupt, SystemExit)), None
    )


def is_contained(error: BaseException, *, since: int = 0) -> bool:
    """Whether ``error`` ends no more than the code that raised it, awaited in the current task.

    Of code that is not awaited everything is contained but ``exit_in``.  ``since`` is how often the
    task had been cancelled before (``cancellations``).
    """
    if is_of(error, Exception):
        return True
    if exit_in(error) is not None:
        return False
    if any(map(is_cancellation, parts_of(error))):
        return not is_being_cancelled(since)
    return True


def uncontained(error: BaseException, *, since: int = 0) -> BaseException | None:
    """What a task, or somebody else's code, must be given of ``error``; ``None`` where nothing.

    What ends the process comes alone: asyncio ends by none that is part of a group.  A
    cancellation is given as it is if it is the loop's own: any other one, and a group that holds
    one, the loop takes for a failure of everybody in the task's group.
    """
    if is_contained(error, since=since):
        return None
    ending = exit_in(error)
    if ending is not None:
        return ending
    return error if is_of_the_loop(error) else None


def is_plain_cancellation(error: BaseException) -> bool:
    """Whether it is the loop's own cancellation, or a group that holds nothing else.

    Trio makes such groups of tasks that are cancelled together.
    """
    return all(is_of(each, BaseExceptionGroup) or is_of_the_loop(each) for each in parts_of(error))
