"""The rows of runs in the store, as its writer holds them."""

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event, InLane
from hubbub.hub.events.codec import decode_event
from hubbub.hub.events.descriptors import (
    encode_descriptor,
    kind_of_descriptor,
    read_descriptor,
)
from hubbub.hub.near_misses import shown
from hubbub.hub.store.journal import Addressing, NewRun
from hubbub.hub.store.ledger_row import LedgerRow, Settled
from hubbub.hub.store.reader import StoreUnreadable
from hubbub.runtime.stores.sql.addresses import candidates, found_for, is_key_free
from hubbub.runtime.stores.sql.connection import SqlConnection
from hubbub.runtime.stores.sql.tables import RUNS

__all__ = [
    "COLUMNS", "KEPT_ROWS", "PUT_NOTE", "REQUESTS", "WAITING", "Depths", "Row", "StoredRows",
    "check_row", "depths_of", "out_of_order", "row_of", "row_with", "values_of",
]  # fmt: skip

Depths: TypeAlias = tuple[int, int, int]
"""Live runs, parked runs, items waiting."""

REQUESTS: Final = "request/"
"""Begins the keys of notes of requests."""

PUT_NOTE: Final = (
    "INSERT INTO note (key, value) VALUES (?, ?) "
    "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)
"""Keeps a text by its key, in the place of what stood there."""

KEPT_ROWS: Final = 256
"""Rows of runs with nothing to do that are kept in memory; those of runs at work always are."""


class Row(LedgerRow):
    """A run as its next commit needs it, and as the database last had it."""

    __slots__ = ("born", "chain", "counted", "indexed", "kind", "number", "root")

    number: int
    root: int
    kind: str
    chain: int
    """The checksum of its last event, which goes into that of the next."""
    born: int
    """The position of its first event; 0 until that is written."""
    counted: Depths
    """What it adds to the store's depths, as far as they say."""
    indexed: tuple[Any, ...]
    """What the database has in the columns that are ``INDEXED``; empty if it has no row."""

    @property
    def is_idle(self) -> bool:
        return not self.waiting and self.status in ("parked", "ended")


class StoredRows:
    """``Rows`` of a database: those in memory, and the numbers that stand for run ids.

    ``keep`` gives the database what has been decided so far: what is searched there must be.
    """

    def __init__(self, db: SqlConnection, keep: Callable[[], None]) -> None:
        self._db = db
        self._keep = keep
        self._rows: dict[str, Row] = {}
        self._numbers: dict[str, int] = {}

    # ── what a ledger asks ───────────────────────────────────────────────────────────────────

    def find(self, run_id: str, /) -> Row | None:
        """The row of a run.  Raises ``BadValue`` for one that is damaged."""
        row = self._rows.get(run_id)
        if row is None:
            row = _read_row(self._db, run_id, self.number)
            if row is not None:
                self._rows[run_id] = row
        return row

    def create(self, new: NewRun, at: int) -> Row:
        row = Row(new, at)
        row.number, row.root = self.number(new.run_id), self.number(new.root_run_id)
        row.kind = kind_of_descriptor(new.descriptor)
        row.chain = row.born = 0
        row.counted = (0, 0, 0)
        row.indexed = ()
        self._rows[new.run_id] = row
        return row

    def candidates(self, to: str, by: Addressing) -> Sequence[str]:
        self._keep()
        return candidates(self._db, to, by)

    def opened(self, new: NewRun) -> str | None:
        self._keep()
        return found_for(self._db, new)

    def is_key_free(self, session_key: str) -> bool:
        return is_key_free(self._db, session_key)

    def known(self, row: Row, source: str, key: str) -> InLane | Settled | None:
        found = self._db.execute(_SELECT_ACCEPTED, (row.number, source, key)).fetchone()
        if found is None:
            return None
        position, body = found
        if position < 0:
            return Settled(-position)
        return decode_event(body) if body is not None else None  # type: ignore[return-value]

    def own_lane(self, row: Row) -> Iterable[Event]:
        self._keep()
        return [decode_event(body) for (body,) in self._db.execute(_SELECT_OWN, (row.number,))]

    def requested(self, name: str) -> str:
        return self.noted(f"{REQUESTS}{name}")

    def noted(self, key: str) -> str:
        found = self._db.execute(_SELECT_NOTE, (key,)).fetchone()
        return found[0] if found is not None else ""

    def readdress(self, row: Row) -> None:
        """The database knows, once it is given the row."""

    def forget(self, run_id: str, /) -> None:
        self._rows.pop(run_id, None)
        self._numbers.pop(run_id, None)

    # ── what the writer asks ─────────────────────────────────────────────────────────────────

    def number(self, run_id: str) -> int:
        number = self._numbers.get(run_id)
        if number is None:
            insert = "INSERT INTO address (run_id) VALUES (?) ON CONFLICT DO NOTHING"
            self._db.execute(insert, (run_id,))
            select = "SELECT number FROM address WHERE run_id = ?"
            number = self._numbers[run_id] = self._db.execute(select, (run_id,)).fetchone()[0]
        assert number is not None
        return number

    def put(self, rows: Iterable[Row]) -> None:
        """Give the database rows that are new, or have changed.

        A column that is named is written into each index that it is in, changed or not: so those
        that have not changed are left out.
        """
        given: dict[str, list[Sequence[Any]]] = {}
        for row in rows:
            before, now = row.indexed, (row.agent, row.status, row.inbox, is_ready(row), row.recent)
            row.indexed = now
            if not before:
                given.setdefault(_PUT_ROW, []).append(values_of(row))
                continue
            changed: tuple[str, ...] = ()
            values: list[Any] = [row.seq, row.in_seq, row.chain, len(row.waiting), row.messages]
            if now != before:
                pairs = [x for x in zip(INDEXED, before, now, strict=True) if x[1] != x[2]]
                changed = tuple(name for name, _, _ in pairs)
                values += [value for _, _, value in pairs]
            values.append(row.number)
            given.setdefault(_update(changed), []).append(values)
        for statement, some in given.items():
            self._db.executemany(statement, some)

    def trim(self) -> None:
        """Release rows with nothing to do, once there are many."""
        if len(self._rows) > KEPT_ROWS:
            self._rows = {run_id: row for run_id, row in self._rows.items() if not row.is_idle}
        if len(self._numbers) > 4 * KEPT_ROWS:
            self._numbers.clear()


def depths_of(row: Row) -> Depths:
    """What a run adds to the depths of its store."""
    return row.status != "ended", row.status in _PARKED, len(row.waiting)


def _read_row(db: SqlConnection, run_id: str, number_of: Callable[[str], int]) -> Row | None:
    """The row of a run, with what waits.  Raises ``BadValue`` for one that is damaged."""
    found = db.execute(_SELECT_ROW, (run_id,)).fetchone()
    if found is None:
        return None
    bodies: Iterable[str] = ()
    if found[WAITING]:
        bodies = [body for (body,) in db.execute(_SELECT_WAITING, (found[0],))]
    return row_of(run_id, found, bodies, number_of)


def row_of(
    run_id: str, found: Sequence[Any], bodies: Iterable[str], number_of: Callable[[str], int]
) -> Row:
    """A row as it was found (``COLUMNS``), with the bodies of what waits, in order.

    Raises ``BadValue`` for one that is damaged.
    """
    return row_with(run_id, found, map(decode_event, bodies), number_of)  # type: ignore[arg-type]


def row_with(
    run_id: str, found: Sequence[Any], items: Iterable[InLane], number_of: Callable[[str], int]
) -> Row:
    """The same, with what waits."""
    (
        number, own_id, root, parent, agent, name, session_key, descriptor, status, inbox, seq,
        in_seq, chain, waiting, messages, born, created_at, wake_at, recent,
    ) = found  # fmt: skip
    counters = (seq, in_seq, chain, waiting, messages, born, created_at, wake_at or 0, recent)
    check_row(run_id, status, inbox, counters)
    if own_id != run_id:
        raise BadValue(f"run {run_id}", "its row has changed; see fsck")
    new = NewRun(
        run_id=run_id, root_run_id=root, parent_run_id=parent, agent=agent, name=name,
        session_key=session_key, wake_at=wake_at,
        descriptor=None if descriptor is None else read_descriptor(descriptor),
    )  # fmt: skip
    row = Row(new, created_at)
    row.number, row.root, row.kind = number, number_of(root), kind_of_descriptor(new.descriptor)
    row.status, row.inbox, row.seq, row.in_seq, row.chain = status, inbox, seq, in_seq, chain
    row.messages, row.born, row.recent = messages, born, recent
    row.waiting = {item.seq: item for item in items}
    if len(row.waiting) != waiting:
        raise BadValue(f"run {run_id}", f"{waiting} items wait for it, not all are there; see fsck")
    row.counted = depths_of(row)
    row.indexed = (agent, status, inbox, None, recent)
    return row


def check_row(run_id: Any, status: Any, inbox: Any, numbers: Iterable[Any]) -> None:
    """Raise ``BadValue`` for a row that no hubbub has written."""
    is_sound = status in _STATUSES and inbox in _INBOXES
    if not is_sound or not all(isinstance(number, int) for number in numbers):
        raise BadValue(f"run {run_id}", "its row has changed; see fsck")


_PARKED: Final = ("parked", "waiting")
_STATUSES: Final = frozenset(("active", "waiting", "parked", "ended"))
_INBOXES: Final = frozenset(("open", "closing", "terminated", "ended"))


COLUMNS: Final = (
    "number", "run_id", "root_run_id", "parent_run_id", "agent", "name", "session_key",
    "descriptor", "status", "inbox", "seq", "in_seq", "chain", "waiting", "messages", "born",
    "created_at", "wake_at", "recent",
)  # fmt: skip
"""What of a run's row ``row_of`` takes, in order."""

WAITING: Final = COLUMNS.index("waiting")

_SELECT_ROW: Final = (
    f"SELECT {', '.join(COLUMNS)} "
    "FROM run WHERE number = (SELECT number FROM address WHERE run_id = ?)"
)
_SELECT_WAITING: Final = (
    "SELECT body FROM waiting JOIN event USING (position) WHERE waiting.run = ? "
    "ORDER BY waiting.seq"
)
_SELECT_ACCEPTED: Final = (
    "SELECT accepted.position, body FROM accepted "
    "LEFT JOIN event ON event.position = accepted.position "
    "WHERE accepted.run = ? AND source = ? AND key = ?"
)
_SELECT_OWN: Final = "SELECT body FROM event WHERE run = ? AND lane = 'own' ORDER BY seq"
_SELECT_NOTE: Final = "SELECT value FROM note WHERE key = ?"
_PUT_ROW: Final = (
    f"{RUNS.insert} ON CONFLICT (number) DO UPDATE SET agent = excluded.agent, "
    "status = excluded.status, inbox = excluded.inbox, ready = excluded.ready, seq = excluded.seq, "
    "in_seq = excluded.in_seq, chain = excluded.chain, waiting = excluded.waiting, "
    "messages = excluded.messages, recent = excluded.recent"
)


INDEXED: Final = ("agent", "status", "inbox", "ready", "recent")
"""The columns that change, and by which runs are found."""


@cache
def _update(changed: tuple[str, ...]) -> str:
    """A statement for a row of which these of the indexed columns have changed."""
    names = ("seq", "in_seq", "chain", "waiting", "messages", *changed)
    return f"UPDATE run SET {', '.join(f'{name} = ?' for name in names)} WHERE number = ?"


def is_ready(row: Row) -> int:
    """1 for a run with work to do."""
    return int(row.status == "active" or (row.status != "ended" and bool(row.waiting)))


def values_of(row: Row) -> tuple[Any, ...]:
    """A row for the table ``run``, its columns in order."""
    descriptor = None
    if row.descriptor is not None:
        descriptor = bytes(encode_descriptor(row.descriptor)).decode()
    return (
        row.number, row.run_id, row.root_run_id, row.parent_run_id, row.agent, row.name,
        row.session_key, row.kind, descriptor, row.status, row.inbox, is_ready(row),
        row.seq, row.in_seq, row.chain, len(row.waiting), row.messages, row.born, row.created_at,
        row.wake_at, row.recent,
    )  # fmt: skip


def out_of_order(place: str, found: object) -> StoreUnreadable:
    """What is wrong where reading does not come to an end: what was passed by comes again."""
    what = f"its rows are not in the order of their keys at {shown(found)}: the database is damaged"
    return StoreUnreadable(place, what, "restore it from a backup")
