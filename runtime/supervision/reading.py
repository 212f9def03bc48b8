"""``RunReading``: what is read of a run before it comes into memory."""

from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.missing import find_missing
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.store.journal import LoadedRun
from hubbub.runtime.kernel.recent import RecentThreads
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

    async def read(self, run_id: str) -> tuple[Thread | None, LoadedRun | None]:
        """A run as the journal has it; with its thread, if that was known up to a point."""
        journal = self._hub.journal
        if (known := self._recent.take(run_id)) is not None:
            thread, seq = known
            loaded = await journal.load(run_id, after=seq)
            if loaded is None:
                return None, None
            thread = fold_all(thread, loaded.events)
            gone = find_missing(thread, loaded.info.agent, self._definitions)
            # What looks into the past needs all of it.
            if gone is None and not thread.is_at_work:
                return thread, loaded
        return None, await journal.load(run_id)

    async def prepare(self, loaded: LoadedRun) -> OwnLane:
        """The lane of a run that was read; what it needs to know is known when this returns."""
        lane = await self._families.lane_of(loaded)
        await self._families.load(loaded)
        if loaded.info.status in ("active", "waiting"):
            await self._servers_settled(loaded.info.agent)
        return lane

    async def _servers_settled(self, agent: str) -> None:
        """Wait for the tools of a run at work: which of its calls may be made again, they say."""
        servers = [x for side in self._definitions.sides_of(agent) for x in side.servers]
        if servers:
            await self._shared.services.servers.settled(tuple(servers))
