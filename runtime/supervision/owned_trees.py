"""``OwnedTrees``: the trees that this runtime drives, where several processes share its store.

    claimed ─► deadlines, prompts and unfinished runs, as when a runtime opens ─► resumed
    lost    ─► its runs leave memory, unrecorded, and what was kept for them goes
    others  ─► whoever waits for one of their runs looks again
    crowded ─► others have room: so many trees that rest are handed over
    drain   ─► all are, when this is being left: those at work as soon as they come to a boundary

Where the store is one process's none of this happens: everything is owned.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

import anyio

from hubbub.hub import events as e
from hubbub.hub.errors import HubbubError
from hubbub.hub.events import Event, InLane, Limits
from hubbub.hub.logs import log
from hubbub.hub.store.journal import FoundTree, RunInfo
from hubbub.hub.store.sharing import Sharing
from hubbub.runtime.kernel.families import Families
from hubbub.runtime.kernel.live import LiveRun, LiveRuns
from hubbub.runtime.kernel.outcomes import Outcomes
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.runs.lasting_prompts import LastingPrompts
from hubbub.runtime.supervision.deadlines import Deadlines
from hubbub.runtime.supervision.loader import Loader
from hubbub.runtime.supervision.quarantine import Quarantine
from hubbub.runtime.supervision.ready import ReadyRuns
from hubbub.runtime.supervision.restore import Claimed

__all__ = ["OwnedTrees"]

_RESTS: Final = (e.AgentPark, e.AgentComplete, e.SessionEnd)
"""By these a run that is waited for may have come to what is waited for."""


class OwnedTrees:
    """What becomes of runs when trees come from other processes, and when they go."""

    def __init__(
        self,
        services: Services,
        live: LiveRuns,
        families: Families,
        outcomes: Outcomes,
        prompts: LastingPrompts,
        loader: Loader,
        ready: ReadyRuns,
        quarantine: Quarantine,
        *,
        deadlines: Deadlines,
        take_out: Callable[[LiveRun], object],
        left_id: Callable[[str], object],
        resume: Callable[[Sequence[str]], object],
        wake: Callable[[InLane], object],
    ) -> None:
        self._wake = wake
        """Gives an item to its run."""
        self._learned: set[tuple[str, int]] = set()
        """Limits for which it is known what has been used."""
        self._services = services
        self._hub = services.hub
        self._share = services.hub.share
        self._live = live
        self._families = families
        self._outcomes = outcomes
        self._prompts = prompts
        self._loader = loader
        self._ready = ready
        self._quarantine = quarantine
        self._deadlines = deadlines
        self._take_out = take_out
        """Takes a run out of memory, unrecorded."""
        self._left_id = left_id
        """Called for a run that does not come into memory."""
        self._resume = resume
        self._is_moving = False
        """Whether trees are being handed over because others have room."""
        self._given: Collection[str] = ()
        """The trees that were handed over last: that these are lost is in order."""

    def claimed(self, root_run_ids: Collection[str]) -> None:
        """These trees were another process's, or nobody's: go on with what there is."""
        log.info("trees.claimed", count=len(root_run_ids))
        for root in root_run_ids:  # Known since somebody asked for it, when another one drove it.
            self._services.budgets.forget(root)
            self._services.accounts.forget(root)
        if not self._services.phase.is_leaving:
            taken_up = anyio.Event()
            self._loader.arriving.update(dict.fromkeys(root_run_ids, taken_up))
            claim = self._begin_with(tuple(root_run_ids), taken_up)
            self._hub.tasks.start(claim, name="hubbub claim", steady=True)

    def came_in(self, tree: FoundTree) -> None:
        """A tree is on record whole, that was not there: go on with it, where that is for this
        process to do."""
        if self._services.phase.is_leaving or not self._share.owns(tree.root.run_id):
            return
        living = [run for run in tree.runs if run.status != "ended"]
        for run in living:
            if run.new.wake_at is not None:
                self._deadlines.watch(run.new.run_id, run.new.wake_at)
        ready = [x.new.run_id for x in living if x.status == "active" or x.waiting]
        self._loader.boot.came_in(self._hub.journal, tree.root.run_id, ready)
        self._prompts.came_in(tree)
        self._resume(ready)

    async def _begin_with(self, roots: Sequence[str], taken_up: anyio.Event) -> None:
        """Nothing of these trees runs before it is known what was left of them."""
        try:
            found = await self._take_up(roots)
        finally:
            taken_up.set()
            for root in roots:
                if self._loader.arriving.get(root) is taken_up:  # Else claimed once more.
                    del self._loader.arriving[root]
        if not self._services.phase.is_leaving:
            self._resume([run_id for run_id in found if not self._is_here(run_id)])

    async def _take_up(self, roots: Sequence[str]) -> Sequence[str]:
        assert self._share.sharing is not None
        # What others have written up to the claim may be heard behind it.
        await self._hub.journal.flush()
        infos = await self._share.sharing.runs_of(roots)
        infos = [info for info in infos if self._is_to_come(info)]
        for info in infos:
            self._forget(info.run_id)
            if info.wake_at is not None:
                self._deadlines.watch(info.run_id, info.wake_at)
        await self._prompts.claimed({info.run_id: info.root_run_id for info in infos})
        ready = [info.run_id for info in infos if self._is_ready(info)]
        return await self._loader.unfinished(Claimed(roots, ready))

    def _is_ready(self, info: RunInfo) -> bool:
        """Whether a run of a tree that was claimed is to go on here.

        In one that came only for something to end, nothing else does: others know its agent.
        """
        assert self._share.sharing is not None
        if info.status != "active" and not info.waiting:
            return False
        agent = self._share.sharing.trees().get(info.root_run_id, info.agent)
        return info.inbox == "terminated" or self._loader.knows(agent)

    def _is_to_come(self, info: RunInfo) -> bool:
        return self._share.owns(info.root_run_id) and self._live.find(info.run_id) is None

    def _is_here(self, run_id: str) -> bool:
        """Whether the run has come already: something was sent to it meanwhile."""
        return self._live.find(run_id) is not None or self._loader.is_loading(run_id)

    def _forget(self, run_id: str) -> None:
        """What is known of a run is of a time when this process drove it before."""
        self._families.forget(run_id)
        self._quarantine.release(run_id)
        self._loader.forget(run_id)

    def lost(self, root_run_ids: Collection[str]) -> None:
        """Another process drives these trees, or will."""
        taken = sum(root not in self._given for root in root_run_ids)
        if taken:
            log.warning("trees.lost", count=taken)
        if taken < len(root_run_ids):
            log.info("trees.handed_over", count=len(root_run_ids) - taken)
        self._loader.losses += 1
        for run in tuple(self._live.by_id.values()):
            if run.lane.root_run_id in root_run_ids:
                self._take_out(run)
                self._forget(run.lane.run_id)
        for run_id, items in tuple(self._ready.held.items()):
            if items and items[0].root_run_id in root_run_ids:
                del self._ready.held[run_id]
                self._left_id(run_id)
        for root in root_run_ids:
            self._prompts.lost(root)
            self._services.budgets.forget(root)
            self._services.accounts.forget(root)
        self._services.phase.progressed()

    def takes(self, item: InLane) -> bool:
        """Whether an item is for a run of this process, and its run can have it now.

        It gets limits when it is known what its tree has used: who sends them may not know.  What
        comes for a tree that is yet to be taken up is found there by that.
        """
        root = item.root_run_id
        if not self._share.owns(root) or self._share.is_early(root):
            return False
        if isinstance(item, e.SessionLimits) and item.limits is not None:
            if (item.run_id, item.seq) not in self._learned:
                learning = self._learn(item, item.limits)
                self._hub.tasks.start(learning, name="hubbub limits", steady=True)
                return False
            self._learned.discard((item.run_id, item.seq))
        return True

    async def _learn(self, item: InLane, limits: Limits) -> None:
        try:
            await self._services.accounts.learn(item.root_run_id, limits, self._hub.journal)
        except HubbubError as error:  # What cannot be read says so where it is driven.
            log.warning("limits.unread", run_id=item.run_id, error=str(error))
        self._learned.add((item.run_id, item.seq))
        self._wake(item)
        self._learned.discard((item.run_id, item.seq))

    # ── handed over ──────────────────────────────────────────────────────────────────────────

    def crowded(self, room: Mapping[str, int]) -> None:
        """Others have room for so many trees of each agent: they get some that rest."""
        sharing = self._share.sharing
        if sharing is None or self._is_moving or self._services.phase.is_leaving:
            return
        left, roots = dict(room), []
        at_work = {run.lane.root_run_id for run in self._live.by_id.values()}
        for root, agent in sharing.trees().items():
            is_here = root in at_work or root in self._ready.held or self._loader.is_loading(root)
            is_here = is_here or root in self._loader.arriving
            if left.get(agent, 0) and not is_here:
                left[agent] -= 1
                roots.append(root)
        if roots:
            self._is_moving = True
            self._hub.tasks.start(self._move(roots), name="hubbub hand-over", steady=True)

    async def _move(self, roots: Sequence[str]) -> None:
        try:
            await self._hand_over(roots)
        finally:
            self._is_moving = False

    async def _hand_over(self, roots: Collection[str]) -> None:
        """Let others have these trees; what they were in the middle of was left in order."""
        sharing = self._share.sharing
        assert sharing is not None
        runs = [x for x in self._live.by_id.values() if x.lane.root_run_id in roots]
        self._loader.note_left(
            {x.lane.run_id: (x.lane.root_run_id, x.lane.seq) for x in runs if x.is_at_work}
        )
        self._given = roots
        await sharing.hand_over(roots)
        for run in runs:  # What it had submitted is on record now.
            self._outcomes.changed(run.lane.run_id)

    async def drain(self) -> None:
        """The runtime is being left: others may have at once what rests, what is at work as soon
        as it has come to a boundary, and nothing new comes.  Returns when all have gone."""
        sharing = self._share.sharing
        if sharing is None:
            return
        await sharing.drain()
        while trees := sharing.trees():
            at_work = self._at_work()
            resting = [root for root in trees if root not in at_work]
            if not (resting or self._at_work(is_waiting_rest=True)):
                resting = list(trees)  # They wait for each other, or for people.
            if resting:
                await self._hand_over(resting)
            else:
                await self._services.phase.wait_until(partial(self._has_changed, at_work))

    def withdraw(self) -> None:
        """The runtime is gone, and its hub lives on: others are to drive what was left."""
        sharing, tasks = self._share.sharing, self._hub.tasks
        if sharing is not None and tasks.is_open and not self._hub.is_closed:
            sharing.offer((), 0)
            self._given = tuple(sharing.trees())
            tasks.start(self._leave(sharing), name="hubbub hand-over", steady=True)

    async def _leave(self, sharing: Sharing) -> None:
        await sharing.hand_over(self._given)
        if self._hub.dispatcher.owner is None:  # Else that declares what is so.
            await sharing.declare({})

    def _has_changed(self, at_work: Collection[str]) -> bool:
        return self._at_work() != at_work or not self._at_work(is_waiting_rest=True)

    def _at_work(self, *, is_waiting_rest: bool = False) -> set[str]:
        """The roots of the trees with a run that is to be given time; where ``is_waiting_rest``,
        not to what waits for other runs."""
        waits = self._outcomes.waits
        return {
            run.lane.root_run_id
            for run in self._live.by_id.values()
            if not run.is_at_rest(waits(run.lane.run_id) if is_waiting_rest else 0)
        }

    def heard_elsewhere(self, events: Sequence[Event]) -> None:
        """Others have written these."""
        for event in events:
            if isinstance(event, _RESTS) and event.lane == "own":
                self._outcomes.changed(event.run_id)
                if event.root_run_id != event.run_id:  # A conversation rests when its frame does.
                    self._outcomes.changed(event.root_run_id)
