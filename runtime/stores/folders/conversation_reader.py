"""``ContextReader``: conversations with their takeover frames, read in the store's one order."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Protocol

from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event, SessionPush
from hubbub.hub.store.journal import RunInfo
from hubbub.runtime.stores.sqlite.file import Stored, StoreFile
from hubbub.runtime.stores.sqlite.reader import SqliteReader

__all__ = ["ContextReader", "Conversations"]


class Conversations(Protocol):
    """Where conversations are read from.  Plain calls, from one thread at a time."""

    def info(self, run_id: str) -> RunInfo | None: ...

    def read(self, run_ids: Iterable[str], after: int) -> tuple[Sequence[Event], int]:
        """What these runs, and the frames that they push, have written into their own lanes since
        a position, in the store's order; and the position that was reached."""
        ...


class ContextReader:
    """``Conversations`` of a store's file: only what is committed, also beside its writer."""

    def __init__(self, store: StoreFile) -> None:
        self._store = store
        self._runs = SqliteReader(store.db)

    def info(self, run_id: str) -> RunInfo | None:
        try:
            return self._runs.info(run_id)
        except BadValue:  # Its row is damaged, which is told when the run is read.
            return None

    def read(self, run_ids: Iterable[str], after: int) -> tuple[Sequence[Event], int]:
        """See ``Conversations``.  Raises ``StoreFailed`` for an event that cannot be read."""
        tip = self._store.tip  # What is committed meanwhile comes the next time, from every lane.
        found: list[Stored] = []
        todo = list(dict.fromkeys(run_ids))
        seen = set(todo)
        while todo:
            for stored in self._store.events(todo.pop(), after=after):
                if stored.position > tip:
                    break
                event = stored.event
                if event.lane != "own":
                    continue
                found.append(stored)
                if isinstance(event, SessionPush) and event.frame_run_id not in seen:
                    seen.add(event.frame_run_id)
                    todo.append(event.frame_run_id)
        found.sort(key=attrgetter("position"))
        return [stored.event for stored in found], tip
