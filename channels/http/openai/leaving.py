"""``Leaving``: what becomes of a run when its client leaves before the answer is there.

A session's run goes on.  One that is for a single request is interrupted after a grace, unless
somebody has come back for it: its answer would be for nobody.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hubbub.hub.hub import Hub

__all__ = ["GRACE", "Leaving"]

GRACE: Final = 30.0
"""Seconds that a client has to come back."""


class Leaving:
    """Who is being answered now; nothing of it outlives the process."""

    __slots__ = ("_attended", "_hub")

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._attended: dict[str, int] = {}

    @contextmanager
    def attending(self, run_id: str) -> Iterator[None]:
        """Somebody waits for what a run says."""
        attended = self._attended
        attended[run_id] = attended.get(run_id, 0) + 1
        try:
            yield
        finally:
            attended[run_id] -= 1
            if not attended[run_id]:
                del attended[run_id]

    def left(self, run_id: str) -> None:
        """The client of a run that is for one request has left, and the answer is not there."""
        if not self._hub.is_closed:
            self._hub.tasks.start(self._interrupt(run_id), name=f"grace of {run_id}")

    async def _interrupt(self, run_id: str) -> None:
        await self._hub.ports.clock.sleep(GRACE)
        if run_id not in self._attended and not self._hub.is_closed:
            self._hub.interrupt(run_id, "its client has left")
