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
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from threading import get_ident
from types import TracebackType
from typing import Any, Final, Protocol, Self, overload

import anyio
from msgspec import Struct, structs

from hubbub.hub import scope
from hubbub.hub.cursor import cursor_of, place
from hubbub.hub.errors import BadValue, Closed, LimitExceeded, ReservedEvent, WrongThread
from hubbub.hub.events import (
    AgentComplete,
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
from hubbub.hub.journal import Commit, Delivery, Journal, NewRun, Selection
from hubbub.hub.logs import log
from hubbub.hub.memory_journal import MemoryJournal
from hubbub.hub.message import Sayable, session_message
from hubbub.hub.patterns import Pattern, Patterns
from hubbub.hub.ports import Ports
from hubbub.hub.prompts import Prompts
from hubbub.hub.receipt import Receipt
from hubbub.hub.stream import Audience, EventStream, Subscription
from hubbub.hub.task_host import TaskHost
from hubbub.hub.values import NULL, Secret, encode_value

__all__ = ["Handler", "Hub", "HubStatistics", "Owner"]

Handler = Callable[[Event], Any]

DEFAULT_BUFFER: Final = 1024
DEFAULT_INBOX: Final = 10_000
MAX_NESTED: Final = 100_000
MAX_TRAILING: Final = 10_000


class Owner(Protocol):
    """Whoever makes runs happen: told of every item that enters an inbox, after its commit."""

    def wake(self, item: InLane) -> None: ...


class HubStatistics(Struct, frozen=True, kw_only=True):
    """A snapshot (H-16)."""

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
        journal: Journal | None = None,
        ports: Ports | None = None,
        buffer: int = DEFAULT_BUFFER,
        max_inbox: int = DEFAULT_INBOX,
    ) -> None:
        if buffer < 1 or max_inbox < 1:
            raise BadValue("Hub", "buffer and max_inbox must be at least 1")
        self.ports = ports or Ports()
        self.journal: Journal = journal or MemoryJournal(ids=self.ports.ids)
        self.tasks = TaskHost()
        self.dispatched = 0
        """The position of the last durable event that was dispatched."""
        self._buffer = buffer
        self._max_inbox = max_inbox
        self._owner: Owner | None = None
        self._thread = get_ident()
        self._closed = False
        self._everyone = Audience()
        self._trees: dict[str, Audience] = {}
        self._runs: dict[str, Audience] = {}
        self._streams: dict[EventStream, None] = {}
        self._dispatching = False
        self._nested: deque[Event] = deque()
        self._mail: deque[InLane] = deque()
        self._queued = 0
        self._uncommitted: dict[str, Commit] = {}
        self._in_flight = 0
        self._floors: dict[str, int] = {}
        self._partial: set[type[Event]] = set()
        """The classes of event that a later durable one overtakes."""
        self._dropped = 0
        self._number = self.ports.ids.number() << 16
        self._prompts = Prompts(self)

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        if self._closed:
            raise Closed("the hub", "make a new Hub")
        self._thread = get_ident()
        await self.journal.open()
        self.dispatched = self.journal.tip
        try:
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
        with anyio.CancelScope(shield=True):
            if not self._closed:
                await self.journal.flush()
        self.close()
        # Not shielded: on Trio these leave task groups, which nest with the caller's scopes.
        try:
            await self.tasks.aclose()
        finally:
            await self.journal.aclose()

    def close(self) -> None:
        """Accept and deliver nothing more.  ``aclose`` also waits for the hub's tasks."""
        self._closed = True
        # A dispatch at work holds a row of these: it must not call them any more.
        for audience in (self._everyone, *self._trees.values(), *self._runs.values()):
            audience.deafen()
        self._everyone = Audience()
        self._trees.clear()
        self._runs.clear()
        for stream in tuple(self._streams):
            stream.close()
        self._prompts.close()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def set_owner(self, owner: Owner | None) -> None:
        """Name who is told of deliveries; a hub has one owner at a time."""
        if owner is not None and self._owner is not None:
            raise BadValue("Hub", "this hub already has a runtime; use one Runtime per hub")
        self._owner = owner

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
        """Listen to events whose type matches ``pattern`` (H-02).

        Without a handler, returns a stream for ``async for``.  A plain handler is called during
        the dispatch; an async one is fed by a bounded stream of its own, one event at a time
        (H-18).  ``run_id`` selects one run, ``root_run_id`` a run and all its descendants.
        ``after`` replays the journal from a cursor (``"start"``: everything kept) and goes live
        without gap or duplicate; a plain handler with ``after`` is fed like an async one.
        Raises ``BadPattern``, ``Closed``, ``WrongThread``.
        """
        self._check("subscribe")
        if buffer is not None and buffer < 1:
            raise BadValue("buffer", "at least 1 event")
        patterns = Patterns(pattern)
        if handler is not None and after is None and not is_async(handler):
            subscription = Subscription(
                self, patterns, handler, run_id=run_id, root_run_id=root_run_id, handler=handler
            )
            self._attach(subscription)
            return subscription
        stream = EventStream(
            self,
            patterns,
            run_id=run_id,
            root_run_id=root_run_id,
            after=after,
            lossless=lossless,
            buffer=buffer or self._buffer,
        )
        self._streams[stream] = None
        if handler is None:
            return stream
        try:
            self.tasks.start(self._consume(stream, handler), name="hubbub handler")
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
                except Exception as error:
                    self._report(error, event, handler)

    def has(self, type_: str, *, run_id: str = "", root_run_id: str = "") -> bool:
        """Whether anybody would get an event of this type; guards costly payloads."""
        rows = self._everyone.rows.get(type_)
        if rows is None:
            rows = self._everyone.row(type_)
        if rows:
            return True
        return any(
            audience.rows.get(type_) or audience.row(type_)
            for audience in (self._trees.get(root_run_id), self._runs.get(run_id))
            if audience is not None
        )

    def _attach(self, subscription: Subscription) -> None:
        if self._closed:
            return
        if subscription.run_id is not None:
            audience = self._runs.setdefault(subscription.run_id, Audience())
        elif subscription.root_run_id is not None:
            audience = self._trees.setdefault(subscription.root_run_id, Audience())
        else:
            audience = self._everyone
        audience.add(subscription)

    def _detach(self, subscription: Subscription) -> None:
        if subscription.run_id is not None:
            key, audiences = subscription.run_id, self._runs
        elif subscription.root_run_id is not None:
            key, audiences = subscription.root_run_id, self._trees
        else:
            self._everyone.remove(subscription)
            return
        audience = audiences.get(key)
        if audience is not None:
            audience.remove(subscription)
            if not audience.subscriptions:
                del audiences[key]

    # ── emitting ─────────────────────────────────────────────────────────────────────────────

    def emit(self, event: Event) -> None:
        """Put an event into the hub's order, now.

        A durable event is dispatched after its commit (with the memory journal: before this
        returns, unless called by a listener), an ephemeral one right away.  ``session:*`` events
        that are addressed to a run become deliveries to its inbox.  An ``agent:*`` event emitted
        here rather than through a run's scope is carried and journaled in the hub's lane and is
        no fact about any run (H-17).  Raises ``Closed`` and ``WrongThread``; never raises what a
        listener raised.
        """
        self._check("emit")
        self._emit(event, None)

    async def publish(self, event: Event) -> None:
        """``emit``, and return when the event is committed and dispatched (H-17)."""
        self._check("publish")
        done = anyio.Event()
        self._emit(event, done.set)
        await done.wait()

    def _emit(self, event: Event, done: Callable[[], None] | None) -> None:
        home: str = event.home
        if event.__class__ is CustomEvent:
            home = home_of_custom(event)
        fields = scope.current()
        if home == "in":
            if event.__class__ in _RESERVED:
                raise ReservedEvent(event.type)
            if isinstance(event, SessionReply):
                self._emit_reply(event, done)
                return
            # Where a run stands in its tree is not the sender's to say.
            event = structs.replace(event, root_run_id="", parent_run_id=None)
            self._deliver(event, done)  # type: ignore[arg-type]
            return
        event = self._stamp(event, fields)
        if home == "none":
            self._emit_ephemeral(event, done)
            return
        commit = Commit(events=(event,))
        if done is not None:
            commit.after = lambda _commit: done()
        self._submit(commit)

    def _stamp(self, event: Event, fields: dict[str, Any] | None) -> Event:
        now = self.ports.clock.now()
        if not fields:
            return structs.replace(event, at=now, lane="", seq=0)
        missing = {name: value for name, value in fields.items() if not getattr(event, name)}
        return structs.replace(event, at=now, lane="", seq=0, **missing)

    def _emit_reply(self, event: SessionReply, done: Callable[[], None] | None) -> None:
        """A reply that is emitted counts as one that is given by ``reply`` (H-10)."""
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
        self._number += 1
        event = structs.replace(event, seq=self._number)
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
            self._dropped += 1
        else:
            self._dispatch((event,))
        if done is not None:
            done()

    def scoped(self, **fields: Any) -> AbstractContextManager[None]:
        """Give every event emitted by this task inside the ``with`` these fields (H-12).

        Nests, merges, and is undone on leaving; what an event itself says wins.
        """
        return scope.scoped(fields)

    # ── sending ──────────────────────────────────────────────────────────────────────────────

    def send_to_run(self, run_id: str, message: Sayable, *, source: str = "") -> Receipt:
        """Put a message into a run's inbox (H-07).

        The message is accepted durably, reported as a duplicate, or rejected with a reason;
        awaiting the receipt tells which.  Raises ``BadValue`` for what is no message.
        """
        return self._deliver(session_message(message, source=source), to=run_id)

    def send_to(self, agent_name: str, message: Sayable, *, source: str = "") -> Receipt:
        """Send to the one live run of an agent; rejected when there is none or more (H-08)."""
        event = session_message(message, source=source)
        return self._deliver(event, to=agent_name, by="name")

    def send(
        self, message: Sayable, *, session_key: str | None = None, source: str = ""
    ) -> Receipt:
        """Send to a conversation by its key, or to the only open one (H-08, I-13)."""
        event = session_message(message, source=source)
        if session_key is None:
            return self._deliver(event, to="", by="only")
        return self._deliver(event, to=session_key, by="key")

    def open(
        self,
        agent: str,
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
    ) -> Receipt:
        """Start a run of ``agent``, or find the live one of ``session_key`` (R-09).

        Idempotent by ``run_id``.  When a run is found, ``input`` becomes a message to it.  The
        receipt's ``run_id`` may be sent to at once.  ``timeout`` bounds the whole run (seconds).
        """
        event = SessionOpen(
            run_id=run_id or "",
            open_agent=agent,
            input_json=encode_value("input", input),
            session_key=session_key,
            correlation_id=correlation_id,
            name=name,
            once=once,
            timeout=timeout,
            descriptor_json=encode_value("descriptor", descriptor),
            variables=tuple(
                Variable(name=key, value=Secret(value)) for key, value in (env or {}).items()
            ),
        )
        return self._deliver(event)

    def interrupt(self, run_id: str | None = None, reason: str = "") -> Receipt:
        """Interrupt the turn at work of one run, or of all of them (H-11, T-10)."""
        event = SessionAbort(reason=reason)
        return self._deliver(event, to=run_id or "", by="run" if run_id else "every")

    def close_run(self, run_id: str, reason: str = "") -> Receipt:
        """Accept no more messages, handle what waits, then end the run (R-17)."""
        return self._deliver(SessionClose(reason=reason), to=run_id)

    def terminate(self, run_id: str, reason: str = "") -> Receipt:
        """End a run now and for good; from its acceptance on nothing reaches it (T-05)."""
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
        delivery = self.delivery(event, to=to, by=by)
        receipt.run_id = delivery.to
        commit = Commit(deliveries=(delivery,))
        commit.receipt = receipt
        if done is not None:
            commit.after = lambda _commit: done()
        self._submit(commit)
        return receipt

    def delivery(self, event: InLane, *, to: str | None = None, by: Any = "run") -> Delivery:
        """Address ``event``: what its type means for the inbox it goes to."""
        target = event.run_id if to is None else to
        event = structs.replace(event, at=self.ports.clock.now(), run_id="", lane="", seq=0)
        match event:
            case SessionMessage():
                return Delivery(
                    event, target, by=by, source=event.source, key=event.key, limit=self._max_inbox
                )
            case SessionOpen():
                return self._opening(event, target)
            case SessionReply():
                return Delivery(event, target, source="reply", key=event.prompt_id)
            case SessionResult():
                key = f"{event.child_run_id}#{event.session}"
                return Delivery(event, target, source="result", key=key)
            case SessionTerminate():
                return Delivery(event, target, closes="terminated")
            case SessionClose():
                return Delivery(event, target, closes="closing")
            case SessionAbort() if not target:
                return Delivery(event, "", by="every")
            case _:
                return Delivery(event, target, by=by)

    def _opening(self, event: SessionOpen, run_id: str) -> Delivery:
        run_id = run_id or self.ports.ids.run_id(event.at)
        if event.variables:
            event = self._put_away(run_id, event)
        root, parent = event.root_run_id or run_id, event.parent_run_id
        found = None
        if event.session_key and event.input_json is not NULL:
            found = session_message(event.input if isinstance(event.input, str) else "")
            if not isinstance(event.input, str):
                found = structs.replace(found, content=bytes(event.input_json).decode())
            found = structs.replace(found, at=event.at)
        new = NewRun(
            run_id=run_id,
            root_run_id=root,
            parent_run_id=parent,
            agent=event.open_agent,
            session_key=event.session_key,
            name=event.name,
            wake_at=None if event.timeout is None else event.at + int(event.timeout * 1_000_000),
            found=found,
        )
        return Delivery(event, run_id, limit=self._max_inbox, new=new)

    def _put_away(self, run_id: str, event: SessionOpen) -> SessionOpen:
        """Move the values of variables where only the runtime looks (H-19)."""
        for variable in event.variables:
            value = variable.value.reveal()
            if value is not None:
                self.ports.secrets.put_if_absent(f"{run_id}/{variable.name}", value)
        emptied = tuple(Variable(name=v.name, value=Secret()) for v in event.variables)
        return structs.replace(event, variables=emptied)

    # ── asking ───────────────────────────────────────────────────────────────────────────────

    async def ask(
        self,
        address: str,
        question: str,
        *,
        options: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Any:
        """Ask and wait for the answer (H-10).

        ``address`` is ``"user"`` (whoever answers ``session:prompt`` events), a service such as
        ``"runtime"``, or a run id: the run gets the question as a message with a ``prompt_id``
        and answers with ``hub.reply``.  Raises ``PromptTimeout`` after ``timeout`` seconds,
        ``PromptClosed`` when the run asked is gone, ``Closed`` when the hub closes.
        """
        self._check("ask")
        return await self._prompts.ask(address, question, tuple(options), timeout)

    def reply(self, prompt_id: str, content: str, *, source: str = "") -> Receipt:
        """Answer a prompt; the first reply wins, later and unknown ones are rejected (H-10)."""
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
        match = None if types is None else Patterns(types).match
        selection = Selection(run_id=run_id, root_run_id=root_run_id, match=match)
        position = await place(self.journal, after) if after is not None else 0
        if position is None:
            raise BadValue("after", "a cursor of another store, or of events no longer kept")
        await self.journal.flush()
        end = self.journal.tip
        found: list[Event] = []
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
        audiences = (self._everyone, *self._trees.values(), *self._runs.values())
        return HubStatistics(
            subscribers=sum(len(audience.subscriptions) for audience in audiences),
            buffered=sum(stream.buffered for stream in self._streams),
            dropped=self._dropped,
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
        self._uncommitted[_about(commit)] = commit
        commit.done = self._committed
        self.journal.submit(commit)

    def _committed(self, commit: Commit) -> None:
        self._in_flight -= 1
        if commit.lane is not None:
            commit.lane.in_flight -= 1
        if self._uncommitted.get(about := _about(commit)) is commit:
            del self._uncommitted[about]
        if commit.before is not None:
            commit.before(commit)
        if commit.receipt is not None:
            self._settle(commit.receipt, commit)
        if commit.deliveries and self._owner is not None:
            self._mail.extend(event for event in commit.written if event.lane == "in")  # type: ignore[misc]
        if commit.trailing is None:
            self._dispatch(commit.written)
        else:
            self._dispatch([*commit.written, *commit.trailing])
        if commit.status == "ended":
            self._prompts.run_ended(commit.run_id)
            if commit.leftovers:
                self._bury(commit)
        if commit.after is not None:
            commit.after(commit)

    def _settle(self, receipt: Receipt, commit: Commit) -> None:
        delivery = commit.deliveries[0]
        receipt.run_ids = delivery.run_ids
        if len(delivery.run_ids) == 1:
            receipt.run_id = delivery.run_ids[0]
        if commit.error:
            receipt.settle("rejected", commit.error)
            return
        if delivery.outcome == "accepted" and delivery.event.lane:
            receipt.cursor = cursor_of(self.journal.name, delivery.event)
        receipt.settle(delivery.outcome or "rejected", delivery.reason)
        if delivery.outcome == "rejected":
            self._dead_letter(delivery.to, delivery.reason, delivery.event)

    def _bury(self, commit: Commit) -> None:
        ending = commit.events[-1] if commit.events else None
        reason = "terminated" if getattr(ending, "outcome", "") == "terminated" else "ended"
        for item in commit.leftovers:
            self._dead_letter(commit.run_id, reason, item)

    def _dead_letter(self, to: str, reason: str, event: InLane) -> None:
        if not isinstance(event, SessionMessage | SessionResult | SessionReply):
            return
        log.info("message.undeliverable", to=to, reason=reason)
        letter = HubDeadLetter(
            to=to, reason=reason, message=event, at=self.ports.clock.now(), run_id=to,
            root_run_id=event.root_run_id, agent=event.agent,
        )  # fmt: skip
        self._tell(letter)

    def _dispatch(self, events: Sequence[Event]) -> None:
        """Deliver events that belong together, ahead of what their listeners emit."""
        nested = self._nested
        if self._dispatching:
            nested.extend(events)
            self._queued += len(events)
            return
        self._dispatching = True
        try:
            self._deliver_to_audiences(events)
            while nested:
                self._deliver_to_audiences((nested.popleft(),))
        finally:
            self._dispatching = False
            self._queued = 0
        # Not by the commit itself: a listener's own delivery, nested in the dispatch of an
        # earlier one, would reach the inbox first.
        while self._mail and self._owner is not None:
            self._owner.wake(self._mail.popleft())

    def _deliver_to_audiences(self, events: Sequence[Event]) -> None:
        for event in events:
            type_ = event.type
            if event.lane:
                self.dispatched += 1
                if self._floors and event.run_id in self._floors:
                    self._raise_floor(event)
            elif type_.endswith(":delta") and hasattr(event, "after_seq"):
                self._floors[event.run_id] = event.after_seq
                self._partial.add(event.__class__)
            # Looked up for each event: a listener may subscribe, leave, or close the hub.  Looked
            # up before any is called: who subscribes meanwhile does not get this one (H-04).
            everyone = self._everyone
            row = everyone.rows.get(type_)
            if row is None:
                row = everyone.row(type_)
            if self._trees or self._runs:
                row += self._narrow_row(event)
            for subscription in row:
                try:
                    subscription.deliver(event)
                except Exception as error:
                    self._report(error, event, subscription.handler)

    def _narrow_row(self, event: Event) -> tuple[Subscription, ...]:
        """Those who listen to the event's tree or run only."""
        found: tuple[Subscription, ...] = ()
        if (tree := self._trees.get(event.root_run_id)) is not None:
            found = tree.row_of(event)
        if (run := self._runs.get(event.run_id)) is not None:
            found += run.row_of(event)
        return found

    def _raise_floor(self, event: Event) -> None:
        """Note that earlier deltas of this run are overtaken (R-11)."""
        if event.lane == "own":
            self._floors[event.run_id] = event.seq
            if isinstance(event, AgentComplete):
                del self._floors[event.run_id]

    def _is_void(self, event: Event) -> bool:
        after = getattr(event, "after_seq", None)
        return after is not None and self._floors.get(event.run_id) != after

    def _report(self, error: Exception, event: Event, listener: object) -> None:
        """A listener raised: log it, tell it once, and go on (H-01)."""
        name = _text(getattr(listener, "__qualname__", None) or listener)
        log.error(
            "listener.failed", listener=name, event_type=event.type, error=type(error).__name__,
            exc_info=error,
        )  # fmt: skip
        if event.type == HubErrorEvent.type or self._closed:
            return
        report = HubErrorEvent(
            error=_text(error)[:2000], error_type=type(error).__name__, listener=name,
            during=event.type, at=self.ports.clock.now(), run_id=event.run_id,
            root_run_id=event.root_run_id, parent_run_id=event.parent_run_id, agent=event.agent,
        )  # fmt: skip
        self._tell(report)

    def _tell(self, event: Event) -> None:
        """Dispatch what the hub itself has to say of something that has happened already."""
        self._number += 1
        self._dispatch((structs.replace(event, seq=self._number),))

    def _check(self, call: str) -> None:
        if get_ident() != self._thread:
            raise WrongThread(call)
        if self._closed:
            raise Closed("the hub")
        if self._queued >= MAX_NESTED:
            raise LimitExceeded(
                "events emitted by listeners", MAX_NESTED, "a listener feeds itself"
            )


_RESERVED: Final = (SessionResult, SessionTimer, SessionVariables)


def _about(commit: Commit) -> str:
    """The run that a commit is about, as far as ephemeral events must wait for it."""
    if commit.run_id:
        return commit.run_id
    return commit.events[0].run_id if commit.events else commit.deliveries[0].to


def _both(
    first: Callable[[Commit], None] | None, second: Callable[[], None]
) -> Callable[[Commit], None]:
    def both(commit: Commit) -> None:
        if first is not None:
            first(commit)
        second()

    return both


def _text(thing: object) -> str:
    """``thing`` in words, even if it cannot say them itself."""
    try:
        return str(thing)
    except Exception:
        return f"<{type(thing).__name__}>"


def home_of_custom(event: Event) -> str:
    durable = getattr(event, "durable", None)
    if durable is None:
        return (
            "none" if event.type.endswith(":delta") or event.type.startswith("channel:") else "hub"
        )
    return "hub" if durable else "none"


def _without_secrets(event: Event) -> Event:
    return structs.replace(event, **{name: Secret() for name in event.secret_fields})


def is_async(handler: Handler) -> bool:
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    call = getattr(handler, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
