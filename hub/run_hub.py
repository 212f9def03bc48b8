"""``RunHub``: the hub as one run sees it, its scope.

What is emitted here belongs to the run: it enters the run's own lane, stamped with the run's
ids whatever the event says.  What is sent from here names the run as its source.
Subscriptions made here end with the run.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, Final, Protocol, TypeVar, Unpack

import anyio
from msgspec import structs

from hubbub.hub.delivery import scope
from hubbub.hub.delivery.audience import Subscription, ignore_event
from hubbub.hub.delivery.inbox import Inbox
from hubbub.hub.delivery.listening import Handler, patterns_of
from hubbub.hub.delivery.patterns import Pattern, Patterns
from hubbub.hub.delivery.stream import EventStream
from hubbub.hub.delivery.subscribing import Kinds, Listening, Subscribing
from hubbub.hub.errors import BadValue, CallerError, ReservedEvent
from hubbub.hub.events import (
    Event,
    SessionMessage,
    SessionPrompt,
    SessionPromptEnd,
)
from hubbub.hub.events.codec import check_event, check_texts
from hubbub.hub.events.event import home_of
from hubbub.hub.hub import Hub, HubStatistics, check_told
from hubbub.hub.logs import log
from hubbub.hub.message import Sayable, contents_said, session_message
from hubbub.hub.near_misses import kind_of
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.journal import Addressing as By
from hubbub.hub.store.journal import Commit
from hubbub.hub.tasks.callables import is_async
from hubbub.hub.texts import check_label

__all__ = ["ACTS", "Closable", "RunHub", "RunScope", "RunSubscription"]

E = TypeVar("E", bound=Event)

ACTS: Final = frozenset({
    "approve", "ask", "close_run", "deny", "interrupt", "open", "reply", "send", "send_to",
    "send_to_run", "subscribe", "terminate",
})  # fmt: skip
"""What is refused once a run, or its call, is over."""

_PLACES: Final = ("side", "label", "turn", "call_id")
"""What of a scope says where in its run an event belongs."""


class Closable(Protocol):
    """A subscription or stream."""

    def close(self) -> None:
        """Leave; idempotent."""
        ...


class RunScope(Protocol):
    """What a run lets its scope do."""

    @property
    def lane(self) -> OwnLane:
        """The pen of the run's own lane."""
        ...

    @property
    def is_live(self) -> bool:
        """Whether what is emitted here still counts."""
        ...

    def open_prompt(self, event: SessionPrompt) -> None:
        """Write that a prompt is open, unless what is asked here counts no more."""
        ...

    def end_prompt(self, event: SessionPromptEnd) -> None:
        """Write that it is not any more, unless that has been written."""
        ...

    def write(self, event: Event, done: Callable[[], None] | None) -> None:
        """Write ``event`` into the own lane, or drop it when the run is over."""
        ...

    def read_inbox(self, *, for_handler: bool) -> Inbox:
        """The inbox, for its one reader; raises ``InboxInUse`` where there is one."""
        ...

    def host(self, work: Coroutine[Any, Any, None], name: str = "") -> object:
        """Let ``work`` run in a task that ends with the run."""
        ...

    def keep(self, subscription: Closable) -> None:
        """Close ``subscription`` when the run ends."""
        ...


