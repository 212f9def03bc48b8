"""``PostgresRows``: the rows that a batch needs, asked for in one message before it is decided.

What was read once is kept in memory.  Where other processes have written meanwhile, each row that
is needed is compared with the one in the database, by the transaction that wrote that: the same
one stands, else it is taken from there again; of what waits, only what is new.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from hubbub.hub.events import InLane
from hubbub.hub.events.codec import decode_event
from hubbub.hub.store.journal import Commit, Delivery
from hubbub.hub.store.ledger_row import Settled
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection
from hubbub.runtime.stores.sql.connection import SqlCursor
from hubbub.runtime.stores.sql.reader import READ_ERRORS
from hubbub.runtime.stores.sql.rows import (
    COLUMNS,
    KEPT_ROWS,
    REQUESTS,
    WAITING,
    Row,
    StoredRows,
    row_of,
    row_with,
)
from hubbub.runtime.stores.sql.writer import Operation

__all__ = ["AskedRows", "PostgresRows"]

NUMBERS: Final = 64
"""Numbers that one value of the sequence ``run_number`` stands for."""


class AskedRows:
    """What was asked for a batch, and where the answers will be."""

    __slots__ = (
        "accepted",
        "changed",
        "compared",
        "items",
        "names",
        "new_items",
        "numbers",
        "requests",
        "rows",
        "run_ids",
        "unnumbered",
        "wanted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.wanted: Sequence[str] = ()
        """All runs whose rows the batch needs."""
        self.run_ids: list[str] = []
        """Those of them that are not in memory."""
        self.unnumbered: list[str] = []
        self.names: list[str] = []
        self.rows: SqlCursor | None = None
        self.items: SqlCursor | None = None
        self.changed: SqlCursor | None = None
        self.compared: dict[int, str] = {}
        """Those of which it was asked whether they have changed, by their numbers."""
        self.new_items: SqlCursor | None = None
        self.accepted: SqlCursor | None = None
        self.numbers: SqlCursor | None = None
        self.requests: SqlCursor | None = None


_Key: TypeAlias = tuple[str, str, str]


class PostgresRows(StoredRows):
    """``Rows`` of a store that other processes may write, too, between two batches."""

    def __init__(self, db: PostgresConnection, keep: Callable[[], None]) -> None:
        super().__init__(db, keep)
        self._versions: dict[str, int] = {}
        """The transactions that have written the rows in memory, as far as that is known."""
        self._fresh: set[str] | None = None
        """Runs whose rows in memory are as others have left them; ``None``: all are, so far."""
        self._absent: set[str] = set()
        """Runs that there are none of, as far as the batch goes."""
        self._unnumbered: set[str] = set()
        self._accepted: dict[_Key, InLane | Settled | None] = {}
        self._requested: dict[str, str] = {}
        self._free: list[int] = []
        """Numbers that are this process's to give, the next one last."""
        self.new_numbers: dict[str, int] = {}
        """Run ids that the database does not know yet, with their numbers."""

    # ── before a batch ───────────────────────────────────────────────────────────────────────

    def ask(self, batch: Sequence[Operation], *, compares: bool) -> AskedRows:
        """Ask for what a batch will need; call within a pipeline.

        ``compares``: also for what has changed of what is in memory.
        """
        asked, execute = AskedRows(), self._db.execute
        commits = [each for each in batch if isinstance(each, Commit)]
        asked.wanted = [*dict.fromkeys(run_id for x in commits for run_id in _runs_of(x))]
        asked.run_ids = [run_id for run_id in asked.wanted if run_id not in self._rows]
        if asked.run_ids:
            asked.rows = execute(_SELECT_ROWS, (asked.run_ids,))
            asked.items = execute(_SELECT_ITEMS, (asked.run_ids,))
        self.compare(asked, asked.wanted if compares else self._doubtful(asked.wanted))
        keys = list(dict.fromkeys(key for commit in commits for key in _keys_of(commit)))
        if keys:
            asked.accepted = execute(_SELECT_ACCEPTED, tuple(map(list, zip(*keys, strict=True))))
            self._accepted = dict.fromkeys(keys)
        ids = dict.fromkeys(run_id for commit in commits for run_id in _addresses_of(commit))
        # What is said of a run that may have gone: others have had its number go, too.
        told = {run_id for commit in commits for run_id in _told_of(commit)}
        asked.unnumbered = [x for x in ids if x not in self._numbers or x in told]
        if asked.unnumbered:
            asked.numbers = execute(_SELECT_NUMBERS, (asked.unnumbered,))
        asked.names = [
            each.request.name
            for commit in commits for each in commit.deliveries if each.request is not None
        ]  # fmt: skip
        if asked.names:
            asked.requests = execute(_SELECT_NOTES, ([f"{REQUESTS}{x}" for x in asked.names],))
        return asked

    def _doubtful(self, run_ids: Sequence[str]) -> Sequence[str]:
        fresh = self._fresh
        return () if fresh is None else [x for x in run_ids if x not in fresh]

    def compare(self, asked: AskedRows, run_ids: Sequence[str]) -> None:
        """Ask for what has changed of the rows in memory; within a pipeline."""
        known = [row for run_id in run_ids if (row := self._rows.get(run_id)) is not None]
        if known:
            numbers = [row.number for row in known]
            asked.compared = {row.number: row.run_id for row in known}
            versions = [self._versions.get(row.run_id, 0) for row in known]
            asked.changed = self._db.execute(_SELECT_CHANGED, (numbers, versions))
            read = [row.in_seq for row in known]
            asked.new_items = self._db.execute(_SELECT_NEW_ITEMS, (numbers, read))

    def take_in(self, asked: AskedRows, *, is_alone: bool) -> None:
        """Keep what was answered.  What of it is damaged is asked for again when it is needed.

        ``is_alone``: nobody else has written since the last batch.
        """
        if not is_alone:
            self._fresh = set(asked.wanted)
        elif self._fresh is not None:
            self._fresh.update(asked.wanted)
        numbered = dict(asked.numbers or ())
        self._numbers.update(numbered)
        self._unnumbered = {x for x in asked.unnumbered if x not in numbered}
        for run_id in self._unnumbered:
            self._numbers.pop(run_id, None)
        self._absent = set(asked.run_ids)
        self._renew(asked)
        items: dict[int, list[str]] = defaultdict(list)
        for run, body in asked.items or ():
            items[run].append(body)
        for run_id, root, version, *found in asked.rows or ():
            self._absent.discard(run_id)
            self._numbers[run_id] = found[0]
            if root is not None:
                self._numbers[found[2]] = root
            if len(items[found[0]]) == found[WAITING]:
                try:
                    row = row_of(run_id, found, items[found[0]], self.number)
                except READ_ERRORS:  # ``find`` raises it for the one commit.
                    continue
                self._rows[run_id] = row
                self._versions[run_id] = version
        for run_id, source, key, position, body in asked.accepted or ():
            try:
                item = Settled(-position) if position < 0 else decode_event(body)
            except READ_ERRORS:
                del self._accepted[run_id, source, key]
                continue
            self._accepted[run_id, source, key] = item  # type: ignore[assignment]
        self._requested = dict.fromkeys(asked.names, "")
        for key, value in asked.requests or ():
            self._requested[key.removeprefix(REQUESTS)] = value

    def _renew(self, asked: AskedRows) -> None:
        """Take anew the rows in memory that others have written."""
        bodies: dict[int, list[str]] = defaultdict(list)
        for run, body in asked.new_items or ():
            bodies[run].append(body)
        found = {}
        for number, version, *columns in asked.changed or ():
            if version is None:
                self.forget(asked.compared[number])
            else:
                found[asked.compared[number]] = version, columns
        if not found:
            return
        # Of what waited before, some may have been taken; which, that is rarely to be asked.
        taken_from = [
            (run_id, columns[0])
            for run_id, (_, columns) in found.items()
            if (row := self._rows.get(run_id)) is not None
            and columns[WAITING] not in (len(bodies[row.number]), self._count(row, bodies))
        ]
        still: dict[int, set[int]] = {number: set() for _, number in taken_from}
        if taken_from:
            for run, seq in self._db.execute(_SELECT_WAITING_SEQS, (list(still),)):
                still[run].add(seq)
        for run_id, (version, columns) in found.items():
            row = self._rows.pop(run_id, None)
            if row is None:
                continue
            old = list(row.waiting.values())
            if row.number in still:
                old = [item for item in old if item.seq in still[row.number]]
            elif columns[WAITING] == len(bodies[row.number]):
                old = []
            try:
                items = [*old, *map(decode_event, bodies[row.number])]
                self._numbers[row.root_run_id] = row.root
                self._rows[run_id] = row_with(run_id, columns, items, self.number)  # type: ignore[arg-type]
            except READ_ERRORS:  # ``find`` reads it all, and raises it for the one commit.
                continue
            self._versions[run_id] = version

    @staticmethod
    def _count(row: Row, bodies: dict[int, list[str]]) -> int:
        return len(row.waiting) + len(bodies[row.number])

    # ── what a ledger asks ───────────────────────────────────────────────────────────────────

    def find(self, run_id: str, /) -> Row | None:
        if run_id in self._absent:
            return None
        if self._fresh is not None and run_id not in self._fresh:
            # Found by a search, and not by its id: nobody has compared it.
            self._fresh.add(run_id)
            self._rows.pop(run_id, None)
            self._versions.pop(run_id, None)
        return super().find(run_id)

    def create(self, new: Any, at: int) -> Row:
        self._absent.discard(new.run_id)
        if self._fresh is not None:
            self._fresh.add(new.run_id)
        return super().create(new, at)

    def forget(self, run_id: str, /) -> None:
        super().forget(run_id)
        self._versions.pop(run_id, None)
        self._absent.add(run_id)

    def root_of(self, run_id: str) -> int | None:
        """The number of a run's root, where its row is in memory."""
        row = self._rows.get(run_id)
        return None if row is None else row.root

    def known(self, row: Row, source: str, key: str) -> InLane | Settled | None:
        asked = (row.run_id, source, key)
        if asked in self._accepted:
            return self._accepted[asked]
        return super().known(row, source, key)

    def requested(self, name: str) -> str:
        found = self._requested.get(name)
        return super().requested(name) if found is None else found

    def number(self, run_id: str) -> int:
        number = self._numbers.get(run_id)
        if number is None and run_id not in self._unnumbered:
            select = "SELECT number FROM address WHERE run_id = ?"
            found = self._db.execute(select, (run_id,)).fetchone()
            number = found[0] if found is not None else None
        if number is None:
            if not self._free:
                ((first,),) = self._db.execute("SELECT nextval('run_number')").fetchall()
                self._free = [*range(first + NUMBERS - 1, first - 1, -1)]
            number = self.new_numbers[run_id] = self._free.pop()
            self._unnumbered.discard(run_id)
        self._numbers[run_id] = number
        return number

    # ── what the writer asks ─────────────────────────────────────────────────────────────────

    def wrote(self, rows: Iterable[Row], transaction: int) -> None:
        """The database has these as they are in memory."""
        self._versions.update((row.run_id, transaction) for row in rows)

    def wrote_keys(self) -> None:
        """The database has been given more keys and requests than it was asked about before the
        batch: it is asked again."""
        self._accepted.clear()
        self._requested.clear()

    def settle(self, is_owned: Callable[[str], bool]) -> None:
        """The batch is committed: what was asked for it alone is released.

        ``is_owned`` says of a root whether its tree is this process's: it will need the rows of
        that again.
        """
        self._absent.clear()
        self._accepted.clear()
        self._requested.clear()
        self._unnumbered.clear()
        if len(self._rows) > KEPT_ROWS:
            kept = {x: row for x, row in self._rows.items() if is_owned(row.root_run_id)}
            self._rows = kept if len(kept) <= KEPT_ROWS else {
                run_id: row for run_id, row in kept.items() if not row.is_idle
            }  # fmt: skip
            self._versions = {x: v for x, v in self._versions.items() if x in self._rows}
            if self._fresh is not None:
                self._fresh.intersection_update(self._rows)
        if len(self._numbers) > 4 * KEPT_ROWS:
            self._numbers.clear()


