"""What is read from the store, by a connection of its own: only what is committed.

Runs in the store's reading thread, or, for the command line, wherever it is called.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from hubbub.hub.errors import BadValue
from hubbub.hub.events import AgentBase, Event
from hubbub.hub.events.checksums import checksum_after
from hubbub.hub.events.codec import decode_event
from hubbub.hub.events.descriptors import Descriptor, read_descriptor
from hubbub.hub.store.journal import Addressing, LoadedRun, RunInfo, Selection
from hubbub.runtime.stores.sql.addresses import candidates
from hubbub.runtime.stores.sql.connection import SqlConnection, SqlDialect
from hubbub.runtime.stores.sql.own_records import own_record
from hubbub.runtime.stores.sql.rows import check_row
from hubbub.runtime.stores.sql.snapshots import SnapshotReader

__all__ = ["READ_ERRORS", "SqlReader", "SqlReads"]

T = TypeVar("T")

READ_ERRORS: Final = (
    BadValue, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError
)  # fmt: skip
"""What reading a value raises that hubbub has not written."""

PAGE: Final = 20_000
"""Events that one read looks at, at most."""

PAGE_BYTES: Final = 256 * 1024
"""Bytes of events behind which a page ends: it has one event, or is not much longer than that."""


class SqlReads(ABC):
    """What a store is asked while it is open (``Journal``), found in its reading thread."""

    tip: int
    _reader: "SqlReader"

    @abstractmethod
    async def _ask(self, read: Callable[[], T]) -> T:
        """What the reading thread finds."""

    async def load(self, run_id: str, *, after: int = 0) -> LoadedRun | None:
        """A run, as of one moment; of its own lane the events after number ``after``."""
        return await self._ask(partial(self._reader.load, run_id, after))

    async def load_kept(self, run_id: str, version: str) -> LoadedRun | None:
        """A run, from its snapshot on if there is a sound one of this version, else whole."""
        return await self._ask(partial(self._reader.load, run_id, 0, version))

    async def latest(self, run_id: str, types: Sequence[str]) -> Event | None:
        """The last event in a run's own lane that is of one of these types."""
        return await self._ask(partial(self._reader.latest, run_id, types))

    async def info(self, run_id: str) -> RunInfo | None:
        """What the store knows of a run; ``None`` for an unknown one."""
        return await self._ask(partial(self._reader.info, run_id))

    async def runs(self, *, live: bool = True, root_run_id: str | None = None) -> Sequence[RunInfo]:
        """Every live run (or every run), of one tree or of all, by creation."""
        return await self._ask(partial(self._reader.runs, live=live, root_run_id=root_run_id))

    async def ready(self) -> Sequence[str]:
        """Runs with work to do: active ones, and parked ones with mail."""
        return await self._ask(self._reader.ready)

    async def timed(self) -> Sequence[tuple[str, int]]:
        """Live runs that are due at a certain time, and that time."""
        return await self._ask(self._reader.timed)

    async def find(self, to: str, by: Addressing) -> Sequence[str]:
        """The runs that a delivery addressed like this would be meant for."""
        return await self._ask(partial(self._reader.find, to, by))

    async def notes(self, prefix: str = "") -> Mapping[str, str]:
        """What commits have noted under keys that begin with ``prefix``."""
        return await self._ask(partial(self._reader.notes, prefix))

    async def read(
        self, selection: Selection, *, after: int = 0, until: int | None = None, limit: int = 1000
    ) -> tuple[Sequence[Event], int]:
        """Up to ``limit`` events after a position, and the position reached."""
        end = self.tip if until is None else min(until, self.tip)
        return await self._ask(partial(self._reader.read, selection, after, end, limit))

    async def position(self, run_id: str, lane: str, seq: int) -> int | None:
        """The position of the event of that identity, or ``None`` when it is not kept."""
        return await self._ask(partial(self._reader.position, run_id, lane, seq))


