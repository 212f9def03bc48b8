"""What commands share: how they print and run, and what they demand of numbers and folders."""

import os
import sys
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from hubbub.hub.errors import OperatorError
from hubbub.runtime.text import printable, printable_json

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "Backend",
    "CommandScreen",
    "Loop",
    "Write",
    "at_least",
    "document",
    "existing_folder",
    "write_all",
]  # fmt: skip

T = TypeVar("T")

FAILED: Final = 1
"""The exit code of what was tried and failed."""

INTERRUPTED: Final = 130
"""The exit code of what was cut off by its user."""

Backend: TypeAlias = Literal["asyncio", "trio"]

Write: TypeAlias = Callable[[str], object]
"""Takes one line, or one document."""


class Loop(Protocol):
    """Runs a coroutine function to its end."""

    def __call__(self, work: Callable[[], Coroutine[Any, Any, T]], backend: Backend) -> T: ...


class CommandScreen(Struct, frozen=True):
    """The terminal of a command: the library itself writes to no stream."""

    write: Write
    notice: Write
    """Takes one line for stderr."""
    can_draw: Callable[[], bool]
    """Whether stdout is a terminal that can be drawn on."""
    is_interactive: Callable[[], bool]
    """Whether a person types and reads."""
    loop: Loop


def write_all(write: Write, lines: Iterable[str]) -> None:
    """Print one line after another."""
    for line in lines:
        write(line)


def document(value: Any) -> str:
    """A value as indented JSON, without what a terminal would obey."""
    return printable_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def at_least(least: int, name: str, number: int, most: int = sys.maxsize) -> int:
    """``number``; raises ``OperatorError`` for one below ``least`` or above ``most``."""
    if number < least:
        raise OperatorError(f"{name} {number}: expected a number of at least {least}")
    if number > most:
        raise OperatorError(f"{name} {number}: expected a number of at most {most}")
    return number


def existing_folder(folder: Path, remedy: str) -> Path:
    """``folder``; raises ``OperatorError``, with ``remedy``, if it cannot be read as one."""
    shown = printable(str(folder))
    try:
        if folder.is_dir():
            os.scandir(folder).close()
            return folder
        problem = "is not a folder" if folder.exists() else "does not exist"
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
    raise OperatorError(f"{shown}: {problem}; {remedy}")
