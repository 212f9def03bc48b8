"""Worlds in which the store's writer works on a disk that fails.

One world: the writer applies chance batches on a ``CrashDisk`` until the disk fails at a chance
operation; then the disk is opened again, and what is there is compared with what was acknowledged;
several times over on the same disk.
"""

import random
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from msgspec import Struct, structs
from support.crash_vfs import PATH, Connection, CrashDisk, Fault, PowerLost, connect

from hubbub.hub.errors import OperatorError
from hubbub.hub.events import (
    AgentComplete,
    AgentStatus,
    Event,
    InLane,
    SessionMessage,
    SessionOpen,
    SessionTaken,
)
from hubbub.hub.store.journal import Commit, Delivery, NewRun
from hubbub.runtime.stores.sql.writer import Operation, SecretChange
from hubbub.runtime.stores.sqlite.schema import prepare
from hubbub.runtime.stores.sqlite.writer import SqliteWriter
from torture.audit import doubled_items, inbox_problems, lane_problems, read_runs

__all__ = ["Loss", "PowerCount", "Weakness", "lose_power"]

Weakness = Literal["", "synchronous=NORMAL", "synchronous=OFF", "told too early"]
"""What is planted, so that the test is seen to find it."""

LIVES = 4
"""Failures of one disk, one after another."""


class Loss(AssertionError):
    """What was acknowledged is not there, or what is there is not whole."""


class PowerCount(Struct):
    """What some worlds came to."""

    crashes: int = 0
    acknowledged: int = 0


Batch = Callable[[], list[Operation]]
"""Makes the operations of one batch, new ones each time: applying them fills them in."""


class _Batches:
    """Chance batches for a store.  Its runs are one tree, whose items go from one to another."""

    def __init__(self, draw: random.Random, db: sqlite3.Connection) -> None:
        self._draw = draw
        runs = read_runs(db)
        live = [run for run in runs.values() if run.status != "ended"]
        self._root = next(iter(runs), "")
        self._seqs = {run.run_id: len(run.own) for run in live}
        self._came = {run.run_id: len(run.inbox) for run in live}
        self._waiting = {run.run_id: sorted(run.waiting) for run in live}
        self._count = db.execute("SELECT count(*) FROM event").fetchone()[0]

    def next(self) -> Batch:
        made = [self._operation() for _ in range(self._draw.randint(1, 6))]
        return lambda: [make() for make in made]

    def _operation(self) -> Callable[[], Operation]:
        self._count += 1
        draw, runs = self._draw, list(self._seqs)
        text = f"{self._count} {draw.random()}" + "x" * draw.choice((0, 10, 300, 5000))
        what = draw.random()
        if not runs or what < 0.1:
            return self._opening(f"run-{text[:30]}", text)
        run_id = draw.choice(runs)
        if what < 0.4:
            self._put(run_id)
            letter = SessionMessage(content=text, key=text)
            return lambda: Commit(deliveries=(Delivery(letter, run_id, key=text, source="p"),))
        if what < 0.5:
            key = f"{run_id}\n{draw.randrange(5)}"
            return lambda: SecretChange(key, text)
        if what < 0.7:
            return self._taking(run_id)
        if what < 0.75 and len(runs) > 1:
            return self._end(run_id, draw.choice(runs))
        seq, events = self._stamped(run_id, *[AgentStatus(status=text)] * draw.randint(1, 3))
        notes = {f"note-{draw.randrange(9)}": text}
        return lambda: Commit(run_id, events, expect=seq, notes=notes)

    def _opening(self, run_id: str, text: str) -> Callable[[], Operation]:
        parent = self._root or None
        self._root = root = self._root or run_id
        self._seqs[run_id], self._came[run_id], self._waiting[run_id] = 0, 0, []
        self._put(run_id)
        new = NewRun(run_id=run_id, root_run_id=root, parent_run_id=parent, agent="a")
        opening = SessionOpen(name=text)
        return lambda: Commit(deliveries=(Delivery(opening, run_id, new=new),))

    def _taking(self, run_id: str) -> Callable[[], Operation]:
        """A run takes some of its own items, and some of others'."""
        every = [(of, seq) for of, seqs in self._waiting.items() for seq in seqs]
        some = self._draw.sample(every, min(len(every), self._draw.randint(0, 4)))
        for of, item in some:
            self._waiting[of].remove(item)
        items: list[InLane] = [SessionMessage(run_id=of, lane="in", seq=item) for of, item in some]
        seq, events = self._stamped(run_id, SessionTaken(items=tuple(items)))
        taken = [item for of, item in some if of == run_id]
        lent = [(of, item) for of, item in some if of != run_id]
        return lambda: Commit(run_id, events, expect=seq, taken=taken, lent=lent)

    def _end(self, run_id: str, heir: str) -> Callable[[], Operation]:
        """A run ends, and leaves what waits to another, maybe to itself: to nobody."""
        seq, events = self._stamped(run_id, AgentComplete())
        del self._seqs[run_id]
        for item in self._waiting.pop(run_id):
            if item > 1 and heir != run_id:  # The first is its opening.
                self._put(heir)
        return lambda: Commit(run_id, events, expect=seq, status="ended", leave_to=heir)

    def _put(self, run_id: str) -> None:
        self._came[run_id] += 1
        self._waiting[run_id].append(self._came[run_id])

    def _stamped(self, run_id: str, *events: Event) -> tuple[int, list[Event]]:
        """Where a run's lane ends, and what comes next in it."""
        seq = self._seqs[run_id]
        self._seqs[run_id] += len(events)
        return seq, [
            structs.replace(
                event, run_id=run_id, root_run_id=self._root, lane="own", seq=seq + number
            )
            for number, event in enumerate(events, 1)
        ]


