"""Whom an address is meant for: the address book of the store (H-08, P-05, P-17)."""

import sqlite3
from collections.abc import Sequence
from typing import Final, assert_never

from hubbub.hub.journal import Addressing

__all__ = ["candidates"]


def candidates(db: sqlite3.Connection, to: str, by: Addressing) -> Sequence[str]:
    """The runs that an address is meant for (see ``Addressing``)."""
    match by:
        case "run":
            return (to,)
        case "every":
            return _ids(db, "status <> 'ended' ORDER BY born")
        case "name":
            return _ids(db, "agent = ? AND status <> 'ended' ORDER BY born", to)
        case "key":
            return _ids(db, "session_key <> '' AND session_key = ? AND inbox = 'open'", to)
        case "only":
            return _ids(
                db, "session_key <> '' AND inbox = 'open' AND kind IN ('', 'user') ORDER BY born"
            ) or _ids(db, "status <> 'ended' AND parent_run_id IS NULL ORDER BY born")
        case "newest":
            return _ids(
                db,
                "kind = ? AND kind IN ('user', 'heartbeat') AND inbox = 'open' "
                "ORDER BY recent DESC LIMIT 1",
                to,
            )
        case "below":
            return [run_id for (run_id,) in db.execute(_SELECT_BELOW, (to,))]
        case _:
            assert_never(by)


def _ids(db: sqlite3.Connection, where: str, *values: str) -> Sequence[str]:
    return [run_id for (run_id,) in db.execute(f"SELECT run_id FROM run WHERE {where}", values)]


_SELECT_BELOW: Final = """
WITH RECURSIVE
  tree AS MATERIALIZED (
    SELECT run_id, parent_run_id, status, inbox, born FROM run
    WHERE parent_run_id IS NOT NULL AND root_run_id = (
      SELECT root_run_id FROM run
      WHERE number = (SELECT number FROM address WHERE run_id = ?1)
    )
  ),
  below (run_id) AS (
    VALUES (?1)
    UNION
    SELECT tree.run_id FROM tree JOIN below ON tree.parent_run_id = below.run_id
  )
SELECT run_id FROM tree
WHERE run_id <> ?1 AND run_id IN below AND status <> 'ended' AND inbox <> 'terminated'
ORDER BY born
"""
