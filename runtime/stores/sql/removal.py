"""Taking runs out of a database for good, by statements that all databases know."""

from typing import Final

from hubbub.hub.events.codec import decode_event
from hubbub.hub.store.inbox_rules import number_of
from hubbub.hub.store.reader import IMPORTED
from hubbub.runtime.stores.sql.connection import SqlConnection
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


def cut_lanes(db: SqlConnection, number: int, seq: int) -> None:
    """Take out what stands before a base of a run, if its record ``seq`` is one: events but for
    how it began, and a snapshot of before.  Of keys is kept what their items said, as a number
    below 0 in the place of a position."""
    base = db.execute(_BASE, (number, seq)).fetchone()
    start = db.execute(_START, (number,)).fetchone()
    if base is None or start is None:
        return
    between = (number, *start, *base)
    keys = db.execute(_KEYS_BETWEEN, between).fetchall()
    settled = [(-number_of(decode_event(body)), number, *key) for *key, body in keys]
    db.executemany(_SETTLE, settled)
    db.execute(_CUT, between)
    db.execute("DELETE FROM snapshot WHERE run = ? AND seq < ?", (number, seq))


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
_BASE: Final = (
    "SELECT position FROM event WHERE run = ? AND lane = 'own' AND seq = ? AND type = 'agent:base'"
)
_START: Final = (
    "SELECT position FROM event WHERE run = ? AND lane = 'own' AND seq = 1 "
    "ORDER BY position LIMIT 1"
)
_CUT: Final = "DELETE FROM event WHERE run = ? AND lane <> 'hub' AND position > ? AND position < ?"
_KEYS_BETWEEN: Final = (
    "SELECT source, key, body FROM accepted JOIN event USING (position) "
    "WHERE accepted.run = ? AND accepted.position > ? AND accepted.position < ?"
)
_SETTLE: Final = "UPDATE accepted SET position = ? WHERE run = ? AND source = ? AND key = ?"
IS_REQUEST: Final = f"key >= '{REQUESTS}' AND key < '{behind(REQUESTS)}'"
"""Which notes are those of requests."""

_DROP_REQUESTS: Final = f"DELETE FROM note WHERE {IS_REQUEST} AND value >= ? AND value < ?"
