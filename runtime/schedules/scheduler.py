"""``Scheduler``: fires schedules.

    one alarm, which looks at the clock for all schedules
        └──► a tick is due: a task ──► at work? ──► fire, or skip ──► wait for the next one

* A fire is one commit: ``schedule:fire``, what is sent to the run (which is opened with it if
  there is none), and the note that the tick is handled.  Whatever dies before it, nothing has
  happened; after it, the tick is never fired again.
* Ticks that passed while nothing ran, or while the machine slept, follow the schedule's misfire;
  where that is ``"all"``, ``Backlog`` says which those are.
* What is due when the clock was set is up to ``Past`` (see ``ticks``).
* Schedules do not wait for one another, and what one raises is logged and stops none.
* A schedule that waits is no task: a hundred thousand of them may.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, assert_never

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from msgspec.structs import replace

from hubbub.hub import events as e
from hubbub.hub.errors import Closed, StoreFailed
from hubbub.hub.events import Event
from hubbub.hub.logs import log
from hubbub.hub.store.journal import Commit, Delivery, RunInfo
from hubbub.hub.tasks.outermost import start_in
from hubbub.hub.values import encode_value
from hubbub.runtime.kernel.outcomes import Outcomes
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.schedules.alarm import MAX_NAP, Alarm
from hubbub.runtime.schedules.backlog import Backlog, Where
from hubbub.runtime.schedules.record import Overtaken, ScheduleRecord
from hubbub.runtime.schedules.removed import RemovedSchedule, outcome_of
from hubbub.runtime.schedules.schedule_run import ScheduleRun
from hubbub.runtime.schedules.schedules import (
    Cron,
    Heartbeat,
    KnownTicks,
    Schedule,
    agent_of,
    checked,
)
from hubbub.runtime.schedules.status import (
    NOTES,
    RUNNING,
    ScheduleNote,
    ScheduleStatus,
    is_first_seen,
    note_of,
    past_of,
    read_notes,
    schedule_statuses,
)
from hubbub.runtime.schedules.ticks import ON_TIME, Missed, Ticks

if TYPE_CHECKING:
    from anyio import TaskHandle

__all__ = ["Scheduler"]

MAX_CAUGHT_UP: Final = 1_000
"""Missed ticks that ``misfire="all"`` fires; older ones are skipped."""

ELSEWHERE: Final = 1.0
"""Seconds after which it is looked again what another process has come to."""


class Scheduler:
    """The schedules of one runtime; raises ``DefinitionError`` for what cannot be one."""

    def __init__(
        self, services: Services, outcomes: Outcomes, schedules: Iterable[Schedule]
    ) -> None:
        self._services = services
        self._outcomes = outcomes
        self._schedules = checked(schedules, self._check_prompt)
        self._task: TaskHandle[Any, None] | None = None

    def _check_prompt(self, agent: str, prompt: str) -> None:
        definition = self._services.definitions.agent(agent)
        if definition.is_code:
            self._services.catalog.input_of(definition)(encode_value("prompt", prompt))

    async def begin(self) -> None:
        """Take up every schedule where the journal says it was left.

        Of one that there is no more the last fire may be at work: its outcome is noted.
        """
        hub = self._services.hub
        now = hub.ports.clock.now()
        texts = await hub.journal.notes(NOTES)
        notes = read_notes(texts)
        given = {each.uid for each in self._schedules}

        def record(uid: str) -> ScheduleRecord:
            return ScheduleRecord(hub, uid, texts.get(f"{NOTES}{uid}", ""))

        removed = [
            RemovedSchedule(hub, self._outcomes, uid, note, record(uid))
            for uid, note in notes.items()
            if note.outcome == RUNNING and uid not in given
        ]
        alarm = Alarm(hub.ports.clock)
        ticks = KnownTicks()

        def serve(schedule: Schedule) -> _Served:
            uid = schedule.uid
            return _Served(
                self._services, self._outcomes, alarm, schedule, ticks.of(schedule),
                notes.get(uid), record(uid), now,
            )  # fmt: skip

        served = [serve(each) for each in self._schedules]
        if served or removed:
            self._task = hub.tasks.start(
                _run_all(alarm, served, removed), name="hubbub schedules", steady=True
            )

    def stop(self) -> None:
        """Fire nothing more; what was fired continues as any run does."""
        if self._task is not None:
            self._task.cancel()

    async def statuses(self) -> tuple[ScheduleStatus, ...]:
        hub = self._services.hub
        await hub.journal.flush()
        notes = await hub.journal.notes(NOTES)
        now = hub.ports.clock.now()
        # Off the loop: of a hundred thousand it takes seconds.
        return await hub.ports.offload.run(partial(schedule_statuses, notes, now, self._schedules))


async def _run_all(
    alarm: Alarm, served: Iterable["_Served"], removed: Sequence[RemovedSchedule]
) -> None:
    async with anyio.create_task_group() as group:
        for each in removed:
            start_in(group, each.run(), steady=True)
        start_in(group, alarm.run(), steady=True)
        for schedule in served:
            schedule.begin(group)
            await anyio.lowlevel.checkpoint()  # Others have their turn, however many there are.


class _Served:
    """One schedule that is served."""

    def __init__(
        self,
        services: Services,
        outcomes: Outcomes,
        alarm: Alarm,
        schedule: Schedule,
        ticks: Ticks,
        kept: ScheduleNote | None,
        record: ScheduleRecord,
        now: int,
    ) -> None:
        self._phase = services.phase
        self._outcomes = outcomes
        self._hub = services.hub
        self._clock = services.hub.ports.clock
        self._alarm = alarm
        self._schedule = schedule
        self._uid = schedule.uid
        self._agent = agent_of(schedule)
        self._run = ScheduleRun(services, schedule)
        self._record = record
        self._ticks = ticks
        note = kept or ScheduleNote()
        self._note = note_of(schedule, note)
        self._watching: anyio.CancelScope | None = None
        self._past = past_of(self._note, now)
        self._backlog = Backlog(now)
        planned = self._note.expression, self._note.timezone
        self._begins = is_first_seen(self._note) or (note.expression, note.timezone) != planned
        """Whether its time, as it is planned now, begins only here."""
        if self._begins and isinstance(schedule, Cron):  # What was never planned is not missed.
            self._past = replace(self._past, at=now, since=now)

    def begin(self, group: TaskGroup) -> None:
        """Serve for as long as the group is there."""
        self._group = group
        if self._begins:
            # Else one that is restarted often would never come to beat, and what a cron missed
            # before its first tick would be forgotten.
            if isinstance(self._schedule, Heartbeat):
                self._note = replace(self._note, since=self._past.at)
            self._write_note()
        if self._note.outcome == RUNNING:
            self._watch()
        self._go_on()

    def _go_on(self) -> None:
        start_in(self._group, self._serve(), steady=True)

    def _woken(self, coming: int | None) -> None:
        self._backlog.woken(coming, self._clock.now())
        self._go_on()

    async def _serve(self) -> None:
        """Handle what is due, and have the alarm call for the next tick."""
        while not self._hub.is_closed:
            try:
                self._record.check()
                now = self._look()
                due = self._ticks.due(self._past, now, keep=MAX_CAUGHT_UP + 1)
                if not due.ticks:
                    coming = self._ticks.coming(self._past)
                    self._alarm.call(self._past.at, coming, partial(self._woken, coming))
                    return
                await self._handle(due, now)
            except Overtaken:
                await self._read_again()
            except Exception as error:
                if isinstance(error, Closed) and self._phase.is_leaving:
                    return  # Woken as the runtime was left: the next boot goes on.
                log.error("schedule.failed", schedule=self._uid, exc_info=error)
                await self._clock.sleep(MAX_NAP)
                self._backlog.driven(self._clock.now())

    def _look(self) -> int:
        """What the clock shows; if it was set, where the schedule is now goes on record."""
        now = self._clock.now()
        self._backlog.looked(now)
        past = self._past.seen(now)
        if past != self._past:  # Else each restart would put a beat off.
            self._past = past
            self._write_note()
        return now

    # ── missed ticks ─────────────────────────────────────────────────────────────────────────

    async def _handle(self, due: Missed, now: int) -> None:
        """One tick that is due is fired; several, or one that is late, were missed."""
        misfire = self._schedule.misfire
        last, is_late = due.ticks[-1], now - due.ticks[-1] > ON_TIME
        if misfire == "all":
            await self._handle_each(due, now)
        elif misfire == "skip" and is_late:
            await self._skip(last, "missed", due.count)
        elif await self._run.at_work(self._note.run_id) is not None:
            await self._skip(last, "busy", due.count)
        else:
            await self._fire(last, due.ticks[:-1], due.count - 1)

    async def _handle_each(self, due: Missed, now: int) -> None:
        """Fire each tick, but for those that come while the run is at work."""
        run = await self._run.at_work(self._note.run_id)
        self._backlog.waited(now, self._clock.now())
        where: Where = "nowhere" if run is None else "here" if self._owns(run) else "elsewhere"
        match self._backlog.judge(due, now, where):
            case "make up":
                await self._make_up(due)
            case "fire":
                await self._fire(due.ticks[0])
            case "pass over":
                await self._skip(due.ticks[-1], "busy", due.count)
            case "wait briefly":
                assert run is not None
                left = due.ticks[0] + ON_TIME - now
                with anyio.move_on_after(left / 1_000_000):
                    await self._outcomes.result(run.run_id)
            case "wait":
                assert run is not None
                if await self._is_driven_elsewhere(run):
                    await self._pass_over_busy(run.run_id)
            case unknown:
                assert_never(unknown)

    async def _make_up(self, due: Missed) -> None:
        """Fire one missed tick after the other."""
        if len(due.ticks) > MAX_CAUGHT_UP:
            await self._skip(due.ticks[0], "missed", due.count - MAX_CAUGHT_UP)
        missed = self._backlog.missed(due)[-MAX_CAUGHT_UP:]
        is_free = await self._run.at_work(self._note.run_id) is None
        for tick in missed:
            while (run := await self._run.at_work(self._note.run_id)) is not None:
                if self._owns(run):
                    await self._outcomes.result(run.run_id)
                else:
                    await self._is_driven_elsewhere(run)
            if self._look() < tick:
                return  # The clock was set back: what is left is still to come.
            await self._fire(tick)
        self._backlog.made_up(len(missed) + (not is_free))

    def _owns(self, run: RunInfo) -> bool:
        return self._hub.share.owns(run.root_run_id)

    async def _is_driven_elsewhere(self, run: RunInfo) -> bool:
        """Wait until a run is free again; whether another process has driven it until then.

        Raises ``Overtaken`` as soon as another process has handled the tick.
        """
        while (now := await self._run.at_work(run.run_id)) is not None:
            if self._owns(now):
                # Until now nobody did, or somebody who has left what was due to others.
                self._backlog.driven(self._look())
                return False
            await self._record.check_unchanged()
            await self._clock.sleep(ELSEWHERE)
        return True

    async def _pass_over_busy(self, run_id: str) -> None:
        """Pass over what came while the last session was at work in another process."""
        began, ended = await self._run.last_session(run_id)
        now = self._look()
        self._backlog.driven(min(began, now))
        due = self._ticks.due(self._past, min(ended, now), keep=MAX_CAUGHT_UP + 1)
        if due.ticks and not self._backlog.missed(due):
            await self._skip(due.ticks[-1], "busy", due.count)

    # ── firing ───────────────────────────────────────────────────────────────────────────────

    async def _fire(self, tick: int, passed: tuple[int, ...] = (), count: int = 0) -> None:
        """Handle ``tick``, and ``count`` before it that are passed over."""
        live = await self._hub.journal.find(self._run.identity, "descriptor")
        is_anew = bool(live) and self._note.run_agent not in ("", self._agent)
        opening, message = self._run.mail(tick)
        deliveries = (opening,) if message is None else (opening, message)
        if is_anew:  # The schedule is another agent's now: it begins a run of its own.
            why = e.SessionClose(reason=f"the schedule {self._uid!r} has another agent now")
            deliveries = (self._hub.delivery(why, to=live[0]), *deliveries)
        run_id = live[0] if live and not is_anew else opening.to
        now = self._clock.now()
        fire = e.ScheduleFire(
            schedule=self._uid, tick=tick, at=now, run_id=run_id, root_run_id=run_id,
            agent=self._agent,
        )  # fmt: skip
        events: tuple[Event, ...] = (fire,)
        if count:
            events = (fire, self._skipped(passed[-1], "missed", count))
        self._stop_watching()
        self._handled(tick, leaps=count > 0)
        self._note = replace(
            self._note, fired_at=now, run_id=run_id, run_agent=self._agent, outcome=RUNNING,
            reason="", finished_at=0,
        )  # fmt: skip
        await self._commit(events, deliveries)
        self._fired(opening, deliveries[-1])

    def _fired(self, opening: Delivery, said: Delivery) -> None:
        """The fire is on record: see to its outcome."""
        if opening.run_ids and opening.run_ids[0] != self._note.run_id:
            # The run that was found had ended before the commit, which has opened another.
            self._note = replace(self._note, run_id=opening.run_ids[0])
        if said.outcome != "rejected":
            log.info("schedule.fired", schedule=self._uid, run_id=self._note.run_id)
            self._watch()
            return
        log.warning("schedule.rejected", schedule=self._uid, reason=said.reason)
        self._note = replace(
            self._note, outcome="rejected", reason=said.reason, finished_at=self._clock.now()
        )
        self._write_note()

    async def _skip(self, tick: int, reason: str, count: int) -> None:
        self._handled(tick, leaps=count > 1 or reason == "missed")
        await self._commit((self._skipped(tick, reason, count),))
        log.info("schedule.skipped", schedule=self._uid, reason=reason, count=count)

    def _skipped(self, tick: int, reason: str, count: int) -> e.ScheduleSkip:
        return e.ScheduleSkip(
            schedule=self._uid, tick=tick, reason=reason, count=count, agent=self._agent,
            at=self._clock.now(),
        )  # fmt: skip

    # ── the record ───────────────────────────────────────────────────────────────────────────

    def _handled(self, tick: int, *, leaps: bool) -> None:
        """Before it is on record, and whatever becomes of it: at most once is what is promised."""
        self._past = self._past.handled(tick, self._clock.now(), leaps=leaps)
        self._note = replace(self._note, last_tick=tick)

    async def _commit(self, events: Sequence[Event], deliveries: Sequence[Delivery] = ()) -> None:
        done = anyio.Event()
        commit = Commit(events=events, deliveries=deliveries)
        self._record.add_to(commit, self._as_text())
        commit.after = lambda _commit: done.set()
        since = self._clock.now()
        self._hub.pipeline.submit(commit)
        await done.wait()
        self._backlog.waited(since, self._clock.now())
        self._record.check(commit)
        if commit.error:
            raise StoreFailed(self._hub.journal.name, commit.error)

    def _write_note(self) -> None:
        self._record.write(self._as_text())

    async def _read_again(self) -> None:
        """Another process has handled a tick, or has noted what came of one."""
        self._stop_watching()
        self._note = note_of(self._schedule, await self._record.read())
        self._past = past_of(self._note, self._clock.now())
        if self._note.outcome == RUNNING:
            self._watch()

    def _as_text(self) -> str:
        past = self._past
        since = self._note.since if isinstance(self._schedule, Heartbeat) else past.since
        note = replace(self._note, at=past.at, since=since, spans=past.spans)
        return note.encoded()

    # ── what came of it ──────────────────────────────────────────────────────────────────────

    def _watch(self) -> None:
        """Note how the session ends that the last fire has caused."""
        self._stop_watching()
        self._watching = anyio.CancelScope()
        start_in(self._group, self._note_outcome(self._watching, self._note.run_id), steady=True)

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def _note_outcome(self, scope: anyio.CancelScope, run_id: str) -> None:
        with scope:
            found = await outcome_of(self._outcomes, self._uid, run_id)
            if found is None:
                return
            outcome, reason = found
            self._note = replace(
                self._note, outcome=outcome, reason=reason, finished_at=self._clock.now()
            )
            self._write_note()