State = tuple[list[tuple[Any, ...]], ...]

TABLES = ("address", "run", "event", "waiting", "accepted", "note", "secret")


def _state(db: Any) -> State:
    """Everything that is in the store."""
    return tuple(sorted(map(tuple, db.execute(f"SELECT * FROM {table}"))) for table in TABLES)


class _Expected:
    """What must be there: a store in memory that is given every batch once it is acknowledged."""

    def __init__(self, state: State | None = None) -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        prepare(self.db, PATH)
        for table, rows in zip(TABLES, state or [()] * len(TABLES), strict=True):
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                self.db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        self._writer = SqliteWriter(self.db)

    def apply(self, batch: Batch) -> None:
        self._writer.apply(batch())

    @property
    def state(self) -> State:
        return _state(self.db)


class _Life:
    """One life of the writer: from the opening of the disk until it fails."""

    def __init__(self, disk: CrashDisk, expected: _Expected, weakness: Weakness) -> None:
        self.disk = disk
        self.expected = expected
        self.weakness = weakness
        self.acknowledged = 0
        self.under_way: Batch | None = None
        """The batch that the disk failed under: there as a whole, or not at all."""

    def go(self, batches: _Batches, draw: random.Random) -> None:
        db: Connection | None = None
        try:
            kind, _, setting = self.weakness.partition("=")
            db = connect(self.disk, synchronous=setting if kind == "synchronous" else "")
            writer = SqliteWriter(db)  # type: ignore[arg-type]
            while True:
                self._write(writer, batches.next())
                if draw.random() < 0.15:
                    writer.checkpoint()
                if draw.random() < 0.15:
                    self.disk.make_room(f"{PATH}-wal", draw.randint(1, 20_000))
        except PowerLost:
            pass
        except sqlite3.Error:
            # As the store does: it writes nothing more, and lets go of the file.
            if db is not None and draw.random() < 0.5:
                with suppress(sqlite3.Error, PowerLost):
                    db.close()
                db = None
        if db is not None:
            db.abandon()

    def _write(self, writer: SqliteWriter, batch: Batch) -> None:
        if self.weakness == "told too early":
            self._tell(batch)
            writer.apply(batch())
            return
        self.under_way = batch
        writer.apply(batch())
        self.under_way = None
        self._tell(batch)

    def _tell(self, batch: Batch) -> None:
        self.expected.apply(batch)
        self.acknowledged += 1


def lose_power(
    seed: int, weakness: Weakness = "", faults: tuple[Fault, ...] = ("power",)
) -> PowerCount:
    """One world.  Raises ``Loss`` for a store that does not hold what was acknowledged."""
    draw, disk, count = random.Random(seed), CrashDisk(seed), PowerCount()
    expected = _Expected()
    for _ in range(LIVES):
        fault = draw.choice(faults)
        disk.fail_at(draw.randint(1, draw.choice((20, 300))), fault)
        life = _Life(disk, expected, weakness)
        life.go(_Batches(draw, expected.db), draw)
        # After an error the machine may go on: what was written is there then, synced or not.
        disk.restart(lose_power=fault == "power" or draw.random() < 0.5)
        count.crashes += 1
        count.acknowledged += life.acknowledged
        expected = _Expected(_audited(disk, life))
        disk.restart(lose_power=draw.random() < 0.5)
    return count


def _audited(disk: CrashDisk, life: _Life) -> State:
    """What is found on the disk, if it is what must be there."""
    try:
        db = connect(disk)
    except (sqlite3.Error, OperatorError) as error:
        raise Loss(f"the file cannot be opened: {error}") from error
    try:
        if (verdict := db.execute("PRAGMA integrity_check").fetchall()) != [("ok",)]:
            raise Loss(f"the file is damaged: {verdict}")
        runs = read_runs(db)
        if problems := [*lane_problems(db), *inbox_problems(runs), *doubled_items(runs)]:
            raise Loss("; ".join(problems))
        found, wanted = _state(db), life.expected.state
    except sqlite3.Error as error:
        raise Loss(f"the file cannot be read: {error}") from error
    finally:
        db.abandon()
    if found == wanted:
        return found
    if life.under_way is not None:
        life.expected.apply(life.under_way)
        if found == life.expected.state:
            return found
    events = TABLES.index("event")
    raise Loss(f"{len(found[events])} events, of {len(wanted[events])} that were acknowledged")
