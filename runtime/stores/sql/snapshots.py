"""Snapshots in a table (``hub/snapshots/draft.py``): ``find_kept`` reads, ``KeptSnapshots`` writes.

They are written between two batches, each in a transaction of its own: none holds up a commit, or
fails one.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from hubbub.hub.logs import log
from hubbub.hub.snapshots.draft import RECORDS, SnapshotDraft, checksum_of, is_due
from hubbub.runtime.stores.sql.connection import SqlConnection, SqlDialect
from hubbub.runtime.stores.sql.own_records import own_record

__all__ = ["KeptSnapshots", "SnapshotReader", "snapshot_problems"]

MAX_KNOWN: Final = 10_000
"""Runs of which the writer knows what their last snapshots were; of others it is asked."""

MAX_TOLD: Final = 10_000


class KeptSnapshots:
    """The snapshots that a store's writer has kept, and how much was written of their runs since.

    In the writing thread.
    """

    def __init__(self, db: SqlConnection) -> None:
        self._db = db
        self._known: OrderedDict[str, list[int]] = OrderedDict()
        """By run: the number of the last event in its snapshot, how large that is, and the bytes of
        the events since."""

    def forget(self, run_id: str) -> None:
        """There is no such run any more."""
        self._known.pop(run_id, None)

    def grew(self, run_id: str, size: int) -> None:
        """More of a run was written."""
        if (known := self._known.get(run_id)) is not None:
            known[2] += size

    def is_early(self, draft: SnapshotDraft) -> bool:
        """Whether it is known that none is due yet.  May be asked in any thread."""
        known = self._known.get(draft.run_id)
        if known is None or not known[0]:
            return False
        return not is_due(draft.seq - known[0], known[2], known[1])

    def keep(self, draft: SnapshotDraft) -> bool:
        """Write a snapshot if it is due, without a word where the record is not as its draft has
        it; whether it was written.  Raises what encoding does, and the database's errors."""
        run_id, seq, version = draft.run_id, draft.seq, draft.version
        if self.is_early(draft):
            return False
        place = self._db.execute(_PLACE, (run_id, seq, seq)).fetchone()
        if place is None:
            return False
        number, chain = place
        if run_id not in self._known:
            self._know(run_id, self._find(number, draft))
            if self.is_early(draft):
                return False
        body = draft.encode()
        crc = checksum_of(run_id, seq, chain, version, body)
        self._db.execute(_PUT, (number, seq, version, crc, body))
        self._know(run_id, [seq, len(body), 0])
        return True

    def _find(self, number: int, draft: SnapshotDraft) -> list[int]:
        """What there is of a run; nothing where that cannot be used."""
        found = self._db.execute(_LAST, (number,)).fetchone()
        if found is None or found[1] != draft.version or not _is_before(found[0], draft.seq):
            return [0, 0, 0]
        seq, _, size = found
        (grown,) = self._db.execute(_GROWN, (number, number, seq, seq)).fetchone()
        return [seq, size, int(grown)]

    def _know(self, run_id: str, known: list[int]) -> None:
        self._known[run_id] = known
        self._known.move_to_end(run_id)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)


class SnapshotReader:
    """Finds the snapshot of a run, if it is of the record that the store has.

    What cannot be used is told in the log, of each run once.
    """

    def __init__(self, db: SqlConnection, dialect: SqlDialect) -> None:
        self._db = db
        self._damage = dialect.damage
        self._told: dict[str, None] = {}

    def find(self, run_id: str, number: int, seq: int, version: str) -> tuple[int, bytes] | None:
        """The number of its last event, and what it holds; of a run that has ``seq`` events."""
        if seq < RECORDS:
            return None
        try:
            found = self._db.execute(_SELECT, (number,)).fetchone()
            if found is None:
                return None
            problem = _problem_of(self._db, run_id, number, seq, found)
        except self._damage as error:
            problem = str(error)
        if not problem and found[1] != version:
            problem = f"it is of another version ({found[1]}; this is {version})"
        if not problem:
            return found[0], found[3]
        if run_id not in self._told and len(self._told) < MAX_TOLD:
            self._told[run_id] = None
            log.warning("snapshot.ignored", run_id=run_id, problem=problem)
        return None


def snapshot_problems(db: SqlConnection) -> Iterator[tuple[str, str]]:
    """The runs whose snapshots cannot be used, and why.  Raises the database's errors."""
    for number, run_id, length in db.execute(_ALL).fetchall():
        found = db.execute(_SELECT, (number,)).fetchone()
        if run_id is None:
            yield f"number {number}", "there is no such run"
        elif found is not None and (problem := _problem_of(db, run_id, number, length, found)):
            yield run_id, problem


def _problem_of(
    db: SqlConnection, run_id: str, number: int, length: int, found: tuple[Any, ...]
) -> str:
    """Why what is kept is no snapshot of the record of a run that has ``length`` events; empty
    where it is one."""
    seq, version, crc, body = found
    if isinstance(version, str) and isinstance(body, bytes) and _is_before(seq, length):
        place = db.execute(_CHAIN, (number, seq, seq)).fetchone()
        if place is not None and checksum_of(run_id, seq, place[0], version, body) == crc:
            return ""
    return "it has changed, or the run has"


def _is_before(at: object, seq: int) -> bool:
    return isinstance(at, int) and 0 < at <= seq


_CHAIN: Final = own_record("crc")
_PLACE: Final = own_record("run, crc", "(SELECT number FROM address WHERE run_id = ?)")
_SELECT: Final = "SELECT seq, version, crc, body FROM snapshot WHERE run = ?"
_ALL: Final = (
    "SELECT snapshot.run, run.run_id, run.seq FROM snapshot LEFT JOIN run ON number = snapshot.run "
    "ORDER BY snapshot.run"
)
_LAST: Final = "SELECT seq, version, length(body) FROM snapshot WHERE run = ?"
_GROWN: Final = (
    "SELECT coalesce(sum(length(body)), 0) FROM event WHERE run = ? AND position > "
    f"({own_record('position')})"
)
_PUT: Final = (
    "INSERT INTO snapshot (run, seq, version, crc, body) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, version = excluded.version, "
    "crc = excluded.crc, body = excluded.body"
)
