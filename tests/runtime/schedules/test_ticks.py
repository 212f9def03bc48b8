"""When schedules are due (P-07, P-16)."""

import sys
import zoneinfo
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from hubbub.hub.errors import BadValue, MissingExtra, OperatorError
from hubbub.runtime.schedules.ticks import MAX_COUNTED, MAX_SPANS, BeatTicks, CronTicks, Past

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


YEAR = 365 * 86_400 * SECOND
BEGINNING, END = -62_135_596_800 * SECOND, 253_402_300_800 * SECOND
"""Of the calendar: the years 1 and 10000."""
MOMENTS = st.one_of(
    st.integers(-(2**63), 2**63),
    st.integers(BEGINNING - YEAR, BEGINNING + YEAR),
    st.integers(-YEAR, YEAR),
    st.integers(END - 60 * YEAR, END + YEAR),
    st.sampled_from([0, -1, BEGINNING, BEGINNING - 1, END, END - 1]),
)
SELDOM = st.sampled_from(["0 0 29 2 1", "* * * * *", "*/7 * * * * *", "59 23 31 12 *", "0 0 1 1 *"])


@settings(max_examples=examples(500), deadline=None)
@given(EXPRESSIONS | SELDOM, ZONES, MOMENTS, st.integers(0, 400 * YEAR))
def test_there_are_no_ticks_where_the_calendar_has_no_dates(
    expression: str, zone: str, now: int, later: int
) -> None:
    ticks = CronTicks(expression, zone)
    past = Past.begin(now).handled(now, now)
    for tick in (ticks.after(now), ticks.coming(past)):
        assert tick is None or (now < tick and BEGINNING < tick < END)
    due = ticks.due(past, now + later, keep=3)
    assert all(now < tick <= now + later for tick in due.ticks)
    assert ticks.missed(now, now + later, keep=3).ticks == due.ticks


def test_the_last_ticks_of_the_calendar_fire_and_none_follow() -> None:
    ticks = CronTicks("0 12 * * *", "Pacific/Kiritimati")
    tick, found = END - 5 * 86_400 * SECOND, list[int]()
    while (after := ticks.after(tick)) is not None:
        found.append(tick := after)
    assert 2 <= len(found) <= 4
    assert ticks.due(Past.begin(tick).handled(tick, tick), END + YEAR, keep=3).ticks == ()


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
    for module in ["tzdata", *(each for each in sys.modules if each.startswith("tzdata."))]:
        monkeypatch.setitem(sys.modules, module, None)
    try:
        with pytest.raises(OperatorError, match="pip install tzdata"):
            CronTicks("* * * * *", BERLIN)
        assert CronTicks("0 0 * * *", "UTC").after(0), "UTC is known everywhere"
    finally:
        zoneinfo.reset_tzpath()
        ZoneInfo.clear_cache()


def test_without_the_extra_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with pytest.raises(
        MissingExtra, match=r"uv sync --extra schedules, or pip install '\.\[schedules\]'"
    ):
        CronTicks("* * * * *")


def test_a_beat_follows_the_last_one_and_one_that_was_missed_comes_now() -> None:
    beats, past = BeatTicks(1.5), Past(10)
    assert beats.coming(past) == 1_500_010
    assert beats.due(past, 1_500_009, keep=9).ticks == ()
    assert beats.due(past, 1_500_020, keep=9).ticks == (1_500_010,), "a little late is on time"
    assert beats.due(past, 9_000_000, keep=9).ticks == (9_000_000,)


# ── clocks that are set ──────────────────────────────────────────────────────────────────────

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
BEGIN = at("2026-03-01T00:10") + 7
YEARS = 730 * DAY


class Clockwork:
    """A schedule that looks at a clock, which is set, when the next tick comes and every ``nap``.

    ``model`` is the same in plain words: a set of the ticks that are over.
    """

    def __init__(self, ticks: CronTicks | BeatTicks, nap: int, policy: str = "latest") -> None:
        self.ticks = ticks
        self.nap = nap
        self.policy = policy
        self.now = BEGIN
        self.elapsed = 0
        self.past = Past.begin(BEGIN) if isinstance(ticks, CronTicks) else Past(BEGIN)
        self.fired: list[tuple[int, int, int]] = []
        """Tick, what the clock showed, and how much time had passed."""
        self.over: set[int] = set()
        self.stands = BEGIN
        self.expected: list[int] = []
        self.came: set[int] = set()
        """Ticks whose time has come while the clock went on by itself."""

    def jump(self, by: int) -> None:
        self.now += by

    def sleep(self, by: int) -> None:
        """Nothing runs meanwhile."""
        self.now += by
        self.elapsed += by

    def wait(self, by: int) -> None:
        self.look()
        until = self.elapsed + by
        while left := until - self.elapsed:
            coming = self.ticks.coming(self.past)
            assert coming is not None
            nap = min(left, self.nap, coming - self.now)
            before, self.now = self.now, self.now + nap
            self.elapsed += nap
            if isinstance(self.ticks, CronTicks):
                self.came.update(self.ticks.missed(before, self.now, keep=100).ticks)
            self.look()

    def look(self) -> None:
        self.past = self.past.seen(self.now)
        due = self.ticks.due(self.past, self.now, keep=1000)
        if due.ticks:
            fires = due.ticks if self.policy == "all" else due.ticks[-1:]
            for tick in fires:
                leaps = tick == fires[0] and len(fires) < due.count
                self.past = self.past.handled(tick, self.now, leaps=leaps)
                self.fired.append((tick, self.now, self.elapsed))
        if isinstance(self.ticks, CronTicks):
            self._expect(self.ticks)
            assert [x[0] for x in self.fired] == self.expected
        assert self.past.at <= self.now, "it never stands later than the clock"
        assert len(self.past.spans) <= MAX_SPANS
        assert list(self.past.spans) == sorted(self.past.spans)
        assert not self.ticks.due(self.past, self.now, keep=1).ticks, "what is due is done"

    def _expect(self, ticks: CronTicks) -> None:
        self.stands = min(self.stands, self.now)
        if self.stands < BEGIN < self.now - MINUTE:
            self.stands = BEGIN
        passed = ticks.missed(self.stands, self.now, keep=10_000).ticks
        if due := [tick for tick in passed if tick not in self.over]:
            fires = due[-1000:] if self.policy == "all" else due[-1:]
            self.expected += fires
            self.over.update(fires)
            self.stands = due[-1]


