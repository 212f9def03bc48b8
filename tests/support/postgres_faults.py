"""``faulty_connection``: a connection in whose groups of commits something happens."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeAlias

import psycopg

from hubbub.runtime.stores.postgres.server.attentive import SILENCE
from hubbub.runtime.stores.postgres.server.connection import PostgresConnection

__all__ = ["INJECTED", "MOMENTS", "Moment", "faulty_connection", "inject"]

Moment: TypeAlias = Literal["before", "between", "commit", "after"]
"""Of a group: before it begins; between its two messages; when its COMMIT is about to be sent;
when that is answered, and nobody has heard the answer."""

MOMENTS: Final[tuple[Moment, ...]] = ("before", "between", "commit", "after")

INJECTED: Final = {
    "40001": psycopg.errors.SerializationFailure,
    "40P01": psycopg.errors.DeadlockDetected,
    "55P03": psycopg.errors.LockNotAvailable,
    "57014": psycopg.errors.QueryCanceled,
    "25006": psycopg.errors.ReadOnlySqlTransaction,
}
"""Errors of a server that pass, by their codes."""


def inject(code: str) -> None:
    """Raise what a server would have said."""
    raise psycopg.errors.lookup(code)("injected")


def faulty_connection(
    happen: Callable[[Moment, PostgresConnection], None], *, silence: float = SILENCE
) -> type[PostgresConnection]:
    """A kind of connection; ``happen`` is called at each moment of each group that it writes."""

    class FaultyConnection(PostgresConnection):
        _at = ""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{"silence": silence, **options})

        def execute(self, sql: str, values: Any = (), /) -> Any:
            if sql == "BEGIN" and self._name.endswith("writer"):
                happen("before", self)
                self._at = "begun"
            elif sql == "COMMIT" and self._at:
                happen("commit", self)
                self._at = "committed"
            elif sql == "ROLLBACK":
                self._at = ""
            return super().execute(sql, values)

        @contextmanager
        def pipeline(self) -> Iterator[None]:  # type: ignore[override]
            with super().pipeline():
                yield
            if self._at == "begun":
                self._at = "decided"
                happen("between", self)
            elif self._at == "committed":
                self._at = ""
                happen("after", self)

    return FaultyConnection
