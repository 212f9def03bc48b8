"""``Mirror``: the port of what shows a store's runs in files, and brings runs back from them.

open    adopt (in the writing thread) ─► open ─► run
then    committed, after each batch; catch_up, when everything must be shown
end     aclose
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import anyio

from hubbub.hub.events import Event
from hubbub.hub.store.intake import RunIntake
from hubbub.hub.store.journal import RunInfo
from hubbub.hub.store.reader import StoreReader

__all__ = ["Mirror"]


class Mirror(Protocol):
    """Follows a store that knows nothing of what it shows, or where.  Serves one opening."""

    begun: anyio.Event
    """Set once ``run`` is at work."""
    safe: int
    """The position up to which nothing need be looked at after a crash."""

    @property
    def is_far_behind(self) -> bool:
        """Whether commits should wait until it has caught up."""
        ...

    def adopt(self, intake: RunIntake) -> Sequence[str]:
        """Put what is shown of runs that the store does not have into it.

        Called in the writing thread, before anything is submitted.  Returns what users
        must know, one line each.
        """
        ...

    async def open(self, read: Callable[[], StoreReader], safe: int, tip: int) -> None:
        """Begin with a store that has come to ``tip``; what was committed after ``safe`` is looked
        at first.  ``read`` makes a reader, which the mirror closes."""
        ...

    def committed(self, batch: Iterable[tuple[RunInfo, Sequence[Event]]], position: int) -> None:
        """These events of runs with descriptors are on record, up to ``position``."""
        ...

    async def forget(self, run_ids: Sequence[str]) -> None:
        """Show nothing of these runs any more, durably: they have ended, and are about to go.

        Raises ``OSError`` for what cannot be removed.
        """
        ...

    async def run(self) -> None:
        """Follow, for as long as the store is open."""
        ...

    async def catch_up(self) -> None:
        """Return when everything is shown that was committed before, or ``run`` has ended."""
        ...

    async def aclose(self) -> None:
        """Release every resource; idempotent."""
        ...
