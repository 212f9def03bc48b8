"""``RetentionPasses``: the task of a runtime that ends what is silent, and has trees go that have
ended, as its ``Retention`` says.

    a pass ─► the silent are ended ─► the oldest tree that has ended ─► its folders ─► one commit
                                                  ▲                                        │
                                                  └──────────── everybody else's turn ◄────┤
                                                                                           ▼
                                                             contents that nothing names any more

* What goes is a commit among others, in the store's order: what was sent to a run before it finds
  the run, what comes later finds none.  A tree goes whole; after a crash it is there or gone.
* What is read is read a page at a time, where the store reads; between two trees all others have
  their turn.  No list of all runs is made.
* A tree that cannot be read, or removed, stays, is told once, and is tried again (``kept.py``).
* The end of a silent tree is an ordinary one, and counts only if nobody spoke to it meanwhile.
* Of several processes on one store one makes the passes (``turn.py``), and nothing goes of which
  one of the others has yet to hear.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from hubbub.hub.errors import HubbubError
from hubbub.hub.events import SessionTerminate
from hubbub.hub.logs import log
from hubbub.hub.masking import class_name_of
from hubbub.hub.store.cursor import REMOVED, removed_up_to
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.reader import StoreReader
from hubbub.hub.store.store import RETENTION, Removed, RemovesTrees, drops_of, takes_bases
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.removal.imported import ImportedTrees
from hubbub.runtime.removal.kept import KeptTrees
from hubbub.runtime.removal.measured import MeasuredEvents
from hubbub.runtime.removal.old_turns import OldTurns
from hubbub.runtime.removal.turn import PassTurn
from hubbub.runtime.stores.retention.retention import (
    EndedTree,
    Retention,
    goes,
    old_since,
    silent_since,
)
from hubbub.runtime.stores.retention.trees import (
    LastTrees,
    SilentPage,
    damage_in,
    ended_page,
    has_last_event,
    last_trees,
    silent_page,
    silent_rest_page,
    what_goes_with,
)

if TYPE_CHECKING:
    from anyio import TaskHandle

__all__ = ["RetentionPasses", "seconds_between"]

P = TypeVar("P")
T = TypeVar("T")

TOGETHER: Final = 2_000
"""Events of trees that are on their way out at once, each tree in its own commit: a store that is
busy writes all in one transaction, as what runs say.  Of a tree that has more, it alone is."""

LAST: Final = 1 << 62

TOLD: Final = 60
SECOND: Final = 1_000_000

SILENT: Final = "silent for {seconds:,.0f} seconds: Runtime(retention=…)"
"""The reason of an end."""


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
        self._removes = retention.removes or retention.keep_turns is not None
        self._turn = PassTurn(services.hub, self._commit)
        self._contents = drops_of(store) if self._removes else None
        if self._contents is not None:  # Before any run is at work.
            self._contents.hold_contents()
        self.removed = Removed(since=0)
        self._kept = KeptTrees(self.removed, self._clock, seconds_between(retention))
        self._published = 0
        """When that was told to who only reads the store."""
        self._imported = ImportedTrees()
        self._old_turns: OldTurns | None = None
        if retention.keep_turns is not None:
            self._old_turns = OldTurns(
                retention.keep_turns, self._hub, self._look, self._commit, self._note_of,
                self._turn, self._kept,
            )  # fmt: skip
        self._turns = services.turns
        if self._turn.is_shared:  # Others may be at work that know no bases.
            self._turns.kept = 0
        self._task: TaskHandle[Any, None] | None = None
        self._highest = 0
        """The highest position from which something was removed."""
        self._measured = MeasuredEvents(keeps_all=store.keeps_all)

    def begin(self) -> None:
        """Make passes from now on, until ``stop``, or until the hub is closed."""
        self.removed.since = self._clock.now()
        self._hub.removed = self.removed
        self._task = self._hub.tasks.start(self._run(), name="hubbub retention", steady=True)

    def stop(self) -> None:
        """Make no more; idempotent.  What is on its way to the store is written."""
        if self._task is not None:
            self._task.cancel()
            self._turn.leave()

    async def _run(self) -> None:
        every = seconds_between(self._retention)
        await self._store.prepare_removals()
        while not (self._journal.failure or self._hub.is_closed):
            before = self._numbers()
            try:
                await self._have_bases_taken()
                if await self.make_pass():
                    self.removed.passed = self._clock.now()
            except HubbubError as error:  # What the next one may find mended.
                log.warning("retention.failed", problem=str(error))
            except Exception as error:  # Whatever it is, runs and their hub go on.
                mask = self._hub.masker()
                words = mask(class_name_of(error))
                log.error("retention.failed", problem=words, exc_info=mask.error(error))
            await self._tell(has_changed=self._numbers() != before)
            await self._clock.sleep(every)

    async def _have_bases_taken(self) -> None:
        """Have runs write bases, from when the store takes them."""
        turns, wanted = self._turns, self._retention.keep_turns or 0
        if turns.kept != wanted and await takes_bases(self._store):
            turns.kept = wanted

    def _numbers(self) -> Mapping[str, int]:
        return {name: getattr(self.removed, name) for name in _NUMBERS}

    async def _tell(self, *, has_changed: bool) -> None:
        """Say what has gone; that nothing has, not more often than ``TOLD`` seconds."""
        now = self._clock.now()
        if has_changed:
            log.info("retention.passed", **self._numbers())
        if has_changed or abs(now - self._published) >= TOLD * SECOND:
            self._published = now
            notes = {RETENTION: msgspec.json.encode(self.removed).decode()}
            if not self._turn.is_shared:
                self._journal.publish(notes)
            elif self._turn.is_held:
                await self._commit(Commit(notes=notes, notes_expect=self._turn.expected))

    async def make_pass(self) -> bool:
        """End what is silent, and have go what is not kept, as of now; not where it is another
        process's turn.  Whether it was this one's."""
        if not await self._takes_turn():
            return False
        await self._journal.flush()
        self._highest = removed_up_to(await self._journal.notes(REMOVED), self._journal.tip)
        if self._retention.silent is not None:
            await self._end_silent()
        if not self._removes:
            return True
        while self._contents is not None and await self._contents.look_at_contents():
            await anyio.lowlevel.checkpoint()
        if self._old_turns is not None and self._turns.kept:
            await self._old_turns.make_pass(self._measured, self.removed)
        if self._retention.removes:
            await self._let_go()
        await self._drop_contents()
        return True

    async def _takes_turn(self) -> bool:
        """Whether it is this process's turn; after another one's everything is looked at anew."""
        if not await self._turn.take():
            return False
        if self._turn.is_new:
            self._turn.is_new = False
            self._measured = MeasuredEvents(keeps_all=self._store.keeps_all)
            self._imported = ImportedTrees()
            if self._old_turns is not None:
                self._old_turns.look_at_all()
        return True

    # ── the silent ───────────────────────────────────────────────────────────────────────────

    async def _end_silent(self) -> None:
        since = silent_since(self._retention, self._clock.now())
        assert since is not None
        await self._end_pages(lambda after, store: silent_page(store, after, since), 0)
        await self._end_pages(lambda after, store: silent_rest_page(store, after, since), "")

    async def _end_pages(
        self, page_behind: Callable[[P, StoreReader], SilentPage[P]], after: P
    ) -> None:
        assert isinstance(self._retention.silent, int | float)
        reason, is_over = SILENT.format(seconds=self._retention.silent), False
        while not is_over:
            page = await self._look(partial(page_behind, after))
            after, is_over = page.after, page.is_over
            for run in page.trees:
                end = self._hub.addressing.delivery(SessionTerminate(reason=reason), to=run.run_id)
                end.expect = run.expect
                commit = Commit(deliveries=(end,), about=run.run_id)
                commit.notes_expect = self._turn.expected
                await self._commit(commit)
                self.removed.silent += end.outcome == "accepted"

    # ── what has ended ───────────────────────────────────────────────────────────────────────

    async def _let_go(self) -> None:
        retention, now = self._retention, self._clock.now()
        if retention.most is not None:
            await self._measured.measure(self._look, self._journal.tip)
        await self._imported.read(self._look)
        first, last = await self._find_last()
        imported = deque(self._imported.trees)
        apart = {tree.root_run_id for tree in imported}
        # Beyond a size the young go as well.
        old = old_since(retention, now) if retention.most is None else None
        after, is_over = 0, False
        while not is_over:
            if not await self._turn.take():
                return
            page = await self._look(partial(ended_page, after=after, old=old, now=now))
            after, is_over = page.after, page.is_over or page.after >= first
            behind = after if retention.most is not None else 0
            going: list[EndedTree] = []
            for root, problem in page.problems:
                self._kept.keep(problem, root, is_tried=True)
            for position, tree in page.trees:
                if tree.root_run_id in apart:
                    continue
                await self._let_go_of(imported, tree.ended_at, last, now)
                is_last = position >= first
                if goes(tree, retention, now, self._measured.size, is_last=is_last):
                    going.append(tree)
                    # Whether the next one goes may depend on how much is left.
                    size = sum(each.events for each in going)
                    if size >= TOGETHER or retention.most is not None:
                        await self._remove(going)
                        going.clear()
                elif not is_last and tree.ended_at <= now and position <= behind:
                    is_over = True  # There is room, and all that follow are younger.
                    break
            await self._remove(going)
        await self._let_go_of(imported, LAST, last, now)

    async def _let_go_of(
        self, imported: deque[EndedTree], until: int, last: Collection[str], now: int
    ) -> None:
        """Have those trees go that were imported, had ended by then (µs), and are not kept."""
        while imported and imported[0].ended_at <= until:
            tree = imported.popleft()
            is_last = tree.root_run_id in last
            if (
                goes(tree, self._retention, now, self._measured.size, is_last=is_last)
                and not await self._look(partial(has_last_event, tree=tree))
                and await self._remove([tree])
            ):
                self._imported.trees.remove(tree)

    async def _find_last(self) -> tuple[int, Collection[str]]:
        """Where the first of the trees ended that are among the last, and the roots of those among
        them that were imported."""
        if (count := self._retention.keep_last) is None:
            return LAST, ()
        imported = self._imported.trees
        times = [tree.ended_at for tree in imported]
        seen = {tree.root_run_id for tree in imported}
        found = LastTrees(before=LAST, first=LAST, left=count, seen=seen)
        while not found.is_over:
            found = await self._look(partial(last_trees, last=found, imported=times))
        last = imported[-found.left :] if found.left else []
        return found.first, {tree.root_run_id for tree in last}

    async def _sound(self, trees: Sequence[EndedTree]) -> Sequence[EndedTree]:
        """Those of some trees whose records are what was written: the others stay."""
        sound = []
        for tree in trees:
            try:
                damage = await self._look(partial(damage_in, run_ids=tree.run_ids))
            except HubbubError as error:
                damage = str(error)
            if damage:
                self._kept.keep(damage, tree.root_run_id)
            else:
                sound.append(tree)
        return sound

    async def _remove(self, trees: Sequence[EndedTree]) -> Collection[str]:
        """Have trees go, each in a commit of its own; the roots of those that have."""
        trees = await self._sound([x for x in trees if self._kept.is_due(x.root_run_id)])
        sizes = {}
        for tree in trees if self._retention.most is not None else ():
            size = await self._measured.size_of(self._look, tree.run_ids)
            sizes[tree.root_run_id] = size
        trees = await self._put_by(trees) if trees else ()
        if not trees:
            return ()
        found = await self._look(
            lambda store: [what_goes_with(store, tree.run_ids) for tree in trees]
        )
        heard = await self._turn.heard_by_all()
        under_way = []
        for tree, (last, notes) in zip(trees, found, strict=True):
            if last > heard:
                continue  # The next pass finds it again.
            run_ids = tree.run_ids
            is_done = None
            if not self._turn.is_shared:  # Else the store tells everybody.
                # Before it goes: who is behind reads a page at a time, and may be at it.
                is_done = self._hub.dispatcher.removing(tree.root_run_id, run_ids, last)
            kept = {**dict.fromkeys(notes, ""), **self._note_of(last)}
            commit = Commit(gone=run_ids, notes=kept, about=tree.root_run_id)
            commit.notes_expect = self._turn.expected
            under_way.append((tree, commit, self._submit(commit, is_done)))
        gone = []
        for tree, commit, done in under_way:
            await done.wait()
            if not commit.error:
                self._has_gone(tree, sizes.get(tree.root_run_id, 0))
                gone.append(tree.root_run_id)
            elif commit.error != "conflict" and not self._journal.failure:
                self._kept.keep(commit.error, tree.root_run_id)
        return gone

    def _note_of(self, last: int) -> Mapping[str, str]:
        """What is noted with the removal of an event at that position, for who comes later with a
        cursor from before it."""
        self._highest = max(self._highest, last)
        return {REMOVED: str(self._highest)}

    async def _put_by(self, trees: Sequence[EndedTree]) -> Sequence[EndedTree]:
        """Have the folders of trees removed; those of which they are."""
        try:
            await self._store.put_by([run_id for tree in trees for run_id in tree.run_ids])
        except (OSError, HubbubError) as error:
            if len(trees) > 1:  # Which of them it is shows one by one.
                return [each for tree in trees for each in await self._put_by([tree])]
            words = str(error)
            if isinstance(error, OSError):
                words = f"{error.filename}: {error.strerror}; make it removable"
            self._kept.keep(words, trees[0].root_run_id, is_tried=isinstance(error, OSError))
            return ()
        return trees

    def _has_gone(self, tree: EndedTree, size: int) -> None:
        for run_id in tree.run_ids:
            self._hub.addressing.run_ended(run_id)
        self._hub.ports.blobs.drop(tree.root_run_id)
        self._kept.has_gone(tree.root_run_id)
        self._measured.gone(tree.run_ids, size)
        removed = self.removed
        removed.trees, removed.runs = removed.trees + 1, removed.runs + len(tree.run_ids)
        removed.events += tree.events

    async def _drop_contents(self) -> None:
        """Have contents go that no tree names any more."""
        removed, more = self.removed, self._contents is not None
        while more and self._contents is not None and not self._journal.failure:
            await anyio.lowlevel.checkpoint()
            dropped = await self._contents.drop_contents()
            more = dropped.more
            removed.contents += dropped.contents
            removed.content_bytes += dropped.size
            for problem in dropped.problems:
                self._kept.keep(problem)

    async def _commit(self, commit: Commit) -> None:
        await self._submit(commit).wait()

    def _submit(self, commit: Commit, is_done: Callable[[], None] | None = None) -> anyio.Event:
        """Have a commit written; what is set when it is, or is refused, and ``is_done`` is called
        then."""
        done = anyio.Event()

        def after(_: Commit) -> None:
            if is_done is not None:
                is_done()
            done.set()

        commit.after = after
        self._hub.pipeline.submit(commit)
        return done

    async def _look(self, look: Callable[[StoreReader], T]) -> T:
        """What is found in the store; before that all others have their turn."""
        await anyio.lowlevel.checkpoint()

        def at_once(store: StoreReader) -> T:
            with store.one_moment():
                return look(store)

        return await self._journal.inspect(at_once)


_NUMBERS: Final = (
    "trees", "runs", "events", "silent", "contents", "content_bytes", "problems", "cuts",
)  # fmt: skip
