"""``ActivityTasks``: the activities of one model run that are under way.

    the loop names what is wanted ─► missing: started, in a task │ no longer wanted: cancelled
    one has finished              ─► its signal goes to the loop, and its task goes on with the next

What is cancelled may still return something: that is dropped, and what it emits, too.
"""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

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
from hubbub.hub.tasks.raised import is_contained
from hubbub.hub.tasks.stepped import stepped
from hubbub.runtime.activities.at_work import AtWork, CutOff, Performer
from hubbub.runtime.activities.perform import call_model, perform
from hubbub.runtime.activities.timeouts import timed_out, timeout_of
from hubbub.runtime.kernel.current_run import CURRENT_RUN
from hubbub.runtime.kernel.inline import InlineCaller
from hubbub.runtime.kernel.live import LiveModelRun
from hubbub.runtime.kernel.timers import Timer
from hubbub.runtime.runs.dependencies import RunDependencies

if TYPE_CHECKING:
    from anyio import TaskHandle

__all__ = ["ActivityTasks", "DrivenRun"]

BREATH: Final = 50
"""Activities that a task does in a row before others get their turn."""


class DrivenRun(Performer, LiveModelRun, Protocol):
    """The run whose activities these are."""

    signals: list[Signal]
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


class Ticket(Struct, eq=False):
    """An activity under way: its task and its timer."""

    handle: "TaskHandle[Any, None] | InlineCaller | None" = None
    timer: Timer | None = None
    asking: int = 0
    """How many people its tool waits for just now: its time does not pass meanwhile."""
    left: float = -1.0
    """The seconds that it has left then; none if there is no limit."""


class ActivityTasks(Struct, eq=False):
    """Starts, times and cancels activities."""

    shared: RunDependencies
    run: DrivenRun
    caller: InlineCaller | None
    running: dict[Activity, Ticket] = field(default_factory=dict)
    asking: int = 0
    """The turn for which the model is asked, 0 where it is not; ``SUMMARIZING``."""
    _inline: Ticket | None = None
    _next: Activity | None = None

    def ensure(self, activities: tuple[Activity, ...]) -> None:
        """Start what is missing, cancel what is no longer wanted."""
        running, lane = self.running, self.run.lane
        if running:
            for activity in [a for a in running if a not in activities]:
                self._stop(activity, cancel=True)
        if self.shared.services.phase.is_leaving:
            # The step at work may reach its end, calls included; no further one is begun.
            activities = tuple(a for a in activities if not isinstance(a, CallModel | Summarize))
            if not activities:
                self.shared.services.phase.progressed()
        for activity in activities:
            if activity in running or (lane.in_flight and self._must_wait(activity)):
                continue
            ticket = running[activity] = self._inline or Ticket()
            if isinstance(activity, CallModel):
                self.asking = activity.turn
            elif isinstance(activity, Summarize):
                self.asking = SUMMARIZING
            if self._inline is not None:
                # The task that has just finished an activity continues with this one.
                self._next, self._inline = activity, None
                continue
            work = self._work(activity, ticket)
            if self.caller is not None and self.caller.takes(work):
                ticket.handle = self.caller
            else:
                ticket.handle = self.shared.services.hub.tasks.start(work, name=lane.run_id)

    def _must_wait(self, activity: Activity) -> bool:
        """Whether the store must have what is on its way to it before ``activity`` begins.

        The model is asked again only when its last answer is on record, so that a crash costs one
        answer at most; and it is shown what a tool has just queued.
        """
        run = self.run
        return (
            run.is_careful
            or run.is_answer_under_way
            or needs_record(activity)
            or self.shared.services.hub.pipeline.is_mail_under_way(run.lane.run_id)
        )

    def close(self) -> None:
        """Cancel all of them, unrecorded."""
        for activity in tuple(self.running):
            self._stop(activity, cancel=True)

    async def _work(self, activity: Activity | None, ticket: Ticket) -> None:
        """A task: do one activity after another, as long as there is one to continue with."""
        run, running = self.run, self.running
        run_id = run.lane.run_id
        CURRENT_RUN.set(run_id)
        done = 0
        while activity is not None:
            try:
                if done and not done % BREATH:  # Others run too, however fast models and tools are.
                    await anyio.lowlevel.checkpoint()
                if running.get(activity) is not ticket:
                    return  # Called off before its first turn: it must not begin.
                # What never waits cannot take too long: its timer is set at its first wait.
                scope = _Work(self.shared, run, activity, ticket, self)
                signal = await stepped(
                    call_model(activity, scope)
                    if isinstance(activity, CallModel)
                    else perform(activity, scope),
                    on_wait=partial(self._set_timer, activity, ticket),
                )
            except CutOff:
                # It waits, as for another run, until the runtime is gone.
                with self.shared.outcomes.waiting(lambda: False):
                    await anyio.sleep_forever()
            except BaseException as error:
                if not is_contained(error):
                    raise
                if running.get(activity) is ticket:
                    self.shared.keeper.died(run, error)
                return
            if running.get(activity) is not ticket:
                log.info("result.dropped", run_id=run_id, activity=repr(activity)[:200])
                return
            del running[activity]  # ``_stop`` in place: each activity comes this way.
            if isinstance(activity, CallModel | Summarize):
                self.asking = 0
            if ticket.timer is not None:
                ticket.timer.cancel()
                ticket.timer = None
            self._inline, self._next = ticket, None
            run.signals.append(signal)
            run.advance()
            self._inline = None
            activity = self._next
            done += 1

    def _stop(self, activity: Activity, *, cancel: bool = False) -> None:
        ticket = self.running.pop(activity, None)
        if ticket is None:
            return
        if isinstance(activity, CallModel | Summarize):
            self.asking = 0
        if ticket.timer is not None:
            ticket.timer.cancel()
        if cancel and ticket.handle is not None:
            ticket.handle.cancel()

    def _set_timer(self, activity: Activity, ticket: Ticket) -> None:
        seconds = timeout_of(activity, self.run, self.shared.services)
        if seconds is not None and self.running.get(activity) is ticket:
            if ticket.asking:
                ticket.left = seconds
                return
            fire = partial(self._time_out, activity, seconds)
            ticket.timer = self.shared.services.timers.after(seconds, fire)

    def stop_timer(self, ticket: Ticket) -> None:
        """A tool begins to wait for a person."""
        ticket.asking += 1
        if ticket.timer is not None:
            now = self.shared.services.hub.ports.clock.monotonic()
            ticket.left = max(0.0, ticket.timer.due - now)
            ticket.timer.cancel()
            ticket.timer = None

    def resume_timer(self, activity: Activity, ticket: Ticket) -> None:
        """It waits for that one no more."""
        ticket.asking -= 1
        if not ticket.asking and ticket.left >= 0 and self.running.get(activity) is ticket:
            seconds = timeout_of(activity, self.run, self.shared.services) or 0.0
            fire = partial(self._time_out, activity, seconds)
            ticket.timer = self.shared.services.timers.after(ticket.left, fire)
            ticket.left = -1.0

    def _time_out(self, activity: Activity, seconds: float) -> None:
        if activity in self.running:
            self._stop(activity, cancel=True)
            self.run.signals.append(timed_out(activity, seconds, self.run, self.shared.services))
            self.run.advance()


