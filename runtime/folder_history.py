"""``history.jsonl`` as bytes: reading it, and bringing it in line with what a run's events say.

Rules (P-04, P-12)
------------------
* A last line without its end, or that cannot be read, was torn off while it was written: it is
  passed over, with a warning.
* Any other line that cannot be read is reported with its number.
* Lines of unknown kinds stay where they are, whatever is written around them.
"""

from collections.abc import Sequence

from msgspec import Struct

from hubbub.agents.history_lines import Line, agrees, read_line, write_line
from hubbub.hub.errors import BadValue

__all__ = ["Compared", "HistoryText", "compare", "read_history"]


class Foreign(Struct, frozen=True):
    """A line of an unknown kind, behind ``after`` known ones."""

    after: int
    data: bytes


class HistoryText(Struct, frozen=True, kw_only=True):
    """What a file holds; ``whole`` bytes of it are whole lines."""

    lines: tuple[Line, ...] = ()
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


def read_history(data: bytes) -> HistoryText:
    """What ``data`` holds; raises nothing."""
    lines: list[Line] = []
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
            line = read_line(row)
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


def compare(data: bytes | None, expected: Sequence[Line]) -> Compared:
    """What a file that should hold ``expected`` needs."""
    if data is None:
        text = b"".join([write_line(line) for line in expected])
        return Compared(problems=((0, "missing"),) if expected else (), more=text)
    found = read_history(data)
    problems = [(number, f"cannot be read: {what}") for number, what in found.broken]
    if found.torn:
        problems.append((found.torn, "torn off; it is passed over"))
    differs = _first_difference(found, expected)
    if differs is not None:
        problems.append(differs)
    if found.broken or differs is not None:
        instead = _merged(found, expected)
        return Compared(problems=tuple(problems), instead=instead, keeps=True)
    more = b"".join([write_line(line) for line in expected[len(found.lines) :]])
    if more:
        missing = len(expected) - len(found.lines)
        problems.append((len(data.splitlines()) + 1, f"{missing} lines are missing from here on"))
    if found.torn:
        return Compared(problems=tuple(problems), instead=data[: found.whole] + more)
    return Compared(problems=tuple(problems), more=more)


def _first_difference(found: HistoryText, expected: Sequence[Line]) -> tuple[int, str] | None:
    if found.broken:
        return None  # What follows is out of step anyway.
    for line, number, wanted in zip(found.lines, found.numbers, expected, strict=False):
        if not agrees(line, wanted):
            return number, "says something else than the database"
    if len(found.lines) > len(expected):
        return found.numbers[len(expected)], "says more than the database"
    return None


def _merged(found: HistoryText, expected: Sequence[Line]) -> bytes:
    rows: list[bytes] = []
    foreign = list(found.foreign)
    for at, line in enumerate(expected):
        while foreign and foreign[0].after <= at:
            rows.append(foreign.pop(0).data + b"\n")
        rows.append(write_line(line))
    rows += [each.data + b"\n" for each in foreign]
    return b"".join(rows)
