"""``WorkerLease``: the row in ``worker`` under which one process is at work on a store.

    a shared advisory lock   held by two connections of each process at work, the one that writes
                             and the one that renews, for either may be cut; an import takes it
                             alone, and finds nobody at work
    the row in ``worker``    renewed by each group of commits and by beats; a group that does not
                             find it live writes nothing

The row's ``group_no`` is the number of the last group that was committed under it: after a
connection was lost in the middle of a commit, it says what became of that.  Only the server's
clock decides when a lease is over.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg

from hubbub.hub.errors import OperatorError
from hubbub.hub.store.declared import NOTHING_DECLARED, Declared
from hubbub.hub.store.left_notes import of_agents
from hubbub.hub.store.placement import ANYTHING
from hubbub.runtime.stores.postgres.declarations import IS_GONE, declare, join_in_turn, publish
from hubbub.runtime.stores.postgres.migrations import format_of, new_records, newest
from hubbub.runtime.stores.postgres.schema import LOCK, check_server
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.sql.in_use import StoreInUse
from hubbub.runtime.stores.sql.rows import PUT_NOTE

__all__ = [
    "FREE", "TTL", "LeaseOver", "ServerGoneBack", "WorkerLease", "holder_of", "is_held",
    "lock_alone", "share_lock", "take_alone",
]  # fmt: skip

TTL: Final = 6.0
"""Seconds that a lease lasts when it is not renewed."""

FREE: Final = "free"
"""What is notified where trees may be claimed."""

LOCKED: Final = "55P03"

GROUP_LOCK_WAIT: Final = 3.0
"""Seconds that a group waits for its turn before it looks who is in the way, and asks for it anew,
behind all that wait; half the time of a lease, if that is less."""

GONE_BACK: Final = (
    "the server lacks what it had acknowledged; was it replaced by a standby that commits did not "
    "wait for, or restored from a backup? start again to go on with what it has"
)


class ServerGoneBack(OperatorError):
    """What was acknowledged to this process is not there any more."""


class LeaseOver(Exception):
    """Others own the trees of this process now; nothing of the group is written."""


class WorkerLease:
    """Held by one process; used in its writing thread, but for what is plain to read."""

    def __init__(self, db: PostgresConnection, *, is_worker: bool, name: str, ttl: float) -> None:
        self.db = db
        self.is_worker = is_worker
        self.ttl = ttl
        self.format, self.records = newest(), new_records()
        """What this program knows, and which records those before it do not."""
        self.offer = ANYTHING
        """Which trees are claimed."""
        self.drains = False
        """Whether what is opened is left for others."""
        self.declared = NOTHING_DECLARED
        """How agents are defined here."""
        self.published: Mapping[str, str] = {}
        """The notes that say which agents are here, and others that anybody may read."""
        self.worker = 0
        """The row in ``worker``; another one after a lease was over."""
        self.own: set[int] = set()
        """That row, and those of former leases."""
        self.group = 0
        """The number of the last group that was tried under it."""
        self.acknowledged = 0
        """The number of the last group that is known to be committed."""
        self.told = 0
        """The position of the last event that the hub has heard of; the event loop says it, and
        each renewal writes it down."""
        self._name, self._is_named = name, name != ""
        self._pid = 0
        """The server's process that had the lock last."""

    def join(self, default_name: str) -> None:
        """Be at work, for the first time.

        Leases of processes that are gone for sure are over at once: all of them where nobody else
        is at work, else that of the same name.  Raises ``StoreInUse`` for a name that is another
        process's, and during an import; ``OtherDefinition`` for agents that others mean otherwise.
        """
        if self._lock_alone():
            self.db.execute(_END_ALL, (self.ttl,))
            self.db.execute(f"SELECT pg_advisory_unlock({LOCK.format(1)})")
        self._lock_shared()
        self._name = self._name or default_name
        self.db.execute(_TIDY)
        self.begin()

    def begin(self) -> None:
        """Begin a new lease: nothing is owned under it yet.

        Raises ``OperatorError`` where the tables have left this program behind, ``StoreInUse`` for
        a name that is another process's by now, and ``OtherDefinition``; nothing is written then.
        """
        kind = "worker" if self.is_worker else "channel"
        values = (self.format, self._name, kind, self.ttl, self.drains, *self.offered)
        with self._transaction():
            join_in_turn(self.db)
            if self._is_named:
                self._check_name()
            found = self.db.execute(_BEGIN, values).fetchone()
            if found is None:  # The tables were changed since they were looked at.
                format_of(self.db)
                place = self.db.address.place
                raise OperatorError(f"{place}: the tables have changed; start again")
            (worker,) = found
            if self.declared.definitions:
                declare(self.db, self.declared, worker, self.ttl, is_again=self.worker > 0)
            self._publish(worker)
        self.worker = worker
        self.own.add(self.worker)
        self.group = self.acknowledged = 0

    def _check_name(self) -> None:
        """Raise ``StoreInUse`` where the name is that of another process, at work for all that is
        known; nobody joins meanwhile."""
        self.db.execute(_END_PREDECESSOR, (self._name,))
        if (found := self.db.execute(_NAMED, (self._name,)).fetchone()) is not None:
            raise StoreInUse(
                f"{self.db.address.place}: a worker called {self._name!r} is at work on this "
                f"store since {found[0]}; stop it, or give another name"
            )

    def declare(self, declared: Declared) -> None:
        """Say how agents are defined here, from now on and under later leases.

        Raises ``OtherDefinition``, and nothing is declared.
        """
        with self._transaction():
            declare(self.db, declared, self.worker, self.ttl)
        self.declared = declared

    def publish(self) -> None:
        """Have the store say which agents are here, and offer them."""
        with self._transaction():
            self.db.execute(_OFFER, (self.worker, *self.offered))
            self._publish(self.worker)

    def _publish(self, worker: int) -> None:
        """A channel's agents are shown until a worker begins; it takes nothing away."""
        if of_agents(self.published) and self.is_worker:
            publish(self.db, self.published, worker)
        else:
            self.db.executemany(PUT_NOTE, list(self.published.items()))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.db.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            self.db.roll_back()
            raise

    @property
    def offered(self) -> tuple[list[str] | None, int | None]:
        """The offer, as the row has it: agents, and how many trees."""
        agents = self.offer.agents
        return (None if agents is None else sorted(agents), self.offer.capacity)

    def name_of(self, what: str) -> str:
        """What a connection of this process is called, but for the writing one."""
        return self.db.address.name_of(what, self.worker)

    def begin_again(self) -> None:
        """Begin another lease; nothing is left of the former one, should it still hold."""
        self.db.execute(_LEAVE, (self.worker,))
        self.begin()

    def reconnect(self) -> None:
        """Go on by a new connection.  The lease may be over.

        Raises ``psycopg.Error`` while the server is away, or an import is at work, and
        ``ServerGoneBack``.
        """
        self.db.connect()
        check_server(self.db)
        # A group of the former connection may still be on its way.
        self.db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid = ? AND pid <> pg_backend_pid() AND application_name = "
            "current_setting('application_name')",
            (self._pid,),
        )
        self._lock_shared()
        # Not only read: a commit that was cut off from waiting for a standby is to be seen, and the
        # standby may not have it.  Where it has acknowledged a later one, it has that, too.
        found = self.db.execute(_CONNECTED, (self.worker,)).fetchone()
        if found is None or found[0] < self.acknowledged:
            raise self.gone_back()

    def gone_back(self) -> ServerGoneBack:
        """What to raise where the server lacks what this process was told."""
        return ServerGoneBack(f"{self.db.address.place}: {GONE_BACK}")

    def committed(self, worker: int) -> int:
        """The number of the group that was committed last under a lease, over or not."""
        found = self.db.execute("SELECT group_no FROM worker WHERE id = ?", (worker,)).fetchone()
        return int(found[0]) if found is not None else 0

    def renewal(self) -> tuple[str, tuple[Any, ...]]:
        """A statement of the next group; it finds no row where the lease is over."""
        self.group += 1
        return _RENEW, (self.group, self.ttl, self.worker, self.told)

    def hand_over(self, epochs: Mapping[str, int]) -> None:
        """Let others claim trees, by root; one that was claimed again since that epoch, be it under
        another lease of this process, is kept."""
        self.db.execute(_HAND_OVER, (self.worker, list(epochs), list(epochs.values())))
        self.notify(FREE)

    def end_who_stands_still(self) -> None:
        """End the connections of those that have stood still in the middle of a group for as long
        as a lease lasts: nobody else has a turn meanwhile.

        Theirs may be over already, as a group finds that out only when it has its turn.  Those of
        another role stay.
        """
        # The server has a timeout for this, and forgets it where a pipeline ends.
        with suppress(psycopg.errors.InsufficientPrivilege):
            self.db.execute(_END_STANDING, (self.ttl,))

    def drain(self) -> None:
        """Say that nothing more is claimed."""
        self.db.execute("UPDATE worker SET drains = true WHERE id = ?", (self.worker,))

    def leave(self) -> None:
        """End the lease: its trees are others' to claim at once; the connection is closed next."""
        if self.worker and not self.db.is_lost:
            self.db.roll_back()
            # What is owned under a lease that is over is free: no lock of a tree is waited for.
            self.db.execute(_END, (self.worker,))
            self.notify(FREE)

    def notify(self, word: str) -> None:
        """Tell the others, who look by themselves all the same."""
        self.db.execute("SELECT pg_notify(?, ?)", (self.db.address.schema, word))

    def _lock_alone(self) -> bool:
        """Take the lock alone, where nobody else has it; the server may yet notice a death."""
        if not _has_live_lease(self.db):
            return False
        for _ in range(ATTEMPTS):
            ((has,),) = self.db.execute(f"SELECT pg_try_advisory_lock({LOCK.format(1)})").fetchall()
            if has:
                return True
            self.db.execute("SELECT pg_sleep(0.02)")
        return False

    def _lock_shared(self) -> None:
        try:
            share_lock(self.db)
        except psycopg.Error as error:
            if error.sqlstate != LOCKED or self.worker:
                raise
            raise StoreInUse(
                f"{self.db.address.place}: an import or a change of the tables is at work on this "
                f"store ({holder_of(self.db) or 'unknown'}); wait for it"
            ) from None
        self.db.wait_for_locks(min(GROUP_LOCK_WAIT, self.ttl / 2))
        self._pid = self.db.pid


