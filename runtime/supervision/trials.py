"""``Trials``: runs whose process may die of them are restored one after another.

    found at boot ─► others go on at once ─► the first suspects ─► the next ones ─► … ─► over
                     until each made progress, or ten seconds

A suspect (agents/turn/crash_limit.py) is not in memory until its turn comes; what is sent to it
waits in its inbox.  The next turn comes when whoever has this one has made progress, waits, is
over, or ten seconds have passed.

There are as many turns as ``TURNS``: up to so many suspects have one each, of more a group has one
together.  Whoever was tried together when a process died goes first in the next, in smaller groups,
down to one; so one among thousands is found with three deaths more than one among a few, and it
takes as long.

A suspect is *tried* for as long as a process has lived that continued with all of them at once; so
who was tried alone at a death is guilty of it, however long it takes.  Who is tried says a note of
the store: it is written, with the whole group, in the commit that restores the first of them, ahead
of anything that they do.  Where none was tried any more, the next runtime tries each for twice as
long; where more than one was, or none, it gives each all of that time before the next turn.

Where several processes share a store, each tree has a note of its own: whoever claims the tree of
a process that is gone reads there who was tried, and among how many.

Nothing of this costs anything where no process has died.
"""

from collections.abc import Callable, Collection, Mapping, Set
from typing import Final

import msgspec
from msgspec import Struct

from hubbub.agents.turn.crash_limit import (
    TRIAL,
    crash_cause,
    crash_limit_failure,
    is_suspect,
    trial_seconds,
)
from hubbub.hub.events import AgentRestore
from hubbub.hub.logs import log
from hubbub.hub.store.journal import Commit, Journal
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.kernel.timers import Timer

__all__ = ["Trials"]

TURNS: Final = 16
"""How many turns there are, however many suspects."""

NOTE: Final = "runs:tried"
"""The note's key.  Its text: a ``_Tried`` as JSON."""


class _Tried(Struct, frozen=True, omit_defaults=True):
    tried: tuple[str, ...] = ()
    blamed: tuple[str, ...] = ()
    """Runs that a process has died of, which no runtime has looked at since."""
    held: tuple[str, ...] = ()
    """Suspects whose turn had not come."""
    lived: float = 0.0
    """How long a process has lived, at least, that continued with all of them at once."""
    is_late: bool = False
    """Whether the time of a suspect has passed that has not made progress since."""


class _InTree(Struct, frozen=True):
    """Who of a tree is tried, where several processes share the store: the note of that tree."""

    tried: tuple[str, ...]
    together: int
    """How many the process tries at once, in all trees."""


