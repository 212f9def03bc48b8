"""``PostgresWriter``: a batch of commits is one transaction, in two messages to the server.

    1  BEGIN, the worker's row (fence), everything that the batch needs
       the ledger decides
    2  events, rows, what waits, keys, notes, contents, secrets, the head, COMMIT

Where the connection is lost once the second message is on its way, it is in doubt whether the
batch was committed: the number of the group in the worker's row answers that.
"""

from collections.abc import Sequence
from typing import Any, Final

from hubbub.hub.store.journal import Commit
from hubbub.hub.store.ledger import Ledger
from hubbub.runtime.stores.postgres.faults import is_of_contents
from hubbub.runtime.stores.postgres.rows import PostgresRows
from hubbub.runtime.stores.postgres.sealing import Seal
from hubbub.runtime.stores.postgres.writer_lock import LOST, WriterLock, WriterReplaced
from hubbub.runtime.stores.sql.rows import Row, values_of
from hubbub.runtime.stores.sql.tables import EVENTS, RUNS
from hubbub.runtime.stores.sql.writer import (
    Applied,
    Changes,
    LedgerWriter,
    Operation,
    SecretChange,
)

__all__ = ["PUT_CONTENT", "PostgresWriter"]


class PostgresWriter(LedgerWriter):
    """Writes batches.  After an error, ``begin_again`` comes before the next one."""

    _rows: PostgresRows

    def __init__(self, lock: WriterLock, seal: Seal) -> None:
        self._lock = lock
        self._db = lock.db
        self._seal = seal
        self._in_doubt: Applied | None = None
        """What the batch has come to whose commit nobody has acknowledged yet."""
        super().__init__()

    def _begin(self) -> None:
        self._rows = PostgresRows(self._db, self._flush)
        select = "SELECT position, hub_seq, hub_crc, recent, live, parked, waiting FROM head"
        found: Any = self._db.execute(f"{select} WHERE log = 0").fetchone()
        self.tip, hub_seq, self._hub_chain, self._recent, *depths = found
        self.depths = (depths[0], depths[1], depths[2])
        self._ledger = Ledger(self._rows, hub_seq=hub_seq, recent=self._recent)

    def resume(self) -> Applied | None:
        """Go on after an attempt that failed: what the batch has come to if it was committed all
        the same; else it is to be written again, as it was before it was tried.

        Raises what ``WriterLock.take_again`` does.
        """
        if self._in_doubt is not None:  # Whatever was said: only a new connection knows.
            self._db.close()
        if self._db.is_lost:
            committed = self._lock.take_again()
            if self._in_doubt is not None and committed == self._lock.group:
                return self._settled()
        self._in_doubt = None
        self._db.roll_back()
        self._begin_again()
        return None

    def forget(self) -> None:
        """Take everything from the database: what was tried could not be written."""
        self._db.roll_back()
        self._begin_again()

    def is_of_contents(self, error: Exception) -> bool:
        """Whether what was to be written is to blame, rather than the database."""
        return self._is_of_contents(error)

    # ── a batch ──────────────────────────────────────────────────────────────────────────────

    def write(self, batch: Sequence[Operation]) -> Applied:
        """Write a batch, all or nothing, durably.

        Raises ``WriterReplaced`` and ``psycopg.Error``.
        """
        return self._write(batch)

    def _write(self, batch: Sequence[Operation]) -> Applied:
        db = self._db
        with db.pipeline():
            db.execute("BEGIN")
            renewed = db.execute(*self._lock.renewal())
            asked = self._rows.ask(batch)
        if renewed.fetchone() is None:
            raise WriterReplaced(f"{db.address.place}: {LOST}")
        self._rows.take_in(asked)
        for operation in batch:
            if isinstance(operation, Commit):
                self._ledger.apply(operation)
        changes = self._changes()
        with db.pipeline():
            self._send(changes)
            self._send_beside(batch)
            self._send_head(changes)
            # From here on the server may have it, and nobody may hear of that.
            self._in_doubt = Applied(self.tip, self.depths, ())
            db.execute("COMMIT")
        return self._settled()

    def _settled(self) -> Applied:
        self._in_doubt = None
        self._lock.acknowledged = self._lock.group
        self._rows.settle()
        self._written.clear()  # Nothing here shows runs in folders.
        return Applied(self.tip, self.depths, ())

    def _put(self, changes: Changes) -> None:
        """For what is searched in the database in the middle of a batch."""
        with self._db.pipeline():
            self._send(changes)
            self._recent = max(self._recent, *(row.recent for row in changes.runs), 0)

    def _send(self, changes: Changes) -> None:
        execute = self._db.execute
        if new := self._rows.new_numbers:
            execute(_PUT_NUMBERS, (list(new.values()), list(new)))
            self._rows.new_numbers = {}
        if changes.events:
            execute(_PUT_EVENTS, (*_columns(changes.events), self._lock.worker))
        if changes.waiting:
            execute(_PUT_WAITING, _columns(changes.waiting))
        if changes.accepted:
            execute(_PUT_ACCEPTED, _columns(changes.accepted))
        if changes.runs:
            execute(_PUT_RUNS, _columns([values_of(row) for row in changes.runs]))
            self._send_trees(changes.runs)
        if changes.taken:
            execute(_TAKE, _columns(changes.taken))
        if changes.notes:
            execute(_PUT_NOTES, _columns(list(dict(changes.notes).items())))

    def _send_trees(self, rows: Sequence[Row]) -> None:
        """Note whose the trees are that begin."""
        new = [(row.number, row.agent) for row in rows if row.number == row.root and not row.seq]
        if new:
            self._db.execute(_PUT_TREES, (*_columns(new), self._lock.worker))

    def _send_beside(self, batch: Sequence[Operation]) -> None:
        """Contents that accepted items name, and values of secrets."""
        for operation in batch:
            if isinstance(operation, SecretChange):
                self._send_secret(operation)
                continue
            for delivery in operation.deliveries:
                if delivery.contents and delivery.outcome == "accepted":
                    for digest, content in delivery.contents.items():
                        self._db.execute(PUT_CONTENT, (digest, bytes(content)))

    def _send_secret(self, change: SecretChange) -> None:
        if change.value is None:
            self._db.execute("DELETE FROM secret WHERE starts_with(key, ?)", (change.key,))
            return
        sealed = self._seal.close(change.key, change.value)
        self._db.execute(_PUT_SECRET, (change.key, sealed))

    def _send_head(self, changes: Changes) -> None:
        self._recent = max((self._recent, *(row.recent for row in changes.runs)))
        self._db.execute(
            "UPDATE head SET position = ?, hub_seq = ?, hub_crc = ?, recent = ?, live = ?, "
            "parked = ?, waiting = ? WHERE log = 0",
            (self.tip, self._ledger.hub_seq, self._hub_chain, self._recent, *self.depths),
        )

    def _is_of_contents(self, error: Exception) -> bool:
        return is_of_contents(error)


