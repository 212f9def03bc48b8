"""``Hub``: the one place where things meet.

Everything that happens and everything that is said goes through here, in one order:

    emit ──► commit (durable events) ──► dispatch ──► audiences: all, tree, run
    send ──► commit (deliveries)     ──► dispatch ──► the run's owner wakes

* A durable event is dispatched after its commit and never before; an ephemeral one at once,
  but never ahead of the same run's uncommitted durable ones.
* An event emitted during a dispatch is seen after the outer one by everybody.
* ``emit``, ``send_to_run``, ``open`` and ``reply`` are plain functions that act at the call.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import Any, Final, Self, overload

import anyio
from msgspec import Struct, structs

from hubbub.hub import scope
from hubbub.hub.addressing import Addressing
from hubbub.hub.cancelling import defer_interrupts
from hubbub.hub.cursor import cursor_of, place
from hubbub.hub.dispatch import MAX_NESTED, Dispatcher, Owner
from hubbub.hub.errors import (
    BadValue,
    CallerError,
    Closed,
    LimitExceeded,
    ReservedEvent,
    StoreFailed,
    WrongThread,
)
from hubbub.hub.events import (
    CustomEvent,
    Event,
    HubDeadLetter,
    HubErrorEvent,
    InLane,
    SessionAbort,
    SessionClose,
    SessionMessage,
    SessionOpen,
    SessionReply,
    SessionResult,
    SessionTerminate,
    SessionTimer,
    SessionVariables,
    Variable,
)
from hubbub.hub.events.codec import check_event, check_texts
from hubbub.hub.inbox import Inbox
from hubbub.hub.logs import log
from hubbub.hub.masking import Masker
from hubbub.hub.message import Sayable, opening_message, session_message
from hubbub.hub.patterns import Pattern, Patterns
from hubbub.hub.ports import Ports
from hubbub.hub.prompts import Prompts
from hubbub.hub.raised import is_contained
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.journal import Commit, Delivery, Selection
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Store
from hubbub.hub.stream import EventStream, Subscription
from hubbub.hub.task_host import TaskHost
from hubbub.hub.texts import check_label, check_labels, check_text, text_problem
from hubbub.hub.values import NULL, Secret, encode_value

__all__ = ["Handler", "Hub", "HubStatistics"]

Handler = Callable[[Event], Any]

DEFAULT_BUFFER: Final = 1024
DEFAULT_INBOX: Final = 10_000
MAX_TIMEOUT: Final = 10.0 * 365 * 86_400
MAX_TRAILING: Final = 10_000


class HubStatistics(Struct, frozen=True, kw_only=True):
    """A snapshot."""

    subscribers: int
    buffered: int
    dropped: int
    live: int
    parked: int
    waiting: int
    uncommitted: int


class Hub:
    """The hub.  ``async with Hub() as hub:`` opens it, and closes it at the end.

    ``journal`` keeps what is durable (default: memory), ``buffer`` bounds each stream and
    ``max_inbox`` each inbox.  A hub belongs to the event loop and thread that opened it.
    """

    def __init__(
        self,
        *,
        journal: Store | None = None,
        ports: Ports | None = None,
        buffer: int = DEFAULT_BUFFER,
        max_inbox: int = DEFAULT_INBOX,
    ) -> None:
        if buffer < 1 or max_inbox < 1:
            raise BadValue("Hub", "buffer and max_inbox must be at least 1")
        self.ports = (ports or Ports()).of_store(journal)
        self.journal: Store = journal or MemoryJournal(ids=self.ports.ids)
        self.tasks = TaskHost()
        self.addressing = Addressing(self.ports, max_inbox)
        self.dispatcher = Dispatcher(self.journal, self.ports, self.tasks)
        self._dispatch = self.dispatcher.dispatch
        self._buffer = buffer
        self._thread = get_ident()
        self._closed = False
        self._uncommitted: dict[str, Commit] = {}
        self._mail_under_way: dict[str, int] = {}
        self._in_flight = 0
        self._prompts = Prompts(self)

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        if self._closed:
            raise Closed("the hub", "a hub is entered once; make a new one")
        if self.tasks.is_open:
            raise CallerError("this hub is open already; use the one that is there")
        defer_interrupts(Hub.__aenter__, Hub.__aexit__, Hub.aclose)
        self._thread = get_ident()
        await self.journal.open()
        self.dispatcher.dispatched = self.journal.tip
        try:
            await self._prompts.begin()
            await self.tasks.open()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Commit what is submitted, end every stream, cancel every handler; idempotent."""
        try:
            with anyio.CancelScope(shield=True):
                if not self._closed:
                    self._prompts.close()
                    await self.journal.flush()
        finally:
            self.close()
            # Not shielded: on Trio these leave task groups, which nest with the caller's scopes.
            try:
                await self.tasks.aclose()
            finally:
                await self.journal.aclose()

    def close(self) -> None:
        """Accept and deliver nothing more.  ``aclose`` also waits for the hub's tasks."""
        if not self._closed:
            self._prompts.close()
        self._closed = True
        self.dispatcher.close()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def set_owner(self, owner: Owner | None) -> None:
        """Name who is told of deliveries; a hub has one owner at a time."""
        if owner is not None and self.dispatcher.owner is not None:
            raise BadValue("Hub", "this hub already has a runtime; use one Runtime per hub")
        self.dispatcher.owner = owner

    # ── listening ────────────────────────────────────────────────────────────────────────────

    @overload
    def subscribe(
        self,
        pattern: Pattern,
        handler: None = None,
        *,
        run_id: str | None = None,
        root_run_id: str | None = None,
        after: str | None = None,
        lossless: bool = False,
        buffer: int | None = None,
    ) -> EventStream: ...

    @overload
    def subscribe(
        self,
        pattern: Pattern,
        handler: Handler,
        *,
        run_id: str | None = None,
        root_run_id: str | None = None,
        after: str | None = None,
        lossless: bool = False,
        buffer: int | None = None,
    ) -> Subscription: ...

    def subscribe(
        self,
        pattern: Pattern,
        handler: Handler | None = None,
        *,
        run_id: str | None = None,
        root_run_id: str | None = None,
        after: str | None = None,
        lossless: bool = False,
        buffer: int | None = None,
    ) -> EventStream | Subscription:
        """Listen to events whose type matches ``pattern``.

        Without a handler, returns a stream for ``async for``.  A plain handler is called during
        the dispatch; an async one is fed by a bounded stream of its own, one event at a time.
        ``run_id`` selects one run, ``root_run_id`` a run and all its descendants. ``after``
        replays the journal from a cursor (``"start"``: everything kept) and goes live without gap
        or duplicate; a plain handler with ``after`` is fed like an async one. Raises
        ``BadPattern``, ``BadValue``, ``Closed``, ``WrongThread``.
        """
        patterns = self._listening(pattern, handler, buffer)
        if handler is not None and after is None and not is_async(handler):
            return self._listen(patterns, handler, run_id=run_id, root_run_id=root_run_id)
        stream = self._stream(
            patterns, run_id=run_id, root_run_id=root_run_id, after=after, lossless=lossless,
            buffer=buffer,
        )  # fmt: skip
        if handler is None:
            return stream
        return self._feed(stream, handler, self.tasks.start)

    def _listening(self, pattern: Pattern, handler: object, buffer: int | None) -> Patterns:
        """What is listened to; raises where it cannot be."""
        self._check("subscribe")
        if buffer is not None and buffer < 1:
            raise BadValue("buffer", "at least 1 event")
        patterns = Patterns(pattern)
        if handler is not None and not callable(handler):
            raise BadValue("subscribe", f"{type(handler).__name__} is no function to call")
        return patterns

    def _listen(
        self, patterns: Patterns, handler: Handler, *, run_id: str | None, root_run_id: str | None
    ) -> Subscription:
        """Call a plain handler during the dispatch."""
        check_labels(run_id=run_id, root_run_id=root_run_id)
        subscription = Subscription(
            self.dispatcher, patterns, handler, run_id=run_id, root_run_id=root_run_id,
            handler=handler,
        )  # fmt: skip
        self.dispatcher.attach(subscription)
        return subscription

    def _stream(
        self, patterns: Patterns, *, buffer: int | None = None, lossless: bool = False,
        after: str | None = None, run_id: str | None, root_run_id: str | None,
        inbox: Inbox | None = None,
    ) -> EventStream:  # fmt: skip
        check_labels(run_id=run_id, root_run_id=root_run_id, after=after)
        stream = EventStream(
            self.dispatcher, patterns, run_id=run_id, root_run_id=root_run_id, after=after,
            lossless=lossless, buffer=buffer or self._buffer, inbox=inbox,
        )  # fmt: skip
        self.dispatcher.streams[stream] = None
        return stream

    def _feed(
        self, stream: EventStream, handler: Handler, start: Callable[..., object]
    ) -> Subscription:
        """Call a handler for each event of a stream, in a task that ``start`` begins."""
        try:
            start(self._consume(stream, handler), name="hubbub handler")
        except Closed:
            stream.close()
            raise
        subscription = stream._subscription
        subscription.handler = handler
        return subscription

    def subscribe_until(
        self,
        pattern: Pattern,
        until: Callable[[Event], bool],
        *,
        run_id: str | None = None,
        root_run_id: str | None = None,
        after: str | None = None,
        lossless: bool = False,
    ) -> EventStream:
        """A stream that ends after the first event for which ``until`` is true."""
        stream = self.subscribe(
            pattern, run_id=run_id, root_run_id=root_run_id, after=after, lossless=lossless
        )
        stream.end_after(until)
        return stream

    async def _consume(self, stream: EventStream, handler: Handler) -> None:
        async with stream:
            async for event in stream:
                try:
                    answer = handler(event)
                    if inspect.isawaitable(answer):
                        await answer
                except BaseException as error:
                    if not is_contained(error):
                        raise
                    by = stream._subscription.by
                    self.dispatcher.report(error, event, handler, by)

    def has(self, type_: str, *, run_id: str = "", root_run_id: str = "") -> bool:
        """Whether anybody would get an event of this type; guards costly payloads."""
        return self.dispatcher.has(type_, run_id=run_id, root_run_id=root_run_id)

    # ── emitting ─────────────────────────────────────────────────────────────────────────────

    def emit(self, event: Event) -> None:
        """Put an event into the hub's order, now.

        A durable event is dispatched after its commit (with the memory journal: before this
        returns, unless called by a listener), an ephemeral one right away.  ``session:*`` events
        that are addressed to a run become deliveries to its inbox.  An ``agent:*`` event emitted
        here rather than through a run's scope is carried and journaled in the hub's lane and is
        no fact about any run.  Raises ``Closed``, ``WrongThread``, and ``BadValue`` for an
        event that JSON cannot hold (a text that is no Unicode, a value of another type than its
        field's); never raises what a listener raised.
        """
        self._check("emit")
        if not isinstance(event, Event):
            raise BadValue("emit", f"an Event is wanted, not {type(event).__name__}")
        self._emit(event, None)

    async def publish(self, event: Event) -> None:
        """``emit``, and return when the event is committed and dispatched.

        Raises ``StoreFailed`` when the store could not keep it.
        """
        self._check("publish")
        if not isinstance(event, Event):
            raise BadValue("publish", f"an Event is wanted, not {type(event).__name__}")
        done = anyio.Event()
        commit = self._emit(event, done.set)
        await done.wait()
        self.check_store()
        if commit is not None and commit.error:
            raise BadValue("publish", commit.error)

    def check_store(self) -> None:
        """Raise ``StoreFailed`` if the store accepts nothing any more."""
        if self.journal.failure:
            raise StoreFailed(self.journal.name, self.journal.failure)

    def _emit(self, event: Event, done: Callable[[], None] | None) -> Commit | None:
        """Do what ``emit`` does; returns the commit of an event that goes into the hub's lane."""
        home: str = event.home
        if event.__class__ is CustomEvent:
            home = home_of_custom(event)
        if home == "none":
            check_texts(event)
        else:
            check_event(event)
        fields = scope.current()
        if home == "in":
            if event.__class__ in _RESERVED:
                raise ReservedEvent(event.type)
            if isinstance(event, SessionReply):
                self._emit_reply(event, done)
                return None
            # Where a run stands in its tree is not the sender's to say.
            event = structs.replace(event, root_run_id="", parent_run_id=None)
            self._deliver(event, done)  # type: ignore[arg-type]
            return None
        event = self._stamp(event, fields)
        if home == "none":
            self._emit_ephemeral(event, done)
            return None
        return self._record(event, None, done)

    def _record(
        self, event: Event, notes: dict[str, str] | None, done: Callable[[], None] | None = None
    ) -> Commit:
        """Write an event into the hub's lane."""
        if not event.at:
            event = self._stamp(event, scope.current())
        commit = Commit(events=(event,), notes=notes)
        if done is not None:
            commit.after = lambda _commit: done()
        self._submit(commit)
        return commit

    def _stamp(self, event: Event, fields: dict[str, Any] | None) -> Event:
        now = self.ports.clock.now()
        if not fields:
            return structs.replace(event, at=now, lane="", seq=0)
        missing = {name: value for name, value in fields.items() if not getattr(event, name)}
        return structs.replace(event, at=now, lane="", seq=0, **missing)

    def _emit_reply(self, event: SessionReply, done: Callable[[], None] | None) -> None:
        """A reply that is emitted counts as one that is given by ``reply``."""
        receipt = self._prompts.reply(event.prompt_id, event.content, event.source)
        if receipt.status == "rejected":
            self._dead_letter(event.run_id, receipt.reason, event)
        if done is not None:
            if receipt.status == "pending":
                receipt.watch(lambda _receipt: done())
            else:
                done()

    def _emit_ephemeral(self, event: Event, done: Callable[[], None] | None = None) -> None:
        """Dispatch a stamped event, behind the same run's uncommitted durable ones."""
        self.dispatcher.number += 1
        event = structs.replace(event, seq=self.dispatcher.number)
        if event.secret_fields:
            event = _without_secrets(event)
        if self._uncommitted and (commit := self._uncommitted.get(event.run_id)) is not None:
            if commit.trailing is None:
                commit.trailing = []
            if len(commit.trailing) < MAX_TRAILING:
                commit.trailing.append(event)
                if done is not None:
                    commit.after = _both(commit.after, done)
                return
            self.dispatcher.dropped += 1
        else:
            self._dispatch((event,))
        if done is not None:
            done()

    def scoped(self, **fields: Any) -> AbstractContextManager[None]:
        """Give every event emitted by this task inside the ``with`` these fields.

        Nests, merges, and is undone on leaving; what an event itself says wins.
        """
        return scope.scoped(fields)

    # ── sending ──────────────────────────────────────────────────────────────────────────────

    def send_to_run(self, run_id: str, message: Sayable, *, source: str = "") -> Receipt:
        """Put a message into a run's inbox.

        The message is accepted durably, reported as a duplicate, or rejected with a reason;
        awaiting the receipt tells which.  Raises ``BadValue`` for what is no message.
        """
        return self._deliver(session_message(message, source=source), to=run_id)

    def send_to(self, agent_name: str, message: Sayable, *, source: str = "") -> Receipt:
        """Send to the one live run of an agent; rejected when there is none or more."""
        event = session_message(message, source=source)
        return self._deliver(event, to=agent_name, by="name")

    def send(
        self, message: Sayable, *, session_key: str | None = None, source: str = ""
    ) -> Receipt:
        """Send to a conversation by its key, or to the only open one."""
        event = session_message(message, source=source)
        if session_key is None:
            return self._deliver(event, to="", by="only")
        return self._deliver(event, to=session_key, by="key")

    def open(
        self,
        agent: str = "",
        input: Any = None,
        *,
        run_id: str | None = None,
        session_key: str = "",
        correlation_id: str = "",
        name: str = "",
        once: bool = False,
        timeout: float | None = None,
        descriptor: Any = None,
        env: dict[str, str] | None = None,
        source: str = "",
    ) -> Receipt:
        """Start a run of ``agent``, or find the one of ``session_key`` or ``descriptor``.

        Without a name the agent is the runtime's ``default_agent``.  A ``descriptor`` (a struct of
        ``hubbub.hub.events.descriptors`` or its JSON) of a user, cron task or heartbeat finds the
        agent that stands for it; a user's key spells the same (``telegram_123_456``).  One of a
        subagent starts a child of an open run, and is rejected without one.

        Idempotent by ``run_id``: a later opening of it is a duplicate, whatever it says.  In a run
        found otherwise ``input`` becomes a message.  An ``input`` that is a ``Message`` is one from
        the start: the run gets its text as input, and its ``key`` counts (per run and ``source``)
        whether the run is new or found, also by its id: again it is a duplicate, other content is
        rejected, a new key brings a live run a message.  Openings without address make new runs.

        The receipt's ``run_id`` may be sent to at once.  The values of ``env`` go to the
        ``Secrets`` port under ``run_id/NAME`` until the run ends, and appear nowhere else.
        ``timeout`` bounds the whole run (seconds).  Raises ``BadValue`` for an input that
        cannot be encoded, a timeout that is none, a ``run_id`` with anything but letters, digits,
        ``-`` and ``_``, a name or key that UTF-8 cannot hold or that holds NUL, a descriptor of
        no agent type, or a key that spells another one.
        """
        input_json, message = opening_message(input, source)
        check_labels(
            agent=agent, session_key=session_key, correlation_id=correlation_id, name=name,
            source=source,
        )  # fmt: skip
        if timeout is not None and not 0 <= timeout < MAX_TIMEOUT:
            raise BadValue("timeout", f"seconds from 0 to {MAX_TIMEOUT:,.0f} are wanted")
        event = SessionOpen(
            run_id=run_id or "",
            open_agent=agent,
            input_json=input_json,
            message=message,
            session_key=session_key,
            correlation_id=correlation_id,
            name=name,
            once=once,
            timeout=timeout,
            descriptor_json=NULL if descriptor is None else encode_value("descriptor", descriptor),
            variables=_variables(env) if env else (),
        )
        return self.open_run(event, is_new=not (run_id or session_key or descriptor))

    def open_run(self, event: SessionOpen, *, is_new: bool = False) -> Receipt:
        """``open`` for an event.  ``is_new``: nobody can have used its ``run_id`` before.

        Then the runtime is told at once, so that it may begin while the store writes.
        """
        receipt = self._deliver(event)
        owner = self.dispatcher.owner
        if is_new and receipt.status == "pending" and owner is not None:
            (delivery,) = self._uncommitted[receipt.run_id].deliveries
            new, opening = delivery.new, delivery.event
            assert new is not None and isinstance(opening, SessionOpen)
            owner.expect(
                structs.replace(
                    opening, run_id=new.run_id, root_run_id=new.root_run_id,
                    parent_run_id=new.parent_run_id, agent=new.agent, lane="in", seq=1,
                )
            )  # fmt: skip
        return receipt

    def interrupt(self, run_id: str | None = None, reason: str = "") -> Receipt:
        """Interrupt the turn at work of one run, or of all of them.

        The blocking children that a run waits for are interrupted with it, others go on; the
        receipt's ``run_ids`` lists every run that is reached.
        """
        check_text("reason", reason)
        event = SessionAbort(reason=reason)
        return self._deliver(event, to=run_id or "", by="run" if run_id else "every")

    def close_run(self, run_id: str, reason: str = "") -> Receipt:
        """Accept no more messages, handle what waits, then end the run."""
        check_text("reason", reason)
        return self._deliver(SessionClose(reason=reason), to=run_id)

    def terminate(self, run_id: str, reason: str = "") -> Receipt:
        """End a run now and for good; from its acceptance on nothing reaches it."""
        check_text("reason", reason)
        return self._deliver(SessionTerminate(reason=reason), to=run_id)

    def _deliver(
        self,
        event: InLane,
        done: Callable[[], None] | None = None,
        *,
        to: str | None = None,
        by: Any = "run",
    ) -> Receipt:
        receipt = Receipt()
        if self._closed:
            receipt.settle("rejected", "hub closed")
            return receipt
        self._check("send_to_run")
        if to:
            check_label(_ADDRESSES.get(by, "run_id"), to)
        delivery = self.addressing.delivery(event, to=to, by=by)
        receipt.run_id = delivery.to
        owner = self.dispatcher.owner
        refused = ""
        if owner is not None and isinstance(event, SessionMessage):
            refused = owner.refusal_of(delivery.to)
        if refused:
            receipt.settle("rejected", refused)
            self._dead_letter(delivery.to, refused, delivery.event)
            return receipt
        commit = Commit(deliveries=(delivery,))
        commit.receipt = receipt
        if done is not None:
            commit.after = lambda _commit: done()
        if event.__class__ in _STOPS:
            stopped = self._prompts.stopping(delivery.to)
            commit.after = _both(commit.after, partial(self.dispatcher.after_mail, stopped))
        self._submit(commit)
        return receipt

    def delivery(self, event: InLane, *, to: str | None = None, by: Any = "run") -> Delivery:
        """Address ``event``, for an owner's own commits."""
        return self.addressing.delivery(event, to=to, by=by)

    # ── asking ───────────────────────────────────────────────────────────────────────────────

    async def ask(
        self,
        address: str,
        question: str,
        *,
        options: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Any:
        """Ask and wait for the answer.

        ``address`` is ``"user"`` (whoever answers ``session:prompt`` events), a service such as
        ``"runtime"``, or a run id: the run gets the question as a message with a ``prompt_id``
        and answers with ``hub.reply``.  Raises ``PromptTimeout`` after ``timeout`` seconds,
        ``PromptClosed`` when the run asked is gone, ``Closed`` when the hub closes, and what a
        service raises.
        """
        self._check("ask")
        return await self._prompts.ask(address, question, tuple(options), timeout)

    def reply(self, prompt_id: str, content: str, *, source: str = "") -> Receipt:
        """Answer a prompt; the first reply wins, later and unknown ones are rejected."""
        check_labels(prompt_id=prompt_id, source=source)
        check_text("content", content)
        if self._closed:
            receipt = Receipt()
            receipt.settle("rejected", "hub closed")
            return receipt
        self._check("reply")
        return self._prompts.reply(prompt_id, content, source)

    def serve(
        self, address: str, handler: Callable[[str], Any | Awaitable[Any]]
    ) -> Callable[[], None]:
        """Answer what is asked of ``address``; returns a function that stops it."""
        self._check("serve")
        check_label("address", address)
        return self._prompts.serve(address, handler)

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    async def read(
        self,
        run_id: str | None = None,
        *,
        root_run_id: str | None = None,
        after: str | None = None,
        types: Pattern | None = None,
        limit: int | None = None,
    ) -> list[Event]:
        """The durable events of the journal, in order; the finite form of ``subscribe``.

        ``limit`` bounds their number.  Raises ``BadValue`` for a cursor this store cannot place.
        """
        self._check("read")
        check_labels(run_id=run_id, root_run_id=root_run_id, after=after)
        match = None if types is None else Patterns(types).match
        selection = Selection(run_id=run_id, root_run_id=root_run_id, match=match)
        position = await place(self.journal, after) if after is not None else 0
        if position is None:
            raise BadValue("after", "a cursor of another store, or of events no longer kept")
        await self.journal.flush()
        end, found = self.journal.tip, list[Event]()
        while position < end and (limit is None or len(found) < limit):
            page = 1000 if limit is None else min(1000, limit - len(found))
            events, position = await self.journal.read(
                selection, after=position, until=end, limit=page
            )
            found.extend(events)
        return found

    def cursor(self, event: Event) -> str:
        """The cursor after a durable event."""
        return cursor_of(self.journal.name, event)

    def statistics(self) -> HubStatistics:
        live, parked, waiting = self.journal.depths()
        return HubStatistics(
            subscribers=sum(len(audience.subscriptions) for audience in self.dispatcher.audiences),
            buffered=sum(stream.buffered for stream in self.dispatcher.streams),
            dropped=self.dispatcher.dropped,
            live=live,
            parked=parked,
            waiting=waiting,
            uncommitted=self._in_flight,
        )

    # ── committing and dispatching ───────────────────────────────────────────────────────────

    def _submit(self, commit: Commit) -> None:
        self._in_flight += 1
        for event in commit.events:
            if event.secret_fields:
                commit.events = [_without_secrets(each) for each in commit.events]
                break
        # Found again by whoever emits an ephemeral event of this run before the commit is done.
        self._uncommitted[commit.run_id or _about(commit)] = commit
        if commit.receipt is not None and commit.deliveries[0].new is None:
            to = commit.deliveries[0].to
            self._mail_under_way[to] = self._mail_under_way.get(to, 0) + 1
        commit.done = self._committed
        self.journal.submit(commit)

    def _committed(self, commit: Commit) -> None:
        self._in_flight -= 1
        if commit.lane is not None:
            commit.lane.in_flight -= 1
        if self._uncommitted.get(about := commit.run_id or _about(commit)) is commit:
            del self._uncommitted[about]
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
            mail = [event for event in commit.written if event.lane == "in"]
            self.dispatcher.mail.extend(mail)  # type: ignore[arg-type]
        letters: Sequence[HubDeadLetter] = ()
        if commit.leftovers or (commit.deliveries and commit.receipt is None):
            letters = self._letters(commit)
        if not letters and commit.trailing is None:
            self._dispatch(commit.written)
        else:
            # In one breath: whoever is woken by it is heard of behind all that the commit means.
            self._dispatch([*commit.written, *letters, *(commit.trailing or ())])
        if commit.status == "ended":
            self._prompts.run_ended(commit.run_id)
            if self.dispatcher.owner is None:  # Who makes runs happen knows who still inherits.
                self.addressing.run_ended(commit.run_id)
        if commit.after is not None:
            commit.after(commit)

    def _refused(self, commit: Commit) -> None:
        """The store has not taken a commit: say so where nobody else hears of it."""
        if self.journal.failure or commit.error == "conflict":
            return
        about = commit.events[0] if commit.events else commit.deliveries[0].event
        log.error("commit.refused", event_type=about.type, problem=commit.error)
        self.dispatcher.tell(HubErrorEvent(
            error=commit.error, error_type="BadValue", during=about.type, run_id=commit.run_id,
            at=self.ports.clock.now(),
        ))  # fmt: skip

    def is_mail_under_way(self, run_id: str) -> bool:
        """Whether something was sent to the run that the store has not accepted or refused yet."""
        return run_id in self._mail_under_way

    def _settle(self, receipt: Receipt, commit: Commit) -> None:
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
            self.addressing.drop_values(new.run_id)  # Another run was found instead.
        owner = self.dispatcher.owner
        if delivery.event.__class__ is SessionAbort and owner is not None:
            reached = [each for run in delivery.run_ids for each in owner.interrupted_with(run)]
            receipt.run_ids = tuple(dict.fromkeys(reached))
        if delivery.outcome == "accepted" and delivery.event.lane:
            receipt.cursor = cursor_of(self.journal.name, delivery.event)
        receipt.settle(delivery.outcome or "rejected", delivery.reason)
        if delivery.outcome == "rejected":
            if delivery.reason == "unreadable" and owner is not None:
                owner.met_damage(receipt.run_id)
            self._dead_letter(delivery.to, delivery.reason, delivery.event)

    def _letters(self, commit: Commit) -> list[HubDeadLetter]:
        """What nobody will handle, because of this commit."""
        found: list[tuple[str, str, InLane]] = []
        if commit.receipt is None:
            refused = (x for x in commit.deliveries if x.outcome == "rejected")
            found += [(each.to, each.reason, each.event) for each in refused]
        if commit.status == "ended":
            ending = commit.events[-1] if commit.events else None
            reason = "terminated" if getattr(ending, "outcome", "") == "terminated" else "ended"
            found += [(commit.run_id, reason, item) for item in commit.leftovers]
        letters = []
        for each in found:
            if (letter := self._letter(*each)) is not None:
                self.dispatcher.number += 1
                letters.append(structs.replace(letter, seq=self.dispatcher.number))
        return letters

    def _dead_letter(self, to: str, reason: str, event: InLane) -> None:
        if (letter := self._letter(to, reason, event)) is not None:
            self.dispatcher.tell(letter)

    def _letter(self, to: str, reason: str, event: InLane) -> HubDeadLetter | None:
        if not isinstance(event, SessionMessage | SessionResult | SessionReply):
            return None
        log.info("message.undeliverable", to=to, reason=reason)
        return HubDeadLetter(
            to=to, reason=reason, message=event, at=self.ports.clock.now(), run_id=to,
            root_run_id=event.root_run_id, agent=event.agent,
        )  # fmt: skip

    def masker(self, *run_ids: str) -> Masker:
        """What is said of failures that concern these runs goes through it: it takes the values of
        their secrets, and the keys of providers, out of texts and exceptions."""
        return self.dispatcher.masker(*run_ids)

    @property
    def is_at_hand(self) -> bool:
        """Whether the code at hand runs in the hub's own thread."""
        return get_ident() == self._thread

    def _check(self, call: str) -> None:
        if get_ident() != self._thread:
            raise WrongThread(call)
        if self._closed:
            raise Closed("the hub")
        if self.dispatcher.queued >= MAX_NESTED:
            raise LimitExceeded(
                "events emitted by listeners", MAX_NESTED, "a listener feeds itself"
            )


_RESERVED: Final = (SessionResult, SessionTimer, SessionVariables)

_ADDRESSES: Final = {"name": "agent_name", "key": "session_key"}
"""What the argument is called that says where a delivery goes."""

_STOPS: Final = (SessionAbort, SessionTerminate)
"""What ends the prompts of whom it reaches."""


def _about(commit: Commit) -> str:
    """The run that a commit is about, as far as ephemeral events must wait for it."""
    if commit.events:
        return commit.events[0].run_id
    return commit.deliveries[0].to if commit.deliveries else ""


def _both(
    first: Callable[[Commit], None] | None, second: Callable[[], None]
) -> Callable[[Commit], None]:
    def both(commit: Commit) -> None:
        if first is not None:
            first(commit)
        second()

    return both


def home_of_custom(event: Event) -> str:
    durable = getattr(event, "durable", None)
    if durable is None:
        return (
            "none" if event.type.endswith(":delta") or event.type.startswith("channel:") else "hub"
        )
    return "hub" if durable else "none"


def _variables(env: dict[str, str]) -> tuple[Variable, ...]:
    for name, value in env.items():
        check_label("env", name)  # Which one of the two is wrong may be a secret itself.
        if text_problem(value):
            raise BadValue("env", "each value is a text that UTF-8 can hold")
    return tuple(Variable(name=name, value=Secret(value)) for name, value in env.items())


def _without_secrets(event: Event) -> Event:
    return structs.replace(event, **{name: Secret() for name in event.secret_fields})


def is_async(handler: Handler) -> bool:
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    call = getattr(handler, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
