"""Schedules fire once a tick, one session at a time (P-05 … P-08, P-13, P-16)."""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import anyio
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.agents import Observer, heard, model_agent
from support.crash_journal import CrashJournal
from support.profiles import examples, portion

from hubbub import (
    AgentDefinition,
    Cron,
    Heartbeat,
    HeartbeatTask,
    RunContext,
    Runtime,
    SessionToolBinding,
    SideConfig,
    agent,
    tool,
)
from hubbub.agents.model import ModelRequest, UserMessage
from hubbub.hub.errors import DefinitionError, MissingExtra
from hubbub.hub.events import Event, ScheduleFire, ScheduleSkip, SessionReset
from hubbub.hub.events.descriptors import CronDescriptor, HeartbeatDescriptor
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import Commit, Journal, RunInfo
from hubbub.hub.store.late import LateJournal
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.virtual import EPOCH, LoopClock, virtual_ports
from hubbub.runtime.models.scripted import Fault, FunctionModel, ScriptedModel, call
from hubbub.runtime.schedules.scheduler import MAX_CAUGHT_UP
from hubbub.runtime.schedules.status import ScheduleStatus, schedule_statuses
from hubbub.runtime.schedules.ticks import CronTicks

pytestmark = pytest.mark.anyio

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
"""Virtual time begins at midnight."""

HOURLY = "0 * * * *"


class Worker:
    """An agent whose tool takes its time, and what it was asked."""

    def __init__(self, takes: float = 60.0, name: str = "worker") -> None:
        self.requests: list[ModelRequest] = []

        @tool(timeout=None, idempotent=True)
        async def work() -> str:
            await anyio.sleep(takes)
            return "done"

        self.agent = model_agent(FunctionModel(self._answer), work, name=name)

    def _answer(self, request: ModelRequest) -> Any:
        if not isinstance(request.messages[-1], UserMessage):
            return "done"
        self.requests.append(request)
        return call("work")

    @property
    def asked(self) -> list[str]:
        """The last thing said to it, each time."""
        return [heard(request)[-1] for request in self.requests]


def cron(uid: str = "job", agent: str = "worker", **more: Any) -> Cron:
    return Cron(uid, more.pop("expression", HOURLY), agent, f"do {uid}", **more)


def fires(observer: Observer, uid: str = "job") -> list[int]:
    """The ticks that were fired, in hours since virtual time began."""
    return [(x.tick - EPOCH) // HOUR for x in observer.all("schedule:fire") if x.schedule == uid]


def skips(observer: Observer) -> list[tuple[str, int]]:
    return [(x.reason, x.count) for x in observer.all("schedule:skip")]


async def schedule_runs(journal: Journal) -> Sequence[RunInfo]:
    return [x for x in await journal.runs(live=False) if x.session_key.startswith("schedule:")]


async def status(runtime: Runtime, uid: str = "job") -> ScheduleStatus:
    return next(x for x in await runtime.schedules() if x.uid == uid)


# ── firing ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-07", "P-13", "P-16")
async def test_each_tick_is_one_message_to_the_tasks_own_agent(
    journal: Journal, ports: Ports
) -> None:
    worker = Worker()
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=[cron()]) as runtime:
        observer = Observer(runtime.hub)
        await anyio.sleep(3.5 * 3600)
        runs = await schedule_runs(journal)
    assert fires(observer) == [1, 2, 3]
    assert worker.asked == ["do job"] * 3
    assert [len(heard(x)) for x in worker.requests] == [1, 2, 3], "it is the same run"
    assert [x.session_key for x in runs] == ["schedule:job"]
    assert runs[0].descriptor == CronDescriptor(id="job")
    assert {x.run_id for x in observer.all("schedule:fire")} == {runs[0].run_id}
    fired, started = observer.first("schedule:fire"), observer.first("agent:start")
    assert observer.events.index(fired) < observer.events.index(started), "recorded before it runs"
    assert fired.lane == "hub"
    messages = [x for x in observer.all("session:message") if x.lane == "in"]
    assert [(x.source, x.key) for x in messages] == [
        ("schedule", f"job@{EPOCH + hour * HOUR}") for hour in (2, 3)
    ]


@pytest.mark.spec("P-07")
async def test_a_tick_is_skipped_while_the_last_fire_is_at_work(
    journal: Journal, ports: Ports
) -> None:
    worker = Worker(takes=2.5 * 3600)
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=[cron()]) as runtime:
        observer = Observer(runtime.hub)
        await anyio.sleep(4.5 * 3600)
        assert fires(observer) == [1, 4]
        assert skips(observer) == [("busy", 1), ("busy", 1)]
        assert (await status(runtime)).last_tick == EPOCH + 4 * HOUR
    assert len(worker.requests) == 2


@pytest.mark.spec("P-07")
async def test_a_code_agent_is_executed_anew_at_each_tick(journal: Journal, ports: Ports) -> None:
    inputs: list[tuple[str, str]] = []

    @agent("code")
    async def code(input: str, ctx: RunContext) -> None:
        inputs.append((ctx.run_id, input))
        await anyio.sleep(5400)

    schedules = [cron(agent="code")]
    async with Runtime([code], store=journal, ports=ports, schedules=schedules) as runtime:
        observer = Observer(runtime.hub)
        await anyio.sleep(5.2 * 3600)
    assert fires(observer) == [1, 3, 5]
    assert [text for _, text in inputs] == ["do job"] * 3
    assert len({run_id for run_id, _ in inputs}) == 3


