"""``Pipeline``: the way of everything that happens and everything that is said.

    emit ─────► record ──► submit ──► the store ──► committed ──► dispatch ──► who listens
    deliver ──► address ──────┘                          │            └──────► the owner of runs
    emit_ephemeral ───────────────── nothing uncommitted ┼────────────┘
                                                         └► receipts, dead letters, ended prompts

* ``submit`` hands a commit to the store, which calls ``committed`` in the order of submission.
* ``committed`` settles what the commit said: its receipt first, then one dispatch of all that it
  wrote, of the letters for what nobody will handle, and of the ephemeral events that waited for
  it; then the prompts of a run that ended; then the ``after`` of who submitted it.
* Everything here acts at the call and awaits nothing.

A run's own lane (``own_lane``), prompts, the scope of a run and the runtime submit here; ``Hub``
is the documented face.
"""

from collections.abc import Callable, Sequence
from functools import partial
from threading import get_ident
from typing import Any, Final, Protocol, TypeAlias

from msgspec import structs

from hubbub.hub.addressing import ARGUMENTS, Addressing
from hubbub.hub.delivery import scope
from hubbub.hub.delivery.contents import Contents, ContentsUnderWay
from hubbub.hub.delivery.dead_letters import dead_letter_of, unhandled
from hubbub.hub.delivery.dispatch import MAX_NESTED, Dispatcher
from hubbub.hub.delivery.interruption import settle_interruption
from hubbub.hub.delivery.pending_prompt import ANSWERED
from hubbub.hub.errors import Closed, LimitExceeded, ReservedEvent
from hubbub.hub.events import (
    CustomEvent,
    Event,
    HubDeadLetter,
    HubErrorEvent,
    InLane,
    SessionAbort,
    SessionMessage,
    SessionOpen,
    SessionReply,
    SessionResult,
    SessionTerminate,
    SessionTimer,
    SessionVariables,
)
from hubbub.hub.events.codec import check_event, check_texts
from hubbub.hub.events.event import ending_words, home_of
from hubbub.hub.events.sent_items import as_sent
from hubbub.hub.home_loop import running_loop
from hubbub.hub.logs import log
from hubbub.hub.ports import Ports
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.cursor import cursor_behind, cursor_of
from hubbub.hub.store.journal import OVERTAKEN, Commit, Journal, RefusalOfFiles, RequestKey
from hubbub.hub.store.journal import Addressing as By
from hubbub.hub.task_host import TaskHost
from hubbub.hub.texts import check_label
from hubbub.hub.values import Secret

__all__ = ["OpenPrompts", "Pipeline"]

MAX_TRAILING: Final = 10_000
"""Ephemeral events of one run that may wait for one commit; further ones are dropped."""


class OpenPrompts(Protocol):
    """The prompts of a hub, as the pipeline knows them."""

    def reply(self, reply: SessionReply) -> Receipt:
        """Answer one."""
        ...

    def stopping(self, run_id: str, why: str) -> Callable[[], None]:
        """A run (without an id: every one) is being stopped; returns what to call when it is."""
        ...

    def run_ended(self, run_id: str) -> None:
        """A run is over, on record."""
        ...