class _Work(AtWork):
    """The scope of one activity (``RunScope``): void as soon as it is no longer wanted."""

    __slots__ = ("_activity", "_run", "_running", "_tasks", "_ticket", "lane")

    keeps_answers = True

    def __init__(
        self,
        shared: RunDependencies,
        run: DrivenRun,
        activity: Activity,
        ticket: Ticket,
        tasks: ActivityTasks,
    ) -> None:
        if run.side is None:
            raise UnknownAgent(run.thread.agent, shared.services.definitions.names)
        self.services = shared.services
        self.others = shared.others
        self.run = self._run = run
        self.side = run.side
        self.thread = run.thread
        self.work = self
        self._activity = activity
        self._ticket = ticket
        self._tasks = tasks
        self._running = tasks.running
        self.lane = run.lane

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """Inside, the call's time does not pass."""
        self._tasks.stop_timer(self._ticket)
        try:
            with super().standing_still():
                yield
        finally:
            self._tasks.resume_timer(self._activity, self._ticket)

    @property
    def is_live(self) -> bool:
        run, activity = self._run, self._activity
        if self._running.get(activity) is not self._ticket or run.thread.phase == "ended":
            return False
        # What has just been decided holds already, though the loop has not come to it yet.
        return not run.is_advancing or is_wanted(run.thread, activity)

    def write(self, event: Event, done: Callable[[], None] | None) -> None:
        self._run.write(event, done)

    def open_prompt(self, event: e.SessionPrompt) -> None:
        if self.is_live:
            self._run.record(event, None)

    def end_prompt(self, event: e.SessionPromptEnd) -> None:
        self._run.end_prompt(event)

    def read_inbox(self, *, for_handler: bool) -> Inbox:
        raise BadValue(
            "subscribe", "a model run takes its messages itself; observe them with rt.hub"
        )

    def host(self, work: Coroutine[Any, Any, None], name: str = "") -> None:
        raise AssertionError("no handler reads the inbox of a model run")

    def keep(self, subscription: Closable) -> None:
        self._run.keep(subscription)