def _runs_of(commit: Commit) -> Iterable[str]:
    if commit.run_id:
        yield commit.run_id
    yield from (run_id for run_id, _ in commit.lent)
    if commit.leave_to:
        yield commit.leave_to
    yield from commit.gone
    if commit.cut is not None:
        yield commit.cut.run_id
    for delivery in commit.deliveries:
        if delivery.new is not None:
            yield delivery.new.run_id
            if not delivery.new.root_run_id:
                yield delivery.new.parent_run_id or ""
        elif delivery.by == "run":
            yield delivery.to


def _keys_of(commit: Commit) -> Iterable[_Key]:
    for delivery in commit.deliveries:
        if delivery.key and (run_id := _recipient_of(delivery)):
            yield run_id, delivery.source, delivery.key


def _recipient_of(delivery: Delivery) -> str:
    if delivery.new is not None:
        return delivery.new.run_id
    return delivery.to if delivery.by == "run" else ""


def _addresses_of(commit: Commit) -> Iterable[str]:
    """Run ids that will need numbers."""
    for delivery in commit.deliveries:
        if delivery.new is not None:
            yield from filter(None, (delivery.new.run_id, delivery.new.root_run_id))
    yield from _told_of(commit)


def _told_of(commit: Commit) -> Iterable[str]:
    """Run ids of which the hub's own lane is told something."""
    if not commit.run_id:
        for event in commit.events:
            yield from filter(None, (event.run_id, event.root_run_id))


