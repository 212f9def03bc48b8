"""Values of variables that survive restarts, in a table of their own.

They are all kept in memory; a change is written with, or before, the next commit that is
submitted after it.  What other processes put there comes with their events.
"""

from collections.abc import Callable, Iterable

from hubbub.hub.ports import MemorySecrets
from hubbub.runtime.stores.sql.writer import SecretChange

__all__ = ["StoredSecrets"]


class StoredSecrets(MemorySecrets):
    """Secrets in memory and in the store."""

    def __init__(self, write: Callable[[SecretChange], None]) -> None:
        super().__init__()
        self._write = write

    def restore(self, values: dict[str, str]) -> None:
        """Begin with what the store has."""
        self._values = values

    def take_in(self, values: Iterable[tuple[str, str]]) -> None:
        """Have what other processes have put there."""
        self._values.update(values)

    def put_if_absent(self, key: str, value: str) -> bool:
        is_new = super().put_if_absent(key, value)
        if is_new:
            self._write(SecretChange(key, value))
        return is_new

    def put(self, key: str, value: str) -> None:
        super().put(key, value)
        self._write(SecretChange(key, value))

    def drop(self, prefix: str) -> None:
        if self.keys(prefix):
            super().drop(prefix)
            self._write(SecretChange(prefix, None))
