"""``EndedRuns``: what is kept for ended runs until it is no longer needed."""

from collections import deque

from hubbub.agents.state.spending import Spent
from hubbub.hub.own_lane import OwnLane
from hubbub.runtime.kernel.services import Services

__all__ = ["EndedRuns"]


class EndedRuns:
    """The roots that have ended last; the files of the last ``keep`` are kept."""

    __slots__ = ("_keep", "_roots", "_services")

    def __init__(self, services: Services, keep: int) -> None:
        self._services = services
        self._keep = keep
        self._roots: deque[str] = deque()

    def add(self, lane: OwnLane, spent: Spent) -> None:
        """A run is over: its variables go with its tree, its files with the last roots.

        ``spent``: what it has used.
        """
        hub = self._services.hub
        for run_id in self._services.budgets.ended(lane.run_id, lane.root_run_id, spent):
            hub.addressing.run_ended(run_id)
        services = self._services
        accounts = services.accounts
        if accounts.by_root or accounts.work:
            is_last = lane.root_run_id not in services.budgets.by_root
            accounts.ended(lane.run_id, lane.root_run_id, is_last=is_last)
        if lane.parent_run_id is None:
            self._roots.append(lane.run_id)
            while len(self._roots) > self._keep:
                hub.ports.blobs.drop(self._roots.popleft())
