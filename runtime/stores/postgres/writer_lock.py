"""``WriterLock``: what makes one runtime at a time the writer of a store.

    an advisory lock     held by the connection: a second runtime is refused at once, and who dies
                         or loses the connection lets it go
    a row in ``worker``  checked by every group of commits: a writer that another one has replaced,
                         while its connection was gone, writes nothing more

The row's ``group_no`` is the number of the last group that was committed: after a connection was
lost in the middle of a commit, it says what became of that.
"""

from typing import Final

import psycopg

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.postgres.connection import PostgresConnection
from hubbub.runtime.stores.postgres.migrations import newest
from hubbub.runtime.stores.postgres.schema import LOCK, check_server
from hubbub.runtime.stores.sql.in_use import StoreInUse

__all__ = ["WriterLock", "WriterReplaced", "holder_of"]

LOCKED: Final = "55P03"

TTL: Final = "6 seconds"
"""How long a worker counts as alive after its last group: for who looks at the table."""

LOST: Final = (
    "another runtime has taken this store over while the connection was gone; what was "
    "acknowledged is kept there: stop one of the two (several runtimes on one store are not built)"
)


GONE_BACK: Final = (
    "the server lacks what it had acknowledged; was it replaced by a standby that commits did not "
    "wait for, or restored from a backup? start again to go on with what it has"
)


class WriterReplaced(OperatorError):
    """Another runtime is at work on the store now, or it is another one's past."""


class WriterLock:
    """Held by one runtime at a time; used in the writing thread."""

    def __init__(self, db: PostgresConnection) -> None:
        self.db = db
        self.worker = 0
        """The row in ``worker``."""
        self.group = 0
        """The number of the last group that was tried."""
        self.acknowledged = 0
        """The number of the last group that is known to be committed."""
        self._pid = 0
        """The server's process that had the lock last."""

    def take(self, name: str) -> None:
        """Become the writer.  Raises ``StoreInUse``, which says who is at work."""
        self._lock()
        execute = self.db.execute
        execute("UPDATE worker SET live = false WHERE live")
        (self.worker,) = execute(
            "INSERT INTO worker (name, format, kind, live, expires) "
            f"VALUES (?, ?, 'worker', true, clock_timestamp() + interval '{TTL}') RETURNING id",
            (name, newest()),
        ).fetchone()
        self.group = 0

    def take_again(self) -> int:
        """Go on after the connection was lost; the group that was committed last.

        Raises ``WriterReplaced`` where another runtime was the writer meanwhile, ``psycopg.Error``
        where the server is still away, or has not noticed yet that the former connection is gone.
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
        try:
            self._lock()
        except StoreInUse:
            found = self._row()
            if found is not None and not found[0]:
                raise WriterReplaced(f"{self.db.address.place}: {LOST}") from None
            raise psycopg.OperationalError("the former connection still has the lock") from None
        # Not only read: a commit that was cut off from waiting for a standby is to be seen, and the
        # standby may not have it.  Where it has acknowledged a later one, it has that, too.
        found = self.db.execute(_ASK, (self.worker,)).fetchone()
        has_gone_back = self._row() is None if found is None else found[0] < self.acknowledged
        if has_gone_back:
            raise WriterReplaced(f"{self.db.address.place}: {GONE_BACK}")
        if found is None:
            raise WriterReplaced(f"{self.db.address.place}: {LOST}")
        return int(found[0])

    def renewal(self) -> tuple[str, tuple[int, int]]:
        """A statement that begins the next group; it finds no row once this writer is replaced."""
        self.group += 1
        return _RENEW, (self.group, self.worker)

    def leave(self) -> None:
        """Let another one write; the connection is closed next."""
        if self.worker and not self.db.is_lost:
            self.db.roll_back()
            self.db.execute("UPDATE worker SET live = false WHERE id = ?", (self.worker,))

    def _row(self) -> tuple[bool, int] | None:
        select = "SELECT live, group_no FROM worker WHERE id = ?"
        found: tuple[bool, int] | None = self.db.execute(select, (self.worker,)).fetchone()
        return found

    def _lock(self) -> None:
        """Take the lock, or wait a moment for it: the server may yet notice a death."""
        try:
            self.db.execute(f"SELECT pg_advisory_lock({LOCK.format(1)})")
            self._pid = self.db.pid
        except psycopg.Error as error:
            if error.sqlstate != LOCKED:
                raise
            raise StoreInUse(
                f"{self.db.address.place}: another runtime is at work on this store "
                f"({holder_of(self.db) or 'unknown'}); stop it, or give another schema "
                "(?schema=NAME): several runtimes on one store are not built yet"
            ) from None


def holder_of(db: PostgresConnection) -> str:
    """Who is at work on the store; empty for nobody."""
    found = db.execute(
        f"WITH wanted AS (SELECT {LOCK.format(1)} AS number) "
        "SELECT a.application_name, a.pid, coalesce(host(a.client_addr), 'local') "
        "FROM wanted, pg_locks AS l JOIN pg_stat_activity AS a USING (pid) "
        "WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 "
        "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "AND l.classid::bigint = ((wanted.number >> 32) & 4294967295) "
        "AND l.objid::bigint = (wanted.number & 4294967295)"
    ).fetchone()
    return f"{found[0]}, server process {found[1]}, from {found[2]}" if found else ""


_RENEW: Final = (
    f"UPDATE worker SET group_no = ?, expires = clock_timestamp() + interval '{TTL}' "
    "WHERE id = ? AND live RETURNING id"
)
_ASK: Final = (
    f"UPDATE worker SET expires = clock_timestamp() + interval '{TTL}' "
    "WHERE id = ? AND live RETURNING group_no"
)
