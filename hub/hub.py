"""``Hub``: the one place where things meet.

Everything that happens and everything that is said goes through here, in one order:

    emit ──► commit (durable events) ──► dispatch ──► audiences: all, tree, run
    send ──► commit (deliveries)     ──► dispatch ──► the run's owner wakes

* A durable event is dispatched after its commit and never before; an ephemeral one at once,
  but never ahead of the same run's uncommitted durable ones.
* An event emitted during a dispatch is seen after the outer one by everybody.
* ``emit``, ``send_to_run``, ``open`` and ``reply`` are plain functions that act at the call.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any, Final, Self

import anyio
from msgspec import Struct
from msgspec.structs import replace

from hubbub.hub.bus.bus import bus_of
from hubbub.hub.delivery import scope
from hubbub.hub.delivery.audience import Subscription
from hubbub.hub.delivery.dispatch import Owner
from hubbub.hub.delivery.listening import Handler, Listeners, patterns_of
from hubbub.hub.delivery.patterns import Pattern, Patterns
from hubbub.hub.delivery.share import HubShare
from hubbub.hub.delivery.stream import EventStream
from hubbub.hub.delivery.subscribing import Kinds, Subscribing, check_enders, read_pattern
from hubbub.hub.errors import BadValue, CallerError, Closed, StoreFailed
from hubbub.hub.events import Event
from hubbub.hub.events.moments import check_clock
from hubbub.hub.masking import Masker
from hubbub.hub.near_misses import kind_of
from hubbub.hub.pipeline import Pipeline
from hubbub.hub.ports import Ports
from hubbub.hub.prompts import Prompts
from hubbub.hub.receipt import Receipt
from hubbub.hub.relay.delta_relay import DeltaRelay
from hubbub.hub.sending import Sending, UnusedHistory
from hubbub.hub.store.cursor import cursor_of, read_all
from hubbub.hub.store.journal import Commit, Selection
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Removed, Store
from hubbub.hub.task_host import TaskHost
from hubbub.hub.tasks.callables import is_async, yielding_problem
from hubbub.hub.tasks.cancelling import defer_interrupts
from hubbub.hub.texts import check_labels
from hubbub.hub.values import check_counts

__all__ = ["Handler", "Hub", "HubStatistics", "check_told"]

DEFAULT_BUFFER: Final = 1024
DEFAULT_INBOX: Final = 10_000


class HubStatistics(Struct, frozen=True, kw_only=True):
    """A snapshot."""

    subscribers: int
    buffered: int
    dropped: int
    live: int
    parked: int
    waiting: int
    uncommitted: int
    removed: Removed | None = None
    """What the retention of the runtime has had go; ``None`` where everything is kept."""


class Hub(Sending, Subscribing):
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
        check_counts(1, buffer=buffer, max_inbox=max_inbox)
        _check_parts(journal, ports)
        self.ports = (ports or Ports()).of_store(journal)
        self.journal: Store = journal or MemoryJournal(ids=self.ports.ids)
        self.tasks = TaskHost(self.ports.is_watched)
        self.removed: Removed | None = None
        self.pipeline = Pipeline(self.journal, self.ports, self.tasks, max_inbox)
        self.pipeline.prompts = self.prompts = Prompts(self.pipeline, self.tasks)
        self.addressing = self.pipeline.addressing
        self.dispatcher = self.pipeline.dispatcher
        self.share = HubShare(
            self.dispatcher, self.prompts.replied_elsewhere, self.prompts.heard_elsewhere,
            self._ended_elsewhere,
        )  # fmt: skip
        self.addressing.is_shared = self.share.sharing is not None
        bus = bus_of(self.journal)
        self._relay = (
            None if bus is None else DeltaRelay(self.dispatcher, self.share, self.tasks, bus)
        )
        self.listeners = Listeners(self.dispatcher, buffer)
        self._unused_history = UnusedHistory()

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        if self.pipeline.is_closed:
            raise Closed("the hub", "a hub can be entered only once; make a new one")
        if self.tasks.is_open:
            raise CallerError("this hub is open already; use the open one")
        defer_interrupts(Hub.__aenter__, Hub.__aexit__, Hub.aclose, TaskHost.start)
        check_clock(self.ports.clock.now())
        await self.pipeline.begin()
        self.share.begin()
        try:
            await self.prompts.noted.begin()
            await self.tasks.open()
            self.prompts.noted.opened()
            if self._relay is not None:
                self._relay.begin()
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
        self.pipeline.home.end_forked(exc)
        await self.aclose()

    async def aclose(self) -> None:
        """Commit what is submitted, end every stream, cancel every handler; idempotent.

        What was submitted before the call is dispatched, too.  What is emitted meanwhile is
        committed, but it is not waited for whoever goes on emitting.

        After a loop that was closed while tasks were at work in it the store is released as it is,
        and ``WrongLoop`` raised: what was not acknowledged is not written.  Raises ``CallerError``
        in an async listener, tool, code agent or service of this hub, which would wait for itself,
        and on Trio in any but the task that entered the hub.
        """
        if self.pipeline.home.is_left("aclose"):
            return
        self.tasks.refuse_within("hub.aclose()")
        if self.tasks.is_stranded:
            await self._abandon()
        try:
            with anyio.CancelScope(shield=True):
                if not self.pipeline.is_closed:
                    self.prompts.close()
                    self.share.leave()
                    await self.journal.flush()
        finally:
            self.close()
            # Not shielded: on Trio these leave task groups, which nest with the caller's scopes.
            try:
                await self.tasks.aclose()
            finally:
                self.ports.dismiss_threads()
                await self.journal.aclose()

    async def _abandon(self) -> None:
        """Release threads and the store after a loop that was closed over tasks of the hub's, which
        nobody can wait for or end; and say so."""
        with suppress(RuntimeError):  # Nor can anybody be told.
            self.pipeline.close()
        self.ports.dismiss_threads()
        await self.journal.aclose()
        self.tasks.refuse_stranded("leaving the hub")

    def close(self) -> None:
        """Accept and deliver nothing more.  ``aclose`` also waits for the hub's tasks."""
        self.pipeline.home.is_left("close")
        if not self.pipeline.is_closed:
            self.prompts.close()
            if self._relay is not None:
                self._relay.close()
        self.pipeline.close()

    def _ended_elsewhere(self, run_id: str) -> None:
        self.prompts.run_ended(run_id)
        self.addressing.run_ended(run_id)

    @property
    def is_closed(self) -> bool:
        """Whether nothing is accepted or delivered any more."""
        return self.pipeline.is_closed

    def set_owner(self, owner: Owner | None) -> None:
        """Name who learns of deliveries; a hub has one owner at a time."""
        if owner is not None and self.dispatcher.owner is not None:
            raise BadValue("Hub", "this hub already has a runtime; use one Runtime per hub")
        self.dispatcher.owner = owner

    # ── listening ────────────────────────────────────────────────────────────────────────────

    def _listen(
        self,
        pattern: Pattern,
        kinds: Kinds,
        handler: Handler | None,
        *,
        run_id: str | None = None,
        root_run_id: str | None = None,
        after: str | None = None,
        lossless: bool = False,
        buffer: int | None = None,
        partial: bool = False,
    ) -> EventStream[Any] | Subscription:
        """See ``subscribe``."""
        patterns = patterns_of(pattern, handler, buffer)
        only_listens = after is None and not partial and not (handler and is_async(handler))
        if not (only_listens and self.pipeline.is_ahead):  # The rest takes a store, or tasks.
            self.pipeline.check("subscribe")
        if handler is not None and only_listens:
            return self.listeners.call(
                patterns, handler, run_id=run_id, root_run_id=root_run_id, kinds=kinds
            )
        stream = self.listeners.stream(
            patterns, run_id=run_id, root_run_id=root_run_id, after=after, lossless=lossless,
            buffer=buffer, kinds=() if handler is not None else kinds, partial=partial,
        )  # fmt: skip
        if handler is None:
            return stream
        return self.listeners.feed(stream, handler, self.tasks.start, kinds)

    def subscribe_until(
        self,
        pattern: Any,
        until: Callable[[Event], bool],
        enders: tuple[type[Event], ...] = (),
        *,
        run_id: str | None = None,
        root_run_id: str | None = None,
        after: str | None = None,
        lossless: bool = False,
        partial: bool = False,
    ) -> EventStream[Any]:
        """A stream that ends after the first event for which ``until`` is true.

        Events of the classes ``enders`` are looked at even if ``pattern`` does not name them; such
        a one ends the stream and is not yielded.
        """
        pattern, kinds = read_pattern(pattern)
        if not callable(until) or is_async(until) or yielding_problem(until):
            raise BadValue("until", "expected a plain function of an event")
        shown = Patterns(pattern)
        check_enders(enders)
        named = (pattern,) if isinstance(pattern, str) else tuple(pattern)
        stream = self._listen(
            (*named, *(each.type for each in enders)), kinds, None, run_id=run_id,
            root_run_id=root_run_id, after=after, lossless=lossless, partial=partial,
        )  # fmt: skip
        assert isinstance(stream, EventStream)
        stream.end_after(until, None if all(shown.match(x.type) for x in enders) else shown)
        return stream

    def has(self, type_: str, *, run_id: str = "", root_run_id: str = "") -> bool:
        """Whether anybody would get an event of this type; guards costly payloads.

        Raises ``BadValue`` for a type or an id that is no text.
        """
        if not isinstance(type_, str):
            raise BadValue("has", f"expected an event's type, not {kind_of(type_)}")
        check_labels(run_id=run_id, root_run_id=root_run_id)
        return self.dispatcher.has(type_, run_id=run_id, root_run_id=root_run_id)

    # ── emitting ─────────────────────────────────────────────────────────────────────────────

    def emit(self, event: Event) -> None:
        """Put an event into the hub's order, now.

        A durable event is dispatched after its commit (with the memory journal: before this
        returns, unless called by a listener), an ephemeral one right away.  ``session:*`` events
        that are addressed to a run become deliveries to its inbox.  An ``agent:*`` event emitted
        here rather than through a run's scope is carried and journaled in the hub's lane and is
        no fact about any run.  The ids that an event is emitted with need not be those of runs:
        they are names of at most 255 characters.  Raises ``Closed``, ``WrongThread``, and
        ``BadValue`` for an event that JSON cannot hold (a text that is no Unicode, a value of
        another type than its field's); never raises what a listener raised.
        """
        self.pipeline.check("emit")
        if not isinstance(event, Event):
            raise BadValue("emit", f"expected an Event, not {kind_of(event)}")
        self.pipeline.emit(event)

    async def publish(self, event: Event) -> None:
        """``emit``, and return when the event is committed and dispatched.

        What is addressed to a run is in its inbox then, or was before.  Raises ``StoreFailed`` when
        the store could not keep it, and what ``Receipt.raise_if_rejected`` raises for what was
        refused (``UnknownRun``, ``RunEnded``, ``CallerError``).
        """
        self.pipeline.check("publish")
        if not isinstance(event, Event):
            raise BadValue("publish", f"expected an Event, not {kind_of(event)}")
        done = anyio.Event()
        told = self.pipeline.emit(event, done.set)
        await done.wait()
        check_told(self, told)

    def check_store(self) -> None:
        """Raise ``StoreFailed`` if the store accepts nothing any more."""
        if self.journal.failure:
            raise StoreFailed(self.journal.name, self.journal.failure)

    def scoped(self, **fields: object) -> AbstractContextManager[None]:
        """Give every event emitted by this task inside the ``with`` these fields.

        Nests, merges, and is undone on leaving; what an event itself says wins.
        """
        return scope.scoped(fields)

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
        self.pipeline.check("read")
        check_labels(run_id=run_id, root_run_id=root_run_id, after=after)
        if limit is not None:
            check_counts(0, limit=limit)
        match = None if types is None else Patterns(types).match
        selection = Selection(run_id=run_id, root_run_id=root_run_id, match=match)
        return await read_all(self.journal, selection, after=after, limit=limit)

    def cursor(self, event: Event) -> str:
        """The cursor after a durable event; raises ``BadValue`` for what is no event."""
        self.pipeline.home.check_begun("cursor")
        if not isinstance(event, Event):
            raise BadValue("cursor", f"expected an Event, not {kind_of(event)}")
        return cursor_of(self.journal.name, event)

    def statistics(self) -> HubStatistics:
        """How much there is of everything, now."""
        self.pipeline.home.check("statistics")
        live, parked, waiting = self.journal.depths()
        return HubStatistics(
            subscribers=sum(len(audience.subscriptions) for audience in self.dispatcher.audiences),
            buffered=sum(stream.buffered for stream in self.dispatcher.streams),
            dropped=self.dispatcher.dropped, live=live, parked=parked, waiting=waiting,
            uncommitted=self.pipeline.in_flight, removed=self.removed and replace(self.removed),
        )  # fmt: skip

    def masker(self, *run_ids: str) -> Masker:
        """What is said of failures that concern these runs goes through it: it takes the values of
        their secrets, and the keys of providers, out of texts and exceptions."""
        return self.dispatcher.masker(*run_ids)

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs in the thread that the hub belongs to."""
        return self.pipeline.home.is_current_thread


def _check_parts(journal: object, ports: object) -> None:
    """Raise ``BadValue`` for what is no store, or no ports."""
    if journal is not None and (isinstance(journal, type) or not hasattr(journal, "submit")):
        remedy = "; Runtime(store=…) takes the name of one" if isinstance(journal, str) else ""
        raise BadValue("journal", f"expected a store, not {kind_of(journal)}{remedy}")
    if ports is not None and not isinstance(ports, Ports):
        raise BadValue("ports", f"expected Ports, not {kind_of(ports)}")


def check_told(hub: Hub, told: Commit | Receipt | None) -> None:
    """Raise what ``publish`` raises, where what was emitted has been refused."""
    hub.check_store()
    if isinstance(told, Receipt):
        told.raise_if_rejected()
    elif told is not None and told.error:
        raise BadValue("publish", told.error)
