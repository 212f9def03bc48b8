"""``Deadlines``: a run's time is over wherever it is: in memory, parked, or on its way there."""

from collections.abc import Callable

from hubbub.runtime.kernel.live import LiveRuns
from hubbub.runtime.kernel.services import Services

__all__ = ["Deadlines"]


class Deadlines:
    """The deadlines of one runtime's runs."""

    __slots__ = ("_live", "_services", "_wake")

    def __init__(self, services: Services, live: LiveRuns, wake: Callable[[str], object]) -> None:
        self._services = services
        self._live = live
        self._wake = wake
        """Has a run that is not in memory brought there, to end at once."""

    def watch(self, run_id: str, deadline: int) -> None:
        """End a run at ``deadline`` (µs since the epoch)."""
        now = self._services.hub.ports.clock.now()
        seconds = max(0.0, (deadline - now) / 1_000_000)
        self._services.timers.after(seconds, lambda: self._pass(run_id))

    def _pass(self, run_id: str) -> None:
        run = self._live.find(run_id)
        if run is not None:
            run.pass_deadline()
        elif not self._services.hub.is_closed and not self._services.phase.is_leaving:
            self._wake(run_id)
