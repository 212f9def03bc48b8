"""``PostgresStore``: the store in a schema of a PostgreSQL database.

* Durable means: committed by the server (``synchronous_commit``), which runs with ``fsync``.
  Many runs share a transaction (``runtime/stores/sql/queued.py``).
* One runtime at a time is at work on a store; others are refused, readers are not.
* A connection that is lost is not a failure but a wait: what is submitted meanwhile waits, for
  ``patience`` seconds, and what was being committed is asked for afterwards, so that nothing is
  written twice and nothing acknowledged is missing.
"""

import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import psycopg

from hubbub.hub.errors import OperatorError, StoreFailed
from hubbub.hub.logs import log
from hubbub.hub.masking import words_of
from hubbub.hub.ports import Ports, Worker
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.reader import StoreReader, StoreUnreadable
from hubbub.hub.values import check_grace
from hubbub.runtime.stores.postgres.address import PostgresAddress
from hubbub.runtime.stores.postgres.blobs import PostgresBlobs
from hubbub.runtime.stores.postgres.bus import PostgresBus
from hubbub.runtime.stores.postgres.connection import PostgresConnection
from hubbub.runtime.stores.postgres.faults import is_passing, postgres_failure
from hubbub.runtime.stores.postgres.schema import check_server, make_schema
from hubbub.runtime.stores.postgres.sealing import Seal
from hubbub.runtime.stores.postgres.store_reader import PostgresStoreReader, open_postgres_reader
from hubbub.runtime.stores.postgres.writer import PostgresWriter
from hubbub.runtime.stores.postgres.writer_lock import WriterLock
from hubbub.runtime.stores.sql.queued import QueuedStore
from hubbub.runtime.stores.sql.reader import READ_ERRORS
from hubbub.runtime.stores.sql.rows import PUT_NOTE
from hubbub.runtime.stores.sql.writer import Applied, Attempt, Operation

__all__ = ["PostgresStore"]

T = TypeVar("T")

PATIENCE: Final = 60.0

FIRST_WAIT: Final = 0.02
LONGEST_WAIT: Final = 1.0


