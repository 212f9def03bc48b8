"""Ticks: when a schedule is due.  Arithmetic on instants, in µs since the Unix epoch; no clock.

    CronTicks   a cron expression of five fields, or six with seconds first, in a timezone
    BeatTicks   every so many seconds from the last one on
    Past        what of a schedule's time is over, whatever the clock does

Rules of ``CronTicks``
----------------------
* An expression that names hours means local times.  One that the clocks skip is due when they
  have gone on (02:30 at 03:00), together with what is due then; one that they repeat is due the
  first time only.  So each fires once.
* With ``*`` for the hour it means every hour there is: it is due whenever clocks show what it
  says, so that a skipped time has none, and a repeated one two.
* Both days given (of the month, of the week): either will do, as in every cron.

Rules of clocks that are set
----------------------------
``Past`` keeps two things apart: where a schedule stands, and which ticks are handled.

* A schedule never stands later than the clock (``seen``).  So it continues at once after a clock
  was set back, by however much, also while nothing ran.
* A handled tick is in a span, and spans only grow (``handled``).  A tick in a span is never due
  again.  So none is handled twice, wherever the schedule stands.
* A cron's tick is a local time: one that comes again after a set-back and is in a span is passed
  over.  A cron is silent, therefore, for what it was at work in already, and for no other time.
* Ticks that a leap of the clock passed over are in no span, except for those of the minute before
  it ended: when the clock turns out to have been wrong, they fire as they come, and a set-back of
  up to a minute fires nothing.
* A beat's tick is a name: the time it is due at, or, if that is in a span, the next number that
  is in none.  Beats come ``interval`` after one another, or after the clock was set back.
* What was missed is passed over or caught up once, when the clock has gone past it.  What lies
  before the schedule was first seen is not missed when a clock comes back to its right time.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from hubbub.hub.errors import BadValue, MissingExtra, OperatorError
from hubbub.hub.events.moments import EPOCH, LAST_MOMENT
from hubbub.hub.near_misses import shown
from hubbub.runtime.schedules.shifts import last_shift, next_shift, offset_at

if TYPE_CHECKING:
    from cronsim import CronSim

__all__ = [
    "MAX_COUNTED",
    "MAX_SPANS",
    "ON_TIME",
    "BeatTicks",
    "CronTicks",
    "Missed",
    "Past",
    "Ticks",
]

MAX_COUNTED: Final = 10_000
"""Missed ticks of which there are more are no longer counted."""

MAX_SPANS: Final = 8
"""Spans that are remembered; of more, those that are closest to one another become one."""

ON_TIME: Final = 60_000_000
"""µs by which a tick may be late and is not missed."""

_FIRST: Final = (datetime.min.replace(tzinfo=UTC) + timedelta(days=2) - EPOCH) // timedelta(
    microseconds=1
)
_LAST: Final = LAST_MOMENT - 2 * 86_400_000_000
"""Between these two, in µs, every timezone has a date for each moment.  No tick lies outside."""

_DIGITS: Final = re.compile(r"\d+")
_MAX_DIGITS: Final = 4
"""Digits of a number in an expression: no field has a value with more than two."""

_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
_MAX_REPEATED: Final = timedelta(hours=3)
"""Longer than any time that clocks repeat."""


class Missed(Struct, frozen=True):
    """Ticks that have passed: the last ones, in order, and how many there were in all."""

    ticks: tuple[int, ...] = ()
    count: int = 0


class Past(Struct, frozen=True):
    """What of a schedule's time is over; times in µs.

    ``at`` is where the schedule stands: no tick up to there is due.  ``since`` is when it was
    first seen, if that matters.  ``spans`` hold the ticks that are handled, in pairs: those later
    than the first number, up to the second; in order, and apart from one another.
    """

    at: int
    since: int = 0
    spans: tuple[tuple[int, int], ...] = ()

    @classmethod
    def begin(cls, now: int) -> "Past":
        """That of a schedule which is seen for the first time."""
        return cls(now, now, ((now - ON_TIME, now),))

    def seen(self, now: int) -> "Past":
        """The same when the clock shows ``now``."""
        at = min(self.at, now)
        if at < self.since < now - ON_TIME:  # The clock was behind, and has come back.
            at = self.since
        return self if at == self.at else replace(self, at=at)

    def handled(self, tick: int, now: int, *, leaps: bool = False) -> "Past":
        """The same after ``tick`` was handled at ``now``; ``leaps``: ticks before it were not."""
        after = min(max(self.at, tick - ON_TIME) if leaps else self.at, tick - 1)
        spans = _joined((*self.spans, (after, tick)))
        return replace(self, at=min(tick, now), spans=spans)

    def span_end(self, tick: int) -> int | None:
        """The end of the span in which ``tick`` lies; ``None`` when it was not handled."""
        for after, until in self.spans:
            if after < tick <= until:
                return until
        return None

    def gaps(self, until: int) -> Iterator[tuple[int, int]]:
        """The time from where it stands up to ``until`` that lies in no span, the latest first."""
        for after, end in reversed(self.spans):
            if end <= self.at:
                break
            if end < until:
                yield end, until
            until = min(until, after)
        if self.at < until:
            yield self.at, until


class CronTicks:
    """The ticks of a cron expression.

    Raises ``BadValue`` for an expression that cannot be read or never matches and for a timezone
    that does not exist, ``MissingExtra`` without the extra ``schedules``, and ``OperatorError``
    on a machine that knows no timezones.
    """

    __slots__ = ("_every_hour", "_expression", "_zone")

    def __init__(self, expression: str, timezone: str = "UTC") -> None:
        self._expression = expression
        self._zone = _zone(timezone)
        _check(expression)
        self._every_hour = expression.split()[-4] in ("*", "*/1")
        if self.after(0) is None:
            raise BadValue(
                "expression", f"{shown(expression)} matches no date; give one that exists"
            )

    def after(self, at: int) -> int | None:
        """The first tick later than ``at``; ``None`` when 50 years, or those that the calendar
        still has, have none."""
        if at >= _LAST:
            return None
        if self._every_hour:
            return self._next_of_every_hour(max(at, _FIRST))
        ticks = self._named_hours(self._wall(max(at, _FIRST)))
        return next((tick for tick in ticks if tick > at), None)

    def coming(self, past: Past) -> int | None:
        """The first tick that is not over; ``None`` when 50 years have none."""
        return self._free(past, past.at)

    def due(self, past: Past, now: int, *, keep: int) -> Missed:
        """The ticks that are due at ``now``; of them the last ``keep`` by name."""
        first = self._free(past, past.at)
        if first is None or first > now:
            return Missed()
        second = self._free(past, first)
        if second is None or second > now:
            return Missed((first,), 1)
        ticks: tuple[int, ...] = ()
        count = 0
        for after, until in past.gaps(now):
            part = self.missed(after, until, keep=keep - len(ticks))
            ticks, count = part.ticks + ticks, count + part.count
        return Missed(ticks, min(count, MAX_COUNTED))

    def _free(self, past: Past, at: int) -> int | None:
        """The first tick later than ``at`` that was not handled."""
        tick = self.after(at)
        while tick is not None and (end := past.span_end(tick)) is not None:
            tick = self.after(end)
        return tick

    def missed(self, after: int, until: int, *, keep: int) -> Missed:
        """The ticks later than ``after`` up to ``until``; of them the last ``keep`` by name."""
        found: list[int] = []
        count = 0
        for tick in self._back_from(until):
            if tick <= after or count == MAX_COUNTED:
                break
            count += 1
            if count <= keep:
                found.append(tick)
        return Missed(tuple(reversed(found)), count)

    def _back_from(self, until: int) -> Iterator[int]:
        """The ticks up to ``until``, the latest first."""
        if until < _FIRST:
            return
        if self._every_hour:
            yield from self._back_through_every_hour(min(until, _LAST))
            return
        # The time may be one that is repeated: what is later counts, too.
        start = self._wall(min(until, _LAST)).replace(microsecond=0) + _SECOND + _MAX_REPEATED
        last = until + 1
        for tick in self._named_hours(start, reverse=True):
            if tick < last:
                last = tick
                yield tick

    def _named_hours(self, start: datetime, *, reverse: bool = False) -> Iterator[int]:
        try:
            for wall in self._simulated(start, reverse=reverse):
                yield self._existing(wall)
        except (OverflowError, ValueError):  # The year 0, or 10000.
            return

    # Where every hour counts, ticks are computed from one shift of the clocks to the next: in
    # between, clocks run as those of UTC.

    def _next_of_every_hour(self, after: int) -> int | None:
        begin = after
        while True:
            offset = offset_at(self._zone, begin)
            wall = next(self._simulated(_wall(after + offset)), None)
            if wall is None or (tick := _instant(wall) - offset) > _LAST:
                return None
            shift = next_shift(self._zone, begin, tick)
            if shift is None:
                return tick
            begin, after = shift, shift - 1

    def _back_through_every_hour(self, until: int) -> Iterator[int]:
        shift: int | None = until
        while shift is not None:
            shift, offset = None, offset_at(self._zone, until)
            start = _wall(until + offset).replace(microsecond=0) + _SECOND
            for wall in self._simulated(start, reverse=True):
                tick = _instant(wall) - offset
                if tick < _FIRST:
                    return
                shift = last_shift(self._zone, tick, until)
                if shift is not None:
                    until = shift - 1
                    break
                until = tick
                yield tick

    def _simulated(self, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        """The expression's times on the wall from ``start`` on, up to where the calendar ends."""
        try:
            yield from _simulate(self._expression, start, reverse=reverse)
        except (OverflowError, ValueError):  # The year 0, or 10000.
            return

    def _wall(self, at: int) -> datetime:
        """What the clocks show at ``at``."""
        return (EPOCH + at * _MICROSECOND).astimezone(self._zone).replace(tzinfo=None)

    def _existing(self, wall: datetime) -> int:
        """The first instant at which clocks show ``wall``, or have passed over it."""
        while True:
            instant = wall.replace(tzinfo=self._zone, fold=0).astimezone(UTC)
            if instant.astimezone(self._zone).replace(tzinfo=None, fold=0) == wall:
                return (instant - EPOCH) // _MICROSECOND
            wall = wall.replace(second=0) + _MINUTE


