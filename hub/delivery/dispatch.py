"""``Dispatcher``: one order for everything that is seen.

    events of a commit ──► audiences: everyone, the tree, the run ──► then the owner's mail

Rules
-----
* One dispatch at a time.  What a listener emits meanwhile is queued behind the whole of it.
* Rows of listeners are immutable tuples, looked up before any of them is called: who subscribes
  during a dispatch does not get that event, who leaves before its turn is not called.
* A listener that raises is reported once, as ``hub:error``, and holds up nobody.  One that ends
  the program ends it from a task of the hub's, and the commit at work is finished first.
* The owner of runs learns of what entered their inboxes after the dispatch, in the order of
  the commits.
* Deltas are void once a later durable event of their run has been dispatched.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final, Protocol

from msgspec import structs

from hubbub.hub.delivery import scope
from hubbub.hub.delivery.answers import PartialAnswers
from hubbub.hub.delivery.audience import Audience, Subscription
from hubbub.hub.delivery.dead_letters import dead_letter_of
from hubbub.hub.errors import CallerError
from hubbub.hub.events import (
    Event,
    HubErrorEvent,
    InLane,
    SessionMessage,
    SessionOpen,
)
from hubbub.hub.logs import log
from hubbub.hub.masking import Masker, class_name_of, words_of
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import FoundTree, Journal
from hubbub.hub.task_host import TaskHost
from hubbub.hub.tasks.callables import unawaited
from hubbub.hub.tasks.raised import exit_in

__all__ = ["MAX_NESTED", "Dispatcher", "OpenStream", "Owner"]

MAX_NESTED: Final = 100_000
"""Events that listeners may have emitted and nobody has been given yet."""


class Owner(Protocol):
    """What makes runs happen; it learns of every item that enters an inbox, after its commit."""

    def wake(self, item: InLane) -> None:
        """An item has entered an inbox."""
        ...

    def expect(self, opening: SessionOpen) -> None:
        """A new run is being opened; the store has yet to say so."""
        ...

    def heard_elsewhere(self, events: Sequence[Event]) -> None:
        """Other processes that share the store have written these, which are dispatched."""
        ...

    def claimed(self, root_run_ids: Collection[str]) -> None:
        """Trees that were another process's, or nobody's, are this one's."""
        ...

    def came_in(self, tree: FoundTree) -> None:
        """A tree is on record whole, that was not there."""
        ...

    def lost(self, root_run_ids: Collection[str]) -> None:
        """Trees are this process's no longer."""
        ...

    def crowded(self, room: Mapping[str, int]) -> None:
        """Other processes have room for so many of this one's trees, by agent."""
        ...

    def refusal_of(self, run_id: str) -> str:
        """Why no message may be sent to a run just now; empty where one may."""
        ...

    def is_busy(self, run_id: str) -> bool:
        """Whether the run is in memory or on its way there."""
        ...

    def found_damage(self, run_id: str) -> None:
        """The store has found that it cannot read a run."""
        ...

    def interrupted_with(self, run_id: str) -> tuple[str, ...]:
        """The run and those it waits for: what an interruption of it reaches."""
        ...

    async def interrupted_elsewhere(self, run_id: str, seq: int) -> tuple[str, ...]:
        """The same, where another process drives the run: as it is on record at that item."""
        ...

    def waits_for(self, run_id: str, other: str) -> bool:
        """Whether a run waits, maybe through others, for an outcome of another."""
        ...

    async def read_waits(self, run_id: str) -> None:
        """Before ``asking``: read what the asked run waits for, where that takes reading."""
        ...

    def waiter_of(self, asker: str) -> str:
        """Whose code is to wait for an answer: the run that asks, or, where none does, the one
        whose code calls; empty where that is nobody's."""
        ...

    def asking(
        self, asker: str, asked: str, is_open: Callable[[], bool]
    ) -> AbstractContextManager[None]:
        """Inside, a run (or the caller, if it is a run's code) waits for another's answer, while
        ``is_open``.  Raises ``WaitCycle`` on entering where that waits for it."""
        ...

    def waiting(self, is_heard: Callable[[], bool] | None = None) -> AbstractContextManager[None]:
        """What the caller does inside only waits for what somebody else will do.

        With ``is_heard`` a run's code keeps nobody from leaving until that is true.
        """
        ...

    def masker(self, *run_ids: str) -> Masker:
        """What takes the values of these runs' secrets out of what is said of failures."""
        ...


