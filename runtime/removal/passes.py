"""``RetentionPasses``: the task of a runtime that ends what is silent, and has trees go that have
ended, as its ``Retention`` says.

    a pass ─► the silent are ended ─► the oldest tree that has ended ─► its folders ─► one commit
                                                  ▲                                        │
                                                  └──────────── everybody else's turn ◄────┘

* What goes is a commit among others, in the store's order: what was sent to a run before it finds
  the run, what comes later finds none.  A tree goes whole; after a crash it is there or gone.
* What is read is read a page at a time, where the store reads; between two trees all others have
  their turn.  No list of all runs is made.
* A tree that cannot be read, or whose folders cannot be removed, stays, and is told once.
* The end of a silent tree is an ordinary one, and counts only if nobody spoke to it meanwhile.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.lowlevel
from msgspec import Struct

from hubbub.hub.errors import HubbubError
from hubbub.hub.events import SessionTerminate
from hubbub.hub.logs import log
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.store.store import RemovesTrees
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.stores.retention.retention import (
    EndedTree,
    Retention,
    goes,
    old_since,
    silent_since,
)
from hubbub.runtime.stores.retention.trees import (
    ended_page,
    first_of_last,
    silent_page,
    size_after,
    what_goes_with,
)

if TYPE_CHECKING:
    from anyio import TaskHandle

__all__ = ["Removed", "RetentionPasses", "seconds_between"]

T = TypeVar("T")

MAX_TOLD: Final = 1_000
"""Trees that cannot go of which is remembered that they were told."""

LAST: Final = 1 << 62

SILENT: Final = "silent for {seconds:,.0f} seconds: Runtime(retention=…)"
"""The reason of an end."""


class Removed(Struct, kw_only=True):
    """What has gone since a runtime was opened."""

    trees: int = 0
    runs: int = 0
    events: int = 0
    silent: int = 0
    """Trees that were ended because nothing was heard of them."""
    problems: int = 0
    """Trees that stay although they should go."""


def seconds_between(retention: Retention) -> float:
    """How long after one pass the next begins: a tenth of the shortest time that is given, from a
    second to an hour; a minute where none is."""
    spans = [x for x in (retention.ended, retention.silent) if isinstance(x, int | float)]
    return min(3_600.0, max(1.0, min(spans) / 10)) if spans else 60.0


class RetentionPasses:
    """The passes of one runtime over the store that it is at work on."""

    def __init__(self, services: Services, retention: Retention, store: RemovesTrees) -> None:
        self._hub = services.hub
        self._journal = services.hub.journal
        self._clock = services.hub.ports.clock
        self._retention = retention
        self._store = store
        self.removed = Removed()
        self._task: TaskHandle[Any, None] | None = None
        self._told: dict[str, None] = {}
        self._size = 0
        self._counted = 0
        """The position up to which the events are counted in that."""

    def begin(self) -> None:
        """Make passes from now on, until ``stop``, or until the hub is closed."""
        self._task = self._hub.tasks.start(self._run(), name="hubbub retention")

    def stop(self) -> None:
        """Make no more; idempotent.  What is on its way to the store is written."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        every = seconds_between(self._retention)
        if self._retention.removes:
            await self._store.prepare_removals()
        while not (self._journal.failure or self._hub.is_closed):
            before = (*self._numbers(),)
            try:
                await self.make_pass()
            except HubbubError as error:  # What the next one may find mended.
                log.warning("retention.failed", problem=str(error))
            if (*self._numbers(),) != before:
                log.info("retention.passed", **dict(zip(_NUMBERS, self._numbers(), strict=True)))
            await self._clock.sleep(every)

    def _numbers(self) -> tuple[int, ...]:
        return tuple(getattr(self.removed, name) for name in _NUMBERS)

    async def make_pass(self) -> None:
        """End what is silent, and have go what is not kept, as of now."""
        await self._journal.flush()
        if self._retention.silent is not None:
            await self._end_silent()
        if self._retention.removes:
            await self._let_go()

    # ── the silent ───────────────────────────────────────────────────────────────────────────

    async def _end_silent(self) -> None:
        assert isinstance(self._retention.silent, int | float)
        since = silent_since(self._retention, self._clock.now())
        assert since is not None
        reason = SILENT.format(seconds=self._retention.silent)
        after, is_over = 0, False
        while not is_over:
            page = await self._look(partial(silent_page, after=after, since=since))
            after, is_over = page.after, page.is_over
            for tree in page.trees:
                end = self._hub.addressing.delivery(
                    SessionTerminate(reason=reason), to=tree.root_run_id
                )
                end.expect = tree.expect
                await self._commit(Commit(deliveries=(end,), about=tree.root_run_id))
                self.removed.silent += end.outcome == "accepted"

    # ── what has ended ───────────────────────────────────────────────────────────────────────

    async def _let_go(self) -> None:
        retention, now = self._retention, self._clock.now()
        if retention.most is not None:
            await self._measure()
        first = LAST if retention.keep_last is None else await self._first_kept(retention.keep_last)
        # Beyond a size the young go as well.
        old = old_since(retention, now) if retention.most is None else None
        after, is_over = 0, False
        while not is_over:
            page = await self._look(partial(ended_page, after=after, old=old, now=now))
            after, is_over = page.after, page.is_over or page.after >= first
            behind = after if retention.most is not None else 0
            for root, problem in page.problems:
                self._keep(root, problem)
            for position, tree in page.trees:
                is_last = position >= first
                if goes(tree, retention, now, self._size, is_last=is_last):
                    await self._remove(tree)
                elif not is_last and tree.ended_at <= now and position <= behind:
                    is_over = True  # There is room, and all that follow are younger.
                    break

    async def _first_kept(self, count: int) -> int:
        """Where the first of the trees ended that are among the last."""
        place, left, seen = LAST, count, set[str]()
        while left and place:
            look = partial(first_of_last, before=place, count=left, seen=seen)
            place, left, seen = await self._look(look)
        return place

    async def _measure(self) -> None:
        """How many bytes the events of the store take."""
        if not self._store.keeps_all:
            self._size = self._counted = 0
        tip = self._journal.tip
        while self._counted < tip:
            size, place = await self._look(partial(size_after, after=self._counted))
            if place == self._counted:
                return
            self._size, self._counted = self._size + size, place

    async def _remove(self, tree: EndedTree) -> None:
        if tree.root_run_id in self._told:
            return
        run_ids = tree.run_ids
        try:
            size = 0
            if self._retention.most is not None:
                until = self._counted
                look = partial(size_after, after=0, run_ids=run_ids, until=until)
                size, _ = await self._look(look)
            await self._store.put_by(run_ids)
        except OSError as error:
            self._keep(tree.root_run_id, f"{error.filename}: {error.strerror}; make it removable")
            return
        except HubbubError as error:
            self._keep(tree.root_run_id, str(error))
            return
        last, notes = await self._look(partial(what_goes_with, run_ids=run_ids))
        # Before it goes: who is behind reads a page at a time, and may be at it.
        self._hub.dispatcher.removed(tree.root_run_id, run_ids, last)
        commit = Commit(gone=run_ids, notes=dict.fromkeys(notes, ""), about=tree.root_run_id)
        await self._commit(commit)
        if commit.error:
            if commit.error != "conflict" and not self._journal.failure:
                self._keep(tree.root_run_id, commit.error)
            return
        for run_id in run_ids:
            self._hub.addressing.run_ended(run_id)
        self._hub.ports.blobs.drop(tree.root_run_id)
        self._size -= size
        removed = self.removed
        removed.trees, removed.runs = removed.trees + 1, removed.runs + len(run_ids)
        removed.events += tree.events

    async def _commit(self, commit: Commit) -> None:
        done = anyio.Event()
        commit.after = lambda _: done.set()
        self._hub.pipeline.submit(commit)
        await done.wait()

    def _keep(self, root: str, problem: str) -> None:
        """A tree stays although it should go: say so, once."""
        if root in self._told:
            return
        self.removed.problems += 1
        if len(self._told) < MAX_TOLD:
            self._told[root] = None
        log.warning("retention.kept", run_id=root, problem=problem)

    async def _look(self, look: Callable[[StoreReader], T]) -> T:
        """What is found in the store; before that all others have their turn."""
        await anyio.lowlevel.checkpoint()

        def at_once(store: StoreReader) -> T:
            with store.one_moment():
                return look(store)

        return await self._journal.inspect(at_once)


_NUMBERS: Final = ("trees", "runs", "events", "silent", "problems")