HOURS = st.integers(1, 50).map(lambda x: x * HOUR)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.one_of(HOURS, st.integers(1, 90).map(lambda x: x * MINUTE))),
        st.tuples(st.just("sleep"), st.one_of(HOURS, st.integers(0, 20 * DAY))),
        st.tuples(
            st.just("jump"),
            st.one_of(
                HOURS, HOURS.map(lambda x: -x), st.sampled_from([YEARS, -YEARS, -DAY, DAY]),
                st.integers(-20 * DAY, 20 * DAY), st.integers(-5 * SECOND, 5 * SECOND),
            ),
        ),
    ),
    max_size=7,
)  # fmt: skip


def play(clockwork: Clockwork, steps: list[tuple[str, int]]) -> Clockwork:
    for verb, by in steps:
        getattr(clockwork, verb)(by)
    return clockwork


@pytest.mark.spec("P-07", "P-16")
@given(STEPS, st.sampled_from(["latest", "all"]), st.sampled_from(["0 * * * *", "30 2 * * *"]))
@settings(max_examples=examples(100), deadline=None)
def test_a_cron_fires_each_tick_once_and_every_one_that_comes(
    steps: list[tuple[str, int]], policy: str, expression: str
) -> None:
    clockwork = Clockwork(CronTicks(expression), 20 * MINUTE, policy)
    play(clockwork, [*steps, ("wait", 3 * HOUR)])
    fired = [tick for tick, _, _ in clockwork.fired]
    assert len(fired) == len(set(fired))
    assert clockwork.came <= set(fired), "no tick comes, and never was fired"
    if policy == "latest":
        moments = [elapsed for _, _, elapsed in clockwork.fired]
        looks = [later - before for before, later in pairwise(moments)]
        assert looks.count(0) <= sum(verb != "wait" for verb, _ in steps), "one a leap, no burst"


@pytest.mark.spec("P-08")
@given(STEPS, st.sampled_from([1, 45, 1800, 5400]))
@settings(max_examples=examples(100), deadline=None)
def test_a_heartbeat_beats_on_whatever_the_clock_does(
    steps: list[tuple[str, int]], interval: int
) -> None:
    clockwork = play(Clockwork(BeatTicks(interval), MINUTE), steps)
    begin = clockwork.elapsed
    clockwork.wait(min(3 * HOUR, 100 * interval * SECOND))
    ticks = [tick for tick, _, _ in clockwork.fired]
    assert len(ticks) == len(set(ticks)), "no name is used twice"
    moments = [begin, *(x for _, _, x in clockwork.fired if x > begin), clockwork.elapsed]
    silences = [later - before for before, later in pairwise(moments)]
    assert max(silences) <= interval * SECOND
    elapsed = [x for _, _, x in clockwork.fired]
    leaps = sum(by > 0 for verb, by in steps if verb != "wait")
    early = [b - a for a, b in pairwise(elapsed) if b - a < interval * SECOND * 9 // 10]
    assert len(early) <= leaps, "one for a leap, and no burst"


@given(st.lists(st.integers(0, 2 * HOUR), max_size=6), st.integers(-MINUTE + 1, -1))
@settings(max_examples=examples(100), deadline=None)
def test_a_clock_that_is_set_back_by_a_little_fires_nothing_more(
    leaps: list[int], back: int
) -> None:
    for ticks in (CronTicks("*/7 * * * *"), CronTicks("*/5 * * * * *"), BeatTicks(1800)):
        now = BEGIN
        past = Past.begin(now) if isinstance(ticks, CronTicks) else Past(now)
        for by in leaps:
            now += by
            past = past.seen(now)
            if due := ticks.due(past, now, keep=5).ticks:
                past = past.handled(due[-1], now, leaps=True)
        set_back = past.seen(now + back)
        assert not ticks.due(set_back, now + back, keep=5).ticks
        coming, before = ticks.coming(set_back), ticks.coming(past)
        assert coming is not None
        assert before is not None
        if isinstance(ticks, BeatTicks):
            assert before + back <= coming <= before
        else:
            assert coming == before, "nothing comes that would not have come without"
