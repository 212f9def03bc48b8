"""What the commands over a store share: how they print, and what they demand of numbers."""

import sys
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Literal, TypeAlias

import msgspec

from hubbub.hub.errors import OperatorError

__all__ = ["Loop", "Write", "at_least", "document", "write_all"]

Write: TypeAlias = Callable[[str], object]
"""Takes one line, or one document."""

Loop: TypeAlias = Callable[[Callable[[], Coroutine[Any, Any, Any]], Literal["asyncio"]], Any]
"""Runs a coroutine function to its end."""


def write_all(write: Write, lines: Iterable[str]) -> None:
    """Print one line after another."""
    for line in lines:
        write(line)


def document(value: Any) -> str:
    """A value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def at_least(least: int, name: str, number: int) -> int:
    """``number``; raises ``OperatorError`` for one below ``least``."""
    if number < least or number > sys.maxsize:
        raise OperatorError(f"{name} {number}: expected a number of at least {least}")
    return number
