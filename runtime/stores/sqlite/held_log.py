"""``HeldLog``: SQLite's log of writes, kept as it grows, for who tries what a disk may lose."""

from pathlib import Path

from hubbub.runtime.stores.sqlite.schema import connect_read_only

__all__ = ["HeldLog"]


class HeldLog:
    """As long as it is open, nothing that is written later is moved from the log of the database
    at ``path`` into the file, and SQLite does not empty the log when the store is closed."""

    def __init__(self, path: Path) -> None:
        self._db = connect_read_only(path)
        self._db.execute("BEGIN")
        # A transaction begins with its first read.
        self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()

    def close(self) -> None:
        """Let go of the log; idempotent."""
        self._db.close()