@pytest.mark.spec("P-07")
async def test_after_its_run_was_terminated_the_next_tick_makes_a_new_one(
    journal: Journal, ports: Ports
) -> None:
    worker = Worker()
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=[cron()]) as runtime:
        await anyio.sleep(1.5 * 3600)
        first = (await status(runtime)).run_id
        await runtime.terminate(first)
        await anyio.sleep(3600)
        second = await status(runtime)
        assert second.run_id not in ("", first)
        assert second.last_outcome == "completed"
    assert [len(heard(x)) for x in worker.requests] == [1, 1]


@pytest.mark.spec("P-07")
async def test_a_run_that_is_closing_but_at_work_is_still_the_last_one(
    journal: Journal, ports: Ports
) -> None:
    worker = Worker(takes=1.5 * 3600)
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=[cron()]) as runtime:
        observer = Observer(runtime.hub)
        await anyio.sleep(1.1 * 3600)
        await runtime.hub.close_run((await status(runtime)).run_id)
        await anyio.sleep(2.1 * 3600)
        assert fires(observer) == [1, 3]
        assert len(await schedule_runs(journal)) == 2


@pytest.mark.spec("P-06")
async def test_a_run_that_another_has_opened_for_the_same_task_is_found(
    journal: Journal, ports: Ports
) -> None:
    worker = Worker()
    schedules = [cron(), cron("other")]
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=schedules) as runtime:
        run = await runtime.hub.open("worker", descriptor=CronDescriptor(id="job"))
        await anyio.sleep(1.5 * 3600)
        assert (await status(runtime)).run_id == run.run_id
        assert (await status(runtime, "other")).run_id != run.run_id
        assert len(await schedule_runs(journal)) == 2


async def test_a_schedule_that_gets_another_agent_begins_a_run_of_its_own(
    journal: Journal, ports: Ports
) -> None:
    old, new = Worker(), Worker(name="new")
    for name, worker in (("worker", old), ("new", new), ("new", new)):
        agents = [old.agent, new.agent]
        schedules = [cron(agent=name)]
        async with Runtime(agents, store=journal, ports=ports, schedules=schedules):
            before = len(worker.requests)
            await anyio.sleep(3700)
        assert len(worker.requests) == before + 1
    live = [x for x in await schedule_runs(journal) if x.status != "ended"]
    assert [x.agent for x in live] == ["new"]
    assert len(heard(new.requests[-1])) == 2


@pytest.mark.spec("P-07", "P-14")
async def test_a_run_whose_agent_is_gone_does_not_hold_its_schedule_up(
    journal: Journal, ports: Ports
) -> None:
    old, new = Worker(takes=9 * 3600), Worker(name="new")
    async with Runtime([old.agent], store=journal, ports=ports, schedules=[cron()], grace=0):
        await anyio.sleep(3700)
    schedules = [cron(agent="new")]
    async with Runtime([new.agent], store=journal, ports=ports, schedules=schedules) as runtime:
        await anyio.sleep(3700)
        assert (await status(runtime)).last_outcome == "completed"
    assert new.asked == ["do job"]


@pytest.mark.spec("P-07")
async def test_what_its_run_does_not_take_is_noted_and_the_next_tick_tries_again(
    journal: Journal, ports: Ports
) -> None:
    worker = Worker()
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=[cron()]) as runtime:
        observer = Observer(runtime.hub)
        await anyio.sleep(3700)
        known, runtime.hub.addressing.agents = runtime.hub.addressing.agents, frozenset()
        await anyio.sleep(3600)
        assert (await status(runtime)).last_outcome == "rejected"
        assert observer.first("hub:dead_letter").reason == "agent gone"
        runtime.hub.addressing.agents = known
        await anyio.sleep(3600)
        assert (await status(runtime)).last_outcome == "completed"
    assert fires(observer) == [1, 2, 3]
    assert len(worker.requests) == 2


# ── what is remembered ───────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-07")
async def test_the_outcome_is_noted_also_of_what_failed(journal: Journal, ports: Ports) -> None:
    @agent("breaks")
    async def breaks(input: str, ctx: RunContext) -> None:
        await anyio.sleep(60)
        raise ValueError("no such luck")

    model = FunctionModel(lambda request: Fault("auth") if len(heard(request)) == 1 else "well")
    agents = [breaks, model_agent(model, name="worker")]
    schedules = [cron(), cron("code", "breaks")]
    async with Runtime(agents, store=journal, ports=ports, schedules=schedules) as runtime:
        await anyio.sleep(3600 + 30)
        assert (await status(runtime)).last_outcome == "failed"
        assert (await status(runtime, "code")).last_outcome == "running"
        await anyio.sleep(60)
        assert (await status(runtime, "code")).last_outcome == "failed"
        await anyio.sleep(3600)
        assert (await status(runtime)).last_outcome == "completed"


@pytest.mark.spec("P-07")
async def test_an_outcome_is_noted_also_where_its_schedule_is_gone(ports: Ports) -> None:
    journal, worker = MemoryJournal(), Worker(takes=600)
    async with Runtime(
        [worker.agent], store=journal, ports=ports, schedules=[cron()], grace=0
    ) as runtime:
        await anyio.sleep(3700)
        assert (await status(runtime)).last_outcome == "running"
    async with Runtime([worker.agent], store=journal, ports=ports) as runtime:
        assert (await status(runtime)).last_outcome == "running"
        await anyio.sleep(700)  # The run goes on without its schedule.
        found = await status(runtime)
        assert (found.last_outcome, found.next_at) == ("completed", None)
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=[cron()]) as runtime:
        await anyio.sleep(1)
        found = await status(runtime)
        assert (found.last_outcome, found.last_tick) == ("completed", EPOCH + HOUR)


