"""``PostgresWriter``: a batch of commits is one transaction, in two messages to the server.

    1  BEGIN, the head (locked: groups of all processes come one by one), the worker's row (fence),
       whose the trees are, everything that the batch needs
       the ledger decides; contents that accepted items bring are written at once
    2  events, rows, what waits, keys, notes, secrets, trees, the head, COMMIT

Where the connection is lost once the second message is on its way, it is in doubt whether the
batch was committed: the number of the group in the worker's row answers that.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg
from msgspec import Struct

from hubbub.hub.errors import BadValue
from hubbub.hub.snapshots.draft import SnapshotDraft
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.ledger import Ledger
from hubbub.runtime.stores.postgres.lease import LeaseOver, WorkerLease
from hubbub.runtime.stores.postgres.removal.removals import remove_runs, remove_turns
from hubbub.runtime.stores.postgres.rows import PostgresRows
from hubbub.runtime.stores.postgres.sealing import Seal
from hubbub.runtime.stores.postgres.server.faults import is_of_contents, is_of_removal
from hubbub.runtime.stores.postgres.share import PostgresShare
from hubbub.runtime.stores.postgres.trees import CameTo, GroupTrees
from hubbub.runtime.stores.sql.rows import Depths, values_of
from hubbub.runtime.stores.sql.tables import EVENTS, RUNS
from hubbub.runtime.stores.sql.writer import (
    Applied,
    Changes,
    LedgerWriter,
    Operation,
    SecretChange,
)

__all__ = ["PUT_CONTENT", "Group", "PostgresWriter"]


class Group(Struct, frozen=True):
    """What a batch has come to."""

    before: int
    """The position before its first event."""
    depths: Depths
    came_to: Mapping[Commit, CameTo]
    """Of those commits that have opened or ended a tree."""


class PostgresWriter(LedgerWriter):
    """Writes batches.  After an error, ``resume`` comes before the next one."""

    _rows: PostgresRows

    def __init__(
        self,
        lease: WorkerLease,
        seal: Seal,
        share: PostgresShare,
    ) -> None:
        self._lease = lease
        self._db = lease.db
        self._seal = seal
        self._share = share
        self._in_doubt: tuple[int, int, Group] | None = None
        """What the batch has come to whose commit nobody has acknowledged yet, with its worker and
        its number."""
        self._had_no_turn = False
        """Whether the last attempt has waited for its turn in vain."""
        self._seen = -1
        """The version of the store that this writer has made last."""
        self._compares = False
        """Whether others have written between the last two groups: then it is asked at once what
        has changed."""
        super().__init__(self._db)

    def _begin(self) -> None:
        """Take what is needed from the database, from now on."""
        self._rows = PostgresRows(self._db, self._flush)
        self._trees = GroupTrees(self._db, self._rows)
        self._ledger = Ledger(self._rows)
        select = "SELECT position, live, parked, waiting FROM head WHERE log = 0"
        self.tip, *depths = self._db.execute(select).fetchone()
        self.depths = (depths[0], depths[1], depths[2])
        self._seen, self._transaction = -1, 0
        self._needs: dict[int, int] = {}
        """By root, the formats that know what is recorded by the group."""
        self._is_touched = False
        """Whether what is in memory may be of an attempt that came to nothing."""

    def resume(self) -> Group | None:
        """Go on after an attempt that failed: what the batch has come to if it was committed all
        the same; else it is to be written again, as it was before it was tried.

        Raises ``psycopg.Error`` where the server is still away.
        """
        if self._in_doubt is not None:  # Whatever was said: only a new connection knows.
            self._db.close()
        self._db.roll_back()
        if self._db.is_lost:
            self._lease.reconnect()
        if self._had_no_turn:
            self._had_no_turn = False
            self._lease.end_who_stands_still()
        if self._in_doubt is not None:
            worker, number, group = self._in_doubt
            if self._lease.committed(worker) == number:
                return self._settled(group)
            self._in_doubt = None
        if self._is_touched:
            self._begin_again()
        return None

    def forget(self) -> None:
        """Take everything from the database: what was tried could not be written."""
        self._in_doubt = None
        self._begin_again()

    # ── a batch ──────────────────────────────────────────────────────────────────────────────

    def write(self, batch: Sequence[Operation]) -> Group:
        """Write a batch, all or nothing, durably.

        Raises ``LeaseOver`` and ``psycopg.Error``.
        """
        db = self._db
        commits = [each for each in batch if isinstance(each, Commit)]
        try:
            with db.pipeline():
                db.execute("BEGIN")
                head = db.execute(_LOCK_HEAD)
                renewed = db.execute(*self._lease.renewal())
                asked = self._rows.ask(batch, compares=self._compares)
                trees = self._trees.ask(commits)
        except psycopg.errors.LockNotAvailable:
            self._had_no_turn = True
            raise
        if renewed.fetchone() is None:
            db.roll_back()
            raise LeaseOver
        self._is_touched = True
        is_alone = self._take_head(head.fetchone())
        if not (is_alone or self._compares):
            with db.pipeline():
                self._rows.compare(asked, asked.wanted)
        self._compares = not is_alone
        self._rows.take_in(asked, is_alone=is_alone)
        self._trees.take_in(trees)
        before = self.tip
        came_to = {commit: found for commit in commits if (found := self._decide(commit))}
        changes = self._changes()
        group = Group(before, self.depths, came_to)
        with db.pipeline():
            self._send(changes)
            self._trees.send()
            self._send_needs()
            self._send_secrets(batch)
            self._send_head(changes)
            # From here on the server may have it, and nobody may hear of that.
            self._in_doubt = (self._lease.worker, self._lease.group, group)
            db.execute("COMMIT")
        return self._settled(group)

    def keep_snapshot(self, draft: SnapshotDraft) -> None:
        """Keep a snapshot, unless its run has gone; who has it go meanwhile waits for that."""
        self._db.execute("BEGIN")
        try:
            if self._db.execute(_HOLD_RUN, (draft.run_id,)).fetchone() is not None:
                self.snapshots.keep(draft)
            self._db.execute("COMMIT")
        except BaseException:
            self._db.roll_back()
            raise

    def _write(self, batch: Sequence[Operation]) -> Applied:
        self.write(batch)
        return Applied(self.tip, self.depths, ())

    def _take_head(self, head: Sequence[int]) -> bool:
        """Begin where the store has come to; whether nobody else has written in between."""
        self.tip, hub_seq, self._hub_chain, self._recent, *depths, version, transaction = head
        self.depths = (depths[0], depths[1], depths[2])
        self._ledger = Ledger(self._rows, hub_seq=hub_seq, recent=self._recent)
        is_alone, self._seen = self._seen in (version, -1), version + 1
        self._transaction = transaction & 0xFFFF_FFFF
        return is_alone

    def _decide(self, commit: Commit) -> CameTo | None:
        """Have the ledger decide, unless the commit writes a lane that is not this worker's."""
        lease = self._lease
        if commit.gone or commit.cut is not None:
            self._let_go(commit)
            return None
        if commit.run_id:
            try:
                row = self._rows.find(commit.run_id)
            except BadValue:  # A damaged row: the ledger says so.
                row = None
            if row is not None:
                epoch = self._share.epoch_of(commit, row.root_run_id)
                if self._trees.is_refused(row, lease.worker, epoch):
                    commit.error = "conflict"
                    return None
        self._ledger.apply(commit)
        self._keep_contents(commit)
        own = () if lease.drains else self._share.opens(commit)
        return self._trees.applied(commit, lease.worker, own)

    def _let_go(self, commit: Commit) -> None:
        """Have trees go, unless one of them lives, or old turns of a run."""
        self._flush()  # What it removes must be there, and what follows must not.
        if self._trees.is_any_alive(commit.gone):
            commit.error = "conflict"
            return
        self._ledger.apply(commit)
        self._flush()

    def _settled(self, group: Group) -> Group:
        if self._in_doubt is not None:
            self._lease.acknowledged = self._in_doubt[1]
        self._in_doubt, self._is_touched = None, False
        self._rows.settle(self._share.owns)
        self._written.clear()  # Nothing here shows runs in folders.
        return group

    def _put(self, changes: Changes) -> None:
        """For what is searched in the database in the middle of a batch."""
        with self._db.pipeline():
            self._send(changes)
            self._recent = max(self._recent, *(row.recent for row in changes.runs), 0)
        for row, cut in changes.cuts:  # It asks first what is to go.
            remove_turns(self._db, row, cut)
        self._rows.wrote_keys()

    def _send(self, changes: Changes) -> None:
        execute = self._db.execute
        if new := self._rows.new_numbers:
            execute(_PUT_NUMBERS, (list(new.values()), list(new)))
            self._rows.new_numbers = {}
        if changes.events:
            for _, _, root, lane, _, type_, *_ in changes.events:
                if lane != "hub" and (needs := self._lease.records.get(type_)):
                    self._needs[root] = max(needs, self._needs.get(root, 0))
            execute(_PUT_EVENTS, (*_columns(changes.events), self._lease.worker))
        if changes.waiting:
            execute(_PUT_WAITING, _columns(changes.waiting))
        if changes.accepted:
            execute(_PUT_ACCEPTED, _columns(changes.accepted))
        if changes.runs:
            execute(_PUT_RUNS, _columns([values_of(row) for row in changes.runs]))
            self._rows.wrote(changes.runs, self._transaction)
        if changes.taken:
            execute(_TAKE, _columns(changes.taken))
        if changes.notes:
            execute(_PUT_NOTES, _columns(list(dict(changes.notes).items())))
        if changes.gone:  # In a batch of its own: these are its notes.
            emptied = [key for key, note in changes.notes if not note]
            remove_runs(self._db, changes.gone, emptied)

    def _send_needs(self) -> None:
        """Note which trees have records that not every program at work knows."""
        if self._needs:
            self._db.execute(_PUT_NEEDS, (list(self._needs), list(self._needs.values())))
            self._needs = {}

    def _keep_contents(self, commit: Commit) -> None:
        """Contents that accepted items bring: what comes next may name them."""
        for delivery in commit.deliveries:
            if delivery.contents and delivery.outcome == "accepted":
                for digest, content in delivery.contents.items():
                    self._db.execute(PUT_CONTENT, (digest, bytes(content)))

    def _send_secrets(self, batch: Sequence[Operation]) -> None:
        for operation in batch:
            if isinstance(operation, SecretChange):
                self._send_secret(operation)

    def _send_secret(self, change: SecretChange) -> None:
        if change.value is None:
            self._db.execute("DELETE FROM secret WHERE starts_with(key, ?)", (change.key,))
            return
        sealed = self._seal.close(change.key, change.value)
        self._db.execute(_PUT_SECRET, (change.key, sealed, self._seen, self._lease.worker))

    def _send_head(self, changes: Changes) -> None:
        self._recent = max((self._recent, *(row.recent for row in changes.runs)))
        self._db.execute(
            "UPDATE head SET position = ?, hub_seq = ?, hub_crc = ?, recent = ?, live = ?, "
            "parked = ?, waiting = ?, version = ? WHERE log = 0",
            (
                self.tip,
                self._ledger.hub_seq,
                self._hub_chain,
                self._recent,
                *self.depths,
                self._seen,
            ),
        )

    def _is_of_contents(self, error: Exception) -> bool:
        return is_of_contents(error)

    def _is_of_removal(self, error: Exception) -> bool:
        return is_of_removal(error)


