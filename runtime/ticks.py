"""Ticks: when a schedule is due.  Arithmetic on instants, in µs since the Unix epoch; no clock.

    CronTicks   a cron expression of five fields, or six with seconds first, in a timezone
    BeatTicks   every so many seconds from the last one on

Rules of ``CronTicks``
----------------------
* An expression that names hours means local times.  One that the clocks skip is due when they
  have gone on (02:30 at 03:00), together with what is due then; one that they repeat is due the
  first time only.  So each fires once.
* With ``*`` for the hour it means every hour there is: a skipped one has none, a repeated one is
  two, and the time between two ticks is what it always is.
* Both days given (of the month, of the week): either will do, as in every cron.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from hubbub.hub.errors import BadValue, MissingExtra, OperatorError

if TYPE_CHECKING:
    from cronsim import CronSim

__all__ = ["MAX_COUNTED", "BeatTicks", "CronTicks", "Missed", "Ticks"]

MAX_COUNTED: Final = 10_000
"""Missed ticks of which there are more are no longer counted."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
_MAX_REPEATED: Final = timedelta(hours=3)
"""Longer than any time that clocks repeat."""


class Missed(Struct, frozen=True):
    """Ticks that have passed: the last ones, in order, and how many there were in all."""

    ticks: tuple[int, ...] = ()
    count: int = 0


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
            raise BadValue("expression", f"{expression!r} matches no date; give one that exists")

    def after(self, at: int) -> int | None:
        """The first tick later than ``at``; ``None`` when 50 years have none."""
        start = self._local(at)
        for local in _simulate(self._expression, start):
            if (tick := self._instant(local)) > at:
                return tick
        return None

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
        start = self._local(until).replace(microsecond=0) + _SECOND
        if start.tzinfo is None:  # The time may be one that is repeated: what is later counts, too.
            start += _MAX_REPEATED
        last = until + 1
        for local in _simulate(self._expression, start, reverse=True):
            tick = self._instant(local)
            if tick < last:
                last = tick
                yield tick

    def _local(self, at: int) -> datetime:
        """``at`` as the expression reads it: local time on the wall, or, where every hour counts,
        time that knows its distance from UTC."""
        local = (_EPOCH + at * _MICROSECOND).astimezone(self._zone)
        return local if self._every_hour else local.replace(tzinfo=None)

    def _instant(self, local: datetime) -> int:
        if local.tzinfo is None:
            local = self._existing(local)
        return (local - _EPOCH) // _MICROSECOND

    def _existing(self, wall: datetime) -> datetime:
        """The first instant at which clocks show ``wall``, or have passed over it."""
        while True:
            instant = wall.replace(tzinfo=self._zone, fold=0).astimezone(UTC)
            if instant.astimezone(self._zone).replace(tzinfo=None, fold=0) == wall:
                return instant
            wall = wall.replace(second=0) + _MINUTE


class BeatTicks:
    """A tick every ``interval`` seconds, counted from the last one; a missed one comes at once."""

    __slots__ = ("_interval",)

    def __init__(self, interval: float) -> None:
        self._interval = max(1, round(interval * 1_000_000))

    def after(self, at: int) -> int | None:
        """``interval`` later than ``at``."""
        return at + self._interval

    def missed(self, after: int, until: int, *, keep: int) -> Missed:
        """One at most, now (``until``): beats are not made up for."""
        return Missed((until,), 1) if after + self._interval <= until else Missed()


Ticks: TypeAlias = CronTicks | BeatTicks


def _simulate(expression: str, start: datetime, *, reverse: bool = False) -> "CronSim":
    from cronsim import CronSim

    return CronSim(expression, start, reverse=reverse)


def _check(expression: str) -> None:
    try:
        from cronsim import CronSimError
    except ImportError:
        raise MissingExtra("Cron", "schedules") from None
    try:
        _simulate(expression, _EPOCH)
    except CronSimError as error:
        problem = f"{expression!r}: {str(error).lower()}; write one such as '30 2 * * *'"
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
                f"timezone {timezone!r}: this machine knows no timezones; pip install tzdata"
            ) from None
        problem = f"{timezone!r} does not exist; use a name such as 'Europe/Berlin'"
        raise BadValue("timezone", problem) from None
