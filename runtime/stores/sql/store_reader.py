"""``SqlStoreReader``: ``StoreReader`` of a database, as far as databases do not differ."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeAlias

from hubbub.hub.events import Event
from hubbub.hub.store.journal import Addressing, LoadedRun
from hubbub.hub.store.reader import (
    MAX_TREES_COUNTED,
    AcceptedRow,
    Backup,
    EventRow,
    ProcessRow,
    Recency,
    RunRow,
    WaitingRow,
    decoded,
)
from hubbub.runtime.stores.sql.connection import SqlConnection, SqlDialect
from hubbub.runtime.stores.sql.reader import SqlReader
from hubbub.runtime.stores.sql.rows import out_of_order
from hubbub.runtime.stores.sql.snapshots import snapshot_problems
from hubbub.runtime.stores.sql.tables import Table

__all__ = ["IS_SPOKEN_TO", "LAST", "NEWEST_LIVE", "PAGE", "RESTS", "SqlStoreReader"]

PAGE: Final = 1_000
"""Rows that are read at a time."""

PAGE_OF_MANY: Final = 5_000
"""Events that are read at a time where several runs are, of all of them together."""

FIRST: Final = -(1 << 62)
"""Before every number that stands anywhere, damaged ones included."""

LAST: Final = 1 << 62

IS_SPOKEN_TO: Final = "parent_run_id IS NULL AND kind IN ('', 'user')"
"""Roots of people and programs."""

RESTS: Final = "status <> 'active' AND status <> 'ended'"
"""Live runs but those at work."""

_IS_AT_WORK: Final = "ready = 1 AND status = 'active'"
"""The others: few, and found by what is ready."""

_NEWEST: Final = "SELECT born, run_id FROM run WHERE {of} ORDER BY born DESC LIMIT ?1"
_NEWEST_ROOTS: Final = _NEWEST.format(of="parent_run_id IS NULL")
NEWEST_LIVE: Final = " UNION ALL ".join(
    f"SELECT born, run_id FROM ({_NEWEST.format(of=of)}) AS {name}"
    for name, of in {
        "resting": f"parent_run_id IS NULL AND {RESTS}",
        "working": f"run_id = root_run_id AND {_IS_AT_WORK}",  # So that all roots are not read.
        "outlived": "status = 'ended' AND number IN (SELECT number FROM address WHERE run_id IN ("
        f"SELECT root_run_id FROM run WHERE parent_run_id IS NOT NULL AND {RESTS} UNION ALL "
        f"SELECT root_run_id FROM run WHERE parent_run_id IS NOT NULL AND {_IS_AT_WORK}))",
    }.items()
)
"""Roots of live trees, as of one moment: a run that comes to rest meanwhile is in none twice."""

_Lane: TypeAlias = Iterator[tuple[Any, ...]]


class SqlStoreReader(ABC):
    """Reads by a connection of its own, which it closes.  See ``StoreReader``."""

    def __init__(self, db: SqlConnection, dialect: SqlDialect) -> None:
        self._db = db
        self._dialect = dialect
        self.runs = SqlReader(db, dialect)
        """What a runtime reads, by the same connection."""
        self._names: dict[Any, str] = {0: ""}
        """Runs by the numbers that stand for them."""

    # ── what a database says in its own way ──────────────────────────────────────────────────

    @property
    @abstractmethod
    def place(self) -> str:
        """What messages call the store."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[None]:
        """Whatever the database complains of inside is a ``StoreUnreadable``."""

    @abstractmethod
    def content(self, digest: str) -> bytes: ...

    @abstractmethod
    def place_of(self, digest: str) -> str: ...

    @abstractmethod
    def is_at_work(self) -> bool: ...

    @abstractmethod
    def processes(self) -> Sequence[ProcessRow]: ...

    @abstractmethod
    def free_trees(self) -> Mapping[str, int]: ...

    @abstractmethod
    def faults(self, *, thorough: bool = False) -> Iterator[str]: ...

    @abstractmethod
    def back_up(self, destination: Path, tell: Callable[[str], object] | None = None) -> Backup: ...

    # ── the store ────────────────────────────────────────────────────────────────────────────

    @property
    def name(self) -> str:
        found = self._all("SELECT value FROM meta WHERE key = 'store'")
        return str(found[0][0]) if found else ""

    @property
    def tip(self) -> int:
        ((tip,),) = self._all("SELECT coalesce(max(position), 0) FROM event")
        return int(tip)

    @contextmanager
    def one_moment(self) -> Generator[None, None, None]:
        if self._db.in_transaction:  # Of a writer that uses the same connection.
            yield
            return
        with self._reading():
            self._db.execute(self._dialect.begin_reading)
        try:
            # A transaction begins with its first read.
            self._all("SELECT count(*) FROM meta")
            yield
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def close(self) -> None:
        self._db.close()

    def forget_names(self) -> None:
        """Ask again for what numbers stand for: those of a writer that gave up may change."""
        self._names = {0: ""}

    # ── runs ─────────────────────────────────────────────────────────────────────────────────

    def row(self, run_id: str) -> RunRow | None:
        found = self._all(f"{_SELECT_RUN} WHERE run.{_BY_ID}", (run_id,))
        return _row(found[0]) if found else None

    def rows(self) -> Iterator[RunRow]:
        number = FIRST
        select = f"{_SELECT_RUN} WHERE run.number > ? ORDER BY run.number LIMIT {PAGE}"
        while rows := self._all(select, (number,)):
            yield from map(_row, rows)
            if rows[-1][0] <= number:
                raise out_of_order(self.place, rows[-1][0])
            number = rows[-1][0]

    def roots(self) -> Mapping[str, str]:
        return dict(self._all("SELECT run_id, root_run_id FROM run"))

    def tree(self, root_run_id: str, *, live: bool = False) -> Sequence[RunRow]:
        select = (
            f"{_SELECT_RUN} WHERE run.number IN (SELECT number FROM address WHERE run_id = ?1 "
            "UNION ALL SELECT number FROM run WHERE root_run_id = ?1 AND parent_run_id IS NOT NULL)"
            f"{' AND status <> ?2' if live else ''} ORDER BY born"
        )
        values = (root_run_id, "ended") if live else (root_run_id,)
        return [_row(found) for found in self._all(select, values)]

    def spoken_to(
        self, limit: int, *, before: Recency | None = None, after: Recency | None = None
    ) -> Sequence[RunRow]:
        where, values = IS_SPOKEN_TO, [*(before or ()), *(after or ()), limit]
        where += " AND (recent, born) < (?, ?)" if before else ""
        where += " AND (recent, born) > (?, ?)" if after else ""
        order = "ASC" if after else "DESC"
        select = f"{_SELECT_RUN} WHERE {where} ORDER BY recent {order}, born {order} LIMIT ?"
        found = [_row(row) for row in self._all(select, values)]
        return found[::-1] if after else found

    def newest_trees(self, *, live: bool, limit: int) -> tuple[Sequence[str], int]:
        counted = limit + MAX_TREES_COUNTED
        found = self._all(NEWEST_LIVE if live else _NEWEST_ROOTS, (counted,))
        if live:
            found.sort(reverse=True)
        roots = [run_id for _, run_id in found[:counted]]
        return roots[:limit], len(roots)

    def ends(self, limit: int, *, after: int = 0, before: int | None = None) -> Sequence[EventRow]:
        order = "ASC" if before is None else "DESC"
        select = (
            f"SELECT position, run, root, lane, seq, type, crc, {self._dialect.body} "
            f"FROM {self._dialect.event_of_end} WHERE type = 'agent:complete' "
            f"AND position > ? AND position < ? ORDER BY position {order} LIMIT ?"
        )
        found = self._all(select, (after, LAST if before is None else before, limit))
        return [
            EventRow(position, self._name(run), self._name(root), *rest)
            for position, run, root, *rest in found
        ]

    def bases(
        self, run_id: str | None = None, *, after: int = 0, limit: int = 100
    ) -> Sequence[EventRow]:
        where, values = "", (after, limit)
        if run_id is not None:
            where, values = f"{_OF_RUN} AND ", (run_id, after, limit)  # type: ignore[assignment]
        select = (
            f"SELECT position, run, root, lane, seq, type, crc, {self._dialect.body} FROM event "
            f"WHERE {where}type = 'agent:base' AND position > ? ORDER BY position LIMIT ?"
        )
        return [
            EventRow(position, self._name(run), self._name(root), *rest)
            for position, run, root, *rest in self._all(select, values)
        ]

    def resting_roots(self, limit: int, *, after: int = 0) -> Sequence[RunRow]:
        select = (
            f"{_SELECT_RUN} WHERE parent_run_id IS NULL AND {RESTS} AND born > ? "
            "ORDER BY born LIMIT ?"
        )
        return [_row(found) for found in self._all(select, (after, limit))]

    def trees_of_resting_children(self, limit: int, *, after: str = "") -> Sequence[str]:
        select = (
            f"SELECT DISTINCT root_run_id FROM run WHERE parent_run_id IS NOT NULL AND {RESTS} "
            "AND root_run_id > ? ORDER BY root_run_id LIMIT ?"
        )
        return [root for (root,) in self._all(select, (after, limit))]

    def described(self, after: int | None = None) -> Sequence[str]:
        where, values = "descriptor IS NOT NULL", ()
        if after is not None:
            # Run by run: not even a look at the events of all the others.
            where += (
                f" AND EXISTS (SELECT 1 FROM {self._dialect.event_of_run} "
                "WHERE event.run = run.number AND position > ?)"
            )
            values = (after,)  # type: ignore[assignment]
        found = self._all(f"SELECT run_id FROM run WHERE {where} ORDER BY born", values)
        return [run_id for (run_id,) in found]

    def matching(self, part: str, limit: int) -> Sequence[str]:
        select = (
            "SELECT run_id FROM run WHERE run_id >= ?1 AND run_id < ?2 "
            "UNION SELECT run_id FROM run "
            "WHERE substr(run_id, length(run_id) - length(?1) + 1) = ?1 "
            "ORDER BY run_id LIMIT ?3"
        )
        found = self._all(select, (part, f"{part}\U0010ffff", limit))
        return [str(run_id) for (run_id,) in found]

    def find(self, to: str, by: Addressing) -> Sequence[str]:
        with self._reading():
            return self.runs.find(to, by)

    def snapshot_problems(self) -> Iterator[tuple[str, str]]:
        with self._reading():
            yield from snapshot_problems(self._db)

    def load(self, run_id: str) -> LoadedRun | None:
        with self._reading():
            if self._db.in_transaction:
                return self.runs.look(run_id)
            return self.runs.load(run_id)

    def latest(self, run_id: str, types: Sequence[str]) -> Event | None:
        select = (
            f"SELECT position, {self._dialect.body} FROM event WHERE {_OF_RUN} AND lane = 'own' "
            f"AND type IN ({', '.join('?' * len(types))}) ORDER BY position DESC LIMIT 1"
        )
        found = self._all(select, (run_id, *types))
        return decoded(self, *found[0]) if found else None

    def lanes(self, run_id: str, limit: int, *, backwards: bool = False) -> Sequence[Event]:
        select = (
            f"SELECT position, {self._dialect.body} FROM event WHERE {_OF_RUN} AND lane <> 'hub' "
            f"ORDER BY position {'DESC' if backwards else 'ASC'} LIMIT ?"
        )
        return [decoded(self, *found) for found in self._all(select, (run_id, limit))]

    # ── events and inboxes ───────────────────────────────────────────────────────────────────

    def event_rows(
        self,
        run_ids: Collection[str] | None = None,
        *,
        after: int = 0,
        until: int | None = None,
        backwards: bool = False,
    ) -> Iterator[EventRow]:
        if until is None:
            until = self.tip if backwards else LAST
        if run_ids is None:
            lanes = [self._lane(None, after, until, PAGE, backwards)]
        else:
            page = max(10, min(PAGE, PAGE_OF_MANY // max(1, len(run_ids))))
            numbers = filter(None, map(self._number, run_ids))
            lanes = [self._lane(number, after, until, page, backwards) for number in numbers]
        rows = lanes[0] if len(lanes) == 1 else merge(*lanes, key=_position, reverse=backwards)
        for position, run, root, *rest in rows:
            yield EventRow(position, self._name(run), self._name(root), *rest)

    def _lane(self, run: int | None, after: int, until: int, page: int, backwards: bool) -> _Lane:
        """Rows of a run, or of the whole store, page by page."""
        of_run = "" if run is None else "run = ? AND "
        order = "DESC" if backwards else "ASC"
        select = (
            f"SELECT position, run, root, lane, seq, type, crc, {self._dialect.body} FROM event "
            f"WHERE {of_run}position > ? AND position <= ? ORDER BY position {order} LIMIT {page}"
        )
        while rows := self._all(select, (*(() if run is None else (run,)), after, until)):
            for row in rows:
                # By a damaged index a row may come again, and with it all behind it, for ever.
                if not after < row[0] <= until:
                    raise out_of_order(self.place, row[0])
                if backwards:
                    until = row[0] - 1
                else:
                    after = row[0]
                yield row

    def item(self, run_id: str, seq: int) -> Event | None:
        select = (
            f"SELECT position, {self._dialect.body} FROM event "
            f"WHERE {_OF_RUN} AND lane = 'in' AND seq = ?"
        )
        found = self._all(select, (run_id, seq))
        return decoded(self, *found[0]) if found else None

    def waiting(self, run_id: str | None = None) -> Iterator[WaitingRow]:
        select, values = _SELECT_WAITING.format(body=self._dialect.body_of_e), ()
        if run_id is not None:
            select += " WHERE w.run = (SELECT number FROM address WHERE run_id = ?)"
            values = (run_id,)  # type: ignore[assignment]
        for run, *rest in self._each(f"{select} ORDER BY w.run, w.seq", values):
            yield WaitingRow(self._name(run), *rest)

    def accepted(
        self, run_id: str | None = None, *, after: int | None = None
    ) -> Iterator[AcceptedRow]:
        where, values = "a.position > ?", [FIRST if after is None else after]
        if run_id is not None:
            where += " AND a.run = (SELECT number FROM address WHERE run_id = ?)"
            values.append(run_id)  # type: ignore[arg-type]
        accepted = _SELECT_ACCEPTED.format(body=self._dialect.body_of_e)
        select = f"{accepted} WHERE {where} ORDER BY a.run, a.source, a.key"
        for run, source, key, position, seq, body in self._each(select, values):
            name = self._name(run)
            if isinstance(position, int) and position < 0:
                yield AcceptedRow(name, source, key, 0, 0, None, -position)
            else:
                yield AcceptedRow(name, source, key, position, seq, body)

    def notes(self, prefix: str = "") -> Mapping[str, str]:
        with self._reading():
            return self.runs.notes(prefix)

    # ── whole tables ─────────────────────────────────────────────────────────────────────────

    def count(self, table: str) -> int:
        """How many rows a table has."""
        ((count,),) = self._all(f"SELECT count(*) FROM {table}")
        return int(count)

    def pages(self, table: Table) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a table, in the order of its key, a page at a time."""
        key, places = ", ".join(table.key), [table.columns.index(each) for each in table.key]
        select, after = f"SELECT {table.names} FROM {table.name}", ""
        order = f"ORDER BY {key} LIMIT {PAGE}"
        last: tuple[Any, ...] = ()
        ends: set[tuple[Any, ...]] = set()
        while rows := self._all(f"{select} {after} {order}", last):
            yield rows
            last = tuple(rows[-1][place] for place in places)
            if last in ends:
                raise out_of_order(self.place, last)
            ends.add(last)
            after = f"WHERE ({key}) > ({', '.join('?' * len(last))})"

    # ── the database ─────────────────────────────────────────────────────────────────────────

    def _all(self, select: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._reading():
            return self._db.execute(select, values).fetchall()

    def _each(self, select: str, values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """The same, where there may be many: a page at a time."""
        with self._reading():
            cursor = self._db.execute(select, values)
        while True:
            with self._reading():
                rows = cursor.fetchmany(PAGE)
            if not rows:
                return
            yield from rows

    def _number(self, run_id: str) -> int | None:
        found = self._all("SELECT number FROM address WHERE run_id = ?", (run_id,))
        return found[0][0] if found else None

    def _name(self, number: Any) -> str:
        """The run that a number stands for; damage is shown as what it is."""
        name = self._names.get(number)
        if name is None:
            found = self._all("SELECT run_id FROM address WHERE number = ?", (number,))
            name = str(found[0][0]) if found else f"number {number}"
            self._names[number] = name
        return name


_position = itemgetter(0)

_BY_ID: Final = "number = (SELECT number FROM address WHERE run_id = ?)"
"""Finds the row of a run by its id, with the one index that there is for that."""

_OF_RUN: Final = "run = (SELECT number FROM address WHERE run_id = ?)"

_SELECT_RUN: Final = (
    "SELECT run.number, address.run_id, run.run_id, root_run_id, parent_run_id, agent, name, "
    "session_key, kind, descriptor, status, inbox, ready, seq, in_seq, chain, waiting, messages, "
    "born, created_at, wake_at, recent FROM run LEFT JOIN address ON address.number = run.number"
)
_SELECT_WAITING: Final = (
    "SELECT w.run, w.seq, w.position, {body} FROM waiting AS w "
    "LEFT JOIN event AS e ON e.position = w.position AND e.run = w.run AND e.lane = 'in' "
    "AND e.seq = w.seq"
)
_SELECT_ACCEPTED: Final = (
    "SELECT a.run, a.source, a.key, a.position, coalesce(e.seq, 0), {body} "
    "FROM accepted AS a "
    "LEFT JOIN event AS e ON e.position = a.position AND e.run = a.run AND e.lane = 'in'"
)


def _row(found: Sequence[Any]) -> RunRow:
    (
        number, address, run_id, root, parent, agent, name, session_key, kind, descriptor, status,
        inbox, ready, seq, in_seq, chain, waiting, messages, born, created_at, wake_at, recent,
    ) = found  # fmt: skip
    return RunRow(
        address=f"number {number}" if address is None else address, run_id=run_id,
        root_run_id=root, parent_run_id=parent, agent=agent, name=name, session_key=session_key,
        kind=kind, descriptor=descriptor, status=status, inbox=inbox, ready=ready, seq=seq,
        in_seq=in_seq, chain=chain, waiting=waiting, messages=messages, born=born,
        created_at=created_at, wake_at=wake_at, recent=recent,
    )  # fmt: skip
