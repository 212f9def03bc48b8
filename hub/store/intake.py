"""``RunIntake``: the port through which runs that another store has written come into a store.

remove ─► put_event … ─► put_run ─► put_key      per run, in ``all_or_nothing``
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from hubbub.hub.events import Event
from hubbub.hub.store.reader import EventRow, RunRow, StoreReader

__all__ = ["RunIntake"]


class RunIntake(Protocol):
    """Takes in runs as they are: their numbers stay, positions and checksums are the store's own.

    No runtime is at work on the store meanwhile.  Calls are plain, from one thread at a time, and
    raise ``StoreUnreadable`` or ``StoreFailed`` where the store cannot be read or written.
    """

    @property
    def reader(self) -> StoreReader:
        """Sees what was put in, before it is committed."""
        ...

    def all_or_nothing(self) -> AbstractContextManager[None]:
        """What is put in inside is committed durably at its end, or, if that raises, not at
        all; contents are released again that nothing names."""
        ...

    def remove(self, run_id: str) -> None:
        """Take out a run with all that it has, if it is there.  Positions are not used again."""
        ...

    def put_event(self, event: Event, body: bytes) -> EventRow:
        """Put in the next event of either lane of a run; ``body`` is ``event`` as it is kept."""
        ...

    def put_run(self, row: RunRow, waiting: Sequence[int]) -> None:
        """Put in the row of a run whose events are all there; ``waiting`` are numbers of its in
        lane."""
        ...

    def put_key(self, run_id: str, source: str, key: str, seq: int) -> bool:
        """Note under which key an item was accepted; whether none was noted before."""
        ...

    def put_note(self, key: str, value: str) -> None: ...

    def put_content(self, digest: str, content: bytes) -> None:
        """Keep a content, durably at once: it must be there before what names it is committed."""
        ...
