"""``backup_store``: a copy of a store, made as the store itself makes it."""

from collections.abc import Callable
from pathlib import Path

from hubbub.hub.store.reader import Backup
from hubbub.runtime.stores.open import open_reader

__all__ = ["backup_store"]


def backup_store(
    store: str, destination: Path, *, tell: Callable[[str], object] | None = None
) -> Backup:
    """Copy the store that ``store`` names, values of secrets included, into a folder.

    See ``StoreReader.back_up`` for what is guaranteed and raised.
    """
    with open_reader(store) as reader:
        return reader.back_up(destination, tell)
