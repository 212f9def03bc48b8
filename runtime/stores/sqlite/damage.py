"""How a damaged database is reported: as one line with a remedy, never as a raw exception.

    errors of SQLite                 ─┐
    values that hubbub never writes  ├──►  OperatorError while opening, StoreFailed afterwards
    indexes that contradict rows     ─┘

SQLite detects damaged pages, but not a changed value or a changed index entry.  A run that is
missing from an index would never be resumed.  Each opening therefore compares the indexes with
the rows of live runs, which costs no more than counting these rows.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hubbub.hub.errors import OperatorError, StoreFailed
from hubbub.runtime.stores.sql.reader import READ_ERRORS
from hubbub.runtime.stores.sqlite.schema import DAMAGED, store_failure

__all__ = ["check_indexes", "opening", "reading_on"]

MAX_ROWS: Final = 20_000
"""Up to so many rows, all runs are compared; of more, only the live ones."""

_INDEXES: Final = {
    "run_ready": "ready = 1",
    "run_timed": "wake_at IS NOT NULL AND status <> 'ended'",
    "run_key": "session_key <> '' AND inbox = 'open'",
    "run_recent": "inbox = 'open' AND kind IN ('user', 'heartbeat')",
}
"""The indexes by which runs with work are found: a run missing here is never resumed."""

_KNOWN: Final = (
    "SELECT count(*) FROM run {by} WHERE status <> 'ended' AND number IS NOT "
    "(SELECT number FROM address WHERE run_id = run.run_id)"
)


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """Turns damage found inside into an ``OperatorError``."""
    try:
        yield
    except sqlite3.Error as error:
        raise OperatorError(store_failure(path, error)) from error
    except READ_ERRORS as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise OperatorError(f"{path}: damaged ({words}); {DAMAGED}") from error


@contextmanager
def reading_on(path: Path) -> Iterator[None]:
    """Turns damage found inside, while the store is open, into ``StoreFailed``."""
    try:
        yield
    except sqlite3.Error as error:
        words = store_failure(path, error).removeprefix(f"{path}: ")
        raise StoreFailed(str(path), words) from error
    except READ_ERRORS as error:
        problem = f"its contents are damaged ({error}); restore it from a backup"
        raise StoreFailed(str(path), problem) from error


def check_indexes(db: sqlite3.Connection, path: Path) -> None:
    """Raise ``OperatorError`` if an index of runs contradicts the rows."""
    (last,) = db.execute("SELECT coalesce(max(number), 0) FROM run").fetchone()
    by = "NOT INDEXED" if last <= MAX_ROWS else "INDEXED BY run_live"
    sums = ", ".join(f"coalesce(sum({is_in}), 0), coalesce(sum(({is_in}) * number), 0)"
                     for is_in in _INDEXES.values())  # fmt: skip
    counted = "count(*), coalesce(sum(number), 0)"
    rows = db.execute(f"SELECT {counted}, {sums} FROM run {by} WHERE status <> 'ended'").fetchone()
    live = f"SELECT {counted} FROM run INDEXED BY run_live WHERE status <> 'ended'"
    found = [*db.execute(live).fetchone()]
    for name, is_in in _INDEXES.items():
        found += db.execute(f"SELECT {counted} FROM run INDEXED BY {name} WHERE {is_in}").fetchone()
    (unknown,) = db.execute(_KNOWN.format(by=by)).fetchone()
    if unknown or list(rows) != found:
        raise OperatorError(
            f"{path}: damaged (an index of its runs has changed: hubbub fsck --thorough); {DAMAGED}"
        )
