"""``PostgresRows``: the rows that a batch needs, asked for in one message before it is decided."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from hubbub.hub.events import InLane
from hubbub.hub.events.codec import decode_event
from hubbub.hub.store.journal import Commit, Delivery
from hubbub.runtime.stores.postgres.connection import PostgresConnection
from hubbub.runtime.stores.sql.connection import SqlCursor
from hubbub.runtime.stores.sql.reader import READ_ERRORS
from hubbub.runtime.stores.sql.rows import COLUMNS, REQUESTS, WAITING, Row, StoredRows, row_of
from hubbub.runtime.stores.sql.writer import Operation

__all__ = ["AskedRows", "PostgresRows"]

NUMBERS: Final = 64
"""Numbers that one value of the sequence ``run_number`` stands for."""


class AskedRows:
    """What was asked for a batch, and where the answers will be."""

    __slots__ = (
        "accepted",
        "items",
        "names",
        "numbers",
        "requests",
        "rows",
        "run_ids",
        "unnumbered",
    )

    def __init__(self) -> None:
        self.run_ids: list[str] = []
        self.unnumbered: list[str] = []
        self.names: list[str] = []
        self.rows: SqlCursor | None = None
        self.items: SqlCursor | None = None
        self.accepted: SqlCursor | None = None
        self.numbers: SqlCursor | None = None
        self.requests: SqlCursor | None = None


_Key: TypeAlias = tuple[str, str, str]


class PostgresRows(StoredRows):
    """``Rows`` of a store whose one writer this is: what was read once is kept in memory."""

    def __init__(self, db: PostgresConnection, keep: Callable[[], None]) -> None:
        super().__init__(db, keep)
        self._absent: set[str] = set()
        """Runs that there are none of, as far as the batch goes."""
        self._unnumbered: set[str] = set()
        self._accepted: dict[_Key, InLane | None] = {}
        self._requested: dict[str, str] = {}
        self._free: list[int] = []
        """Numbers that are this process's to give, the next one last."""
        self.new_numbers: dict[str, int] = {}
        """Run ids that the database does not know yet, with their numbers."""

    # ── before a batch ───────────────────────────────────────────────────────────────────────

    def ask(self, batch: Sequence[Operation]) -> AskedRows:
        """Ask for what a batch will need; call within a pipeline."""
        asked, execute = AskedRows(), self._db.execute
        commits = [each for each in batch if isinstance(each, Commit)]
        wanted = dict.fromkeys(run_id for commit in commits for run_id in _runs_of(commit))
        asked.run_ids = [run_id for run_id in wanted if run_id not in self._rows]
        if asked.run_ids:
            asked.rows = execute(_SELECT_ROWS, (asked.run_ids,))
            asked.items = execute(_SELECT_ITEMS, (asked.run_ids,))
        keys = list(dict.fromkeys(key for commit in commits for key in _keys_of(commit)))
        if keys:
            asked.accepted = execute(_SELECT_ACCEPTED, tuple(map(list, zip(*keys, strict=True))))
            self._accepted = dict.fromkeys(keys)
        ids = dict.fromkeys(run_id for commit in commits for run_id in _addresses_of(commit))
        asked.unnumbered = [run_id for run_id in ids if run_id not in self._numbers]
        if asked.unnumbered:
            asked.numbers = execute(_SELECT_NUMBERS, (asked.unnumbered,))
        asked.names = [
            each.request.name
            for commit in commits for each in commit.deliveries if each.request is not None
        ]  # fmt: skip
        if asked.names:
            asked.requests = execute(_SELECT_NOTES, ([f"{REQUESTS}{x}" for x in asked.names],))
        return asked

    def take_in(self, asked: AskedRows) -> None:
        """Keep what was answered.  What of it is damaged is asked for again when it is needed."""
        for run_id, number in asked.numbers or ():
            self._numbers[run_id] = number
        self._unnumbered = {x for x in asked.unnumbered if x not in self._numbers}
        items: dict[int, list[str]] = defaultdict(list)
        for run, body in asked.items or ():
            items[run].append(body)
        self._absent = set(asked.run_ids)
        for run_id, root, *found in asked.rows or ():
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
        for run_id, source, key, body in asked.accepted or ():
            try:
                item = decode_event(body)
            except READ_ERRORS:
                del self._accepted[run_id, source, key]
                continue
            self._accepted[run_id, source, key] = item  # type: ignore[assignment]
        self._requested = dict.fromkeys(asked.names, "")
        for key, value in asked.requests or ():
            self._requested[key.removeprefix(REQUESTS)] = value

    # ── what a ledger asks ───────────────────────────────────────────────────────────────────

    def find(self, run_id: str, /) -> Row | None:
        return None if run_id in self._absent else super().find(run_id)

    def create(self, new: Any, at: int) -> Row:
        self._absent.discard(new.run_id)
        return super().create(new, at)

    def known(self, row: Row, source: str, key: str) -> InLane | None:
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

    def settle(self) -> None:
        """The batch is committed: what was asked for it alone is released."""
        self._absent.clear()
        self._accepted.clear()
        self._requested.clear()
        self._unnumbered.clear()
        self.trim()


def _runs_of(commit: Commit) -> Iterable[str]:
    if commit.run_id:
        yield commit.run_id
    yield from (run_id for run_id, _ in commit.lent)
    if commit.leave_to:
        yield commit.leave_to
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
    if not commit.run_id:
        for event in commit.events:
            yield from filter(None, (event.run_id, event.root_run_id))


_SELECT_ROWS: Final = (
    "SELECT address.run_id, root.number, "
    f"{', '.join(f'run.{column}' for column in COLUMNS)} FROM address "
    "JOIN run ON run.number = address.number "
    "LEFT JOIN address AS root ON root.run_id = run.root_run_id WHERE address.run_id = ANY(?)"
)
_SELECT_ITEMS: Final = (
    "SELECT waiting.run, event.body FROM address JOIN waiting ON waiting.run = address.number "
    "JOIN event USING (position) WHERE address.run_id = ANY(?) ORDER BY waiting.run, waiting.seq"
)
_SELECT_ACCEPTED: Final = (
    "SELECT address.run_id, accepted.source, accepted.key, event.body "
    "FROM unnest(?::text[], ?::text[], ?::text[]) AS wanted (run_id, source, key) "
    "JOIN address ON address.run_id = wanted.run_id "
    "JOIN accepted ON accepted.run = address.number AND accepted.source = wanted.source "
    "AND accepted.key = wanted.key JOIN event ON event.position = accepted.position"
)
_SELECT_NUMBERS: Final = "SELECT run_id, number FROM address WHERE run_id = ANY(?)"
_SELECT_NOTES: Final = "SELECT key, value FROM note WHERE key = ANY(?)"
