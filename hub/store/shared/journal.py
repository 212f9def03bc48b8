"""``SharedMemoryJournal``: the journal that one process has of a ``SharedMemory``.

submit ─► queue ─► one group ─ link ─► SharedMemory.write ─► what others wrote before it ─► done
beat   ─────────────── link ─► SharedMemory.beat ─► trees claimed, trees lost
"""

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar

import anyio
from msgspec import Struct

from hubbub.hub.bus.shared_bus import MemoryBus
from hubbub.hub.errors import CallerError
from hubbub.hub.logs import log
from hubbub.hub.ports import Blobs, Secrets
from hubbub.hub.store.declared import NOTHING_DECLARED, Declared, OtherDefinition
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.placement import ANYTHING, Offer
from hubbub.hub.store.shared.leases import Holding, Written
from hubbub.hub.store.shared.link import Link
from hubbub.hub.store.shared.memory import SharedMemory
from hubbub.hub.store.shared.reads import SharedMemoryReads
from hubbub.hub.store.sharing import Sharer, hear
from hubbub.hub.task_host import TaskHost

__all__ = ["SharedMemoryJournal"]

T = TypeVar("T")

LOOK: Final = 0.5
"""Seconds between two looks at what others have left, at most; a third of a lease, if less."""

PAGE: Final = 1_000
"""Positions that are looked at together."""


class Queued(Struct, frozen=True, eq=False):
    """A commit, and the epoch under which its own lane was owned when it was submitted."""

    commit: Commit
    epoch: int
    opens: tuple[str, ...] = ()
    """The trees that it may open."""


class SharedMemoryJournal(SharedMemoryReads):
    """A process's ``Store`` over a ``SharedMemory``, and its ``Sharing``.

    With ``is_worker=False`` it owns nothing: a process that only carries channels.  ``link``: the
    way to the store, which can be cut; then everything waits, and when the lease cannot have been
    renewed for its whole time, all trees are lost, before the store is asked.
    """

    problems: Sequence[str] = ()
    secrets: Secrets | None = None
    blobs: Blobs | None = None

    def __init__(
        self, memory: SharedMemory, *, is_worker: bool = True, link: Link | None = None
    ) -> None:
        super().__init__(memory, link or Link(memory.clock))
        self.is_worker = is_worker
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
        self._drains = self._is_left = False
        self._handing: Counter[str] = Counter()
        """The trees that are being handed over."""
        self._handed = 0
        """How often trees were handed over: what was asked before says nothing of them."""
        self._queue: deque[Queued] = deque()
        self._group = 0
        self._submitted = self._over = 0
        self._sharer: Sharer | None = None
        self._is_due = False
        """Whether it is time to beat."""
        self._is_killed = False
        self._declared = NOTHING_DECLARED
        self._published: dict[str, str] = {}
        self._removed = 0
        """How many of the trees that have gone are told here."""
        self.failure = ""
        """Why it may not be at work any more."""
        self._tasks = TaskHost()

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        self._work, self._told = anyio.Event(), anyio.Event()
        self._lease = await self.link.ask(self._join)
        self.failure = ""
        self._tip = self._memory.tip
        self._removed = len(self._memory.removed)
        await self._tasks.open()
        self._is_attended = True
        self._tasks.start(self._serve(), name="shared journal", lives_on=True)
        self._tasks.start(self._beat_on(), name="shared journal beat", lives_on=True)

    def _join(self) -> int:
        self._renewed_at = self._memory.clock.monotonic()
        if self._lease:
            self._memory.leave(self)
        return self._memory.join(
            self, is_worker=self.is_worker, offer=self._offer, declared=self._declared,
            published=self._published, former=self._lease, told=self._tip or self._memory.tip,
        )  # fmt: skip

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
        brings = commit.deliveries or commit.found is not None
        opens = self._opened_by(commit) if brings and self.is_worker else ()
        self._submitted += 1
        self._queue.append(Queued(commit, epoch, opens))
        self._work.set()

    def publish(self, notes: Mapping[str, str]) -> None:
        self._published.update(notes)
        if self._is_attended:  # Else it goes with the lease.
            self._memory.publish(self._lease, self._published, self._offer)

    def _opened_by(self, commit: Commit) -> tuple[str, ...]:
        """The trees that a commit opens, if it opens any, and that are to be this process's."""
        opens: tuple[str, ...] = ()
        for new in commit.openings:
            if new.parent_run_id is not None or self._drains:
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
        tip = 0 if self._is_left else await self.link.ask(lambda: self._memory.tip)
        self._wanted = max(self._wanted, tip)
        self._work.set()
        while self._is_attended and (self._over < last or self._tip < tip):
            await self._told.wait()

    async def _serve(self) -> None:
        try:
            while True:
                await self._work.wait()
                self._work = anyio.Event()
                try:
                    await self._work_off()
                except OtherDefinition as error:
                    self.failure = str(error)
                    log.error("store.failed", problem=self.failure)
                    self._work.set()  # Who waits for something is told.
        finally:
            self._is_attended = False
            self._tell()

    async def _work_off(self) -> None:
        """Do what there is to do just now."""
        while self._queue:
            if self.failure:
                self._refuse(self._queue.popleft())
            else:
                await self._write()
        if self._is_due and not self.failure:
            self._is_due = False
            await self._beat()
        # Before anybody is named who hears of others, only as far as somebody waits for it.
        await self._catch_up(self._wanted if self._sharer is None else self._memory.tip)
        self._tell_removed()

    def _refuse(self, each: Queued) -> None:
        """Nothing is accepted any more."""
        each.commit.written, each.commit.error = [], self.failure
        self._done(each, Written(self._tip))

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
            after, until = self._tip, min(position, self._tip + PAGE)
            found = [*self._kept.stored_between(after, until)]
            self._tell_removed()
            self._tip = until
            hear(self._sharer, after, found, until)
            self._tell()

    def _tell_removed(self) -> None:
        if self._sharer is not None:
            removed = self._memory.removed[self._removed :]
            self._removed += len(removed)
            if removed:
                self._sharer.removed(removed)

    def _tell(self) -> None:
        told, self._told = self._told, anyio.Event()
        told.set()

    keeps_all = True
    cuts_lanes = True

    async def prepare_removals(self) -> None:
        """Nothing to prepare."""

    async def put_by(self, run_ids: Sequence[str]) -> None:
        """Nothing is shown in files."""

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

    async def heard_by_all(self) -> int:
        heard = await self.link.ask(lambda: self._memory.heard_by_others(self._lease))
        return min(self._tip, heard)

    async def declare(self, definitions: Mapping[str, str], *, replaces: bool = False) -> None:
        if not self.is_worker:
            return
        declared = Declared(dict(definitions), replaces)
        while self._is_attended and not self.failure:
            if await self.link.ask(lambda: self._memory.declare(self._lease, declared)):
                break
            self._is_due = True  # The lease is over, and another one is to begin.
            self._work.set()
            await self._memory.clock.sleep(self._look)
        self._declared = declared

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

    def leave(self) -> None:
        self._is_left = True

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
            return self._memory.beat(self._lease, self._offer, drains=self._drains, told=self._tip)

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
