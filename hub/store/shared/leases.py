"""``Lease`` and ``Tree``: who is at work on a ``SharedMemory``, and what that owns."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from hubbub.hub.store.declared import NOTHING_DECLARED, Declared
from hubbub.hub.store.placement import Offer

__all__ = ["Holding", "Lease", "Tree", "Written"]


class Lease(Struct, eq=False):
    """One process's, until it is over."""

    number: int
    expires: float
    is_worker: bool
    offer: Offer = Offer()
    drains: bool = False
    is_over: bool = False
    group: int = 0
    """The number of the last group of commits that was written under it."""
    written: "Sequence[Written]" = ()
    """What that came to."""
    trees: "dict[str, Tree]" = {}
    """What is owned under it, by root."""
    declared: Declared = NOTHING_DECLARED
    told: int = 0
    """The position up to which its process has been told of events, as it said last."""


class Tree(Struct, eq=False):
    """A tree of which some run lives."""

    root_run_id: str
    agent: str
    """That of the root."""
    owner: int
    """The number of a lease; 0 for nobody's."""
    run_ids: list[str] = []
    live: int = 0
    epoch: int = 1


class Holding(Struct, frozen=True):
    """What is owned under a lease."""

    epochs: Mapping[str, int]
    """By root."""
    agents: Mapping[str, str]
    """Those of the roots."""
    surplus: Mapping[str, int] = {}
    """How many trees others have room for, by agent."""


class Written(Struct, frozen=True):
    """What a commit came to, beside what it says itself."""

    before: int
    """The position before its first event."""
    opened: tuple[str, ...] = ()
    """The roots of the trees that it has opened and the writer owns."""
    over: str = ""
    """The root of the tree that is over with it."""
