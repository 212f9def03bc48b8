"""The calls that the public classes offer, found by looking at the classes: a new one is among
them by itself."""

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["async_calls_of", "calls_of"]

DOORS = ("__aenter__", "__aexit__", "__anext__", "__await__")
"""What is called by ``async with``, ``async for`` and ``await``."""


def calls_of(kind: type) -> dict[str, Callable[..., Any]]:
    """The public functions of a class, those it inherits included, by name."""
    found = {}
    for name in dir(kind):
        value = inspect.getattr_static(kind, name)
        if (not name.startswith("_") or name in DOORS) and inspect.isfunction(value):
            found[name] = value
    return found


def async_calls_of(kind: type) -> set[str]:
    """The names of those that are awaited."""
    return {name for name, call in calls_of(kind).items() if inspect.iscoroutinefunction(call)}
