"""Reading back: the durable events of a run before a position, the newest first."""

from collections.abc import Callable
from typing import Final

from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event
from hubbub.hub.store.cursor import cursor_at, place
from hubbub.hub.store.reader import StoreReader, decoded
from hubbub.hub.store.store import Store

__all__ = ["END", "read_back"]

END: Final = "end"
"""The cursor behind everything that is kept."""

MAX_LOOKED_AT: Final = 100_000
"""Events that are looked at for one page, however few of them are asked for."""


async def read_back(
    store: Store, run_id: str, *, before: str, match: Callable[[str], bool], limit: int
) -> tuple[list[Event], str]:
    """Events of a run up to a cursor, the newest first, and the cursor to go on ``before``.

    The event that the cursor is of is among them: what stands ``after`` a cursor and what stands
    ``before`` it are everything.  The cursor to go on with is empty where nothing is left.  Raises
    ``BadValue`` for a cursor that this store cannot place.
    """
    await store.flush()
    until = store.tip if before == END else await place(store, before)
    if until is None:
        raise BadValue("before", "a cursor of another store, or of events no longer kept")
    last = until

    def look(reader: StoreReader) -> tuple[list[Event], str]:
        found: list[Event] = []
        rows = reader.event_rows((run_id,), until=last, backwards=True)
        for count, row in enumerate(rows):
            if len(found) == limit or count == MAX_LOOKED_AT:
                return found, cursor_at(store.name, row.position)
            if match(row.type):
                found.append(decoded(reader, row.position, row.body))
        return found, ""

    return await store.inspect(look)
