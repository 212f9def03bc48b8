"""When schedules are due (P-07, P-16)."""

import sys
import zoneinfo
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubbub.hub.errors import BadValue, MissingExtra, OperatorError
from hubbub.runtime.ticks import MAX_COUNTED, BeatTicks, CronTicks

BERLIN = "Europe/Berlin"
SECOND = 1_000_000


def at(text: str, timezone: str = "UTC") -> int:
    """µs of a local time; ``fold`` is 0."""
    local = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(timezone))
    return round(local.timestamp()) * SECOND


def between(expression: str, timezone: str, begin: str, end: str) -> list[str]:
    """The ticks of a while, in UTC."""
    ticks = CronTicks(expression, timezone)
    found = []
    tick = ticks.after(at(begin) - 1)
    while tick is not None and tick < at(end):
        found.append(datetime.fromtimestamp(tick / SECOND, UTC).strftime("%d %H:%M"))
        tick = ticks.after(tick)
    return found


def test_a_tick_is_later_than_what_it_is_asked_after() -> None:
    ticks = CronTicks("30 2 * * *")
    first = at("2026-03-01T02:30")
    assert ticks.after(at("2026-03-01T00:00")) == first
    assert ticks.after(first - 1) == first
    assert ticks.after(first) == at("2026-03-02T02:30")


def test_six_fields_begin_with_seconds() -> None:
    assert CronTicks("*/20 * * * * *").after(at("2026-03-01T02:30:20")) == at("2026-03-01T02:30:40")


@pytest.mark.spec("P-16")
def test_a_local_time_that_is_skipped_fires_once_when_the_clocks_have_gone_on() -> None:
    # On 2026-03-29 02:00 becomes 03:00, which is 01:00 UTC.
    expected = ["28 01:30", "29 01:00", "30 00:30"]
    assert between("30 2 * * *", BERLIN, "2026-03-28", "2026-03-31") == expected


@pytest.mark.spec("P-16")
def test_a_local_time_that_is_repeated_fires_the_first_time_only() -> None:
    # On 2026-10-25 03:00 becomes 02:00, which is 01:00 UTC.
    expected = ["24 00:30", "25 00:30", "26 01:30"]
    assert between("30 2 * * *", BERLIN, "2026-10-24", "2026-10-27") == expected


@pytest.mark.spec("P-16")
@pytest.mark.parametrize(
    ("expression", "skipped", "repeated"),
    [
        ("*/30 2 * * *", ["01:00"], ["00:00", "00:30"]),
        ("30 2,3 * * *", ["01:00", "01:30"], ["00:30", "02:30"]),
        ("0 30 2 * * *", ["01:00"], ["00:30"]),
        ("0 */2 * * *", ["01:00", "02:00"], ["00:00", "03:00"]),
    ],
)
def test_so_does_every_local_time_that_an_expression_names(
    expression: str, skipped: list[str], repeated: list[str]
) -> None:
    spring = between(expression, BERLIN, "2026-03-29T00:00", "2026-03-29T03:00")
    autumn = between(expression, BERLIN, "2026-10-25T00:00", "2026-10-25T03:30")
    # 0 */2: midnight in Berlin was before, 04:00 is 02:00 UTC in summer and 03:00 in winter.
    assert [x[3:] for x in spring] == skipped
    assert [x[3:] for x in autumn] == repeated


@pytest.mark.spec("P-16")
def test_every_hour_goes_by_the_hours_there_are() -> None:
    spring = between("0 * * * *", BERLIN, "2026-03-28T22:00", "2026-03-29T04:00")
    autumn = between("0 * * * *", BERLIN, "2026-10-24T22:00", "2026-10-25T04:00")
    assert len(spring) == len(autumn) == 6, "one an hour, as on every day"


