"""``CodeRun``: the run of a code agent, a function in a task of its own.

What may be written when is decided in ``hubbub.agents.code.lifecycle``; here the function is
called, its inbox is kept and its end is committed.
"""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Final

import anyio

from hubbub.agents.code.lifecycle import (
    CodeThread,
    Reply,
    admit,
    child_endings,
    completion,
    ends_question,
    fold_code,
    lost_questions,
    opening,
    refusal_of_restart,
    report,
    result_as_message,
    start_if_missing,
    unused,
)  # fmt: skip
from hubbub.agents.code.reserved import RESERVED
from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.tools import alone
from hubbub.agents.frames.activation import activated_in
from hubbub.agents.state.prompts import find_prompt
from hubbub.hub import events as e
from hubbub.hub.errors import CallerError, Closed
from hubbub.hub.events import Event, InLane, OutcomeName, SessionMessage
from hubbub.hub.logs import log
from hubbub.hub.masking import Masker, class_name_of, words_of
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.run_hub import Closable, refuse_reserved
from hubbub.hub.store.journal import Commit, Delivery
from hubbub.hub.tasks.light import Cancellable
from hubbub.hub.tasks.raised import is_contained, is_of
from hubbub.hub.values import NULL, Json, encode_value
from hubbub.runtime.activities.environment import Environment
from hubbub.runtime.kernel.current_run import CURRENT_RUN
from hubbub.runtime.kernel.deliveries import deliveries_of
from hubbub.runtime.remembered.snapshots import RECORDS, offer_snapshot
from hubbub.runtime.runs.context import RunContext
from hubbub.runtime.runs.dependencies import RunDependencies
from hubbub.runtime.runs.durable_steps import DurableSteps
from hubbub.runtime.runs.earlier import Earlier
from hubbub.runtime.runs.inbox import InboxReader, RunInbox
from hubbub.runtime.runs.told_failures import tell_code_failure

if TYPE_CHECKING:
    from anyio import TaskHandle

__all__ = ["CodeRun"]


_NOT_GIVEN_AWAY: Final = "only a tool of a model agent gives the conversation away"


