"""Stores by name, SQLite, PostgreSQL, and agents' folders."""

from typing import TYPE_CHECKING, Final

from hubbub.hub.exports import exports_of

__all__ = [
    "DEFAULT_STORE",
    "PostgresStore",
    "SqliteStore",
    "folder_of_store",
    "open_store",
    "sqlite_store",
]

_EXPORTS: Final = {
    "hubbub.runtime.stores.open": (
        "DEFAULT_STORE",
        "folder_of_store",
        "open_store",
        "sqlite_store",
    ),
    "hubbub.runtime.stores.postgres.store": ("PostgresStore",),
    "hubbub.runtime.stores.sqlite.store": ("SqliteStore",),
}

if TYPE_CHECKING:
    from hubbub.runtime.stores.open import (
        DEFAULT_STORE,
        folder_of_store,
        open_store,
        sqlite_store,
    )
    from hubbub.runtime.stores.postgres.store import (
        PostgresStore,
    )
    from hubbub.runtime.stores.sqlite.store import (
        SqliteStore,
    )
else:
    __getattr__, __dir__ = exports_of(__name__, _EXPORTS)
