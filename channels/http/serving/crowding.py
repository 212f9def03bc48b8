"""``making_room``: which connections go where there are as many as a server may have.

Who connects and asks for nothing costs a server a place, and needs no token for it.  So a place is
only kept for as long as nobody else wants it: where all are taken, those that are silent make room,
of whoever has most of them, the oldest first.  What is under way stays; it is limited elsewhere.
"""

from collections import defaultdict
from collections.abc import Iterable
from heapq import heapify, heapreplace
from typing import TypeVar

__all__ = ["making_room", "places_at_once"]

T = TypeVar("T")


def places_at_once(connections: int) -> int:
    """How many places are made, so that looking for them costs each newcomer little."""
    return max(1, connections // 20)


def making_room(silent: Iterable[tuple[str, T]], number: int) -> list[T]:
    """At most ``number`` of the silent connections, which are given with their clients' addresses,
    the one that is to go first at the beginning."""
    by_address: defaultdict[str, list[T]] = defaultdict(list)
    for address, connection in silent:
        by_address[address].append(connection)
    # Least is most: the number of those that an address has left, below zero, and its turn.
    heap = [(-len(held), turn, iter(held)) for turn, held in enumerate(by_address.values())]
    heapify(heap)
    found: list[T] = []
    while heap and heap[0][0] and len(found) < number:
        left, turn, held = heap[0]
        found.append(next(held))
        heapreplace(heap, (left + 1, turn, held))
    return found
