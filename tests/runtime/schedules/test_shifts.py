"""Ticks around every shift of every zone's clocks, against a plain model."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

import pytest
from support.profiles import portion

from hubbub.runtime.schedules.shifts import last_shift, next_shift
from hubbub.runtime.schedules.ticks import CronTicks

SECOND = 1_000_000
HOUR, DAY = 3600 * SECOND, 86_400 * SECOND
BEGIN, END = (int(datetime(y, 1, 1, tzinfo=UTC).timestamp()) * SECOND for y in (1985, 2038))
HALF_HOURS = ["Australia/Lord_Howe", "Antarctica/Troll", "Asia/Pyongyang", "America/Caracas"]


def shifts(zone: str) -> list[int]:
    """One shift for each way in which a zone's clocks were ever put forward or back."""
    found = {}
    at = BEGIN
    while (shift := next_shift(ZoneInfo(zone), at, END)) is not None:
        found[offset(zone, shift - SECOND), offset(zone, shift)] = shift
        at = shift
    return [*found.values()]


def offset(zone: str, at: int) -> float:
    return datetime.fromtimestamp(at / SECOND, ZoneInfo(zone)).utcoffset().total_seconds()  # type: ignore[union-attr]


@cache
def cases() -> Sequence[tuple[str, int]]:
    """Zones and shifts; of zones with the same ones, the first."""
    others = sorted(available_timezones() - {*HALF_HOURS})
    seen = set()
    cases: list[tuple[str, int]] = []
    for zone in [*HALF_HOURS, *portion(portion(others))]:
        found = shifts(zone)
        if (key := tuple((x, offset(zone, x)) for x in found)) not in seen:
            seen.add(key)
            cases += ((zone, shift) for shift in found)
    return cases


def forward(ticks: CronTicks, begin: int, end: int) -> list[int]:
    found = []
    tick = ticks.after(begin)
    while tick is not None and tick <= end:
        found.append(tick)
        tick = ticks.after(tick)
    return found


def backward(ticks: CronTicks, begin: int, end: int) -> list[int]:
    return [*ticks.missed(begin, end, keep=10_000).ticks]


def minutes(zone: str, begin: int, end: int) -> list[tuple[int, datetime]]:
    """All minutes of the zone's clocks."""
    times = range(begin + SECOND, end + 1, 30 * SECOND)
    shown = [(at, datetime.fromtimestamp(at // SECOND, ZoneInfo(zone))) for at in times]
    return [(at, wall) for at, wall in shown if wall.second == 0]


EVERY_HOUR: Sequence[tuple[str, Callable[[datetime], bool]]] = [
    ("52 * * * *", lambda x: x.minute == 52),
    ("43 * * * *", lambda x: x.minute == 43),
    ("0,1,30 */1 * * *", lambda x: x.minute in (0, 1, 30)),
    ("*/20 * * * *", lambda x: x.minute % 20 == 0),
    ("7 * * * 0", lambda x: x.minute == 7 and x.weekday() == 6),
]
NAMED = ["30 2 * * *", "15,45 1-3 * * *", "10 0 * * *", "59 */2 * * *"]


@pytest.mark.spec("P-16")
def test_every_hour_is_due_whenever_the_clocks_show_it_in_both_directions() -> None:
    for zone, shift in cases():
        begin, end = shift - 3 * HOUR - SECOND, shift + 3 * HOUR
        shown = minutes(zone, begin, end)
        for expression, matches in EVERY_HOUR:
            ticks = CronTicks(expression, zone)
            expected = [at for at, wall in shown if matches(wall)]
            assert forward(ticks, begin, end) == expected, (zone, expression, shift)
            assert backward(ticks, begin, end) == expected, (zone, expression, shift)


@pytest.mark.spec("P-16")
def test_named_hours_are_the_same_in_both_directions() -> None:
    for zone, shift in cases():
        begin, end = shift - 4 * HOUR - 1, shift + 4 * HOUR
        for expression in NAMED:
            ticks = CronTicks(expression, zone)
            due = forward(ticks, begin, end)
            assert backward(ticks, begin, end) == due, (zone, expression, shift)
            assert len(due) == len(set(due))


def test_the_shifts_of_a_year_are_found_in_both_directions() -> None:
    zone, begin, end = ZoneInfo("Europe/Berlin"), *(
        int(datetime(y, 1, 1, tzinfo=UTC).timestamp()) * SECOND for y in (2026, 2027)
    )  # fmt: skip
    found, at = [], begin
    while (shift := next_shift(zone, at, end)) is not None:
        found.append(at := shift)
    assert [datetime.fromtimestamp(x / SECOND, UTC).isoformat() for x in found] == [
        "2026-03-29T01:00:00+00:00", "2026-10-25T01:00:00+00:00",
    ]  # fmt: skip
    assert last_shift(zone, begin, end) == found[1]
    assert last_shift(zone, begin, found[1] - 1) == found[0]
    assert last_shift(zone, found[0], found[1] - 1) is None
    assert next_shift(UTC, begin, end) is None is last_shift(UTC, begin, end)
