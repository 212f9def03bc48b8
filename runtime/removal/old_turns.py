"""``OldTurns``: the old turns of runs that live go, behind their bases.

    a base that was written  ─►  the bases of its run  ─►  the newest behind which as many turns
    have come as are to be kept  ─►  what stands before that goes, some hundred events a commit

* A base is written by its run, with what it had come to, in a commit of its own lane; that what is
  before it goes is another commit, later.  A crash between the two leaves all there is, and the
  next pass does it.
* It goes from the base backwards: whenever the process dies, there is a beginning of the run, which
  is as it was, and the base, from which the run goes on; the next pass does the rest.  Everybody
  else has a turn between two commits.
* Bases are looked at once, in the store's order, a page at a time; whoever opens the store next
  looks at all of them again.
* Where something waits that came before, a frame that was pushed before is not over, or the run
  cannot be read, it stays for this time: the next base of the run looks again.  So does all that
  stands before a base where any of it is damaged: with it the damage would go.
* Nothing goes behind a base at which something waited, which has been taken since: who forks the
  run there is to hear it.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from hubbub.hub.errors import HubbubError
from hubbub.hub.events import AgentBase, SessionDropped, SessionStart, SessionTaken
from hubbub.hub.hub import Hub
from hubbub.hub.store.journal import Commit, Cut
from hubbub.hub.store.reader import EventRow, StoreReader, decoded
from hubbub.hub.store.store import Removed
from hubbub.runtime.removal.imported import StoreLook
from hubbub.runtime.removal.kept import KeptTrees
from hubbub.runtime.removal.measured import MeasuredEvents
from hubbub.runtime.removal.takeovers import were_over
from hubbub.runtime.removal.turn import PassTurn
from hubbub.runtime.stores.retention.trees import FollowedRecord, followed

__all__ = ["OldTurns"]

PAGE: Final = 10
"""Bases that are looked at together."""

STEP: Final = 500
STEP_BYTES: Final = 1 << 20
"""Events, and bytes of these, that go in one commit, with what is left of their turn."""

MAX_STEP: Final = 4
"""So many times that a turn may make of it, or one event."""


class _Due(Struct, frozen=True):
    """A run of which something may go, and the base before which that stands."""

    root_run_id: str
    cut: Cut


class _Step(Struct, frozen=True):
    """What goes of a run next: behind a position, up to that of the last event; and its size, as
    far as it counts."""

    after: int
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
        turn: PassTurn,
        kept: KeptTrees,
    ) -> None:
        self._keep_turns = keep_turns
        self._kept = kept
        self._turn = turn
        self._note_of = note_of
        self._dispatcher = hub.dispatcher
        self._look = look
        self._commit = commit
        self._after = 0
        """The position up to which bases were looked at."""

    def look_at_all(self) -> None:
        """Look at all bases anew: another process may have left some undone."""
        self._after = 0

    async def make_pass(self, measured: MeasuredEvents, removed: Removed) -> None:
        """Have old turns go, and say so."""
        is_over = False
        while not is_over:
            bases = await self._look(partial(_bases_after, after=self._after))
            is_over = len(bases) < PAGE
            for position, run_id in bases:
                if not await self._turn.take():
                    return
                due = await self._look(partial(_due, run_id=run_id, keep=self._keep_turns))
                if due is not None:
                    # Nothing goes of which somebody has yet to hear: the next pass finds it again.
                    if due.cut.place > await self._turn.heard_by_all():
                        return
                    if await self._is_sound(due):
                        removed.cuts += await self._cut(due, measured)
                self._after = position

    async def _is_sound(self, due: _Due) -> bool:
        """Whether what would go is what was written; else all of it stays, and that is told."""
        run_id, until, record = due.cut.run_id, due.cut.place - 1, FollowedRecord()
        try:
            while not record.is_over:
                looking = partial(followed, run_id=run_id, record=record, until=until)
                record = await self._look(looking)
            damage = record.damage
        except HubbubError as error:  # Of an index, say: nobody else's pass ends by it.
            damage = str(error)
        if damage:
            self._kept.keep(damage, run_id)
        return not damage

    async def _cut(self, due: _Due, measured: MeasuredEvents) -> bool:
        """Have go what may go of a run, step by step; whether anything has."""
        run_id, before, has_gone = due.cut.run_id, due.cut.place, False
        while True:
            looking = partial(_step, run_id=run_id, before=before, counted=measured.counted)
            step = await self._look(looking)
            if step is None or not await self._let_go(due, step):
                return has_gone
            measured.cut(run_id, step.size)
            before, has_gone = step.after + 1, True

    async def _let_go(self, due: _Due, step: _Step) -> bool:
        is_done = None
        if not self._turn.is_shared:  # Else the store tells everybody.
            # Before it goes: who is behind reads a page at a time, and may be at it.
            run_ids = (due.cut.run_id,)
            is_done = self._dispatcher.removing(due.root_run_id, run_ids, step.last)
        cut = replace(due.cut, after=step.after, until=step.last)
        commit = Commit(cut=cut, notes=self._note_of(step.last), about=due.cut.run_id)
        commit.notes_expect = self._turn.expected
        try:
            await self._commit(commit)
        finally:
            if is_done is not None:
                is_done()
        return not commit.error


def _bases_after(store: StoreReader, after: int) -> list[tuple[int, str]]:
    """The next bases behind a position: where they are, of which runs."""
    return [(row.position, row.run_id) for row in store.bases(after=after, limit=PAGE)]


def _due(store: StoreReader, run_id: str, keep: int) -> _Due | None:
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
    cut = Cut(run_id=run_id, seq=base.seq, inbox=base.inbox, place=position)
    return _Due(row.root_run_id, cut)


def _step(store: StoreReader, run_id: str, before: int, counted: int) -> _Step | None:
    """What goes of a run next of what stands before a position; ``None`` for nothing more."""
    last = after = size = count = taken = 0
    has_begun = False
    """Whether a turn has with the last row: what is before it is in the middle of nothing."""
    for row in _rows_back(store, run_id, before):
        if (has_begun and _is_enough(count, taken)) or _is_enough(count, taken, MAX_STEP):
            after = row.position
            break
        count, taken = count + 1, taken + len(row.body)
        has_begun = row.lane == "own" and row.type == SessionStart.type
        last = last or row.position
        size += len(row.body) if row.position <= counted else 0
    return _Step(after, last, size) if count else None


def _is_enough(count: int, size: int, times: int = 1) -> bool:
    return count >= times * STEP or size >= times * STEP_BYTES


def _rows_back(store: StoreReader, run_id: str, before: int) -> Iterator[EventRow]:
    """The rows of a run's lanes before a position, the last one first, up to where it began: that
    stays, with all that had come to its inbox by then."""
    for row in store.event_rows((run_id,), until=before - 1, backwards=True):
        if row.lane == "own" and row.seq == 1:
            return
        if row.lane != "hub":
            yield row


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