@pytest.mark.spec("P-07")
@pytest.mark.parametrize("others", [0, 1])
async def test_a_fire_that_was_cut_off_has_an_outcome_though_its_schedule_is_gone(
    others: int, journal: Journal, ports: Ports
) -> None:
    @agent("hangs")
    async def hangs(input: str, ctx: RunContext) -> None:
        await anyio.sleep(7200)

    worker = Worker()
    agents = [hangs, worker.agent]
    gone = [cron(agent="hangs"), Heartbeat("hangs", ["x"], 600)]
    async with Runtime(agents, store=journal, ports=ports, schedules=gone, grace=0) as runtime:
        await anyio.sleep(3700)
        for uid in ("job", "heartbeat"):
            assert (await status(runtime, uid)).last_outcome == "running"
    schedules = [cron("other")][:others]
    async with Runtime(agents, store=journal, ports=ports, schedules=schedules) as runtime:
        await anyio.sleep(1)
        for uid in ("job", "heartbeat"):
            assert (await status(runtime, uid)).last_outcome == "failed"


@pytest.mark.spec("P-07")
async def test_last_and_next_fires_are_known_without_running_anything(
    journal: Journal, ports: Ports
) -> None:
    worker = Worker()
    schedules = [cron(expression="30 2 * * *", timezone="Europe/Berlin"), beats(interval=900)]
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=schedules) as runtime:
        fresh = await runtime.schedules()
        assert [(x.uid, x.last_tick, x.last_fired_at) for x in fresh] == [
            ("heartbeat", 0, 0), ("job", 0, 0),
        ]  # fmt: skip
        assert [x.next_at for x in fresh] == [EPOCH + 900 * SECOND, EPOCH + HOUR * 3 // 2]
        await anyio.sleep(2 * 3600 + 400)  # When nothing happens between the looks.
        known = await runtime.schedules()
        notes = await journal.notes("schedule/")
        now = ports.clock.now()
    assert schedule_statuses(notes, now, schedules) == known
    assert schedule_statuses(notes, now) == known, "the notes alone say as much"
    assert schedule_statuses({}, now) == ()
    heartbeat, job = known
    assert (job.kind, job.agent, job.last_outcome) == ("cron", "worker", "completed")
    assert job.last_tick == job.last_fired_at == EPOCH + HOUR * 3 // 2
    assert job.next_at == job.last_tick + 24 * HOUR
    assert heartbeat.kind == "heartbeat"
    assert heartbeat.next_at == heartbeat.last_tick + 900 * SECOND
    # As the docstring says it is read.
    assert "datetime.fromtimestamp(next_at / 1e6)" in (ScheduleStatus.__doc__ or "")
    when = datetime.fromtimestamp(job.next_at / 1e6, ZoneInfo("Europe/Berlin"))
    assert (when.hour, when.minute) == (2, 30)
    gone = schedule_statuses(notes, now, ())
    assert [(x.uid, x.next_at, x.last_tick) for x in gone] == [
        (x.uid, None, x.last_tick) for x in known
    ]


async def test_a_note_that_cannot_be_read_is_passed_over(ports: Ports) -> None:
    journal, worker = MemoryJournal(), Worker()
    journal.submit(Commit(notes={"schedule/job": "{", "schedule/old": '{"kind": "cron", "x": 1}'}))
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=[cron()]) as runtime:
        await anyio.sleep(3700)
        known = await runtime.schedules()
    assert [(x.uid, x.last_outcome) for x in known] == [("job", "completed"), ("old", "")]


# ── missed ticks ─────────────────────────────────────────────────────────────────────────────


async def fire_once_and_sleep(
    worker: Worker, journal: Journal, ports: Ports, job: Cron, hours: float
) -> None:
    """The tick of hour 1 is fired, then nothing runs for a while."""
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=[job]):
        await anyio.sleep(1.1 * 3600)
    await anyio.sleep(hours * 3600)


@pytest.mark.spec("P-07")
@pytest.mark.parametrize(
    ("misfire", "fired", "passed"),
    [
        ("skip", [6], [("missed", 4)]),
        ("latest", [5, 6], [("missed", 3)]),
        ("all", [2, 3, 4, 5, 6], []),
    ],
)
async def test_missed_ticks_follow_misfire(
    misfire: Any, fired: list[int], passed: list[tuple[str, int]], journal: Journal, ports: Ports
) -> None:
    worker, job = Worker(), cron(misfire=misfire)
    await fire_once_and_sleep(worker, journal, ports, job, 4.2)
    runtime = Runtime([worker.agent], store=journal, ports=ports, schedules=[job])
    observer = Observer(runtime.hub)
    async with runtime:
        await anyio.sleep(3600)
    assert fires(observer) == fired
    assert skips(observer) == passed
    assert len(worker.requests) == 1 + len(fired)


@pytest.mark.parametrize(
    ("late", "fired", "passed"), [(9, [2], []), (58, [2], []), (62, [], [("missed", 1)])]
)
async def test_a_tick_of_the_last_minute_is_late_and_not_missed(
    late: int, fired: list[int], passed: list[tuple[str, int]], journal: Journal, ports: Ports
) -> None:
    worker, job = Worker(), cron(misfire="skip")
    await fire_once_and_sleep(worker, journal, ports, job, 0.9 + late / 3600)
    runtime = Runtime([worker.agent], store=journal, ports=ports, schedules=[job])
    observer = Observer(runtime.hub)
    async with runtime:
        await anyio.sleep(10)
    assert (fires(observer), skips(observer)) == (fired, passed)


