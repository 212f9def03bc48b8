"""``SharedMemory``: one store in memory for several processes of a simulated world.

    SharedMemoryJournal ─ Link ─┐
    SharedMemoryJournal ─ Link ─┼─► SharedMemory: leases, trees and their owners ─► MemoryJournal
    SharedMemoryJournal ─ Link ─┘

It stands where a database server would: each of its methods is one transaction, and its clock
alone decides about leases.

* A *lease* is held by each process, renewed by whatever it writes and by its beats, and over when
  another one that beats finds it to be.
* Under a lease it is *declared* how agents are defined; whoever means another one is refused.
* The trees of a lease that is over, and those that nobody owns, are claimed by those that beat,
  each up to its share (``placement``).  Each claim begins a new epoch of the tree.
* A group of commits has a number: the same one again, after an answer that was lost, is not
  written again.

Secrets and contents of files are not kept here: the processes share the ports that keep them.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from hubbub.hub.bus.shared_bus import SharedBus
from hubbub.hub.errors import BadValue
from hubbub.hub.events import SessionOpen
from hubbub.hub.ports import Clock, IdSource
from hubbub.hub.store.declared import NOTHING_DECLARED, Declared, OtherDefinition
from hubbub.hub.store.journal import Commit, Cut
from hubbub.hub.store.left_notes import of_agents, spent, tidied
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.memory_reader import MemoryReader
from hubbub.hub.store.placement import ANYTHING, ENDING, Offer, WorkerLoad, placed, surplus
from hubbub.hub.store.shared.leases import Holding, Lease, Tree, Written
from hubbub.hub.store.sharing import RemovedTree

__all__ = ["TTL", "Hinted", "SharedMemory"]

TTL: Final = 6.0
"""Seconds that a lease lasts when it is not renewed."""

FRESH: Final = 1.0
"""Seconds since a process was heard of, after which others no longer leave its share to it."""

KEEP: Final = 1_000_000
"""Ended runs, and events of the hub's lane, that stay: what is dropped could not be heard."""


class Hinted(Protocol):
    """A process that is told when there is something new; it looks by itself all the same."""

    def hint(self, *, is_free: bool = False) -> None:
        """Something was written; ``is_free``: trees may be claimed."""
        ...


