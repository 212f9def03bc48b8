"""``SqlOriginal`` and ``SqlCopy``: the two ends of a copy of a whole store, row by row.

    original.pages ─► copy.put_rows … ─► put_secret … ─► put_content … ─► settle ─► complete

Positions, checksums and the numbers of runs stay as they are, and so does the store's name: a
cursor of the original holds in the copy.  Until ``complete`` the copy is no store: whoever opens it
is refused.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hubbub.hub.errors import OperatorError
from hubbub.runtime.stores.sql.store_reader import SqlStoreReader
from hubbub.runtime.stores.sql.tables import Table

__all__ = ["SqlCopy", "SqlOriginal", "target_in_use", "unfinished_copy"]


class SqlOriginal(ABC):
    """A store on which nobody is at work while it is copied, as of one moment.  It is not changed.

    Raises ``OperatorError`` for what cannot be read.
    """

    reader: SqlStoreReader

    @property
    def name(self) -> str:
        """What the store is called in cursors."""
        return self.reader.name

    @property
    def place(self) -> str:
        """What messages call the store."""
        return self.reader.place

    def pages(self, table: Table) -> Iterator[Sequence[tuple[Any, ...]]]:
        """The rows of a table, in the order of its key, a page at a time."""
        return self.reader.pages(table)

    def count(self, table: str) -> int:
        """How many rows a table has."""
        return self.reader.count(table)

    @abstractmethod
    def secrets(self) -> Iterator[tuple[str, str]]:
        """The values of variables by key, as they are used."""

    @abstractmethod
    def contents(self) -> Iterator[tuple[str, bytes]]:
        """The contents of files by digest, one at a time."""


class SqlCopy(ABC):
    """A store in the making.  Raises ``OperatorError`` for what cannot be written."""

    reader: SqlStoreReader
    """Sees what was put in."""

    @property
    def place(self) -> str:
        """What messages call the store."""
        return self.reader.place

    def put_rows(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Put in some rows of a table."""
        with self._writing(f"a row of the table {table.name}"):
            self._put_rows(table, rows)

    def put_secret(self, key: str, value: str) -> None:
        """Put in a value of a variable."""
        with self._writing("a value of a secret"):
            self._put_secret(key, value)

    def put_content(self, digest: str, content: bytes) -> None:
        """Put in a content of a file."""
        with self._writing(f"the content {digest}"):
            self._put_content(digest, content)

    def settle(self) -> None:
        """Everything is in: bring what the store derives from it up to date, for ``reader``."""
        with self._writing("what was copied"):
            self._settle()

    def complete(self) -> None:
        """Declare the copy a store, durably."""
        with self._writing("what was copied"):
            self._complete()

    # ── what a database does in its own way ──────────────────────────────────────────────────

    @abstractmethod
    def _put_rows(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None: ...

    @abstractmethod
    def _put_secret(self, key: str, value: str) -> None: ...

    @abstractmethod
    def _put_content(self, digest: str, content: bytes) -> None: ...

    @abstractmethod
    def _settle(self) -> None: ...

    @abstractmethod
    def _complete(self) -> None: ...

    @abstractmethod
    def _failure_of(self, error: Exception, what: str) -> OperatorError | None:
        """What to raise instead of an error of the database, met while ``what`` was written."""

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if (failure := self._failure_of(error, what)) is not None:
                raise failure from error
            raise


def unfinished_copy(place: str, source: str) -> OperatorError:
    """Why what a migration has left unfinished is no store."""
    return OperatorError(
        f"{place}: an unfinished copy of the store {source}; run the same hubbub migrate again, "
        "which begins it anew, or remove it"
    )


def target_in_use(place: str, *, is_copy: bool) -> OperatorError:
    """Why a store that holds something cannot become a copy."""
    what = "holds runs; give an empty store, or a new one"
    if is_copy:
        what = "is a copy of that store already; use it, or remove it and migrate again"
    return OperatorError(f"{place}: {what}")
