"""``LedgerWriter``: what a store's one writer does with a batch of commits.

Runs in the store's writing thread and nowhere else.  What a commit comes to is decided by the
hub's ledger (``hub/store/ledger.py``) with rows of a database, of which those of runs at work are
kept at hand; here that becomes rows of tables, which each database keeps in its own way.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from hubbub.hub.errors import BadValue
from hubbub.hub.events import AgentBase, Event
from hubbub.hub.events.codec import encode_event
from hubbub.hub.logs import log
from hubbub.hub.masking import words_of
from hubbub.hub.store.journal import Commit, Cut, RunInfo
from hubbub.hub.store.ledger import Ledger, Writes
from hubbub.hub.store.ledger_row import Settled
from hubbub.runtime.stores.sql.connection import SqlConnection
from hubbub.runtime.stores.sql.rows import REQUESTS, Depths, Row, StoredRows, depths_of
from hubbub.runtime.stores.sql.snapshots import KeptSnapshots

__all__ = [
    "Applied",
    "Attempt",
    "Changes",
    "LedgerWriter",
    "Operation",
    "SecretChange",
    "Unwritable",
]


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


class Changes(msgspec.Struct):
    """Rows for the tables; each part in order, the parts as they stand here."""

    events: list[tuple[Any, ...]] = msgspec.field(default_factory=list)
    """Position, run, root, lane, seq, type, crc, body."""
    waiting: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    accepted: list[tuple[int, str, str, int]] = msgspec.field(default_factory=list)
    runs: Sequence[Row] = ()
    """Created or changed."""
    taken: Sequence[tuple[int, int]] = ()
    """Run and number of what waits no more."""
    notes: Sequence[tuple[str, str]] = ()
    gone: Sequence[Row] = ()
    cuts: Sequence[tuple[Row, Cut]] = ()
    """Runs, and the bases that what goes of them stands before."""


class Attempt:
    """A batch as it was before it was tried to be written."""

    __slots__ = ("_batch", "_given")

    def __init__(self, batch: Iterable[Operation]) -> None:
        self._batch = [each for each in batch if isinstance(each, Commit)]
        self._given = [(x, x.event) for commit in self._batch for x in commit.deliveries]

    def tell(self, error: Exception) -> None:
        """Log that the batch cannot be written.  Of what is to go who submits it says so, once."""
        if not (self._batch and all(commit.gone for commit in self._batch)):
            log.error("commit.unwritable", batch=len(self._batch), exc_info=error)

    def undo(self) -> None:
        """Have the batch be as though it had not been tried."""
        for delivery, event in self._given:
            delivery.event = event
        for commit in self._batch:
            commit.forget_outcome()


class LedgerWriter(ABC):
    """Applies commits.  After an error of the database everything is taken from it again."""

    tip: int
    depths: Depths
    _rows: StoredRows
    _ledger: Ledger[Row]
    _hub_chain: int

    def __init__(self, db: SqlConnection) -> None:
        self.snapshots = KeptSnapshots(db)
        self._written: dict[Row, list[Event]] = {}
        self._begin()

    # ── what a database does in its own way ──────────────────────────────────────────────────

    @abstractmethod
    def _begin(self) -> None:
        """Take everything from the database: rows, ledger, tip, depths."""

    @abstractmethod
    def _write(self, batch: Sequence[Operation]) -> Applied:
        """Write a batch in one transaction."""

    @abstractmethod
    def _put(self, changes: Changes) -> None:
        """Give the database rows, within a transaction."""

    @abstractmethod
    def _is_of_contents(self, error: Exception) -> bool:
        """Whether what was to be written is to blame, rather than the database."""

    @abstractmethod
    def _is_of_removal(self, error: Exception) -> bool:
        """Whether somebody may have had just the removal of rows refused.  Of what only adds to the
        store the same is said of the database."""

    def is_of_batch(self, error: Exception, batch: Iterable[Operation]) -> bool:
        """Whether some of what was to be written is to blame, rather than the database."""
        removes = any(isinstance(each, Commit) and (each.gone or each.cut) for each in batch)
        return self._is_of_contents(error) or (removes and self._is_of_removal(error))

    # ── a batch ──────────────────────────────────────────────────────────────────────────────

    def apply(self, batch: Iterable[Operation]) -> Applied:
        """Write a batch, all or nothing, durably; except for what cannot be written for its own
        contents, which has its own ``error`` and leaves the others as they would be without it.

        Each commit's ``error``, ``written`` and outcomes are filled in.  Raises the database's
        errors, and then nothing of the batch is in the store, as far as the writer knows.
        """
        batch = tuple(batch)
        attempt = Attempt(batch)
        try:
            return self._write(batch)
        except Exception as error:
            if not self.is_of_batch(error, batch):
                raise
            attempt.tell(error)
        attempt.undo()
        return self._write_apart(batch)

    def _write_apart(self, batch: Iterable[Operation]) -> Applied:
        """Write each by itself: something in the batch is no store's to keep."""
        described: list[tuple[RunInfo, Sequence[Event]]] = []
        self._begin_again()
        for operation in batch:
            try:
                described += self._write((operation,)).described
            except Exception as error:
                if not self.is_of_batch(error, (operation,)):
                    raise
                self._begin_again()
                if isinstance(operation, Commit):
                    operation.forget_outcome()
                    operation.error = f"it cannot be written: {words_of(error)}"
        return Applied(self.tip, self.depths, described)

    def _begin_again(self) -> None:
        self._written = {}
        self._begin()

    def _applied(self) -> Applied:
        """What a batch has come to, once it is committed."""
        described = [(row.info(), events) for row, events in self._written.items()]
        self._written.clear()
        self._rows.trim()
        return Applied(self.tip, self.depths, described)

    # ── what the ledger has decided ──────────────────────────────────────────────────────────

    def _flush(self) -> None:
        """Give the database what the ledger has decided since this was last done."""
        self._put(self._changes())

    def _changes(self) -> Changes:
        """What the ledger has decided since this was last asked, as rows."""
        writes, self._ledger.writes = self._ledger.writes, Writes()
        changes = Changes()
        if writes.events:
            self._append(writes, changes)
        for row in writes.rows:
            self._count(row)
        changes.runs = tuple(writes.rows)
        changes.taken = [(row.number, seq) for row, seq in writes.taken]
        notes = list(writes.notes.items())
        notes += [(f"{REQUESTS}{name}", note) for name, (_, note) in writes.requests.items()]
        changes.notes = notes
        changes.gone, changes.cuts = writes.gone, writes.cuts
        for row in writes.gone:
            self.snapshots.forget(row.run_id)
        return changes

    def _append(self, writes: Writes[Row], changes: Changes) -> None:
        """Number events, at the next positions, and what in lanes have beside them."""
        events = changes.events
        for row, some in writes.events:
            if row is None:
                events += map(self._in_hub_lane, some)
                continue
            size = 0
            for event in some:
                body = _body_of(event)
                size += len(body)
                self.tip += 1
                before = 0 if event.__class__ is AgentBase else row.chain
                row.chain = zlib.crc32(body, before)  # ``checksum_after``.
                events.append((
                    self.tip, row.number, row.root, event.lane, event.seq, event.type, row.chain,
                    body.decode(),
                ))  # fmt: skip
                # What has been taken since waits no more: nothing is to be written of that.
                if event.lane == "in" and event.seq in row.waiting:
                    changes.waiting.append((row.number, event.seq, self.tip))
            self.snapshots.grew(row.run_id, size)
            row.born = row.born or self.tip - len(some) + 1
            if row.descriptor is not None:
                self._written.setdefault(row, []).extend(some)
        if writes.accepted:
            places = {(run, seq): at for at, run, _, lane, seq, *_ in events if lane == "in"}
            changes.accepted = [
                (
                    row.number, source, key,
                    -item.number if isinstance(item, Settled) else places[row.number, item.seq],
                )
                for (row, source, key), item in writes.accepted.items()
            ]  # fmt: skip

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
