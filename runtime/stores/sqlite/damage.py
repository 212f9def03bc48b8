"""How a damaged database is reported: as one line with a remedy, never as a raw exception.

    errors of SQLite                 ─┐
    values that hubbub never writes  ├──►  OperatorError while opening, StoreFailed afterwards
    indexes that contradict rows     ─┘

SQLite detects damaged pages, but not a changed value or a changed index entry: for the latter see
``index_check``.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hubbub.hub.errors import OperatorError, StoreFailed
from hubbub.runtime.stores.sql.reader import READ_ERRORS
from hubbub.runtime.stores.sqlite.schema import DAMAGED, store_failure

__all__ = ["opening", "reading_on"]


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
