"""``PostgresConnection``: a connection that speaks as ``SqlConnection`` does, and is renewable."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.attentive import (
    SILENCE,
    AttentiveConnection,
    ServerSilent,
)
from hubbub.runtime.stores.sql.connection import SqlCursor, SqlDialect

__all__ = ["POSTGRES", "PostgresConnection"]

POSTGRES: Final = SqlDialect(
    begin_reading="BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    body="convert_to(body, 'UTF8')",
    body_of_e="convert_to(e.body, 'UTF8')",
    event_of_run="event",
    event_of_end="event",
    # The length of a body is known without reading it.
    page=(
        "SELECT position, run, lane, type, crc, body FROM ("
        "SELECT *, sum(octet_length(body)) OVER (ORDER BY position) - octet_length(body) AS before "
        "FROM (SELECT * FROM event WHERE {where} ORDER BY position LIMIT {rows}) AS first"
        ") AS counted WHERE before < {size} ORDER BY position"
    ),
)

LOCK_WAIT: Final = "2s"
"""How long a statement waits for a lock before it is tried again as a whole."""

_IN_TRANSACTION: Final = frozenset(
    (TransactionStatus.INTRANS, TransactionStatus.INERROR, TransactionStatus.ACTIVE)
)


class PostgresConnection:
    """A connection to the schema of a store; ``prepare`` is called with each new one.

    It is lost when the server says nothing for ``silence`` seconds while it is asked (``None``:
    it may take as long as it likes).  Its errors are ``psycopg.Error``.
    """

    def __init__(
        self,
        address: PostgresAddress,
        name: str,
        prepare: Callable[["PostgresConnection"], None] | None = None,
        *,
        silence: float | None = SILENCE,
    ) -> None:
        self.address = address
        self._name = name
        self._prepare = prepare
        self._silence = silence
        self._db: AttentiveConnection | None = None
        self._slow = 0
        """How many handshakes took too long since the last one that did not."""
        self.pid = 0
        """The server's process for it."""

    def connect(self) -> None:
        """Connect, or connect anew: to a primary, then.

        Raises ``psycopg.Error``, and what ``prepare`` raises.
        """
        self.close()
        try:
            self._db = self.address.connect(self._name, self._slow)
            self._greet(self._db)
        except BaseException as error:
            if isinstance(error, psycopg.errors.ConnectionTimeout | ServerSilent):
                self._slow += 1
            self.close()
            raise
        self._slow = 0

    def _greet(self, db: AttentiveConnection) -> None:
        """Make a connection what it is to be."""
        db.silence = self.address.handshake(self._slow)
        # A role, a database or the environment may set each of these otherwise.  With a limit on
        # statements, a server would cancel a commit's wait for its standby.
        db.execute(
            "SET client_encoding = 'UTF8'; SET array_nulls = on; "
            f"SET search_path TO \"{self.address.schema}\"; SET lock_timeout = '{LOCK_WAIT}'; "
            "SET statement_timeout = 0; SET tcp_keepalives_idle = 5; "
            "SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3"
        )
        if self.pid and db.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
            # What is written here was a primary's: this one may be about to become it.
            raise psycopg.OperationalError("the server is in recovery, and takes no writes yet")
        db.silence = self._silence
        self.pid = db.info.backend_pid
        if self._prepare is not None:
            self._prepare(self)

    def call_itself(self, name: str) -> None:
        """Be known to the server under another name from now on, and by each new connection."""
        if name != self._name:
            self._name = name
            if not self.is_lost:
                self.execute("SELECT set_config('application_name', ?, false)", (name,))

    def wait_for_locks(self, seconds: float) -> None:
        """Have no statement wait longer for a lock; nor for half of the silence after which the
        connection is taken to be lost."""
        most = seconds if self._silence is None else self._silence / 2
        self.execute(f"SET lock_timeout = {1000 * min(seconds, most):.0f}")

    @property
    def is_lost(self) -> bool:
        """Whether there is no connection, as far as is known."""
        return self._db is None or self._db.closed

    @property
    def in_transaction(self) -> bool:
        return self._db is not None and self._db.info.transaction_status in _IN_TRANSACTION

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> SqlCursor:
        db = self._connected
        cursor = db.execute(_translated(sql), values or None)
        db.check_replicated()
        return cursor

    def executemany(self, sql: str, values: Iterable[Sequence[Any]], /) -> None:
        # Not psycopg's: where the connection is lost, that writes to the program's log.
        with self.pipeline():
            for each in values:
                self.execute(sql, each)

    def many(self, sql: str, values: Sequence[Any]) -> SqlCursor:
        """The same as ``execute``, where the rows found are too many for memory."""
        is_apart = not self.in_transaction
        cursor = psycopg.RawServerCursor(self._connected, "hubbub", withhold=is_apart)
        return cursor.execute(_translated(sql), values or None)

    def copy_in(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Have the server take in rows in bulk: ``COPY … FROM STDIN``."""
        with self._connected.cursor().copy(sql.encode()) as copy:
            for row in rows:
                copy.write_row(row)

    @contextmanager
    def pipeline(self) -> Iterator[None]:
        """What is executed inside goes in one message; what it finds is there at its end.

        The connection is lost where it fails: which statements the server has prepared is unknown,
        and another server may be the one that takes what is written.
        """
        db = self._connected
        failure: psycopg.Error | None = None
        try:
            with db.pipeline():
                try:
                    yield
                except psycopg.Error as error:  # Which psycopg would write to the program's log.
                    failure = error
        except psycopg.Error as error:
            failure = failure or error
        if failure is not None:
            self.close()
            raise failure
        db.check_replicated()

    def listen(self, channel: str, heard: Callable[[str], None]) -> None:
        """Have ``heard`` called with what is notified by others, whenever it is noticed."""
        db = self._connected
        own = self.pid
        db.add_notify_handler(lambda each: None if each.pid == own else heard(each.payload))
        db.execute(f'LISTEN "{channel}"')

    @property
    def descriptor(self) -> int | None:
        """What can be waited for, if there is a connection."""
        return None if self.is_lost else self._connected.fileno()

    def take_notifications(self) -> None:
        """Notice what has been notified while nothing was executed."""
        raw = self._connected.pgconn
        raw.consume_input()
        while (each := raw.notifies()) is not None:
            if raw.notify_handler is not None:
                raw.notify_handler(each)

    def roll_back(self) -> None:
        """End a transaction that came to nothing, as far as there still is one."""
        if not self.is_lost and self.in_transaction:
            with suppress(psycopg.Error):
                self.execute("ROLLBACK")

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(psycopg.Error):
                db.close()

    @property
    def _connected(self) -> AttentiveConnection:
        if self._db is None:
            raise psycopg.OperationalError("the connection is closed")
        return self._db


@lru_cache(512)
def _translated(sql: str) -> bytes:
    """``?`` and ``?1`` as PostgreSQL has them; what stands in quotes is left alone."""
    count = 0

    def number(match: re.Match[str]) -> str:
        nonlocal count
        if match[0].startswith("'"):
            return match[0]
        count += 1
        return f"${match[1] or count}"

    return re.sub(r"'[^']*'|\?(\d*)", number, sql).encode()
