"""``history.jsonl`` and ``context.jsonl`` as bytes: reading them, and bringing them in line with
what the events say.

Rules
------------------
* A last line without its end, or that cannot be read, was torn off while it was written: it is
  passed over, with a warning.
* Any other line that cannot be read is reported with its number.
* Lines of unknown kinds stay where they are, whatever is written around them.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from msgspec import Struct

from hubbub.agents.folders.conversation_lines import Entry, read_entry, same_entry, write_entry
from hubbub.agents.folders.history_lines import Line, agrees, read_line, write_line
from hubbub.hub.errors import BadValue
from hubbub.runtime.stores.folders.disk import Disk

__all__ = [
    "CONTEXT", "HISTORY", "Compared", "HistoryText", "LineFormat", "compare", "problem_in",
    "read_history", "read_lines", "reconcile", "set_aside",
]  # fmt: skip

L = TypeVar("L")


class LineFormat(Struct, Generic[L], frozen=True):
    """How a line of a file is read (``None`` for one of an unknown kind), written and compared."""

    read: Callable[[bytes], L | None]
    write: Callable[[L], bytes]
    agree: Callable[[L, L], bool]


HISTORY: Final = LineFormat[Line](read_line, write_line, agrees)
CONTEXT: Final = LineFormat[Entry](read_entry, write_entry, same_entry)


class Foreign(Struct, frozen=True):
    """A line of an unknown kind, behind ``after`` known ones."""

    after: int
    data: bytes


class HistoryText(Struct, Generic[L], frozen=True, kw_only=True):
    """What a file holds; ``whole`` bytes of it are whole lines."""

    lines: tuple[L, ...] = ()
    numbers: tuple[int, ...] = ()
    """Where each line stands, from 1."""
    foreign: tuple[Foreign, ...] = ()
    broken: tuple[tuple[int, str], ...] = ()
    torn: int = 0
    """The number of a torn last line, or 0."""
    whole: int = 0


class Compared(Struct, frozen=True, kw_only=True):
    """What to do with a file: add ``more``, or put ``instead`` in its place."""

    problems: tuple[tuple[int, str], ...] = ()
    """Line and what is wrong; 0 for the whole file."""
    more: bytes = b""
    instead: bytes | None = None
    keeps: bool = False
    """Whether what stood there says something else, and should be kept for somebody to see."""


def read_history(data: bytes) -> HistoryText[Line]:
    """What ``data``, a ``history.jsonl``, holds; raises nothing."""
    return read_lines(data, HISTORY)


def read_lines(data: bytes, format: LineFormat[L]) -> HistoryText[L]:
    """What ``data`` holds; raises nothing."""
    lines: list[L] = []
    numbers: list[int] = []
    foreign: list[Foreign] = []
    broken: list[tuple[int, str]] = []
    torn, whole = 0, 0
    rows = data.split(b"\n")
    last = len(rows) if rows[-1] else len(rows) - 1
    for number, row in enumerate(rows[:last], 1):
        is_last = number == last
        if is_last and number == len(rows):
            torn = number
            break
        try:
            line = format.read(row)
        except BadValue as error:
            if is_last:
                torn = number
                break
            broken.append((number, str(error)))
        else:
            if line is None:
                foreign.append(Foreign(len(lines), row))
            else:
                lines.append(line)
                numbers.append(number)
        whole += len(row) + 1
    return HistoryText(
        lines=tuple(lines), numbers=tuple(numbers), foreign=tuple(foreign), broken=tuple(broken),
        torn=torn, whole=whole,
    )  # fmt: skip


def compare(data: bytes | None, expected: Sequence[L], format: LineFormat[L]) -> Compared:
    """What a file that should hold ``expected`` needs."""
    if data is None:
        text = b"".join([format.write(line) for line in expected])
        return Compared(problems=((0, "missing"),) if expected else (), more=text)
    found = read_lines(data, format)
    problems = [(number, f"cannot be read: {what}") for number, what in found.broken]
    if found.torn:
        problems.append((found.torn, "torn off; it is passed over"))
    differs = _first_difference(found, expected, format)
    if differs is not None:
        problems.append(differs)
    if found.broken or differs is not None:
        instead = _merged(found, expected, format)
        return Compared(problems=tuple(problems), instead=instead, keeps=True)
    more = b"".join([format.write(line) for line in expected[len(found.lines) :]])
    if more:
        missing = len(expected) - len(found.lines)
        problems.append((len(data.splitlines()) + 1, f"{missing} lines are missing from here on"))
    if found.torn:
        return Compared(problems=tuple(problems), instead=data[: found.whole] + more)
    return Compared(problems=tuple(problems), more=more)


def _first_difference(
    found: HistoryText[L], expected: Sequence[L], format: LineFormat[L]
) -> tuple[int, str] | None:
    if found.broken:
        return None  # What follows is out of step anyway.
    for line, number, wanted in zip(found.lines, found.numbers, expected, strict=False):
        if not format.agree(line, wanted):
            return number, "says something else than the database"
    if len(found.lines) > len(expected):
        return found.numbers[len(expected)], "says more than the database"
    return None


def _merged(found: HistoryText[L], expected: Sequence[L], format: LineFormat[L]) -> bytes:
    rows: list[bytes] = []
    foreign = list(found.foreign)
    for at, line in enumerate(expected):
        while foreign and foreign[0].after <= at:
            rows.append(foreign.pop(0).data + b"\n")
        rows.append(format.write(line))
    rows += [each.data + b"\n" for each in foreign]
    return b"".join(rows)


# ── on the disk ──────────────────────────────────────────────────────────────────────────────


def reconcile(
    disk: Disk, folder: str, name: str, found: Compared, *, keeps: bool = True
) -> list[str]:
    """Do what a comparison of a file asks for; returns what was wrong, one line each."""
    file = f"{folder}/{name}"
    problems = [problem_in(folder, name, *each) for each in found.problems]
    if found.keeps and keeps:
        kept = set_aside(disk, folder, name)
        problems.append(f"{file}: rewritten from the database; what it was is in {kept}")
    if found.instead is not None:
        disk.replace(file, found.instead)
    elif found.more:
        disk.append(file, found.more)
    return problems


def problem_in(folder: str, name: str, line: int, what: str) -> str:
    """What is wrong with a file; ``line`` is 0 where the whole of it is meant."""
    return f"{folder}/{name}:{line}: {what}" if line else f"{folder}/{name}: {what}"


def set_aside(disk: Disk, folder: str, name: str) -> str:
    """Keep what a file holds under another name beside it, which is returned."""
    names = set(disk.listdir(folder))
    number = 1
    while f"{name}.corrupt-{number}" in names:
        number += 1
    kept = f"{folder}/{name}.corrupt-{number}"
    disk.write_new(kept, disk.read(f"{folder}/{name}") or b"")
    return kept
