"""``OldTurns``: the old turns of runs that live go, behind their bases.

    a base that was written  ─►  the bases of its run  ─►  the newest behind which as many turns
    have come as are to be kept  ─►  one commit: what stands before that goes

* A base is written by its run, with what it had come to, in a commit of its own lane; that what is
  before it goes is another commit, later.  A crash between the two leaves all there is, and the
  next pass does it.
* Bases are looked at once, in the store's order, a page at a time; whoever opens the store next
  looks at all of them again.
* Where something waits that came before, a frame that was pushed before is not over, or the run
  cannot be read, it stays for this time: the next base of the run looks again.
* Nothing goes behind a base at which something waited, which has been taken since: who forks the
  run there is to hear it.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from hubbub.hub.errors import HubbubError
from hubbub.hub.events import AgentBase, SessionDropped, SessionTaken
from hubbub.hub.hub import Hub
from hubbub.hub.store.journal import Commit, Cut
from hubbub.hub.store.reader import StoreReader, decoded
from hubbub.hub.store.store import Removed
from hubbub.runtime.removal.imported import StoreLook
from hubbub.runtime.removal.measured import MeasuredEvents
from hubbub.runtime.removal.takeovers import were_over

__all__ = ["OldTurns"]

PAGE: Final = 10
"""Bases that are looked at together."""


class _Due(Struct, frozen=True):
    """What may go of a run, the position of its last event, and its size, as far as it counts."""

    root_run_id: str
    cut: Cut
    last: int
    size: int


class OldTurns:
    """The passes of one runtime over runs that live."""

    def __init__(
        self,
        keep_turns: int,
        hub: Hub,
        look: StoreLook,
        commit: Callable[[Commit], Awaitable[None]],
        note_of: Callable[[int], Mapping[str, str]],
    ) -> None:
        self._keep_turns = keep_turns
        self._note_of = note_of
        self._dispatcher = hub.dispatcher
        self._look = look
        self._commit = commit
        self._after = 0
        """The position up to which bases were looked at."""

    async def make_pass(self, measured: MeasuredEvents, removed: Removed) -> None:
        """Have old turns go, and say so."""
        is_over = False
        while not is_over:
            bases = await self._look(partial(_bases_after, after=self._after))
            is_over = len(bases) < PAGE
            for position, run_id in bases:
                counted, keep = measured.counted, self._keep_turns
                due = await self._look(partial(_due, run_id=run_id, keep=keep, counted=counted))
                if due is not None and await self._let_go(due):
                    measured.cut(run_id, due.size)
                    removed.cuts += 1
                self._after = position

    async def _let_go(self, due: _Due) -> bool:
        # Before it goes: who is behind reads a page at a time, and may be at it.
        is_done = self._dispatcher.removing(due.root_run_id, (due.cut.run_id,), due.last)
        commit = Commit(cut=due.cut, notes=self._note_of(due.last), about=due.cut.run_id)
        try:
            await self._commit(commit)
        finally:
            is_done()
        return not commit.error


def _bases_after(store: StoreReader, after: int) -> list[tuple[int, str]]:
    """The next bases behind a position: where they are, of which runs."""
    return [(row.position, row.run_id) for row in store.bases(after=after, limit=PAGE)]


def _due(store: StoreReader, run_id: str, keep: int, counted: int) -> _Due | None:
    """What may go of a run; ``None`` for nothing, of one that cannot be read, and of one that has
    ended, which goes as a whole."""
    row = store.row(run_id)
    if row is None or row.status == "ended":
        return None
    try:
        bases = [
            (each.position, base)
            for each in store.bases(run_id)
            if isinstance(base := decoded(store, each.position, each.body), AgentBase)
        ]
        newest = bases[-1][1].turn if bases else 0
        old = [each for each in bases if newest - each[1].turn >= keep]
        old = [*_without_mail(store, run_id, old)]
        if not old or not were_over(store, run_id, *old[-1]):
            return None
    except HubbubError:  # Whoever drives it tells.
        return None
    position, base = old[-1]
    last = size = 0
    has_begun = False
    for each in store.event_rows((run_id,), until=position - 1):
        if not has_begun:  # That stays.
            has_begun = each.lane == "own"
        elif each.lane != "hub":
            last, size = each.position, size + (len(each.body) if each.position <= counted else 0)
    cut = Cut(run_id=run_id, seq=base.seq, inbox=base.inbox)
    return _Due(row.root_run_id, cut, last, size) if last else None


def _without_mail(
    store: StoreReader, run_id: str, bases: Sequence[tuple[int, AgentBase]]
) -> Iterator[tuple[int, AgentBase]]:
    """The bases at which nothing waited that was taken, or dropped, since."""
    taken: list[tuple[int, int]] = []
    for row in store.event_rows((run_id,), after=bases[0][0]) if bases else ():
        if row.lane == "own" and row.type in _TAKES:
            event = decoded(store, row.position, row.body)
            assert isinstance(event, SessionTaken | SessionDropped)
            taken += [(row.position, item.seq) for item in event.items if item.run_id == run_id]
    for position, base in bases:
        if not any(position < at and 0 < seq <= base.inbox for at, seq in taken):
            yield position, base


_TAKES: Final = (SessionTaken.type, SessionDropped.type)
