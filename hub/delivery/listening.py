"""``Listeners``: what ``subscribe`` makes of a pattern and a handler.

no handler                    a stream
a plain handler               a call during the dispatch
an async handler, or a past   a stream, and a task that calls the handler for each of its events
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeAlias

from hubbub.hub.delivery.audience import Subscription
from hubbub.hub.delivery.dispatch import Dispatcher
from hubbub.hub.delivery.inbox import Inbox
from hubbub.hub.delivery.partial_stream import PartialStream
from hubbub.hub.delivery.patterns import MAX_PATTERNS, Pattern, Patterns
from hubbub.hub.delivery.stream import EventStream
from hubbub.hub.errors import BadValue, Closed, EventsMissed
from hubbub.hub.events import CATALOGUE, Event, HubGap
from hubbub.hub.events.codec import event_as
from hubbub.hub.logs import log
from hubbub.hub.tasks.callables import function_problem
from hubbub.hub.tasks.raised import is_contained, is_of
from hubbub.hub.texts import check_labels
from hubbub.hub.values import check_counts

__all__ = ["Handler", "Listeners", "next_of", "patterns_of"]

Handler: TypeAlias = Callable[[Event], Any]
"""What a subscription calls with each event; awaited if it is async (``callables``)."""

_KNOWN: Final[frozenset[type[Event]]] = frozenset(CATALOGUE)


class Listeners:
    """Makes the subscriptions and streams of a hub; ``buffer`` bounds each stream by default."""

    __slots__ = ("_buffer", "_dispatcher", "_warned")

    def __init__(self, dispatcher: Dispatcher, buffer: int) -> None:
        self._dispatcher = dispatcher
        self._buffer = buffer
        self._warned: set[str] = set()

    def warn(self, patterns: Patterns) -> None:
        """Say once of each pattern that no event of the library will match it."""
        for each in patterns.unmatched:
            if each not in self._warned and len(self._warned) < MAX_PATTERNS:
                self._warned.add(each)
                log.warning(
                    "pattern.unmatched", pattern=each,
                    remedy="give events of your own a name of their own, as in 'shop:order'",
                )  # fmt: skip

    def call(
        self, patterns: Patterns, handler: Handler, *, run_id: str | None, root_run_id: str | None,
        kinds: tuple[type[Event], ...] = (),
    ) -> Subscription:  # fmt: skip
        """Call a plain handler during the dispatch."""
        check_labels(run_id=run_id, root_run_id=root_run_id)
        if patterns.unmatched:
            self.warn(patterns)
        deliver = handler if _KNOWN.issuperset(kinds) else _of_kinds(handler, kinds)
        subscription = Subscription(
            patterns, deliver, self._dispatcher.detach, run_id=run_id, root_run_id=root_run_id,
            handler=handler,
        )  # fmt: skip
        self._dispatcher.attach(subscription)
        return subscription

    def stream(
        self, patterns: Patterns, *, buffer: int | None = None, lossless: bool = False,
        after: str | None = None, run_id: str | None, root_run_id: str | None,
        inbox: Inbox | None = None, kinds: tuple[type[Event], ...] = (), partial: bool = False,
    ) -> EventStream[Any]:  # fmt: skip
        """Open a stream; ``inbox``: the messages of its run come from there."""
        check_labels(run_id=run_id, root_run_id=root_run_id, after=after)
        if patterns.unmatched:
            self.warn(patterns)
        stream: EventStream[Any] = (PartialStream if partial else EventStream)(
            self._dispatcher, patterns, run_id=run_id, root_run_id=root_run_id, after=after,
            lossless=lossless, buffer=buffer or self._buffer, inbox=inbox, kinds=kinds,
        )  # fmt: skip
        self._dispatcher.streams[stream] = None
        return stream

    def feed(
        self, stream: EventStream[Any], handler: Handler, start: Callable[..., object],
        kinds: tuple[type[Event], ...] = (),
    ) -> Subscription:  # fmt: skip
        """Call a handler for each event of a stream, in a task that ``start`` begins.

        Raises what ``start`` raises; where that is ``Closed``, the stream is closed.
        """
        try:
            called = _of_kinds(handler, kinds) if kinds else handler
            start(self._consume(stream, called), name="hubbub handler")
        except Closed:
            stream.close()
            raise
        stream.subscription.handler = handler
        stream.outlive_store()
        return stream.subscription

    async def _consume(self, stream: EventStream[Any], handler: Handler) -> None:
        async with stream:
            while (event := await next_of(stream)) is not None:
                try:
                    answer = handler(event)
                    if inspect.isawaitable(answer):
                        await answer
                except BaseException as error:
                    self._dispatcher.home.end_forked(error)
                    if not is_contained(error):
                        raise
                    self._dispatcher.report(error, event, handler, stream.subscription.by)
                if self._dispatcher.home.is_forked:
                    self._dispatcher.home.end_forked()


async def next_of(stream: EventStream[Any]) -> Any:
    """What comes next, ``None`` at the end.  For a task that is the hub's: where somebody cancels
    it who is none of its scopes, it goes on; cancelled in a handler, that handler has failed."""
    while True:
        try:
            return await anext(stream, None)
        except BaseException as error:
            if is_of(error, Exception) or not is_contained(error):
                raise


def _of_kinds(handler: Handler, kinds: tuple[type[Event], ...]) -> Handler:
    """The handler, called with events of these classes only; what is none is raised instead."""

    @wraps(handler, updated=())
    def call(event: Event) -> Any:
        if isinstance(event, kinds):
            return handler(event)
        if isinstance(event, HubGap):
            raise EventsMissed(event.dropped, event.reason, event.cursor)
        return handler(event_as(event, kinds))

    return call


def patterns_of(pattern: Pattern, handler: object, buffer: int | None) -> Patterns:
    """What is listened to; raises ``BadPattern`` or ``BadValue`` where it cannot be."""
    if buffer is not None:
        check_counts(1, buffer=buffer)
    patterns = Patterns(pattern)
    if handler is not None and (problem := function_problem(handler)):
        raise BadValue("subscribe", problem)
    return patterns
