"""Taking runs out of a database for good, by statements that all databases know."""

from collections.abc import Sequence
from typing import Final

from hubbub.hub.events import AgentBase, InLane
from hubbub.hub.events.codec import decode_event
from hubbub.hub.events.identities import SCHEDULES, has_tick, identity_of
from hubbub.hub.store.inbox_rules import number_of
from hubbub.hub.store.journal import Cut
from hubbub.hub.store.reader import IMPORTED
from hubbub.runtime.stores.sql.connection import SqlConnection
from hubbub.runtime.stores.sql.own_records import own_record
from hubbub.runtime.stores.sql.rows import REQUESTS

__all__ = [
    "IS_REQUEST", "behind", "cut_lanes", "drop_keys", "drop_requests_of", "forget_run",
    "remove_run",
]  # fmt: skip


def remove_run(db: SqlConnection, number: int) -> None:
    """Take out a run with all that it has; its number stays."""
    for statement in _REMOVE:
        db.execute(statement, (number,))


def forget_run(db: SqlConnection, run_id: str, number: int) -> None:
    """Take out a run of a tree that goes as a whole: see ``RunIntake.forget``."""
    remove_run(db, number)
    drop_keys(db, "secret", f"{run_id}/")
    db.execute("DELETE FROM note WHERE key = ?", (f"{IMPORTED}{run_id}",))
    db.execute(_FORGET, (number,))


def cut_lanes(db: SqlConnection, number: int, cut: Cut) -> int:
    """Take out what stands before a base of a run, if its record is one: events but for how it
    began, and a snapshot of before.  Of keys is kept what their items said, as a number below 0 in
    the place of a position.  Returns the position of the last event that goes; 0 for none."""
    if cut.place:
        base = db.execute(_BASE_AT, (cut.place, number, cut.seq)).fetchone()
    else:
        base = db.execute(_BASE, (number, cut.seq, cut.seq)).fetchone()
    start = _start_of(db, number)
    if base is None or not start or base[1] != AgentBase.type:
        return 0
    # Rows that have gone before may still be in the way: none of them is looked at again.
    until = min(base[0], cut.until + 1) if cut.until else base[0]
    between = (number, max(start, cut.after), until)
    _settle(db, number, db.execute(_ITEMS_BETWEEN, between).fetchall())
    last = db.execute(_LAST_BETWEEN, between).fetchone()
    db.execute(_CUT, between)
    db.execute("DELETE FROM snapshot WHERE run = ? AND seq < ?", (number, cut.seq))
    return 0 if last is None else int(last[0])


def _start_of(db: SqlConnection, number: int) -> int:
    """The position of a run's first own record; 0 for none."""
    before = -1
    place = 0
    # By a damaged index a row may come again, and with it all behind it.
    while place > before and (rows := db.execute(_FIRST, (number, place)).fetchall()):
        before = place
        for place, lane in rows:
            if lane == "own":
                return int(place)
    return 0


def _settle(db: SqlConnection, number: int, rows: Sequence[tuple[int, str]]) -> None:
    """Keep of the keys of items what these said."""
    items = {position: decode_event(body) for position, body in rows}
    known = {(*identity_of(x), at) for at, x in items.items() if isinstance(x, InLane)}
    if any(map(has_tick, items.values())):
        ticks = db.execute(_TICKS, (number, SCHEDULES, min(items), max(items))).fetchall()
        known.update((SCHEDULES, tick, at) for tick, at in ticks if at in items)
    settled = [(-number_of(items[at]), number, *key, at) for *key, at in known if key[1]]
    if settled:
        db.executemany(_SETTLE, settled)


def drop_keys(db: SqlConnection, table: str, prefix: str) -> None:
    """Remove the rows whose keys begin like this."""
    delete = f"DELETE FROM {table} WHERE key >= ? AND key < ?"
    db.execute(delete, (prefix, behind(prefix)))


def drop_requests_of(db: SqlConnection, run_id: str) -> None:
    """Remove what was noted of requests that a run has accepted."""
    db.execute(_DROP_REQUESTS, (f"{run_id} ", f"{run_id}!"))


def behind(prefix: str) -> str:
    """The first text behind all that begin like this."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


_REMOVE: Final = (
    "DELETE FROM event WHERE run = ? AND lane <> 'hub'",
    "DELETE FROM waiting WHERE run = ?",
    "DELETE FROM accepted WHERE run = ?",
    "DELETE FROM snapshot WHERE run = ?",
    "DELETE FROM run WHERE number = ?",
)
# The highest number stays: the next one would be the same, and readers know it as another run's.
_FORGET: Final = """
DELETE FROM address WHERE number = ?1 AND number < (SELECT max(number) FROM address)
  AND NOT EXISTS (SELECT 1 FROM event WHERE run = ?1)
  AND NOT EXISTS (SELECT 1 FROM event WHERE root = ?1 AND lane = 'hub')
"""
_BASE: Final = own_record("position, type")
_BASE_AT: Final = (
    "SELECT position, type FROM event WHERE position = ? AND run = ? AND lane = 'own' AND seq = ?"
)
_FIRST: Final = (
    "SELECT position, lane FROM event WHERE run = ? AND position > ? ORDER BY position LIMIT 20"
)
"""Row by row: a database that is asked for the one it is may read all of a run."""
_BETWEEN: Final = "FROM event WHERE run = ? AND lane <> 'hub' AND position > ? AND position < ?"
_CUT: Final = f"DELETE {_BETWEEN}"
_LAST_BETWEEN: Final = f"SELECT position {_BETWEEN} ORDER BY position DESC LIMIT 1"
_ITEMS_BETWEEN: Final = f"SELECT position, body {_BETWEEN} AND lane = 'in'"
_TICKS: Final = (
    "SELECT key, position FROM accepted WHERE run = ? AND source = ? "
    "AND position >= ? AND position <= ?"
)
_SETTLE: Final = (
    "UPDATE accepted SET position = ? WHERE run = ? AND source = ? AND key = ? AND position = ?"
)
IS_REQUEST: Final = f"key >= '{REQUESTS}' AND key < '{behind(REQUESTS)}'"
"""Which notes are those of requests."""

_DROP_REQUESTS: Final = f"DELETE FROM note WHERE {IS_REQUEST} AND value >= ? AND value < ?"
