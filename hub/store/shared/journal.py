"""``SharedMemoryJournal``: the journal that one process has of a ``SharedMemory``.

submit ─► queue ─► one group ─ link ─► SharedMemory.write ─► what others wrote before it ─► done
beat   ─────────────── link ─► SharedMemory.beat ─► trees claimed, trees lost
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

import anyio
from msgspec import Struct

from hubbub.hub.bus.shared_bus import MemoryBus
from hubbub.hub.errors import CallerError
from hubbub.hub.events import Event
from hubbub.hub.ports import Blobs, Secrets
from hubbub.hub.store.journal import Addressing, Commit, LoadedRun, RunInfo, Selection
from hubbub.hub.store.placement import ANYTHING, Offer
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.store.shared.link import Link
from hubbub.hub.store.shared.memory import Holding, SharedMemory, Written
from hubbub.hub.store.sharing import Sharer
from hubbub.hub.task_host import TaskHost

__all__ = ["SharedMemoryJournal"]

T = TypeVar("T")

LOOK: Final = 0.5
"""Seconds between two looks at what others have left, at most; a third of a lease, if less."""

_EVERYTHING: Final = Selection()


class Queued(Struct, frozen=True, eq=False):
    """A commit, and the epoch under which its own lane was owned when it was submitted."""

    commit: Commit
    epoch: int
    opens: tuple[str, ...] = ()
    """The trees that it may open."""


class SharedMemoryJournal:
    """A process's ``Store`` over a ``SharedMemory``, and its ``Sharing``.

    With ``is_worker=False`` it owns nothing: a process that only carries channels.  ``link``: the
    way to the store, which can be cut; then everything waits, and when the lease cannot have been
    renewed for its whole time, all trees are lost, before the store is asked.
    """

    failure = ""
    problems: Sequence[str] = ()
    secrets: Secrets | None = None
    blobs: Blobs | None = None

    def __init__(
        self, memory: SharedMemory, *, is_worker: bool = True, link: Link | None = None
    ) -> None:
        self._memory = memory
        self._kept = memory.kept
        self.is_worker = is_worker
        self.link = link or Link(memory.clock)
        self.name = self._kept.name
        self.sharing = self
        self.bus = MemoryBus(memory.bus, lambda: self.link.is_cut)
        self._look = min(LOOK, memory.ttl / 3)
        self._lease = 0
        self._renewed_at = 0.0
        """When the renewal was asked that is known to have happened last (monotonic)."""
        self._owned: dict[str, int] = {}
        """The epochs of the trees that are this process's, by root."""
        self._agents: dict[str, str] = {}
        """The agents of their roots."""
        self._opening: dict[str, str] = {}
        """The trees that are being opened here, with the agents of their roots."""
        self._offer = ANYTHING
        self._drains = False
        self._handing: Counter[str] = Counter()
        """The trees that are being handed over."""
        self._handed = 0
        """How often trees were handed over: what was asked before says nothing of them."""
        self._queue: deque[Queued] = deque()
        self._group = 0
        self._submitted = self._over = 0
        self._tip = 0
        self._sharer: Sharer | None = None
        self._work, self._told = anyio.Event(), anyio.Event()
        self._is_due = False
        """Whether it is time to beat."""
        self._is_killed = self._is_attended = False
        self._tasks = TaskHost()

    @property
    def tip(self) -> int:
        """The position of the last event that is told here."""
        return self._tip

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        self._work, self._told = anyio.Event(), anyio.Event()
        self._lease = await self.link.ask(self._join)
        self._tip = self._memory.tip
        await self._tasks.open()
        self._is_attended = True
        self._tasks.start(self._serve(), name="shared journal", lives_on=True)
        self._tasks.start(self._beat_on(), name="shared journal beat", lives_on=True)

    def _join(self) -> int:
        self._renewed_at = self._memory.clock.monotonic()
        if self._lease:
            self._memory.leave(self)
        return self._memory.join(
            self, is_worker=self.is_worker, offer=self._offer, former=self._lease
        )

    async def aclose(self) -> None:
        try:
            await self._tasks.aclose()
        finally:
            self._memory.leave(self)
            if not (self._is_killed or self.link.is_cut):
                self._hand_on()
                self._memory.end(self._lease)
            self._queue.clear()

    def forget_submitted(self) -> None:
        """Drop what is submitted and not written yet.  The lease ends by itself."""
        self._is_killed = True
        self._over += len(self._queue)
        self._queue.clear()

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def submit(self, commit: Commit) -> None:
        epoch = 0
        if commit.run_id:
            root = commit.events[0].root_run_id if commit.events else ""
            epoch = self._owned.get(root or self._memory.root_of(commit.run_id), 0)
        opens = self._opened_by(commit) if commit.deliveries and self.is_worker else ()
        self._submitted += 1
        self._queue.append(Queued(commit, epoch, opens))
        self._work.set()

    def _opened_by(self, commit: Commit) -> tuple[str, ...]:
        """The trees that a commit opens, if it opens any, and that are to be this process's."""
        opens: tuple[str, ...] = ()
        for each in commit.deliveries:
            new = each.new
            if new is None or new.parent_run_id is not None or self._drains:
                continue
            count = len(self._owned) + len(self._opening)
            if self._offer.takes(new.agent) and self._offer.has_room(count):
                self._opening[new.run_id] = new.agent
                opens += (new.run_id,)
        return opens

    async def flush(self) -> None:
        last = self._submitted
        if not self._is_attended:
            self._hand_on()
            return
        tip = await self.link.ask(lambda: self._memory.tip)
        self._work.set()
        while self._is_attended and (self._over < last or self._tip < tip):
            await self._told.wait()

    async def _serve(self) -> None:
        try:
            while True:
                await self._work.wait()
                self._work = anyio.Event()
                while self._queue:
                    await self._write()
                if self._is_due:
                    self._is_due = False
                    await self._beat()
                await self._catch_up(self._memory.tip)
        finally:
            self._is_attended = False
            self._tell()

    async def _write(self) -> None:
        """One group: whatever was submitted meanwhile is written together."""
        group = tuple(self._queue)
        self._group += 1
        commits = [(each.commit, each.epoch, each.opens) for each in group]
        asked_at = self._renewed_at

        def write() -> Sequence[Written] | None:
            nonlocal asked_at
            asked_at = self._memory.clock.monotonic()
            return self._memory.write(self._lease, self._group, commits)

        while (written := await self.link.ask(write)) is None:
            await self._rejoin()
        self._renewed_at = asked_at
        for each, came_to in zip(group, written, strict=True):
            if self._queue and self._queue[0] is each:
                self._queue.popleft()
                await self._catch_up(came_to.before)
                self._done(each, came_to)

    def _done(self, each: Queued, written: Written) -> None:
        """A commit is written, or refused; so is everything before it."""
        self._tip = max(self._tip, written.before + len(each.commit.written))
        for root in each.opens:
            agent = self._opening.pop(root, "")
            if root in written.opened:
                self._owned[root], self._agents[root] = 1, agent
        self._over += 1
        if each.commit.done is not None:
            each.commit.done(each.commit)
        if written.over:
            self._owned.pop(written.over, None)
            self._agents.pop(written.over, None)
        self._tell()

    def _hand_on(self) -> None:
        """Write what is submitted, where no task does."""
        group = tuple(self._queue)
        self._queue.clear()
        self._group += 1
        written = self._memory.write(
            self._lease, self._group, [(each.commit, each.epoch, each.opens) for each in group]
        )
        for each, came_to in zip(group, written or (), strict=written is not None):
            self._done(each, came_to)

    # ── what others write ────────────────────────────────────────────────────────────────────

    def attach(self, sharer: Sharer) -> None:
        if self._sharer is not None:
            raise CallerError("this journal has a hub already; make one journal for each process")
        self._sharer = sharer
        self._is_due = True
        self._work.set()

    def hint(self, *, is_free: bool = False) -> None:
        if not self.link.is_cut:
            self._is_due = self._is_due or is_free
            self._work.set()

    async def _catch_up(self, position: int) -> None:
        """Hear of what others have written, up to a position."""
        if self._sharer is None:
            self._tip = max(self._tip, position)
            self._tell()
            return
        while self._tip < position:
            await self._reach()
            found, self._tip = await self._kept.read(_EVERYTHING, after=self._tip, until=position)
            self._sharer.heard_elsewhere(found)
            self._tell()

    def _tell(self) -> None:
        told, self._told = self._told, anyio.Event()
        told.set()

    # ── trees ────────────────────────────────────────────────────────────────────────────────

    def owns(self, root_run_id: str) -> bool:
        return root_run_id in self._owned or root_run_id in self._opening

    def trees(self) -> Mapping[str, str]:
        return dict(self._agents)

    def offer(self, agents: Collection[str] | None, capacity: int | None) -> None:
        self._offer = Offer(None if agents is None else frozenset(agents), capacity)
        self._drains = False
        self._is_due = True
        self._work.set()

    @property
    def number(self) -> int:
        return self._lease

    async def at_work(self) -> Collection[int]:
        return await self.link.ask(self._memory.at_work)

    async def hand_over(self, root_run_ids: Collection[str]) -> None:
        roots = [root for root in root_run_ids if root in self._owned]
        self._handing.update(roots)
        self._lose(roots)
        try:
            await self.flush()
            await self.link.ask(lambda: self._memory.hand_over(self._lease, roots))
        finally:
            self._handed += 1
            self._handing.subtract(roots)
            self._handing += Counter()

    async def drain(self) -> None:
        self._drains = True
        await self.flush()
        await self.link.ask(lambda: self._memory.drain(self._lease))

    async def _beat_on(self) -> None:
        clock, ttl = self._memory.clock, self._memory.ttl
        while True:
            left = self._renewed_at + ttl - clock.monotonic()
            await clock.sleep(min(self._look, left) if left > 0 else self._look)
            if self._renewed_at + ttl <= clock.monotonic():
                self._lose(tuple(self._owned))
            self._is_due = True
            self._work.set()

    async def _beat(self) -> None:
        asked_at, handed = self._renewed_at, self._handed

        def beat() -> Holding | None:
            nonlocal asked_at
            asked_at = self._memory.clock.monotonic()
            return self._memory.beat(self._lease, self._offer, drains=self._drains)

        if (held := await self.link.ask(beat)) is None:
            await self._rejoin()
            return
        self._renewed_at = asked_at
        is_late = asked_at + self._memory.ttl <= self._memory.clock.monotonic()
        if is_late or handed != self._handed:
            self._is_due = True
            self._work.set()
        elif self._sharer is not None:
            self._own(held, self._sharer)

    async def _rejoin(self) -> None:
        """The lease is over: nothing is owned any more."""
        self._lose(tuple(self._owned))
        self._lease = await self.link.ask(self._join)
        self._group += 1

    def _own(self, held: Holding, sharer: Sharer) -> None:
        """What is owned is this, as of now."""
        epochs = {x: epoch for x, epoch in held.epochs.items() if x not in self._handing}
        self._lose([root for root, epoch in self._owned.items() if epochs.get(root) != epoch])
        claimed = [root for root in epochs if root not in self._owned]
        self._owned.update(epochs)
        self._agents.update({root: held.agents[root] for root in epochs})
        if claimed:
            sharer.claimed(claimed)
        if held.surplus:
            sharer.crowded(held.surplus)

    def _lose(self, roots: Collection[str]) -> None:
        if not roots:
            return
        for root in roots:
            self._owned.pop(root, None)
            self._agents.pop(root, None)
        if self._sharer is not None:
            self._sharer.lost(roots)

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    async def _reach(self) -> None:
        """Return when the store could be asked."""
        await self.link.ask(_nothing)

    async def load(self, run_id: str, *, after: int = 0) -> LoadedRun | None:
        await self._reach()
        loaded, tip = await self._kept.load(run_id, after=after), self._kept.tip
        self._work.set()
        while self._is_attended and self._tip < tip:
            await self._told.wait()
        return loaded

    async def latest(self, run_id: str, types: Sequence[str]) -> Event | None:
        await self._reach()
        return await self._kept.latest(run_id, types)

    async def info(self, run_id: str) -> RunInfo | None:
        await self._reach()
        return await self._kept.info(run_id)

    async def runs(self, *, live: bool = True, root_run_id: str | None = None) -> Sequence[RunInfo]:
        await self._reach()
        return await self._kept.runs(live=live, root_run_id=root_run_id)

    async def runs_of(self, root_run_ids: Collection[str]) -> Sequence[RunInfo]:
        roots = frozenset(root_run_ids)
        return [info for info in await self.runs() if info.root_run_id in roots]

    async def ready(self) -> Sequence[str]:
        """Of the trees that are owned; like ``timed``."""
        await self._reach()
        return [x for x in await self._kept.ready() if self.owns(self._memory.root_of(x))]

    async def timed(self) -> Sequence[tuple[str, int]]:
        await self._reach()
        return [x for x in await self._kept.timed() if self.owns(self._memory.root_of(x[0]))]

    async def find(self, to: str, by: Addressing) -> Sequence[str]:
        await self._reach()
        return await self._kept.find(to, by)

    async def notes(self, prefix: str = "") -> Mapping[str, str]:
        await self._reach()
        return await self._kept.notes(prefix)

    async def read(
        self, selection: Selection, *, after: int = 0, until: int | None = None, limit: int = 1000
    ) -> tuple[Sequence[Event], int]:
        await self._reach()
        until = self._tip if until is None else min(until, self._tip)
        return await self._kept.read(selection, after=after, until=until, limit=limit)

    async def position(self, run_id: str, lane: str, seq: int) -> int | None:
        await self._reach()
        return await self._kept.position(run_id, lane, seq)

    def depths(self) -> tuple[int, int, int]:
        """Of the whole store."""
        return self._kept.depths()

    def publish(self, notes: Mapping[str, str]) -> None:
        self._kept.publish(notes)

    async def inspect(self, look: Callable[[StoreReader], T]) -> T:
        await self._reach()
        return await self._kept.inspect(look)

    def reader(self) -> StoreReader:
        return self._kept.reader()


def _nothing() -> None:
    """What is asked of a store in order to reach it."""
