"""Placement: which process claims how many of the trees that nobody owns, and who has too many.

    free trees, by agent ─┐
                          ├─► placed ─► each process claims what it is given
    processes: what they  │
    offer, what they own ─┴─► surplus ─► who has many more than others hands some over

Pure functions of what a store knows.  Each process computes the whole by itself, and takes its own
part of it: those that ask one after another come to one distribution.

With nothing new hand-overs stop: a tree goes only where it makes loads more equal.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

__all__ = ["ANYTHING", "ENDING", "Offer", "WorkerLoad", "placed", "surplus"]

ENDING: Final = ""
"""In the place of an agent's name: that of the trees in which a run is only to end.  That needs no
definition, so they are for everybody."""

MARGIN: Final = 0.1
"""How far above the mean a process may be before it hands trees over."""

SHARE: Final = 20
"""One of so many of its trees is what a process hands over at a time, at most."""

MOST: Final = 1_000
"""How many trees that are, at most."""


class Offer(Struct, frozen=True):
    """Which trees a process takes."""

    agents: frozenset[str] | None = None
    """Those of these agents; ``None``: of any."""
    capacity: int | None = None
    """How many, at most; ``None``: any number."""

    def takes(self, agent: str) -> bool:
        """Whether trees of an agent are for it."""
        return self.agents is None or agent == ENDING or agent in self.agents

    def has_room(self, trees: int) -> bool:
        """Whether one more may be owned beside so many."""
        return self.capacity is None or trees < self.capacity


ANYTHING: Final = Offer()


class WorkerLoad(Struct, eq=False):
    """A process that owns trees, and may own more."""

    number: int
    trees: int
    """How many it owns."""
    offer: Offer = ANYTHING

    def can_take(self, agent: str) -> bool:
        """Whether one more tree of an agent may go there."""
        return self.offer.takes(agent) and self.offer.has_room(self.trees)


def placed(free: Mapping[str, int], loads: Sequence[WorkerLoad]) -> Mapping[int, Mapping[str, int]]:
    """How many of the free trees of each agent each process is to claim, by its number.

    Each goes where least is; those of agents that few know go first.  What nobody can take is left
    out.  ``loads`` are filled by it.
    """
    shares: dict[int, dict[str, int]] = {load.number: {} for load in loads}
    known = {agent: sum(load.offer.takes(agent) for load in loads) for agent in free}
    for agent in sorted(known, key=lambda agent: (known[agent], agent)):
        for load, count in _filled(agent, free[agent], loads):
            share = shares[load.number]
            share[agent] = share.get(agent, 0) + count
    return shares


def _filled(
    agent: str, count: int, loads: Sequence[WorkerLoad]
) -> Sequence[tuple[WorkerLoad, int]]:
    """Give so many trees of an agent away, the emptiest load first; level by level."""
    given: list[tuple[WorkerLoad, int]] = []
    while count and (able := [load for load in loads if load.can_take(agent)]):
        level = min(load.trees for load in able)
        lowest = sorted((x for x in able if x.trees == level), key=lambda load: load.number)
        above = [load.trees - level for load in able if load.trees > level]
        rooms = [x.offer.capacity - level for x in lowest if x.offer.capacity is not None]
        step = min([count // len(lowest), *above, *rooms])
        for load in lowest if step else lowest[:count]:
            load.trees += max(step, 1)
            given.append((load, max(step, 1)))
            count -= max(step, 1)
    return given


def surplus(
    own: Mapping[str, int], number: int, loads: Sequence[WorkerLoad], free: Mapping[str, int]
) -> Mapping[str, int]:
    """How many trees of each agent a process has too many, while others have room for them.

    ``own`` are its trees, and ``free`` those that nobody owns, by agent.  Those of agents that it
    does not offer, which it had to end something in, are others' first.
    """
    placed(free, loads)  # What is about to be claimed counts.
    here = next(load for load in loads if load.number == number)
    others = [x for x in loads if x is not here and any(map(x.can_take, own))]
    strange = [agent for agent in own if not here.offer.takes(agent)]
    found = {a: own[a] for a in strange if any(load.can_take(a) for load in others)}
    if found:
        return found
    counts = [here.trees, *(load.trees for load in others)]
    if here.trees <= (1 + MARGIN) * sum(counts) / len(counts):
        return {}
    left = dict(own)
    for _ in range(min(max(1, here.trees // SHARE), MOST)):
        able = [
            (load.trees, load.number, agent, load)
            for load in others
            for agent, count in left.items()
            if count and load.can_take(agent)
        ]
        if not able:
            break
        trees, _, agent, load = min(able, key=lambda x: x[:3])
        if trees + 1 >= here.trees:
            break
        load.trees += 1
        here.trees -= 1
        left[agent] -= 1
        found[agent] = found.get(agent, 0) + 1
    return found