_VERSION: Final = "run.xmin::text::bigint"
"""The transaction that has written the row of a run."""

_SELECT_ROWS: Final = (
    f"SELECT address.run_id, root.number, {_VERSION}, "
    f"{', '.join(f'run.{column}' for column in COLUMNS)} FROM address "
    "JOIN run ON run.number = address.number "
    "LEFT JOIN address AS root ON root.run_id = run.root_run_id WHERE address.run_id = ANY(?)"
)
_SELECT_ITEMS: Final = (
    "SELECT waiting.run, event.body FROM address JOIN waiting ON waiting.run = address.number "
    "JOIN event USING (position) WHERE address.run_id = ANY(?) ORDER BY waiting.run, waiting.seq"
)
_SELECT_CHANGED: Final = (
    f"SELECT known.number, {_VERSION}, {', '.join(f'run.{column}' for column in COLUMNS)} "
    "FROM unnest(?::bigint[], ?::bigint[]) AS known (number, version) LEFT JOIN run "
    f"ON run.number = known.number WHERE {_VERSION} IS DISTINCT FROM known.version"
)
"""Without a version what has gone."""
_SELECT_NEW_ITEMS: Final = (
    "SELECT waiting.run, event.body FROM unnest(?::bigint[], ?::bigint[]) AS known (run, seq) "
    "JOIN waiting ON waiting.run = known.run AND waiting.seq > known.seq "
    "JOIN event USING (position) ORDER BY waiting.run, waiting.seq"
)
_SELECT_WAITING_SEQS: Final = "SELECT run, seq FROM waiting WHERE run = ANY(?)"
_SELECT_ACCEPTED: Final = (
    "SELECT address.run_id, accepted.source, accepted.key, accepted.position, event.body "
    "FROM unnest(?::text[], ?::text[], ?::text[]) AS wanted (run_id, source, key) "
    "JOIN address ON address.run_id = wanted.run_id "
    "JOIN accepted ON accepted.run = address.number AND accepted.source = wanted.source "
    "AND accepted.key = wanted.key LEFT JOIN event ON event.position = accepted.position"
)
_SELECT_NUMBERS: Final = "SELECT run_id, number FROM address WHERE run_id = ANY(?)"
_SELECT_NOTES: Final = "SELECT key, value FROM note WHERE key = ANY(?)"