def _columns(rows: Sequence[Sequence[Any]]) -> tuple[list[Any], ...]:
    return tuple(map(list, zip(*rows, strict=True)))


def _unnested(*types: str) -> str:
    return ", ".join(f"?::{each}[]" for each in types)


_BIG, _TEXT = "bigint", "text"

_HEAD: Final = "SELECT position, hub_seq, hub_crc, recent, live, parked, waiting, version"
_LOCK_HEAD: Final = (
    f"{_HEAD}, pg_current_xact_id()::text::bigint FROM head WHERE log = 0 FOR UPDATE"
)

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
_PUT_NEEDS: Final = (
    "UPDATE tree SET needs = greatest(tree.needs, new.needs), owner = CASE "
    "WHEN new.needs > (SELECT format FROM worker WHERE id = tree.owner) THEN NULL ELSE owner END "
    "FROM unnest(?::bigint[], ?::integer[]) AS new (root, needs) WHERE tree.root = new.root"
)
"""An owner that does not know the record loses the tree."""
_HOLD_RUN: Final = "SELECT 1 FROM run WHERE run_id = ? FOR KEY SHARE"
_TAKE: Final = (
    f"DELETE FROM waiting USING unnest({_unnested(_BIG, _BIG)}) AS taken (run, seq) "
    "WHERE waiting.run = taken.run AND waiting.seq = taken.seq"
)
_PUT_NOTES: Final = (
    f"INSERT INTO note (key, value) SELECT * FROM unnest({_unnested(_TEXT, _TEXT)}) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value, version = note.version + 1"
)
_PUT_SECRET: Final = (
    "INSERT INTO secret (key, value, version, writer) VALUES (?, ?, ?, ?) ON CONFLICT (key) "
    "DO UPDATE SET value = excluded.value, version = excluded.version, writer = excluded.writer"
)
PUT_CONTENT: Final = "INSERT INTO blob (digest, content) VALUES (?, ?) ON CONFLICT DO NOTHING"
"""Keeps a content by its digest."""
