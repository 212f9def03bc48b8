"""``ImportedTrees``: trees that had ended when they came into the store.

Their ends stand behind younger ones, so they are not found where their time says.  Trees come into
a store while nobody is at work on it: what there is of them is read once in a life.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from hubbub.hub.store.reader import IMPORTED, StoreReader
from hubbub.runtime.stores.retention.retention import EndedTree
from hubbub.runtime.stores.retention.trees import PAGE, imported_trees

__all__ = ["ImportedTrees", "StoreLook"]

T = TypeVar("T")


class StoreLook(Protocol):
    """What is found in the store; before that all others have their turn."""

    async def __call__(self, look: Callable[[StoreReader], T], /) -> T: ...


class ImportedTrees:
    """Those of a store that are left, by when they ended."""

    def __init__(self) -> None:
        self.trees: list[EndedTree] = []
        self._is_read = False

    async def read(self, look: StoreLook) -> None:
        """Find them, the first time."""
        if self._is_read:
            return
        run_ids = await look(_noted)
        found: dict[str, EndedTree] = {}
        for first in range(0, len(run_ids), PAGE):
            page = await look(partial(imported_trees, run_ids=run_ids[first : first + PAGE]))
            found |= {tree.root_run_id: tree for tree in page}
        self.trees = sorted(found.values(), key=lambda tree: (tree.ended_at, tree.root_run_id))
        self._is_read = True


def _noted(store: StoreReader) -> Sequence[str]:
    """The runs of which it is noted that they were imported."""
    return [key.removeprefix(IMPORTED) for key in store.notes(IMPORTED)]
