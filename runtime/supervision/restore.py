"""``Boot``: what a runtime finds in its journal when it opens, and what becomes of it.

    at work, or with mail   activated; what was at work is restored before anything else
    waiting for children    left alone until one reports
    parked                  left alone: not even looked at
    with a deadline         watched

Whether the process of a run that was at work died, or its runtime was merely left, says a note of
the store: which runs were at work when a runtime was last left, and how far each had come.  It
holds for a run that has come no further since; a process that is killed writes none.  A store that
several processes share has one note per tree; what a store of the other kind had noted before it
was copied is read, too, and noted anew.
Which run a process has died of is found out in ``trials``.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec
from msgspec import Struct

from hubbub.agents.turn.crash_limit import (
    CONTEXT_ONLY,
    FORKED,
    LEFT,
    LEFT_RUNS,
    note_of_left,
    text_of_left,
)
from hubbub.hub.errors import BadValue, StoreFailed
from hubbub.hub.events import InLane, SessionMessage
from hubbub.hub.logs import log
from hubbub.hub.store.journal import Commit, Journal
from hubbub.runtime.kernel.ancestry import runs_above
from hubbub.runtime.remembered.snapshots import load_run

__all__ = ["Boot", "Claimed", "RestorePolicy"]

_ALL: Final = 1 << 62


class RestorePolicy(Enum):
    """What becomes, when a runtime opens, of what an earlier one had accepted and not finished.

    ``EVERYTHING``: runs continue from their last finished step; messages that wait are handled.

    ``CONTEXT_ONLY``: contexts are kept, nothing is retried.  A session at work ends as
    interrupted, its open calls are answered as lost, every message that waits becomes one
    ``hub:dead_letter``, and the run parks.  A run that never began begins: its opening is no
    message.  Code agents continue by their ``on_restart``, without the messages that wait.
    Of a tree that is claimed later, on a store that several processes share, a message waits in
    this sense if it was accepted before the runtime opened.
    """

    EVERYTHING = "everything"
    CONTEXT_ONLY = "context only"


class Claimed(Struct, frozen=True):
    """Trees that were another process's and are this one's now."""

    roots: Sequence[str]
    ready: Sequence[str]
    """The runs in them with work to continue with."""


class Boot:
    """The state of the runs as a runtime found it; its entries are used up as runs are read."""

    __slots__ = (
        "_emptied", "_forked", "_is_context_only", "_is_shared", "_left", "_noted", "_tip",
    )  # fmt: skip

    def __init__(self, policy: RestorePolicy, *, is_shared: bool = False) -> None:
        self._is_context_only = policy is RestorePolicy.CONTEXT_ONLY
        self._is_shared = is_shared
        self._left: dict[str, int] = {}
        self._noted: dict[str, int] = {}
        self._forked: set[str] = set()
        """Runs that came in at work, and have not been read yet."""
        self._emptied: dict[str, int] = {}
        """Runs to be restored without what waits, and the number of the last such item."""
        self._tip = 0
        """The last position of a shared store when the runtime opened."""

    async def unfinished(self, journal: Journal, claimed: Claimed | None = None) -> Sequence[str]:
        """The runs to resume, those above others before them; all, or those in claimed trees."""
        if claimed is not None:
            await self._read_trees(journal, claimed.roots)
            return await self._to_resume(journal, claimed.ready)
        if self._is_shared:
            self._tip = journal.tip
            return ()  # Whatever is this process's, it has claimed.
        await self._read_store(journal)
        return await self._to_resume(journal, await journal.ready())

    async def _read_store(self, journal: Journal) -> None:
        notes = await journal.notes(LEFT_RUNS)
        self._noted = _left_in(notes, LEFT_RUNS)
        self._left = dict(self._noted)
        trees = [key for key in notes if notes[key] and key.startswith(note_of_left(""))]
        for key in trees:
            self._left.update(_left_in(notes, key))
        if trees:
            self._noted = dict(self._left)
            journal.submit(
                Commit(notes={LEFT_RUNS: text_of_left(self._left), **dict.fromkeys(trees, "")})
            )

    async def _read_trees(self, journal: Journal, roots: Iterable[str]) -> None:
        notes = await journal.notes(LEFT_RUNS)
        while text := notes.get(LEFT_RUNS, ""):
            await _divide(journal, text)
            notes = await journal.notes(LEFT_RUNS)
        read = {
            note: left for root in roots if (left := _left_in(notes, note := note_of_left(root)))
        }
        for left in read.values():
            self._left.update(left)
        if read:
            journal.submit(Commit(notes=dict.fromkeys(read, "")))

    async def _to_resume(self, journal: Journal, ready: Sequence[str]) -> Sequence[str]:
        if not self._is_context_only:
            return ready
        for run_id in ready:
            for above in (*await _waiting_above(journal, run_id), run_id):
                self._emptied[above] = _ALL
        for run_id in tuple(self._emptied):
            last = await _last_waiting(journal, run_id, self._tip if self._is_shared else None)
            self._emptied[run_id] = min(self._emptied[run_id], last)
        return tuple(self._emptied)

    def came_in(self, journal: Journal, root_run_id: str, run_ids: Iterable[str]) -> None:
        """Runs of a fork are to be gone on with: of these nothing has died."""
        self._forked.update(run_ids)
        journal.submit(Commit(notes={note_of_left(root_run_id): ""}))  # Nobody else needs it.

    def woken(self, item: InLane) -> None:
        """An item came since: it is handled as ever."""
        if item.run_id in self._emptied:
            self._emptied[item.run_id] = min(self._emptied[item.run_id], item.seq - 1)

    def cause(self, run_id: str, seq: int) -> str:
        """Why a run that was at work is read again, when its own lane ends at ``seq``."""
        if run_id in self._emptied:
            return CONTEXT_ONLY
        left = self._left.get(run_id, 0)
        if run_id in self._forked or -left == seq > 0:
            return FORKED
        return LEFT if self._left.get(run_id) == seq else ""

    def pending(self, run_id: str, waiting: Iterable[InLane]) -> tuple[InLane, ...]:
        """The messages among what waits that are not to be handled."""
        if run_id not in self._emptied:
            return ()
        last = self._emptied[run_id]
        return tuple([x for x in waiting if isinstance(x, SessionMessage) and x.seq <= last])

    def used(self, run_id: str) -> None:
        """The run is in memory, or over: what was found of it holds no more."""
        self._emptied.pop(run_id, None)
        self._left.pop(run_id, None)
        self._forked.discard(run_id)

    def leave(
        self, journal: Journal, at_work: Mapping[str, tuple[str, int]], notes: Mapping[str, str]
    ) -> None:
        """Note which runs are left in the middle of something, with roots and numbers; and
        ``notes``."""
        if self._is_shared:
            notes = {**notes, **_notes_of_trees(at_work)}
        left = {**self._left, **{run_id: seq for run_id, (_, seq) in at_work.items()}}
        if left != self._noted and not self._is_shared:
            self._noted = left
            notes = {**notes, LEFT_RUNS: text_of_left(left)}
        if notes:
            journal.submit(Commit(notes=notes))


def _notes_of_trees(at_work: Mapping[str, tuple[str, int]]) -> dict[str, str]:
    trees: dict[str, dict[str, int]] = {}
    for run_id, (root, seq) in at_work.items():
        trees.setdefault(root, {})[run_id] = seq
    return {note_of_left(root): text_of_left(left) for root, left in trees.items()}


async def _divide(journal: Journal, text: str) -> None:
    """Note for each tree what a process that had the store to itself has noted for all of them.

    Whichever process comes second finds it done.
    """
    at_work: dict[str, tuple[str, int]] = {}
    for run_id, seq in _left_in({LEFT_RUNS: text}, LEFT_RUNS).items():
        try:
            run = await journal.info(run_id)
        except (BadValue, StoreFailed):  # One run's trouble, which is reported when it is read.
            continue
        if run is not None:
            at_work[run_id] = (run.root_run_id, seq)
    notes = {LEFT_RUNS: "", **_notes_of_trees(at_work)}
    journal.submit(Commit(notes=notes, notes_expect={LEFT_RUNS: text}))
    await journal.flush()


def _left_in(notes: Mapping[str, str], key: str) -> dict[str, int]:
    text = notes.get(key)
    try:
        return msgspec.json.decode(text, type=dict[str, int]) if text else {}
    except msgspec.DecodeError as error:  # Then every run counts as killed.
        log.warning("boot.unreadable", note=key, error=str(error))
        return {}


async def _last_waiting(journal: Journal, run_id: str, tip: int | None) -> int:
    """The number of the last item that waits for a run, or waited at ``tip``; what comes later has
    a greater one."""
    try:
        loaded, _ = await load_run(journal, run_id)
    except (BadValue, StoreFailed):  # One run's trouble, which is reported when it is read.
        return 0
    for item in reversed(loaded.waiting if loaded is not None else ()):
        position = None if tip is None else await journal.position(run_id, "in", item.seq)
        if tip is None or position is None or position <= tip:
            return item.seq
    return 0


async def _waiting_above(journal: Journal, run_id: str) -> Sequence[str]:
    """The runs above that wait for their children, the root first."""
    try:
        run = await journal.info(run_id)
        above = await runs_above(journal, run) if run is not None else ()
    except (BadValue, StoreFailed):  # One run's trouble, which is reported when it is read.
        return ()
    return [info.run_id for info in reversed(above) if info.status == "waiting"]
