"""``Subscribing``: what listens to events, and how they are typed.

    subscribe("agent:*")                      a stream of ``Event``
    subscribe(AgentText)                      a stream of ``AgentText``
    subscribe((AgentText, AgentStep), f)      a call of ``f`` with one or the other

A class stands for its type; ``Event`` itself for every type.  What is delivered for a class is of
that class: a class of the caller's own also gets what the journal has kept of it, read as that
class, and what a stream has missed is no event of it, but an ``EventsMissed`` (see there).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict, TypeVar, Unpack, overload

from hubbub.hub.delivery.audience import Subscription
from hubbub.hub.delivery.listening import Handler
from hubbub.hub.delivery.patterns import Pattern
from hubbub.hub.delivery.stream import EventStream
from hubbub.hub.errors import BadPattern, BadValue
from hubbub.hub.events import CustomEvent, Event
from hubbub.hub.events.codec import UnknownEvent

__all__ = ["Kinds", "Listening", "Subscribing", "check_enders", "read_pattern"]

E = TypeVar("E", bound=Event)
E2 = TypeVar("E2", bound=Event)
E3 = TypeVar("E3", bound=Event)
Kinds = tuple[type[Event], ...]
"""The classes that were named; empty where names were."""


class Listening(TypedDict, total=False):
    """How a subscription listens; see ``Subscribing.subscribe``."""

    run_id: str | None
    root_run_id: str | None
    after: str | None
    lossless: bool
    buffer: int | None
    partial: bool


class Subscribing(ABC):
    """What can be subscribed to: the hub, and the hub through a run's scope."""

    __slots__ = ()

    @overload
    def subscribe(
        self, pattern: type[E], handler: None = None, **how: Unpack[Listening]
    ) -> EventStream[E]: ...
    @overload
    def subscribe(
        self, pattern: tuple[type[E], type[E2]], handler: None = None, **how: Unpack[Listening]
    ) -> EventStream[E | E2]: ...
    @overload
    def subscribe(
        self,
        pattern: tuple[type[E], type[E2], type[E3]],
        handler: None = None,
        **how: Unpack[Listening],
    ) -> EventStream[E | E2 | E3]: ...
    @overload
    def subscribe(
        self,
        pattern: tuple[type[E], ...] | list[type[E]],
        handler: None = None,
        **how: Unpack[Listening],
    ) -> EventStream[E]: ...
    @overload
    def subscribe(
        self, pattern: Sequence[type[Event]], handler: None = None, **how: Unpack[Listening]
    ) -> EventStream[Event]: ...
    @overload
    def subscribe(
        self, pattern: Pattern, handler: None = None, **how: Unpack[Listening]
    ) -> EventStream[Event]: ...
    @overload
    def subscribe(
        self, pattern: type[E], handler: Callable[[E], object], **how: Unpack[Listening]
    ) -> Subscription: ...
    @overload
    def subscribe(
        self,
        pattern: tuple[type[E], type[E2]],
        handler: Callable[[E | E2], object],
        **how: Unpack[Listening],
    ) -> Subscription: ...
    @overload
    def subscribe(
        self,
        pattern: tuple[type[E], type[E2], type[E3]],
        handler: Callable[[E | E2 | E3], object],
        **how: Unpack[Listening],
    ) -> Subscription: ...
    @overload
    def subscribe(
        self,
        pattern: tuple[type[E], ...] | list[type[E]],
        handler: Callable[[E], object],
        **how: Unpack[Listening],
    ) -> Subscription: ...
    @overload
    def subscribe(
        self, pattern: Sequence[type[Event]], handler: Handler, **how: Unpack[Listening]
    ) -> Subscription: ...
    @overload
    def subscribe(
        self, pattern: Pattern, handler: Handler, **how: Unpack[Listening]
    ) -> Subscription: ...

    def subscribe(
        self, pattern: Any, handler: Any = None, **how: Unpack[Listening]
    ) -> EventStream[Any] | Subscription:
        """Listen to events whose type matches ``pattern``: patterns or classes, one or several.

        Without a handler, returns a stream for ``async for``.  A plain handler is called during
        the dispatch; an async one is fed by a bounded stream of its own, one event at a time.
        A plain one that returns a coroutine (a ``lambda`` around an async function) is reported as
        ``hub:error``, and the coroutine closed; one that yields is refused.
        ``run_id`` selects one run, ``root_run_id`` a run and all its descendants. ``after``
        replays the journal from a cursor (``"start"``: everything kept) and goes live without gap
        or duplicate.  ``partial`` begins with the text so far of each answer under way, as one
        delta, and leaves out none of the rest; a subscriber that falls behind gets what it has
        missed in one piece, unless the answer is over: the ``offset`` shows it.  A plain handler
        with ``after`` or ``partial`` is fed like an async one.  Before the hub is entered, plain
        handlers and streams can be subscribed without these, and hear of its opening.  Raises
        ``BadPattern``, ``BadValue``, ``Closed``, ``WrongThread``, and ``CallerError`` for others
        before.

        By classes, streams and handlers get events of these classes and nothing else: where one has
        missed some, a stream raises ``EventsMissed`` in their place, and of an async handler it is
        reported as ``hub:error``.  With ``HubGap`` among the classes, that is delivered instead.
        """
        pattern, kinds = read_pattern(pattern)
        return self._listen(pattern, kinds, handler, **how)

    @abstractmethod
    def _listen(
        self, pattern: Pattern, kinds: Kinds, handler: Handler | None, **how: Unpack[Listening]
    ) -> EventStream[Any] | Subscription:
        """Carry ``subscribe`` out."""


def read_pattern(pattern: object) -> tuple[Any, Kinds]:
    """A pattern of names and, where classes were given, the classes."""
    if isinstance(pattern, type):
        pattern = (pattern,)
    if isinstance(pattern, str) or not isinstance(pattern, Iterable):
        return pattern, ()
    parts = tuple(pattern)
    if not any(isinstance(each, type) for each in parts):
        return parts, ()
    for each in parts:
        named = isinstance(each, type) and issubclass(each, Event)
        if not named or issubclass(each, CustomEvent | UnknownEvent):
            raise BadPattern(each)
    return tuple("*" if each is Event else each.type for each in parts), parts


def check_enders(enders: object) -> None:
    """Raise ``BadValue`` for what is no tuple of classes of events."""
    if not isinstance(enders, tuple) or not all(
        isinstance(each, type) and issubclass(each, Event) for each in enders
    ):
        raise BadValue("enders", "expected a tuple of classes of events")
