"""``ActivityTasks``: the activities of one model run that are under way.

    the loop names what is wanted ─► missing: started, in a task │ no longer wanted: cancelled
    one has finished              ─► its signal goes to the loop, and its task goes on with the next

What is cancelled may still return something: that is dropped, and what it emits, too.
"""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

import anyio.lowlevel
from msgspec import Struct, field

from hubbub.agents.turn.decide import (
    SUMMARIZING,
    Activity,
    CallModel,
    Summarize,
    is_wanted,
    needs_record,
)
from hubbub.agents.turn.signals import Signal
from hubbub.hub import events as e
from hubbub.hub.delivery.inbox import Inbox
from hubbub.hub.errors import BadValue, UnknownAgent
from hubbub.hub.events import Event
from hubbub.hub.logs import log
from hubbub.hub.run_hub import Closable
from hubbub.hub.tasks.light import Cancellable
from hubbub.hub.tasks.raised import is_contained, is_of
from hubbub.hub.tasks.stepped import in_turn
from hubbub.runtime.activities.at_work import AtWork, CutOff, Performer
from hubbub.runtime.activities.perform import call_model, perform
from hubbub.runtime.activities.timeouts import timed_out, timeout_of
from hubbub.runtime.kernel.current_run import CURRENT_RUN
from hubbub.runtime.kernel.inline import InlineCaller
from hubbub.runtime.kernel.live import LiveModelRun
from hubbub.runtime.kernel.timers import Timer
from hubbub.runtime.runs.dependencies import RunDependencies

__all__ = ["ActivityTasks", "DrivenRun"]

BREATH: Final = 50
"""Activities that a task does in a row before others get their turn."""


class DrivenRun(Performer, LiveModelRun, Protocol):
    """The run whose activities these are."""

    signals: tuple[Signal, ...]
    """What has finished, for the loop to interpret: against a state in which every earlier commit
    is folded."""
    is_advancing: bool
    """Whether the loop is at work just now."""
    is_careful: bool
    """Whether each record is waited for."""
    is_answer_under_way: bool
    """Whether an answer of the model is on its way to the store."""

    def write(self, event: Event, done: Callable[[], None] | None) -> None: ...

    def end_prompt(self, event: e.SessionPromptEnd) -> None: ...

    def keep(self, subscription: Closable) -> None: ...


class ActivityTasks(Struct, eq=False):
    """Starts, times and cancels activities.

    Who runs them is not kept: a run that has left memory is to be gone, not garbage.
    """

    shared: RunDependencies
    caller: InlineCaller | None
    running: "dict[Activity, Ticket]" = field(default_factory=dict)
    asking: int = 0
    """The turn for which the model is asked, 0 where it is not; ``SUMMARIZING``."""
    inline: "Ticket | None" = None
    """Whose task has just finished an activity, and continues with the one that is due."""

    def ensure(self, run: DrivenRun, activities: tuple[Activity, ...]) -> None:
        """Start what is missing, cancel what is no longer wanted."""
        running, lane = self.running, run.lane
        if running:
            for activity in [a for a in running if a not in activities]:
                self.stop(activity)
        if self.shared.services.phase.is_leaving:
            # The step at work may reach its end, calls included; no further one is begun.
            activities = tuple(a for a in activities if not isinstance(a, CallModel | Summarize))
            if not activities:
                self.shared.services.phase.progressed()
        for activity in activities:
            if activity in running or (lane.in_flight and self._must_wait(run, activity)):
                continue
            if isinstance(activity, CallModel):
                self.asking = activity.turn
            elif isinstance(activity, Summarize):
                self.asking = SUMMARIZING
            if (ticket := self.inline) is not None:
                # The task that has just finished an activity continues with this one.
                running[activity], self.inline = ticket, None
                ticket.activity, ticket.is_wanted = activity, True
                continue
            ticket = running[activity] = Ticket(self, run, activity)
            if self.caller is not None and self.caller.takes(ticket):
                ticket.handle = self.caller
            else:
                tasks = self.shared.services.hub.tasks
                ticket.handle = tasks.start_light(ticket.in_task, lane.run_id)

    def _must_wait(self, run: DrivenRun, activity: Activity) -> bool:
        """Whether the store must have what is on its way to it before ``activity`` begins.

        The model is asked again only when its last answer is on record, so that a crash costs one
        answer at most; and it is shown what a tool has just queued.
        """
        return (
            run.is_careful
            or run.is_answer_under_way
            or needs_record(activity)
            or self.shared.services.hub.pipeline.is_mail_under_way(run.lane.run_id)
        )

    def close(self) -> None:
        """Cancel all of them, unrecorded."""
        for activity in tuple(self.running):
            self.stop(activity)

    def stop(self, activity: Activity) -> None:
        """Cancel one of them, unrecorded."""
        ticket = self.running.pop(activity, None)
        if ticket is None:
            return
        ticket.is_wanted = False
        if isinstance(activity, CallModel | Summarize):
            self.asking = 0
        if ticket.timer is not None:
            ticket.timer.cancel()
        if ticket.handle is not None:
            ticket.handle.cancel()


