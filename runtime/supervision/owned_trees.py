"""``OwnedTrees``: the trees that this runtime drives, where several processes share its store.

    claimed ─► deadlines, prompts and unfinished runs, as when a runtime opens ─► resumed
    lost    ─► its runs leave memory, unrecorded, and what was kept for them goes
    others  ─► whoever waits for one of their runs looks again

Where the store is one process's none of this happens: everything is owned.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.store.journal import RunInfo
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
        resume: Callable[[Sequence[str]], object],
    ) -> None:
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
        self._resume = resume

    def claimed(self, root_run_ids: Collection[str]) -> None:
        """These trees were another process's, or nobody's: go on with what there is."""
        if not self._services.phase.is_leaving:
            self._hub.tasks.start(self._take_up(tuple(root_run_ids)), name="hubbub claim")

    async def _take_up(self, roots: Sequence[str]) -> None:
        journal = self._hub.journal
        infos: list[RunInfo] = []
        for root in roots:
            infos += await journal.runs(root_run_id=root)
        infos = [info for info in infos if self._is_to_come(info)]
        for info in infos:
            self._forget(info.run_id)
            if info.wake_at is not None:
                self._deadlines.watch(info.run_id, info.wake_at)
        await self._prompts.claimed({info.run_id: info.root_run_id for info in infos})
        ready = [info.run_id for info in infos if info.status == "active" or info.waiting]
        found = await self._loader.unfinished(Claimed(roots, ready))
        if not self._services.phase.is_leaving:
            self._resume([run_id for run_id in found if not self._is_here(run_id)])

    def _is_to_come(self, info: RunInfo) -> bool:
        return self._share.owns(info.root_run_id) and not self._is_here(info.run_id)

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
        self._loader.losses += 1
        for run in tuple(self._live.by_id.values()):
            if run.lane.root_run_id in root_run_ids:
                self._take_out(run)
                self._forget(run.lane.run_id)
        for run_id, items in tuple(self._ready.held.items()):
            if items and items[0].root_run_id in root_run_ids:
                del self._ready.held[run_id]
        for root in root_run_ids:
            self._prompts.lost(root)
            self._services.budgets.forget(root)
            self._services.accounts.forget(root)
        self._services.phase.progressed()

    async def drain(self) -> None:
        """The runtime is being left: others may have at once what rests, and nothing new comes."""
        sharing = self._share.sharing
        if sharing is not None:
            await sharing.drain()
            at_work = {run.lane.root_run_id for run in self._live.by_id.values()}
            await sharing.hand_over([root for root in sharing.trees() if root not in at_work])

    def heard_elsewhere(self, events: Sequence[Event]) -> None:
        """Others have written these."""
        for event in events:
            if isinstance(event, _RESTS) and event.lane == "own":
                self._outcomes.changed(event.run_id)
                if event.root_run_id != event.run_id:  # A conversation rests when its frame does.
                    self._outcomes.changed(event.root_run_id)
