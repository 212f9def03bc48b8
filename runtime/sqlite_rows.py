"""A run's row in the store, as its writer holds it."""

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, Final

from hubbub.hub.codec import decode_event
from hubbub.hub.descriptors import (
    Descriptor,
    encode_descriptor,
    kind_of_descriptor,
    read_descriptor,
)
from hubbub.hub.events import InLane
from hubbub.hub.journal import NewRun, RunInfo, RunStatus

__all__ = ["Row", "put_rows", "read_row"]


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


def read_row(db: sqlite3.Connection, run_id: str, number_of: Callable[[str], int]) -> Row | None:
    """The row of a run, with what waits.  Raises ``BadValue`` for one that is damaged."""
    found = db.execute(_SELECT_ROW, (run_id,)).fetchone()
    if found is None:
        return None
    (
        number, root, parent, agent, name, session_key, descriptor, status, inbox, seq, in_seq,
        chain, waiting, messages, born, created_at, wake_at, recent,
    ) = found  # fmt: skip
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
    return row


def put_rows(db: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Write rows, new ones and changed ones."""
    db.executemany(_PUT_ROW, [_values(row) for row in rows])


_SELECT_ROW: Final = (
    "SELECT number, root_run_id, parent_run_id, agent, name, session_key, descriptor, status, "
    "inbox, seq, in_seq, chain, waiting, messages, born, created_at, wake_at, recent "
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
