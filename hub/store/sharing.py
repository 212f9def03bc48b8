"""``Sharing``: what a store adds that several processes are at work on at once.

    process A ─► its journal ─┐               ┌─► own commits are done   ┐ one order of positions,
    process B ─► its journal ─┴─► one store ──┴─► what others wrote ─────┘ the same for everybody

A tree of runs is *owned* by one process at a time: by that which opened it, until it hands the
tree over or its lease ends, and then by one that claims it.  Only the owner writes the own lanes of
the tree's runs; what anybody sends is accepted.  An ownership has a number, its epoch, which each
commit of an own lane carries: one that was submitted under an earlier epoch is a ``conflict``.

A store that is one process's has none of this (``sharing_of`` returns ``None``): everything is
owned, and nothing comes from elsewhere.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from hubbub.hub.events import Event

__all__ = ["Sharer", "Sharing", "sharing_of"]


class Sharer(Protocol):
    """A process at work on a shared store, as its journal knows it."""

    def heard_elsewhere(self, events: Sequence[Event]) -> None:
        """Other processes have written these; in order of position, between own commits."""
        ...

    def claimed(self, root_run_ids: Collection[str]) -> None:
        """These trees are this process's from now on, as the store has them."""
        ...

    def lost(self, root_run_ids: Collection[str]) -> None:
        """These trees are this process's no longer; called before a commit is refused for it."""
        ...


class Sharing(Protocol):
    """The share that one process has in a store.

    Own commits are done and events of others are heard in order of position, without a gap; the
    journal's ``tip`` is the position of the last of them.  ``flush`` also waits until what was in
    the store at the call is heard, and ``load`` until everything is that it has seen.  A journal
    that cannot reach its store waits.
    """

    def attach(self, sharer: Sharer) -> None:
        """Name who hears of others; nothing is heard before, and nothing is missed since ``open``.

        For the hub to call, once.
        """
        ...

    def owns(self, root_run_id: str) -> bool:
        """Whether the tree is this process's, as far as it knows."""
        ...

    def trees(self) -> Collection[str]:
        """The roots of the trees that are this process's, as far as it knows."""
        ...

    async def hand_over(self, root_run_ids: Collection[str]) -> None:
        """Give up trees, behind all that was submitted: others may claim them at once.

        ``Sharer.lost`` is called with those that were owned.
        """
        ...

    async def drain(self) -> None:
        """Claim nothing more; trees that are opened here are others' to claim."""
        ...


def sharing_of(store: object) -> Sharing | None:
    """The share in a store that has the attribute ``sharing``; ``None`` where it is one
    process's."""
    found: Sharing | None = getattr(store, "sharing", None)
    return found
