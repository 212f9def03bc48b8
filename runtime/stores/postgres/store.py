"""``PostgresStore``: the store in a schema of a PostgreSQL database.

* Durable means: committed by the server (``synchronous_commit``), which runs with ``fsync``.
  Many runs share a transaction (``runtime/stores/sql/queued.py``).
* Several processes may be at work on it; each tree of runs is owned by one of them at a time.
* A connection that is lost is not a failure but a wait: what is submitted meanwhile waits, for
  ``patience`` seconds, and what was being committed is asked for afterwards, so that nothing is
  written twice and nothing acknowledged is missing.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import anyio
import psycopg

from hubbub.hub.errors import BadValue, OperatorError, StoreFailed
from hubbub.hub.logs import log
from hubbub.hub.masking import words_of
from hubbub.hub.ports import Ports, Worker
from hubbub.hub.snapshots.draft import SnapshotDraft
from hubbub.hub.store.declared import Declared
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.sharing import Sharing
from hubbub.hub.texts import check_label
from hubbub.hub.values import check_grace
from hubbub.runtime.stores.postgres.blobs import PostgresBlobs
from hubbub.runtime.stores.postgres.bus import PostgresBus
from hubbub.runtime.stores.postgres.hearing import Hearing
from hubbub.runtime.stores.postgres.lease import TTL, LeaseOver, WorkerLease
from hubbub.runtime.stores.postgres.reads import PostgresReads
from hubbub.runtime.stores.postgres.removal.removals import newest_removal
from hubbub.runtime.stores.postgres.schema import check_server, make_schema
from hubbub.runtime.stores.postgres.sealing import Seal
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.postgres.server.faults import is_passing, postgres_failure
from hubbub.runtime.stores.postgres.share import PostgresShare
from hubbub.runtime.stores.postgres.store_reader import PostgresStoreReader
from hubbub.runtime.stores.postgres.tail import Look, Page, Tail
from hubbub.runtime.stores.postgres.writer import Group, PostgresWriter
from hubbub.runtime.stores.sql.writer import Attempt, Operation

__all__ = ["PostgresStore"]

T = TypeVar("T")

PATIENCE: Final = 60.0

SHORTEST_TTL: Final = 1.0
LONGEST_TTL: Final = 86_400.0


class PostgresStore(PostgresReads):
    """A ``Journal`` in PostgreSQL, which also keeps values of variables and contents of files.

    ``address`` is ``"postgresql://USER:PASSWORD@HOST:PORT/DATABASE"``, with ``?schema=NAME`` for
    another schema than ``hubbub``; give it, or a store made of it, to ``Runtime(store=…)``.  The
    schema is made if it is missing.  Values of secrets are encrypted with the key in
    ``HUBBUB_SECRETS_KEY`` of ``environ`` (default: the process environment).

    Several processes may be at work on it; each tree of runs is one worker's (``sharing``).  With
    ``is_worker=False`` this one owns none: it only carries channels.  ``name`` is what it is called
    where processes are listed (default: host and process id).  Its lease lasts ``ttl`` seconds when
    it is not renewed: then its trees are others'.

    ``patience``: seconds for which a lost server is waited for before the store fails.  Raises
    ``BadValue`` for an invalid address; ``open`` raises ``OperatorError`` where the server, the
    database, the role or the tables are not what a store needs, before anything is written, and
    ``StoreInUse`` during an import, or where another process at work has the name, or
    ``OtherDefinition`` where one defines an agent otherwise.
    """

    def __init__(
        self,
        address: str,
        *,
        ports: Ports | None = None,
        patience: float = PATIENCE,
        environ: Mapping[str, str] | None = None,
        is_worker: bool = True,
        name: str = "",
        ttl: float = TTL,
    ) -> None:
        super().__init__(PostgresAddress(address), ports, patience)
        check_grace("ttl", ttl)
        if not SHORTEST_TTL <= ttl <= LONGEST_TTL:
            wanted = f"{SHORTEST_TTL:.0f} to {LONGEST_TTL:,.0f} seconds"
            raise BadValue("ttl", f"expected {wanted}, not {ttl}")
        self._environ = os.environ if environ is None else environ
        check_label("name", name)
        self._worker_name = name
        self._is_worker = is_worker
        self.ttl = ttl
        self.blobs = PostgresBlobs(self._ask)
        self.bus = PostgresBus(self._address, self._ports.make_worker, self._ports.clock)
        self.name = "postgres"
        self._is_published = True
        """Whether what is published now stands beside what others have published."""
        self._groups: list[tuple[Sequence[Operation], Group]] = []
        """What is written of the batch under way."""
        self._share = PostgresShare(
            self._ports.clock, is_worker=is_worker, ttl=ttl, hand_over=self._hand_over,
            drain=self._drain, at_work=self._at_work, runs_of=self._runs_of,
            declare=self._declare, heard_by_all=self._heard_by_all,
            attached=self._attached, offered=self._offered,
        )  # fmt: skip
        self.sharing: Sharing = self._share

    def __repr__(self) -> str:
        return f"PostgresStore({self._address.place!r})"

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Connect, make or check the tables, join those at work, and begin to write."""
        if self._is_open:
            return
        self._workers = []
        self._work, self._begun = anyio.Event(), anyio.Event()
        place, clock = self._address.place, self._ports.clock
        self._seal = Seal(place, self._environ)
        writer_db, self._reader_db, tail_db = (
            PostgresConnection(self._address, f"{self._address.prefix}{what}")
            for what in ("writer", "reader", "tail")
        )
        self._lease = WorkerLease(
            writer_db, is_worker=self._is_worker, name=self._worker_name, ttl=self.ttl
        )
        self._lease.offer, self._lease.declared = self._share.offered, self._share.declared
        self._lease.published, self._is_published = dict(self._published), True
        self._tail = Tail(tail_db, self._lease)
        self.blobs.db, self.blobs.writing = self._reader_db, writer_db
        try:
            self._writing, self._reading, tailing = (self._make_worker() for _ in range(3))
            self._hearing = Hearing(self, self._share, self._tail, self._lease, clock, tailing)
            number = self._ports.ids.number()
            self._share.begin(clock.monotonic())
            await self._reach(self._writing, partial(self._open_writer, f"postgres-{number:012x}"))
            self._share.number = self._lease.worker
            await self._reach(self._reading, self._open_reader)
            await self._hearing.look()
            await self._tasks.open()
            await self._begin()
        except psycopg.Error as error:
            await self._end()
            raise OperatorError(postgres_failure(place, error)) from None
        except BaseException:
            await self._end()
            raise
        self._is_open = True

    async def _begin(self) -> None:
        await super()._begin()
        if not self._writing.is_inline:  # Else nothing may wait for others.
            guarding = self._make_worker()
            for task in (self._hearing.listen(), self._hearing.guard(guarding)):
                self._tasks.start(task, name="hubbub store", lives_on=True)

    async def _end(self) -> None:
        if (hearing := getattr(self, "_hearing", None)) is not None:
            hearing.end()
        try:
            await super()._end()
        finally:
            self._share.end()
            if hearing is not None:
                hearing.close()

    async def _reach(self, worker: Worker, begin: Callable[[], None]) -> None:
        """Begin with a connection.  A server that starts, or that was reached and is lost again, is
        waited for; one that is not there at all is not."""

        async def do() -> None:
            try:
                await worker.run(begin)
            except psycopg.Error as error:
                is_there = self._lease.db.pid or "the database system is" in str(error)
                if is_there or not is_passing(error):
                    raise
                raise OperatorError(postgres_failure(self._address.place, error)) from None

        await self.persist(do)

    def _open_writer(self, new_name: str) -> None:
        lease = self._lease
        db = lease.db
        db.connect()
        check_server(db)
        make_schema(db, new_name)
        meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
        if "proof" in meta:
            self._seal.check(meta["proof"])
        lease.join(f"{socket.gethostname()}:{os.getpid()}")
        if "proof" not in meta:
            insert = "INSERT INTO meta (key, value) VALUES ('proof', ?) ON CONFLICT DO NOTHING"
            db.execute(insert, (self._seal.proof(),))
            ((proof,),) = db.execute("SELECT value FROM meta WHERE key = 'proof'").fetchall()
            self._seal.check(proof)
        self.name = meta["store"]
        self._writer = PostgresWriter(lease, self._seal, self._share)
        self.tip, self._depths = self._writer.tip, self._writer.depths
        log.info("store.opened", place=self._address.place, worker=lease.worker)

    def _open_reader(self) -> None:
        self._reader_db.call_itself(self._lease.name_of("reader"))
        self._reader_db.connect()
        self.bus.call_itself(self._lease.name_of("bus"))
        self._record = PostgresStoreReader(self._reader_db)
        self._reader = self._record.runs
        found = self._reader_db.execute("SELECT key, value, version FROM secret").fetchall()
        self.secrets.restore({key: self._seal.open(key, bytes(text)) for key, text, _ in found})
        self._share.removals = newest_removal(self._reader_db)
        self._hearing.begin(max((version for *_, version in found), default=0))

    def _close_writer(self) -> None:
        try:
            if not self._is_forgetful:  # Killed: the lease ends by itself.
                self._lease.leave()
        except psycopg.Error:
            log.warning("store.left_without_word", place=self._address.place)
        finally:
            self._lease.db.close()

    def _close_reader(self) -> None:
        self._reader_db.close()

    def _closings(self) -> Sequence[Callable[[], None]]:
        return (*super()._closings(), self._tail.close)

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def submit(self, commit: Commit) -> None:
        """Have a commit written; see ``QueuedStore``."""
        if not (self.failure or self._is_forgetful):
            self._share.submitted(commit)
        super().submit(commit)

    def publish(self, notes: Mapping[str, str]) -> None:
        """Keep texts for who only reads the store, now and under later leases."""
        super().publish(notes)
        if self._is_open:
            self._lease.published, self._is_published = dict(self._published), False

    def forget_submitted(self) -> None:
        """Drop what is submitted and not being written yet; the lease ends by itself."""
        super().forget_submitted()
        self._share.forget_submitted()

    async def flush(self) -> None:
        """Return when everything submitted so far is written, and what was in the store at the call
        is told.  What comes later is not waited for."""
        if self._share.is_left or not (self._is_open and self._is_attended):
            await super().flush()
            return
        try:
            position = await self._ask(self._position)
        except StoreFailed:  # Said to whoever has submitted something.
            position = 0
        await super().flush()
        await self._hearing.hear_until(position, self._wait_told)

    async def _tidy(self) -> None:
        try:
            if self._hearing.is_over and not self.failure:
                await self._rejoin()
            if not (self._is_published or self.failure):
                self._is_published = True
                await self._on_writer(self._lease.publish)
            if self._writing.is_inline and self._share.sharer is not None:
                await self._hearing.look_if_due()
        except Exception as error:
            await self._fail(error)

    async def _put(self, batch: Sequence[Operation]) -> None:
        attempt = Attempt(batch)
        try:
            await self._write_surely(batch)
            return
        except Exception as error:
            if not self._writer.is_of_batch(error, batch):
                raise
            attempt.tell(error)
        # Something in the batch is no store's to keep: each is written by itself.
        attempt.undo()
        await self._on_writer(self._writer.forget)
        for operation in batch:
            try:
                await self._write_surely((operation,))
            except Exception as error:
                if not self._writer.is_of_batch(error, (operation,)):
                    raise
                await self._on_writer(self._writer.forget)
                if isinstance(operation, Commit):
                    operation.forget_outcome()
                    operation.error = f"it cannot be written: {words_of(error)}"
                    self._groups.append(((operation,), Group(0, self._depths, {})))

    async def _write_surely(self, batch: Sequence[Operation]) -> None:
        """Write a batch, however often the server goes away meanwhile, within ``patience``; and
        under the next lease, where this one is over."""
        attempt, is_again = Attempt(batch), False
        asked_at = renewed_at = 0.0

        def write() -> Group:
            nonlocal is_again, renewed_at
            if is_again:
                if (group := self._writer.resume()) is not None:
                    return group
                attempt.undo()
            is_again, renewed_at = True, asked_at
            return self._writer.write(batch)

        async def try_it() -> Group:
            nonlocal asked_at
            asked_at, self._lease.told = self._ports.clock.monotonic(), self.tip
            return await self._writing.run(write)

        while True:
            try:
                group = await self.persist(try_it)
            except LeaseOver:
                await self._rejoin()
                continue
            self._share.renewed(renewed_at)
            self._depths = group.depths
            self._groups.append((batch, group))
            return

    def _is_early(self, draft: SnapshotDraft) -> bool:
        return self._writer.snapshots.is_early(draft)

    async def _keep(self, draft: SnapshotDraft) -> None:
        await self._writing.run(partial(self._writer.keep_snapshot, draft))

    async def _rejoin(self) -> None:
        """The lease is over: nothing is owned any more, and another one begins."""
        self._hearing.lose("others have ended it")
        asked_at = self._ports.clock.monotonic()
        await self._on_writer(self._lease.begin_again)
        self._share.number = self._lease.worker
        self.bus.call_itself(self._lease.name_of("bus"))
        self._hearing.joined(asked_at)

    async def _on_writer(self, do: Callable[[], None]) -> None:
        """Have something done by the writing connection, between two groups."""

        def call() -> None:
            db = self._lease.db
            db.roll_back()
            if db.is_lost:
                self._lease.reconnect()
            do()

        await self.persist(partial(self._writing.run, call))

    async def _announce(self, batch: Sequence[Operation]) -> None:
        groups, self._groups = self._groups, []
        rest = list(batch)
        try:
            async with self._hearing.telling:
                for part, group in () if self.failure else groups:
                    await self._hearing.hear(group.before)
                    self._tell_group(part, group)
                    del rest[: len(part)]
        except psycopg.Error as error:  # The server is away for good.
            await self._fail(error)
        if rest:
            self._tell_group(rest, Group(0, self._depths, {}))

    def _tell_group(self, part: Sequence[Operation], group: Group) -> None:
        for came_to in group.came_to.values():
            self._share.writes(came_to)
        tip = self.tip
        self._tell_submitters(part)
        for operation in part:
            if isinstance(operation, Commit):
                self._share.done(operation, group.came_to.get(operation))
        if self.tip > tip and self._hearing.is_anybody_else:
            is_free = any(x.is_free for x in group.came_to.values())
            self._tail.hint(is_free=is_free)

    async def _fail(self, error: Exception) -> None:
        place = self._address.place
        if isinstance(error, OperatorError):
            self.failure = str(error)
        elif isinstance(error, psycopg.Error):
            self.failure = postgres_failure(place, error)
        else:
            self.failure = f"{place}: {type(error).__name__}: {error}; please report it"
        log.error("store.failed", problem=self.failure)

    # ── other processes ──────────────────────────────────────────────────────────────────────

    def _attached(self) -> None:
        self._hearing.look_now()
        self.wake()

    def _offered(self) -> None:
        if self._is_open:
            self._lease.offer, self._lease.drains = self._share.offered, False
            self._hearing.look_now()

    async def _declare(self, declared: Declared) -> None:
        if self._is_open:
            await self._on_writer(partial(self._lease.declare, declared))

    async def _hand_over(self, epochs: Mapping[str, int]) -> None:
        await super().flush()
        await self._give_up(partial(self._lease.hand_over, epochs))

    async def _drain(self) -> None:
        self._lease.drains = True
        await super().flush()
        await self._give_up(self._lease.drain)

    async def _give_up(self, do: Callable[[], None]) -> None:
        """Say that something is others' now; where the store fails, the lease's end says it."""
        if self.failure:
            return
        try:
            await self._on_writer(do)
        except psycopg.Error as error:
            await self.fail(error)

    def heard(self, page: Page) -> None:
        """Others have written these, which are told next."""
        if page.secrets:
            self.secrets.take_in((key, self._seal.open(key, text)) for key, text in page.secrets)
        self.tip = page.position
        self._share.have_gone(page.removals)
        self._share.heard(page.after, page.events, page.position)
        self._tell_written()

    def looked(self, look: Look) -> None:
        """A look has found the store to be so."""
        self._depths = look.depths

    def wake(self) -> None:
        """Have the writing task look whether there is something to do."""
        self._work.set()

    async def fail(self, error: Exception) -> None:
        """Nothing is accepted from now on."""
        if not self.failure:
            await self._fail(error)
