"""``PostgresShare``: which trees are this process's, as far as it knows; in the event loop.

    submitted ─► under which epoch a commit writes its lane, which trees it may open
    done      ─► trees that it has opened are this process's, one that is over is nobody's
    claimed, lost ─► the hub

Nothing is asked here; ``PostgresStore`` does that, and says what it has found.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from hubbub.hub.errors import CallerError
from hubbub.hub.events import CustomEvent, Event
from hubbub.hub.events.codec import UnknownEvent
from hubbub.hub.ports import Clock
from hubbub.hub.store.declared import NOTHING_DECLARED, Declared
from hubbub.hub.store.journal import Commit, RunInfo
from hubbub.hub.store.placement import ANYTHING, Offer
from hubbub.hub.store.sharing import Sharer, hear
from hubbub.runtime.stores.postgres.removal.removals import Removals
from hubbub.runtime.stores.postgres.trees import CameTo

__all__ = ["PostgresShare"]


class Terms(Struct, frozen=True):
    """What was so when a commit was submitted."""

    epoch: int
    """That of the tree whose lane it writes; ``UNKNOWN`` where it does not say which that is."""
    turn: int
    """How often trees were claimed before."""
    opens: tuple[str, ...] = ()
    """The trees that it may open."""


UNKNOWN: Final = -1

_UNKNOWN: Final = (CustomEvent, UnknownEvent)
"""What an event is read as whose type this program does not have."""


class PostgresShare:
    """The ``Sharing`` of a store in PostgreSQL.

    ``hand_over``, ``drain``, ``at_work``, ``heard_by_all``, ``runs_of`` and ``declare`` do in the
    database what the methods say, the last of them nothing in a store that is not open;
    ``attached`` is called when there is somebody to be told, ``offered`` when another offer is to
    be known.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        is_worker: bool,
        ttl: float,
        hand_over: Callable[[Mapping[str, int]], Awaitable[None]],
        drain: Callable[[], Awaitable[None]],
        at_work: Callable[[], Awaitable[Collection[int]]],
        heard_by_all: Callable[[], Awaitable[int]],
        runs_of: Callable[[Collection[str]], Awaitable[Sequence[RunInfo]]],
        declare: Callable[[Declared], Awaitable[None]],
        attached: Callable[[], object],
        offered: Callable[[], object],
    ) -> None:
        self._clock = clock
        self.is_worker = is_worker
        self._ttl = ttl
        self._do_hand_over, self._do_drain, self._do_runs_of = hand_over, drain, runs_of
        self._do_at_work, self._do_heard_by_all = at_work, heard_by_all
        self.number = 0
        """That of the lease; see ``Sharing``."""
        self._do_declare = declare
        self._attached, self._offered = attached, offered
        self.sharer: Sharer | None = None
        self.drains = self.is_left = False
        self.offered = ANYTHING
        """Which trees may be this process's."""
        self.declared = NOTHING_DECLARED
        """How agents are defined here; what ``open`` declares."""
        self._owned: dict[str, tuple[int, int]] = {}
        """The epochs of the trees that are this process's, by root, and when they were claimed."""
        self._agents: dict[str, str] = {}
        """The agents of their roots."""
        self._handing: list[tuple[str, int]] = []
        """The trees that are being handed over, with their epochs."""
        self._opening: dict[str, str] = {}
        """The trees that are being opened here, with the agents of their roots."""
        self._terms: dict[Commit, Terms] = {}
        self._turn = 0
        self.removals = 0
        """The number of the tree that has gone last, as far as that is told here."""
        self._renewed_at = 0.0
        """When the renewal was asked that is known to have happened last (monotonic)."""

    # ── Sharing ──────────────────────────────────────────────────────────────────────────────

    def attach(self, sharer: Sharer) -> None:
        """Name who hears of others; see ``Sharing``."""
        if self.sharer is not None:
            raise CallerError("this store has a hub already; make one store for each process")
        self.sharer = sharer
        self._attached()

    def owns(self, root_run_id: str) -> bool:
        """Whether a tree is this process's, as far as it knows."""
        return root_run_id in self._owned or root_run_id in self._opening

    def trees(self) -> Mapping[str, str]:
        """The trees that are this process's, as far as it knows: by root the agent of that."""
        return dict(self._agents)

    def offer(self, agents: Collection[str] | None, capacity: int | None) -> None:
        """Say which trees may be this process's; see ``Sharing``."""
        self.offered = Offer(None if agents is None else frozenset(agents), capacity)
        self.drains = False
        self._offered()

    async def at_work(self) -> Collection[int]:
        """The numbers of the leases that are not over."""
        return await self._do_at_work()

    async def heard_by_all(self) -> int:
        """The position up to which every process at work has been told of events."""
        return await self._do_heard_by_all()

    async def declare(self, definitions: Mapping[str, str], *, replaces: bool = False) -> None:
        """Say how agents are defined here; see ``Sharing``."""
        if self.is_worker:
            declared = Declared(dict(definitions), replaces)
            await self._do_declare(declared)
            self.declared = declared

    async def runs_of(self, root_run_ids: Collection[str]) -> Sequence[RunInfo]:
        """Every live run of these trees, by creation."""
        return await self._do_runs_of(root_run_ids)

    async def hand_over(self, root_run_ids: Collection[str]) -> None:
        """Give up trees, behind all that was submitted; see ``Sharing``."""
        epochs = {root: self._owned[root][0] for root in root_run_ids if root in self._owned}
        self._handing += epochs.items()
        self.lose(epochs)
        try:
            await self._do_hand_over(epochs)
        finally:
            for each in epochs.items():
                self._handing.remove(each)

    async def drain(self) -> None:
        """Claim nothing more; trees that are opened here are others' to claim."""
        self.drains = True
        await self._do_drain()

    def leave(self) -> None:
        """Have nobody wait for what others have written; see ``Sharing``."""
        self.is_left = True

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    def begin(self, asked_at: float) -> None:
        """A lease has begun: nothing is owned under it yet."""
        self._renewed_at = asked_at
        self._owned.clear()
        self._agents.clear()
        self._opening.clear()
        self._terms.clear()

    def end(self) -> None:
        """The store is closed."""
        self.sharer, self.drains, self.offered = None, False, ANYTHING
        self.declared = NOTHING_DECLARED
        self.is_left = False
        self.begin(0.0)

    # ── commits ──────────────────────────────────────────────────────────────────────────────

    def submitted(self, commit: Commit) -> None:
        """Note under which terms a commit is submitted."""
        brings = commit.deliveries or commit.found is not None
        opens = self._opened_by(commit) if brings and self.is_worker else ()
        if commit.run_id:
            root = commit.events[0].root_run_id if commit.events else ""
            epoch = self._owned.get(root, (0, 0))[0] if root else UNKNOWN
            self._terms[commit] = Terms(epoch, self._turn, opens)
        elif opens:
            self._terms[commit] = Terms(0, self._turn, opens)

    def _opened_by(self, commit: Commit) -> tuple[str, ...]:
        """The trees that a commit opens, if it opens any, and that are to be this process's."""
        opens: tuple[str, ...] = ()
        for new in commit.openings:
            if new.parent_run_id is not None or self.drains:
                continue
            count = len(self._owned) + len(self._opening)
            if self.offered.takes(new.agent) and self.offered.has_room(count):
                self._opening[new.run_id] = new.agent
                opens += (new.run_id,)
        return opens

    def opens(self, commit: Commit) -> Collection[str]:
        """The trees that are to be this process's where a commit opens them.

        Called in the writing thread.
        """
        terms = self._terms.get(commit)
        return () if terms is None else terms.opens

    def epoch_of(self, commit: Commit, root_run_id: str) -> int:
        """Under which epoch of its tree a commit writes a lane; 0 for one that is being opened.

        Called in the writing thread.
        """
        terms = self._terms.get(commit)
        if terms is None:
            return 0
        if terms.epoch != UNKNOWN:
            return terms.epoch
        epoch, turn = self._owned.get(root_run_id, (0, 0))
        return epoch if turn <= terms.turn else 0

    def writes(self, came_to: CameTo) -> None:
        """A commit is written, and its submitter is told next."""
        for root in came_to.opened:
            self._owned[root] = (1, self._turn)
            self._agents[root] = self._opening.get(root, "")

    def done(self, commit: Commit, came_to: CameTo | None) -> None:
        """A commit is written, or refused; its submitter knows."""
        terms = self._terms.pop(commit, None)
        if terms is not None:
            for root in terms.opens:
                self._opening.pop(root, None)
        if came_to is not None and came_to.over:
            self._owned.pop(came_to.over, None)
            self._agents.pop(came_to.over, None)

    def forget_submitted(self) -> None:
        """Nothing of what is submitted will be done."""
        self._terms.clear()

    # ── trees ────────────────────────────────────────────────────────────────────────────────

    def own(self, claims: Mapping[str, tuple[int, str]]) -> None:
        """These trees are this process's from now on: by root the epoch, and its agent."""
        self._turn += 1
        for root, (epoch, agent) in claims.items():
            self._owned[root] = (epoch, self._turn)
            self._agents[root] = agent
        if self.sharer is not None and claims:
            self.sharer.claimed(tuple(claims))

    def known(self) -> frozenset[tuple[str, int]]:
        """The trees, with their epochs, that are this process's in the database as far as it knows:
        also those that are being handed over."""
        owned = ((root, epoch) for root, (epoch, _) in self._owned.items())
        return frozenset((*owned, *self._handing))

    def agents(self) -> Mapping[str, int]:
        """How many trees are this process's, by agent."""
        return Counter(self._agents.values())

    def crowded(self, room: Mapping[str, int]) -> None:
        """Others have room for so many, by agent."""
        if self.sharer is not None and room:
            self.sharer.crowded(room)

    def lose(self, root_run_ids: Collection[str]) -> None:
        """These trees are another process's now, or will be."""
        for root in root_run_ids:
            self._owned.pop(root, None)
            self._agents.pop(root, None)
        if root_run_ids and self.sharer is not None:
            self.sharer.lost(root_run_ids)

    def lose_all(self) -> None:
        """The lease is over."""
        self.lose(tuple(self._owned))

    def heard(self, after: int, found: Sequence[tuple[int, Event]], reached: int) -> None:
        """Others have written these behind a position, and nothing more is kept up to ``reached``.

        A tree with an item that this program does not know is another process's by that.
        """
        in_lanes = (event for _, event in found if event.lane == "in")
        if unknown := {x.root_run_id for x in in_lanes if isinstance(x, _UNKNOWN)}:
            self.lose([root for root in unknown if root in self._owned])
        if self.sharer is not None:
            hear(self.sharer, after, found, reached)

    def have_gone(self, found: Removals) -> None:
        """These trees have gone; each is told once, and before anything is that shows it."""
        new = [(number, tree) for number, tree in found if number > self.removals]
        if new:
            is_known = new[0][0] == self.removals + 1
            self.removals = new[-1][0]
            if self.sharer is not None:
                self.sharer.removed([tree for _, tree in new] if is_known else None)

    # ── the lease, as far as is known here ───────────────────────────────────────────────────

    def renewed(self, asked_at: float) -> None:
        """A renewal has happened that was asked for at that time."""
        self._renewed_at = max(self._renewed_at, asked_at)

    @property
    def left(self) -> float:
        """Seconds for which the lease holds at least; the time has come to lose all at 0."""
        return self._renewed_at + self._ttl - self._clock.monotonic()
