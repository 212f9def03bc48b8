"""Whom an address is meant for: the address book of the store."""

from collections.abc import Sequence
from typing import Final, assert_never

from hubbub.hub.events.descriptors import (
    Descriptor,
    descriptor_of_key,
    encode_descriptor,
    is_identity,
    read_descriptor,
)
from hubbub.hub.store.journal import Addressing, NewRun
from hubbub.runtime.stores.sql.connection import SqlConnection

__all__ = ["HAS_KEY", "candidates", "found_for", "is_key_free"]

HAS_KEY: Final = "session_key <> '' AND inbox = 'open' AND kind NOT IN ('cron', 'heartbeat')"
"""Which runs are found by their session key (``is_addressed``)."""


def found_for(db: SqlConnection, new: NewRun) -> str | None:
    """The open run that an opening is for, by its key or its descriptor."""
    found: Sequence[str] = ()
    if new.session_key and not new.by_descriptor:
        found = _keyed(db, new.session_key)
    if not found and new.descriptor is not None:
        found = _standing_for(db, new.descriptor)
    return found[0] if found else None


def is_key_free(db: SqlConnection, session_key: str) -> bool:
    """Whether no open run has the key."""
    return not _keyed(db, session_key)


def candidates(db: SqlConnection, to: str, by: Addressing) -> Sequence[str]:
    """The runs that an address is meant for (see ``Addressing``)."""
    match by:
        case "run":
            return (to,)
        case "every":
            return _ids(db, "status <> 'ended' ORDER BY born")
        case "name":
            return _ids(db, "agent = ? AND status <> 'ended' ORDER BY born", to)
        case "key":
            return _keyed(db, to) or _standing_for(db, descriptor_of_key(to))
        case "descriptor":
            return _standing_for(db, read_descriptor(to))
        case "only":
            return _ids(db, f"kind = 'user' AND inbox = 'open' AND {_IS_HELD} ORDER BY born") or (
                _ids(db, "status <> 'ended' AND parent_run_id IS NULL ORDER BY born")
            )
        case "newest":
            return _ids(
                db,
                "kind = ? AND kind IN ('user', 'heartbeat') AND inbox = 'open' "
                f"AND {_IS_HELD} ORDER BY recent DESC LIMIT 1",
                to,
            )
        case "below":
            return [run_id for (run_id,) in db.execute(_SELECT_BELOW, (to,))]
        case _:
            assert_never(by)


def _ids(db: SqlConnection, where: str, *values: str) -> Sequence[str]:
    return [run_id for (run_id,) in db.execute(f"SELECT run_id FROM run WHERE {where}", values)]


def _keyed(db: SqlConnection, session_key: str) -> Sequence[str]:
    return _ids(db, f"session_key = ? AND {HAS_KEY}", session_key)


def _standing_for(db: SqlConnection, descriptor: Descriptor) -> Sequence[str]:
    """The open run of a descriptor; the last one heard from, where an older program made several.

    What is stored was written by the same encoder, so equal texts are equal descriptors.
    """
    if not is_identity(descriptor):
        return ()
    text = bytes(encode_descriptor(descriptor)).decode()
    return _ids(
        db,
        "descriptor = ? AND kind IN ('user', 'cron', 'heartbeat') AND inbox = 'open' "
        "ORDER BY recent DESC, born DESC LIMIT 1",
        text,
    )


_IS_HELD: Final = (
    'NOT (kind = \'user\' AND descriptor = \'{"type":"user","connector":"local",'
    '"userId":"local","channelId":"\' || run_id || \'"}\')'
)
"""Not one that an older program gave a descriptor of its own (``recency_of``)."""

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
    SELECT run_id FROM run WHERE number = (SELECT number FROM address WHERE run_id = ?1)
    UNION
    SELECT tree.run_id FROM tree JOIN below ON tree.parent_run_id = below.run_id
  )
SELECT run_id FROM tree
WHERE run_id <> ?1 AND run_id IN (SELECT run_id FROM below)
  AND status <> 'ended' AND inbox <> 'terminated'
ORDER BY born
"""
