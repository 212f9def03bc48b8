"""The two ends of a copy of a whole store, where they are in a schema of a PostgreSQL database.

    the tables, which say that they are no store yet   committed first: others are refused
    everything else                                    one transaction: all of it, or none

So what a process that was killed has left is empty, and the next migration makes it anew.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.postgres.intake import derive_rows
from hubbub.runtime.stores.postgres.lease import lock_alone
from hubbub.runtime.stores.postgres.migrations import (
    UNFINISHED,
    check_format,
    formats,
    let_bases_in,
)
from hubbub.runtime.stores.postgres.schema import (
    MADE,
    analyze_tables,
    check_server,
    drop_schema,
    drop_tables,
    make_tables,
)
from hubbub.runtime.stores.postgres.sealing import Seal
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.server.faults import is_of_contents, postgres_failure
from hubbub.runtime.stores.postgres.store_reader import PostgresStoreReader
from hubbub.runtime.stores.postgres.writer import PUT_CONTENT
from hubbub.runtime.stores.sql.in_use import StoreInUse
from hubbub.runtime.stores.sql.tables import Table
from hubbub.runtime.stores.sql.whole_copy import (
    SqlCopy,
    SqlOriginal,
    target_in_use,
    unfinished_copy,
)

__all__ = [
    "PostgresCopy", "PostgresOriginal", "identity_in", "open_postgres_copy",
    "open_postgres_original",
]  # fmt: skip

_IDENTITY: Final = (
    "SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "FROM pg_control_system()"
)

UNBOUNDED: Final = (
    "SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN ('statement_timeout', "
    "'idle_in_transaction_session_timeout', 'transaction_timeout')"
)
"""A copy takes as long as it takes."""


def identity_in(address: PostgresAddress) -> tuple[str, ...]:
    """What a schema is, whatever the server is called: cluster, database, schema.

    Raises ``OperatorError`` where it cannot be asked.
    """
    db = PostgresConnection(address, f"hubbub:{address.schema}:migrate")
    try:
        db.connect()
        cluster, database = db.execute(_IDENTITY).fetchone()
    except psycopg.Error as error:
        raise OperatorError(postgres_failure(address.place, error)) from None
    finally:
        db.close()
    return (str(cluster), str(database), address.schema)


class PostgresOriginal(SqlOriginal):
    """A store in a schema that is copied."""

    def __init__(self, reader: PostgresStoreReader, environ: Mapping[str, str]) -> None:
        self.reader: PostgresStoreReader = reader
        self._environ = environ

    def secrets(self) -> Iterator[tuple[str, str]]:
        found = self.reader.sealed_secrets()
        if found:
            seal = Seal(self.place, self._environ)
            yield from ((key, seal.open(key, value)) for key, value in found)

    def contents(self) -> Iterator[tuple[str, bytes]]:
        return self.reader.contents()


@contextmanager
def open_postgres_original(
    address: PostgresAddress, environ: Mapping[str, str] = os.environ
) -> Iterator[PostgresOriginal]:
    """The store in a schema, on which nobody is at work as long as one is inside.

    Raises ``OperatorError`` where there is none, where it is of another format, or at work.
    """
    db = PostgresConnection(address, f"hubbub:{address.schema}:migrate", silence=None)
    try:
        db.connect()
        if not check_format(db, exactly=True):
            raise OperatorError(f"{address.place}: no store in the schema {address.schema!r}")
        _exclude_others(db)
        reader = PostgresStoreReader(db)
        with reader.one_moment():
            db.execute(UNBOUNDED)
            yield PostgresOriginal(reader, environ)
    except psycopg.Error as error:
        raise OperatorError(postgres_failure(address.place, error)) from None
    finally:
        db.close()


class PostgresCopy(SqlCopy):
    """A store in the making in a schema."""

    def __init__(self, db: PostgresConnection, name: str, environ: Mapping[str, str]) -> None:
        self._db = db
        self._name = name
        self._environ = environ
        self._seal: Seal | None = None
        self.reader: PostgresStoreReader = PostgresStoreReader(db)
        self.is_complete = False

    def _put_rows(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        self._db.copy_in(f"COPY {table.name} ({table.names}) FROM STDIN", rows)

    def _put_secret(self, key: str, value: str) -> None:
        if self._seal is None:
            self._seal = Seal(self.place, self._environ)
            self._db.execute(
                "INSERT INTO meta (key, value) VALUES ('proof', ?)", (self._seal.proof(),)
            )
        sealed = self._seal.close(key, value)
        self._db.execute(
            "INSERT INTO secret (key, value, version, writer) VALUES (?, ?, 0, 0)", (key, sealed)
        )

    def _put_content(self, digest: str, content: bytes) -> None:
        self._db.execute(PUT_CONTENT, (digest, content))

    def _settle(self) -> None:
        derive_rows(self._db, self.reader.tip)
        self._db.execute(_PUT_HUB_LANE)
        self._db.execute(
            "SELECT setval('run_number', max(number)) FROM address HAVING count(*) > 0"
        )
        analyze_tables(self._db)

    def _complete(self) -> None:
        execute = self._db.execute
        execute("DELETE FROM meta WHERE key = 'format'")
        self._db.executemany("INSERT INTO meta (key, value) VALUES (?, ?)", [*formats().items()])
        if self.reader.bases(limit=1):
            let_bases_in(self._db)
        execute("UPDATE meta SET key = 'store', value = ? WHERE key = 'source'", (self._name,))
        execute("COMMIT")
        self.is_complete = True

    def _failure_of(self, error: Exception, what: str) -> OperatorError | None:
        if not isinstance(error, psycopg.Error):
            return None
        if is_of_contents(error):
            words = " ".join(str(error).split("\n", 1)[0].split())
            return OperatorError(
                f"{self.place}: {what} cannot be kept there ({words}); keys and names end at about "
                "2,600 bytes in PostgreSQL, and hubbub fsck tells of damage"
            )
        return OperatorError(postgres_failure(self.place, error))


@contextmanager
def open_postgres_copy(
    address: PostgresAddress, source: str, environ: Mapping[str, str] = os.environ
) -> Iterator[PostgresCopy]:
    """A store in the making in a schema, which is to be a copy of the store called ``source``.

    Raises ``OperatorError`` where the schema holds anything else than an empty store, or an
    unfinished copy of the same one.  If it is not complete when what is inside ends, it goes.
    """
    db = PostgresConnection(address, f"hubbub:{address.schema}:migrate", silence=None)
    copy: PostgresCopy | None = None
    try:
        db.connect()
        check_server(db)
        _make(db, source)
        try:
            db.execute("BEGIN")
            db.execute(UNBOUNDED)
            copy = PostgresCopy(db, source, environ)
            yield copy
        finally:
            if copy is None or not copy.is_complete:
                _unmake(db)
    except psycopg.Error as error:
        raise OperatorError(postgres_failure(address.place, error)) from None
    finally:
        db.close()


def _exclude_others(db: PostgresConnection) -> None:
    """Be alone at work, until the connection is closed.  Raises ``StoreInUse``."""
    lock_alone(db, "somebody", "stop that, and migrate again")


def _make(db: PostgresConnection, source: str) -> None:
    """Make the tables, which say that they are no store yet, and take the lock of the store."""
    is_new, meta = not _has_tables(db), {"format": UNFINISHED, "source": source}
    if not is_new:
        _exclude_others(db)
        if (made := _check_free(db, source)) is not None:
            meta[MADE] = made
    db.execute("BEGIN")
    lock = "SELECT pg_advisory_xact_lock(hashtextextended('hubbub:' || ?::text, 0))"
    db.execute(lock, (db.address.schema,))
    if not is_new:
        drop_tables(db)
    elif _has_tables(db):
        raise StoreInUse(f"{db.address.place}: was just made by somebody else; migrate again")
    make_tables(db, meta)
    db.execute("COMMIT")
    if is_new:
        _exclude_others(db)


def _has_tables(db: PostgresConnection) -> bool:
    (found,) = db.execute("SELECT to_regclass(?)", (f'"{db.address.schema}".meta',)).fetchone()
    return found is not None


def _check_free(db: PostgresConnection, source: str) -> str | None:
    """What was noted when the schema was made.  Raises ``OperatorError`` unless it holds nothing
    that is to be kept."""
    place = db.address.place
    meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
    if meta.get("format") == UNFINISHED:
        if meta.get("source") != source:
            raise unfinished_copy(place, meta.get("source", "unknown"))
        return meta.get(MADE)
    check_format(db, exactly=True)  # Which refuses other tables than ours.
    reader = PostgresStoreReader(db)
    if any(map(reader.count, ("event", "run", "secret"))):
        raise target_in_use(place, is_copy=meta.get("store") == source)
    return meta.get(MADE)


def _unmake(db: PostgresConnection) -> None:
    """Leave nothing of a copy, where that can be: else it says that it is unfinished."""
    db.roll_back()
    with suppress(psycopg.Error):
        drop_schema(db)


_PUT_NUMBER: Final = "SELECT setval('run_number', max(number)) FROM address HAVING count(*) > 0"
_PUT_HUB_LANE: Final = """
UPDATE head SET hub_seq = last.seq, hub_crc = last.crc
FROM (SELECT seq, crc FROM event WHERE lane = 'hub' ORDER BY position DESC LIMIT 1) AS last
WHERE log = 0
"""
