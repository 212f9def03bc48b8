"""``Activation``: a model run in memory, and the shell's one loop.

    ask the core what is due → take, start, conclude, park or leave → commit → dispatch → again

The loop is a plain function (``advance``): it runs when something arrived, something finished or
a commit is done, and stops where it must wait.  A run that waits is no task.  Activities run in
tasks; one that finishes goes on with the next activity itself.  What is no longer named by the
core is cancelled, and what it still returns is dropped: an interruption, a timeout and a
termination need no code of their own here.

``thread`` is the state with everything that has been submitted.  A store that takes its time is
not waited for where nothing depends on it: the model may be asked meanwhile.  But nobody hears of
what is not committed, and what has effects outside (``needs_record``) begins only when its record
is.  A run that was read from the journal waits for each of its records until it has got on by a
step: had it killed its process, that could be counted.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, assert_never

import anyio.lowlevel
from msgspec import structs

from hubbub.agents.definitions.built_in import INTERRUPT
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.state.family import NO_FAMILY
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.prompts import find_prompt
from hubbub.agents.state.thread import FAILURES, Outcome, Thread
from hubbub.agents.turn.decide import (
    Activity,
    CallModel,
    Conclude,
    Do,
    Kind,
    Leave,
    Lend,
    Park,
    Take,
    Wait,
    decide,
    is_wanted,
    needs_record,
)
from hubbub.agents.turn.hook_events import notices_of
from hubbub.agents.turn.interpret import interpret
from hubbub.agents.turn.signals import (
    Concluded,
    DeadlinePassed,
    FrameGone,
    LoopFailed,
    Parked,
    Signal,
    Taken,
)
from hubbub.hub import events as e
from hubbub.hub.delivery.inbox import Inbox
from hubbub.hub.errors import BadValue, UnknownAgent
from hubbub.hub.events import Event, InLane
from hubbub.hub.logs import log
from hubbub.hub.masking import words_of
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.run_hub import Closable, refuse_reserved
from hubbub.hub.store.journal import Commit, Delivery
from hubbub.hub.tasks.stepped import stepped
from hubbub.runtime.activities.perform import AtWork, perform, timed_out, timeout_of
from hubbub.runtime.kernel.current_run import CURRENT_RUN
from hubbub.runtime.kernel.inline import Caller
from hubbub.runtime.kernel.mailbox import KINDS, Mailbox
from hubbub.runtime.kernel.timers import Timer

if TYPE_CHECKING:
    from anyio import TaskHandle

    from hubbub.runtime.runtime import Runtime

__all__ = ["Activation"]

BREATH: Final = 50
"""Activities that a task does in a row before others get their turn."""

_RESERVED: Final = frozenset(
    event
    for event in e.CATALOGUE
    if event.home == "own" and event not in (e.AgentText, e.AgentStatus, e.AgentMessage)
) - {e.SessionPrompt, e.SessionPromptEnd}

_NOTHING: Final[frozenset[Kind]] = frozenset()
_MESSAGES: Final[frozenset[Kind]] = frozenset(("message",))
_RESULTS: Final[frozenset[Kind]] = frozenset(("result",))


class _Ticket:
    """An activity under way: its task and its timer."""

    __slots__ = ("handle", "timer")

    def __init__(self) -> None:
        self.handle: TaskHandle[Any, None] | Caller | None = None
        self.timer: Timer | None = None


class Activation:
    """One model run while it is in memory."""

    __slots__ = (
        "_advancing", "_after", "_asking", "_caller", "_inline", "_is_answer_under_way",
        "_is_careful", "_is_closed", "_kept", "_next", "_running", "_runtime", "_signals", "lane",
        "mail", "notices", "side", "thread",
    )  # fmt: skip

    def __init__(
        self,
        runtime: "Runtime",
        lane: OwnLane,
        thread: Thread,
        caller: Caller | None = None,
        *,
        is_careful: bool = False,
    ) -> None:
        self._runtime = runtime
        self._after: Thread | None = None
        """What the commit about to be submitted makes of the thread, if that is known."""
        self._is_careful = is_careful
        self._is_answer_under_way = False
        """Whether an answer of the model is on its way to the store."""
        self._caller = caller
        self.lane = lane
        self.thread = thread
        self.side: ActiveSide | None = runtime.definitions.find_side(
            thread.agent or lane.agent, thread.acts_as
        )
        """The side at work, its names resolved."""
        self.notices: deque[tuple[str, Any]] = deque()
        """What hooks have yet to be told of."""
        self.mail = Mailbox()
        self._signals: deque[Signal] = deque()
        self._running: dict[Activity, _Ticket] = {}
        self._advancing = False
        self._is_closed = False
        self._asking = 0
        self._inline: _Ticket | None = None
        self._next: Activity | None = None
        self._kept: list[Closable] = []

    # ── what arrives ─────────────────────────────────────────────────────────────────────────

    def wake(self, item: InLane) -> None:
        self.mail.put(item)
        self.advance()

    def waiting_items(self, kind: Kind) -> tuple[InLane, ...]:
        """The items of a kind that have not been taken."""
        return self.mail.waiting(kind, self._lent)

    def pass_deadline(self) -> None:
        """The run's time is over."""
        if self.mail.control:  # Its start may be among it.
            self._signals.append(self._taken("control"))
        self._finish(DeadlinePassed())

    def doom(self, error: Exception) -> None:
        """End the run: it cannot go on.  What waits is not handled."""
        self._runtime.remember_error(self.lane.run_id, error)
        if self.mail.control:
            self._signals.append(self._taken("control"))
        words = self._runtime.runs.masker(self.lane.run_id)(words_of(error))
        self._finish(LoopFailed(words, type(error).__name__))

    def restore(self, signal: Signal) -> None:
        """Begin where the journal left off."""
        self._finish(signal)

    @property
    def is_at_boundary(self) -> bool:
        """Whether no activity is under way, and none is about to be."""
        return not (self._running or self._signals or self.lane.in_flight)

    @property
    def depth(self) -> int:
        """How far below its root the run is."""
        return self.thread.origin.depth

    @property
    def side_at_work(self) -> str:
        """The side that acts, where there are two; else empty."""
        return self.thread.side if self.thread.two_sided else ""

    @property
    def is_idle(self) -> bool:
        """Whether the run only waits for its children: it may leave memory meanwhile."""
        return self._only_waits and not self._lends

    @property
    def only_lends(self) -> bool:
        """Whether it only waits, too, but must be there: what was said is for whoever has the
        conversation, which is found through this run."""
        return self._only_waits and self._lends

    @property
    def _only_waits(self) -> bool:
        is_wanted = self.mail.control or self.mail.results
        return self.thread.waits and self.is_at_boundary and not is_wanted

    @property
    def _lends(self) -> bool:
        thread = self.thread
        return bool(self.mail.said) and thread.frame is not None and not thread.origin.frame

    # ── the loop ─────────────────────────────────────────────────────────────────────────────

    def advance(self, commit: Commit | None = None) -> None:
        """Do what is due until there is something to wait for; also called after a commit."""
        if commit is not None:
            if not self.lane.in_flight:
                self._is_answer_under_way = False
            family = self.thread.family
            if commit.error or self.notices or self._is_careful or family is not NO_FAMILY:
                self._recorded(commit)
        if self._advancing or self._is_closed:
            return
        self._advancing = True
        mail, frame = self.mail, ""
        try:
            while not self._is_closed:
                if mail.kept or self.thread.family.undecided:
                    mail.keep(self.thread.family.undecided)
                waits = bool(mail.control) | bool(mail.results) << 1
                if mail.messages:
                    waits |= 4 | mail.said
                if self.thread.origin.frame and (lent := self._lent) is not None:
                    waits |= lent.lends
                waiting = KINDS[waits]
                if self._signals:
                    self._signal(self._signals.popleft(), waiting)
                    continue
                side = self.side
                command = decide(
                    self.thread, waiting, self._asking, notices=bool(self.notices),
                    hears=_NOTHING if side is None or not side.may_hook else self._heard(side),
                )  # fmt: skip
                match command:
                    case Take(kind=kind):
                        self._signal(self._taken(kind), waiting - {kind})
                    case Do(activities=activities):
                        self._ensure(activities)
                        return
                    case Wait():
                        self._ensure(())
                        self._runtime.runs.waits(self)
                        return
                    case Lend(frame_run_id=frame):
                        self._ensure(())
                        self._runtime.runs.waits(self)
                        break
                    case Conclude():
                        self._signal(Concluded(), waiting)
                    case Park():
                        self._ensure(())
                        self._signal(Parked(), waiting)
                    case Leave():
                        self._ensure(())
                        if not self.lane.in_flight:
                            self._leave()
                        return
                    case _:
                        assert_never(command)
        except Exception as error:
            self._runtime.runs.died(self, error)
        finally:
            self._advancing = False
        # Not before: what the frame does may come back to this run at once.
        if frame and (gone := self._runtime.runs.lend(frame)):
            self._finish(FrameGone(frame, gone, self.mail.take("back", self._lent)))

    @property
    def _lent(self) -> Mailbox | None:
        """The mailbox of the conversation, while this frame has it."""
        return self._runtime.runs.lent_to(self) if self.thread.origin.frame else None

    def _taken(self, kind: Kind) -> Taken:
        items = self.mail.take(kind, self._lent if self.thread.origin.frame else None)
        trees = self._runtime.trees
        return Taken(items, trees.rooms.get(self.lane.root_run_id, trees.fresh))

    def _received(self, signal: Taken) -> None:
        """Hooks have seen these items; now they are no longer waiting."""
        self.mail.remove(signal.items)
        if (lent := self._lent) is not None:
            lent.remove(signal.items)

    def _signal(self, signal: Signal, waiting: frozenset[Kind]) -> None:
        """Commit what the core makes of ``signal``, while such items wait."""
        mail = self.mail
        if signal.__class__ is Taken and (mail.control or mail.results or mail.messages):
            self._received(signal)
        if mail.kept:  # What the end of a call lets go of is still to be told.
            waiting = waiting | _RESULTS
        decision = interpret(self.thread, signal, self._runtime.definitions, waiting)
        if not decision.events:
            return
        self._after = decision.after
        after: Callable[[Commit], None] = self.advance
        for event in decision.events:
            if event.__class__ is e.SessionDropped:
                after = partial(self._dropped, event)
        self.lane.append(
            decision.events,
            taken=decision.taken,
            deliveries=self._runtime.deliveries(decision.mail, self.lane) if decision.mail else (),
            status=decision.status,
            agent=decision.agent,
            lent=decision.lent,
            leave_to=decision.leave_to,
            fold=self._fold,
            after=after,
        )

    def _dropped(self, event: e.SessionDropped, commit: Commit) -> None:
        self._runtime.runs.withheld.tell_dropped(event, commit)
        self.advance(commit)

    def _fold(self, commit: Commit) -> None:
        """A commit is about to be submitted: what it says holds from here on."""
        after, self._after = self._after, None
        before = self.thread
        self.thread = thread = fold_all(before, commit.events) if after is None else after
        if thread.step != before.step or thread.attempt != before.attempt:
            self._is_answer_under_way = True
        side = self.side
        if side is None or thread.agent != side.agent or thread.acts_as != side.acts_as:
            self._find_side()
        if side is not None and INTERRUPT in side.offered:
            self._runtime.pauses.follow(before, thread, commit)
        if before.prompts is not thread.prompts:
            for event in commit.events:
                if isinstance(event, e.SessionPromptEnd):
                    # No reply is accepted from here on, in the same breath.
                    self._runtime.hub.prompts.end(event.prompt_id, event.reason)
        if side is not None and side.hooks:
            self.notices += notices_of(before, thread, commit.events, side.hooks)
        if thread.origin.reports and thread.status != before.status:
            self._runtime.runs.set_status(self.lane, thread)
        last = thread.outcome
        if last is not before.outcome and last is not None and last.outcome in FAILURES:
            self._tell_failure(before.outcome, last)
        if self._is_careful and self._runtime.runs.trials.turn == self.lane.run_id:
            self._runtime.runs.trials.mark(commit)

    def _tell_failure(self, before: Outcome | None, last: Outcome) -> None:
        """A session or run that has failed says so, once, where anybody may see it."""
        is_ended = self.thread.phase == "ended"
        if is_ended and before is not None and before.session == last.session:
            return  # The run ends as its session did.
        log.error(
            "run.failed", run_id=self.lane.run_id, agent=self.lane.agent, outcome=last.outcome,
            reason=last.reason,
        )  # fmt: skip

    def _recorded(self, commit: Commit) -> None:
        """A commit is done: what waited for that."""
        if commit.error:
            self._runtime.runs.refused(self, commit)
            return
        thread = self.thread
        if self._is_careful:
            self._is_careful = thread.restarts > 0
            if not self._is_careful or any(x.__class__ is e.SessionPrompt for x in commit.events):
                self._runtime.runs.got_on(self.lane.run_id)
        if self.notices and thread.phase == "ended":
            self._runtime.changed(self.lane.run_id)  # Hooks hold up nobody who waits for the end.
        if thread.family.deferred or thread.family.booted or thread.family.starts:
            self._runtime.runs.forget_unstarted(commit.events)

    def _heard(self, side: ActiveSide) -> frozenset[Kind]:
        """What hooks are to see before it is taken: messages, and results that answer calls."""
        messages = side
        if side.two_sided and side.name != self.thread.origin.receives:
            messages = self.receiving_side(side)
        hears = _MESSAGES if "before_create_message" in messages.hooks else _NOTHING
        return hears | _RESULTS if side.hooks_results else hears

    def receiving_side(self, side: ActiveSide) -> ActiveSide:
        """The side that messages are for, and the opening where the run is new."""
        origin = self.thread.origin
        which = "side_a" if self.thread.phase == "new" else origin.receives
        return self._runtime.definitions.find_side(side.agent, which) or side

    def _find_side(self) -> None:
        thread = self.thread
        self.side = self._runtime.definitions.find_side(
            thread.agent or self.lane.agent, thread.acts_as
        )

    def _leave(self) -> None:
        self.close()
        self._runtime.runs.left(self)

    # ── activities ───────────────────────────────────────────────────────────────────────────

    def _ensure(self, activities: tuple[Activity, ...]) -> None:
        """Start what is missing, cancel what is no longer wanted."""
        running = self._running
        if running:
            for activity in [a for a in running if a not in activities]:
                self._stop(activity, cancel=True)
        if self._runtime.is_leaving:
            # The step at work may reach its end, calls included; no further one is begun.
            activities = tuple(a for a in activities if not isinstance(a, CallModel))
            if not activities:
                self._runtime.progressed()
        for activity in activities:
            if activity in running or (self.lane.in_flight and self._must_wait(activity)):
                continue
            ticket = running[activity] = self._inline or _Ticket()
            if isinstance(activity, CallModel):
                self._asking = activity.turn
            if self._inline is not None:
                # The task that has just finished an activity goes on with this one.
                self._next, self._inline = activity, None
                continue
            work = self._work(activity, ticket)
            if self._caller is not None and self._caller.is_free:
                ticket.handle = self._caller
                self._caller.start(work)
            else:
                ticket.handle = self._runtime.hub.tasks.start(work, name=self.lane.run_id)

    def _must_wait(self, activity: Activity) -> bool:
        """Whether the store must have what is on its way to it before ``activity`` begins.

        The model is asked again only when its last answer is on record, so that a crash costs one
        answer at most; and it is shown what a tool has just queued.
        """
        return (
            self._is_careful
            or self._is_answer_under_way
            or needs_record(activity)
            or self._runtime.hub.pipeline.is_mail_under_way(self.lane.run_id)
        )

    def _set_timer(self, activity: Activity, ticket: _Ticket) -> None:
        seconds = timeout_of(activity, self.side)
        if seconds is not None and self._running.get(activity) is ticket:
            fire = partial(self._time_out, activity, seconds)
            ticket.timer = self._runtime.timers.after(seconds, fire)

    async def _work(self, activity: Activity | None, ticket: _Ticket) -> None:
        """A task: do one activity after another, as long as there is one to go on with."""
        CURRENT_RUN.set(self.lane.run_id)
        done = 0
        while activity is not None:
            if self._running.get(activity) is not ticket:
                return  # Called off before its first turn: it must not begin.
            try:
                # What never waits cannot take too long: its timer is set at its first wait.
                work = perform(activity, _Work(self._runtime, self, activity, ticket))
                signal = await stepped(work, on_wait=partial(self._set_timer, activity, ticket))
            except Exception as error:
                if self._running.get(activity) is ticket:
                    self._runtime.runs.died(self, error)
                return
            if self._running.get(activity) is not ticket:
                log.info("result.dropped", run_id=self.lane.run_id, activity=repr(activity)[:200])
                return
            self._stop(activity)
            ticket.timer = None
            self._inline, self._next = ticket, None
            self._signals.append(signal)
            self.advance()
            self._inline = None
            activity = self._next
            done += 1
            if not done % BREATH:  # Others run too, however fast models and tools are.
                await anyio.lowlevel.checkpoint()

    def _finish(self, signal: Signal) -> None:
        # Interpreted by the loop, against a state in which every earlier commit is folded.
        self._signals.append(signal)
        self.advance()

    def _stop(self, activity: Activity, *, cancel: bool = False) -> None:
        ticket = self._running.pop(activity, None)
        if ticket is None:
            return
        if isinstance(activity, CallModel):
            self._asking = 0
        if ticket.timer is not None:
            ticket.timer.cancel()
        if cancel and ticket.handle is not None:
            ticket.handle.cancel()

    def _time_out(self, activity: Activity, seconds: float) -> None:
        if activity in self._running:
            self._stop(activity, cancel=True)
            self._finish(timed_out(activity, seconds))

    def close(self) -> None:
        """Cancel everything that runs, unrecorded, and end the run's subscriptions; for good."""
        self._is_closed = True
        for activity in tuple(self._running):
            self._stop(activity, cancel=True)
        for subscription in self._kept:
            subscription.close()
        self._kept.clear()

    # ── what tools may do ────────────────────────────────────────────────────────────────────

    def write(self, event: Event, done: Callable[[], None] | None) -> None:
        """Write an event of a tool's into the own lane."""
        refuse_reserved(event, _RESERVED)
        if isinstance(event, e.AgentText):
            event = structs.replace(event, step=0)
        self.record(event, done)

    def end_prompt(self, event: e.SessionPromptEnd) -> None:
        """Whoever asked asks no longer; where the run has ended the prompt, that is known."""
        if not self._is_closed and find_prompt(self.thread.prompts, event.prompt_id) is not None:
            self.record(event, None)

    def record(self, event: Event, done: Callable[[], None] | None) -> None:
        """Write an event of the runtime's own on a tool's behalf."""

        def after(commit: Commit) -> None:
            if done is not None:
                done()
            self.advance(commit)

        self.lane.append((event,), fold=self._fold, after=after)

    def append_child(self, event: e.AgentChild, delivery: Delivery) -> None:
        """Write that a child was started, together with its start."""
        self.lane.append((event,), deliveries=(delivery,), fold=self._fold, after=self.advance)

    def outlived_restart(self) -> None:
        """Write, after a restart, that all there is to do has come as far as to wait."""
        if self._is_careful and self._runtime.runs.waiting_in(self.lane.run_id) >= len(
            self._running
        ):
            self.record(e.AgentPark(waits=True), None)

    def keep(self, subscription: Closable) -> None:
        self._kept.append(subscription)


class _Work(AtWork):
    """The scope of one activity (``RunScope``): void as soon as it is no longer wanted."""

    __slots__ = ("_activity", "_run", "_ticket", "lane")

    def __init__(
        self, runtime: "Runtime", run: Activation, activity: Activity, ticket: _Ticket
    ) -> None:
        if run.side is None:
            raise UnknownAgent(run.thread.agent, runtime.definitions.names)
        self.runtime = runtime
        self.run = self._run = run
        self.side = run.side
        self.thread = run.thread
        self.work = self
        self._activity = activity
        self._ticket = ticket
        self.lane = run.lane

    @property
    def is_live(self) -> bool:
        run = self._run
        if run._running.get(self._activity) is not self._ticket or run.thread.phase == "ended":
            return False
        # What has just been decided holds already, though the loop has not come to it yet.
        return not run._advancing or is_wanted(run.thread, self._activity)

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
