"""``TornStore``: the SQLite store on a machine whose power fails in the middle of a write.

    the batch of the doomed commit ─► log read ─► written ─► log read ─► dead, nobody has heard
    closed ─► the log as the disk has it ─► the next life opens it

The store, SQLite and the files are the real ones; what the disk has is put together afterwards.

What is simulated
-----------------
* The power fails after the batch was begun and before its flush returned.  What SQLite has flushed
  before is there.  Of what it wrote to its log since, any sectors of 512 bytes may be there, in
  any order, some with garbage in what was written, and the log may be longer than what is in it.
* SQLite flushes the log's new header before it writes behind it, so either the header is there, or
  nothing of the batch is.
* Nothing else is under way then: the store moves its log into the file between batches, and the
  contents of files are flushed before a commit names them.

What is not
-----------
* A flush that lies, and a power failure while a log is moved into the file or tables are made
  (``tests/support/crash_vfs.py`` does that, to the same writer).
* What a sector has held for a moment, where a batch is so large that SQLite writes a page twice.
* The folders of agents: simulated stores keep none.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from msgspec import Struct

from hubbub.hub.ports import SystemIds
from hubbub.hub.store.journal import Commit
from hubbub.runtime.stores.sql.writer import Applied, Operation
from hubbub.runtime.stores.sqlite.private_files import open_private
from hubbub.runtime.stores.sqlite.schema import HeldLog
from hubbub.runtime.stores.sqlite.store import SqliteStore

__all__ = ["Tear", "TornStore", "torn_log"]

SECTOR: Final = 512
HEADER: Final = 32
"""Bytes at the beginning of SQLite's log; its pages follow."""
PAGE_HEADER: Final = 24
PAGE_SIZE: Final = slice(8, 12)
"""Where the log's header says how large a page is."""
IN_ORDER: Final = 0.4
"""How often sectors reach the disk in the order in which they were written."""
SHARES: Final = (0.1, 0.5, 0.9, 1.0)
GARBAGE: Final = 0.005


class Tear(Struct, frozen=True, kw_only=True):
    """A log as the disk has it.  ``is_whole``: nothing is missing, so the batch is there."""

    log: bytes
    written: int
    """Sectors that were written since the flush before."""
    kept: int
    is_whole: bool


class TornStore(SqliteStore):
    """A ``SqliteStore`` that can lose power.  Its workers must work on the event loop.

    ``tear`` is what was left of the doomed batch, once that has happened.
    """

    tear: Tear | None = None
    _doom: tuple[Commit, int, Callable[[int], None]] | None = None
    _left: tuple[HeldLog, bytes] | None = None

    def lose_power(self, commit: Commit, sectors: int, on_loss: Callable[[int], None]) -> None:
        """Have the power fail while the batch is written that holds ``commit``.

        ``sectors`` says which ones survive (``torn_log``).  ``on_loss`` is called in that moment,
        with the number of commits of that batch that the store holds: all, or 0.  It must see to
        it that nothing more is written or heard.  What the disk has is in the folder once the
        store is closed.
        """
        self._doom = commit, sectors, on_loss

    def write(self, batch: Sequence[Operation]) -> Applied:
        if self._doom is None or self._doom[0] not in batch:
            return super().write(batch)
        _, sectors, on_loss = self._doom
        held, before = HeldLog(self.folder.database), _read(self._log)
        applied = super().write(batch)
        self.tear = tear = torn_log(before, _read(self._log), sectors)
        self._left = held, tear.log
        commits = [operation for operation in batch if isinstance(operation, Commit)]
        if not tear.is_whole:
            for commit in commits:
                commit.written = []
        on_loss(len(commits) if tear.is_whole else 0)
        return applied

    async def aclose(self) -> None:
        try:
            await super().aclose()
        finally:
            self._put_back()

    def _put_back(self) -> None:
        """Leave the log as the disk has it."""
        left, self._left = self._left, None
        if left is None:
            return
        held, log = left
        held.close()
        with open_private(self._log) as file:
            file.write(log)
        self._beside("shm").unlink(missing_ok=True)

    @property
    def _log(self) -> Path:
        return self._beside("wal")

    def _beside(self, what: str) -> Path:
        database = self.folder.database
        return database.with_name(f"{database.name}-{what}")


def torn_log(before: bytes, after: bytes, sectors: int) -> Tear:
    """What the disk has of a log that was ``before`` when it was flushed last, and then ``after``.

    ``sectors`` says which of the sectors written since then are there: 0 none of them, 1 all of
    them, and any other number some that are drawn from it.
    """
    begin, end = _written(before, after)
    cuts = [begin, *range((begin // SECTOR + 1) * SECTOR, end, SECTOR), end]
    pieces = [(at, until) for at, until in pairwise(cuts) if at < until]
    draw = SystemIds(sectors).random
    kept = _drawn(len(pieces), sectors, draw)
    log = bytearray(before)
    if sectors:
        _put(log, 0, after[:HEADER])
    for (at, until), is_kept in zip(pieces, kept, strict=True):
        if is_kept:
            is_garbage = sectors > 1 and draw() < GARBAGE
            garbage = bytes(int(draw() * 256) for _ in range(until - at)) if is_garbage else b""
            _put(log, at, garbage or after[at:until])
    if sectors > 1 and draw() < 0.5:
        log.extend(bytes(max(0, len(after) - len(log))))
    return Tear(log=bytes(log), written=len(pieces), kept=sum(kept), is_whole=_is_whole(log, after))


def _is_whole(log: bytearray, after: bytes) -> bool:
    """Whether it has all that was written; zeros behind that are room, there or not."""
    length = max(len(log), len(after))
    return log.ljust(length, b"\0") == after.ljust(length, b"\0")


def _drawn(count: int, sectors: int, draw: Callable[[], float]) -> list[bool]:
    """Which of ``count`` sectors are there, in the order in which they were written."""
    if sectors < 2:
        return [bool(sectors)] * count
    if draw() < IN_ORDER:
        first_lost = int(draw() * (count + 1))
        return [place < first_lost for place in range(count)]
    share = SHARES[int(draw() * len(SHARES))]
    return [draw() < share for _ in range(count)]


def _written(before: bytes, after: bytes) -> tuple[int, int]:
    """From where to where pages were written: SQLite writes them one behind the other.  Behind them
    there may be room, of zeros (``LogRoom``), which is there or not."""
    page = PAGE_HEADER + int.from_bytes(after[PAGE_SIZE], "big")
    places = range(HEADER, len(after.rstrip(b"\0")), page)
    changed = [at for at in places if before[at : at + page] != after[at : at + page]]
    return (changed[0], changed[-1] + page) if changed else (HEADER, HEADER)


def _put(target: bytearray, at: int, data: bytes) -> None:
    target.extend(bytes(max(0, at - len(target))))
    target[at : at + len(data)] = data


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
