"""``ConversationReader``: conversations with their takeover frames, in the store's one order."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event, SessionPush
from hubbub.hub.store.journal import RunInfo
from hubbub.hub.store.reader import Stored, StoreReader, events_in, info_of

__all__ = ["ConversationReader"]


class ConversationReader:
    """Reads what is committed, also beside the store's writer.  From one thread at a time."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store

    def info(self, run_id: str) -> RunInfo | None:
        """What the store knows of a run; ``None``, too, where its row is damaged."""
        try:
            row = self._store.row(run_id)
            return None if row is None else info_of(row)
        except BadValue:  # It is reported when the run is read.
            return None

    def read(self, run_ids: Iterable[str], after: int) -> tuple[Sequence[Event], int]:
        """What these runs, and the frames that they push, have written into their own lanes since
        a position, in the store's order; and the position that was reached.

        Raises ``StoreFailed`` for an event that cannot be read.
        """
        tip = self._store.tip  # What is committed meanwhile comes the next time, from every lane.
        found: list[Stored] = []
        todo = list(dict.fromkeys(run_ids))
        seen = set(todo)
        while todo:
            for stored in events_in(self._store, todo.pop(), after=after):
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
