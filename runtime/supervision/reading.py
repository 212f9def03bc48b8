"""``RunReading``: what is read of a run before it comes into memory."""

from hubbub.agents.code.lifecycle import CodeThread, fold_code_all
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.missing import find_missing
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.store.journal import LoadedRun
from hubbub.runtime.remembered.recent import RecentThreads
from hubbub.runtime.remembered.snapshots import ReadRun, load_run
from hubbub.runtime.runs.dependencies import RunDependencies

__all__ = ["RunReading"]


class RunReading:
    """Reads runs, and what they need to know of their trees."""

    __slots__ = ("_definitions", "_families", "_hub", "_recent", "_shared")

    def __init__(self, shared: RunDependencies, recent: RecentThreads) -> None:
        self._shared = shared
        self._hub = shared.services.hub
        self._definitions = shared.services.definitions
        self._families = shared.families
        self._recent = recent

    async def read(self, run_id: str) -> ReadRun | None:
        """A run as the journal has it; with its thread, if that was known up to a point."""
        journal = self._hub.journal
        if (known := self._recent.take(run_id)) is not None:
            thread, seq = known
            loaded = await journal.load(run_id, after=seq)
            if loaded is None:
                return None
            thread = fold_all(thread, loaded.events)
            # What looks into the past needs more of it.
            needs_more = thread.is_at_work or self._is_gone(thread, loaded)
            if loaded.after == seq and not needs_more:
                return ReadRun(loaded, thread)
        loaded, before = await load_run(journal, run_id)
        if loaded is None or before is None:
            return None if loaded is None else ReadRun(loaded)
        if self._is_code(loaded) != isinstance(before, CodeThread):
            loaded = await journal.load(run_id)
            return None if loaded is None else ReadRun(loaded)
        if isinstance(before, CodeThread):
            return ReadRun(loaded, fold_code_all(before, loaded.events), before)
        thread = fold_all(before, loaded.events)
        # A question that was open then may be what it waits for, whenever it was asked.
        if self._is_gone(thread, loaded) or (thread.is_at_work and before.prompts):
            loaded = await journal.load(run_id)
            return None if loaded is None else ReadRun(loaded)
        return ReadRun(loaded, thread, before)

    def _is_code(self, loaded: LoadedRun) -> bool:
        definition = self._definitions.find_agent(loaded.info.agent)
        return definition is not None and definition.is_code

    def _is_gone(self, thread: Thread, loaded: LoadedRun) -> bool:
        return find_missing(thread, loaded.info.agent, self._definitions) is not None

    async def prepare(self, run: ReadRun) -> OwnLane:
        """The lane of a run that was read; what it needs to know is known when this returns."""
        loaded = run.loaded
        lane = await self._families.lane_of(loaded)
        await self._families.load(loaded, run.before)
        if loaded.info.status in ("active", "waiting"):
            await self._servers_settled(loaded.info.agent)
        return lane

    async def _servers_settled(self, agent: str) -> None:
        """Wait for the tools of a run at work: which of its calls may be made again, they say."""
        servers = [x for side in self._definitions.sides_of(agent) for x in side.servers]
        if servers:
            await self._shared.services.servers.settled(tuple(servers))