class OpenStream(Protocol):
    """What somebody reads, as the dispatcher knows it."""

    @property
    def buffered(self) -> int:
        """How many events wait to be read."""
        ...

    def close(self) -> None:
        """End after what is buffered."""
        ...

    def wake(self) -> None:
        """Look again at what there is."""
        ...

    def removed(self, root_run_id: str | None, run_ids: Collection[str] | None, last: int) -> None:
        """A tree goes from the journal; its last event has the position ``last``."""
        ...


class Relay(Protocol):
    """What brings deltas to other processes and from them, as the dispatcher knows it."""

    def listeners_changed(self, subscription: Subscription) -> None:
        """Somebody has begun or ceased to listen."""
        ...

    def recorded(self, event: Event, position: int) -> None:
        """A durable event is about to be delivered."""
        ...


class Dispatcher:
    """Who listens to what, and the one order in which events reach them."""

    __slots__ = (
        "_after_mail", "_dispatching", "_everyone", "_floors", "_nested", "_runs", "_tasks",
        "_trees", "answers", "changes", "dispatched", "dropped", "going", "hearing", "home",
        "is_closed", "journal", "mail", "number", "owner", "ports", "queued", "relay", "streams",
    )  # fmt: skip

    def __init__(self, journal: Journal, ports: Ports, tasks: TaskHost) -> None:
        self._tasks = tasks
        self.home = tasks.home
        self.journal = journal
        self.ports = ports
        self.dispatched = 0
        """The position of the last durable event that was dispatched."""
        self.dropped = 0
        self.changes = 0
        """How often somebody has begun or ceased to listen."""
        self.streams: dict[OpenStream, None] = {}
        self.going: list[tuple[str | None, Collection[str] | None, int]] = []
        """What is about to go from the journal, as ``removed`` says it."""
        self.mail: deque[InLane] = deque()
        """What entered inboxes and has not been announced to the owner yet."""
        self.owner: Owner | None = None
        self.relay: Relay | None = None
        """Only where the store has a bus."""
        self.hearing: Relay | None = None
        """The same, as long as somebody here listens to deltas."""
        self.queued = 0
        self.is_closed = False
        self.number = ports.ids.number() << 4
        """The number of the last ephemeral event: of 52 bits at first, so that it stays one that
        every reader of JSON has exactly, and hardly ever another hub's."""
        self._everyone = Audience()
        self._trees: dict[str, Audience] = {}
        self._runs: dict[str, Audience] = {}
        self._dispatching = False
        self._after_mail: list[Callable[[], None]] = []
        self._nested: deque[Event] = deque()
        self._floors: dict[str, int] = {}
        """What the deltas follow of each run that was not recorded since."""
        self.answers = PartialAnswers(self.after_mail)

    # ── who listens ──────────────────────────────────────────────────────────────────────────

    @property
    def audiences(self) -> tuple[Audience, ...]:
        """Everybody who listens."""
        return (self._everyone, *self._trees.values(), *self._runs.values())

    def close(self) -> None:
        """Deliver nothing more to anybody, and end every stream."""
        self.is_closed = True
        # A dispatch at work holds a row of these: it must not call them any more.
        for audience in self.audiences:
            audience.stop_all()
        self._everyone = Audience()
        self._trees.clear()
        self._runs.clear()
        for stream in tuple(self.streams):
            stream.close()

    def store_failed(self) -> None:
        """Have every stream tell its reader."""
        for stream in tuple(self.streams):
            stream.wake()

    def passed(self, position: int) -> None:
        """What was to be dispatched up to a position has gone from the journal."""
        self.dispatched = max(self.dispatched, position)

    def removed(self, root_run_id: str | None, run_ids: Collection[str] | None, last: int) -> None:
        """A tree goes from the journal: every stream that has yet to read it says so.

        Without its root it may be any tree, without run ids any run may be one of it.
        """
        for stream in tuple(self.streams):
            stream.removed(root_run_id, run_ids, last)

    def removing(self, root_run_id: str, run_ids: Collection[str], last: int) -> Callable[[], None]:
        """``removed``, up to the call of what is returned, which tells that the commit is done by
        which it goes: who begins to read meanwhile may see it there, and then no more."""
        going = (root_run_id, run_ids, last)
        self.going.append(going)
        self.removed(*going)
        return partial(self.going.remove, going)

    def has(self, type_: str, *, run_id: str = "", root_run_id: str = "") -> bool:
        """Whether anybody would get an event of this type; guards costly payloads."""
        rows = self._everyone.rows.get(type_)
        if rows is None:
            rows = self._everyone.row(type_)
        if rows:
            return True
        for audience in (self._trees.get(root_run_id), self._runs.get(run_id)):
            if audience is not None and (audience.rows.get(type_) or audience.row(type_)):
                return True
        return False

    def attach(self, subscription: Subscription) -> None:
        """Let a subscription get what is dispatched from now on."""
        if self.is_closed:
            return
        self.changes += 1
        if self.relay is not None:
            self.relay.listeners_changed(subscription)
        if subscription.run_id is not None:
            audience = self._runs.setdefault(subscription.run_id, Audience())
        elif subscription.root_run_id is not None:
            audience = self._trees.setdefault(subscription.root_run_id, Audience())
        else:
            audience = self._everyone
        audience.add(subscription)

    def detach(self, subscription: Subscription) -> None:
        """Let a subscription get nothing more."""
        self.home.is_left("close")
        self.changes += 1
        if self.relay is not None:
            self.relay.listeners_changed(subscription)
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

    # ── dispatching ──────────────────────────────────────────────────────────────────────────

    def dispatch(self, events: Sequence[Event]) -> None:
        """Deliver events that belong together, ahead of what their listeners emit."""
        nested = self._nested
        if self._dispatching:
            nested.extend(events)
            self.queued += len(events)
            return
        self._dispatching = True
        if nested:  # Left by a listener that has ended the program.
            events = (*nested, *events)
            nested.clear()
        queue = iter(events)
        # What a listener emits is its own: the emitter's scope is not for it.
        token = scope.clear() if scope.current() else None
        try:
            while True:
                for event in queue:
                    if event.lane:
                        self.dispatched += 1
                        if self._floors or self.answers.by_run or self.hearing is not None:
                            self._overtake(event)
                    elif event.is_partial:
                        # It is void from the next record of its run on.
                        self._floors[event.run_id] = event.after_seq  # type: ignore[attr-defined]
                    # Looked up for each event: a listener may subscribe, leave, or close the hub.
                    # Looked up before any is called: who subscribes meanwhile does not get this.
                    row = self._everyone.rows.get(event.type)
                    if row is None:
                        row = self._everyone.row(event.type)
                    if self._trees or self._runs:
                        row += self._narrow_row(event)
                    for subscription in row:
                        try:
                            if (answer := subscription.deliver(event)) is not None:
                                self._look_at(answer, event, subscription)
                        except BaseException as error:
                            if not self._takes(error, event, subscription):
                                raise
                        if self.home.is_forked:
                            self.home.end_forked()
                if not nested:
                    break
                queue = iter(tuple(nested))
                nested.clear()
        except BaseException:
            nested.extendleft(reversed((*queue,)))
            raise
        finally:
            self._dispatching = False
            self.queued = 0
            if token is not None:
                scope.restore(token)
        # Not by the commit itself: a listener's own delivery, nested in the dispatch of an
        # earlier one, would reach the inbox first.
        while self.mail and self.owner is not None:
            self.owner.wake(self.mail.popleft())
        while self._after_mail:
            self._after_mail.pop()()

    def after_mail(self, call: Callable[[], None]) -> None:
        """Call something once the owner has been notified of what is there now."""
        if self._dispatching or self.mail:
            self._after_mail.append(call)
        else:
            call()

    def _overtake(self, event: Event) -> None:
        """A durable event is about to be delivered: earlier deltas of its run are overtaken."""
        if self.hearing is not None:
            self.hearing.recorded(event, self.dispatched)
        if event.lane == "own":
            if event.run_id in self.answers.by_run:
                self.answers.overtake(event)
            self._floors.pop(event.run_id, None)

    def _narrow_row(self, event: Event) -> tuple[Subscription, ...]:
        """Those who listen to the event's tree or run only."""
        found: tuple[Subscription, ...] = ()
        if (tree := self._trees.get(event.root_run_id)) is not None:
            found = tree.row_of(event)
        if (run := self._runs.get(event.run_id)) is not None:
            found += run.row_of(event)
        return found

    def is_void(self, event: Event) -> bool:
        """Whether a later durable event has overtaken this delta."""
        after = getattr(event, "after_seq", None)
        return after is not None and self._floors.get(event.run_id) != after

    def waiting(self, is_heard: Callable[[], bool] | None = None) -> AbstractContextManager[None]:
        """The code at hand waits; the owner of runs may let others continue meanwhile."""
        return nullcontext() if self.owner is None else self.owner.waiting(is_heard)

    def masker(self, *run_ids: str) -> Masker:
        """What is said of failures that concern these runs goes through it."""
        return Masker(()) if self.owner is None else self.owner.masker(*run_ids)

    def _takes(self, error: BaseException, event: Event, subscription: Subscription) -> bool:
        """See to what a listener raised; False where there is nobody who could end the program."""
        self.home.end_forked(error)
        # No cancellation reaches a plain function: what it raises is of its own making.
        ending = exit_in(error)
        if ending is not None:
            return self._tasks.end_program(ending)
        self.report(error, event, subscription.handler, subscription.by)
        return True

    def _look_at(self, answer: object, event: Event, subscription: Subscription) -> None:
        """Report a listener that has returned what would have to be awaited."""
        if problem := unawaited(answer):
            self.report(CallerError(problem), event, subscription.handler, subscription.by)

    def report(self, error: BaseException, event: Event, listener: object, by: str = "") -> None:
        """A listener raised: log it, tell it once, and continue."""
        name = words_of(getattr(listener, "__qualname__", None) or listener)
        mask = self.masker(event.run_id, by)
        kind = mask(class_name_of(error))
        log.error(
            "listener.failed", listener=name, event_type=event.type, error=kind,
            exc_info=mask.error(error),
        )  # fmt: skip
        if event.type == HubErrorEvent.type or self.is_closed:
            return
        report = HubErrorEvent(
            error=mask(words_of(error), 2000), error_type=kind, listener=name,
            during=event.type, at=self.ports.clock.now(), run_id=event.run_id,
            root_run_id=event.root_run_id, parent_run_id=event.parent_run_id, agent=event.agent,
        )  # fmt: skip
        self.announce(report)

    def refused(self, to: str, reason: str, event: InLane) -> None:
        """Tell once of an item that was refused, if somebody counts on it.

        What a run takes for an address can be anything that it has, a secret as well.
        """
        if isinstance(event, SessionMessage) and event.from_run:
            mask = self.masker(event.source)
            run_id, root_run_id = mask(event.run_id), mask(event.root_run_id)
            to, event = mask(to), structs.replace(event, run_id=run_id, root_run_id=root_run_id)
        if (letter := dead_letter_of(to, reason, event, at=self.ports.clock.now())) is not None:
            self.announce(letter)

    def announce(self, event: Event) -> None:
        """Dispatch an event by which the hub reports what has happened."""
        self.number += 1
        self.dispatch((structs.replace(event, seq=self.number),))
