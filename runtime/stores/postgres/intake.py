"""``PostgresIntake``: ``RunIntake`` of a schema on which no runtime is at work."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import psycopg

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.postgres.lease import take_alone
from hubbub.runtime.stores.postgres.migrations import let_bases_in
from hubbub.runtime.stores.postgres.schema import check_server, drop_schema, make_schema
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.server.faults import postgres_failure
from hubbub.runtime.stores.postgres.store_reader import PostgresStoreReader
from hubbub.runtime.stores.postgres.writer import PUT_CONTENT
from hubbub.runtime.stores.sql.intake import SqlIntake

__all__ = ["PostgresIntake", "derive_rows", "open_postgres_intake"]


class PostgresIntake(SqlIntake):
    """Puts runs in by the connection that holds the store's lock.  See ``RunIntake``."""

    _db: PostgresConnection

    def __init__(self, db: PostgresConnection) -> None:
        super().__init__(db, PostgresStoreReader(db))

    def _begin_writing(self) -> None:
        self._db.execute("BEGIN")

    def _commit(self) -> None:
        derive_rows(self._db, self._tip)
        if self._has_bases:
            let_bases_in(self._db)
        self._db.execute("COMMIT")

    def _failure_of(self, error: BaseException) -> OperatorError | None:
        if not isinstance(error, psycopg.Error):
            return None
        return OperatorError(postgres_failure(self._db.address.place, error))

    def _undo(self) -> None:
        """Nothing: contents are in the same transaction."""

    def put_content(self, digest: str, content: bytes) -> None:
        self._db.execute(PUT_CONTENT, (digest, bytes(content)))

    def contents(self) -> Iterator[str]:
        digest, select = "", "SELECT digest FROM blob WHERE digest > ? ORDER BY digest LIMIT 1000"
        while rows := self._db.execute(select, (digest,)).fetchall():
            yield from (digest for (digest,) in rows)
            (digest,) = rows[-1]

    def drop_contents(self, digests: Iterable[str]) -> int:
        with self.all_or_nothing():
            delete = "DELETE FROM blob WHERE digest = ?"
            return sum(self._db.execute(delete, (digest,)).rowcount for digest in digests)

    def settle(self) -> None:
        """Nothing: the server sees to its log."""


def derive_rows(db: PostgresConnection, tip: int) -> None:
    """Bring up to date what the store keeps of its runs in other rows; its positions go to ``tip``
    at least."""
    db.execute(_PUT_HEAD, (tip,))
    db.execute(_DROP_TREES)
    db.execute(_PUT_TREES)


@contextmanager
def open_postgres_intake(
    address: PostgresAddress, new_name: str, command: str
) -> Iterator[PostgresIntake]:
    """What takes runs into the store at an address, whose schema is made if there is none.

    ``command`` is the command that does so, ``new_name`` is what a new store is called.  A schema
    that was made for it goes again if what is inside raises.  Raises ``OperatorError`` where
    nothing can be written.
    """
    what = command.rpartition(" ")[2]
    db = PostgresConnection(address, f"hubbub:{address.schema}:{what}", silence=None)
    try:
        db.connect()
        check_server(db)
        is_new = make_schema(db, new_name)
        take_alone(db)
        try:
            yield PostgresIntake(db)
        except BaseException:
            if is_new:
                db.roll_back()
                drop_schema(db)
            raise
    except psycopg.Error as error:
        raise OperatorError(postgres_failure(address.place, error)) from None
    finally:
        db.close()


_PUT_HEAD = """
UPDATE head SET position = greatest(position, ?), live = now.live, parked = now.parked,
  waiting = now.waiting, version = head.version + 1,
  recent = greatest(head.recent, now.recent)
FROM (
  SELECT count(*) FILTER (WHERE status <> 'ended') AS live,
    count(*) FILTER (WHERE status IN ('parked', 'waiting')) AS parked,
    coalesce(sum(waiting) FILTER (WHERE status <> 'ended'), 0) AS waiting,
    coalesce(max(recent), 0) AS recent
  FROM run
) AS now WHERE log = 0
"""
_DROP_TREES = """
DELETE FROM tree WHERE NOT EXISTS (
  SELECT 1 FROM address AS top JOIN run ON run.root_run_id = top.run_id
  WHERE top.number = tree.root AND run.status <> 'ended'
)
"""
"""Of trees that live no more: what has ended took the place of what had not."""
_PUT_TREES = """
INSERT INTO tree (root, want, live)
  SELECT top.number, coalesce(root.agent, oldest.agent), live.count
  FROM (SELECT root_run_id, count(*) FROM run WHERE status <> 'ended' GROUP BY 1) AS live
    JOIN address AS top ON top.run_id = live.root_run_id
    LEFT JOIN run AS root USING (number)
    LEFT JOIN LATERAL (
      SELECT agent FROM run WHERE root.number IS NULL AND parent_run_id IS NOT NULL
        AND root_run_id = live.root_run_id ORDER BY born LIMIT 1
    ) AS oldest ON true
ON CONFLICT (root) DO UPDATE SET live = excluded.live, want = excluded.want
"""
"""Of runs that came without their root, the oldest is what a worker has to know."""
