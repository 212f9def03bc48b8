"""``ModelRun``: a model run in memory, and the shell's one loop.

    ask the core what is due → take, start, conclude, park or leave → commit → dispatch → again

The loop is a plain function (``advance``): it runs when something arrived, something finished or
a commit is done, and stops where it must wait.  A run that waits is no task.  Activities run in
tasks; one that finishes continues with the next activity itself.  What is no longer named by the
core is cancelled, and what it still returns is dropped: an interruption, a timeout and a
termination need no code of their own here.

``thread`` is the state with everything that has been submitted.  A store that takes its time is
not waited for where nothing depends on it: the model may be asked meanwhile.  But nobody learns of
what is not committed, and what has effects outside (``needs_record``) begins only when its record
is.  A run that was read from the journal waits for each of its records until it has made progress
by a step: had it killed its process, that could be counted.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, assert_never

from msgspec import structs

from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.state.compactions import NO_COMPACTIONS
from hubbub.agents.state.context_limit import NO_LIMIT
from hubbub.agents.state.family import NO_FAMILY
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.prompts import find_prompt
from hubbub.agents.state.thread import FAILURES, Thread
from hubbub.agents.turn.decide import (
    AwaitChildren,
    Conclude,
    Do,
    EndByLimit,
    Kind,
    Leave,
    Lend,
    Park,
    Take,
    decide,
)
from hubbub.agents.turn.hook_events import hook_events_of
from hubbub.agents.turn.interpret import interpret
from hubbub.agents.turn.signals import (
    CAME_BACK,
    PARKED,
    Concluded,
    DeadlinePassed,
    FrameUnavailable,
    LimitReached,
    LoopFailed,
    Signal,
    Taken,
)
from hubbub.hub import events as e
from hubbub.hub.events import NO_USAGE, Event, InLane
from hubbub.hub.masking import class_name_of, words_of
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.run_hub import Closable, refuse_reserved
from hubbub.hub.store.journal import Commit, Delivery
from hubbub.runtime.activities.environment import Environment
from hubbub.runtime.activities.summaries import limit_of
from hubbub.runtime.kernel.deliveries import deliveries_of
from hubbub.runtime.kernel.inline import InlineCaller
from hubbub.runtime.kernel.mailbox import ANSWER, KINDS, SAID, Mailbox
from hubbub.runtime.remembered.snapshots import RECORDS, offer_snapshot
from hubbub.runtime.runs.activity_tasks import ActivityTasks
from hubbub.runtime.runs.dependencies import RunDependencies
from hubbub.runtime.runs.resting import NO_HOOK_EVENTS, Resting, with_hook_events
from hubbub.runtime.runs.run_meter import RunMeter
from hubbub.runtime.runs.told_failures import tell_failure

__all__ = ["ModelRun"]

_RESERVED: Final = frozenset(
    event
    for event in e.CATALOGUE
    if event.home == "own" and event not in (e.AgentText, e.AgentStatus, e.AgentMessage)
) - {e.SessionPrompt, e.SessionPromptEnd}

_NOTHING: Final[frozenset[Kind]] = frozenset()
_MESSAGES: Final[frozenset[Kind]] = frozenset(("message",))
_RESULTS: Final[frozenset[Kind]] = frozenset(("result",))


class ModelRun(Resting):
    """One model run while it is in memory."""

    __slots__ = (
        "_after", "_conversations", "_definitions", "_due", "_is_closed", "_keeper", "_kept",
        "_limit", "_meter", "_services", "_shared", "_tasks", "hook_events", "is_advancing",
        "is_answer_under_way", "is_careful", "lane", "mail", "side", "signals", "thread",
    )  # fmt: skip

    def __init__(
        self,
        shared: RunDependencies,
        lane: OwnLane,
        thread: Thread,
        caller: InlineCaller | None = None,
        *,
        is_careful: bool = False,
    ) -> None:
        self._shared = shared
        self._services = shared.services
        self._definitions = shared.services.servers.definitions
        if thread.tools or thread.rewritten is not None:
            self._definitions = self._definitions.of_run(thread.tools, thread.rewritten)
        self._keeper = shared.keeper
        self._conversations = shared.conversations
        self._after: Thread | None = None
        """What the commit about to be submitted makes of the thread, if that is known."""
        self.is_careful = is_careful
        self.is_answer_under_way = False
        """Whether an answer of the model, or its summary, is on its way to the store."""
        self.lane = lane
        self.thread = thread
        if thread.prompts:
            shared.prompts.found(lane, thread.prompts, thread.acts_as)
        self.side: ActiveSide | None = self._definitions.sides.get(
            (thread.agent or lane.agent, thread.acts_as)
        )
        """The side at work, its names resolved."""
        self._limit = NO_LIMIT
        if thread.total_usage is not NO_USAGE or thread.compactions is not NO_COMPACTIONS:
            self._limit = limit_of(thread, self.side, self._services, lane.ancestors)
        accounts, root = self._services.accounts, lane.root_run_id
        self._meter: RunMeter | None = None
        """What the run may use, where that is limited."""
        if accounts.limited or accounts.default is not None or root in accounts.by_root:
            self.meet_limits(is_here=False)
        self.hook_events = NO_HOOK_EVENTS
        """What hooks have yet to see."""
        self.mail = Mailbox()
        self._due = lane.seq + RECORDS
        self.signals: tuple[Signal, ...] = ()
        self._tasks = ActivityTasks(shared, caller)
        self.is_advancing = self._is_closed = False
        self._kept: tuple[Closable, ...] = ()

    # ── what arrives ─────────────────────────────────────────────────────────────────────────

    def wake(self, item: InLane) -> None:
        self.mail.put(item)
        self.advance()

    def waiting_items(self, kind: Kind) -> tuple[InLane, ...]:
        """The items of a kind that have not been taken."""
        return self.mail.waiting(kind, self._lent, self.thread.prompts)

    def pass_deadline(self) -> None:
        """The run's time is over."""
        if self.mail.control:  # Its start may be among it.
            self.signals += (self._taken("control"),)
        self._finish(DeadlinePassed())

    def fail_for_good(self, error: Exception) -> None:
        """End the run: it cannot continue.  What waits is not handled."""
        self._services.returns.keep_error(self.lane.run_id, error)
        if self.mail.control:
            self.signals += (self._taken("control"),)
        mask = self._keeper.masker(self.lane.run_id)
        self._finish(LoopFailed(mask(words_of(error)), mask(class_name_of(error))))

    def meet_limits(self, *, is_here: bool = True) -> None:
        """Limits may have come, or changed, of a run that ``is_here`` or has just come back."""
        agent, services = self.thread.agent or self.lane.agent, self._services
        if self._meter is not None:
            self._meter.look()
        elif services.accounts.limits(agent, self.lane):
            self._meter = RunMeter(self, services, is_here=is_here)

    def reach_limit(self, limit: str) -> None:
        """The time of what is under way is over."""
        if not self._is_closed:
            self._finish(LimitReached(limit, self.thread.turn))

    def restore(self, signal: Signal = CAME_BACK) -> None:
        """Begin where the journal left off."""
        if signal is not CAME_BACK or self.thread.prompts:
            self.signals += (signal,)
        self.advance()

    def secrets(self) -> frozenset[str]:
        """The values that nothing said of the run's failures may quote."""
        return Environment.of(self._services, self.lane, self.side).secrets(self.side)

    # ── the loop ─────────────────────────────────────────────────────────────────────────────

    def advance(self, commit: Commit | None = None) -> None:
        """Do what is due until there is something to wait for; also called after a commit."""
        if commit is not None:
            self.is_answer_under_way &= self.lane.in_flight > 0
            is_due = self.lane.seq >= self._due or self.thread.family is not NO_FAMILY
            if commit.error or self.hook_events or self.is_careful or is_due:
                self._recorded(commit)
        if self.is_advancing or self._is_closed:
            return
        self.is_advancing, mail, frame = True, self.mail, ""
        try:
            while not self._is_closed:
                if mail.kept or self.thread.family.undecided:
                    mail.keep(self.thread.family.undecided)
                waits = bool(mail.control) | (4 | mail.said if mail.messages else 0)
                waits |= mail.awaited(self.thread.prompts) if mail.results else 0
                if self.thread.origin.frame and (lent := self._lent) is not None:
                    waits |= lent.lends
                if waits & SAID and self.lane.root_run_id in self._shared.prompts.by_root:
                    waits |= ANSWER * bool(self._answer())
                waiting = KINDS[waits]
                if self.signals:
                    signal, self.signals = self.signals[0], self.signals[1:]
                    self._signal(signal, waiting)
                    continue
                command = decide(
                    self.thread, waiting, self._tasks.asking, hook_events=bool(self.hook_events),
                    hooked=self._hooked(at) if (at := self.side) and at.may_hook else _NOTHING,
                    limit=self._limit, used_up="" if self._meter is None else self._meter.used_up(),
                )  # fmt: skip
                match command:
                    case Take(kind=kind):
                        self._signal(self._taken(kind), waiting - {kind})
                    case Do(activities=activities):
                        self._tasks.ensure(self, activities)
                        return
                    case AwaitChildren() | Lend():
                        self._tasks.ensure(self, ())
                        self._keeper.waits(self.lane.run_id)
                        frame = command.frame_run_id if isinstance(command, Lend) else ""
                        break
                    case EndByLimit(limit=name):
                        self._signal(LimitReached(name, self.thread.turn), waiting)
                    case Conclude():
                        self._signal(Concluded(), waiting)
                    case Park():
                        self._tasks.ensure(self, ())
                        self._signal(self._rest() if self._services.turns.kept else PARKED, waiting)
                    case Leave():
                        self._leave()
                        return
                    case _:
                        assert_never(command)
        except Exception as error:
            self._keeper.died(self, error)
        finally:
            self.is_advancing = False
        # Not before: what the frame does may come back to this run at once.
        if frame and (gone := self._conversations.lend(frame)):
            self._finish(FrameUnavailable(frame, gone, self.mail.take("back", self._lent)))

    def _answer(self) -> tuple[InLane, ...]:
        """What was said first of what answers a person's prompt, here or below."""
        return self._shared.prompts.first_answer(self.lane, self.waiting_items("said"))

    @property
    def _lent(self) -> Mailbox | None:
        """The mailbox of the conversation, while this frame has it."""
        is_frame = self.thread.origin.frame
        return self._conversations.lent_to(self.lane, self.thread) if is_frame else None

    def _taken(self, kind: Kind) -> Taken:
        budgets, prompts = self._services.budgets, self.thread.prompts
        lent = self._lent if self.thread.origin.frame else None
        items = self._answer() if kind == "answer" else self.mail.take(kind, lent, prompts)
        return Taken(items, budgets.by_root.get(self.lane.root_run_id, budgets.fresh))

    def _received(self, signal: Taken) -> None:
        """Hooks may have seen these items; now they are no longer waiting."""
        self.mail.remove(signal.items)
        if self.thread.origin.frame:
            self._conversations.note_taken(self.lane, signal.items)

    def _signal(self, signal: Signal, waiting: frozenset[Kind]) -> None:
        """Commit what the core makes of ``signal``, while such items wait."""
        mail, lends = self.mail, self.thread.origin.frame
        if signal.__class__ is Taken and (mail.messages or mail.results or mail.control or lends):
            self._received(signal)
        if mail.kept:  # What the end of a call releases is still to be told.
            waiting = waiting | _RESULTS
        if signal.__class__ is Taken and self.lane.root_run_id in self._shared.prompts.by_root:
            signal = self._shared.prompts.with_replies(self.lane, self.thread, signal)
        decision = interpret(self.thread, signal, self._definitions, waiting)
        if not decision.events:
            return
        self._after = decision.after
        after: Callable[[Commit], None] = self.advance
        for event in decision.events:
            if event.__class__ is e.SessionDropped:
                after = partial(self._dropped, event)
        sent = deliveries_of(decision.mail, self.lane, self._services) if decision.mail else ()
        self.lane.append(
            decision.events, taken=decision.taken, deliveries=sent, status=decision.status,
            agent=decision.agent, lent=decision.lent, leave_to=decision.leave_to,
            again=decision.again, fold=self._fold, after=after,
        )  # fmt: skip

    def _dropped(self, event: e.SessionDropped, commit: Commit) -> None:
        self._keeper.report_dropped(event, commit)
        self.advance(commit)

    def _fold(self, commit: Commit) -> None:
        """A commit is about to be submitted: what it says holds from here on."""
        after, self._after = self._after, None
        before = self.thread
        self.thread = thread = fold_all(before, commit.events) if after is None else after
        if (
            thread.step != before.step
            or thread.attempt != before.attempt
            or thread.compactions is not before.compactions
        ):
            self.is_answer_under_way = True
        side = self.side
        if thread.tools is not before.tools or thread.rewritten is not before.rewritten:
            self.listed_side()
        elif side is None or thread.agent != side.agent or thread.acts_as != side.acts_as:
            self._find_side()
        if thread.total_usage is not NO_USAGE or thread.compactions is not NO_COMPACTIONS:
            self._limit = limit_of(thread, self.side, self._services, self.lane.ancestors)
        accounts = self._services.accounts
        if thread.limits is not before.limits or accounts.by_root or self._meter is not None:
            accounts.follow(self.lane, before.limits, thread)
            if self._meter is not None:
                self._meter.follow(before, thread, commit)
        if before.prompts is not thread.prompts:
            self._shared.prompts.follow(
                self.lane, commit.events, before.prompts, thread.prompts, thread.acts_as, commit
            )
        if side is not None and side.hooks:
            new = hook_events_of(before, thread, commit.events, side.hooks)
            self.hook_events = with_hook_events(self.hook_events, new)
        if thread.origin.reports and thread.status != before.status:
            self._shared.families.set_status(self.lane, thread)
        last = thread.outcome
        if last is not before.outcome and last is not None and last.outcome in FAILURES:
            tell_failure(self.lane, thread, before.outcome)
        if self.is_careful:
            self._keeper.mark_trial(commit)

    def _recorded(self, commit: Commit) -> None:
        """A commit is done: what waited for that."""
        if commit.error:
            self._keeper.refused(self, commit)
            return
        thread = self.thread
        if self.is_careful:
            self.is_careful = thread.restarts > 0
            if not self.is_careful or any(x.__class__ is e.SessionPrompt for x in commit.events):
                self._keeper.progressed(self.lane.run_id)
        if self.hook_events and thread.phase == "ended":
            # Hooks hold up nobody who waits for the end.
            self._shared.outcomes.changed(self.lane.run_id)
        if thread.family.deferred or thread.family.booted or thread.family.starts:
            self._shared.families.forget_unstarted(commit.events)
        if self.lane.seq >= self._due:
            self._due = offer_snapshot(self._services.hub.journal, self.lane, thread)

    def _hooked(self, side: ActiveSide) -> frozenset[Kind]:
        """What hooks are to see before it is taken: messages, and results that answer calls."""
        messages = side
        if side.two_sided and side.name != self.thread.origin.receives:
            messages = self.receiving_side(side)
        hooked = _MESSAGES if "before_create_message" in messages.hooks else _NOTHING
        return hooked | _RESULTS if side.hooks_results else hooked

    def receiving_side(self, side: ActiveSide) -> ActiveSide:
        """The side that messages are for, and the opening where the run is new."""
        origin = self.thread.origin
        which = "side_a" if self.thread.phase == "new" else origin.receives
        return self._definitions.find_side(side.agent, which) or side

    def listed_side(self) -> ActiveSide | None:
        """The side with the tools that its servers list now; they hold until the next step."""
        listed, thread = self._services.servers.definitions, self.thread
        self._definitions = listed.of_run(thread.tools, thread.rewritten)
        self._find_side()
        return self.side

    def _find_side(self) -> None:
        thread = self.thread
        self.side = self._definitions.find_side(thread.agent or self.lane.agent, thread.acts_as)
        if self._services.accounts.limited and self._meter is None:
            self.meet_limits()

    def _leave(self) -> None:
        """Leave memory as soon as the store has everything."""
        if self._tasks.running or self._services.phase.is_leaving:
            self._tasks.ensure(self, ())
        if not self.lane.in_flight:
            self.close()
            self._keeper.left(self)

    def _finish(self, signal: Signal) -> None:
        # Interpreted by the loop, against a state in which every earlier commit is folded.
        self.signals += (signal,)
        self.advance()

    def close(self) -> None:
        """Cancel everything that runs, unrecorded, and end the run's subscriptions; permanently."""
        self._is_closed = True
        if self._meter is not None:
            self._meter.close()
        if self._tasks.running:
            self._tasks.close()
        for subscription in self._kept:
            subscription.close()
        self._kept = ()

    # ── what tools may do ────────────────────────────────────────────────────────────────────

    def write(self, event: Event, done: Callable[[], None] | None) -> None:
        """Write an event of a tool's into the own lane."""
        refuse_reserved(event, _RESERVED)
        if isinstance(event, e.AgentText):
            event = structs.replace(event, step=0)
        self.record(event, done)

    def end_prompt(self, event: e.SessionPromptEnd) -> None:
        """The asker no longer waits; no-op where the run has ended the prompt."""
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
        running = len(self._tasks.running)
        if self.is_careful and self._keeper.waiting_in(self.lane.run_id) >= running:
            self.record(e.AgentPark(waits=True), None)

    def keep(self, subscription: Closable) -> None:
        self._kept += (subscription,)
