"""Moments as people write them.

A moment is a whole number of µs since the Unix epoch, UTC.  Clocks can show more of them than the
calendar has names for, which begins with the year 1 and ends with the year 9999: these are shown
as the numbers that they are.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

__all__ = ["EPOCH", "LAST_MOMENT", "date_of", "shown_moment"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Where moments are counted from."""

LAST_MOMENT: Final = 253_402_300_799_999_999
"""The last microsecond of the year 9999."""


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
