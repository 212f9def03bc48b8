"""``SqlConnection``: a connection to a database, as far as stores use it.

It is what ``sqlite3.Connection`` is.  Statements are written once for all databases: parameters
are ``?`` or ``?1``, and what databases say differently is in a ``SqlDialect``.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from msgspec import Struct

__all__ = ["SqlConnection", "SqlCursor", "SqlDialect"]


class SqlCursor(Protocol):
    """What a statement has found."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def fetchmany(self, size: int, /) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class SqlConnection(Protocol):
    """A connection on which transactions are begun and ended by statements."""

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, sql: str, values: Sequence[Any] = ..., /) -> SqlCursor: ...

    def executemany(self, sql: str, values: Iterable[Sequence[Any]], /) -> object: ...

    def close(self) -> None: ...


class SqlDialect(Struct, frozen=True, kw_only=True):
    """What a database says in its own words."""

    begin_reading: str
    """Begins a transaction that sees one moment."""
    body: str
    """The body of an event, as bytes."""
    body_of_e: str
    """The same, of the table that is called ``e``."""
    event_of_run: str
    """The table ``event``, searched by the index of runs."""
    event_of_end: str
    """The table ``event``, searched by the index of ends."""
    page: str
    """Rows of ``event`` in order: those ``{where}``, at most ``{rows}``.  It may end behind the one
    that makes them more than ``{size}`` bytes, and does where rows are fetched all at once."""
    damage: tuple[type[Exception], ...] = ()
    """What reading a damaged part raises that leaves the others readable."""
