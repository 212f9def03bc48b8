"""The rows of runs in the store, as its writer holds them."""

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, Final

from hubbub.hub.errors import BadValue
from hubbub.hub.events import InLane
from hubbub.hub.events.codec import decode_event
from hubbub.hub.events.descriptors import (
    Descriptor,
    encode_descriptor,
    kind_of_descriptor,
    read_descriptor,
)
from hubbub.hub.store.journal import NewRun, RunInfo, RunStatus

__all__ = ["Row", "Rows", "check_row"]

KEPT_ROWS: Final = 256
"""Rows of runs with nothing to do that are kept at hand; those of runs at work always are."""


class Row:
    """A run as its next commit needs it."""

    __slots__ = (
        "agent", "born", "chain", "created_at", "descriptor", "in_seq", "inbox", "is_new", "kind",
        "messages", "name", "number", "parent_run_id", "recent", "root", "root_run_id", "run_id",
        "seq", "session_key", "status", "waiting", "wake_at",
    )  # fmt: skip

    def __init__(self, number: int, root: int, new: NewRun, at: int) -> None:
        self.number = number
        self.root = root
        self.run_id = new.run_id
        self.root_run_id = new.root_run_id
        self.parent_run_id = new.parent_run_id
        self.agent = new.agent
        self.name = new.name
        self.session_key = new.session_key
        self.descriptor: Descriptor | None = new.descriptor
        self.kind = kind_of_descriptor(new.descriptor)
        self.created_at = at
        self.wake_at = new.wake_at
        self.status: RunStatus = "active"
        self.inbox: Any = "open"
        self.seq = 0
        self.in_seq = 0
        self.chain = 0
        self.born = 0
        self.recent = 0
        self.waiting: dict[int, InLane] = {}
        self.messages = 0
        self.is_new = True

    @property
    def is_idle(self) -> bool:
        return not self.waiting and self.status in ("parked", "ended")

    def info(self) -> RunInfo:
        return RunInfo(
            run_id=self.run_id, root_run_id=self.root_run_id, parent_run_id=self.parent_run_id,
            agent=self.agent, name=self.name, session_key=self.session_key, status=self.status,
            inbox=self.inbox, waiting=len(self.waiting), created_at=self.created_at,
            wake_at=self.wake_at, descriptor=self.descriptor,
        )  # fmt: skip


class Rows:
    """The rows at hand, and the numbers that stand for run ids.  What is ``changed`` is written
    with ``flush``."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._rows: dict[str, Row] = {}
        self._numbers: dict[str, int] = {}
        self.changed: dict[Row, None] = {}

    def find(self, run_id: str) -> Row | None:
        """The row of a run.  Raises ``BadValue`` for one that is damaged."""
        row = self._rows.get(run_id)
        if row is None:
            row = _read_row(self._db, run_id, self.number)
            if row is not None:
                self._rows[run_id] = row
        return row

    def create(self, new: NewRun, at: int) -> Row:
        row = Row(self.number(new.run_id), self.number(new.root_run_id), new, at)
        self._rows[new.run_id] = row
        self.changed[row] = None
        return row

    def number(self, run_id: str) -> int:
        number = self._numbers.get(run_id)
        if number is None:
            insert = "INSERT INTO address (run_id) VALUES (?) ON CONFLICT DO NOTHING"
            if self._db.execute(insert, (run_id,)).rowcount:
                number = self._db.execute("SELECT last_insert_rowid()").fetchone()[0]
            else:
                select = "SELECT number FROM address WHERE run_id = ?"
                number = self._db.execute(select, (run_id,)).fetchone()[0]
            self._numbers[run_id] = number
        assert number is not None
        return number

    def flush(self) -> None:
        """Give the database what has changed, new rows too."""
        if self.changed:
            self._db.executemany(_PUT_ROW, [_values(row) for row in self.changed])
            self.changed.clear()

    def trim(self) -> None:
        """Let go of rows with nothing to do, once there are many."""
        if len(self._rows) > KEPT_ROWS:
            self._rows = {run_id: row for run_id, row in self._rows.items() if not row.is_idle}
        if len(self._numbers) > 4 * KEPT_ROWS:
            self._numbers.clear()


def _read_row(db: sqlite3.Connection, run_id: str, number_of: Callable[[str], int]) -> Row | None:
    """The row of a run, with what waits.  Raises ``BadValue`` for one that is damaged."""
    found = db.execute(_SELECT_ROW, (run_id,)).fetchone()
    if found is None:
        return None
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
    row = Row(number, number_of(root), new, created_at)
    row.status, row.inbox, row.seq, row.in_seq, row.chain = status, inbox, seq, in_seq, chain
    row.messages, row.born, row.recent, row.is_new = messages, born, recent, False
    if waiting:
        items = [decode_event(body) for (body,) in db.execute(_SELECT_WAITING, (number,))]
        row.waiting = {item.seq: item for item in items}  # type: ignore[misc]
    if len(row.waiting) != waiting:
        raise BadValue(f"run {run_id}", f"{waiting} items wait for it, not all are there; see fsck")
    return row


def check_row(run_id: Any, status: Any, inbox: Any, numbers: Iterable[Any]) -> None:
    """Raise ``BadValue`` for a row that nobody has written like this."""
    is_sound = status in _STATUSES and inbox in _INBOXES
    if not is_sound or not all(isinstance(number, int) for number in numbers):
        raise BadValue(f"run {run_id}", "its row has changed; see fsck")


_STATUSES: Final = frozenset(("active", "waiting", "parked", "ended"))
_INBOXES: Final = frozenset(("open", "closing", "terminated", "ended"))


_SELECT_ROW: Final = (
    "SELECT number, run_id, root_run_id, parent_run_id, agent, name, session_key, descriptor, "
    "status, inbox, seq, in_seq, chain, waiting, messages, born, created_at, wake_at, recent "
    "FROM run WHERE number = (SELECT number FROM address WHERE run_id = ?)"
)
_SELECT_WAITING: Final = (
    "SELECT body FROM waiting JOIN event USING (position) WHERE waiting.run = ? "
    "ORDER BY waiting.seq"
)
_PUT_ROW: Final = (
    "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (number) DO UPDATE SET agent = excluded.agent, status = excluded.status, "
    "inbox = excluded.inbox, ready = excluded.ready, seq = excluded.seq, "
    "in_seq = excluded.in_seq, chain = excluded.chain, waiting = excluded.waiting, "
    "messages = excluded.messages, recent = excluded.recent"
)


def _values(row: Row) -> tuple[Any, ...]:
    descriptor = None
    if row.descriptor is not None:
        descriptor = bytes(encode_descriptor(row.descriptor)).decode()
    is_ready = row.status == "active" or (row.status != "ended" and bool(row.waiting))
    return (
        row.number, row.run_id, row.root_run_id, row.parent_run_id, row.agent, row.name,
        row.session_key, row.kind, descriptor, row.status, row.inbox, is_ready, row.seq,
        row.in_seq, row.chain, len(row.waiting), row.messages, row.born, row.created_at,
        row.wake_at, row.recent,
    )  # fmt: skip
