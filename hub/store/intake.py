"""``RunIntake``: the port through which runs that another store has written come into a store, and
through which runs leave it for good.

    remove ─► put_event … ─► put_run ─► put_key      per run, in ``all_or_nothing``
    forget … ─► drop_notes …                         per tree, in ``all_or_nothing``
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
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

    def forget(self, run_id: str) -> None:
        """Take out a run of a tree that goes as a whole: all that it has, the values of its
        variables, and its id.  What the hub's own lane says of it stays.

        The run that has the last event of the store must stay, or its position were used again.
        """
        ...

    def drop_notes(self, prefix: str) -> None:
        """Remove the notes whose keys begin like this."""
        ...

    def drop_requests(self, is_kept: Callable[[str], bool]) -> None:
        """Remove what was noted of requests that runs have accepted which are not kept."""
        ...

    def contents(self) -> Iterator[str]:
        """The digests of the contents that the store keeps, whether an event names them or not;
        but for those that a run has named in turns that have gone, which are its as long as it is
        there."""
        ...

    def drop_contents(self, digests: Iterable[str]) -> int:
        """Remove contents that nothing names, outside of ``all_or_nothing``; returns how many.

        A backup that is being made meanwhile raises, or has them.
        """
        ...

    def settle(self) -> None:
        """Between two commits, where there are many: let nothing pile up beside the database."""
        ...

    def put_event(self, event: Event, body: bytes) -> EventRow:
        """Put in the next event of either lane of a run; ``body`` is ``event`` as it is kept."""
        ...

    def put_run(self, row: RunRow, waiting: Sequence[int]) -> None:
        """Put in the row of a run whose events are all there; ``waiting`` are numbers of its in
        lane."""
        ...

    def put_key(self, run_id: str, source: str, key: str, seq: int, number: int = 0) -> bool:
        """Note under which key an item was accepted; whether none was noted before.  Of one that
        has gone ``number`` is what is known of it (``AcceptedRow.number``)."""
        ...

    def put_note(self, key: str, value: str) -> None: ...

    def put_content(self, digest: str, content: bytes) -> None:
        """Keep a content, durably at once: it must be there before what names it is committed."""
        ...