class Ticket(Struct, eq=False):
    """A task that does one activity after another, as long as there is one to continue with
    (``in_turn``): what it does now, and the timer of that."""

    tasks: ActivityTasks
    run: DrivenRun
    activity: Activity | None
    is_wanted: bool = True
    """Whether that is under way; else it has been called off."""
    handle: Cancellable | None = None
    timer: Timer | None = None
    seconds: float = 0.0
    """How long that is set for, in all."""
    done: int = 0
    """How many activities it has done."""
    is_between: bool = True
    """Whether what it does now is no activity."""
    is_cut_off: bool = False
    """Whether the runtime is left, as its tool has learnt."""
    asking: int = 0
    """How many people its tool waits for just now: its time does not pass meanwhile."""
    left: float = -1.0
    """The seconds that it has left then; none if there is no limit."""

    async def in_task(self, scope: AbstractContextManager[Any, Any]) -> None:
        """Do them in a task of their own."""
        with scope:
            try:
                await in_turn(self)
            except BaseException as error:
                passed = self.tasks.shared.services.hub.tasks.contained(error)
                if passed is not None:
                    raise passed from None

    def go_on(self, value: Any) -> Coroutine[Any, Any, Any] | None:
        activity, tasks, run = self.activity, self.tasks, self.run
        if (home := tasks.shared.services.hub.tasks.home).is_forked:
            home.end_forked()
        if self.is_between:
            if self.is_cut_off:
                return self._cut_off()
            CURRENT_RUN.set(run.lane.run_id)
        elif activity is not None:
            if not self.is_wanted:
                log.info("result.dropped", run_id=run.lane.run_id, activity=repr(activity)[:200])
                return None
            del tasks.running[activity]  # ``stop`` in place: each activity comes this way.
            if isinstance(activity, CallModel | Summarize):
                tasks.asking = 0
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None
            self.activity, tasks.inline = None, self
            self.done += 1
            run.signals += (value,)
            run.advance()
            tasks.inline, activity = None, self.activity
            if activity is not None and not self.done % BREATH:
                # Others run too, however fast models and tools are.
                self.is_between = True
                return anyio.lowlevel.checkpoint()
        if activity is None or not self.is_wanted:
            return None  # Called off before its first turn: it must not begin.
        self.is_between = False
        try:
            scope = _Scope(tasks.shared, run, activity, self)
        except UnknownAgent as error:
            self.failed(error)
            return None
        if isinstance(activity, CallModel):
            return call_model(activity, scope)
        return perform(activity, scope)

    def failed(self, error: BaseException) -> bool:
        activity, tasks = self.activity, self.tasks
        tasks.shared.services.hub.tasks.home.end_forked(error)
        if is_of(error, CutOff):
            self.is_cut_off = self.is_between = True
            return True
        self.is_cut_off, self.activity = False, None
        if not is_contained(error):
            return False
        if activity is not None and self.is_wanted:
            tasks.shared.keeper.died(self.run, error)
        return True

    async def _cut_off(self) -> None:
        """It waits, as for another run, until the runtime is gone."""
        with self.tasks.shared.outcomes.waiting(lambda: False):
            await anyio.sleep_forever()

    # ── its time ─────────────────────────────────────────────────────────────────────────────

    def waits(self) -> None:
        # What never waits cannot take too long: its timer is set at its first wait.
        activity, tasks = self.activity, self.tasks
        if activity is None or self.is_between:
            return
        seconds = timeout_of(activity, self.run, tasks.shared.services)
        if seconds is not None and self.is_wanted:
            self.seconds = seconds
            self._set_timer(seconds)

    def _set_timer(self, seconds: float) -> None:
        if self.asking:
            self.left = seconds
        else:
            self.timer = self.tasks.shared.services.timers.after(seconds, self)

    def __call__(self) -> None:
        """Its time is over."""
        activity, tasks, run = self.activity, self.tasks, self.run
        if activity is not None and self.is_wanted:
            tasks.stop(activity)
            run.signals += (timed_out(activity, self.seconds, run, tasks.shared.services),)
            run.advance()

    def stop_timer(self) -> None:
        """A tool begins to wait for a person."""
        self.asking += 1
        if self.timer is not None:
            now = self.tasks.shared.services.hub.ports.clock.monotonic()
            self.left = max(0.0, self.timer.due - now)
            self.timer.cancel()
            self.timer = None

    def resume_timer(self, activity: Activity) -> None:
        """It waits for that one no more."""
        self.asking -= 1
        is_under_way = self.is_wanted and self.activity is activity
        if not self.asking and self.left >= 0 and is_under_way:
            seconds, self.left = self.left, -1.0
            self._set_timer(seconds)


