"""``SqlIntake``: ``RunIntake`` of a database, as far as databases do not differ."""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from hubbub.hub.errors import OperatorError
from hubbub.hub.events import AgentBase, Event
from hubbub.hub.events.checksums import checksum_after
from hubbub.hub.store.reader import EventRow, RunRow
from hubbub.runtime.stores.sql.connection import SqlConnection
from hubbub.runtime.stores.sql.removal import behind, drop_keys, forget_run, remove_run
from hubbub.runtime.stores.sql.rows import PUT_NOTE, REQUESTS
from hubbub.runtime.stores.sql.store_reader import SqlStoreReader
from hubbub.runtime.stores.sql.tables import EVENTS, RUNS

__all__ = ["SqlIntake"]


class _Lane:
    """A run on its way in: its last checksum, its first position, those of its in lane, and from
    which item of this on how many are missing, which have gone before a base."""

    __slots__ = ("born", "chain", "items", "missing")

    def __init__(self) -> None:
        self.born = self.chain = 0
        self.items = array("q")
        self.missing: list[tuple[int, int]] = [(0, 0)]

    def count(self, inbox: int) -> None:
        """There is a base, to which so many items had come."""
        missing = self.missing[-1][1]
        if inbox > (here := len(self.items) + missing):
            self.missing.append((here + 1, missing + inbox - here))

    def place_of(self, seq: int) -> int:
        """Where an item of its in lane stands that has not gone."""
        missing = next(missing for first, missing in reversed(self.missing) if seq >= first)
        return self.items[seq - 1 - missing]


class SqlIntake(ABC):
    """Puts runs in by the store's writing connection.  See ``RunIntake``."""

    def __init__(self, db: SqlConnection, reader: SqlStoreReader) -> None:
        self._db = db
        self.reader = reader
        self._begin()

    # ── what a database does in its own way ──────────────────────────────────────────────────

    @abstractmethod
    def _begin_writing(self) -> None:
        """Begin a transaction that writes."""

    def _commit(self) -> None:
        """End it."""
        self._db.execute("COMMIT")

    @abstractmethod
    def _failure_of(self, error: BaseException) -> OperatorError | None:
        """What to raise instead of an error of the database."""

    @abstractmethod
    def _undo(self) -> None:
        """Release what a transaction that came to nothing has left beside the database."""

    @abstractmethod
    def contents(self) -> Iterator[str]: ...

    @abstractmethod
    def drop_contents(self, digests: Iterable[str]) -> int: ...

    @abstractmethod
    def settle(self) -> None: ...

    # ── runs ─────────────────────────────────────────────────────────────────────────────────

    def _begin(self) -> None:
        self.reader.forget_names()
        self._lanes: dict[str, _Lane] = {}
        self._numbers: dict[str, int] = {}
        self._tip = 0
        self._has_bases = False
        """Whether there is a base among what was put in."""

    @contextmanager
    def all_or_nothing(self) -> Generator[None, None, None]:
        self._begin()
        try:
            self._begin_writing()
            # What is replaced gives no position free: cursors may point there.
            self._tip = self.reader.tip
            yield
            self._commit()
        except BaseException as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self._undo()
            self._begin()
            if (failure := self._failure_of(error)) is not None:
                raise failure from error
            raise
        self._begin()

    def remove(self, run_id: str) -> None:
        number = self._number(run_id)
        remove_run(self._db, number)
        self._lanes.pop(run_id, None)

    def forget(self, run_id: str) -> None:
        number = self._number(run_id)
        forget_run(self._db, run_id, number)
        self._lanes.pop(run_id, None)
        del self._numbers[run_id]

    def drop_notes(self, prefix: str) -> None:
        drop_keys(self._db, "note", prefix)

    def drop_requests(self, is_kept: Callable[[str], bool]) -> None:
        after, last = REQUESTS, behind(REQUESTS)
        while rows := self._db.execute(_SELECT_NOTES, (after, last)).fetchall():
            for key, note in rows:
                if not is_kept(note.partition(" ")[0]):
                    self._db.execute("DELETE FROM note WHERE key = ?", (key,))
            after = rows[-1][0]

    def put_event(self, event: Event, body: bytes) -> EventRow:
        run_id, root = event.run_id, event.root_run_id
        lane = self._lanes.setdefault(run_id, _Lane())
        self._tip += 1
        lane.chain = checksum_after(lane.chain, event.type, body)
        lane.born = lane.born or self._tip
        if isinstance(event, AgentBase):
            lane.count(event.inbox)
            self._has_bases = True
        if event.lane == "in":
            lane.items.append(self._tip)
        self._db.execute(_INSERT_EVENT, (
            self._tip, self._number(run_id), self._number(root), event.lane, event.seq, event.type,
            lane.chain, body.decode(),
        ))  # fmt: skip
        return EventRow(
            self._tip, run_id, root, event.lane, event.seq, event.type, lane.chain, body
        )

    def put_run(self, row: RunRow, waiting: Sequence[int]) -> None:
        number, lane = self._number(row.run_id), self._lanes[row.run_id]
        places = [(number, seq, lane.place_of(seq)) for seq in waiting]
        self._db.executemany("INSERT INTO waiting (run, seq, position) VALUES (?, ?, ?)", places)
        self._db.execute(_INSERT_RUN, (
            number, row.run_id, row.root_run_id, row.parent_run_id, row.agent, row.name,
            row.session_key, row.kind, row.descriptor, row.status, row.inbox, int(row.ready),
            row.seq, row.in_seq, lane.chain, row.waiting, row.messages, lane.born, row.created_at,
            row.wake_at, row.recent,
        ))  # fmt: skip

    def put_key(self, run_id: str, source: str, key: str, seq: int, number: int = 0) -> bool:
        lane = self._lanes[run_id]
        position = -number if number else lane.place_of(seq)
        values = (self._number(run_id), source, key, position)
        return self._db.execute(_INSERT_KEY, values).rowcount > 0

    def put_note(self, key: str, value: str) -> None:
        self._db.execute(PUT_NOTE, (key, value))

    def _number(self, run_id: str) -> int:
        number = self._numbers.get(run_id)
        if number is None:
            insert = "INSERT INTO address (run_id) VALUES (?) ON CONFLICT DO NOTHING"
            self._db.execute(insert, (run_id,))
            select = "SELECT number FROM address WHERE run_id = ?"
            (number,) = self._db.execute(select, (run_id,)).fetchone()
            self._numbers[run_id] = number
        return int(number)


_SELECT_NOTES: Final = (
    "SELECT key, value FROM note WHERE key > ? AND key < ? ORDER BY key LIMIT 1000"
)
_INSERT_EVENT: Final = EVENTS.insert
_INSERT_RUN: Final = RUNS.insert
_INSERT_KEY: Final = (
    "INSERT INTO accepted (run, source, key, position) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
)