class PostgresStore(QueuedStore):
    """A ``Journal`` in PostgreSQL, which also keeps values of variables and contents of files.

    ``address`` is ``"postgresql://USER:PASSWORD@HOST:PORT/DATABASE"``, with ``?schema=NAME`` for
    another schema than ``hubbub``; give it, or a store made of it, to ``Runtime(store=…)``.  The
    schema is made if it is missing.  Values of secrets are encrypted with the key in
    ``HUBBUB_SECRETS_KEY`` of ``environ`` (default: the process environment).

    ``patience``: seconds for which a lost server is waited for before the store fails.  Raises
    ``BadValue`` for an invalid address; ``open`` raises ``OperatorError`` where the server, the
    database, the role or the tables are not what a store needs, before anything is written, and
    ``StoreInUse`` where another runtime is at work.
    """

    def __init__(
        self,
        address: str,
        *,
        ports: Ports | None = None,
        patience: float = PATIENCE,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(ports)
        check_grace("patience", patience)
        self._address = PostgresAddress(address)
        self._environ = os.environ if environ is None else environ
        self._patience = patience
        self.blobs = PostgresBlobs(self._ask)
        self.bus = PostgresBus(self._address, self._ports.make_worker, self._ports.clock)
        self.name = "postgres"

    def __repr__(self) -> str:
        return f"PostgresStore({self._address.place!r})"

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Connect, make or check the tables, and begin to write."""
        if self._is_open:
            return
        self._workers = []
        self._work, self._begun = anyio.Event(), anyio.Event()
        place, schema = self._address.place, self._address.schema
        self._seal = Seal(place, self._environ)
        self._lock = WriterLock(PostgresConnection(self._address, f"hubbub:{schema}:writer"))
        self._reader_db = PostgresConnection(self._address, f"hubbub:{schema}:reader")
        try:
            self._writing = self._make_worker()
            self._reading = self._make_worker()
            number = self._ports.ids.number()
            writing = partial(self._open_writer, f"postgres-{number:012x}")
            await self._reach(self._writing, writing)
            await self._reach(self._reading, self._open_reader)
            await self._tasks.open()
            await self._begin()
        except psycopg.Error as error:
            await self._end()
            raise OperatorError(postgres_failure(place, error)) from None
        except BaseException:
            await self._end()
            raise
        self._is_open = True
        self.blobs.db = self._reader_db

    async def _reach(self, worker: Worker, begin: Callable[[], None]) -> None:
        """Begin with a connection.  A server that starts, or that was reached and is lost again, is
        waited for; one that is not there at all is not."""

        async def do() -> None:
            try:
                await worker.run(begin)
            except psycopg.Error as error:
                is_there = self._lock.db.pid or "the database system is" in str(error)
                if is_there or not is_passing(error):
                    raise
                raise OperatorError(postgres_failure(self._address.place, error)) from None

        await self._persist(do)

    def _open_writer(self, new_name: str) -> None:
        db = self._lock.db
        db.connect()
        check_server(db)
        make_schema(db, new_name)
        meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
        if "proof" in meta:
            self._seal.check(meta["proof"])
        self._lock.take(f"{socket.gethostname()}:{os.getpid()}")
        if "proof" not in meta:
            db.execute("INSERT INTO meta (key, value) VALUES ('proof', ?)", (self._seal.proof(),))
        self.name = meta["store"]
        db.executemany(PUT_NOTE, list(self._published.items()))
        self._writer = PostgresWriter(self._lock, self._seal)
        self.tip, self._depths = self._writer.tip, self._writer.depths
        log.info("store.opened", place=self._address.place, worker=self._lock.worker)

    def _open_reader(self) -> None:
        self._reader_db.connect()
        self._record = PostgresStoreReader(self._reader_db)
        self._reader = self._record.runs
        found = self._reader_db.execute("SELECT key, value FROM secret").fetchall()
        self.secrets.restore({key: self._seal.open(key, bytes(value)) for key, value in found})

    def _close_writer(self) -> None:
        try:
            self._lock.leave()
        except psycopg.Error:
            log.warning("store.left_without_word", place=self._address.place)
        finally:
            self._lock.db.close()

    def _close_reader(self) -> None:
        self._reader_db.close()

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    async def _put(self, batch: Sequence[Operation]) -> None:
        attempt = Attempt(batch)
        try:
            self._depths = (await self._write_surely(batch)).depths
            return
        except Exception as error:
            if not self._writer.is_of_contents(error):
                raise
            log.error("commit.unwritable", batch=len(batch), exc_info=error)
        # Something in the batch is no store's to keep: each is written by itself.
        attempt.undo()
        await self._writing.run(self._writer.forget)
        for operation in batch:
            try:
                self._depths = (await self._write_surely((operation,))).depths
            except Exception as error:
                if not self._writer.is_of_contents(error):
                    raise
                await self._writing.run(self._writer.forget)
                if isinstance(operation, Commit):
                    operation.forget_outcome()
                    operation.error = f"it cannot be written: {words_of(error)}"

    async def _write_surely(self, batch: Sequence[Operation]) -> Applied:
        """Write a batch, however often the server goes away meanwhile, within ``patience``."""
        attempt, is_again = Attempt(batch), False

        def write() -> Applied:
            nonlocal is_again
            if is_again:
                if (applied := self._writer.resume()) is not None:
                    return applied
                attempt.undo()
            is_again = True
            return self._writer.write(batch)

        return await self._persist(partial(self._writing.run, write))

    async def _persist(self, do: Callable[[], Awaitable[T]]) -> T:
        """Do something again and again while what is in its way passes, within ``patience``."""
        clock = self._ports.clock
        until: float | None = None
        wait = FIRST_WAIT
        while True:
            try:
                return await do()
            except (psycopg.Error, StoreUnreadable) as error:
                cause = error.__cause__ if isinstance(error, StoreUnreadable) else error
                if cause is None or not is_passing(cause):
                    raise
                if until is None:
                    until = clock.monotonic() + self._patience
                    words = postgres_failure(self._address.place, cause)
                    log.warning("store.waits", problem=words, patience=self._patience)
                if clock.monotonic() >= until:
                    raise
            await clock.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)

    async def _fail(self, error: Exception) -> None:
        place = self._address.place
        if isinstance(error, OperatorError):
            self.failure = str(error)
        elif isinstance(error, psycopg.Error):
            self.failure = postgres_failure(place, error)
        else:
            self.failure = f"{place}: {type(error).__name__}: {error}; please report it"
        log.error("store.failed", problem=self.failure)

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    async def inspect(self, look: Callable[[StoreReader], T]) -> T:
        """What ``look`` finds in the whole record, in the reading thread.

        Where the connection is lost meanwhile, it is called again.
        """
        return await self._renewing(lambda: look(self._record))

    def reader(self) -> StoreReader:
        """A reader with a connection of its own."""
        return open_postgres_reader(self._address)

    async def _ask(self, read: Callable[[], T]) -> T:
        """What the reading thread finds; raises ``StoreFailed`` for what it cannot read."""
        place = self._address.place
        try:
            return await self._renewing(read)
        except psycopg.Error as error:
            words = postgres_failure(place, error).removeprefix(f"{place}: ")
            raise StoreFailed(place, words) from error
        except READ_ERRORS as error:
            problem = f"its contents are damaged ({error}); restore it from a backup"
            raise StoreFailed(place, problem) from error

    async def _renewing(self, read: Callable[[], T]) -> T:
        """What the reading thread finds, by a new connection where the last one is lost."""

        def do() -> T:
            self._reader_db.roll_back()
            if self._reader_db.is_lost:
                self._reader_db.connect()
            return read()

        found: Any = await self._persist(partial(self._read, do))
        return found  # type: ignore[no-any-return]
