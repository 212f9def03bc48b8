"""``DeltaRelay``: pieces of answers between a hub and those of other processes, over a bus.

    what is listened to here ─► a frame ──────► others make pieces of it, as for listeners of theirs
    pieces of trees that are owned here ──────► frames, one each ``PERIOD`` ─► others
    others' frames ─► once their position is reached here ─► dispatch, numbered as this hub's

* A piece is sent when it is dispatched here, so behind what was recorded before it, and with the
  position that is dispatched when it is sent.  It is dispatched elsewhere when that position is,
  unless a record of its run stands behind that: then it is dropped.
* Frames of a process are taken in their order; one that comes late or twice is dropped.
* Where nobody listens to pieces in any other process, none is made for others and nothing is sent.
  What a process wants it says again each ``BEAT``, and its word holds for ``HOLDS``.
* Everything has a bound: what waits to be sent, what waits for its position, who wants what.
"""

from collections import deque
from typing import Final

import anyio
from msgspec import Struct, structs

from hubbub.hub.bus.bus import Bus, Topic
from hubbub.hub.delivery.answers import KINDS
from hubbub.hub.delivery.audience import Subscription
from hubbub.hub.delivery.dispatch import Dispatcher
from hubbub.hub.delivery.share import HubShare
from hubbub.hub.events import Event
from hubbub.hub.relay.frames import (
    DeltaFrame,
    WantFrame,
    delta_frames,
    read_frame,
    want_frame,
)
from hubbub.hub.relay.interest import (
    DELTA,
    Interest,
    ListenerElsewhere,
    Scope,
    bounded,
    interest_of,
    listened_to,
    wanted_of,
)
from hubbub.hub.relay.outgoing_deltas import OutgoingDeltas
from hubbub.hub.task_host import TaskHost

__all__ = ["BEAT", "HOLDS", "PERIOD", "DeltaRelay"]

PERIOD: Final = 0.05
"""Seconds between two sendings, at least."""

BEAT: Final = 2.0
"""Seconds after which a process that wants something says so again."""

HOLDS: Final = 7.0
"""Seconds for which others believe it."""

MAX_OTHERS: Final = 1_000
"""Processes whose wants, and whose numbers, are known at a time."""

MAX_EARLY: Final = 256
"""Frames that wait for their position; of more the oldest are dropped."""

KEPT: Final = 10_000
"""Runs of which it is known where they were last recorded."""


class _Wants(Struct, eq=False):
    """What another process wants."""

    number: int
    until: float
    interest: Interest