def _columns(rows: Sequence[Sequence[Any]]) -> tuple[list[Any], ...]:
    return tuple(map(list, zip(*rows, strict=True)))


def _unnested(*types: str) -> str:
    return ", ".join(f"?::{each}[]" for each in types)


_BIG, _TEXT = "bigint", "text"

_PUT_NUMBERS: Final = (
    f"INSERT INTO address (number, run_id) SELECT * FROM unnest({_unnested(_BIG, _TEXT)})"
)
_PUT_EVENTS: Final = (
    f"INSERT INTO event ({EVENTS.names}, writer) SELECT *, ?9::bigint "
    "FROM unnest(?1::bigint[], ?2::bigint[], ?3::bigint[], ?4::text[], ?5::bigint[], "
    "?6::text[], ?7::bigint[], ?8::text[])"
)
_PUT_WAITING: Final = (
    f"INSERT INTO waiting (run, seq, position) SELECT * FROM unnest({_unnested(_BIG, _BIG, _BIG)})"
)
_PUT_ACCEPTED: Final = (
    "INSERT INTO accepted (run, source, key, position) "
    f"SELECT * FROM unnest({_unnested(_BIG, _TEXT, _TEXT, _BIG)})"
)
_PUT_RUNS: Final = (
    f"INSERT INTO run ({RUNS.names}) SELECT * FROM unnest("
    + _unnested(
        _BIG, _TEXT, _TEXT, _TEXT, _TEXT, _TEXT, _TEXT, _TEXT, _TEXT, _TEXT, _TEXT, "smallint",
        _BIG, _BIG, _BIG, _BIG, _BIG, _BIG, _BIG, _BIG, _BIG,
    )
    + ") ON CONFLICT (number) DO UPDATE SET agent = excluded.agent, status = excluded.status, "
    "inbox = excluded.inbox, ready = excluded.ready, seq = excluded.seq, "
    "in_seq = excluded.in_seq, chain = excluded.chain, waiting = excluded.waiting, "
    "messages = excluded.messages, recent = excluded.recent"
)  # fmt: skip
_PUT_TREES: Final = (
    "INSERT INTO tree (root, want, owner, epoch) SELECT new.root, new.want, ?3::bigint, 1 "
    "FROM unnest(?1::bigint[], ?2::text[]) AS new (root, want) ON CONFLICT DO NOTHING"
)
_TAKE: Final = (
    f"DELETE FROM waiting USING unnest({_unnested(_BIG, _BIG)}) AS taken (run, seq) "
    "WHERE waiting.run = taken.run AND waiting.seq = taken.seq"
)
_PUT_NOTES: Final = (
    f"INSERT INTO note (key, value) SELECT * FROM unnest({_unnested(_TEXT, _TEXT)}) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = note.version + 1"
)
_PUT_SECRET: Final = (
    "INSERT INTO secret (key, value) VALUES (?, ?) ON CONFLICT (key) "
    "DO UPDATE SET value = excluded.value"
)
PUT_CONTENT: Final = "INSERT INTO blob (digest, content) VALUES (?, ?) ON CONFLICT DO NOTHING"
"""Keeps a content by its digest."""
