"""``PostgresStoreReader``: ``StoreReader`` of a schema, beside a runtime at work or without one."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

from hubbub.hub.errors import OperatorError, StoreFailed
from hubbub.hub.store.reader import Backup, ProcessRow, StoreUnreadable
from hubbub.runtime.stores.postgres.lease import is_held
from hubbub.runtime.stores.postgres.migrations import check_format
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.connection import POSTGRES, PostgresConnection
from hubbub.runtime.stores.postgres.server.faults import postgres_failure
from hubbub.runtime.stores.sql.store_reader import PAGE, SqlStoreReader
from hubbub.runtime.stores.sql.tables import Table

__all__ = ["PostgresStoreReader", "open_postgres_reader"]


class PostgresStoreReader(SqlStoreReader):
    """Reads by a connection of its own, which it closes.  See ``StoreReader``."""

    _db: PostgresConnection

    def __init__(self, db: PostgresConnection) -> None:
        super().__init__(db, POSTGRES)

    @property
    def place(self) -> str:
        return self._db.address.place

    def _reading(self) -> AbstractContextManager[None]:
        return _reading(self.place)

    def _each(self, select: str, values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        with self._reading():
            cursor = self._db.many(select, values)
        while True:
            with self._reading():
                rows = cursor.fetchmany(PAGE)
            if not rows:
                break
            yield from rows
        with self._reading():
            cursor.close()  # type: ignore[attr-defined]

    def content(self, digest: str) -> bytes:
        found = self._all("SELECT content FROM blob WHERE digest = ?", (digest,))
        if not found:
            raise FileNotFoundError(self.place_of(digest))
        return bytes(found[0][0])

    def place_of(self, digest: str) -> str:
        return f"{self.place}: blob {digest}"

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Every content by its digest, one at a time.  Raises ``StoreFailed`` for a changed one."""
        for page in self.pages(_DIGESTS):
            for (digest,) in page:
                content = self.content(digest)
                if hashlib.sha256(content).hexdigest() != digest:
                    raise StoreFailed(self.place_of(digest), "it has changed; see hubbub fsck")
                yield digest, content

    def sealed_secrets(self) -> list[tuple[str, bytes]]:
        """Values of variables by key, as they are kept: encrypted."""
        found = self._all("SELECT key, value FROM secret ORDER BY key")
        return [(key, bytes(value)) for key, value in found]

    def is_at_work(self) -> bool:
        with self._reading():
            return is_held(self._db)

    def processes(self) -> Sequence[ProcessRow]:
        ((has_definitions,),) = self._all("SELECT to_regclass('definition') IS NOT NULL")
        definitions = _DEFINITIONS if has_definitions else "NULL"
        return [_process_row(row) for row in self._all(_PROCESSES.format(definitions))]

    def free_trees(self) -> Mapping[str, int]:
        return dict(self._all(_FREE))

    def faults(self, *, thorough: bool = False) -> Iterator[str]:
        ((tip, live, parked, waiting),) = self._all(
            "SELECT position, live, parked, waiting FROM head WHERE log = 0"
        )
        ((last,),) = self._all("SELECT coalesce(max(position), 0) FROM event")
        if last > tip:
            yield f"head: the last position is {tip}, but there is an event at {last}"
        counted = self._all(_COUNT)[0]
        if counted != (live, parked, waiting):
            yield f"head: it counts {(live, parked, waiting)} runs and items, there are {counted}"
        for name, *_ in self._all(_INVALID, (self._db.address.schema,)):
            yield f"index {name}: it is not valid; REINDEX it"
        if thorough:
            for run_id, *_ in self._all(_UNKNOWN):
                yield f"run: {run_id} is not the run that its number stands for"

    def back_up(self, destination: Path, tell: Callable[[str], object] | None = None) -> Backup:
        raise OperatorError(
            f"{self.place}: a PostgreSQL store is copied by PostgreSQL's own means: "
            f"pg_dump --schema={self._db.address.schema}, or the server's base backups; secrets "
            "stay encrypted in it, so keep their key too"
        )


@contextmanager
def _reading(place: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        words = postgres_failure(place, error).removeprefix(f"{place}: ")
        what, _, remedy = words.rpartition("; ")
        raise StoreUnreadable(place, what, remedy) from error


def open_postgres_reader(address: PostgresAddress) -> PostgresStoreReader:
    """A reader of the store at an address; close it.

    Raises ``OperatorError`` where there is no store, or where it cannot be read.
    """
    db = PostgresConnection(address, "hubbub:reader", silence=None)
    place = address.place
    try:
        try:
            db.connect()
            if not check_format(db):
                raise OperatorError(
                    f"{place}: no store in the schema {address.schema!r}; open a runtime on it "
                    "first, or give the right schema (?schema=NAME)"
                )
        except psycopg.Error as error:
            raise OperatorError(postgres_failure(place, error)) from None
    except BaseException:
        db.close()
        raise
    return PostgresStoreReader(db)


def _process_row(row: tuple[Any, ...]) -> ProcessRow:
    name, kind, drains, capacity, agents, told, since, left, definitions, trees, running = row
    return ProcessRow(
        name=name, is_worker=kind == "worker", drains=drains, capacity=capacity, since=since,
        agents=None if agents is None else tuple(agents), left=left, trees=trees, running=running,
        told=told, definitions=definitions or {},
    )  # fmt: skip


_PROCESSES: Final = (
    "SELECT w.name, w.kind, w.drains, w.capacity, w.agents, w.told, "
    "(extract(epoch FROM w.since) * 1000000)::bigint, "
    "greatest(extract(epoch FROM w.expires - clock_timestamp()), 0)::float, {}, "
    "(SELECT count(*) FROM tree WHERE owner = w.id), "
    "(SELECT count(*) FROM tree JOIN run AS root ON root.number = tree.root "
    "JOIN run ON run.root_run_id = root.run_id AND run.status = 'active' "
    "WHERE tree.owner = w.id) FROM worker AS w WHERE w.live ORDER BY w.id"
)
_DEFINITIONS: Final = (
    "(SELECT jsonb_object_agg(agent, digest) FROM definition WHERE definition.worker = w.id)"
)
_FREE: Final = (
    "SELECT want, count(*) FROM tree WHERE owner IS NULL "
    "OR owner NOT IN (SELECT id FROM worker WHERE live) GROUP BY want ORDER BY want"
)
_DIGESTS = Table("blob", ("digest",), ("digest",))
_COUNT = (
    "SELECT count(*), count(*) FILTER (WHERE status IN ('parked', 'waiting')), "
    "coalesce(sum(waiting), 0)::bigint FROM run WHERE status <> 'ended'"
)
_INVALID = (
    "SELECT i.indexrelid::regclass::text FROM pg_index AS i JOIN pg_class AS c "
    "ON c.oid = i.indexrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace "
    "WHERE n.nspname = ? AND NOT i.indisvalid"
)
_UNKNOWN = (
    "SELECT run.run_id FROM run LEFT JOIN address USING (number) "
    "WHERE address.run_id IS DISTINCT FROM run.run_id"
)
