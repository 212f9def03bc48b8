"""What the store's one writer does with a batch of commits: one transaction, in order.

Runs in the store's writing thread and nowhere else.  The rules of an inbox are the hub's
(``hub/store/inbox_rules.py``); here they are asked with rows of a database, of which those of runs
at work are kept at hand.
"""

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import structs

from hubbub.hub.addressing import identity_of
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event, InLane, SessionMessage
from hubbub.hub.events.codec import decode_event, encode_event
from hubbub.hub.events.descriptors import is_identity
from hubbub.hub.logs import log
from hubbub.hub.masking import words_of
from hubbub.hub.store.inbox_rules import (
    can_be_left_over,
    found_instead,
    heir_of,
    judge,
    lenders,
    moved,
    numbered,
    placed,
    take_out,
    without_key,
)
from hubbub.hub.store.journal import Addressing, Commit, Delivery, NewRun, RunInfo
from hubbub.runtime.stores.sqlite.addresses import candidates, found_for, is_key_free
from hubbub.runtime.stores.sqlite.rows import Row, Rows

__all__ = ["Applied", "Depths", "Operation", "SecretChange", "SqliteWriter"]

Depths: TypeAlias = tuple[int, int, int]
"""Live runs, parked runs, items waiting."""


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

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._begin()
        select = "SELECT value FROM meta WHERE key = 'projected'"
        self.safe = int((db.execute(select).fetchone() or ("0",))[0])
        """Up to where the agents' folders are known to be on the disk; written with a batch."""
        self._safe_written = self.safe

    def _begin(self) -> None:
        """Take everything from the database."""
        db = self._db
        self._rows = Rows(db)
        self._written: dict[Row, list[Event]] = {}
        self._events: list[tuple[Any, ...]] = []
        self._added: list[tuple[int, int, int]] = []
        self._removed: list[tuple[int, int]] = []
        self._accepted: dict[tuple[int, str, str], tuple[int, Event]] = {}
        one = db.execute
        self.tip: int = one("SELECT coalesce(max(position), 0) FROM event").fetchone()[0]
        hub = one(
            "SELECT seq, crc FROM event WHERE position = "
            "(SELECT max(position) FROM event WHERE lane = 'hub')"
        )
        last: tuple[int, int] = hub.fetchone() or (0, 0)
        self._hub_seq, self._hub_chain = last
        newest = "SELECT coalesce(max(recent), 0) FROM run WHERE inbox = 'open' AND kind IN "
        self._recent: int = one(f"{newest} ('user', 'heartbeat')").fetchone()[0]
        """When a user spoke to anybody last (µs); grows even while the clock is set back."""
        self.depths: Depths = one(
            "SELECT count(*), coalesce(sum(status IN ('parked', 'waiting')), 0), "
            "coalesce(sum(waiting), 0) FROM run WHERE status <> 'ended'"
        ).fetchone()

    # ── a batch ──────────────────────────────────────────────────────────────────────────────

    def apply(self, batch: Iterable[Operation]) -> Applied:
        """Write a batch, all or nothing, durably; but for what cannot be written for its own
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
                    self._apply(operation)
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

    def checkpoint(self) -> None:
        """Move what the log holds into the file, as far as no reader is in the way."""
        self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _apply(self, commit: Commit) -> None:
        try:
            if commit.run_id:
                self._write_own(commit)
            elif commit.events:
                self._write_hub(commit)
        except BadValue as error:  # Found before anything of the commit was written.
            commit.error = str(error)
        if commit.error:
            return
        for delivery in commit.deliveries:
            try:
                self._deliver(commit, delivery)
            except BadValue:  # What waits there is damaged: that is one run's trouble.
                delivery.outcome, delivery.reason = "rejected", "unreadable"
        if commit.notes:
            self._db.executemany(
                "INSERT INTO note VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
                commit.notes.items(),
            )

    def _write_own(self, commit: Commit) -> None:
        row = self._rows.find(commit.run_id)
        if row is None or row.seq != commit.expect or row.status == "ended":
            commit.error = "conflict"
            return
        lent = lenders(commit, row, self._rows.find) if commit.lent else ()
        if lent is None or not row.waiting.keys() >= set(commit.taken):
            commit.error = "conflict"
            return
        before = row.status, len(row.waiting)
        self._append(row, commit.events, [encode_event(event) for event in commit.events])
        commit.written.extend(commit.events)
        row.seq += len(commit.events)
        self._rows.changed[row] = None
        for seq in commit.taken:
            take_out(row, seq)
            self._removed.append((row.number, seq))
        for lender, seq in lent:
            self._lend(lender, seq)
        if commit.agent:
            row.agent = commit.agent
        if commit.status is not None:
            row.status = commit.status
            if commit.status == "ended":
                self._end(commit, row)
        self._count(before, row)

    def _lend(self, lender: Row, seq: int) -> None:
        before = lender.status, len(lender.waiting)
        take_out(lender, seq)
        self._removed.append((lender.number, seq))
        self._rows.changed[lender] = None
        self._count(before, lender)

    def _end(self, commit: Commit, row: Row) -> None:
        """Close a run's inbox, and dispose of what it holds."""
        commit.leftovers = [x for x in row.waiting.values() if can_be_left_over(x)]
        self._removed.extend((row.number, seq) for seq in row.waiting)
        row.waiting.clear()
        row.messages = 0
        if row.inbox != "terminated":
            row.inbox = "ended"
        if not commit.leave_to:
            return
        try:
            heir = heir_of(commit, self._rows.find)
        except BadValue:  # What waits there is damaged: that must not keep this run from ending.
            return
        for message in moved(commit, heir):
            assert heir is not None
            self._put(commit, heir, message, (heir.status, len(heir.waiting)))

    def _count(self, before: tuple[str, int], row: Row) -> None:
        live, parked, waiting = self.depths
        status, items = before
        self.depths = (
            live + (row.status != "ended") - (status != "ended"),
            parked + (row.status in _PARKED) - (status in _PARKED),
            waiting + len(row.waiting) - items,
        )

    def _write_hub(self, commit: Commit) -> None:
        events = []
        for event in commit.events:
            self._hub_seq += 1
            events.append(structs.replace(event, lane="hub", seq=self._hub_seq))
        bodies = [encode_event(event) for event in events]
        for event, body in zip(events, bodies, strict=True):
            self.tip += 1
            self._hub_chain = zlib.crc32(body, self._hub_chain)
            run = self._rows.number(event.run_id) if event.run_id else 0
            root = self._rows.number(event.root_run_id) if event.root_run_id else 0
            self._events.append(
                (self.tip, run, root, "hub", event.seq, event.type, self._hub_chain, body.decode())
            )
        commit.written.extend(events)

    def _append(self, row: Row, events: Sequence[Event], bodies: Sequence[bytes]) -> None:
        for event, body in zip(events, bodies, strict=True):
            self.tip += 1
            row.chain = zlib.crc32(body, row.chain)
            self._events.append((
                self.tip, row.number, row.root, event.lane, event.seq, event.type, row.chain,
                body.decode(),
            ))  # fmt: skip
        if row.descriptor is not None:
            self._written.setdefault(row, []).extend(events)

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
        for event in (*before, *events, *after):
            self._append(row, (event,), (encode_event(event),))
            row.born = row.born or self.tip
            source, key = identity_of(event) if event.lane == "in" else ("", "")  # type: ignore[arg-type]
            if key:
                self._accepted[row.number, source, key] = (self.tip, event)
            if event.seq in left and event.lane == "in":
                row.waiting[event.seq] = event  # type: ignore[assignment]
                row.messages += isinstance(event, SessionMessage)
                self._added.append((row.number, event.seq, self.tip))
        row.is_new = False
        row.seq, row.in_seq, row.recent = len(events), len(items), recent
        row.status, row.inbox = info.status, info.inbox
        self._count(("ended", 0), row)

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

    # ── deliveries ───────────────────────────────────────────────────────────────────────────

    def _deliver(self, commit: Commit, delivery: Delivery) -> None:
        if delivery.by in ("every", "below"):
            self._deliver_to_many(commit, delivery)
            return
        row = self._address(delivery)
        if row is None:
            return
        if row.in_seq and not self._takes(row, delivery):  # What opens a run is always taken.
            return
        before = row.status, len(row.waiting)
        row.in_seq += 1
        event = delivery.event = numbered(row, delivery.event)
        delivery.outcome = "accepted"
        if delivery.closes and row.inbox != "terminated":
            row.inbox = delivery.closes
        if row.is_new:
            row.is_new = False
            before = "ended", 0
        self._put(commit, row, event, before)
        if delivery.touches:
            self._recent = row.recent = max(event.at, self._recent + 1)
        if delivery.key:
            self._accepted[row.number, delivery.source, delivery.key] = (self.tip, event)

    def _put(self, commit: Commit, row: Row, item: InLane, before: tuple[str, int]) -> None:
        """Write the next item of a run's in lane, which waits from now on."""
        self._append(row, (item,), (encode_event(item),))
        row.born = row.born or self.tip
        row.waiting[item.seq] = item
        self._added.append((row.number, item.seq, self.tip))
        if item.__class__ is SessionMessage:
            row.messages += 1
        self._rows.changed[row] = None
        self._count(before, row)
        commit.written.append(item)

    def _takes(self, row: Row, delivery: Delivery) -> bool:
        if found_instead(row, delivery):
            return False
        return judge(row, delivery, self._known(row, delivery) if delivery.key else None)

    def _deliver_to_many(self, commit: Commit, delivery: Delivery) -> None:
        for run_id in self._candidates(delivery.to, delivery.by):
            one = Delivery(delivery.event, run_id, closes=delivery.closes)
            self._deliver(commit, one)
            if one.outcome == "accepted":
                delivery.run_ids += (run_id,)
        delivery.outcome = "accepted"

    def _known(self, row: Row, delivery: Delivery) -> Event | None:
        """What was accepted under the delivery's source and key."""
        if row.status == "ended":
            return None
        named = (row.number, delivery.source, delivery.key)
        if named in self._accepted:
            return self._accepted[named][1]
        found = self._db.execute(
            "SELECT body FROM event WHERE position = "
            "(SELECT position FROM accepted WHERE run = ? AND source = ? AND key = ?)",
            named,
        ).fetchone()
        return decode_event(found[0]) if found is not None else None

    def _address(self, delivery: Delivery) -> Row | None:
        new = delivery.new
        if new is not None:
            return self._open(new, delivery)
        found = self._candidates(delivery.to, delivery.by)
        delivery.run_ids = tuple(found)
        row = self._rows.find(found[0]) if len(found) == 1 else None
        if row is None:
            delivery.outcome = "rejected"
            delivery.reason = "ambiguous" if len(found) > 1 else "unknown"
        return row

    def _open(self, new: NewRun, delivery: Delivery) -> Row | None:
        """The run that an opening is for, made if there is none."""
        found = None
        if new.session_key or is_identity(new.descriptor):
            self._flush()
            found = found_for(self._db, new)
        delivery.run_ids = (found or new.run_id,)
        if (row := self._rows.find(delivery.run_ids[0])) is not None:
            return row
        if new.by_descriptor and not is_key_free(self._db, new.session_key):
            new = without_key(new, delivery)
        made = new if new.root_run_id else placed(new, delivery, self._rows.find)
        return None if made is None else self._rows.create(made, delivery.event.at)

    def _candidates(self, to: str, by: Addressing) -> Sequence[str]:
        if by == "run":
            return (to,)
        self._flush()
        return candidates(self._db, to, by)

    def _flush(self) -> None:
        """Give the database what the batch has changed so far."""
        many = self._db.executemany
        self._rows.flush()
        if self._events:
            many("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?)", self._events)
            self._events.clear()
        if self._added:
            many("INSERT INTO waiting VALUES (?, ?, ?)", self._added)
            self._added.clear()
        if self._removed:
            many("DELETE FROM waiting WHERE run = ? AND seq = ?", self._removed)
            self._removed.clear()
        if self._accepted:
            rows = [(*named, position) for named, (position, _) in self._accepted.items()]
            many("INSERT INTO accepted VALUES (?, ?, ?, ?)", rows)
            self._accepted.clear()


def is_of_contents(error: Exception) -> bool:
    """Whether what was to be written is to blame, rather than the disk or the database."""
    return isinstance(error, _OF_CONTENTS) or not isinstance(error, _OF_OTHERS)


_OF_CONTENTS: Final = (sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
_OF_OTHERS: Final = (sqlite3.Error, OSError, MemoryError)
_PARKED: Final = ("parked", "waiting")
