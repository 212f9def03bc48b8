"""Invariants of a store that several workers are at work on; in worlds of one process they hold.

A paused worker goes on as a former owner of its trees, and one that is cut off asks again for what
it has done already: nothing of it may be seen in the store.
"""

from collections.abc import Iterable, Iterator, Sequence

from hubbub.runtime.simulation.story.history import History

__all__ = [
    "misheard",
    "no_tree_left_alone",
    "one_owner_at_a_time",
    "two_owners",
    "workers_hear_alike",
]


def one_owner_at_a_time(history: History) -> Iterator[str]:
    """Own lanes of a tree of runs are written by one process at a time: each ownership is one
    lease's, and behind a later one nothing is written under an earlier one."""
    yield from two_owners(history.writers)


def no_tree_left_alone(history: History) -> Iterator[str]:
    """At rest every tree of runs that is not over has an owner: others take over from the dead."""
    for root in history.unowned if history.is_settled else ():
        yield f"run {root} is driven by no worker"


def workers_hear_alike(history: History) -> Iterator[str]:
    """Each process hears every event of the store once, in the store's order, from when it begins
    until it ends, whoever has written it."""
    if history.workers is None:
        return
    told = {event_id for life in history.lives for event_id in life.told}
    stored = [event.id for event in history.events if event.id in told]
    for life in history.lives:
        who = "the channel" if life.worker is None else f"worker {life.worker}"
        for line in misheard(stored, life.told):
            yield f"{who}, life {life.number}, {line}"


def two_owners(writers: Iterable[tuple[str, int, int]]) -> Iterator[str]:
    """What is wrong with a list of root, number of ownership, and lease, one for each write."""
    last: dict[str, int] = {}
    leases: dict[tuple[str, int], int] = {}
    for root, epoch, lease in writers:
        if epoch < last.get(root, 0):
            yield f"run {root} was written under ownership {epoch}, after {last[root]}"
        elif leases.setdefault((root, epoch), lease) != lease:
            yield f"run {root} was written by two processes under ownership {epoch}"
        last[root] = max(epoch, last.get(root, 0))


def misheard(stored: Sequence[str], heard: Sequence[str]) -> Iterator[str]:
    """What is wrong with the ids that a process has heard, of those that are stored."""
    if not heard:
        return
    if heard[0] not in stored:
        yield f"heard of {heard[0]}, which is not stored"
        return
    first = stored.index(heard[0])
    for one, other in zip(heard, stored[first:], strict=False):
        if one != other:
            yield f"heard of {one} where {other} is due"
            return
    if (more := len(heard) - len(stored[first:])) > 0:
        yield f"heard of {more} more than are stored, from {heard[-more]} on"