class Trials:
    """The suspects of one runtime."""

    __slots__ = (
        "_before", "_blamed", "_groups", "_has_begun", "_in_trees", "_is_shared", "_lived",
        "_noted", "_others", "_pending", "_roots", "_services", "_spacing", "_stamp", "_start",
        "_suspects", "_time", "_timer", "_tried", "_turn", "_unseen", "_were_held", "is_on",
    )  # fmt: skip

    def __init__(self, services: Services, start: Callable[[str], object]) -> None:
        self._services = services
        self._is_shared = services.hub.share.sharing is not None
        self._start = start
        """Has a suspect restored whose turn it is."""
        self._before: set[str] = set()
        """The runs that were tried when the process before this one died."""
        self._were_held: frozenset[str] = frozenset()
        self._blamed: set[str] = set()
        self._noted = _Tried()
        self._in_trees: dict[str, str] = {}
        """The notes of trees that this process has read or written, by key."""
        self._roots: dict[str, str] = {}
        """The trees of suspects, where each has a note."""
        self._time = self._spacing = TRIAL
        self._lived = 0.0
        self._unseen: set[str] = set()
        """Runs found at boot that have not been read yet."""
        self._others: set[str] = set()
        """Runs that were restored from a death, are no suspects, and have not made progress
        since."""
        self._suspects: dict[str, None] = {}
        """Those whose turn has not come, in order."""
        self._pending: set[str] = set()
        """Runs that were restored from a death and have not made progress since."""
        self._has_begun = False
        self._groups = {True: 1, False: 1}
        """How many suspects have a turn together: of those that were tried at the last death, and
        of the others."""
        self._turn: set[str] = set()
        """The suspects that were restored last, or are about to be, and have not got on."""
        self._tried: dict[str, float] = {}
        """Until when (monotonic) each is tried."""
        self._timer: Timer | None = None
        self._stamp: Timer | None = None
        self.is_on = False
        """Whether anybody found at boot has yet to be looked at, to get on, or to be tried."""

    # ── what is found ────────────────────────────────────────────────────────────────────────

    async def found(
        self, journal: Journal, run_ids: tuple[str, ...], roots: Collection[str] = ()
    ) -> None:
        """These runs are there to be resumed; ``roots`` are trees that were another process's."""
        self._unseen |= set(run_ids)
        self.is_on = self.is_on or bool(run_ids)
        if self._is_shared:
            if roots:
                self._read_trees(await journal.notes(f"{NOTE}:"), roots)
            return
        text = (await journal.notes(NOTE)).get(NOTE)
        if not text:
            return
        try:
            noted = self._noted = msgspec.json.decode(text, type=_Tried)
        except msgspec.DecodeError as error:  # Then nobody is a suspect yet.
            log.warning("trials.unreadable", note=NOTE, error=str(error))
            return
        self._before, self._were_held = set(noted.tried), frozenset(noted.held)
        self._blamed = {*noted.blamed, *(noted.tried if len(noted.tried) == 1 else ())}
        self._lived, is_missed = noted.lived, noted.is_late and not noted.tried
        if is_missed:
            self._lived = trial_seconds(noted.lived)
        self._time = trial_seconds(self._lived)
        if is_missed or len(noted.tried) > 1:
            self._spacing = self._time
        self._note()  # Before anything else: the next death is no longer theirs.

    def _read_trees(self, notes: Mapping[str, str], roots: Collection[str]) -> None:
        """Who was tried in these trees as their process died, or lost them."""
        for root in roots:
            key = _key_of(root)
            text = notes.get(key)
            if not text:
                continue
            try:
                noted = msgspec.json.decode(text, type=_InTree)
            except msgspec.DecodeError as error:  # Then nobody was tried.
                log.warning("trials.unreadable", note=key, error=str(error))
                continue
            self._in_trees[key] = text
            # What is noted stays until they are tried again, or have got on: this process, too, may
            # die before.
            self._roots.update(dict.fromkeys(noted.tried, root))
            (self._blamed if noted.together == 1 else self._before).update(noted.tried)

    def cause(self, run_id: str, before: tuple[str, ...], *, is_waiting: bool) -> str:
        """Why a run comes back that was at work when its process died."""
        return crash_cause(
            before, run_id, is_waiting=is_waiting, is_blamed=run_id in self._blamed,
            is_held=run_id in self._were_held, tried=self._tried_with(run_id),
            max_crashes=self._services.max_crashes,
        )  # fmt: skip

    def _tried_with(self, run_id: str) -> Set[str]:
        """Among whom it was that the run's process has died of; of a shared store's trees each has
        had its own."""
        return self._before if not self._is_shared or run_id in self._before else frozenset()

    def holds(self, run_id: str, causes: tuple[str, ...], root_run_id: str = "") -> bool:
        """Whether a run of that tree that comes back for these causes is kept until its turn
        comes."""
        self._blamed.discard(run_id)
        self._roots[run_id] = root_run_id
        if crash_limit_failure(causes, self._services.max_crashes):
            return False
        if not is_suspect(causes, self._services.max_crashes):
            if causes[-1] == "":
                self._others.add(run_id)
                self._restored(run_id)
            return False
        if run_id in self._turn:
            self._tried[run_id] = self._now() + self._time
            self._wake_in(self._spacing)
            self._restored(run_id)
            return False
        if not (self._suspects or self._has_begun):
            self._wake_in(TRIAL)
        self._suspects[run_id] = None
        log.warning("run.suspected", run_id=run_id)
        return True

    def is_held(self, run_id: str) -> bool:
        return run_id in self._suspects

    def release(self, run_id: str) -> None:
        """A suspect ends without having gone on: that needs no turn."""
        self._suspects.pop(run_id, None)

    def seen(self, run_id: str) -> None:
        """A run has been read, and resumed if it was its turn."""
        self._unseen.discard(run_id)
        self._look()

    # ── one after another ────────────────────────────────────────────────────────────────────

    def mark(self, commit: Commit) -> None:
        """The commit that restores the first run whose turn it is says whose turn it is."""
        if commit.run_id not in self._turn or self._tried.keys() <= set(self._noted.tried):
            return  # Of a group some may have got on since: that need not be said each time.
        if any(isinstance(event, AgentRestore) for event in commit.events):
            commit.notes = {**(commit.notes or {}), **self._changed()}

    def over(self, run_id: str) -> None:
        """A run has made progress, waits, or has left memory."""
        for runs in (self._unseen, self._others, self._pending):
            runs.discard(run_id)
        if self._is_shared:
            self._before.discard(run_id)
        self._tried.pop(run_id, None)
        if run_id in self._turn:
            self._turn.discard(run_id)
            if not self._turn:
                self._end_turn()
        self._look()

    def _look(self) -> None:
        """Whose turn is it?  The first one's when everybody else has been seen and made
        progress."""
        is_first = self._has_begun or not (self._unseen or self._others)
        if self._suspects and is_first and not self._turn and not self._services.phase.is_leaving:
            self._end_turn()
            self._has_begun = True
            group = self._next_group()
            until = self._now() + self._time
            for run_id in group:
                del self._suspects[run_id]
                self._tried[run_id] = until
            self._turn = set(group)
            for run_id in group:
                self._start(run_id)  # What the first one writes says who is tried from now on.
        elif not (self._turn or self._suspects):
            self._rest()
        self.is_on = bool(self._turn or self._unseen or self._suspects or self._pending)

    def _next_group(self) -> list[str]:
        """Those whose turn is next: first of those among whom it was that a process died of."""
        before = [run_id for run_id in self._suspects if run_id in self._before]
        pool = before or list(self._suspects)
        size = self._groups[bool(before)]
        size = self._groups[bool(before)] = max(size, -(-len(pool) // TURNS))
        return pool[:size]

    def _rest(self) -> None:
        """Nobody else comes: who is tried still is until its time has passed."""
        self._groups = {True: 1, False: 1}
        if self._tried and self._timer is None:
            self._wake_in(max(0.0, min(self._tried.values()) - self._now()))
        if set(self._noted.tried) != set(self._tried) or not self._pending:
            self._note()

    def _wake_in(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self._services.timers.after(seconds, self._wake)

    def _wake(self) -> None:
        """The time of the run at hand has passed, or that of those that go first."""
        self._timer = None
        if not self._services.phase.is_gone:
            # A clock may be a trifle early: nobody is to be looked at again and again for that.
            now, self._has_begun = self._now() + 0.001, True
            self._tried = {run_id: at for run_id, at in self._tried.items() if at > now}
            self._end_turn()
            self._look()

    def _end_turn(self) -> None:
        self._turn = set()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _now(self) -> float:
        return self._services.hub.ports.clock.monotonic()

    # ── how long processes live ──────────────────────────────────────────────────────────────

    def _restored(self, run_id: str) -> None:
        """A run continues of which this process may die: for how long it does not is written."""
        self._pending.add(run_id)
        if self._stamp is None:
            self._stamp_in(TRIAL, TRIAL)

    def _stamp_in(self, seconds: float, lived: float) -> None:
        def stamp() -> None:
            is_first = not (self._suspects or self._has_begun)
            if self._pending and is_first and not self._services.phase.is_gone:
                self._lived = max(self._lived, lived)
                self._note()
                if trial_seconds(lived) > lived:
                    self._stamp_in(lived, 2 * lived)

        self._stamp = self._services.timers.after(seconds, stamp)

    # ── the note ─────────────────────────────────────────────────────────────────────────────

    def note_left(self) -> dict[str, str]:
        """What is to be noted when the runtime is left in order."""
        self._tried.clear()
        return self._changed()

    def _changed(self) -> dict[str, str]:
        """The note as it is to be from now on, if it is another one."""
        goes_on = self._pending or self._suspects or self._unseen
        tried = _Tried(
            tried=tuple(self._tried), blamed=tuple(sorted(self._blamed)),
            held=tuple(self._suspects) if self._tried else (),
            lived=self._lived if goes_on else 0.0,
            is_late=bool(self._pending - self._others - self._tried.keys()),
        )  # fmt: skip
        if self._is_shared:
            self._noted = tried
            return self._changed_in_trees()
        if tried == self._noted:
            return {}
        self._noted = tried
        return {NOTE: msgspec.json.encode(tried).decode()}

    def _changed_in_trees(self) -> dict[str, str]:
        """The notes of trees that are to be others from now on; empty where nobody is tried."""
        trees: dict[str, list[str]] = {}
        for run_id in self._tried:
            trees.setdefault(_key_of(self._roots[run_id]), []).append(run_id)
        due = {_key_of(self._roots.get(run_id, "")) for run_id in self._blamed | self._before}
        wanted = {
            key: msgspec.json.encode(_InTree(tuple(runs), len(self._tried))).decode()
            for key, runs in trees.items()
        }
        wanted |= {key: "" for key in self._in_trees if key not in wanted and key not in due}
        changed = {key: x for key, x in wanted.items() if self._in_trees.get(key, "") != x}
        self._in_trees = {key: x for key, x in {**self._in_trees, **wanted}.items() if x}
        return changed

    def _note(self) -> None:
        if self._services.hub.is_closed:
            return
        journal, before = self._services.hub.journal, self._in_trees
        notes = self._changed()
        if not self._is_shared and notes:
            journal.submit(Commit(notes=notes))
        elif notes:  # A tree may be another process's by now, and its note with it.
            for key, text in notes.items():
                expected = {key: before.get(key, "")}
                journal.submit(Commit(notes={key: text}, notes_expect=expected))


def _key_of(root_run_id: str) -> str:
    """The key of the note of one tree."""
    return f"{NOTE}:{root_run_id}"