@pytest.mark.spec("P-07")
async def test_all_missed_ticks_fire_each_when_the_one_before_is_over(
    journal: Journal, ports: Ports
) -> None:
    worker, job = Worker(takes=2000), cron(misfire="all")
    await fire_once_and_sleep(worker, journal, ports, job, 4.2)
    runtime = Runtime([worker.agent], store=journal, ports=ports, schedules=[job])
    observer = Observer(runtime.hub)
    async with runtime:
        await anyio.sleep(3 * 3600)
    assert fires(observer)[:4] == [2, 3, 4, 5]
    begins = [x.at for x in observer.all("session:start")]
    ends = [x.at for x in observer.all("session:end")]
    assert all(begin >= end for begin, end in zip(begins[1:], ends, strict=False))
    assert skips(observer)[0][0] == "busy", "what is due meanwhile is not missed: the run is busy"
    ticks = [x.tick for x in observer.events if isinstance(x, ScheduleFire | ScheduleSkip)]
    assert ticks == sorted(set(ticks))


@pytest.mark.spec("P-07")
async def test_all_missed_ticks_are_bounded_and_the_rest_is_on_record(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_CAUGHT_UP == 1000
    monkeypatch.setattr("hubbub.runtime.schedules.scheduler.MAX_CAUGHT_UP", 20)
    journal, worker = MemoryJournal(), Worker(takes=0)
    job = cron(misfire="all")
    await fire_once_and_sleep(worker, journal, ports, job, 50)
    runtime = Runtime([worker.agent], store=journal, ports=ports, schedules=[job])
    observer = Observer(runtime.hub)
    async with runtime:
        await anyio.sleep(1)
    assert skips(observer) == [("missed", 30)]
    assert fires(observer) == list(range(32, 52))


async def leave_after(events: int, steps: int, store: str | Journal, ports: Ports) -> int:
    """Catch up two ticks, leave at an event and some steps; returns how many events came."""
    worker, job = model_agent(FunctionModel(lambda _: "done"), name="worker"), cron(misfire="all")
    async with Runtime([worker], store=store, ports=ports, schedules=[job]):
        await anyio.sleep(1.1 * 3600)
    await anyio.sleep(2.2 * 3600)
    seen, is_time = 0, anyio.Event()

    def see(_: Event) -> None:
        nonlocal seen
        seen += 1
        if seen == events:
            is_time.set()

    async with Runtime([worker], store=store, ports=ports, schedules=[job], grace=0) as runtime:
        runtime.hub.subscribe("*", see)
        with anyio.move_on_after(600):
            await is_time.wait()
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
    return seen


@pytest.mark.parametrize("kept", ["memory", "late", "sqlite"])
async def test_leaving_while_ticks_are_caught_up_is_no_failure_of_a_schedule(
    kept: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stores: dict[str, Callable[[str], str | Journal]] = {
        "memory": lambda _: MemoryJournal(),
        "late": lambda _: LateJournal(MemoryJournal()),
        "sqlite": lambda place: f"sqlite:{tmp_path / place}",
    }
    events, seen = 0, 0
    while seen >= events:
        events += 1
        for steps in portion(range(3)):
            store = stores[kept](f"{events}-{steps}")
            seen = await leave_after(events, steps, store, virtual_ports())
            assert not [x for x in caplog.records if x.levelname == "ERROR"], (events, steps)
    assert events > 15


@pytest.mark.spec("P-07")
async def test_before_the_first_fire_nothing_is_missed(journal: Journal, ports: Ports) -> None:
    worker = Worker()
    assert ports.clock.now() == EPOCH
    await anyio.sleep(5.5 * 3600)
    runtime = Runtime([worker.agent], store=journal, ports=ports, schedules=[cron(misfire="all")])
    observer = Observer(runtime.hub)
    async with runtime:
        await anyio.sleep(3600)
    assert fires(observer) == [6]
    assert skips(observer) == []


DAILY = "30 2 * * *"


async def nights(
    worker: Worker, journal: Journal, ports: Ports, job: Cron, count: int = 6
) -> Observer:
    """A process that is stopped each night from two to three; ends at the last night's two."""
    await anyio.sleep((3 * HOUR - (ports.clock.now() - EPOCH) % (24 * HOUR)) / SECOND % 86_400)
    for night in range(count):
        if night:
            await anyio.sleep(3600)
        runtime = Runtime([worker.agent], store=journal, ports=ports, schedules=[job])
        async with runtime:
            await anyio.sleep(23 * 3600)
            seen = Observer(runtime.hub)
            seen.events += await runtime.hub.read(types="schedule:*")
    return seen


def days(observer: Observer) -> list[float]:
    return [(x.tick - EPOCH) / HOUR for x in observer.all("schedule:fire")]


@pytest.mark.spec("P-07")
@pytest.mark.parametrize(
    ("misfire", "fired", "passed"),
    [
        ("skip", [], [("missed", 1)] * 5),
        ("latest", [26.5 + 24 * day for day in range(5)], []),
        ("all", [26.5 + 24 * day for day in range(5)], []),
    ],
)
async def test_a_tick_that_is_missed_before_the_first_one_is_missed_as_any_other(
    misfire: Any, fired: list[float], passed: list[tuple[str, int]], journal: Journal, ports: Ports
) -> None:
    seen = await nights(Worker(), journal, ports, cron(expression=DAILY, misfire=misfire))
    assert (days(seen), skips(seen)) == (fired, passed)


@pytest.mark.spec("P-07")
@pytest.mark.parametrize(
    ("before", "after", "fired"),
    [
        (cron(expression="30 12 * * *"), cron(expression="15 2 * * *"), [12.5, 2.25, 2.25]),
        (
            cron(expression="30 3 * * *"),
            cron(expression="30 3 * * *", timezone="Europe/Berlin"),
            [3.5, 2.5, 2.5],
        ),
    ],
    ids=["expression", "timezone"],
)
async def test_so_is_one_that_is_missed_before_the_first_of_another_plan(
    before: Cron, after: Cron, fired: list[float], journal: Journal, ports: Ports
) -> None:
    worker = Worker()
    await nights(worker, journal, ports, before, 1)
    seen = await nights(worker, journal, ports, after, 3)
    assert [x % 24 for x in days(seen)] == fired


@pytest.mark.spec("P-07", "P-12")
@pytest.mark.parametrize("noted", [True, False])
async def test_what_a_version_before_noted_of_a_cron_that_never_fired_begins_now_and_once(
    noted: bool, journal: Journal, ports: Ports
) -> None:
    job = cron(expression=DAILY, misfire="all")
    assert ports.clock.now() == EPOCH
    old = '{"kind":"cron","agent":"worker","expression":"30 2 * * *","timezone":"UTC"}'
    if noted:
        journal.submit(Commit(notes={"schedule/job": old}))
    await anyio.sleep(20 * 86_400)
    seen = await nights(Worker(), journal, ports, job, 3)
    assert (days(seen), skips(seen)) == ([21 * 24 + 2.5, 22 * 24 + 2.5], [])


@pytest.mark.spec("P-07")
@pytest.mark.parametrize("misfire", ["skip", "latest", "all"])
@given(
    lives=st.lists(
        st.tuples(st.integers(1, 30 * 60), st.integers(0, 30 * 60)), min_size=1, max_size=6
    )
)
@settings(
    max_examples=examples(30), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
async def test_each_tick_is_fired_or_counted_as_skipped_however_often_it_is_restarted(
    misfire: Any, lives: list[tuple[int, int]]
) -> None:
    journal, ports, worker = MemoryJournal(), virtual_ports(), Worker(takes=1)
    job, begin = cron(expression=DAILY, misfire=misfire), ports.clock.now()
    for up, down in lives:
        async with Runtime([worker.agent], store=journal, ports=ports, schedules=[job]) as runtime:
            await anyio.sleep(up * 60 + 1)
            seen, until = Observer(runtime.hub), ports.clock.now()
            seen.events += await runtime.hub.read(types="schedule:*")
        await anyio.sleep(down * 60)
    come = CronTicks(DAILY).missed(begin, until, keep=0).count
    assert len(days(seen)) + sum(count for _, count in skips(seen)) == come


async def test_ticks_of_another_expression_were_never_planned_and_not_missed(
    journal: Journal, ports: Ports
) -> None:
    worker = Worker()
    await fire_once_and_sleep(worker, journal, ports, cron(), 4)
    changed = cron(expression="30 * * * *", misfire="all")
    runtime = Runtime([worker.agent], store=journal, ports=ports, schedules=[changed])
    observer = Observer(runtime.hub)
    async with runtime:
        await anyio.sleep(1800)
    assert fires(observer) == [5]


@pytest.mark.spec("P-07")
async def test_a_tick_missed_while_the_run_still_works_is_skipped(
    journal: Journal, ports: Ports
) -> None:
    worker = Worker(takes=6 * 3600)
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=[cron()], grace=0):
        await anyio.sleep(1.1 * 3600)
    await anyio.sleep(2 * 3600)
    runtime = Runtime([worker.agent], store=journal, ports=ports, schedules=[cron()])
    observer = Observer(runtime.hub)
    async with runtime:
        await anyio.sleep(600)
    assert fires(observer) == []
    assert skips(observer) == [("busy", 2)]


# ── clocks ───────────────────────────────────────────────────────────────────────────────────


class SetClock(LoopClock):
    """A clock that somebody sets."""

    offset = 0

    def now(self) -> int:
        return super().now() + self.offset


@pytest.mark.spec("P-07")
@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
async def test_a_clock_that_is_set_back_fires_no_tick_again(restart: bool, ports: Ports) -> None:
    clock = ports.clock = SetClock()
    journal, worker = MemoryJournal(), Worker()
    runtime = Runtime([worker.agent], store=journal, ports=ports, schedules=[cron()])
    observer = Observer(runtime.hub)
    async with runtime:
        await anyio.sleep(3.1 * 3600)
        clock.offset = -2 * HOUR
        if not restart:
            await anyio.sleep(3 * 3600)
    if restart:
        runtime = Runtime([worker.agent], store=journal, ports=ports, schedules=[cron()])
        again = Observer(runtime.hub)
        async with runtime:
            await anyio.sleep(3 * 3600)
        observer.events += again.events
    assert fires(observer) == [1, 2, 3, 4]


@pytest.mark.spec("P-07")
async def test_a_clock_that_is_set_forward_is_noticed_and_what_it_jumped_over_is_missed(
    ports: Ports,
) -> None:
    clock = ports.clock = SetClock()
    worker = Worker()
    async with Runtime([worker.agent], store="memory", ports=ports, schedules=[cron()]) as runtime:
        observer = Observer(runtime.hub)
        await anyio.sleep(1.1 * 3600)
        clock.offset = 3 * HOUR
        await anyio.sleep(120)
    assert fires(observer) == [1, 4]
    assert skips(observer) == [("missed", 2)]


OLD_NOTES = {
    "schedule/job": '{"kind":"cron","agent":"worker","expression":"0 * * * *","timezone":"UTC",'
    '"last_tick":%d,"fired_at":%d,"run_id":"","run_agent":"worker","outcome":"completed"}',
    "schedule/heartbeat": '{"kind":"heartbeat","agent":"worker","interval":1800.0,"since":1,'
    '"last_tick":%d,"fired_at":%d,"run_id":"","run_agent":"worker","outcome":"completed"}',
}
"""As they were written before clocks that are set were heeded."""


@pytest.mark.spec("P-07", "P-08", "P-12")
@pytest.mark.parametrize(
    ("handled", "jobs", "beats_before_two"),
    [
        (-3 * HOUR, [0, 1], 4),  # What was missed is made up for as ever.
        (-1200 * SECOND, [0, 1], 4),
        (1800 * SECOND, [1], 3),
        (HOUR, [], 3),
        (20 * 365 * 24 * HOUR, [1], 3),  # It was of a clock that had been wrong.
    ],
)
async def test_notes_of_a_version_before_are_gone_on_with(
    handled: int, jobs: list[int], beats_before_two: int, ports: Ports
) -> None:
    journal, worker = MemoryJournal(), Worker(takes=1)
    tick = EPOCH + handled
    journal.submit(Commit(notes={key: text % (tick, tick) for key, text in OLD_NOTES.items()}))
    schedules = [cron(), beats()]
    known = schedule_statuses(await journal.notes("schedule/"), EPOCH, schedules)
    assert [x.last_tick for x in known] == [tick, tick]
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=schedules) as runtime:
        observer = Observer(runtime.hub)
        observer.events += await runtime.hub.read()
        await anyio.sleep(1.9 * 3600)
    fired = {x.tick: x for x in observer.all("schedule:fire") if x.schedule == "job"}
    assert [(tick - EPOCH) // HOUR for tick in fired] == jobs
    moments = {x.at for x in observer.all("schedule:fire") if x.schedule == "heartbeat"}
    assert len(moments) == beats_before_two
    assert max(moments) <= EPOCH + 1.9 * HOUR


@pytest.mark.spec("P-07", "P-08")
async def test_the_next_fire_that_is_shown_is_the_one_that_comes(ports: Ports) -> None:
    clock = ports.clock = SetClock()
    worker = Worker()
    schedules = [cron(), beats()]
    async with Runtime([worker.agent], store="memory", ports=ports, schedules=schedules) as runtime:
        await anyio.sleep(5.1 * 3600)
        clock.offset = -3 * HOUR
        await anyio.sleep(90)
        shown = {x.uid: x.next_at for x in await runtime.schedules()}
        assert shown["job"] == EPOCH + 6 * HOUR
        observer = Observer(runtime.hub)
        await anyio.sleep(4 * 3600)
    first = {x.schedule: x for x in reversed(observer.all("schedule:fire"))}
    assert {uid: x.at for uid, x in first.items()} == shown


@pytest.mark.spec("P-16")
async def test_a_local_time_that_is_skipped_or_repeated_fires_once(ports: Ports) -> None:
    clock = ports.clock = SetClock()
    worker = Worker()
    job = cron(expression="30 2 * * *", timezone="Europe/Berlin")
    for begin, fired in (("2026-03-28T12:00", "29 01:00"), ("2026-10-24T12:00", "25 00:30")):
        clock.offset = 0
        clock.offset = _utc(begin) - clock.now()
        async with Runtime([worker.agent], store="memory", ports=ports, schedules=[job]) as runtime:
            observer = Observer(runtime.hub)
            await anyio.sleep(24 * 3600)
            assert [x.tick for x in observer.all("schedule:fire")] == [
                _utc(f"{begin[:8]}{fired.replace(' ', 'T')}")
            ]


def _utc(text: str) -> int:
    from datetime import UTC, datetime

    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


# ── crashes ──────────────────────────────────────────────────────────────────────────────────


async def crash_and_go_on(
    schedules: Sequence[Cron | Heartbeat], after: int, *, late: bool
) -> tuple[bool, list[Any]]:
    """A process that dies after some commits, and others: did it die, and what is on record?"""
    ports = virtual_ports()
    inner, worker = MemoryJournal(), Worker(takes=300)
    crashing = CrashJournal(inner, after)
    store: Any = LateJournal(crashing) if late else crashing
    async with Runtime([worker.agent], store=store, ports=ports, schedules=schedules, grace=0):
        with anyio.move_on_after(2.5 * 3600):
            await crashing.crashed.wait()
    for _ in range(2):  # A restart loop.
        async with Runtime(
            [worker.agent], store=inner, ports=ports, schedules=schedules, grace=0
        ) as runtime:
            await anyio.sleep(1)
    async with Runtime([worker.agent], store=inner, ports=ports, schedules=schedules) as runtime:
        await anyio.sleep(2.5 * 3600)
        (fired,) = await runtime.schedules()
        assert fired.next_at is not None
        await anyio.sleep((fired.next_at - ports.clock.now()) / SECOND + 600)
        known = await runtime.schedules()
        events = await runtime.hub.read()
    assert [x.last_outcome for x in known] == ["completed"]
    return crashing.crashed.is_set(), events


@pytest.mark.spec("P-07", "P-08")
@pytest.mark.parametrize("late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("kind", ["cron", "heartbeat"])
async def test_killed_after_any_commit_no_tick_fires_twice_and_none_is_lost(
    kind: str, late: bool
) -> None:
    schedules = [cron(misfire="all")] if kind == "cron" else [beats(interval=3600)]
    after, crashed = 0, True
    while crashed:
        crashed, events = await crash_and_go_on(schedules, after, late=late)
        fired = Counter(x.tick for x in events if isinstance(x, ScheduleFire))
        assert set(fired.values()) == {1}, "each at most once"
        sessions = [x for x in events if x.type == "session:start"]
        assert len(sessions) == len(fired), "and each came to one session"
        skipped = [x.tick for x in events if isinstance(x, ScheduleSkip)]
        ticks = sorted([*fired, *skipped])
        if kind == "cron":
            steps = {after - before for before, after in pairwise(ticks)}
            assert steps == {HOUR}
        assert len({x.run_id for x in events if x.type == "agent:start"}) == 1
        after += 1
        if len(fired) < 3:
            pytest.fail(f"after {after} commits only {len(fired)} ticks were fired")
    assert after > 10


@pytest.mark.spec("P-07", "P-08", "P-16")
async def test_schedules_go_on_over_a_store_on_disk(tmp_path: Path, ports: Ports) -> None:
    worker = Worker()
    schedules = [cron(misfire="all"), beats(interval=5400)]
    fired: list[tuple[str, int]] = []
    for hours in (1.1, 2.0, 0.1, 1.0):
        runtime = Runtime(
            [worker.agent], store=f"sqlite:{tmp_path}", ports=ports, schedules=schedules
        )
        async with runtime:
            observer = Observer(runtime.hub)
            await anyio.sleep(hours * 3600)
            known = await runtime.schedules()
        fired += [(x.schedule, x.tick) for x in observer.all("schedule:fire")]
        await anyio.sleep(1800)
    assert len(set(fired)) == len(fired)
    ticks = [(tick - EPOCH) // HOUR for uid, tick in fired if uid == "job"]
    assert ticks == list(range(1, ticks[-1] + 1))
    assert [x.last_outcome for x in known] == ["completed", "completed"]


# ── several ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-07")
async def test_schedules_fire_side_by_side_and_what_fails_stops_no_other(
    journal: Journal, ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = Worker(takes=9 * 3600, name="slow"), Worker()
    schedules = [cron("slow", "slow"), cron("broken"), cron()]
    agents = [slow.agent, quick.agent]
    async with Runtime(agents, store=journal, ports=ports, schedules=schedules) as runtime:
        observer = Observer(runtime.hub)
        find = journal.find

        async def failing(to: str, by: Any) -> Sequence[str]:
            if "broken" in to and ports.clock.now() < EPOCH + 2.5 * HOUR:
                raise OSError("the disk is full")
            return await find(to, by)

        monkeypatch.setattr(journal, "find", failing)
        await anyio.sleep(3.1 * 3600)
    assert fires(observer) == [1, 2, 3]
    assert fires(observer, "slow") == [1]
    assert fires(observer, "broken")[-1] == 3, "it goes on when it can"


async def test_nothing_fires_once_the_runtime_is_left(journal: Journal, ports: Ports) -> None:
    worker = Worker(takes=2)
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=[cron()], grace=7200):
        await anyio.sleep(3601)
    assert ports.clock.now() < EPOCH + HOUR + 10 * SECOND
    await anyio.sleep(7200)
    assert len(worker.requests) == 1


# ── the heartbeat ────────────────────────────────────────────────────────────────────────────


def beats(agent: str = "worker", **more: Any) -> Heartbeat:
    tasks = [HeartbeatTask("Mail", "Answer it."), ("Notes", "Tidy them."), "Look at the weather"]
    return Heartbeat(agent, tasks, **more)


@pytest.mark.spec("P-05", "P-08", "P-13", "P-16")
async def test_each_beat_is_one_batch_of_all_tasks_in_a_fresh_context(
    journal: Journal, ports: Ports
) -> None:
    worker = Worker()
    schedules = [beats()]
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=schedules) as runtime:
        observer = Observer(runtime.hub)
        await anyio.sleep(3 * 1800 + 900)
        runs = await schedule_runs(journal)
        assert list(await journal.find("heartbeat", "newest")) == [runs[0].run_id]
    assert [x.descriptor for x in runs] == [HeartbeatDescriptor()]
    assert [(x.tick - EPOCH) // MINUTE for x in observer.all("schedule:fire")] == [30, 60, 90]
    for request in worker.requests:
        (message,) = request.messages
        assert isinstance(message, UserMessage)
        for words in ("Mail", "Answer it.", "Notes", "Tidy them.", "Look at the weather"):
            assert message.content.count(words) == 1
    assert len(worker.requests) == 3
    resets = [x for x in observer.all("session:reset") if x.lane == "in"]
    assert len(resets) == 3, "every batch begins with a reset"
    assert resets[0].message == schedules[0].prompt


@pytest.mark.spec("P-08")
async def test_a_beat_is_skipped_while_the_last_one_is_at_work(
    journal: Journal, ports: Ports
) -> None:
    worker = Worker(takes=2000)
    schedules = [beats()]
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=schedules) as runtime:
        observer = Observer(runtime.hub)
        await anyio.sleep(3 * 1800 + 900)
    assert [x.type for x in observer.events if x.type.startswith("schedule:")] == [
        "schedule:fire", "schedule:skip", "schedule:fire",
    ]  # fmt: skip
    assert [x.outcome for x in observer.all("session:end")] == ["completed"], "none is cut short"


@pytest.mark.spec("P-08")
async def test_a_beat_touches_no_other_run(journal: Journal, ports: Ports) -> None:
    worker = Worker()
    schedules = [beats(), cron(expression="5 * * * *")]
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=schedules) as runtime:
        talk = await runtime.start("worker", "hello", session_key="telegram_1_2")
        child = await runtime.start("worker", "background")
        await anyio.sleep(1700)
        before = [await talk.read(), await child.read()]
        await anyio.sleep(4 * 1800)
        assert [await talk.read(), await child.read()] == before
        job = (await status(runtime)).run_id
        assert not [x for x in await runtime.hub.read(job) if isinstance(x, SessionReset)]


@pytest.mark.spec("P-08")
async def test_a_beat_that_is_overdue_at_boot_comes_at_once_and_only_once(
    journal: Journal, ports: Ports
) -> None:
    worker = Worker()
    async with Runtime([worker.agent], store=journal, ports=ports, schedules=[beats()]):
        await anyio.sleep(2000)
    await anyio.sleep(5 * 1800)
    runtime = Runtime([worker.agent], store=journal, ports=ports, schedules=[beats()])
    observer = Observer(runtime.hub)
    boot = ports.clock.now()
    async with runtime:
        await anyio.sleep(1900)
    ticks = [x.tick - boot for x in observer.all("schedule:fire")]
    assert ticks == [0, 1800 * SECOND]


@pytest.mark.spec("P-08")
async def test_restarts_do_not_put_the_first_beat_off(journal: Journal, ports: Ports) -> None:
    worker = Worker()
    for _ in range(4):
        async with Runtime([worker.agent], store=journal, ports=ports, schedules=[beats()]):
            await anyio.sleep(600)
    assert len(worker.requests) == 1


@pytest.mark.spec("P-08")
async def test_a_code_agent_gets_the_batch_as_its_input(journal: Journal, ports: Ports) -> None:
    inputs: list[str] = []

    @agent("code")
    async def code(input: str, ctx: RunContext) -> None:
        inputs.append(input)

    schedules = [beats("code")]
    async with Runtime([code], store=journal, ports=ports, schedules=schedules):
        await anyio.sleep(2 * 1800 + 60)
    assert inputs == [schedules[0].prompt] * 2


@pytest.mark.spec("P-08")
async def test_an_agent_of_two_sides_has_a_run_for_each_beat(
    journal: Journal, ports: Ports
) -> None:
    @tool
    def done(summary: str) -> str:
        """End."""
        return summary

    model = ScriptedModel([call("done", summary="one"), call("done", summary="two")])
    side = model_agent(model, done).side_a
    assert side is not None
    ending = SideConfig(prompt=side.prompt, session_stop=SessionToolBinding("done", "summary"))
    pair = AgentDefinition(name="pair", type="dual_ai", side_a=ending, side_b=side)
    async with Runtime([pair], store=journal, ports=ports, schedules=[beats("pair")]) as runtime:
        await anyio.sleep(2 * 1800 + 60)
        assert (await status(runtime, "heartbeat")).last_outcome == "completed"
    runs = await schedule_runs(journal)
    assert [x.status for x in runs] == ["ended", "ended"]


# ── definitions ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("P-16")
def test_all_problems_of_schedules_are_named_at_once() -> None:
    worker = Worker()

    @agent("numbers")
    async def numbers(input: int, ctx: RunContext) -> None: ...

    wrong: list[Any] = [
        Cron("", "61 * * * *", "nobody", " ", timezone="Europe/Nowhere", misfire="never"),  # type: ignore[arg-type]
        cron(),
        cron(),
        cron("heartbeat"),
        cron("number", "numbers"),
        Heartbeat("worker", ["one"], interval=0),
        Heartbeat("worker", [("only a title",)]),  # type: ignore[list-item]
        Heartbeat("worker", []),
        "every hour",
    ]
    with pytest.raises(DefinitionError) as raised:
        Runtime([worker.agent, numbers], store="memory", schedules=wrong)
    found = [x.split(":")[0] for x in raised.value.problems]
    assert found == [
        "schedules[0].uid", "schedules[0].misfire", "schedules[0].expression",
        "schedules[0].timezone", "schedules[0].prompt", "schedules[0].agent",
        "schedules[2].uid",
        "schedules[3].uid",
        "schedules[4].agent",
        "schedules[5].interval",
        "schedules[6].uid", "schedules[6].tasks[0]",
        "schedules[7].uid", "schedules[7].tasks",
        "schedules[8]",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "number", ["0" * 5_000, "9" * 5_000, "*/99999999999", "1-00059", "1,12345"]
)
@pytest.mark.parametrize("field", range(6))
def test_an_expression_with_a_number_that_no_field_can_have_is_refused(
    number: str, field: int
) -> None:
    expression = " ".join(number if each == field else "*" for each in range(6))
    with pytest.raises(DefinitionError, match=r"expression: .*a number in it is too large"):
        Runtime([Worker().agent], store="memory", schedules=[cron(expression=expression)])


@pytest.mark.spec("P-16")
@pytest.mark.parametrize("interval", [0, -1, 1e-9, 0.99, 1e400, float("nan"), True, "5", 10**400])
def test_a_heartbeat_that_beats_more_than_once_a_second_is_refused(interval: Any) -> None:
    worker = Worker()
    with pytest.raises(DefinitionError, match=r"interval: expected 1 to [\d,]+ seconds"):
        Runtime([worker.agent], store="memory", schedules=[beats(interval=interval)])
    Runtime([worker.agent], store="memory", schedules=[beats(interval=1)])


def test_one_schedule_alone_is_no_list() -> None:
    with pytest.raises(DefinitionError, match="expected a list of Cron and Heartbeat"):
        Runtime([Worker().agent], store="memory", schedules=cron())  # type: ignore[arg-type]


@pytest.mark.spec("P-16")
def test_a_cron_needs_the_extra_and_a_heartbeat_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    monkeypatch.setitem(sys.modules, "cronsim", None)
    Runtime([worker.agent], store="memory", schedules=[beats()])
    with pytest.raises(MissingExtra, match="uv sync --extra schedules"):
        Runtime([worker.agent], store="memory", schedules=[cron()])


@pytest.mark.spec("P-16")
def test_defaults_are_those_of_the_contract() -> None:
    job = Cron("u", HOURLY, Worker().agent, "p")
    assert (job.timezone, job.misfire) == ("UTC", "latest")
    assert Heartbeat("a", ["t"]).interval == 1800
    assert msgspec.structs.fields(Cron)[0].name == "uid"