class CodeRun:
    """One code run while its function runs."""

    __slots__ = (
        "_due", "_early", "_handle", "_hosted", "_inbox", "_is_restored", "_keeper", "_kept",
        "_lingers", "_seen", "_step", "_steps", "definition", "is_over", "lane",
        "services", "shared", "thread",
    )  # fmt: skip

    only_lends: ClassVar[bool] = False
    side_at_work: ClassVar[str] = ""
    """Code has no frames, and no sides."""

    def __init__(
        self,
        shared: RunDependencies,
        definition: AgentDefinition,
        lane: OwnLane,
        thread: CodeThread,
    ) -> None:
        self.shared, self.services, self._keeper = shared, shared.services, shared.keeper
        self.definition, self.lane, self.thread = definition, lane, thread
        shared.prompts.found(lane, thread.prompts)
        self._steps = DurableSteps(self, thread, resumes=definition.on_restart == "resume")
        self._inbox = RunInbox(self)
        self._seen = self._step = 0
        self._due = lane.seq + RECORDS
        """How many events its lane has when a snapshot is to be offered."""
        self._handle: Cancellable | None = None
        self._lingers: anyio.Event | None = None
        self._early: list[Reply] | None = None if thread.opened is None else []
        self.is_over = self._is_restored = False
        """``_is_restored``: it has begun after a restart, and has not got anywhere yet."""
        self._kept: list[Closable] | None = None
        self._hosted: list[TaskHandle[Any, None]] | None = None
        """The handlers that read the inbox."""

    # ── what arrives ─────────────────────────────────────────────────────────────────────────

    def wake(self, item: InLane) -> None:
        """Take control and results at once; keep messages for the agent to read."""
        if item.seq <= self._seen or self.is_over:
            return
        self._seen = item.seq
        match item:
            case SessionMessage():
                self._inbox.put(item)
            case e.SessionResult() if not item.only_ends:
                self._inbox.put(result_as_message(item))
            case e.SessionOpen():
                emits = self.definition.emits_start_complete
                self._append(opening(item, emits_start=emits), taken=(item,))
            case e.SessionReply() | e.SessionTimer():
                self._put_reply(item)
            case e.SessionTerminate():
                self.end("terminated", reason=item.reason, taken=(item,))
            case e.SessionAbort():
                self.end("interrupted", reason=item.reason or "interrupted", taken=(item,))
            case e.SessionClose():
                self._append((e.SessionTaken(items=(item,)),), taken=(item,))
                self._inbox.notify()
            case _:
                self._append((unused(item),), taken=(item,))

    def _put_reply(self, item: Reply) -> None:
        if self._early is not None:  # After a restart control comes first.
            self._early.append(item)
            return
        events = ends_question(self.thread, item, is_running=self._handle is not None)
        self._append(events, taken=(item,))

    def meet_limits(self) -> None:
        """Its conversations with models ask before each step."""

    def pass_deadline(self) -> None:
        self.end("timed_out", reason="the run's time is over")

    @property
    def is_at_work(self) -> bool:
        """Whether the agent has begun and is not over."""
        return self.thread.opened is not None and not self.is_over

    def reader(self) -> tuple[object | None, bool]:
        """What reads the messages, and whether it awaits the next one."""
        return self._inbox.reader_now()

    @property
    def depth(self) -> int:
        """How far below its root the run is."""
        return self.thread.depth

    def is_at_rest(self, waits: int) -> bool:
        """Whether the agent waits for a message, a person or another run, or is done."""
        if self._handle is None:  # Who waits for its end learns of it when it is on record.
            return not (self.is_over and self.lane.in_flight)
        return self._inbox.is_awaited or bool(self.thread.prompts) or waits > 0

    # ── running ──────────────────────────────────────────────────────────────────────────────

    def resume(self, cause: str, events: Sequence[Event] | None) -> None:
        """Go on after a crash: end the run, or record a further attempt.

        The function is called when that is on record: had it killed its process, that is counted.
        ``events`` are the whole lane, where that was read.
        """
        thread = self.thread
        failure = refusal_of_restart(
            self.thread, self.definition.on_restart, cause, self.services.max_crashes
        )
        if failure is not None:
            if thread.calls:
                self._append(thread.calls)
            self.end("failed", reason=failure.error, failure=failure)
            return
        restore = e.AgentRestore(attempt=self.thread.attempt + 1, reason=cause)
        self._is_restored = True
        lost = (*lost_questions(thread), *thread.calls)
        written = (*start_if_missing(thread), restore, *lost)
        # What is in the inbox already is what the earlier executions have not consumed.
        self._steps.earlier = self._inbox.earlier = Earlier(self, thread, events)
        self._append(written, fold=self._keeper.mark_trial, after=lambda _: self.begin())
        early, self._early = self._early, None
        for item in early or ():
            self._put_reply(item)

    def begin(self) -> None:
        """Call the function, in a task of its own."""
        if not self.is_over:
            self._handle = self.services.hub.tasks.start_light(self._run, self.lane.run_id)

    async def _run(self, scope: AbstractContextManager[Any, Any]) -> None:
        with scope:
            CURRENT_RUN.set(self.lane.run_id)
            self._steps.begin()
            context = RunContext(self, self._steps, self._inbox)
            try:
                opened = self.thread.opened
                assert opened is not None and self.definition.execute is not None
                execute = self.services.catalog.code_of(self.definition)
                encoded = encode_value("output", await execute(opened.input_json, context))
            except BaseException as error:
                self.services.hub.tasks.home.end_forked(error)
                if activated_in(error) is not None:
                    self._raised(CallerError(f"ChildActivated: {_NOT_GIVEN_AWAY}"))
                elif is_contained(error):
                    self._raised(alone(error))
                elif (passed := self.services.hub.tasks.contained(error)) is not None:
                    raise passed from None
            else:
                self.services.returns.keep_output(self.lane.run_id, encoded)
                self._steps.finish()
                self._handle = None  # There is nothing to cancel.
                self.end("completed", output=encoded, taken=self._inbox.finish())
            finally:
                self._handle = None
                if self._lingers is not None:
                    self.services.returns.linger(self.lane.run_id, None)
                    self._lingers.set()
                    self._cancel()
                self.services.phase.progressed()

    def _raised(self, error: BaseException) -> None:
        if is_of(error, Closed) and self.services.phase.is_leaving:
            return  # The hub closed under the agent: the next boot continues.
        if is_of(error, Exception):  # Of others its caller would be ended, too.
            self.services.returns.keep_error(self.lane.run_id, error)
        mask = self.masker()
        kind, words = mask(class_name_of(error)), words_of(error)
        if self.is_over:
            log.info("error.dropped", run_id=self.lane.run_id, error=kind)
            return
        failure = e.AgentFailed(error=mask(words, 2000), error_type=kind)
        reason = mask(f"{kind}: {words}", 2000)
        self.end("failed", reason=reason, failure=failure, exc_info=mask.error(error))

    def masker(self) -> Masker:
        """What is said of a failure goes through it."""
        return Environment.of(self.services, self.lane, None).masker(None)

    def secrets(self) -> frozenset[str]:
        """The values that nothing said of the run's failures may quote."""
        return Environment.of(self.services, self.lane, None).secrets(None)

    def end(
        self,
        outcome: OutcomeName,
        *,
        reason: str = "",
        output: Json = NULL,
        failure: e.AgentFailed | None = None,
        taken: tuple[InLane, ...] = (),
        **shown: BaseException,
    ) -> None:
        """Write the terminal event, first come first served, and cancel what still runs."""
        if self.is_over or self.services.phase.is_gone:
            return
        self.is_over = True
        events = completion(self.thread, outcome, reason=reason, output=output, failure=failure)
        if taken:
            events = (e.SessionTaken(items=taken), *events)
        awaited = self.shared.families.awaited_by_code(self.lane.run_id)
        mail = child_endings(self.thread, outcome, self.lane.run_id, awaited)
        self._append(events, taken=taken, ends=True, mail=mail)
        tell_code_failure(self.lane, self.thread, **shown)

    def open_prompt(self, event: e.SessionPrompt) -> None:
        if self.is_live:
            self.record(event, None)
            self.services.phase.progressed()

    def end_prompt(self, event: e.SessionPromptEnd) -> None:
        if self.is_live and find_prompt(self.thread.prompts, event.prompt_id) is not None:
            self.record(event, None)

    def record(self, event: Event, done: Callable[[], None] | None, *deliveries: Delivery) -> None:
        """Write an event of the runtime's own on the agent's behalf."""
        after = None if done is None else (lambda _commit: done())
        self.lane.append(
            (*start_if_missing(self.thread), event), deliveries=deliveries, status="active",
            fold=lambda commit: self._fold(commit.events),  # Since when a prompt waits is stamped.
            before=self._committed, after=after,
        )  # fmt: skip

    def _append(
        self,
        events: tuple[Event, ...],
        *,
        taken: tuple[InLane, ...] = (),
        ends: bool = False,
        mail: tuple[tuple[str, InLane], ...] = (),
        fold: Callable[[Commit], None] | None = None,
        after: Callable[[Commit], None] | None = None,
    ) -> None:
        # Folded at once, ahead of the commit: the store may refuse it only when this run has
        # been lost to another owner, or terminated before it ended; then nothing it thinks matters
        # any more, and it is read again.
        self._fold(events)
        ends = ends or self.thread.phase == "ended"
        if ends and self.thread.ending is not None:
            mail = (*mail, *report(self.thread, self.thread.ending))
        self.is_over = self.is_over or ends
        self.lane.append(
            events, taken=[item.seq for item in taken],
            deliveries=deliveries_of(mail, self.lane, self.services) if mail else (),
            status="ended" if ends else "active", fold=fold, before=self._committed,
            after=self._ended if ends else after,
        )  # fmt: skip

    def _fold(self, events: Iterable[Event]) -> None:
        before, limits, accounts = self.thread.prompts, self.thread.limits, self.services.accounts
        for event in events:
            self.thread = fold_code(self.thread, event)
        if accounts.by_root or self.thread.limits is not limits:
            accounts.follow(self.lane, limits, self.thread)
        if before is not self.thread.prompts:
            after, is_over = self.thread.prompts, self.thread.phase == "ended"
            self.shared.prompts.follow(self.lane, events, before, after, is_with_run=is_over)

    def _committed(self, commit: Commit) -> None:
        if self.shared.prompts.under_way:
            self.shared.prompts.recorded(commit)
        for event in commit.events:
            if event.__class__ is e.SessionDropped:
                self._keeper.report_dropped(event, commit)
        if commit.error:
            self.is_over = True
            self.close()
            self._keeper.refused(self, commit)
        elif self._is_restored:
            self._is_restored = not self.thread.has_progressed
            asks = any(isinstance(event, e.SessionPrompt) for event in commit.events)
            if asks or not self._is_restored:
                self._keeper.progressed(self.lane.run_id)
        if self.lane.seq >= self._due and not commit.error:
            self._due = offer_snapshot(self.services.hub.journal, self.lane, self.thread)

    def left_unread(self, error: Exception) -> None:
        """What is on record of the run cannot be read: it is left as it is."""
        if self.is_live:
            self._keeper.unreadable(self, error)

    def _ended(self, commit: Commit) -> None:
        self.close()
        self._keeper.left(self)

    def close(self) -> None:
        """Cancel the function, unrecorded, and end the run's subscriptions."""
        self.is_over = True
        self._cancel()
        self._end_subscriptions()

    def outlived_restart(self) -> None:
        """Write, once after a restart, that it has come as far as to wait."""
        if self.thread.restarts and not self.is_over:
            self._append((e.AgentPark(),))

    def _cancel(self) -> None:
        for handle in (self._handle, *(self._hosted or ())):
            if handle is not None:
                handle.cancel()

    def _end_subscriptions(self) -> None:
        kept, self._kept = self._kept, None
        for subscription in kept or ():
            subscription.close()
        self._inbox.notify()

    # ── what the agent may do (RunScope) ─────────────────────────────────────────────────────

    @property
    def is_live(self) -> bool:
        return not self.is_over and not self.services.phase.is_gone

    def write(self, event: Event, done: Any) -> None:
        refuse_reserved(event, RESERVED)
        events = admit(self.thread, event)
        if not events:
            log.info("event.dropped", run_id=self.lane.run_id, event_type=event.type)
            if done is not None:
                done()
            return
        self._fold(events)
        self.is_over = ends = self.thread.phase == "ended"
        if ends:
            tell_code_failure(self.lane, self.thread)

        def after(commit: Commit) -> None:
            if done is not None:
                done()
            if ends:
                self._ended_by_agent()

        mail = report(self.thread, self.thread.ending) if self.thread.ending is not None else ()
        self.lane.append(
            events,
            deliveries=deliveries_of(mail, self.lane, self.services) if mail else (),
            status="ended" if ends else None,
            before=self._committed,
            after=after if ends or done is not None else None,
        )

    def _ended_by_agent(self) -> None:
        # Its function may still return or raise to its caller; nothing else of it counts.
        self._end_subscriptions()
        if self._handle is not None:
            self._lingers = anyio.Event()
            self.services.returns.linger(self.lane.run_id, self)
        self._keeper.left(self)

    async def wait_function(self) -> None:
        """Return when the function of a run that has said it is over has ended, too."""
        if self._lingers is not None:
            await self._lingers.wait()

    def append_child(self, event: e.AgentChild, delivery: Delivery) -> None:
        """Write that a child was started, together with its start."""
        self.record(event, None, delivery)

    def read_inbox(self, *, for_handler: bool) -> InboxReader:
        return self._inbox.read(for_handler=for_handler)

    def host(self, work: Coroutine[Any, Any, None], name: str = "") -> None:
        self._hosted = [*(self._hosted or ()), self.services.hub.tasks.start(work, name=name)]

    def consume(self, item: SessionMessage) -> None:
        """Record that the agent has consumed a message."""
        if self.is_over or self.services.phase.is_gone:
            return
        self._fold(events := (e.SessionTaken(items=(item,)),))
        self.lane.append(events, taken=(item.seq,), status="active", before=self._committed)

    def number_step(self) -> int:
        """The number of the next model step: no two of the run have the same."""
        self._step = max(self._step, self.thread.step) + 1
        return self._step

    def keep(self, subscription: Closable) -> None:
        self._kept = self._kept or []
        self._kept.append(subscription)

    # ── waiting ──────────────────────────────────────────────────────────────────────────────

    def will_wait(self) -> None:
        """The agent is about to wait for a message."""
        self.outlived_restart()
        self.services.phase.progressed()
