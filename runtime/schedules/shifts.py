"""Shifts: the moments at which the clocks of a timezone are put forward or back.

Instants are in µs since the Unix epoch, within the years that the calendar has.
"""

from datetime import UTC, timedelta, tzinfo
from typing import Final

from hubbub.hub.events.moments import EPOCH

__all__ = ["last_shift", "next_shift", "offset_at"]

_STEP: Final = 86_400_000_000
"""µs between two looks at a clock.  No zone has put its clocks forward and back within them."""

_MICROSECOND: Final = timedelta(microseconds=1)


def offset_at(zone: tzinfo, at: int) -> int:
    """How far the clocks of a zone are ahead of UTC, in µs."""
    offset = (EPOCH + at * _MICROSECOND).astimezone(zone).utcoffset()
    return 0 if offset is None else offset // _MICROSECOND


def next_shift(zone: tzinfo, after: int, until: int) -> int | None:
    """The first moment later than ``after``, up to ``until``, from which clocks show another time
    than they would have; ``None`` for none."""
    if zone is UTC:
        return None
    offset = offset_at(zone, after)
    while after < until:
        later = min(after + _STEP, until)
        if offset_at(zone, later) != offset:
            return _between(zone, after, later)
        after = later
    return None


def last_shift(zone: tzinfo, after: int, until: int) -> int | None:
    """The last such moment."""
    if zone is UTC:
        return None
    offset = offset_at(zone, until)
    while after < until:
        earlier = max(until - _STEP, after)
        if offset_at(zone, earlier) != offset:
            return _between(zone, earlier, until)
        until = earlier
    return None


def _between(zone: tzinfo, before: int, after: int) -> int:
    """The one shift later than ``before``, up to ``after``."""
    offset = offset_at(zone, before)
    while after - before > 1:
        middle = (before + after) // 2
        if offset_at(zone, middle) == offset:
            before = middle
        else:
            after = middle
    return after