@pytest.mark.spec("P-16")
def test_asked_in_the_midst_of_a_repeated_hour_what_has_fired_is_not_due_again() -> None:
    again = at("2026-10-25T01:10")  # 02:10 for the second time
    assert CronTicks("30 2 * * *", BERLIN).after(again) == at("2026-10-26T01:30")
    missed = CronTicks("30 2 * * *", BERLIN).missed(at("2026-10-24T12:00"), again, keep=5)
    assert missed.ticks == (at("2026-10-25T00:30"),)


EXPRESSIONS = st.sampled_from(
    ["30 2 * * *", "*/20 * * * *", "0 */3 * * *", "15,45 1-3 * * *", "0 0 1 * *", "*/15 2 * * 0"]
)
ZONES = st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
DAYS = st.integers(min_value=0, max_value=365 * 24)
"""An hour of 2026."""


@given(EXPRESSIONS, ZONES, DAYS, st.integers(1, 72))
def test_what_was_missed_is_what_would_have_been_due(
    expression: str, zone: str, hour: int, hours: int
) -> None:
    ticks = CronTicks(expression, zone)
    begin = at("2026-01-01") + hour * 3600 * SECOND + 7
    end = begin + hours * 3600 * SECOND
    due = []
    tick = ticks.after(begin)
    while tick is not None and tick <= end:
        due.append(tick)
        tick = ticks.after(tick)
    missed = ticks.missed(begin, end, keep=1000)
    assert list(missed.ticks) == due
    assert missed.count == len(due) == len(set(due))
    last = ticks.missed(begin, end, keep=2)
    assert (list(last.ticks), last.count) == (due[-2:], len(due))


@given(ZONES, DAYS)
def test_every_day_has_its_tick_and_no_local_time_two(zone: str, hour: int) -> None:
    ticks = CronTicks("30 2 * * *", zone)
    first = ticks.after(at("2026-01-01") + hour * 3600 * SECOND)
    assert first is not None
    second = ticks.after(first)
    assert second is not None
    local = [datetime.fromtimestamp(x / SECOND, ZoneInfo(zone)).date() for x in (first, second)]
    assert local[1] - local[0] == timedelta(days=1)


def test_counting_what_was_missed_is_bounded() -> None:
    missed = CronTicks("* * * * *").missed(at("2020-01-01"), at("2026-01-01"), keep=3)
    assert missed.count == MAX_COUNTED
    assert missed.ticks[-1] == at("2026-01-01")


@pytest.mark.parametrize("expression", ["", "* * * *", "61 * * * *", "a b c d e", "* * * * * * *"])
def test_an_expression_that_cannot_be_read_is_refused(expression: str) -> None:
    with pytest.raises(BadValue, match="write one such as"):
        CronTicks(expression)


def test_an_expression_that_never_matches_is_refused() -> None:
    with pytest.raises(BadValue, match="matches no date"):
        CronTicks("* * */20 * 1L")


@pytest.mark.parametrize("timezone", ["Europe/Nowhere", "../etc/passwd", "", "Europe"])
def test_a_timezone_that_does_not_exist_is_refused(timezone: str) -> None:
    with pytest.raises(BadValue, match="does not exist"):
        CronTicks("* * * * *", timezone)


def test_a_machine_without_timezones_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    zoneinfo.reset_tzpath(to=())
    ZoneInfo.clear_cache()
    monkeypatch.setitem(sys.modules, "tzdata", None)
    try:
        with pytest.raises(OperatorError, match="pip install tzdata"):
            CronTicks("* * * * *", BERLIN)
        assert CronTicks("0 0 * * *", "UTC").after(0), "UTC is known everywhere"
    finally:
        zoneinfo.reset_tzpath()
        ZoneInfo.clear_cache()


def test_without_the_extra_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(MissingExtra, match=r"pip install 'hubbub\[schedules\]'"):
        CronTicks("* * * * *")


def test_a_beat_follows_the_last_one_and_one_that_was_missed_comes_now() -> None:
    beats = BeatTicks(1.5)
    assert beats.after(10) == 1_500_010
    assert beats.missed(10, 1_500_009, keep=9).ticks == ()
    assert beats.missed(10, 9_000_000, keep=9).ticks == (9_000_000,)
