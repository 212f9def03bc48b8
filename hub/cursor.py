"""Cursors: opaque texts that say after which durable event to go on.

A cursor names the store it is from, so that one from elsewhere is noticed, and either an event
by its identity or a bare position.
"""

from typing import Final

from hubbub.hub.events import Event
from hubbub.hub.store.journal import Journal

__all__ = ["START", "cursor_at", "cursor_of", "place"]

START: Final = "start"
"""The cursor before everything that is kept."""


def cursor_of(store: str, event: Event) -> str:
    return f"{store}|{event.run_id}/{event.lane}/{event.seq}"


def cursor_at(store: str, position: int) -> str:
    return f"{store}@{position}"


async def place(journal: Journal, cursor: str) -> int | None:
    """The position a cursor stands for, or ``None``: foreign, no longer kept, or malformed."""
    if cursor == START:
        return 0
    if cursor.startswith(journal.name + "@"):
        text = cursor[len(journal.name) + 1 :]
        position = int(text) if text.isdecimal() and len(text) < 20 else -1
        return position if 0 <= position <= journal.tip else None
    if not cursor.startswith(journal.name + "|"):
        return None
    run_id, _, rest = cursor[len(journal.name) + 1 :].rpartition("/")[0].rpartition("/")
    seq = cursor.rpartition("/")[2]
    if not rest or not seq.isdecimal() or len(seq) > 18:
        return None
    return await journal.position(run_id, rest, int(seq))
