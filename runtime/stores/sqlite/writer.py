"""``SqliteWriter``: a batch of commits is one transaction of SQLite."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hubbub.hub.events.moments import MAX_MOMENT
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.ledger import Ledger
from hubbub.runtime.stores.sql.removal import (
    IS_REQUEST,
    cut_lanes,
    drop_requests_of,
    forget_run,
)
from hubbub.runtime.stores.sql.rows import PUT_NOTE, Depths, StoredRows
from hubbub.runtime.stores.sql.writer import (
    Applied,
    Changes,
    LedgerWriter,
    Operation,
    SecretChange,
)
from hubbub.runtime.stores.sqlite.contents.named import NamedContents

__all__ = ["SqliteWriter"]


class SqliteWriter(LedgerWriter):
    """Applies commits.  After a ``sqlite3.Error`` the writer must not be used again."""

    def __init__(
        self, db: sqlite3.Connection, keep: Callable[[str, bytes], None] | None = None
    ) -> None:
        self._db = db
        self._keep = keep
        """Keeps a content by its digest, durably."""
        select = "SELECT value FROM meta WHERE key = 'projected'"
        super().__init__(db)
        self.safe = int((db.execute(select).fetchone() or ("0",))[0])
        """Up to where the agents' folders are known to be on the disk; written with a batch."""
        self._safe_written = self.safe
        self.contents: NamedContents | None = None
        """What names contents of files, where trees go while the store is open."""

    def _begin(self) -> None:
        db = self._db
        self._rows = StoredRows(db, self._flush)
        one = db.execute
        self.tip = one("SELECT coalesce(max(position), 0) FROM event").fetchone()[0]
        hub = one(
            "SELECT seq, crc FROM event WHERE position = "
            "(SELECT max(position) FROM event INDEXED BY event_hub WHERE lane = 'hub')"
        )
        last: tuple[int, int] = hub.fetchone() or (0, 0)
        hub_seq, self._hub_chain = last
        newest = "SELECT coalesce(max(recent), 0) FROM run WHERE inbox = 'open' AND kind IN "
        sound = f"typeof(recent) = 'integer' AND recent BETWEEN 0 AND {MAX_MOMENT}"
        recent: int = one(f"{newest} ('user', 'heartbeat') AND {sound}").fetchone()[0]
        self._ledger = Ledger(self._rows, hub_seq=hub_seq, recent=recent)
        self.depths = (
            self._depths_as_written()
            or one(
                "SELECT count(*), coalesce(sum(status IN ('parked', 'waiting')), 0), "
                "coalesce(sum(waiting), 0) FROM run WHERE status <> 'ended'"
            ).fetchone()
        )

    def keep_depths(self) -> None:
        """Write what the depths are, for the next opening: else that counts all runs."""
        live, parked, waiting = self.depths
        text = f"{self.tip} {live} {parked} {waiting}"
        if self._db.execute(_DEPTHS).fetchone() != (text,):
            self._db.execute(_KEEP_DEPTHS, (text,))

    def _depths_as_written(self) -> Depths | None:
        """The depths after the last event of the store; ``None`` if who has written that was
        killed, or does not write them."""
        (text,) = self._db.execute(_DEPTHS).fetchone() or ("",)
        numbers = [int(part) for part in text.split() if part.isdecimal()]
        if len(numbers) != 4 or numbers[0] != self.tip:
            return None
        return numbers[1], numbers[2], numbers[3]

    def _write(self, batch: Sequence[Operation]) -> Applied:
        looked_at: int | None = None
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for operation in batch:
                if isinstance(operation, Commit):
                    removes = operation.gone or operation.cut is not None
                    if removes:  # What it removes must be there, and what follows must not.
                        self._flush()
                        if self.contents is not None:
                            looked_at = self.contents.look_at_all()
                    self._ledger.apply(operation)
                    if removes:
                        self._flush()
                    for delivery in operation.deliveries:
                        if delivery.contents and delivery.outcome == "accepted":
                            self._keep_contents(delivery.contents)
                else:
                    self._change_secret(operation)
            if self.safe != self._safe_written:
                self._safe_written = self.safe
                self._db.execute(
                    "INSERT INTO meta VALUES ('projected', ?1) "
                    "ON CONFLICT DO UPDATE SET value = ?1",
                    (str(self.safe),),
                )
            self._flush()
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._safe_written = -1
            raise
        if looked_at is not None and self.contents is not None:
            self.contents.looked_at(looked_at)
        return self._applied()

    def _keep_contents(self, contents: Mapping[str, bytes]) -> None:
        """Before what names them is committed: nothing on record lacks its contents."""
        assert self._keep is not None
        for digest, content in contents.items():
            self._keep(digest, content)

    def checkpoint(self) -> None:
        """Move what the log holds into the file, as far as no reader is in the way."""
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _change_secret(self, change: SecretChange) -> None:
        if change.value is None:
            self._db.execute(
                "DELETE FROM secret WHERE substr(key, 1, ?) = ?", (len(change.key), change.key)
            )
            return
        self._db.execute(
            "INSERT INTO secret VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
            (change.key, change.value),
        )

    def _put(self, changes: Changes) -> None:
        many = self._db.executemany
        if changes.events:
            many("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)", changes.events)
        if changes.waiting:
            many("INSERT INTO waiting VALUES (?, ?, ?)", changes.waiting)
        if changes.accepted:
            many("INSERT INTO accepted VALUES (?, ?, ?, ?)", changes.accepted)
        if changes.runs:
            self._rows.put(changes.runs)
        if changes.taken:
            many("DELETE FROM waiting WHERE run = ? AND seq = ?", changes.taken)
        if changes.notes:
            many(PUT_NOTE, changes.notes)
        if changes.gone:  # In a batch of its own: these are its notes.
            many(_DROP_NOTE, [(key,) for key, note, *_ in changes.notes if not note])
        for row in changes.gone:
            forget_run(self._db, row.run_id, row.number)
            drop_requests_of(self._db, row.run_id)
        for row, cut in changes.cuts:
            cut_lanes(self._db, row.number, cut)

    def prepare_removals(self, contents: Callable[[sqlite3.Connection], NamedContents]) -> None:
        """Have by what is found what goes; in a large store that takes a while, once."""
        for index in _FOR_REMOVALS:
            self._db.execute(index)
        self.contents = contents(self._db)

    def _is_of_contents(self, error: Exception) -> bool:
        if isinstance(error, sqlite3.IntegrityError) and error.sqlite_errorname in _TAKEN:
            # What damage has put in the place of a row of one run; but a position that is taken is
            # every commit's.
            return "event." not in str(error)
        return isinstance(error, _OF_CONTENTS) or not isinstance(error, _OF_OTHERS)

    def _is_of_removal(self, error: Exception) -> bool:
        return isinstance(error, sqlite3.IntegrityError) and error.sqlite_errorname in _REFUSALS


_DEPTHS: Final = "SELECT value FROM meta WHERE key = 'depths'"
_KEEP_DEPTHS: Final = "INSERT OR REPLACE INTO meta VALUES ('depths', ?)"
"""With the position up to which they count: else each opening would count all runs."""

_DROP_NOTE: Final = "DELETE FROM note WHERE key = ?"

_FOR_REMOVALS: Final = (
    "CREATE INDEX IF NOT EXISTS event_end ON event(type) WHERE type = 'agent:complete'",
    "CREATE INDEX IF NOT EXISTS event_base ON event(type) WHERE type = 'agent:base'",
    f"CREATE INDEX IF NOT EXISTS note_request ON note(value) WHERE {IS_REQUEST}",
)

_OF_CONTENTS: Final = (sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
_TAKEN: Final = ("SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE")
_REFUSALS: Final = ("SQLITE_CONSTRAINT_TRIGGER", "SQLITE_CONSTRAINT_FOREIGNKEY")
_OF_OTHERS: Final = (sqlite3.Error, OSError, MemoryError)
