"""Trees that go from a schema beside processes at work, and what these learn of it.

    a commit that has runs go, or old turns of one
                              ─► in its transaction: their rows ─► a note: gone/NUMBER, which tree
    who reads events          ─► and after that the notes: whoever finds less has been told why

The notes are numbered without a gap; the last ``KEPT`` are kept.
"""

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from hubbub.hub.store.journal import Cut
from hubbub.hub.store.reader import IMPORTED
from hubbub.hub.store.sharing import RemovedTree
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.sql.removal import IS_REQUEST, behind, cut_lanes
from hubbub.runtime.stores.sql.rows import Row
from hubbub.runtime.stores.sql.store_reader import LAST

__all__ = [
    "NEWEST",
    "Removals",
    "heard_by_others",
    "newest_removal",
    "removals_after",
    "remove_runs",
    "remove_turns",
]  # fmt: skip

KNOWN_SINCE: Final = 4
"""The oldest format of a program that knows that trees can go beside it."""

KEPT: Final = 1_000
"""Notes of what has gone that are kept; who has heard of none of them does not know which it
was."""

MAX_NAMED: Final = 100
"""Runs of a tree that such a note names; of a larger one it names none."""

Removals: TypeAlias = Sequence[tuple[int, RemovedTree]]
"""Trees that have gone, or old turns in one, each with its number."""


class _Gone(Struct, frozen=True, array_like=True):
    """What such a note says behind the position.  Of a whole tree without ``is_cut``: programs of
    format 4 read it."""

    root_run_id: str
    run_ids: tuple[str, ...] | None
    is_cut: bool = False


_GONE: Final = "gone/"
_DIGITS: Final = 15
_RANGE: Final = f"key >= '{_GONE}' AND key < '{behind(_GONE)}'"
_LAST_KEY: Final = f"SELECT key FROM note WHERE {_RANGE} ORDER BY key DESC LIMIT 1"
NEWEST: Final = f"coalesce(substr(({_LAST_KEY}), {len(_GONE) + 1})::bigint, 0)"
"""The number of the tree that has gone last."""


def remove_runs(db: PostgresConnection, rows: Iterable[Row], emptied: Sequence[str]) -> None:
    """Take out runs with all that they have, and notes that are ``emptied`` with them, within a
    transaction and a pipeline."""
    trees: dict[str, list[Row]] = {}
    for row in rows:
        trees.setdefault(row.root_run_id, []).append(row)
    for root, runs in trees.items():
        run_ids, numbers = [row.run_id for row in runs], [row.number for row in runs]
        named = run_ids if len(run_ids) <= MAX_NAMED else None
        db.execute(_NOTE, (_text(root, named), numbers))
        for statement in _REMOVE:
            db.execute(statement, (numbers,))
        db.execute(_DROP_SECRETS, (run_ids,))
        db.execute(_DROP_REQUESTS, (run_ids,))
        db.execute(_DROP_NOTES, ([*emptied, *(f"{IMPORTED}{run_id}" for run_id in run_ids)],))
        db.execute(_FORGET, (numbers,))
    if trees:
        db.execute(_FORGET_OLD)


def remove_turns(db: PostgresConnection, row: Row, cut: Cut) -> None:
    """Take out old turns of a run, within a transaction and outside of a pipeline."""
    last = cut_lanes(db, row.number, cut)
    if last:
        text = _text(row.root_run_id, (row.run_id,), True)
        db.execute(_NOTE_OF_TURNS, (f"{last} {text}",))
        db.execute(_FORGET_OLD)


def newest_removal(db: PostgresConnection) -> int:
    """The number of the tree that has gone last."""
    return int(db.execute(f"SELECT {NEWEST}").fetchone()[0])


def heard_by_others(db: PostgresConnection, worker: int) -> int:
    """The position up to which every other process at work has heard of events; 0 where one of them
    does not know that trees can go."""
    return int(db.execute(_HEARD, (KNOWN_SINCE, worker)).fetchone()[0])


def removals_after(db: PostgresConnection, number: int) -> Removals:
    """What has gone since the tree of that number; without the first of them where these are too
    many."""
    found = db.execute(_SELECT, (f"{_GONE}{number:0{_DIGITS}d}",)).fetchall()
    return [(int(key[len(_GONE) :]), _read(value)) for key, value in found]


def _read(note: str) -> RemovedTree:
    last, _, named = note.partition(" ")
    gone = _decoder.decode(named)
    return RemovedTree(gone.root_run_id, int(last), gone.run_ids, gone.is_cut)


def _text(*said: object) -> str:
    return msgspec.json.encode(said).decode()


_decoder: Final = msgspec.json.Decoder(_Gone)


_HEARD: Final = (
    "SELECT CASE WHEN bool_and(format >= ?1) THEN min(coalesce(told, 0)) "
    f"WHEN count(*) = 0 THEN {LAST} ELSE 0 END FROM worker WHERE live AND id <> ?2"
)
_NOTE: Final = f"""
INSERT INTO note (key, value) SELECT '{_GONE}' || lpad(({NEWEST} + 1)::text, {_DIGITS}, '0'),
  coalesce(max(last.position), 0)::text || ' ' || ?1::text
FROM unnest(?2::bigint[]) AS gone (run), LATERAL (
  SELECT position FROM event WHERE event.run = gone.run ORDER BY position DESC LIMIT 1
) AS last
"""
_NOTE_OF_TURNS: Final = f"""
INSERT INTO note (key, value)
SELECT '{_GONE}' || lpad(({NEWEST} + 1)::text, {_DIGITS}, '0'), ?1::text
"""
_REMOVE: Final = (
    "DELETE FROM event WHERE run = ANY(?::bigint[]) AND lane <> 'hub'",
    "DELETE FROM waiting WHERE run = ANY(?::bigint[])",
    "DELETE FROM accepted WHERE run = ANY(?::bigint[])",
    "DELETE FROM snapshot WHERE run = ANY(?::bigint[])",
    "DELETE FROM run WHERE number = ANY(?::bigint[])",
)
_DROP_SECRETS: Final = (
    "DELETE FROM secret USING unnest(?::text[]) AS gone (run_id) "
    "WHERE key >= gone.run_id || '/' AND key < gone.run_id || '0'"
)
_DROP_REQUESTS: Final = (
    f"DELETE FROM note USING unnest(?::text[]) AS gone (run_id) WHERE {IS_REQUEST} "
    "AND value >= gone.run_id || ' ' AND value < gone.run_id || '!'"
)
_DROP_NOTES: Final = "DELETE FROM note WHERE key = ANY(?::text[])"
_FORGET: Final = """
DELETE FROM address WHERE number = ANY(?::bigint[])
  AND NOT EXISTS (SELECT 1 FROM event WHERE event.run = address.number)
  AND NOT EXISTS (SELECT 1 FROM event WHERE event.root = address.number AND lane = 'hub')
  AND NOT EXISTS (
    SELECT 1 FROM run WHERE root_run_id = address.run_id AND parent_run_id IS NOT NULL
  )
"""
"""What the hub's own lane says of a run needs its address."""
_FORGET_OLD: Final = (
    f"DELETE FROM note WHERE {_RANGE} AND key <= '{_GONE}' || "
    f"lpad(greatest({NEWEST} - {KEPT}, 0)::text, {_DIGITS}, '0')"
)
_SELECT: Final = (
    f"SELECT key, value FROM note WHERE key > ? AND key < '{behind(_GONE)}' ORDER BY key"
)
