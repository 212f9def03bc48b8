"""``IndexCheck``: whether the indexes of runs agree with their rows.

SQLite does not notice a changed index entry.  A run that is missing from an index would never be
resumed, so each opening compares them.  That takes as long as there are runs; of many, it is done
in a thread while the store is at work already, and what is found fails the store then.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.sqlite.damage import opening
from hubbub.runtime.stores.sqlite.schema import DAMAGED, connect_read_only

__all__ = ["MAX_AT_ONCE", "IndexCheck", "check_indexes", "is_small"]

MAX_AT_ONCE: Final = 20_000
"""Runs up to which the opening waits for the check: some 20 ms."""

INSTRUCTIONS: Final = 10_000
"""Of SQLite's machine, after which it is looked whether to stop: a millisecond or less."""

_INDEXES: Final = {
    "run_ready": "ready = 1",
    "run_timed": "wake_at IS NOT NULL AND status <> 'ended'",
    "run_key": "session_key <> '' AND inbox = 'open'",
    "run_recent": "inbox = 'open' AND kind IN ('user', 'heartbeat')",
    "run_live": "status <> 'ended'",
}
"""The indexes by which runs with work are found: a run missing here is never resumed."""

_UNKNOWN: Final = (
    "SELECT count(*) FROM run NOT INDEXED WHERE status <> 'ended' AND number IS NOT "
    "(SELECT number FROM address WHERE run_id = run.run_id)"
)


def is_small(db: sqlite3.Connection) -> bool:
    """Whether checking takes no longer than an opening may."""
    (last,) = db.execute("SELECT coalesce(max(number), 0) FROM run").fetchone()
    return bool(last <= MAX_AT_ONCE)


def check_indexes(db: sqlite3.Connection, path: Path) -> None:
    """Raise ``OperatorError`` if an index of runs contradicts the rows."""
    sums = ", ".join(f"coalesce(sum({is_in}), 0), coalesce(sum(({is_in}) * number), 0)"
                     for is_in in _INDEXES.values())  # fmt: skip
    rows = db.execute(f"SELECT {sums} FROM run NOT INDEXED").fetchone()
    counted = "SELECT count(*), coalesce(sum(number), 0) FROM run INDEXED BY"
    found: list[int] = []
    for name, is_in in _INDEXES.items():
        found += db.execute(f"{counted} {name} WHERE {is_in}").fetchone()
    (unknown,) = db.execute(_UNKNOWN).fetchone()
    if unknown or list(rows) != found:
        raise OperatorError(
            f"{path}: damaged (an index of its runs has changed: hubbub fsck --thorough); {DAMAGED}"
        )


class IndexCheck:
    """The check of many runs, over a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_stopped = False

    def run(self) -> None:
        """Compare, as of one moment, in any thread; returns early when it is stopped.

        Raises ``OperatorError`` for damage, or a file that cannot be opened.
        """
        with closing(connect_read_only(self._path)) as db, opening(self._path):
            db.set_progress_handler(lambda: self._is_stopped, INSTRUCTIONS)
            try:
                db.execute("BEGIN")
                check_indexes(db, self._path)
            except sqlite3.OperationalError:
                if not self._is_stopped:
                    raise

    def stop(self) -> None:
        """Have ``run`` return within milliseconds, in whichever thread it is; idempotent."""
        self._is_stopped = True
