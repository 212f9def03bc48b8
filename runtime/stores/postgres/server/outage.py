"""``Outage``: what is said of a server that does not do what it is asked, once each time.

the first that waits ─► store.waits, with what to do about it ─► … ─► nobody waits ─► store.back
"""

from hubbub.hub.logs import log
from hubbub.hub.ports import Clock
from hubbub.runtime.stores.postgres.server.faults import postgres_wait

__all__ = ["Outage"]


class Outage:
    """Of one process, whose threads ask the same server by several connections."""

    def __init__(self, place: str, clock: Clock, patience: float) -> None:
        self._place = place
        self._clock = clock
        self._patience = patience
        self._waiting = 0
        """How many wait just now."""
        self._since = 0.0

    def begins(self, error: BaseException) -> None:
        """One more waits, for what is in its way passes."""
        if not self._waiting:
            self._since = self._clock.monotonic()
            words = postgres_wait(self._place, error)
            log.warning("store.waits", problem=words, patience=self._patience)
        self._waiting += 1

    def ends(self, *, is_back: bool) -> None:
        """One of them waits no more: it was done, or given up."""
        self._waiting -= 1
        if not self._waiting and is_back:
            waited = round(self._clock.monotonic() - self._since, 1)
            log.info("store.back", place=self._place, waited=waited)
