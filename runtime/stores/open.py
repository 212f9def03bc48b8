"""Which store a text names: what ``Runtime(store=…)`` and ``--store`` take."""

from typing import TYPE_CHECKING, Final

from hubbub.hub.errors import BadValue
from hubbub.hub.ports import Ports
from hubbub.hub.store.memory import MemoryJournal
from hubbub.hub.store.store import Store
from hubbub.hub.texts import check_label

if TYPE_CHECKING:
    from hubbub.runtime.stores.sqlite.folder import DataFolder

__all__ = ["DEFAULT_STORE", "folder_of_store", "open_store"]

DEFAULT_STORE: Final = "sqlite:.hubbub"
"""A folder where the program runs."""


def open_store(
    store: str | Store, ports: Ports, *, keep: int = 10_000, default_agent: str = ""
) -> Store:
    """The store that ``store`` names, not open yet; a ``Store`` is taken as it is.

    Raises ``BadValue`` for a text that names none.
    """
    if not isinstance(store, str):
        return store
    if store == "memory":
        return MemoryJournal(keep=keep, ids=ports.ids)
    from hubbub.runtime.stores.sqlite.store import SqliteStore

    return SqliteStore(_path(store), ports=ports, default_agent=default_agent)


def folder_of_store(store: str) -> "DataFolder":
    """Where a named store lies.  Raises ``BadValue`` for one that lies in no folder."""
    from hubbub.runtime.stores.sqlite.folder import DataFolder

    return DataFolder(_path(store))


def _path(store: str) -> str:
    check_label("store", store)
    kind, _, path = store.partition(":")
    if kind != "sqlite" or not path:
        raise BadValue("store", f'"sqlite:PATH" or "memory" is wanted, not {store!r}')
    return path
