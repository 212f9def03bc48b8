"""``TABLES``: what every store in a database keeps in the same columns, so that it can be copied.

Secrets and contents of files are kept by each kind of database in its own way.
"""

from typing import Final

from msgspec import Struct

__all__ = ["EVENTS", "RUNS", "TABLES", "Table"]


class Table(Struct, frozen=True):
    """A table, its columns, and those of them by which its rows are told apart and ordered."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def names(self) -> str:
        """The columns as a statement lists them."""
        return ", ".join(self.columns)

    @property
    def insert(self) -> str:
        """A statement that puts in a row.  It names the columns: a table may have got others."""
        return (
            f"INSERT INTO {self.name} ({self.names}) VALUES ({', '.join('?' * len(self.columns))})"
        )


EVENTS: Final = Table(
    "event", ("position", "run", "root", "lane", "seq", "type", "crc", "body"), ("position",)
)

RUNS: Final = Table(
    "run",
    (
        "number", "run_id", "root_run_id", "parent_run_id", "agent", "name", "session_key",
        "kind", "descriptor", "status", "inbox", "ready", "seq", "in_seq", "chain", "waiting",
        "messages", "born", "created_at", "wake_at", "recent",
    ),
    ("number",),
)  # fmt: skip

TABLES: Final = (
    Table("address", ("number", "run_id"), ("number",)),
    RUNS,
    EVENTS,
    Table("waiting", ("run", "seq", "position"), ("run", "seq")),
    Table("accepted", ("run", "source", "key", "position"), ("run", "source", "key")),
    Table("note", ("key", "value"), ("key",)),
)  # fmt: skip
