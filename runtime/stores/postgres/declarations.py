"""What the workers of a store have said of their agents: the rows of ``definition``, and notes.

    declare   joined, or said later ─► whoever else is at work and means another one ─► refused,
              unless it replaces                                             ─► its own rows
    publish   joined, or said later ─► its own notes ─► out of those of others goes what nobody
                                                        needs any more

Each worker that joins does so behind the last one (an advisory lock, for one short transaction):
of two at the same moment the second one sees what the first one has declared, and what it offers.
"""

from collections.abc import Mapping
from typing import Final

import psycopg

from hubbub.hub.store.declared import Declared, OtherDefinition
from hubbub.hub.store.left_notes import AGENTS, ASKED, spent, tidied
from hubbub.runtime.stores.postgres.schema import LOCK
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.sql.rows import PUT_NOTE

__all__ = ["IS_GONE", "declare", "join_in_turn", "publish"]

IS_GONE: Final = (
    "NOT EXISTS (SELECT 1 FROM pg_stat_activity AS a "
    "WHERE a.pid = worker.pid AND coalesce(a.backend_start, worker.connected) = worker.connected)"
)
"""Whether the connection is gone that a row of ``worker`` was written by."""


def join_in_turn(db: PostgresConnection) -> None:
    """Wait until nobody else joins or declares anything; others wait until the transaction is
    over."""
    db.execute(f"SELECT pg_advisory_xact_lock({LOCK.format(2)})")


def declare(
    db: PostgresConnection, declared: Declared, worker: int, ttl: float, *, is_again: bool = False
) -> None:
    """Put what a worker declares in the place of what it has declared; others wait until the
    transaction is over, which sees what is committed meanwhile.

    ``is_again``: it comes back, so those that were to replace what it has do not exclude it.
    Raises ``OtherDefinition``; and ``LockNotAvailable``, which passes, where it is not known yet
    whether the other one is still there.
    """
    join_in_turn(db)
    db.execute(_TIDY, (worker,))
    agents, digests = list(declared.definitions), list(declared.definitions.values())
    if not declared.replaces:
        values = (agents, digests, worker, ttl, is_again)
        if (found := db.execute(_OTHER, values).fetchone()) is not None:
            agent, name, is_gone = found
            if is_gone:  # Its lease is over soon, unless it comes back.
                raise psycopg.errors.LockNotAvailable(
                    f"the worker {name!r} may be gone, and had another definition of the agent "
                    f"{agent!r}: its lease is to be over first"
                )
            raise OtherDefinition(db.address.place, agent, name)
    db.execute(_PUT, (agents, digests, worker, declared.replaces))


def publish(db: PostgresConnection, own: Mapping[str, str], worker: int) -> None:
    """Put a worker's ``own`` notes there, and take out of the others what nobody needs any more.

    What others offer is what their rows say, as this ``worker``'s does by then.
    """
    join_in_turn(db)
    db.executemany(PUT_NOTE, list(own.items()))
    offers = [agents for (agents,) in db.execute(_OFFERED, (worker,)).fetchall()]
    needed: set[str] | None = None
    if None not in offers:  # Who offers anything needs all that there is.
        wanted = {agent for (agent,) in db.execute(_WANTED).fetchall()}
        needed = wanted.union(*offers)
    notes = dict(db.execute(_NOTES).fetchall())
    changed = tidied(notes, own, needed)
    db.executemany(PUT_NOTE, list(changed.items()))
    # A prompt may be noted there meanwhile.
    db.execute(_DELETE_EMPTY, ([*changed, *spent(notes)],))


_TIDY: Final = (
    "DELETE FROM definition WHERE worker = ? "
    "OR NOT EXISTS (SELECT 1 FROM worker WHERE worker.id = definition.worker AND live)"
)
_OTHER: Final = (
    "SELECT definition.agent, worker.name, "
    f"{IS_GONE} AS is_gone FROM definition JOIN worker ON worker.id = definition.worker "
    "JOIN unnest(?1::text[], ?2::text[]) AS own (agent, digest) USING (agent) "
    "WHERE worker.live AND worker.id <> ?3 AND definition.digest <> own.digest "
    "AND (worker.expires > clock_timestamp() OR clock_timestamp() < "
    "pg_postmaster_start_time() + make_interval(secs => ?4::float8)) "
    "AND NOT (?5 AND definition.replaces) ORDER BY is_gone, definition.agent, worker.id LIMIT 1"
)
"""After a restart of the server, the others have had no time yet to renew their leases."""
_PUT: Final = (
    "INSERT INTO definition (agent, worker, digest, replaces) "
    "SELECT own.agent, ?3, own.digest, ?4 FROM unnest(?1::text[], ?2::text[]) AS own "
    "(agent, digest)"
)
_OFFERED: Final = "SELECT agents FROM worker WHERE live AND kind = 'worker' AND id <> ?"
_WANTED: Final = "SELECT DISTINCT want FROM tree"
_NOTES: Final = (
    f"SELECT key, value FROM note WHERE key = '{AGENTS}' OR starts_with(key, '{AGENTS}:') "
    f"OR (starts_with(key, '{ASKED}:') AND value = '')"
)
_DELETE_EMPTY: Final = "DELETE FROM note WHERE key = ANY(?) AND value = ''"
