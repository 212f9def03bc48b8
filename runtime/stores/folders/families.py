"""``place_families``: whose children the runs of foreign folders are in this store.

    parents as the folders say  ×  what the store has   →   a place for each run

A parent that is neither here nor in the store was left behind: its child becomes a root of its
own, detached, and those below keep to it.  Parents that form a circle are nobody's.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

__all__ = ["Place", "place_families"]


class Place(Struct, frozen=True, kw_only=True):
    """Where a run stands; ``lost`` is a parent that is nowhere."""

    parent: str | None
    root: str
    lost: str = ""
    is_circle: bool = False


def place_families(
    parents: Mapping[str, str | None], root_of: Callable[[str], str | None]
) -> dict[str, Place]:
    """A place for each run of ``parents``; ``root_of`` tells the root of a run in the store."""
    return {run_id: _place(run_id, parents, root_of) for run_id in parents}


def _place(
    run_id: str, parents: Mapping[str, str | None], root_of: Callable[[str], str | None]
) -> Place:
    parent: str | None = parents[run_id]
    lost = ""
    if parent is not None and parent not in parents and root_of(parent) is None:
        parent, lost = None, str(parent)
    at, above = run_id, parent
    seen = {run_id}
    while above is not None:
        if above in seen:
            return Place(parent=parent, root=run_id, is_circle=True)
        seen.add(above)
        if above not in parents:
            root = root_of(above)
            # Else it was left behind, and who stands below it is a root now.
            return Place(parent=parent, root=at if root is None else root, lost=lost)
        at, above = above, parents[above]
    return Place(parent=parent, root=at, lost=lost)
