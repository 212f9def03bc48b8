"""What a function that somebody has given does when it is called, as far as it can be seen.

One rule wherever functions are given: what is async is awaited, through ``partial``, ``wraps`` and
``__call__``, too; what yields is refused where one value is expected, for its body would never
run; what a plain function returns is looked at where nobody would await it.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Final

__all__ = ["function_problem", "is_async", "unawaited", "yielding_problem"]


MAX_WRAPPERS: Final = 100
"""Something that wraps itself, or answers for every name, is gone into no deeper."""


def is_async(function: object) -> bool:
    """Whether calls of it are awaited."""
    return _is(function, inspect.iscoroutinefunction)


def yielding_problem(function: object, *, may_iterate: bool = False) -> str:
    """Why it cannot be called for one value: it yields; empty where it does not.

    With ``may_iterate`` a plain generator is one.
    """
    is_iterable = not may_iterate and _is(function, inspect.isgeneratorfunction)
    if is_iterable or _is(function, inspect.isasyncgenfunction):
        name = getattr(function, "__qualname__", type(function).__name__)
        return f"{name} yields, so a call of it does nothing; have it return instead"
    return ""


def function_problem(function: object) -> str:
    """Why it is nothing to call for one value; empty where it is."""
    if not callable(function):
        return f"{type(function).__name__} is not callable; expected a function"
    return yielding_problem(function)


def unawaited(answer: object) -> str:
    """Why what a plain function has returned will do nothing, if nobody awaits it; else empty.

    A coroutine is closed.  What runs by itself, such as a task or a receipt, may be returned.
    """
    if inspect.iscoroutine(answer):
        answer.close()
        return "it returned a coroutine, which nobody awaits; make it `async def`"
    if inspect.isasyncgen(answer) or inspect.isgenerator(answer):
        return "it returned a generator, which nobody goes through; make it `async def`"
    return ""


def _is(function: object, kind: Callable[[Any], bool]) -> bool:
    function = _behind(function)
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004


def _behind(function: Any) -> Any:
    """The function behind partials and decorators that name it."""
    for _ in range(MAX_WRAPPERS):
        inner = function.func if isinstance(function, partial) else _wrapped_in(function)
        if inner is None:
            break
        function = inner
    return function


def _wrapped_in(function: Any) -> Any:
    return getattr(function, "__wrapped__", None)