class RunHub(Subscribing):
    """The hub through a run's scope.  Everything else is as on ``Hub``.

    What is subscribed here listens until the run ends.  Where ``session:message`` (or its class) is
    named, alone or in a list, and another run or tree is not asked for, ``subscribe`` makes the one
    reader of the run's inbox, with a handler, plain or async, or as a stream: messages to this run
    come in order, those accepted before included, one at a time, each consumed when the handler
    returns or the next is asked for.  ``after``, ``lossless`` and ``buffer`` are for what is
    observed besides: other types, and messages to other runs.  A wildcard (``session:*``) names no
    type: it only observes.  It raises ``InboxInUse`` while there is another reader.

    Once the run is over, or the call of a tool or hook to which this was given (its time is over,
    it was interrupted), all that would act raises ``CallerError``, ``emit`` is dropped, and reading
    goes on.
    """

    __slots__ = ("_fields", "_pipeline", "_run", "hub")

    def __init__(self, hub: Hub, run: RunScope, **fields: object) -> None:
        self.hub = hub
        self._pipeline = hub.pipeline
        self._run = run
        self._fields = fields

    def emit(self, event: Event) -> None:
        """Put an event into this run's lane (or the hub's order, if it is ephemeral).

        Dropped and logged when the run is over.  Raises ``ReservedEvent`` for what only the
        runtime writes, ``Closed`` and ``WrongThread``.
        """
        self._pipeline.check("emit")
        self._emit(event, None)

    async def publish(self, event: Event) -> None:
        """``emit``, and return when the event is committed and dispatched; raises as
        ``Hub.publish`` where it is refused."""
        self._pipeline.check("publish")
        done = anyio.Event()
        told = self._emit(event, done.set)
        await done.wait()
        check_told(self.hub, told)

    def _check_live(self, call: str) -> None:
        """Raise ``CallerError`` where nothing counts any more that is done here."""
        if not self._run.is_live:
            self._pipeline.check(call)
            raise CallerError(
                f"{call}: this call is over, or run {self.run_id}; nothing more is done in its name"
            )

    def _emit(self, event: Event, done: Callable[[], None] | None) -> Commit | Receipt | None:
        if not isinstance(event, Event):
            raise BadValue("emit", f"expected an Event, not {kind_of(event)}")
        if not self._run.is_live:
            log.info("event.dropped", run_id=self._run.lane.run_id, event_type=event.type)
            if done is not None:
                done()
            return None
        home = home_of(event)
        if home == "in":
            source: dict[str, Any] = {}
            if isinstance(event, SessionMessage):
                source["from_run"] = True
                if not event.source:
                    source["source"] = self._run.lane.run_id
            return self._pipeline.emit(structs.replace(event, **source), done)
        if home == "none":
            check_texts(event)
        else:
            check_event(event)
        fields = {**self._fields, **(scope.current() or {})}
        placed = {
            name: value
            for name, value in fields.items()
            if name in _PLACES and not getattr(event, name)
        }
        if home == "none":
            lane = self._run.lane
            event = structs.replace(
                event,
                at=self.hub.ports.clock.now(),
                run_id=lane.run_id,
                root_run_id=lane.root_run_id,
                parent_run_id=lane.parent_run_id,
                agent=lane.agent,
                lane="",
                **placed,
            )
            self._pipeline.emit_ephemeral(event)
            if done is not None:
                done()
            return None
        self._run.write(structs.replace(event, **placed) if placed else event, done)
        return None

    def _listen(
        self,
        pattern: Pattern,
        kinds: Kinds,
        handler: Handler | None,
        **how: Unpack[Listening],
    ) -> EventStream[Any] | Subscription:
        """See ``subscribe``."""
        if not isinstance(pattern, str) and isinstance(pattern, Iterable):
            pattern = tuple(pattern)
        lane = self._run.lane
        self._pipeline.check("subscribe")
        self._check_live("subscribe")
        patterns = patterns_of(pattern, handler, how.get("buffer"))
        is_reader = (
            SessionMessage.type in patterns.exact
            and how.get("run_id") in (None, lane.run_id)
            and how.get("root_run_id") in (None, lane.root_run_id)
        )
        if is_reader:
            subscription = self._read_inbox(patterns, kinds, handler, how)
        else:
            subscription = self.hub._listen(pattern, kinds, handler, **how)
            if isinstance(subscription, Subscription):
                subscription.by = lane.run_id
        self._run.keep(subscription)
        return subscription

    def _read_inbox(
        self, patterns: Patterns, kinds: Kinds, handler: Handler | None, how: Listening
    ) -> EventStream[Any] | Subscription:
        options: dict[str, Any] = {"run_id": None, "root_run_id": None, **how}
        inbox, listeners = self._run.read_inbox(for_handler=handler is not None), self.hub.listeners
        if handler is None:
            return listeners.stream(patterns, inbox=inbox, kinds=kinds, **options)
        own = inbox.run_id
        if is_async(handler) or options.get("after") is not None or how.get("partial"):
            stream = listeners.stream(patterns, inbox=inbox, **options)
            subscription = listeners.feed(stream, handler, self._run.host, kinds)
            subscription.by = own
            return subscription
        # What a plain handler observes comes to it during the dispatch.
        messages = listeners.stream(
            Patterns(SessionMessage.type), inbox=inbox, run_id=own, root_run_id=None
        )

        @wraps(handler)
        def observe(event: Event) -> object:
            if event.__class__ is not SessionMessage or event.run_id != own:
                return handler(event)
            return None

        both = RunSubscription(
            listeners.feed(messages, handler, self._run.host, kinds),
            listeners.call(
                patterns, observe, run_id=options["run_id"], root_run_id=options["root_run_id"],
                kinds=kinds,
            ),
        )  # fmt: skip
        for part in both.parts:
            part.by = own
        return both

    def has(self, type_: str) -> bool:
        """Whether anybody would get such an event of this run."""
        lane = self._run.lane
        return self.hub.has(type_, run_id=lane.run_id, root_run_id=lane.root_run_id)

    def scoped(self, **fields: object) -> AbstractContextManager[None]:
        """See ``Hub.scoped``."""
        return self.hub.scoped(**fields)

    def send_to_run(self, run_id: str, message: Sayable) -> Receipt:
        """Put a message into a run's inbox, in this run's name."""
        self._check_live("send_to_run")
        return self._deliver(message, run_id, "run")

    def send_to(self, agent_name: str, message: Sayable) -> Receipt:
        """Send to the one live run of an agent, in this run's name."""
        self._check_live("send_to")
        return self._deliver(message, agent_name, "name")

    def send(self, message: Sayable, *, session_key: str | None = None) -> Receipt:
        """Send to a conversation by its key, or to the only open one."""
        self._check_live("send")
        return self._deliver(message, session_key or "", "only" if session_key is None else "key")

    def _deliver(self, message: Sayable, to: str, by: By) -> Receipt:
        """Send a message in the run's own name."""
        event = session_message(message, source=self._run.lane.run_id)
        contents = contents_said(message) if event.parts else None
        event = structs.replace(event, from_run=True)
        return self._pipeline.deliver(event, to=to, by=by, contents=contents)

    def open(self, agent: str, input: object = None, **options: Any) -> Receipt:
        """Start an independent run; ``ctx.spawn`` starts a child."""
        self._check_live("open")
        return self.hub.open(agent, input, **options)

    async def ask(
        self,
        address: str,
        question: str,
        *,
        options: Sequence[str] = (),
        timeout: float | None = None,
    ) -> Any:
        """Ask as this run: the prompt and its reply are in this run's journal.

        Raises ``WaitCycle`` for the run itself, and for one that waits for it: for its outcome, or
        for its answer while none of its tasks can give it.
        """
        self._pipeline.check("ask")
        self._check_live("ask")
        return await self.hub.prompts.ask(
            address,
            question,
            options,
            timeout,
            asker=self,
        )

    @property
    def run_id(self) -> str:
        """The run whose scope this is."""
        return self._run.lane.run_id

    def open_prompt(self, event: SessionPrompt) -> None:
        """Record that the run asks; for ``ask``."""
        self._run.open_prompt(self._placed(event))

    def end_prompt(self, event: SessionPromptEnd) -> None:
        """Record that it does not any more, unless that is on record; for ``ask``."""
        self._run.end_prompt(self._placed(event))

    def _placed(self, event: E) -> E:
        fields = {**(scope.current() or {}), **{k: v for k, v in self._fields.items() if v}}
        return structs.replace(event, **{k: v for k, v in fields.items() if k in _PLACES})

    def reply(self, prompt_id: str, content: str, *, is_error: bool = False) -> Receipt:
        """Answer a prompt in this run's name, see ``Hub.reply``; the first reply wins."""
        self._check_live("reply")
        return self.hub.reply(prompt_id, content, is_error=is_error, source=self.run_id)

    def approve(self, prompt_id: str, arguments: Mapping[str, Any] | None = None) -> Receipt:
        """Approve a call in this run's name, see ``Hub.approve``; the first reply wins."""
        self._check_live("approve")
        return self.hub.approve(prompt_id, arguments, source=self.run_id)

    def deny(self, prompt_id: str, reason: str = "") -> Receipt:
        """Refuse what a prompt asks for in this run's name, see ``Hub.deny``; the first reply
        wins."""
        self._check_live("deny")
        return self.hub.deny(prompt_id, reason, source=self.run_id)

    def interrupt(self, run_id: str, reason: str = "") -> Receipt:
        """See ``Hub.interrupt``."""
        self._check_live("interrupt")
        check_label("run_id", run_id)
        return self.hub.interrupt(run_id, reason)

    def close_run(self, run_id: str, reason: str = "") -> Receipt:
        """See ``Hub.close_run``."""
        self._check_live("close_run")
        return self.hub.close_run(run_id, reason)

    def terminate(self, run_id: str, reason: str = "") -> Receipt:
        """See ``Hub.terminate``."""
        self._check_live("terminate")
        return self.hub.terminate(run_id, reason)

    async def read(
        self,
        run_id: str | None = None,
        *,
        root_run_id: str | None = None,
        after: str | None = None,
        types: Pattern | None = None,
        limit: int | None = None,
    ) -> list[Event]:
        """See ``Hub.read``."""
        return await self.hub.read(
            run_id, root_run_id=root_run_id, after=after, types=types, limit=limit
        )

    def cursor(self, event: Event) -> str:
        """The cursor after a durable event."""
        return self.hub.cursor(event)

    def statistics(self) -> HubStatistics:
        """How much there is of everything in the hub, now."""
        return self.hub.statistics()


class RunSubscription(Subscription):
    """Two subscriptions left together."""

    __slots__ = ("parts",)

    def __init__(self, *parts: Subscription) -> None:
        super().__init__(parts[0].patterns, ignore_event, self._leave_parts)
        self.parts = parts

    def _leave_parts(self, _: Subscription) -> None:
        for part in self.parts:
            part.close()


def refuse_reserved(event: Event, reserved: frozenset[type]) -> None:
    """Raise ``ReservedEvent`` for an event that only the runtime may write."""
    if event.__class__ in reserved:
        raise ReservedEvent(event.type)
