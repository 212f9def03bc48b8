"""Moments as people write them.

A moment is a whole number of µs since the Unix epoch, UTC.  Clocks can show more of them than the
calendar has names for, which begins with the year 1 and ends with the year 9999: these are shown
as the numbers that they are.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, TypeGuard

from hubbub.hub.errors import BadValue
from hubbub.hub.near_misses import shown

__all__ = [
    "EPOCH",
    "LAST_MOMENT",
    "MAX_MOMENT",
    "check_clock",
    "date_of",
    "is_moment",
    "shown_moment",
]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Where moments are counted from."""

LAST_MOMENT: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999."""

MAX_MOMENT: Final = 1 << 60
"""Moments further from 1970 than this, before it or after, are damage in a store."""


def is_moment(value: object) -> TypeGuard[int]:
    """Whether this is a time that an event, a run or a wake-up may have."""
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return -MAX_MOMENT <= value <= MAX_MOMENT


def check_clock(now: object) -> None:
    """Raise ``BadValue`` for what a clock shows where it leaves no room for times to come."""
    if not is_moment(now) or abs(now) > MAX_MOMENT // 2:
        problem = f"it shows {shown(now)}; expected whole µs since 1970, {MAX_MOMENT // 2} at most"
        raise BadValue("clock", problem)


def date_of(at: int) -> datetime | None:
    """The date and time of a moment in UTC; ``None`` where the calendar has none."""
    try:
        return EPOCH + timedelta(microseconds=at)
    except OverflowError:
        return None


def shown_moment(at: int, precision: str = "seconds") -> str:
    """A moment in the form of ISO 8601, or its number where the calendar has no name for it."""
    date = date_of(at)
    if date is None:
        return str(at)
    return date.isoformat(timespec=precision).replace("+00:00", "Z")
