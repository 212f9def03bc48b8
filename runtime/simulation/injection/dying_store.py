"""``DyingJournal``: any store, whose process may be killed at any commit.

    submit ─► alive: passed on, counted        ─► done: heard
              at its last commit ``before``: dropped; dead when what is under way is heard
              at its last commit ``after``: passed on; dead instead of hearing of it
              at its last commit ``torn``: passed on; dead while it is written (``power_loss``)
              dead: dropped

Kill -9 is no cancellation: what the dead process still does in ``finally`` blocks, on being
cancelled, must reach nobody.  So from the death on nothing is written and nothing is heard; who
reads or flushes waits forever (until it is cancelled).  What the store holds is then exactly the
commits up to the death, in their order; of a batch that was torn, all or nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import anyio

from hubbub.hub.bus.bus import Bus, bus_of
from hubbub.hub.events import Event
from hubbub.hub.ports import Blobs, Secrets
from hubbub.hub.snapshots.draft import SnapshotDraft
from hubbub.hub.store.journal import Addressing, Commit, LoadedRun, RunInfo, Selection
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.store.sharing import Sharing, sharing_of
from hubbub.hub.store.store import (
    DropsContents,
    RemovesTrees,
    Store,
    cuts_lanes,
    drops_of,
    removals_of,
    snapshots_of,
)
from hubbub.runtime.simulation.injection.power_loss import TornStore
from hubbub.runtime.simulation.story.faults import CrashMoment

__all__ = ["DyingJournal"]

T = TypeVar("T")


class DyingJournal:
    """Passes everything on to ``inner``, and dies on command.

    ``on_death`` is called at that moment, once, whatever the loop is doing: it cancels what is to
    be cancelled and must not raise.  ``on_tree`` is called before a commit is passed on that has a
    whole tree go, or old turns of a run, or has a tree come in.  ``on_commit`` is called with each
    commit that is submitted, and ``on_load`` with each run that is read.  ``die_at`` names the
    commit (from 1) at which the death comes, and ``when`` and ``sectors`` say how, as in ``Crash``;
    ``torn`` is ``before`` except for a ``TornStore``.
    Put a ``LateJournal`` around it for commits that take their time: what it still holds is lost.
    """

    def __init__(
        self,
        inner: Store,
        on_death: Callable[[], None] | None = None,
        on_tree: Callable[[Commit], None] | None = None,
        *,
        on_commit: Callable[[Commit], None] | None = None,
        on_load: Callable[[LoadedRun | None], None] | None = None,
        die_at: int = 0,
        when: CrashMoment = "after",
        sectors: int = 0,
    ) -> None:
        self.inner = inner
        self.is_dead = False
        self.commits = 0
        """How many commits have been passed on."""
        self._on_death = on_death
        self._on_tree = on_tree
        self._on_commit = on_commit
        self._on_load = on_load
        self._torn: TornStore | None = None
        self._when: CrashMoment = when
        self._last: float = math.inf
        self._under_way = 0
        self._has_dropped = False
        if die_at:
            self.crash_after(die_at, when, sectors)
        self.is_leaving = False
        """Whether the process is on its way out, where it must not be held up by its death: what
        follows is cancelled anyway."""

    # ── dying ────────────────────────────────────────────────────────────────────────────────

    def die(self) -> None:
        """Kill the process now; what is submitted and not written is lost.  Idempotent."""
        if self.is_dead:
            return
        self.is_dead = True
        self.inner.forget_submitted()
        if self._on_death is not None:
            self._on_death()

    def crash_after(self, commits: int, when: CrashMoment = "after", sectors: int = 0) -> None:
        """Let the ``commits``-th commit from now on be the last one, instead of another one."""
        self._torn = self.inner if when == "torn" and isinstance(self.inner, TornStore) else None
        self._sectors = sectors
        self._when = "before" if when == "torn" and self._torn is None else when
        self._last = self.commits + commits - (self._when == "before")

    def cancel_crashes(self) -> None:
        """Let no commit be the last one any more, unless it has been submitted already."""
        is_due = self.commits >= self._last and (self._when != "before" or self._has_dropped)
        if not is_due:
            self._last = math.inf

    def _lose_power(self, kept: int) -> None:
        """Die in the middle of a batch, of which so many commits are kept."""
        self.commits += kept - self._under_way
        self.die()

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def submit(self, commit: Commit) -> None:
        if self._on_commit is not None and not self.is_dead:
            self._on_commit(commit)
        if self.is_dead or (self._torn is None and self.commits >= self._last):
            self._has_dropped = True
            if self._when == "before" and not self._under_way:
                self.die()
            return
        is_of_tree = commit.gone or commit.cut is not None or commit.found is not None
        if self._on_tree is not None and is_of_tree:
            self._on_tree(commit)
        self.commits += 1
        self._under_way += 1
        done, number = commit.done, self.commits
        commit.done = lambda written: self._heard(written, number, done)
        if self._torn is not None and number == self._last:
            self._torn.lose_power(commit, self._sectors, self._lose_power)
        self.inner.submit(commit)

    def _heard(self, commit: Commit, number: int, done: Callable[[Commit], None] | None) -> None:
        self._under_way -= 1
        if self.is_dead:
            return
        if self._when == "after" and number == self._last:
            self.die()
            return
        if done is not None:
            done(commit)
        if self._when == "before" and self._has_dropped and not self._under_way:
            self.die()

    async def flush(self) -> None:
        if self.is_dead and self.is_leaving:
            return
        await self._alive()
        await self.inner.flush()
        if (self._has_dropped or self.is_dead) and not self.is_leaving:  # Never to be done.
            await anyio.sleep_forever()

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        await self.inner.open()

    async def aclose(self) -> None:
        """Release the store, as the system does for a process that is dead."""
        if self.is_dead:
            self.inner.forget_submitted()
        await self.inner.aclose()

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def tip(self) -> int:
        return self.inner.tip

    @property
    def failure(self) -> str:
        return self.inner.failure

    @property
    def problems(self) -> Sequence[str]:
        return self.inner.problems

    @property
    def secrets(self) -> Secrets | None:
        return self.inner.secrets

    @property
    def blobs(self) -> Blobs | None:
        return self.inner.blobs

    @property
    def sharing(self) -> Sharing | None:
        return sharing_of(self.inner)

    @property
    def bus(self) -> Bus | None:
        return bus_of(self.inner)

    @property
    def removals(self) -> RemovesTrees | None:
        return self if removals_of(self.inner) is not None else None

    @property
    def drops(self) -> DropsContents | None:
        return drops_of(self.inner)

    @property
    def cuts_lanes(self) -> bool:
        return cuts_lanes(self.inner)

    @property
    def keeps_all(self) -> bool:
        return self._removals.keeps_all

    @property
    def _removals(self) -> RemovesTrees:
        found = removals_of(self.inner)
        assert found is not None, "nothing goes from this store"
        return found

    async def prepare_removals(self) -> None:
        await self._alive()
        await self._removals.prepare_removals()

    async def put_by(self, run_ids: Sequence[str]) -> None:
        await self._alive()
        await self._removals.put_by(run_ids)

    def reader(self) -> StoreReader:
        return self.inner.reader()

    def publish(self, notes: Mapping[str, str]) -> None:
        if not self.is_dead:
            self.inner.publish(notes)

    async def inspect(self, look: Callable[[StoreReader], T]) -> T:
        await self._alive()
        return await self.inner.inspect(look)

    def forget_submitted(self) -> None:
        """Drop what the inner store has not begun to write."""
        self.inner.forget_submitted()

    def depths(self) -> tuple[int, int, int]:
        return self.inner.depths()

    async def _alive(self) -> None:
        if self.is_dead:
            await anyio.sleep_forever()

    async def load(self, run_id: str, *, after: int = 0) -> LoadedRun | None:
        await self._alive()
        return self._loaded(await self.inner.load(run_id, after=after))

    def _loaded(self, loaded: LoadedRun | None) -> LoadedRun | None:
        if self._on_load is not None:
            self._on_load(loaded)
        return loaded

    def keep_snapshot(self, draft: SnapshotDraft) -> None:
        if not self.is_dead and (inner := snapshots_of(self.inner)) is not None:
            inner.keep_snapshot(draft)

    async def load_kept(self, run_id: str, version: str) -> LoadedRun | None:
        if (inner := snapshots_of(self.inner)) is None:
            return await self.load(run_id)
        await self._alive()
        return self._loaded(await inner.load_kept(run_id, version))

    async def latest(self, run_id: str, types: Sequence[str]) -> Event | None:
        await self._alive()
        return await self.inner.latest(run_id, types)

    async def info(self, run_id: str) -> RunInfo | None:
        await self._alive()
        return await self.inner.info(run_id)

    async def runs(self, *, live: bool = True, root_run_id: str | None = None) -> Sequence[RunInfo]:
        await self._alive()
        return await self.inner.runs(live=live, root_run_id=root_run_id)

    async def ready(self) -> Sequence[str]:
        await self._alive()
        return await self.inner.ready()

    async def timed(self) -> Sequence[tuple[str, int]]:
        await self._alive()
        return await self.inner.timed()

    async def find(self, to: str, by: Addressing) -> Sequence[str]:
        await self._alive()
        return await self.inner.find(to, by)

    async def notes(self, prefix: str = "") -> Mapping[str, str]:
        await self._alive()
        return await self.inner.notes(prefix)

    async def read(
        self, selection: Selection, *, after: int = 0, until: int | None = None, limit: int = 1000
    ) -> tuple[Sequence[Event], int]:
        await self._alive()
        return await self.inner.read(selection, after=after, until=until, limit=limit)

    async def position(self, run_id: str, lane: str, seq: int) -> int | None:
        await self._alive()
        return await self.inner.position(run_id, lane, seq)