class SqlReader:
    """Reads runs and events."""

    def __init__(self, db: SqlConnection, dialect: SqlDialect) -> None:
        self._db = db
        self._dialect = dialect
        self._snapshots = SnapshotReader(db, dialect)

    def load(self, run_id: str, after: int = 0, version: str = "") -> LoadedRun | None:
        """A run with its own lane (after a number, or its snapshot of a version) and its untaken
        items, as of one moment."""
        self._db.execute(self._dialect.begin_reading)
        try:
            return self.look(run_id, after, version)
        finally:
            self._db.execute("COMMIT")

    def look(self, run_id: str, after: int = 0, version: str = "") -> LoadedRun | None:
        """The same, within a transaction."""
        found = self._db.execute(_SELECT_LENGTH, (run_id,)).fetchone()
        if found is None:
            return None
        *found, seq = found
        waiting = (
            "SELECT body FROM waiting JOIN event USING (position) WHERE waiting.run = ? "
            "ORDER BY waiting.seq"
        )
        info, number = _sound(run_id, found), found[0]
        items = [decode_event(body) for (body,) in self._db.execute(waiting, (number,))]
        if len(items) != info.waiting:
            what = f"{info.waiting} items wait for it, {len(items)} were found; see fsck"
            raise BadValue(f"run {run_id}", what)
        kept = None
        if version and (snapshot := self._snapshots.find(run_id, number, seq, version)):
            after, kept = snapshot
        events, begun = self._own_lane(run_id, number, after)
        if begun != after:  # Of one from before a base, behind which records have gone.
            after, kept = begun, None
        return LoadedRun(
            info=info, events=events, after=after, kept=kept,
            waiting=items,  # type: ignore[arg-type]
        )  # fmt: skip

    def _own_lane(self, run_id: str, number: int, after: int) -> tuple[list[Event], int]:
        """A run's own events after a number, and that number: that of what its base stands for,
        where the lane begins later.  Raises ``BadValue`` where its record is not what was written.
        """
        chain = start = 0
        if after:
            found = self._db.execute(_PLACE, (number, after, after)).fetchone()
            if found is None and self._has_gone(number, after):
                return self._own_lane(run_id, number, 0)
            if found is None:
                raise BadValue(f"run {run_id}", f"its event {after} is missing; see fsck")
            start, chain = found
        select = (
            "SELECT position, lane, seq, type, crc, body FROM event "
            "WHERE run = ? AND lane <> 'hub' AND position > ? ORDER BY position"
        )
        events: list[Event] = []
        for position, lane, seq, type_, crc, body in self._db.execute(select, (number, start)):
            chain = checksum_after(chain, type_, body.encode())
            if lane == "own":
                if type_ == AgentBase.type and seq > after + len(events) + 1:
                    events, after = [], seq - 1  # What was behind the beginning has gone.
                events.append(decode_event(body))
            is_next = lane != "own" or seq == after + len(events)
            if chain != crc or lane not in ("own", "in") or not is_next:
                raise BadValue(
                    f"run {run_id}", f"its record has changed at position {position}; see fsck"
                )
        # An index that has lost an entry shows less, and nothing that is wrong by itself.
        last = self._db.execute("SELECT seq, chain FROM run WHERE number = ?", (number,)).fetchone()
        if last != (after + len(events), chain):
            raise BadValue(f"run {run_id}", "the end of its record is missing; see fsck")
        return events, after

    def _has_gone(self, number: int, seq: int) -> bool:
        """Whether a record of a run has gone: the first one behind it is a base."""
        select = (
            "SELECT type FROM event WHERE run = ? AND lane = 'own' AND seq > ? "
            "ORDER BY position LIMIT 1"
        )
        found = self._db.execute(select, (number, seq)).fetchone()
        return found is not None and found[0] == AgentBase.type

    def latest(self, run_id: str, types: Sequence[str]) -> Event | None:
        """The last own event of a run that is of one of these types."""
        select = (
            "SELECT body FROM event WHERE run = (SELECT number FROM address WHERE run_id = ?) "
            f"AND lane = 'own' AND type IN ({', '.join('?' * len(types))}) "
            "ORDER BY position DESC LIMIT 1"
        )
        found = self._db.execute(select, (run_id, *types)).fetchone()
        return decode_event(found[0]) if found is not None else None

    def info(self, run_id: str) -> RunInfo | None:
        """Raises ``BadValue`` for a row that is damaged."""
        found = self._db.execute(_SELECT_ONE, (run_id,)).fetchone()
        return _sound(run_id, found) if found is not None else None

    def runs(self, *, live: bool = True, root_run_id: str | None = None) -> Sequence[RunInfo]:
        where = "status <> 'ended'" if live else "1 = 1"
        values: tuple[str, ...] = ()
        if root_run_id is not None:
            where, values = f"{where} AND {_OF_TREE}", (root_run_id, root_run_id)
        select = f"{_SELECT_INFO} WHERE {where} ORDER BY born"
        return [_info(found) for found in self._db.execute(select, values)]

    def runs_of(self, root_run_ids: Collection[str]) -> Sequence[RunInfo]:
        """Every live run of these trees; for a database that has arrays."""
        select = (
            f"{_SELECT_INFO} WHERE status <> 'ended' AND number IN ("
            "SELECT number FROM address WHERE run_id = ANY(?1) UNION ALL "
            "SELECT number FROM run WHERE root_run_id = ANY(?1) AND parent_run_id IS NOT NULL) "
            "ORDER BY born"
        )
        return [_info(found) for found in self._db.execute(select, (list(root_run_ids),))]

    def ready(self) -> Sequence[str]:
        select = "SELECT run_id FROM run WHERE ready = 1 ORDER BY born"
        return [run_id for (run_id,) in self._db.execute(select)]

    def timed(self) -> Sequence[tuple[str, int]]:
        select = "SELECT run_id, wake_at FROM run WHERE wake_at IS NOT NULL AND status <> 'ended'"
        # Whose deadline is none is damaged: it is checked, and reported, at once.
        return [(x, at if isinstance(at, int) else 0) for x, at in self._db.execute(select)]

    def find(self, to: str, by: Addressing) -> Sequence[str]:
        return candidates(self._db, to, by)

    def notes(self, prefix: str) -> Mapping[str, str]:
        select = "SELECT key, value FROM note WHERE substr(CAST(key AS TEXT), 1, ?) = ?"
        return {_text(key): _text(x) for key, x in self._db.execute(select, (len(prefix), prefix))}

    def read(
        self, selection: Selection, after: int, until: int, limit: int
    ) -> tuple[Sequence[Event], int]:
        """Up to ``limit`` events of a selection between two positions, and the one reached.

        It ends earlier where they are large: who reads slowly keeps a page in memory.

        Raises ``BadValue`` where the record of a run is not what was written.
        """
        where: list[str] = ["position > ?", "position <= ?"]
        values: list[int | str] = [after, until]
        if selection.run_id is not None:
            where.append("run = (SELECT number FROM address WHERE run_id = ?)")
            values.append(selection.run_id)
        if (root := selection.root_run_id) is not None:
            # What the hub's own lane says of a tree may be about no run that there is.
            where.append(
                f"(run IN (SELECT number FROM run WHERE {_OF_TREE}) AND lane <> 'hub' "
                "OR lane = 'hub' AND root = (SELECT number FROM address WHERE run_id = ?))"
            )
            values += (root, root, root)
        rows = PAGE if selection.match is not None else min(PAGE, limit)
        select = self._dialect.page.format(where=" AND ".join(where), rows=rows, size=PAGE_BYTES)
        found: list[Event] = []
        chains = _Chains(self._db)
        seen = looked_at = size = 0
        reached = after
        for position, run, lane, type_, crc, body in self._db.execute(select, values):
            if position <= reached:  # A damaged index leads back, without end.
                raise BadValue(
                    "the store", f"its events are not in order at position {position}; see fsck"
                )
            seen, reached = seen + 1, position
            written = body.encode()
            looked_at += len(written)
            if lane != "hub":
                chains.check(run, position, type_, crc, written)
            if selection.match is None or selection.match(type_):
                found.append(decode_event(body))
                size += len(written)
                if len(found) == limit or size >= PAGE_BYTES:
                    return found, position
        may_be_more = seen == rows or looked_at >= PAGE_BYTES
        return found, reached if may_be_more else until

    def position(self, run_id: str, lane: str, seq: int) -> int | None:
        number = self._number(run_id) if run_id else 0
        if number is None:
            return None
        select = "SELECT position FROM event WHERE run = ? AND lane = ? AND seq = ?"
        found = self._db.execute(select, (number, lane, seq)).fetchone()
        return found[0] if found is not None else None

    def secrets(self) -> dict[str, str]:
        """Every value of a variable that is kept."""
        return {_text(k): _text(x) for k, x in self._db.execute("SELECT key, value FROM secret")}

    def close(self) -> None:
        self._db.close()

    def _number(self, run_id: str) -> int | None:
        select = "SELECT number FROM address WHERE run_id = ?"
        found = self._db.execute(select, (run_id,)).fetchone()
        return found[0] if found is not None else None