class SharedMemory:
    """The store.  ``clock`` decides about leases, which last ``ttl`` seconds."""

    def __init__(self, clock: Clock, *, ttl: float = TTL, ids: IdSource | None = None) -> None:
        if not ttl > 0:
            raise BadValue("ttl", f"expected more than 0 seconds, not {ttl}")
        self.clock = clock
        self.ttl = ttl
        self.bus = SharedBus(clock)
        self.kept = MemoryJournal(keep=KEEP, keep_hub_events=KEEP, ids=ids)
        self._leases: dict[int, Lease] = {}
        self._trees: dict[str, Tree] = {}
        self._free: dict[str, Tree] = {}
        """Those that nobody owns."""
        self._root_of: dict[str, str] = {}
        """The root of each run whose tree is not over."""
        self._processes: dict[Hinted, None] = {}
        self._last = 0
        self.removed: list[RemovedTree] = []
        """The trees that have gone, in order."""
        self.writers: list[tuple[str, int, int]] | None = None
        """Where there is a list, each commit of an own lane that is written is noted there: the
        root, the epoch that its tree has, and the number of the lease."""

    @property
    def tip(self) -> int:
        """The position of the last event."""
        return self.kept.tip

    def root_of(self, run_id: str) -> str:
        """The root of a run whose tree is not over; of any other one its own id."""
        return self._root_of.get(run_id, run_id)

    def owner_of(self, root_run_id: str) -> tuple[int, int]:
        """The number of the lease under which a tree is owned, and the epoch; zeros for none."""
        tree = self._trees.get(root_run_id)
        return (tree.owner, tree.epoch) if tree is not None else (0, 0)

    def unowned(self) -> Sequence[str]:
        """The roots of the trees that nobody owns, or only under a lease that is over."""
        now = self.clock.monotonic()
        held = {x.number for x in self._leases.values() if not x.is_over and x.expires >= now}
        return [root for root, tree in self._trees.items() if tree.owner not in held]

    def at_work(self) -> Collection[int]:
        """The numbers of the leases that are not over."""
        return [lease.number for lease in self._leases.values() if not lease.is_over]

    def heard_by_others(self, number: int) -> int:
        """The position up to which everybody else whose lease is not over has been told of
        events."""
        others = (x for x in self._leases.values() if not x.is_over and x.number != number)
        return min((lease.told for lease in others), default=self.tip)

    # ── leases ───────────────────────────────────────────────────────────────────────────────

    def join(
        self,
        process: Hinted,
        *,
        is_worker: bool,
        offer: Offer = ANYTHING,
        declared: Declared = NOTHING_DECLARED,
        published: Mapping[str, str] | None = None,
        former: int = 0,
        told: int = 0,
    ) -> int:
        """Begin a lease, after the ``former`` one is over; returns its number.

        ``is_worker``: it owns trees, those of its ``offer``.  Raises ``OtherDefinition``.
        """
        self._leases.pop(former, None)
        self._check_declared(0, declared, is_again=former > 0)
        self._last += 1
        self._processes[process] = None
        self._leases[self._last] = Lease(
            self._last, self.clock.monotonic() + self.ttl, is_worker=is_worker, offer=offer,
            declared=declared, told=told,
        )  # fmt: skip
        self.publish(self._last, published or {}, offer)
        return self._last

    def publish(self, number: int, own: Mapping[str, str], offer: Offer) -> None:
        """Keep texts for who only reads the store, and what is offered; of what other workers have
        published goes what nobody needs any more."""
        lease = self._leases.get(number)
        self.kept.publish(own)
        if lease is None or not (lease.is_worker and of_agents(own)):
            return
        lease.offer = offer
        others = [x for x in self._leases.values() if x.is_worker and x is not lease]
        offers = [x.offer.agents for x in others if not x.is_over]
        wanted = {tree.agent for tree in self._trees.values()}
        needed = None if None in offers else wanted.union(*(x or () for x in offers))
        notes = self.kept.reader().notes()
        changed = tidied(notes, own, needed)
        self.kept.publish(changed)
        self.kept.forget_empty((*changed, *spent(notes)))

    def declare(self, number: int, declared: Declared) -> bool:
        """Say how agents are defined by whoever has a lease; whether the lease holds.

        Raises ``OtherDefinition``.
        """
        lease = self._renewed(number)
        if lease is None:
            return False
        self._check_declared(number, declared)
        lease.declared = declared
        return True

    def _check_declared(self, number: int, declared: Declared, *, is_again: bool = False) -> None:
        """Raise ``OtherDefinition`` for an agent that another process means otherwise.

        Who comes back is not refused for those that were to replace what it has.
        """
        now = self.clock.monotonic()
        for other in () if declared.replaces else self._leases.values():
            is_there = not other.is_over and other.expires >= now and other.number != number
            if not is_there or (is_again and other.declared.replaces):
                continue
            if agent := declared.differing(other.declared):
                raise OtherDefinition("memory", agent, f"process {other.number}")

    def leave(self, process: Hinted) -> None:
        """Hint a process no more; its lease ends by itself."""
        self._processes.pop(process, None)

    def end(self, number: int) -> None:
        """End a lease: its trees are free at once."""
        lease = self._leases.get(number)
        if lease is not None and not lease.is_over:
            self._end(lease)
            self._hint_all(is_free=True)

    def beat(
        self, number: int, offer: Offer = ANYTHING, *, drains: bool = False, told: int = 0
    ) -> Holding | None:
        """Renew a lease, with what is offered now, and claim what is free, up to a share; its
        process was ``told`` of events up to there.

        Returns what is owned under it; ``None`` where it is over.
        """
        lease = self._renewed(number)
        if lease is None:
            return None
        lease.offer, lease.drains, lease.told = offer, drains, max(told, lease.told)
        now = self.clock.monotonic()
        for other in tuple(self._leases.values()):
            if other.expires < now and not other.is_over:
                self._end(other)
        if not lease.is_worker or lease.drains:
            return _holding(lease, {})
        if self._free:
            self._claim(lease)
        own = Counter(tree.agent for tree in lease.trees.values())
        return _holding(lease, surplus(own, number, self._places(lease), self._free_of()))

    def drain(self, number: int) -> None:
        """Claim nothing more under a lease, and own nothing that is opened under it."""
        lease = self._leases.get(number)
        if lease is not None:
            lease.drains = True

    def hand_over(self, number: int, root_run_ids: Collection[str]) -> None:
        """Let others claim trees; nothing where the lease is over."""
        lease = self._renewed(number)
        if lease is None:
            return
        for root in root_run_ids:
            if (tree := lease.trees.pop(root, None)) is not None:
                self._set_free(tree)
        self._hint_all(is_free=True)

    def _renewed(self, number: int) -> Lease | None:
        lease = self._leases.get(number)
        if lease is None or lease.is_over:
            return None
        lease.expires = self.clock.monotonic() + self.ttl
        return lease

    def _end(self, lease: Lease) -> None:
        lease.is_over = True
        for tree in lease.trees.values():
            self._set_free(tree)
        lease.trees.clear()

    def _set_free(self, tree: Tree) -> None:
        tree.owner = 0
        self._free[tree.root_run_id] = tree

    def _claim(self, lease: Lease) -> None:
        """The share that a process has of the free trees."""
        share = dict(placed(self._free_of(), self._places(lease))[lease.number])
        for root, tree in tuple(self._free.items()) if share else ():
            if share.get(wanted := self._wanted(tree), 0):
                share[wanted] -= 1
                del self._free[root]
                tree.owner = lease.number
                tree.epoch += 1
                lease.trees[root] = tree

    def _free_of(self) -> Mapping[str, int]:
        """How many trees nobody owns, by agent."""
        return Counter(map(self._wanted, self._free.values()))

    def _wanted(self, tree: Tree) -> str:
        """The agent by which a free tree is claimed: anybody may end what is only to end."""
        is_ending = self.kept.is_ending(tree.run_ids, self.clock.now())
        return ENDING if is_ending else tree.agent

    def _places(self, asking: Lease) -> list[WorkerLoad]:
        """The processes that own trees: one of which nothing is heard gets no more."""
        heard = self.clock.monotonic() + self.ttl - min(FRESH, self.ttl / 2)
        return [
            WorkerLoad(x.number, len(x.trees), x.offer)
            for x in self._leases.values()
            if x.is_worker and not (x.is_over or x.drains) and (x.expires >= heard or x is asking)
        ]

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def write(
        self, number: int, group: int, commits: Sequence[tuple[Commit, int, Collection[str]]]
    ) -> Sequence[Written] | None:
        """Write a group of commits, each with the epoch under which its own lane was owned, and
        the trees that are to be the writer's own where it opens them.

        ``None`` where the lease is over, and nothing of it is written.  The same group again
        returns what it came to.
        """
        lease = self._leases.get(number)
        if lease is not None and lease.group == group:
            return lease.written
        if self._renewed(number) is None:
            return None
        assert lease is not None
        tip = self.tip
        lease.written = [self._write(lease, *each) for each in commits]
        lease.group = group
        if self.tip > tip:
            self._hint_all(is_free=bool(self._free))
        return lease.written

    def _write(
        self, lease: Lease, commit: Commit, epoch: int, own: Collection[str] = ()
    ) -> Written:
        before = self.tip
        tree = self._trees.get(self._root_of.get(commit.run_id, "")) if commit.run_id else None
        if tree is not None and (tree.owner, tree.epoch) != (lease.number, epoch or 1):
            commit.error = "conflict"
            return Written(before)
        if any(run_id in self._root_of for run_id in commit.gone):  # Something in it lives.
            commit.error = "conflict"
            return Written(before)
        going = self._going(commit)
        root = self.root_of(commit.run_id)
        done, commit.done = commit.done, None  # It is the journal that says so.
        self.kept.submit(commit)
        commit.done = done
        if not commit.error:
            self.removed += going
        if self.writers is not None and commit.run_id and not commit.error:
            self.writers.append((root, self.owner_of(root)[1], lease.number))
        opened = tuple(
            event.run_id
            for event in commit.written
            if isinstance(event, SessionOpen)
            and event.lane == "in"
            and event.seq == 1
            and self._opened(lease, event, own)
        )
        for run in commit.found.runs if commit.found is not None and not commit.error else ():
            self._trees[self.root_of(run.new.run_id)].live -= run.status == "ended"
        over = ""
        if tree is not None and commit.status == "ended" and not commit.error:
            tree.live -= 1
            if not tree.live:
                over = tree.root_run_id
                self._over(tree)
        return Written(before, opened, over)

    def _going(self, commit: Commit) -> list[RemovedTree]:
        """The trees that a commit has go, as far as they are there, or of which it has old turns
        go."""
        reader = self.kept.reader()
        if commit.cut is not None:
            return _cut_of(commit.cut, reader)
        runs = [row for run_id in commit.gone if (row := reader.row(run_id)) is not None]
        trees: dict[str, list[str]] = {}
        for row in runs:
            trees.setdefault(row.root_run_id, []).append(row.run_id)
        last = {
            root: next((row.position for row in reader.event_rows(ids, backwards=True)), 0)
            for root, ids in trees.items()
        }
        return [RemovedTree(root, last[root], tuple(ids)) for root, ids in trees.items()]

    def _opened(self, lease: Lease, event: SessionOpen, own: Collection[str]) -> bool:
        """A run was opened; whether that is a tree of the writer's own."""
        root = event.root_run_id
        is_new = root not in self._trees
        is_own = is_new and root in own and lease.is_worker and not lease.drains
        is_own = is_own and lease.offer.has_room(len(lease.trees))
        if is_new:
            tree = self._trees[root] = Tree(root, event.open_agent, lease.number if is_own else 0)
            (lease.trees if is_own else self._free)[root] = tree
        tree = self._trees[root]
        tree.live += 1
        tree.run_ids.append(event.run_id)
        self._root_of[event.run_id] = root
        return is_own

    def _over(self, tree: Tree) -> None:
        """No run of the tree lives any more: nobody owns it."""
        root = tree.root_run_id
        del self._trees[root]
        del (self._leases[tree.owner].trees if tree.owner else self._free)[root]
        for run_id in tree.run_ids:
            del self._root_of[run_id]

    def _hint_all(self, *, is_free: bool) -> None:
        for process in tuple(self._processes):
            process.hint(is_free=is_free)


def _cut_of(cut: Cut, reader: MemoryReader) -> list[RemovedTree]:
    row = reader.row(cut.run_id)
    base = next((x.position for x in reader.bases(cut.run_id) if x.seq == cut.seq), 0)
    lanes = reader.event_rows((cut.run_id,), until=base - 1, backwards=True)
    last = next((x for x in lanes if x.lane != "hub"), None)
    if row is None or last is None or (last.lane, last.seq) == ("own", 1):
        return []
    gone = RemovedTree(row.root_run_id, last.position, (row.run_id,), is_cut=True)
    return [gone] if last.position > cut.after else []


def _holding(lease: Lease, surplus: Mapping[str, int]) -> Holding:
    trees = lease.trees.items()
    return Holding(
        {root: tree.epoch for root, tree in trees}, {root: tree.agent for root, tree in trees},
        surplus,
    )  # fmt: skip
