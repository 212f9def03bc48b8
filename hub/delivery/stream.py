"""Streams: what happens, as something to read with ``async for``.

A stream is either *live* (in an audience, events are pushed into its buffer) or *reading* (out
of it, taking pages from the journal).  It goes live when it has read up to the last dispatched
position, with no await in between: nothing is missed, nothing comes twice.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from threading import get_ident
from typing import Any, Final, Generic, Self, TypeVar

from msgspec import structs

from hubbub.hub.delivery.audience import Subscription
from hubbub.hub.delivery.dispatch import Dispatcher
from hubbub.hub.delivery.inbox import Inbox
from hubbub.hub.delivery.patterns import Patterns
from hubbub.hub.errors import CallerError, EventsMissed, StoreFailed
from hubbub.hub.events import Event, HubGap, SessionMessage
from hubbub.hub.events.codec import event_as
from hubbub.hub.home_loop import running_loop
from hubbub.hub.store.cursor import START, cursor_at, cursor_of, is_cut, may_bring_more, place
from hubbub.hub.store.journal import Selection
from hubbub.hub.tasks.waiter import Waiter, wake

__all__ = ["EventStream"]

E = TypeVar("E", bound=Event)
N = TypeVar("N", bound=Event)

_MESSAGES: Final = frozenset((SessionMessage.type,))

_REMEDY: Final = "read it in its own loop, and hand on what it yields"

PAGE: Final = 500
"""Events read from the journal at a time."""


class EventStream(Generic[E]):
    """Events in order, as an async iterator and context manager.

    Live from the moment ``subscribe`` returned.  Ends when the hub closes or ``close`` is
    called, after what is buffered.  When the store has failed, reading raises ``StoreFailed`` in
    the place of what would come; it can be read on after that, and has what is not recorded.  A
    consumer that falls more than ``buffer`` events behind gets one ``HubGap`` in the place of what
    it missed, or, with ``lossless=True``, reads the missing durable events from the journal.  If a
    retention removes some of these first, it gets a ``HubGap``, then those that are kept.  One
    consumer at a time: a task that waits beside another one gets a ``CallerError``.

    A stream of classes (``EventStream[AgentText]``) yields nothing else: it raises
    ``EventsMissed`` in the place of the gap, and can be read on after it.

    With an ``inbox``, the messages of its run come from there: none is observed besides, missed
    or put off by what else the stream observes, which comes in turn with them.  Such a stream
    ends when the run is closed and has read its last message.
    """

    __slots__ = (
        "_after", "_buffer", "_closed", "_dispatcher", "_dropped", "_gone", "_had_message",
        "_home", "_inbox", "_is_awaited", "_is_over", "_kinds", "_last", "_limit", "_lossless",
        "_mark", "_marked", "_outlives_store", "_position", "_reading", "_removed", "_room",
        "_selection", "_shown", "_shows_all", "_start", "_until", "_waiter", "dropped",
        "subscription",
    )  # fmt: skip

    def __init__(
        self,
        dispatcher: Dispatcher,
        patterns: Patterns,
        *,
        run_id: str | None,
        root_run_id: str | None,
        after: str | None,
        lossless: bool,
        buffer: int,
        inbox: Inbox | None = None,
        kinds: tuple[type[Event], ...] = (),
    ) -> None:
        self._dispatcher = dispatcher
        self._home = dispatcher.home
        self._shows_all = inbox is None
        """Whether whatever is buffered is yielded, if its class is right and it is not void."""
        self._kinds = kinds
        self._inbox = inbox
        self._outlives_store = inbox is not None
        """Whether it goes on in silence when the store has failed, or has said so."""
        self._had_message = False
        """Whether a message was yielded last, and not something observed."""
        self._selection = Selection(run_id=run_id, root_run_id=root_run_id, match=patterns.match)
        self._buffer: deque[Event] = deque()
        self._limit = self._room = buffer
        self._lossless = lossless
        self._waiter: Waiter | None = None
        self._is_awaited = False
        self._closed = False
        self._dropped = 0
        self.dropped = 0
        """Events this stream has missed in all."""
        self._last: Event | None = None
        self._after = after
        self._start = self._position = dispatcher.dispatched
        self._reading = after is not None
        self._removed = False
        """Whether events were removed from the journal that it had not read yet."""
        self._gone = 0
        """Up to where something was removed while its place was looked for."""
        self._until: Callable[[Event], bool] | None = None
        self._is_over = False
        """Whether what would have ended it was missed, or is kept no longer."""
        self._shown: Patterns | None = None
        self._mark: Callable[[str], Event] | None = None
        self._marked: Event | None = None
        """The mark that was put into the buffer."""
        push = self._push if inbox is None else self._push_others
        self.subscription = Subscription(
            patterns, push, lambda _: self.close(), run_id=run_id, root_run_id=root_run_id
        )
        """The stream's place among those who listen; to leave it is to close the stream."""
        if not self._reading:
            self._attach()
        for going in dispatcher.going:
            self.removed(*going)

    # ── the hub's side ───────────────────────────────────────────────────────────────────────

    def _push(self, event: Event) -> None:
        buffer = self._buffer
        if len(buffer) < self._room:
            buffer.append(event)
            if self._waiter is not None:
                self._wake()
        else:
            self._overflow(event)

    def _attach(self) -> None:
        """Get what is dispatched from now on."""
        self._dispatcher.attach(self.subscription)

    def _push_others(self, event: Event) -> None:
        if not self._is_in_inbox(event):
            self._push(event)

    def _is_in_inbox(self, event: Event) -> bool:
        inbox = self._inbox
        return (
            inbox is not None and event.__class__ is SessionMessage and event.run_id == inbox.run_id
        )

    def _wake(self) -> None:
        if self._waiter is not None:
            wake(self._waiter)
            self._waiter = None

    def _overflow(self, event: Event) -> None:
        # Nothing is taken in any more until the consumer has reached the place of the gap.
        self._room = 0
        self._dropped += 1
        if not self._lossless:
            self.dropped += 1
            self._dispatcher.dropped += 1
            self._is_over |= self._until is not None and self._until(event)
        elif self._dropped == 1:
            # Whatever was dispatched before this event has been yielded or is buffered, so the
            # journal is read from here on; a cursor would do too, unless its event is dropped.
            self._position = self._dispatcher.dispatched - bool(event.lane)
            self._dispatcher.detach(self.subscription)

    def removed(self, root_run_id: str | None, run_ids: Collection[str] | None, last: int) -> None:
        """A tree goes from the journal (``Dispatcher.removed``)."""
        if not self._selection.meets(root_run_id, run_ids):
            return
        if self._after is not None:
            self._gone = max(self._gone, last)
            return
        dispatched, is_live = self._dispatcher.dispatched, not (self._reading or self._dropped)
        if is_live and not self._closed and dispatched < last:
            # It goes before it was heard of here: what is kept is read from here on.
            self._reading, self._position = True, dispatched
            self._dispatcher.detach(self.subscription)
            self._wake()
        if (self._reading or (self._lossless and self._dropped)) and self._position < last:
            self._removed = True

    def close(self) -> None:
        """End the stream after what is buffered; idempotent."""
        if not self._closed:
            self._dispatcher.home.is_left("close")
            self._closed = True
            self.subscription.forget()  # Each held the other, and what is buffered.
            self._dispatcher.detach(self.subscription)
            self._dispatcher.streams.pop(self, None)
            if self._inbox is not None:
                self._inbox.release()
            if self.subscription.handler is not None:
                # A handler that was unsubscribed, or whose hub is closed, is not called again.
                self._end()
            self._wake()

    def _end(self) -> None:
        """End the stream here, whatever is buffered or missing."""
        self.close()
        self._buffer.clear()
        self._dropped = 0
        self._after, self._last = (self.cursor if self._last else self._after), None

    def outlive_store(self) -> None:
        """Go on without a word when the store has failed: for who must also hear what follows."""
        self._outlives_store = True

    def wake(self) -> None:
        """Have the consumer look again: the store has failed."""
        self._wake()

    def end_after(self, until: Callable[[Event], bool], shown: Patterns | None = None) -> None:
        """End behind the first event for which ``until`` is true, or the gap where that is missed.

        What is not among those ``shown`` was only listened to for that, and is not yielded.
        """
        self._until = until
        self._shown = shown
        self._shows_all = False

    def mark_live(self, mark: Callable[[str], Event]) -> None:
        """Yield ``mark(cursor)`` once, behind what is on record and before what happens then.

        The cursor resumes there.  Where the journal was read in between, it is not said again.
        """
        self._mark = mark
        if not self._reading:
            self._put_mark()

    def _put_mark(self) -> None:
        if self._mark is not None:
            cursor = cursor_at(self._dispatcher.journal.name, self._position)
            self._marked, self._mark = self._numbered(self._mark(cursor)), None
            self._room += 1
            self._buffer.append(self._marked)
            self._wake()

    # ── the consumer's side ──────────────────────────────────────────────────────────────────

    @property
    def buffered(self) -> int:
        """How many events wait to be read."""
        return len(self._buffer)

    @property
    def cursor(self) -> str:
        """Resumes after the last durable event this stream has yielded."""
        if self._last is None:
            return self._after or cursor_at(self._dispatcher.journal.name, self._start)
        return cursor_of(self._dispatcher.journal.name, self._last)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        home = self._home
        if get_ident() != home.thread:
            home.check("anext", _REMEDY)
        buffer = self._buffer
        if buffer and self._shows_all:  # Each event of most streams comes this way.
            first, kinds = buffer[0], self._kinds
            if (not kinds or first.__class__ in kinds) and not (
                first.is_partial and self._is_void(first)
            ):
                if first.lane:
                    self._last = first
                return buffer.popleft()  # type: ignore[return-value]  # Of the classes named.
        inbox = self._inbox
        if inbox is not None:
            self._begin(inbox)
        while True:
            if inbox is not None and (message := self._message(inbox)) is not None:
                return message  # type: ignore[return-value]  # Its patterns name messages.
            if buffer:
                if (event := self._take_next(buffer)) is not None:
                    return event
                continue
            if self._dropped:
                if (gap := self._reach_gap()) is not None:
                    return self._told(gap)
            elif self._closed or (inbox is not None and inbox.is_over):
                raise StopAsyncIteration
            elif self._is_awaited:
                raise CallerError("another task reads this stream; subscribe once for each of them")
            elif self._reading:
                home.check("anext", _REMEDY)
                if (gap := await self._read_alone()) is not None:
                    return self._told(gap)
            elif self._is_over:
                self._end()
            else:
                if running_loop() is not home.loop:  # ``check``, but nothing is written here.
                    home.refuse("anext", _REMEDY)
                if self._dispatcher.journal.failure and not self._outlives_store:
                    self._outlives_store = True
                    journal = self._dispatcher.journal
                    raise StoreFailed(journal.name, journal.failure)
                self._waiter = waiter = home.make_waiter()
                self._is_awaited = True
                try:
                    if inbox is not None:
                        with inbox.waiting(for_others=self._hears_others):
                            await waiter
                    elif self.subscription.handler is not None:
                        await waiter
                    else:
                        with self._dispatcher.waiting(waiter.done):
                            await waiter
                finally:
                    self._is_awaited = False

    async def take(self) -> list[E]:
        """Wait for what comes next, and take all that is buffered then; empty at the end.

        The same events in the same order as by ``async for``, but with one wait for many.  Of a
        stream with an inbox one at a time: a message is done with when the next one is asked for.
        Raises ``EventsMissed`` as the iteration does.
        """
        try:
            taken = [await self.__anext__()]
        except StopAsyncIteration:
            return []
        buffer = self._buffer
        while buffer and self._inbox is None:
            if (event := self._take_next(buffer)) is not None:
                taken.append(event)
        return taken

    def _take_next(self, buffer: deque[Event]) -> E | None:
        """What is first in the buffer, or ``None`` if it is not to be shown."""
        event = buffer.popleft()
        if event is self._marked:
            return event  # type: ignore[return-value]  # Who had it put there wants it.
        if event.lane:
            self._last = event
        elif event.is_partial and self._is_void(event):
            return None
        if self._until is not None:
            if self._until(event):
                self._end()
            if self._shown is not None and not self._shown.match(event.type):
                return None
        if self._kinds and not isinstance(event, self._kinds):
            event = event_as(event, self._kinds)
        return event  # type: ignore[return-value]  # Of the classes that were named.

    def _is_void(self, event: Event) -> bool:
        """Whether a delta is left out, for it has been overtaken."""
        return self._dispatcher.is_void(event)

    def _begin(self, inbox: Inbox) -> None:
        """What was yielded before is done with."""
        if self._closed:
            inbox.consume()
        else:
            inbox.begin()
            inbox.on_message = self._wake

    def _message(self, inbox: Inbox) -> SessionMessage | None:
        """The next message of the inbox, unless it is the turn of what is observed."""
        message = None
        if not (self._closed or (self._had_message and self._buffer)):
            message = inbox.next_nowait()
        self._had_message = message is not None
        return message

    @property
    def _hears_others(self) -> bool:
        """Whether somebody else's event may be what is waited for."""
        return self.subscription.patterns.types != _MESSAGES

    def _reach_gap(self) -> HubGap | None:
        dropped, self._dropped, self._room = self._dropped, 0, self._limit
        if not self._lossless:
            return self._gap(dropped=dropped)
        if self._closed:
            return self._gap(reason="closed")
        self._reading = True
        return None

    def _told(self, gap: HubGap) -> E:
        """The gap in the place of what was missed; raised where the stream yields no such class."""
        if self._kinds and not isinstance(gap, self._kinds):
            raise EventsMissed(gap.dropped, gap.reason, gap.cursor)
        return gap  # type: ignore[return-value]  # Of the classes that were named.

    def _gap(self, **facts: Any) -> HubGap:
        return self._numbered(HubGap(cursor=self.cursor, **facts))

    def _numbered(self, event: N) -> N:
        """An event that nobody else gets, with its time and number."""
        dispatcher = self._dispatcher
        dispatcher.number += 1
        return structs.replace(event, at=dispatcher.ports.clock.now(), seq=dispatcher.number)

    async def _read_alone(self) -> HubGap | None:
        self._is_awaited = True
        try:
            return await self._read_on()
        finally:
            self._is_awaited = False

    async def _read_on(self) -> HubGap | None:
        """Take one page; go live when there is none left.  Returns a gap for a lost place, and for
        what was removed before it was read; that comes before the page."""
        if self._after is not None:
            journal, after = self._dispatcher.journal, self._after
            found = await place(journal, after)
            cut = found and after != START and await is_cut(journal, self._selection, found)
            # Something may have gone behind that look.
            cut = cut or (after != START and self._gone > (found or 0))
            self._after = None  # Not before: a reader that is cancelled here begins again.
            self._start = self._position = found or 0
            if found is None:
                return self._gap(reason="unknown cursor")
            self._removed = bool(cut)
        until = self._dispatcher.dispatched
        events, reached = await self._dispatcher.journal.read(
            self._selection, after=self._position, until=until, limit=PAGE
        )
        is_at_end = self._until is not None and reached >= self._dispatcher.dispatched
        if is_at_end and not await may_bring_more(self._dispatcher.journal, self._selection):
            self._is_over, self._removed = True, self._removed or bool(self._last and not events)
        gap = self._gap(reason="removed") if self._removed else None  # Before what was read.
        self._removed = False
        self._position = reached
        self._buffer.extend(self._without_messages(events))
        # No await from here on: what is compared must hold when it is attached.
        if reached >= self._dispatcher.dispatched:
            self._reading = False
            self._room = self._limit + len(self._buffer)  # What was read is not in arrears.
            if not self._closed:
                self._attach()
                self._put_mark()
        return gap

    def _without_messages(self, events: Sequence[Event]) -> Sequence[Event]:
        """What was read, except for the messages that the inbox has."""
        if self._inbox is None:
            return events
        return [event for event in events if not self._is_in_inbox(event)]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end()
