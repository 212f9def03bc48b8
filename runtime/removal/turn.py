"""``PassTurn``: which of the processes that share a store has trees go.

    nobody's, or that of a lease that is over ─► taken, by one ─► each commit of a pass expects it

The turn is a note of the store: the number of the lease under which it was taken.  A store that is
one process's has none: the turn is always that process's.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from hubbub.hub.hub import Hub
from hubbub.hub.store.journal import Commit
from hubbub.hub.store.sharing import Sharing, sharing_of

__all__ = ["TURN", "PassTurn"]

TURN: Final = "turn/retention"
"""The key of the note."""

EVERYWHERE: Final = 1 << 62


class PassTurn:
    """The turn of one process; ``commit`` has something written, and returns when it is."""

    def __init__(self, hub: Hub, commit: Callable[[Commit], Awaitable[None]]) -> None:
        self._journal, self._submit = hub.journal, hub.pipeline.submit
        self._sharing = sharing_of(hub.journal)
        self._commit = commit
        self._number = ""
        """The lease under which the turn is this process's, as far as it knows."""
        self.is_held = False
        """Whether it was this process's when it looked last."""
        self.is_new = True
        """Whether others may have had trees go since this process has looked last."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes may be at work on the store."""
        return self._sharing is not None

    @property
    def expected(self) -> Mapping[str, str] | None:
        """The note that each commit of a pass expects, or it is a conflict."""
        return None if self._sharing is None else {TURN: self._number}

    async def take(self) -> bool:
        """Whether it is this process's turn; it takes one that is nobody's."""
        self.is_held = self._sharing is None or await self._take(self._sharing)
        return self.is_held

    async def _take(self, sharing: Sharing) -> bool:
        number = str(sharing.number)
        holder = (await self._journal.notes(TURN)).get(TURN, "")
        if holder == number:
            self.is_new = self.is_new or self._number != number
            self._number = number
            return True
        if holder in map(str, await sharing.at_work()):
            return False
        taking = Commit(notes={TURN: number}, notes_expect={TURN: holder})
        await self._commit(taking)
        self._number, self.is_new = number, True
        return not taking.error

    def leave(self) -> None:
        """Let another process have it at once, soon."""
        if self._number:
            self._submit(Commit(notes={TURN: ""}, notes_expect=self.expected))

    async def heard_by_all(self) -> int:
        """The position up to which nobody at work has yet to hear of what goes."""
        return EVERYWHERE if self._sharing is None else await self._sharing.heard_by_all()