class _Chains:
    """Follows the checksums of the runs whose events are read, wherever reading begins."""

    __slots__ = ("_db", "_last")

    def __init__(self, db: SqlConnection) -> None:
        self._db = db
        self._last: dict[int, int] = {}

    def check(self, run: int, position: int, type_: str, crc: int, body: bytes) -> None:
        before = self._last.get(run)
        if before is None:
            before = self._before(run, position)
        if checksum_after(before, type_, body) != crc:
            raise BadValue("the store", f"its record has changed at position {position}; see fsck")
        self._last[run] = crc

    def _before(self, run: int, position: int) -> int:
        select = (
            "SELECT crc FROM event WHERE run = ? AND lane <> 'hub' AND position < ? "
            "ORDER BY position DESC LIMIT 1"
        )
        found = self._db.execute(select, (run, position)).fetchone()
        return 0 if found is None else int(found[0])


_PLACE: Final = own_record("position, crc")
_OF_TREE: Final = (
    "(number = (SELECT number FROM address WHERE run_id = ?) "
    "OR root_run_id = ? AND parent_run_id IS NOT NULL)"
)
_SELECT_INFO: Final = (
    "SELECT number, run_id, root_run_id, parent_run_id, agent, name, session_key, status, inbox, "
    "waiting, created_at, wake_at, descriptor FROM run"
)