class _Scope(AtWork):
    """The scope of one activity (``RunScope``): void as soon as it is no longer wanted."""

    __slots__ = ("_activity", "_ticket", "lane")

    keeps_answers = True
    run: DrivenRun

    def __init__(
        self, shared: RunDependencies, run: DrivenRun, activity: Activity, ticket: Ticket
    ) -> None:
        if run.side is None:
            raise UnknownAgent(run.thread.agent, shared.services.definitions.names)
        self.services = shared.services
        self.others = shared.others
        self.run = run
        self.side = run.side
        self.thread = run.thread
        self._activity = activity
        self._ticket = ticket
        self.lane = run.lane

    @property
    def work(self) -> "_Scope":
        return self  # Not kept: it would be garbage afterwards.

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Inside, the call's time does not pass."""
        self._ticket.stop_timer()
        try:
            with super().standing_still():
                yield
        finally:
            self._ticket.resume_timer(self._activity)

    @property
    def is_live(self) -> bool:
        run, activity, ticket = self.run, self._activity, self._ticket
        if ticket.activity is not activity or not ticket.is_wanted or run.thread.phase == "ended":
            return False
        # What has just been decided holds already, though the loop has not come to it yet.
        return not run.is_advancing or is_wanted(run.thread, activity)

    def write(self, event: Event, done: Callable[[], None] | None) -> None:
        self.run.write(event, done)

    def open_prompt(self, event: e.SessionPrompt) -> None:
        if self.is_live:
            self.run.record(event, None)

    def end_prompt(self, event: e.SessionPromptEnd) -> None:
        self.run.end_prompt(event)

    def read_inbox(self, *, for_handler: bool) -> Inbox:
        raise BadValue(
            "subscribe", "a model run takes its messages itself; observe them with rt.hub"
        )

    def host(self, work: Coroutine[Any, Any, None], name: str = "") -> None:
        raise AssertionError("no handler reads the inbox of a model run")

    def keep(self, subscription: Closable) -> None:
        self.run.keep(subscription)
