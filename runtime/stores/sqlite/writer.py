"""What the store's one writer does with a batch of commits: one transaction, in order.

Runs in the store's writing thread and nowhere else.  What a commit comes to is decided by the
hub's ledger (``hub/store/ledger.py``) with rows of a database, of which those of runs at work are
kept at hand; here that is written.
"""

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from hubbub.hub.addressing import identity_of
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event, SessionMessage
from hubbub.hub.events.codec import encode_event
from hubbub.hub.logs import log
from hubbub.hub.masking import words_of
from hubbub.hub.store.journal import Commit, NewRun, RunInfo
from hubbub.hub.store.ledger import Ledger, Writes
from hubbub.runtime.stores.sqlite.rows import REQUESTS, Depths, Row, StoredRows, depths_of

__all__ = ["Applied", "Depths", "Operation", "SecretChange", "SqliteWriter"]


class SecretChange(msgspec.Struct, frozen=True):
    """A variable's value to keep; without one, all that begin with ``key`` are dropped."""

    key: str
    value: str | None

    def __repr__(self) -> str:
        return "SecretChange(***)"


class Applied(msgspec.Struct, frozen=True):
    """What a batch has come to; ``described``: what it wrote for runs with a descriptor."""

    tip: int
    depths: Depths
    described: Sequence[tuple[RunInfo, Sequence[Event]]]


Operation: TypeAlias = Commit | SecretChange


