"""``FailureMasks``: what takes secrets out of what is said of runs' failures."""

from hubbub.hub.masking import LONG, Masker
from hubbub.runtime.kernel.live import LiveRuns
from hubbub.runtime.kernel.services import Services

__all__ = ["FailureMasks"]


class FailureMasks:
    """The secrets of one runtime's runs."""

    __slots__ = ("_live", "_services")

    def __init__(self, services: Services, live: LiveRuns) -> None:
        self._services = services
        self._live = live

    def masker(self, *run_ids: str) -> Masker:
        """What takes the values of these runs' secrets, and providers' keys, out of texts."""
        values = {*self._services.catalog.keys}
        for run_id in run_ids:
            if (run := self._live.find(run_id)) is not None:
                values |= run.secrets()
                continue
            # It has left memory, while somebody was still busy with what it said.
            addressing = self._services.hub.addressing
            replaced = (value for _, value in addressing.replaced(run_id))
            given = (*addressing.values(run_id), *replaced)
            values |= {value for value in given if len(value) >= LONG}
        return Masker(values)