_ONE: Final = "WHERE number = (SELECT number FROM address WHERE run_id = ?)"
_SELECT_ONE: Final = f"{_SELECT_INFO} {_ONE}"
_SELECT_LENGTH: Final = f"{_SELECT_INFO.replace(' FROM run', ', seq FROM run')} {_ONE}"
"""The same, with how many events its own lane has."""


def _text(value: object) -> str:
    """What was written as a text, should its type be damaged."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _sound(run_id: str, found: Sequence[Any]) -> RunInfo:
    """A run by itself.  Raises ``BadValue`` for a row that cannot be written again, either."""
    info = _info(found)
    if info.run_id != run_id:
        raise BadValue(f"run {run_id}", "its row has changed; see fsck")
    if found[-1] is not None and info.descriptor is None:
        read_descriptor(found[-1])
    return info


def _info(found: Sequence[Any]) -> RunInfo:
    """A run among others.  Raises ``BadValue`` for a row that is damaged."""
    (
        _, run_id, root, parent, agent, name, session_key, status, inbox, waiting, created_at,
        wake_at, descriptor,
    ) = found  # fmt: skip
    check_row(run_id, status, inbox, (waiting, created_at, wake_at or 0))
    return RunInfo(
        run_id=run_id, root_run_id=root, parent_run_id=parent, agent=agent, name=name,
        session_key=session_key, status=status, inbox=inbox, waiting=waiting,
        created_at=created_at, wake_at=wake_at,
        descriptor=_descriptor(descriptor),
    )  # fmt: skip


def _descriptor(text: str | None) -> Descriptor | None:
    """A run's descriptor; a damaged one is none, for one run's trouble hides no other."""
    try:
        return None if text is None else read_descriptor(text)
    except BadValue:
        return None