class Pipeline:
    """Emits, submits, commits and dispatches, in one order.

    It belongs to the event loop that opened the hub (``home``), and from ``close`` on accepts
    nothing.
    """

    __slots__ = (
        "_dispatch", "_mail_under_way", "_tasks", "_uncommitted", "_unwatch", "addressing",
        "contents", "dispatcher", "home", "in_flight", "is_closed", "journal", "ports", "prompts",
    )  # fmt: skip

    def __init__(self, journal: Journal, ports: Ports, tasks: TaskHost, max_inbox: int) -> None:
        self.journal, self.ports = journal, ports
        self.home, self._tasks = tasks.home, tasks
        self.addressing = Addressing(ports, max_inbox)
        self.contents = ContentsUnderWay(journal, ports.blobs, tasks)
        self.dispatcher = Dispatcher(journal, ports, tasks)
        self.prompts: OpenPrompts
        """Set by who composes: prompts themselves go through the pipeline."""
        self.is_closed = False
        self.in_flight = 0
        """Commits that the store has yet to write or refuse."""
        self._dispatch = self.dispatcher.dispatch
        self._uncommitted = self.dispatcher.answers.uncommitted
        """The last commit about each run (``Commit.about``) that the store has."""
        self._mail_under_way: dict[str, int] = {}
        self._unwatch: Callable[[], None] | None = None

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def begin(self) -> None:
        """Open the journal, and belong to the current event loop."""
        await self.journal.open()
        self.home.begin()
        self.dispatcher.dispatched = self.journal.tip
        self._unwatch = self.ports.watch.begin(log.held)

    def close(self) -> None:
        """Accept and deliver nothing more; idempotent."""
        self.is_closed = True
        if self._unwatch is not None:
            self._unwatch()
        self.dispatcher.close()

    def check(self, call: str) -> None:
        """Raise ``Closed``, ``LimitExceeded`` or as ``HomeLoop.check`` where it may not be made."""
        if self.is_closed:
            raise Closed("the hub")
        home = self.home  # ``check`` in place: this lies on every path.
        if get_ident() != home.thread or running_loop() is not home.loop:
            home.refuse(call)
        home.stack.check(call)
        if self.dispatcher.queued >= MAX_NESTED:
            why = "a listener triggers itself"
            raise LimitExceeded("events emitted by listeners", MAX_NESTED, why)

    @property
    def is_ahead(self) -> bool:
        """Whether it has yet to begin."""
        return not (self.home.has_begun or self.is_closed)

    # ── emitting ─────────────────────────────────────────────────────────────────────────────

    def emit(self, event: Event, done: Callable[[], None] | None = None) -> Commit | Receipt | None:
        """Put an event where it belongs: an inbox, the hub's lane, or the dispatch alone.

        ``done`` is called once, whatever becomes of it: when it is committed and dispatched, or
        refused.  Returns what says which: the commit of an event that goes into the hub's lane, the
        receipt of one for an inbox.  Raises ``BadValue`` for what JSON cannot hold and
        ``ReservedEvent`` for what only the runtime may say.
        """
        home = home_of(event) if event.__class__ is CustomEvent else event.home
        if home == "none":
            check_texts(event)
            dispatcher = self.dispatcher
            dispatcher.number = number = dispatcher.number + 1
            self._emit_numbered(scope.stamped(event, self.ports.clock.now(), number), done)
            return None
        check_event(event)
        if home == "in":
            if event.__class__ in _RESERVED:
                raise ReservedEvent(event.type)
            if isinstance(event, SessionReply):
                return self._emit_reply(as_sent(event), done)  # type: ignore[arg-type]
            return self.deliver(as_sent(event), done)  # type: ignore[arg-type]
        return self.record(scope.stamped(event, self.ports.clock.now()), done=done)

    def record(
        self,
        event: Event,
        notes: dict[str, str] | None = None,
        done: Callable[[], None] | None = None,
    ) -> Commit:
        """Write an event into the hub's lane, and ``notes`` into the store, in one commit."""
        if not event.at:
            event = scope.stamped(event, self.ports.clock.now())
        commit = Commit(events=(event,), notes=notes, about=event.run_id)
        if done is not None:
            commit.after = lambda _commit: done()
        self.submit(commit)
        return commit

    def _emit_reply(self, event: SessionReply, done: Callable[[], None] | None) -> Receipt:
        """A reply that is emitted counts as one that is given by ``reply``."""
        receipt = self.prompts.reply(event)
        was_sent = receipt.run_id != ""  # Then its rejection is a dead letter already.

        def settled(receipt: Receipt) -> None:
            if receipt.status == "rejected" and not was_sent and not self.is_closed:
                self.dispatcher.refused(event.run_id, receipt.reason, event)
            if done is not None:
                done()

        receipt.watch(settled)
        return receipt

    def emit_ephemeral(self, event: Event, done: Callable[[], None] | None = None) -> None:
        """Dispatch a stamped event, behind the same run's uncommitted durable ones."""
        self.dispatcher.number += 1
        self._emit_numbered(structs.replace(event, seq=self.dispatcher.number), done)

    def _emit_numbered(self, event: Event, done: Callable[[], None] | None) -> None:
        if event.secret_fields:
            event = _without_secrets(event)
        if self._uncommitted and (commit := self._uncommitted.get(event.run_id)) is not None:
            self.trail(commit, event, done)
        else:
            self._dispatch((event,))
            if done is not None:
                done()

    def trail(self, commit: Commit, event: Event, done: Callable[[], None] | None = None) -> None:
        """Dispatch a numbered ephemeral event behind a commit of its run that is under way."""
        trailing = commit.trailing = commit.trailing or []
        if len(trailing) < MAX_TRAILING:
            trailing.append(event)
            if done is not None:
                commit.after = _both(commit.after, done)
            return
        self.dispatcher.dropped += 1
        if done is not None:
            done()

    # ── delivering ───────────────────────────────────────────────────────────────────────────

    def deliver(
        self, event: InLane, done: Callable[[], None] | None = None, *, to: str | None = None,
        by: By = "run", request: RequestKey | None = None, contents: Contents | None = None,
        refuse: RefusalOfFiles | None = None, is_checked: bool = False,
    ) -> Receipt:  # fmt: skip
        """Put an event, with the ``contents`` of its parts, into the inbox of whom ``to`` and
        ``by`` name, or the event itself, unless ``refuse`` says why not, of its files.  The receipt
        tells what became of it, and ``done`` is called; what is rejected, as all is from ``close``
        on, and somebody counts on is a dead letter.  Raises as ``check``, or it ``is_checked``."""
        receipt = Receipt()
        if self.is_closed:
            receipt.settle("rejected", "hub closed")
            if done is not None:
                done()
            return receipt
        if not is_checked:
            self.check("send_to_run")
        receipt.home = self.home
        if to is not None and to != "":
            check_label(ARGUMENTS.get(by, "run_id"), to)
        delivery = self.addressing.delivery(event, to=to, by=by)
        delivery.request, delivery.contents = request, contents
        delivery.refusal_of_files = refuse or delivery.refusal_of_files
        if delivery.needs:
            delivery.refusal_of_contents = self.contents.refusal(delivery.needs, contents or {})
        receipt.run_id, receipt.key = delivery.to, delivery.key
        owner = self.dispatcher.owner
        refused = ""
        if owner is not None and event.__class__ is SessionMessage:
            refused = owner.refusal_of(delivery.to)
        if refused:
            receipt.settle("rejected", refused)
            self.dispatcher.refused(delivery.to, refused, delivery.event)
            if done is not None:
                done()
            return receipt
        commit = Commit(deliveries=(delivery,), receipt=receipt, about=delivery.to)
        if done is not None:
            commit.after = lambda _commit: done()
        if isinstance(event, _STOPS):
            is_end = isinstance(event, SessionTerminate)
            why = ending_words("terminated" if is_end else "interrupted", event.reason)
            stopped = self.prompts.stopping(delivery.to, why)
            commit.after = _both(commit.after, partial(self.dispatcher.after_mail, stopped))
        self.submit(commit)
        return receipt

    def open(self, event: SessionOpen, *, is_new: bool = False, **how: Any) -> Receipt:
        """Deliver an opening (``how`` as for ``deliver``).  ``is_new``: nobody can have used its
        ``run_id``; then the owner of runs expects it at once, and may begin while the store writes.
        """
        receipt = self.deliver(event, **how)
        owner = self.dispatcher.owner
        if is_new and receipt.status == "pending" and owner is not None:
            (delivery,) = self._uncommitted[receipt.run_id].deliveries
            new, opening = delivery.new, delivery.event
            assert new is not None and isinstance(opening, SessionOpen)
            if new.refusal:
                return receipt
            owner.expect(
                structs.replace(
                    opening, run_id=new.run_id, root_run_id=new.root_run_id,
                    parent_run_id=new.parent_run_id, agent=new.agent, lane="in", seq=1,
                )
            )  # fmt: skip
        return receipt

    def is_mail_under_way(self, run_id: str) -> bool:
        """Whether something was sent to the run that the store has not accepted or refused yet."""
        return run_id in self._mail_under_way

    # ── committing ───────────────────────────────────────────────────────────────────────────

    def submit(self, commit: Commit) -> None:
        """Hand a commit to the store; ``committed`` follows, now or later, in this order."""
        if self.home.is_forked:  # Code has returned there that was called in the parent.
            self.home.end_forked()
        self.in_flight += 1
        for event in commit.events:
            if event.secret_fields:
                commit.events = [_without_secrets(each) for each in commit.events]
                break
        for delivery in commit.deliveries:
            if delivery.contents:
                self.contents.hold(delivery.contents)
        # For ``emit_ephemeral``: what is emitted of this run before the commit is done follows it.
        about = commit.about = commit.about or _about(commit)
        self._uncommitted[about] = commit
        if commit.receipt is not None and commit.deliveries[0].new is None:
            to = commit.deliveries[0].to
            self._mail_under_way[to] = self._mail_under_way.get(to, 0) + 1
        commit.done = self.committed
        self.journal.submit(commit)

    def committed(self, commit: Commit) -> None:
        """The store has written a commit, or refused it; for the store to call, once each."""
        self.in_flight -= 1
        if commit.lane is not None:
            commit.lane.in_flight -= 1
        if self._uncommitted.get(commit.about) is commit:
            del self._uncommitted[commit.about]
        for each in commit.deliveries:
            if each.contents:
                self.contents.settle(each)
        if commit.error:
            self._refused(commit)
        if commit.before is not None:
            commit.before(commit)
        if commit.receipt is not None:
            to = commit.deliveries[0].to
            if commit.deliveries[0].new is None:
                self._mail_under_way[to] -= 1
                if not self._mail_under_way[to]:
                    del self._mail_under_way[to]
            self._settle(commit.receipt, commit)
        if (commit.deliveries or commit.leave_to) and self.dispatcher.owner is not None:
            for event in commit.written:
                if event.lane == "in":
                    self.dispatcher.mail.append(event)  # type: ignore[arg-type]
        letters: Sequence[HubDeadLetter] = ()
        if commit.leftovers or (commit.deliveries and commit.receipt is None):
            letters = self._dead_letters(commit)
        if not letters and commit.trailing is None:
            self._dispatch(commit.written)
        else:
            # Together, so that the events of a run woken by it come after everything in it.
            self._dispatch([*commit.written, *letters, *(commit.trailing or ())])
        if commit.status == "ended":
            self.prompts.run_ended(commit.run_id)
            if self.dispatcher.owner is None:  # An owner of runs knows who still inherits.
                self.addressing.run_ended(commit.run_id)
        if commit.after is not None:
            commit.after(commit)

    def _refused(self, commit: Commit) -> None:
        """The store has not taken a commit: say so where nobody else learns of it."""
        if self.journal.failure:
            self.dispatcher.store_failed()
        if self.journal.failure or commit.gone or commit.error in ("conflict", OVERTAKEN):
            return
        about = (commit.recorded or [each.event for each in commit.deliveries])[0]
        log.error("commit.refused", event_type=about.type, problem=commit.error)
        self.dispatcher.announce(HubErrorEvent(
            error=commit.error, error_type="BadValue", during=about.type, run_id=commit.run_id,
            at=self.ports.clock.now(),
        ))  # fmt: skip

    def _settle(self, receipt: Receipt, commit: Commit) -> None:
        """Tell a sender what became of its one delivery."""
        delivery = commit.deliveries[0]
        receipt.run_ids = delivery.run_ids
        if len(delivery.run_ids) == 1:
            receipt.run_id = delivery.run_ids[0]
        if commit.error:
            receipt.failed_store = self.journal.name if self.journal.failure else ""
            receipt.settle("rejected", commit.error)
            return
        new = delivery.new
        if new is not None and delivery.run_ids and delivery.run_ids != (new.run_id,):
            # Another run was found instead: it gets what it has no value of.
            taken = ("accepted",) if delivery.request is not None else ("accepted", "duplicate")
            is_taken = delivery.outcome in taken
            self.addressing.move_values(new.run_id, delivery.run_ids[0] if is_taken else None)
        owner = self.dispatcher.owner
        if delivery.outcome == "accepted" and delivery.event.lane:
            receipt.cursor = cursor_of(self.journal.name, delivery.event)
            receipt.created = delivery.event.__class__ is SessionOpen
            receipt.agent = delivery.event.agent
        elif delivery.first is not None and delivery.outcome == "duplicate":
            receipt.cursor = cursor_behind(self.journal.name, *delivery.first)
        is_second = delivery.outcome == "duplicate" and not delivery.repeats
        if is_second and delivery.event.__class__ is SessionReply:
            # Of replies only the first counts, and what this one says may be something else.
            delivery.outcome, delivery.reason = "rejected", ANSWERED
        if delivery.event.__class__ is SessionAbort and owner is not None:
            settle_interruption(receipt, commit, owner, self.journal, self._tasks)
        else:
            receipt.settle(delivery.outcome or "rejected", delivery.reason)
        if delivery.outcome == "rejected":
            if delivery.reason == "unreadable" and owner is not None:
                owner.found_damage(receipt.run_id)
            self.dispatcher.refused(delivery.to, delivery.reason, delivery.event)

    # ── what nobody will handle ──────────────────────────────────────────────────────────────

    def _dead_letters(self, commit: Commit) -> list[HubDeadLetter]:
        letters, owner = [], self.dispatcher.owner
        for each in unhandled(commit):
            if each[1] == "unreadable" and owner is not None:
                owner.found_damage(each[0])
            if (letter := dead_letter_of(*each, at=self.ports.clock.now())) is not None:
                self.dispatcher.number += 1
                letters.append(structs.replace(letter, seq=self.dispatcher.number))
        return letters


_After: TypeAlias = Callable[[Commit], None]
_STOPS: Final = (SessionAbort, SessionTerminate)
_RESERVED: Final = (SessionResult, SessionTimer, SessionVariables)


def _about(commit: Commit) -> str:
    """The run that a commit is about, as far as ephemeral events must wait for it."""
    if recorded := commit.recorded:
        return recorded[0].run_id
    return commit.deliveries[0].to if commit.deliveries else ""


def _both(first: _After | None, second: Callable[[], None]) -> _After:
    def both(commit: Commit) -> None:
        if first is not None:
            first(commit)
        second()

    return both


def _without_secrets(event: Event) -> Event:
    return structs.replace(event, **{name: Secret() for name in event.secret_fields})