class BeatTicks:
    """A tick every ``interval`` seconds, counted from the last one; a missed one comes at once."""

    __slots__ = ("_interval",)

    def __init__(self, interval: float) -> None:
        self._interval = max(1, round(interval * 1_000_000))

    def coming(self, past: Past) -> int:
        """When the next one is due."""
        return past.at + self._interval

    def due(self, past: Past, now: int, *, keep: int) -> Missed:
        """One at most: missed beats are not caught up."""
        at = self.coming(past)
        if at > now:
            return Missed()
        if now - at > min(ON_TIME, self._interval // 10):  # Else the next one would come too soon.
            at = now
        while (end := past.span_end(at)) is not None:
            at = end + 1
        return Missed((at,), 1)


Ticks: TypeAlias = CronTicks | BeatTicks


def _joined(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """``spans`` in order and apart from one another, no more of them than are remembered."""
    found: list[tuple[int, int]] = []
    for after, until in sorted(spans):
        if found and after <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], until)
        else:
            found.append((after, until))
    while len(found) > MAX_SPANS:
        first = min(range(len(found) - 1), key=lambda at: found[at + 1][0] - found[at][1])
        found[first : first + 2] = [(found[first][0], found[first + 1][1])]
    return tuple(found)


def _wall(at: int) -> datetime:
    """What clocks show that are as far ahead of the epoch."""
    return EPOCH.replace(tzinfo=None) + at * _MICROSECOND


def _instant(wall: datetime) -> int:
    return (wall.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND


def _simulate(expression: str, start: datetime, *, reverse: bool = False) -> "CronSim":
    from cronsim import CronSim

    return CronSim(expression, start, reverse=reverse)


def _check(expression: str) -> None:
    try:
        from cronsim import CronSimError
    except ImportError:
        raise MissingExtra("Cron", "schedules") from None
    try:
        if max(map(len, _DIGITS.findall(expression)), default=0) > _MAX_DIGITS:
            raise CronSimError("a number in it is too large")
        _simulate(expression, EPOCH)
    except CronSimError as error:
        problem = f"{shown(expression)}: {str(error).lower()}; write one such as '30 2 * * *'"
        raise BadValue("expression", problem) from None


def _zone(timezone: str) -> tzinfo:
    if timezone == "UTC":  # Known on every machine.
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

    try:
        return ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        if not available_timezones():
            raise OperatorError(
                f"timezone {shown(timezone)}: this machine knows no timezones; pip install tzdata"
            ) from None
        problem = f"{shown(timezone)} does not exist; use a name such as 'Europe/Berlin'"
        raise BadValue("timezone", problem) from None
