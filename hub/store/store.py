"""``Store``: everything a hub and its runtime need from where they keep things.

journal    events, inboxes, notes: ``Journal``, all of it
secrets    values of variables, which are in no event
blobs      contents of files, by digest
reader     the whole record, for inspection: ``StoreReader``
"""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from hubbub.hub.ports import Keeper
from hubbub.hub.store.journal import Journal
from hubbub.hub.store.reader import StoreReader

__all__ = ["Store"]

T = TypeVar("T")


class Store(Journal, Keeper, Protocol):
    """A journal, and what is kept beside it.  See ``Journal`` for the guarantees of its commits.

    ``secrets`` and ``blobs`` are ``None`` where a store has no place of its own for them: the
    ports of the program keep them then (``Ports.of_store``).  They may be asked for before
    ``open``; a durable store's are durable no later than the next commit submitted after them.
    """

    def forget_submitted(self) -> None:
        """Drop what is submitted and not being written yet; nothing is reported.

        For a process that is to end as though it were killed: nothing but ``aclose`` follows.
        """
        ...

    def publish(self, notes: Mapping[str, str]) -> None:
        """Keep texts by key, in the place of what stood there, for who only reads the store.

        It is no commit: no event is dispatched, and nothing waits for it.  A durable store's are
        durable no later than the next commit.
        """
        ...

    async def inspect(self, look: Callable[[StoreReader], T]) -> T:
        """What ``look`` finds in the whole record, called where reading may block.

        It sees what subscribers have, and no part of what is being written.  Raises what ``look``
        raises, and ``StoreFailed`` or ``StoreUnreadable`` where the store cannot be read.
        """
        ...

    def reader(self) -> StoreReader:
        """A reader of what is committed, beside the store while it is open; close it before.

        Raises ``OperatorError`` where the store cannot be read.
        """
        ...