class _Recorded:
    """Where the runs that were recorded last have their last record."""

    __slots__ = ("last", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        """All that were recorded behind this position are known."""
        self.last: dict[str, int] = {}

    def note(self, run_id: str, position: int) -> None:
        """A run was recorded."""
        last = self.last
        last.pop(run_id, None)
        last[run_id] = position
        if len(last) > KEPT:
            self.since = last.pop(next(iter(last)))


class DeltaRelay:
    """A hub's share in the bus of its store."""

    def __init__(self, dispatcher: Dispatcher, share: HubShare, tasks: TaskHost, bus: Bus) -> None:
        self._dispatcher = dispatcher
        self._share = share
        self._tasks = tasks
        self._bus = bus
        self._clock = dispatcher.ports.clock
        self._process = dispatcher.number
        """Who this is, for others: hardly ever another hub's number."""
        self._number = 0
        self._is_open = self._is_at_work = self._is_beating = False
        self._due = anyio.Event()
        self._has_changed = self._is_asked = False
        """Whether it is to be said what is wanted."""
        self._said: Interest = {}
        self._others: dict[int, _Wants] = {}
        self._elsewhere: dict[Scope, ListenerElsewhere] = {}
        self._outgoing = OutgoingDeltas()
        self._numbers: dict[int, int] = {}
        """The number of the last frame of pieces of each process."""
        self._early: deque[DeltaFrame] = deque()
        self._next = 0
        """The first position that a frame waits for."""
        self._recorded = _Recorded(0)
        self._passing: Event | None = None
        """The piece that is being dispatched for another process, or was last taken for others."""

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Hear and send from now on; the hub's tasks can be started."""
        self._is_open, self._due = True, anyio.Event()
        self._bus.open(self._hear, self._tasks)
        self._dispatcher.relay = self
        self._want(listened_to(self._dispatcher.audiences), asks=True)

    def close(self) -> None:
        """Hear and send nothing more; idempotent."""
        if self._is_open:
            self._is_open = False
            self._dispatcher.relay = self._dispatcher.hearing = None
            if self._said:
                self._say({})
            self._bus.close()

    def _wake(self) -> None:
        self._due.set()
        if not self._is_at_work and self._is_open:
            self._is_at_work = True
            self._tasks.start(self._serve(), name="hubbub deltas", steady=True)

    async def _serve(self) -> None:
        while True:
            await self._due.wait()
            self._due = anyio.Event()
            if self._has_changed or self._is_asked:
                self._want_more()
            if self._outgoing:
                self._send()
            await self._clock.sleep(PERIOD)

    # ── what is wanted here ──────────────────────────────────────────────────────────────────

    def listeners_changed(self, subscription: Subscription) -> None:
        """Somebody has begun or ceased to listen."""
        if subscription.__class__ is not ListenerElsewhere and not self._has_changed:
            self._has_changed = True
            self._wake()

    def _want_more(self) -> None:
        """Say at once what is wanted beside what was; what is not any more, with the next beat."""
        wanted = listened_to(self._dispatcher.audiences)
        for scope, named in self._said.items():
            wanted[scope] = wanted.get(scope, frozenset()) | named
        self._has_changed, is_asked, self._is_asked = False, self._is_asked, False
        if is_asked or bounded(wanted) != self._said:
            self._want(bounded(wanted))

    def _want(self, wanted: Interest, *, asks: bool = False) -> None:
        dispatcher = self._dispatcher
        if asks or wanted or self._said:
            self._say(wanted, asks=asks)
        if not wanted:
            dispatcher.hearing = None
            self._early.clear()
        elif dispatcher.hearing is None:
            self._recorded = _Recorded(dispatcher.dispatched)
            dispatcher.hearing = self
        if wanted and not self._is_beating:
            self._is_beating = True
            self._tasks.start(self._beat(), name="hubbub deltas beat", steady=True)

    def _say(self, wanted: Interest, *, asks: bool = False) -> None:
        self._said = wanted
        self._number += 1
        self._bus.listen(bool(wanted))
        wants = wanted_of(wanted)
        self._bus.publish("wants", want_frame(self._process, self._number, wants, asks=asks))

    async def _beat(self) -> None:
        while self._said:
            await self._clock.sleep(BEAT)
            self._want(listened_to(self._dispatcher.audiences))
        self._is_beating = False

    # ── what is made here ────────────────────────────────────────────────────────────────────

    def _take(self, event: Event) -> None:
        """A piece was dispatched that somebody elsewhere listens to."""
        if event is self._passing or event.lane or not self._share.owns(event.root_run_id):
            return
        self._passing = event
        self._outgoing.add(event)
        self._wake()

    def _send(self) -> None:
        dispatcher = self._dispatcher
        self._forget_silent()
        dispatcher.dropped += self._outgoing.dropped
        events = self._outgoing.take(dispatcher.is_void)
        if not (events and self._others):
            return
        frames = delta_frames(
            events, self._process, self._number + 1, dispatcher.dispatched, self._clock.now()
        )
        self._number += len(frames)
        for frame in frames:
            self._bus.publish("deltas", frame)

    def _forget_silent(self) -> None:
        now = self._clock.monotonic()
        silent = [process for process, each in self._others.items() if each.until < now]
        for process in silent:
            del self._others[process]
        if silent:
            self._listen_for_others()

    def _listen_for_others(self) -> None:
        """Have a listener for whatever is wanted elsewhere, and no other."""
        wanted: Interest = {}
        for each in self._others.values():
            for scope, named in each.interest.items():
                wanted[scope] = wanted.get(scope, frozenset()) | named
        for scope, listener in tuple(self._elsewhere.items()):
            if wanted.get(scope) == listener.named:
                del wanted[scope]
            else:
                del self._elsewhere[scope]
                listener.close()
        for scope, named in wanted.items():
            listener = ListenerElsewhere(scope, named, self._take, self._dispatcher.detach)
            self._elsewhere[scope] = listener
            self._dispatcher.attach(listener)

    # ── what others say ──────────────────────────────────────────────────────────────────────

    def _hear(self, topic: Topic, frame: bytes) -> None:
        if not self._is_open:
            return
        match read_frame(topic, frame):
            case WantFrame() as wants if wants.process != self._process:
                self._hear_wants(wants)
            case DeltaFrame() as deltas if deltas.process != self._process:
                self._hear_deltas(deltas)

    def _hear_wants(self, frame: WantFrame) -> None:
        if frame.asks and self._said:
            self._is_asked = True
            self._wake()
        known = self._others.get(frame.process)
        if known is not None and frame.number <= known.number:
            return
        interest = interest_of(frame.wants)
        if not interest:
            if self._others.pop(frame.process, None) is not None:
                self._listen_for_others()
            return
        if known is None and len(self._others) >= MAX_OTHERS:
            self._forget_silent()
            if len(self._others) >= MAX_OTHERS:
                return
        until = self._clock.monotonic() + HOLDS
        self._others[frame.process] = _Wants(frame.number, until, interest)
        if known is None or known.interest != interest:
            self._listen_for_others()

    def _hear_deltas(self, frame: DeltaFrame) -> None:
        if not self._said or frame.number <= self._numbers.get(frame.process, 0):
            return
        self._numbers.pop(frame.process, None)
        self._numbers[frame.process] = frame.number
        if len(self._numbers) > MAX_OTHERS:
            del self._numbers[next(iter(self._numbers))]
        if frame.position <= self._dispatcher.dispatched:
            self._dispatch(frame)
            return
        self._early.append(frame)
        if len(self._early) > MAX_EARLY:
            self._early.popleft()
        self._next = min(each.position for each in self._early)

    def recorded(self, event: Event, position: int) -> None:
        """A record is being dispatched."""
        if event.lane == "own":
            self._recorded.note(event.run_id, position)
        if self._early and position >= self._next:
            self._dispatcher.after_mail(self._dispatch_early)

    def _dispatch_early(self) -> None:
        """Dispatch what has waited for a position that is reached."""
        reached = self._dispatcher.dispatched
        ready = [each for each in self._early if each.position <= reached]
        self._early = deque(each for each in self._early if each.position > reached)
        self._next = min((each.position for each in self._early), default=0)
        for frame in ready:
            self._dispatch(frame)

    def _dispatch(self, frame: DeltaFrame) -> None:
        dispatcher, recorded = self._dispatcher, self._recorded
        if frame.position < recorded.since:
            return  # Whether its pieces are overtaken is not known any more.
        for event in frame.events():
            if event.lane or not event.type.endswith(DELTA):
                continue
            if self._share.owns(event.root_run_id):
                continue  # The answer that it is of has begun anew here.
            if recorded.last.get(event.run_id, 0) > frame.position:
                continue
            if isinstance(event, KINDS):
                dispatcher.answers.hear(event)
            dispatcher.number += 1
            self._passing = event = structs.replace(event, seq=dispatcher.number)
            dispatcher.dispatch((event,))
