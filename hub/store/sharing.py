"""``Sharing``: what a store adds that several processes are at work on at once.

    process A ─► its journal ─┐               ┌─► own commits are done   ┐ one order of positions,
    process B ─► its journal ─┴─► one store ──┴─► what others wrote ─────┘ the same for everybody

A tree of runs is *owned* by one process at a time: by that which opened it, until it hands the
tree over or its lease ends, and then by one that claims it.  Only the owner writes the own lanes of
the tree's runs; what anybody sends is accepted.  An ownership has a number, its epoch, which each
commit of an own lane carries: one that was submitted under an earlier epoch is a ``conflict``.

Who owns what is decided by what processes *offer* (``hub/store/placement.py``): trees that nobody
owns are claimed by those that know the agent of their root and have room, in equal shares, and who
has many more than others is asked to hand over some that rest.  A tree in which a run is
terminated, or past its deadline, is for anybody, as to end needs no definition; who has it and does
not know its agent is asked to hand it over as soon as there is somebody who does.  Workers that
define one agent in different ways are not at work together, unless the later one says so
(``Sharing.declare``).

A store that is one process's has none of this (``sharing_of`` returns ``None``): everything is
owned, and nothing comes from elsewhere.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from hubbub.hub.events import Event
from hubbub.hub.store.journal import RunInfo

__all__ = ["RemovedTree", "Sharer", "Sharing", "hear", "sharing_of"]


class RemovedTree(Struct, frozen=True):
    """A tree that has gone for good (``Commit.gone``), or old turns in it (``Commit.cut``)."""

    root_run_id: str
    last: int
    """The position of its last event."""
    run_ids: Collection[str] | None = None
    """``None``: they are too many to be named, any run may be one of them."""
    is_cut: bool = False
    """Whether it is there, but for old turns of these runs, up to that position."""


class Sharer(Protocol):
    """A process at work on a shared store, as its journal knows it."""

    def heard_elsewhere(self, events: Sequence[Event]) -> None:
        """Other processes have written these; in order of position, between own commits."""
        ...

    def passed(self, position: int) -> None:
        """Nothing is kept any more behind the last event that was told, up to this position: what
        was there has gone (``Commit.gone``)."""
        ...

    def removed(self, trees: Sequence[RemovedTree] | None) -> None:
        """These trees have gone, whoever had them go; ``None``: so many that it is not known which.

        Each is told once, before anything that was read from the store shows that it lacks.
        """
        ...

    def claimed(self, root_run_ids: Collection[str]) -> None:
        """These trees are this process's from now on, as the store has them.

        What others have written in them before may be heard behind this; ``flush`` waits for it.
        """
        ...

    def lost(self, root_run_ids: Collection[str]) -> None:
        """These trees are this process's no longer; called before a commit is refused for it."""
        ...

    def crowded(self, room: Mapping[str, int]) -> None:
        """Others have room for so many trees, by the agent of their roots: that many of those that
        rest are to be handed over.  Said again as long as it is so."""
        ...


class Sharing(Protocol):
    """The share that one process has in a store.

    Own commits are done and events of others are heard in order of position, without a gap; the
    journal's ``tip`` is the position of the last of them.  ``flush`` also waits until what was in
    the store at the call is heard, and ``load`` until everything is that it has seen.  A journal
    that cannot reach its store waits.
    """

    @property
    def is_worker(self) -> bool:
        """Whether this process may own trees; else it only carries channels."""
        ...

    @property
    def number(self) -> int:
        """That of this process's lease, as far as it knows: another one after it was over."""
        ...

    async def at_work(self) -> Collection[int]:
        """The numbers of the leases that are not over, those of channels included."""
        ...

    async def heard_by_all(self) -> int:
        """The position up to which every process at work has been told of events, for all that is
        known; 0 where one of them does not know that trees can go."""
        ...

    def offer(self, agents: Collection[str] | None, capacity: int | None) -> None:
        """Say which trees may be this process's: at most ``capacity`` whose root is one of these
        agents'.  ``None``: of any agent, and any number, as before the first call.

        From the call on it opens no others for itself, and soon it claims no others, but for those
        in which something is only to end.  Those that it owns already stay until another process
        offers them.  It ends what ``drain`` has begun.
        """
        ...

    async def declare(self, definitions: Mapping[str, str], *, replaces: bool = False) -> None:
        """Say how agents are defined here, by name: a digest of each, in the place of what was
        said before.

        Said before ``open``, it is declared by that.  Whichever of the two does it raises
        ``OtherDefinition``, with nothing written and nothing declared, where a worker whose lease
        is not over has declared another digest of one of them; with ``replaces`` it does not, and
        both go on with their own.  Of two that do it at the same moment one is refused.

        It holds for as long as the process is at work.  One whose lease was over declares it
        again, and fails where it is refused: others may have joined meanwhile.  One that only
        carries channels declares nothing.
        """
        ...

    def attach(self, sharer: Sharer) -> None:
        """Name who hears of others; nothing is heard before, and nothing is missed since ``open``.

        For the hub to call, once.
        """
        ...

    def owns(self, root_run_id: str) -> bool:
        """Whether the tree is this process's, as far as it knows."""
        ...

    def trees(self) -> Mapping[str, str]:
        """The trees that are this process's, as far as it knows: by root the agent of that."""
        ...

    async def runs_of(self, root_run_ids: Collection[str]) -> Sequence[RunInfo]:
        """Every live run of these trees, by creation: at once, however many they are."""
        ...

    async def hand_over(self, root_run_ids: Collection[str]) -> None:
        """Give up trees, behind all that was submitted: others may claim them at once.

        ``Sharer.lost`` is called with those that were owned, within the call: what comes to their
        inboxes from then on is another process's to handle.
        """
        ...

    async def drain(self) -> None:
        """Claim nothing more; trees that are opened here are others' to claim."""
        ...

    def leave(self) -> None:
        """The hub is being closed: from now on ``flush`` waits for own commits alone.

        What others have written is heard as far as own commits come behind it.
        """
        ...


def hear(sharer: Sharer, after: int, found: Sequence[tuple[int, Event]], reached: int) -> None:
    """Tell what others have written behind a position, each event with its own, and that nothing
    more is kept up to the position ``reached``."""
    for before, events in _together(after, found):
        if before > after:
            sharer.passed(before)
        sharer.heard_elsewhere(events)
        after = before + len(events)
    if reached > after:
        sharer.passed(reached)


def _together(after: int, found: Sequence[tuple[int, Event]]) -> Iterator[tuple[int, list[Event]]]:
    """Events that follow one another, and the position before the first of them."""
    events: list[Event] = []
    before = after
    for position, event in found:
        if position != before + len(events) + 1:
            if events:
                yield before, events
            before, events = position - 1, []
        events.append(event)
    if events:
        yield before, events


def sharing_of(store: object) -> Sharing | None:
    """The share in a store that has the attribute ``sharing``; ``None`` where it is one
    process's."""
    found: Sharing | None = getattr(store, "sharing", None)
    return found
