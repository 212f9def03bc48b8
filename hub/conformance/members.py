"""Several processes at work on one store, as the checks of a shared store have them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeAlias

import anyio
from anyio.abc import TaskStatus

from hubbub.hub.conformance.steps import identity
from hubbub.hub.events import CustomEvent, Event
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.sharing import RemovedTree, Sharing, sharing_of
from hubbub.hub.store.store import Store

__all__ = ["MakeSharedStore", "Member", "SharedStore", "SharingCheck", "members_of"]


class SharedStore(Protocol):
    """A store that several processes are at work on."""

    @property
    def ttl(self) -> float:
        """Seconds that a lease lasts when it is not renewed."""
        ...

    def journal(self, *, is_worker: bool = True) -> Store:
        """The journal of one more process; with ``is_worker=False`` it owns no trees."""
        ...


MakeSharedStore: TypeAlias = Callable[[], SharedStore]
"""Makes a new, empty store."""
SharingCheck: TypeAlias = Callable[[MakeSharedStore], Awaitable[None]]
"""A check: it raises ``AssertionError`` where the store is wrong."""


class Member:
    """One process: its journal, and what it is told."""

    def __init__(self, journal: Store) -> None:
        share = sharing_of(journal)
        assert share is not None, "a shared store has the attribute 'sharing'"
        self.journal = journal
        self.share: Sharing = share
        self.told: list[tuple[str, str, int]] = []
        """The identities of all events, in the order in which they were told."""
        self.place = 0
        """That of the last of them, or of what had gone before it could be told; of one that writes
        nothing itself."""
        self.removals: list[RemovedTree] = []
        """The trees that have gone, as it was told."""
        self.trees: set[str] = set()
        """What it has claimed and not lost since."""
        self.losses = self.told_before_loss = 0
        self.room: Mapping[str, int] = {}
        """How many of its trees others have room for, by agent, as it was told last."""
        self._changed = anyio.Event()
        self._leaves, self._left = anyio.Event(), anyio.Event()

    async def live(self, *, task_status: TaskStatus[None]) -> None:
        """Be at work on the store, until it is left."""
        await self.journal.open()
        try:
            self.share.attach(self)
            self.place = self.journal.tip
            task_status.started()
            await self._leaves.wait()
        finally:
            await self.journal.aclose()
            self._left.set()

    async def leave(self) -> None:
        """Close the journal in order; idempotent."""
        self._leaves.set()
        await self._left.wait()

    async def die(self) -> None:
        """Be killed: nothing is said to the store."""
        self.journal.forget_submitted()
        await self.leave()

    def heard_elsewhere(self, events: Sequence[Event]) -> None:
        self.told += map(identity, events)
        self.place += len(events)
        self._change()

    def passed(self, position: int) -> None:
        self.place = position
        self._change()

    def removed(self, trees: Sequence[RemovedTree] | None) -> None:
        self.removals += trees or ()
        self._change()

    def claimed(self, root_run_ids: Collection[str]) -> None:
        assert all(self.share.owns(root) for root in root_run_ids)
        self.trees.update(root_run_ids)
        self._change()

    def lost(self, root_run_ids: Collection[str]) -> None:
        assert not any(self.share.owns(root) for root in root_run_ids)
        self.trees.difference_update(root_run_ids)
        self.losses += len(root_run_ids)
        self.told_before_loss = len(self.told)
        self._change()

    def crowded(self, room: Mapping[str, int]) -> None:
        self.room = room
        self._change()

    def _change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Return when something is so."""
        while not is_so():
            await self._changed.wait()

    def submit(self, commit: Commit) -> None:
        """Submit; what is written is told when it is done."""

        def done(commit: Commit) -> None:
            self.told += map(identity, commit.written)
            self.place += len(commit.written)
            self._change()

        commit.done = done
        self.journal.submit(commit)

    def emit(self, number: int) -> None:
        self.submit(Commit(events=(CustomEvent.of("test:said", n=number),)))


@asynccontextmanager
async def members_of(
    store: SharedStore, count: int = 2, *, channels: int = 0
) -> AsyncIterator[list[Member]]:
    """Processes at work on a store: workers, then those that only carry channels."""
    kinds = (*[True] * count, *[False] * channels)
    members = [Member(store.journal(is_worker=is_worker)) for is_worker in kinds]
    wrong: Exception | None = None
    async with anyio.create_task_group() as group:
        for member in members:
            await group.start(member.live)
        try:
            yield members
        except Exception as error:  # Raised as it is, and not as one of a group.
            wrong = error
        for member in members:
            await member.leave()
    if wrong is not None:
        raise wrong
