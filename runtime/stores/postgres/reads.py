"""``PostgresReads``: what a store in PostgreSQL is asked, by a connection that may be lost.

A server that is away is waited for, for some time: nobody takes it for damage.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import psycopg

from hubbub.hub.errors import BadValue, OperatorError, StoreFailed
from hubbub.hub.events import Event
from hubbub.hub.logs import log
from hubbub.hub.ports import Ports
from hubbub.hub.store.journal import LoadedRun, RunInfo, Selection
from hubbub.hub.store.reader import StoreReader, StoreUnreadable
from hubbub.hub.values import check_grace
from hubbub.runtime.stores.postgres.hearing import Hearing
from hubbub.runtime.stores.postgres.lease import LeaseOver, WorkerLease
from hubbub.runtime.stores.postgres.migrations import admits_bases, index_for_removals, take_bases
from hubbub.runtime.stores.postgres.removal.removals import (
    Removals,
    heard_by_others,
    removals_after,
)
from hubbub.runtime.stores.postgres.server.address import PostgresAddress
from hubbub.runtime.stores.postgres.server.connection import POSTGRES, PostgresConnection
from hubbub.runtime.stores.postgres.server.faults import is_passing, postgres_failure
from hubbub.runtime.stores.postgres.server.outage import Outage
from hubbub.runtime.stores.postgres.share import PostgresShare
from hubbub.runtime.stores.postgres.store_reader import PostgresStoreReader, open_postgres_reader
from hubbub.runtime.stores.sql.queued import QueuedStore
from hubbub.runtime.stores.sql.reader import READ_ERRORS

__all__ = ["PostgresReads"]

T = TypeVar("T")

FIRST_WAIT: Final = 0.02
LONGEST_WAIT: Final = 1.0


class PostgresReads(QueuedStore):
    """The half of a store that only reads."""

    _share: PostgresShare
    _hearing: Hearing
    _lease: WorkerLease
    _reader_db: PostgresConnection
    _record: PostgresStoreReader

    def __init__(self, address: PostgresAddress, ports: Ports | None, patience: float) -> None:
        super().__init__(ports)
        check_grace("patience", patience)
        self._address = address
        self._patience = patience
        self._outage = Outage(address.place, self._ports.clock, patience)

    async def persist(self, do: Callable[[], Awaitable[T]]) -> T:
        """Do something again and again while what is in its way passes, within ``patience``."""
        clock = self._ports.clock
        until: float | None = None
        wait, is_back = FIRST_WAIT, False
        try:
            while True:
                began = clock.monotonic()
                try:
                    found, is_back = await do(), True
                    return found
                except (psycopg.Error, StoreUnreadable) as error:
                    cause = error.__cause__ if isinstance(error, StoreUnreadable) else error
                    if cause is None or not is_passing(cause):
                        raise
                    if until is None:
                        until = clock.monotonic() + self._patience
                        self._outage.begins(cause)
                    if clock.monotonic() >= until:
                        raise
                except LeaseOver:  # The server has said so.
                    is_back = True
                    raise
                # From one beginning to the next: who has waited in vain, be it for its turn or for
                # an answer, asks again at once.
                await clock.sleep(max(FIRST_WAIT, wait - (clock.monotonic() - began)))
                wait = min(2 * wait, LONGEST_WAIT)
        finally:
            if until is not None:
                self._outage.ends(is_back=is_back)

    async def load(self, run_id: str, *, after: int = 0) -> LoadedRun | None:
        """A run, as of one moment; everything that was written by then is told when it returns."""
        return await self._load(run_id, after, "")

    async def load_kept(self, run_id: str, version: str) -> LoadedRun | None:
        """The same, from its snapshot on if there is a sound one of this version."""
        return await self._load(run_id, 0, version)

    async def _load(self, run_id: str, after: int, version: str) -> LoadedRun | None:
        def read() -> tuple[LoadedRun | None, int]:
            self._reader_db.execute(POSTGRES.begin_reading)
            try:
                position = self._position()
                return self._reader.look(run_id, after, version), position
            finally:
                self._reader_db.execute("COMMIT")

        loaded, position = await self._ask(read)
        if self._is_open:
            await self._hearing.hear_until(position, self._wait_told)
        return loaded

    async def _runs_of(self, root_run_ids: Collection[str]) -> Sequence[RunInfo]:
        return await self._ask(partial(self._reader.runs_of, root_run_ids))

    async def _at_work(self) -> Collection[int]:
        select = "SELECT id FROM worker WHERE live"
        found = await self._ask(lambda: self._reader_db.execute(select).fetchall())
        return frozenset(number for (number,) in found)

    async def _heard_by_all(self) -> int:
        worker = self._lease.worker
        heard = await self._ask(lambda: heard_by_others(self._reader_db, worker))
        return min(self.tip, heard)

    async def read(
        self, selection: Selection, *, after: int = 0, until: int | None = None, limit: int = 1000
    ) -> tuple[Sequence[Event], int]:
        """Up to ``limit`` events after a position, and the position reached; what is missing among
        them is told to have gone before."""
        end = self.tip if until is None else min(until, self.tip)
        known = self._share.removals

        def look() -> tuple[tuple[Sequence[Event], int], Removals]:
            try:
                found = self._reader.read(selection, after, end, limit)
            except BadValue:  # Something may have gone between two statements.
                with self._record.one_moment():
                    found = self._reader.read(selection, after, end, limit)
            return found, removals_after(self._reader_db, known)

        found, gone = await self._ask(look)
        self._share.have_gone(gone)
        return found

    async def ready(self) -> Sequence[str]:
        """Of the trees that are owned; like ``timed``."""
        found = await self._ask(partial(self._owned_runs, "run.run_id", "ready = 1"))
        return [run_id for root, run_id in found if self._share.owns(root)]

    async def timed(self) -> Sequence[tuple[str, int]]:
        """Live runs of owned trees that are due at a certain time, and that time."""
        where = "wake_at IS NOT NULL AND status <> 'ended'"
        found = await self._ask(partial(self._owned_runs, "run.run_id, wake_at", where))
        return [(run_id, at) for root, run_id, at in found if self._share.owns(root)]

    def _owned_runs(self, columns: str, where: str) -> list[Any]:
        select = (
            f"SELECT root_run_id, {columns} FROM run JOIN address AS top "
            f"ON top.run_id = root_run_id JOIN tree ON tree.root = top.number "
            f"WHERE owner = ? AND {where} ORDER BY born"
        )
        return self._reader_db.execute(select, (self._lease.worker,)).fetchall()

    async def inspect(self, look: Callable[[StoreReader], T]) -> T:
        """What ``look`` finds in the whole record, in the reading thread.

        Where the connection is lost meanwhile, it is called again.
        """
        return await self._renewing(lambda: look(self._record))

    def reader(self) -> StoreReader:
        """A reader with a connection of its own."""
        return open_postgres_reader(self._address)

    keeps_all = True
    cuts_lanes = True

    async def takes_bases(self) -> bool:
        """Whether runs may write bases: not while a program is at work that knows none, and from
        then on none joins.  Raises ``OperatorError`` where that cannot be said there."""
        if await self._ask(partial(admits_bases, self._reader_db)):
            return True
        taking = self._make_worker()
        try:
            return await self.persist(partial(taking.run, partial(take_bases, self._address)))
        except psycopg.Error as error:  # The next pass tries it again.
            raise OperatorError(postgres_failure(self._address.place, error)) from error
        finally:
            taking.close()

    async def prepare_removals(self) -> None:
        """Have by what is found what goes; see ``RemovesTrees``."""
        indexing = self._ports.make_worker()  # So that nobody waits for it.
        try:
            await self.persist(partial(indexing.run, partial(index_for_removals, self._address)))
        except psycopg.Error as error:
            problem = postgres_failure(self._address.place, error)
            log.warning("retention.unindexed", problem=problem)
        finally:
            indexing.close()

    async def put_by(self, run_ids: Sequence[str]) -> None:
        """Nothing is shown in files."""

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
            self._reader_db.call_itself(self._lease.name_of("reader"))
            if self._reader_db.is_lost:
                self._reader_db.connect()
            return read()

        found: Any = await self.persist(partial(self._read, do))
        return found  # type: ignore[no-any-return]

    def _position(self) -> int:
        ((position,),) = self._reader_db.execute("SELECT position FROM head WHERE log = 0")
        return int(position)

    async def _wait_told(self) -> bool:
        """Wait for the batch under way; whether there is anybody who writes it."""
        if self._is_attended:
            self._told = self._told or anyio.Event()
            await self._told.wait()
        return self._is_attended