class SqliteWriter:
    """Applies commits.  After a ``sqlite3.Error`` the writer must not be used again."""

    def __init__(
        self, db: sqlite3.Connection, keep: Callable[[str, bytes], None] | None = None
    ) -> None:
        self._db = db
        self._keep = keep
        """Keeps a content by its digest, durably."""
        self._begin()
        select = "SELECT value FROM meta WHERE key = 'projected'"
        self.safe = int((db.execute(select).fetchone() or ("0",))[0])
        """Up to where the agents' folders are known to be on the disk; written with a batch."""
        self._safe_written = self.safe

    def _begin(self) -> None:
        """Take everything from the database."""
        db = self._db
        self._rows = StoredRows(db, self._flush)
        self._written: dict[Row, list[Event]] = {}
        one = db.execute
        self.tip: int = one("SELECT coalesce(max(position), 0) FROM event").fetchone()[0]
        hub = one(
            "SELECT seq, crc FROM event WHERE position = "
            "(SELECT max(position) FROM event INDEXED BY event_hub WHERE lane = 'hub')"
        )
        last: tuple[int, int] = hub.fetchone() or (0, 0)
        hub_seq, self._hub_chain = last
        newest = "SELECT coalesce(max(recent), 0) FROM run WHERE inbox = 'open' AND kind IN "
        sound = f"typeof(recent) = 'integer' AND recent BETWEEN 0 AND {_MAX_RECENT}"
        recent: int = one(f"{newest} ('user', 'heartbeat') AND {sound}").fetchone()[0]
        self._ledger: Ledger[Row] = Ledger(self._rows, hub_seq=hub_seq, recent=recent)
        self.depths: Depths = one(
            "SELECT count(*), coalesce(sum(status IN ('parked', 'waiting')), 0), "
            "coalesce(sum(waiting), 0) FROM run WHERE status <> 'ended'"
        ).fetchone()

    # ── a batch ──────────────────────────────────────────────────────────────────────────────

    def apply(self, batch: Iterable[Operation]) -> Applied:
        """Write a batch, all or nothing, durably; except for what cannot be written for its own
        contents, which has its own ``error`` and leaves the others as they would be without it.

        Each commit's ``error``, ``written`` and outcomes are filled in.  Raises
        ``sqlite3.Error``, and then nothing of the batch is in the store.
        """
        batch = tuple(batch)
        commits = [each for each in batch if isinstance(each, Commit)]
        given = [(x, x.event) for commit in commits for x in commit.deliveries]
        try:
            return self._write(batch)
        except Exception as error:
            if not is_of_contents(error):
                raise
            log.error("commit.unwritable", batch=len(batch), exc_info=error)
        for delivery, event in given:
            delivery.event = event
        return self._write_apart(batch)

    def _write_apart(self, batch: Iterable[Operation]) -> Applied:
        """Write each by itself: something in the batch is no store's to keep."""
        described: list[tuple[RunInfo, Sequence[Event]]] = []
        self._begin()
        for operation in batch:
            if isinstance(operation, Commit):
                operation.forget_outcome()
            try:
                described += self._write((operation,)).described
            except Exception as error:
                if not is_of_contents(error):
                    raise
                self._begin()
                if isinstance(operation, Commit):
                    operation.forget_outcome()
                    operation.error = f"it cannot be written: {words_of(error)}"
        return Applied(self.tip, self.depths, described)

    def _write(self, batch: Iterable[Operation]) -> Applied:
        """Write a batch in one transaction."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            for operation in batch:
                if isinstance(operation, Commit):
                    self._ledger.apply(operation)
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
        described = [(row.info(), events) for row, events in self._written.items()]
        self._written.clear()
        self._rows.trim()
        return Applied(self.tip, self.depths, described)

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

    def adopt(
        self,
        info: RunInfo,
        items: Sequence[Event],
        events: Sequence[Event],
        pending: Iterable[int],
        recent: int,
    ) -> None:
        """Put in a run that another store had; call within a transaction (``adopting``).

        ``items`` is its in lane, of which ``pending`` are not taken, and ``events`` its own;
        ``recent`` is when a user spoke to it last.
        """
        new = NewRun(
            run_id=info.run_id, root_run_id=info.root_run_id, parent_run_id=info.parent_run_id,
            agent=info.agent, name=info.name, session_key=info.session_key,
            wake_at=info.wake_at, descriptor=info.descriptor,
        )  # fmt: skip
        row = self._rows.create(new, info.created_at)
        left = set(pending)
        before = [item for item in items if item.seq not in left]
        after = [item for item in items if item.seq in left]
        writes = self._ledger.writes
        for item in items:
            source, key = identity_of(item)  # type: ignore[arg-type]
            if key:
                writes.accepted[row, source, key] = item  # type: ignore[assignment]
        for item in after:
            row.waiting[item.seq] = item  # type: ignore[assignment]
            row.messages += isinstance(item, SessionMessage)
        writes.events.append((row, (*before, *events, *after)))
        writes.rows[row] = None
        row.seq, row.in_seq, row.recent = len(events), len(items), recent
        row.status, row.inbox = info.status, info.inbox

    def adopting(self, put: Callable[[], None]) -> None:
        """Do ``put``, all or nothing, durably."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            put()
            self._flush()
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._written.clear()

    # ── what the ledger has decided ──────────────────────────────────────────────────────────

    def _flush(self) -> None:
        """Give the database what the ledger has decided since this was last done."""
        writes, self._ledger.writes = self._ledger.writes, Writes()
        many = self._db.executemany
        if writes.events:
            self._append(writes)
        if writes.rows:
            for row in writes.rows:
                self._count(row)
            self._rows.put(writes.rows)
        if writes.taken:
            taken = [(row.number, seq) for row, seq in writes.taken]
            many("DELETE FROM waiting WHERE run = ? AND seq = ?", taken)
        if writes.notes:
            many(_PUT_NOTE, writes.notes.items())
        if writes.requests:
            noted = writes.requests.items()
            many(_PUT_NOTE, [(f"{REQUESTS}{name}", note) for name, (_, note) in noted])

    def _append(self, writes: Writes[Row]) -> None:
        """Write events, at the next positions, and what in lanes have beside them."""
        events: list[tuple[Any, ...]] = []
        waiting: list[tuple[int, int, int]] = []
        for row, some in writes.events:
            if row is None:
                events += map(self._in_hub_lane, some)
                continue
            for event in some:
                body = _body_of(event)
                self.tip += 1
                row.chain = zlib.crc32(body, row.chain)
                events.append((
                    self.tip, row.number, row.root, event.lane, event.seq, event.type, row.chain,
                    body.decode(),
                ))  # fmt: skip
                # What has been taken since waits no more: nothing is to be written of that.
                if event.lane == "in" and event.seq in row.waiting:
                    waiting.append((row.number, event.seq, self.tip))
            row.born = row.born or self.tip - len(some) + 1
            if row.descriptor is not None:
                self._written.setdefault(row, []).extend(some)
        many = self._db.executemany
        many("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)", events)
        if waiting:
            many("INSERT INTO waiting VALUES (?, ?, ?)", waiting)
        if writes.accepted:
            places = {(run, seq): at for at, run, _, lane, seq, *_ in events if lane == "in"}
            accepted = [
                (row.number, source, key, places[row.number, item.seq])
                for (row, source, key), item in writes.accepted.items()
            ]
            many("INSERT INTO accepted VALUES (?, ?, ?, ?)", accepted)

    def _in_hub_lane(self, event: Event) -> tuple[Any, ...]:
        body = _body_of(event)
        self.tip += 1
        self._hub_chain = zlib.crc32(body, self._hub_chain)
        run = self._rows.number(event.run_id) if event.run_id else 0
        root = self._rows.number(event.root_run_id) if event.root_run_id else 0
        return (self.tip, run, root, "hub", event.seq, event.type, self._hub_chain, body.decode())

    def _count(self, row: Row) -> None:
        before, now = row.counted, depths_of(row)
        if now != before:
            live, parked, waiting = self.depths
            self.depths = (
                live + now[0] - before[0], parked + now[1] - before[1], waiting + now[2] - before[2]
            )  # fmt: skip
            row.counted = now


class Unwritable(Exception):
    """An event that cannot be encoded."""


def _body_of(event: Event) -> bytes:
    try:
        return encode_event(event)
    except BadValue as error:  # Else it would be taken for a row's that is damaged.
        raise Unwritable(str(error)) from error


def is_of_contents(error: Exception) -> bool:
    """Whether what was to be written is to blame, rather than the disk or the database."""
    return isinstance(error, _OF_CONTENTS) or not isinstance(error, _OF_OTHERS)


_OF_CONTENTS: Final = (sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
_OF_OTHERS: Final = (sqlite3.Error, OSError, MemoryError)
_MAX_RECENT: Final = 1 << 60
"""A later time (µs) is damage, and would leave no later one for any conversation."""

_PUT_NOTE: Final = "INSERT INTO note VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value"
