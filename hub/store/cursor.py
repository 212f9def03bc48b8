"""Cursors: opaque texts that say after which durable event to continue.

A cursor names the store it is from, so that one from elsewhere is noticed, and either an event
by its identity or a bare position.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import structs

from hubbub.hub.errors import BadValue
from hubbub.hub.events import AgentBase, Event
from hubbub.hub.store.journal import Journal, Selection

__all__ = [
    "REMOVED", "START", "cursor_at", "cursor_behind", "cursor_of", "is_cut", "is_position",
    "may_bring_more", "place", "read_all", "removed_up_to", "seq_of",
]  # fmt: skip

START: Final = "start"
"""The cursor before everything that is kept."""

REMOVED: Final = "removed/position"
"""The key of the note that says the highest position from which an event was removed."""

PAGE: Final = 1000
"""Events read at a time."""


def cursor_of(store: str, event: Event) -> str:
    """The cursor after an event of the store of that name."""
    return f"{store}|{event.run_id}/{event.lane}/{event.seq}"


def cursor_behind(store: str, run_id: str, lane: str, seq: int) -> str:
    """The cursor after the event that has this identity."""
    return f"{store}|{run_id}/{lane}/{seq}"


def seq_of(cursor: str) -> int:
    """The number in its lane of the event that ``cursor_of`` was given."""
    return int(cursor.rpartition("/")[2])


def cursor_at(store: str, position: int) -> str:
    """The cursor after a position."""
    return f"{store}@{position}"


async def place(journal: Journal, cursor: str) -> int | None:
    """The position that a cursor denotes, or ``None``: foreign, no longer kept, or malformed."""
    if cursor == START:
        return 0
    if cursor.startswith(journal.name + "@"):
        text = cursor[len(journal.name) + 1 :]
        position = int(text) if _is_number(text) and len(text) < 20 else -1
        return position if 0 <= position <= journal.tip else None
    if not cursor.startswith(journal.name + "|"):
        return None
    run_id, _, rest = cursor[len(journal.name) + 1 :].rpartition("/")[0].rpartition("/")
    seq = cursor.rpartition("/")[2]
    if not rest or not _is_number(seq) or len(seq) > 18:
        return None
    return await journal.position(run_id, rest, int(seq))


def is_position(text: object) -> bool:
    """Whether a text that a store has kept is a position."""
    return isinstance(text, str) and _is_number(text) and len(text) < 20


def removed_up_to(notes: Mapping[str, str], tip: int) -> int:
    """The highest position from which something was removed, as is noted.

    Where the note is damaged that may be any up to ``tip``, the store's last one.
    """
    text = notes.get(REMOVED, "0")
    return int(text) if is_position(text) else tip


async def is_cut(journal: Journal, selection: Selection, after: int) -> bool:
    """Whether something was removed behind a position that a reader from there has to be told of.

    Of a run or a tree: old turns, whose base follows then.  Of everything: any event.
    """
    if selection.run_id is None and selection.root_run_id is None:
        return removed_up_to(await journal.notes(REMOVED), journal.tip) > after
    bases = structs.replace(selection, match=_IS_BASE)
    position, end = after, journal.tip
    while position < end:
        events, position = await journal.read(bases, after=position, until=end, limit=1)
        for base in events:
            if base.seq > 1 and await journal.position(base.run_id, "own", base.seq - 1) is None:
                return True
    return False


_IS_BASE: Final = AgentBase.type.__eq__


async def may_bring_more(journal: Journal, selection: Selection) -> bool:
    """Whether anything can come of what is selected: not of a run, or a tree, that is kept no
    longer.  One that is on its way into the journal is waited for."""
    run_id = selection.root_run_id if selection.run_id is None else selection.run_id
    if run_id is None or await journal.info(run_id) is not None:
        return True
    await journal.flush()
    return await journal.info(run_id) is not None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


async def read_all(
    journal: Journal, selection: Selection, *, after: str | None, limit: int | None
) -> list[Event]:
    """The events behind a cursor, up to what is committed now; ``limit`` bounds their number.

    Raises ``BadValue`` for a cursor that this store cannot place.
    """
    position = await place(journal, after) if after is not None else 0
    if position is None:
        raise BadValue("after", "a cursor of another store, or of events no longer kept")
    await journal.flush()
    end = journal.tip
    found: list[Event] = []
    while position < end and (limit is None or len(found) < limit):
        page = PAGE if limit is None else min(PAGE, limit - len(found))
        events, position = await journal.read(selection, after=position, until=end, limit=page)
        found.extend(events)
    return found