ATTEMPTS: Final = 5
"""How often the lock is looked at of which a process that is gone may seem to have a share."""


def share_lock(db: PostgresConnection) -> None:
    """Have this connection, too, say that its process is at work, as long as it is open.

    Raises ``psycopg.Error`` where somebody has the lock alone.
    """
    db.execute(f"SELECT pg_advisory_lock_shared({LOCK.format(1)})")


def take_alone(db: PostgresConnection) -> None:
    """Be alone at work, until the connection is closed.  Raises ``StoreInUse``."""
    lock_alone(db, "another runtime", "stop it, or give another schema (?schema=NAME)")
    db.execute("UPDATE worker SET live = false WHERE live")


def lock_alone(db: PostgresConnection, other: str, remedy: str) -> None:
    """Take the lock of the store, as long as this connection is open.

    Raises ``StoreInUse``, which says who else may hold it and what to do.
    """
    try:
        db.execute(f"SELECT pg_advisory_lock({LOCK.format(1)})")
    except psycopg.Error as error:
        if error.sqlstate != LOCKED:
            raise
        raise StoreInUse(
            f"{db.address.place}: {other} is at work on this store "
            f"({holder_of(db) or 'unknown'}); {remedy}"
        ) from None


def is_held(db: PostgresConnection) -> bool:
    """Whether anybody is at work on the store.

    The server takes a moment to notice that a connection is closed: a lock that nobody with a
    lease can have is looked at again.
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            db.execute("SELECT pg_sleep(0.02)")
        if not holder_of(db):
            return False
        if _has_live_lease(db):
            return True
    return True


def _has_live_lease(db: PostgresConnection) -> bool:
    return db.execute("SELECT 1 FROM worker WHERE live LIMIT 1").fetchone() is not None


def holder_of(db: PostgresConnection) -> str:
    """Who is at work on the store; empty for nobody."""
    found = db.execute(
        f"WITH wanted AS (SELECT {LOCK.format(1)} AS number) "
        "SELECT a.application_name, a.pid, coalesce(host(a.client_addr), 'local') "
        "FROM wanted, pg_locks AS l JOIN pg_stat_activity AS a USING (pid) "
        "WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 "
        "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "AND l.classid::bigint = ((wanted.number >> 32) & 4294967295) "
        "AND l.objid::bigint = (wanted.number & 4294967295) ORDER BY a.backend_start"
    ).fetchone()
    return f"{found[0]}, server process {found[1]}, from {found[2]}" if found else ""


_BACKEND: Final = "(SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())"
_BEGIN: Final = (
    "INSERT INTO worker (format, name, kind, live, expires, drains, agents, capacity, pid, "
    "connected) SELECT ?1, ?2, ?3, true, clock_timestamp() + make_interval(secs => ?4::float8), "
    f"?5, ?6, ?7, pg_backend_pid(), {_BACKEND} FROM meta "
    "WHERE key = 'reads' AND value::integer <= ?1 FOR SHARE OF meta RETURNING id"
)
_OFFER: Final = "UPDATE worker SET agents = ?2, capacity = ?3 WHERE id = ?1"
_CONNECTED: Final = (
    f"UPDATE worker SET pid = pg_backend_pid(), connected = {_BACKEND} "
    "WHERE id = ? RETURNING group_no"
)
_RENEW: Final = (
    "UPDATE worker SET group_no = ?1, told = ?4, "
    "expires = clock_timestamp() + make_interval(secs => ?2::float8) "
    "WHERE id = ?3 AND live RETURNING id"
)
_END_ALL: Final = (
    "UPDATE worker SET live = false WHERE live AND (connected > pg_postmaster_start_time() OR "
    "clock_timestamp() > pg_postmaster_start_time() + make_interval(secs => ?::float8))"
)
"""But for those that the server itself has cut off: they are given time to come back."""
_END_PREDECESSOR: Final = f"UPDATE worker SET live = false WHERE live AND name = ? AND {IS_GONE}"
_NAMED: Final = (
    "SELECT to_char(since, 'YYYY-MM-DD HH24:MI:SS TZ') FROM worker "
    "WHERE live AND name = ? AND expires > clock_timestamp()"
)
_TIDY: Final = (
    "DELETE FROM worker WHERE NOT live AND expires < clock_timestamp() - interval '1 day' "
    "AND NOT EXISTS (SELECT 1 FROM tree WHERE tree.owner = worker.id)"
)
_HAND_OVER: Final = (
    "UPDATE tree SET owner = NULL FROM unnest(?2::text[], ?3::bigint[]) AS given (run_id, epoch) "
    "JOIN address USING (run_id) "
    "WHERE tree.owner = ?1 AND tree.root = address.number AND tree.epoch = given.epoch"
)
_END: Final = "UPDATE worker SET live = false WHERE id = ?"
_END_STANDING: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = current_setting('application_name') "
    "AND state LIKE 'idle in transaction%' "
    "AND state_change < clock_timestamp() - make_interval(secs => ?::float8)"
)
_LEAVE: Final = (
    "WITH mine AS (UPDATE worker SET live = false WHERE id = ?1 RETURNING id) "
    "UPDATE tree SET owner = NULL FROM mine WHERE tree.owner = mine.id"
)
