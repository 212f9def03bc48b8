"""``Loader``: runs on their way into memory: read, examined, put there, resumed.

    read from the journal ──► its definition is there ──► restored if it was at work ──► goes on
             │                          │
             └── cannot be read         └── gone ──► left as it is (``quarantine``)

Rules
-----
* What comes while a run is read is kept for it.
* A run that never began fails where its definition is missing; every other one is left as it
  is.  Ending it, by ``terminate`` or by its deadline, needs no definition.
* Deaths of a run's loop are counted by its lane; those that could not be recorded are counted
  here.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import anyio

from hubbub.agents.code.lifecycle import NEW, CodeThread, fold_code_all, start_if_missing
from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.state.bases import begun_at
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.agents.turn.crash_limit import (
    CONTEXT_ONLY,
    FORKED,
    crash_limit_failure,
    questions,
    waited,
)  # fmt: skip
from hubbub.agents.turn.missing import ResumeProblem, find_missing
from hubbub.agents.turn.recovery import causes_of
from hubbub.agents.turn.signals import Restored
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, RunFailed, UnknownAgent
from hubbub.hub.events import InLane
from hubbub.hub.logs import log
from hubbub.hub.masking import class_name_of, words_of
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.store.journal import Commit
from hubbub.runtime.kernel.inline import InlineCaller
from hubbub.runtime.kernel.live import LiveRuns
from hubbub.runtime.remembered.recent import RecentThreads
from hubbub.runtime.runs.code_run import CodeRun
from hubbub.runtime.runs.dependencies import RunDependencies
from hubbub.runtime.runs.model_run import ModelRun
from hubbub.runtime.supervision.broken_runs import BrokenRuns
from hubbub.runtime.supervision.quarantine import Quarantine, owned_elsewhere
from hubbub.runtime.supervision.reading import RunReading
from hubbub.runtime.supervision.ready import ENDINGS, is_to_end
from hubbub.runtime.supervision.restore import Boot, Claimed, RestorePolicy
from hubbub.runtime.supervision.trials import Trials

__all__ = ["Loader"]


class Loader:
    """Takes runs into memory."""

    __slots__ = (
        "_broken", "_callers", "_definitions", "_enqueue", "_families", "_hub", "_left_id",
        "_live", "_overdue", "_phase", "_quarantine", "_reading", "_share",
        "_shared", "_trials", "arriving", "boot", "expected", "loading", "loop_failures", "losses",
        "recent",
    )  # fmt: skip

    def __init__(
        self,
        shared: RunDependencies,
        live: LiveRuns,
        trials: Trials,
        quarantine: Quarantine,
        broken: BrokenRuns,
        policy: RestorePolicy,
        *,
        callers: Mapping[str, InlineCaller],
        left_id: Callable[[str], object],
        enqueue: Callable[[str], object],
    ) -> None:
        services = shared.services
        self._shared = shared
        self._hub = services.hub
        self._definitions = services.definitions
        self._phase = services.phase
        self._families = shared.families
        self._live = live
        self._trials = trials
        self._quarantine = quarantine
        self._broken = broken
        self._share = self._hub.share
        self.boot = Boot(policy, is_shared=self._share.sharing is not None)
        self._callers = callers
        """The tasks that wait for a run and lend themselves to it, by run id."""
        self._left_id = left_id
        """Called for a run that does not come into memory."""
        self._enqueue = enqueue
        """Called for a run that was to end something, and has nothing to end."""
        self.losses = 0
        """How often trees were lost to other processes: what was being read then holds no more."""
        self.recent = RecentThreads()
        self._reading = RunReading(shared, self.recent)
        self.loading: dict[str, list[InLane]] = {}
        """What has come for runs that are being read just now."""
        self.arriving: dict[str, anyio.Event] = {}
        """Claimed trees of which it is not known yet what was left: their runs wait for that."""
        self._overdue: set[str] = set()
        self.loop_failures: dict[str, tuple[int, tuple[str, ...]]] = {}
        """What a run's loop died of since its lane had that many events."""
        self.expected: dict[str, int] = {}
        """How many events a run's lane had when the store refused one more, as far as its owner
        knew; with more there, another process has written them."""

    # ── what is on its way ───────────────────────────────────────────────────────────────────

    def is_loading(self, run_id: str) -> bool:
        return run_id in self.loading

    def takes(self, item: InLane) -> bool:
        """Keep an item for its run, if that is being read just now."""
        self.boot.woken(item)
        held = self.loading.get(item.run_id)
        if held is not None:
            held.append(item)
        return held is not None

    async def unfinished(self, claimed: Claimed | None = None) -> Sequence[str]:
        """The runs that an earlier runtime, or another one, has left for this one to resume."""
        journal = self._hub.journal
        found = await self.boot.unfinished(journal, claimed)
        roots = () if claimed is None else claimed.roots
        await self._trials.found(journal, tuple(found), roots)
        return found

    def knows(self, agent: str) -> bool:
        """Whether there is an agent of that name."""
        return self._definitions.find_agent(agent) is not None

    def forget(self, run_id: str) -> None:
        """What is known of a run is of a time when this process drove it."""
        self.recent.take(run_id)
        for known in (self.loop_failures, self.expected):
            known.pop(run_id, None)
        self._overdue.discard(run_id)
        self.boot.used(run_id)

    def note_left(self, at_work: Mapping[str, tuple[str, int]]) -> None:
        """The runtime is left in order, with these runs at work."""
        self.boot.leave(self._hub.journal, at_work, self._trials.note_left())

    def is_overdue(self, run_id: str) -> None:
        """A run's time is over: it ends as soon as it is in memory."""
        self._overdue.add(run_id)

    def died(self, run_id: str, error: str) -> None:
        """A run's loop raised: begin again from the journal."""
        seq, failures = self.loop_failures.get(run_id, (-1, ()))
        self.loop_failures[run_id] = (seq, (*failures, error))
        if not self._phase.is_leaving:
            self.load(run_id)

    def overtaken(self, run_id: str) -> None:
        """A run was terminated before the end that it was about to write: it ends by that."""
        if not self._phase.is_leaving:
            self.load(run_id, is_overtaken=True)

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def load(self, run_id: str, *, is_overtaken: bool = False, only_ends: bool = False) -> None:
        """Read a run from the journal, in a task, and resume it, if it is its turn.

        ``only_ends``: there may be no room for it, unless it is to end what it is at.
        """
        if run_id in self.loading or self._trials.is_held(run_id):
            return
        self.loading[run_id] = []
        self._hub.tasks.start(self._load(run_id, is_overtaken, only_ends), name=run_id, steady=True)

    async def _load(self, run_id: str, is_overtaken: bool, only_ends: bool) -> None:
        journal = self._hub.journal
        held: list[InLane] = []
        expected, losses = self.expected.pop(run_id, None), self.losses
        try:
            await journal.flush()
            # What has come so far is on record: what is read says whether it still waits.  A loop
            # that has died may have taken it in a commit that was under way.
            self.loading[run_id].clear()
            read = await self._reading.read(run_id)
            if read is None:
                if run_id in self.loop_failures:  # It began while its opening was written: in vain.
                    self.loop_failures.pop(run_id)
                    self._left_id(run_id)
                    return
                raise BadValue(f"run {run_id}", "its row cannot be found; see fsck")
            loaded = read.loaded
            while (taken_up := self.arriving.get(loaded.info.root_run_id)) is not None:
                await taken_up.wait()
            if not self._share.owns(loaded.info.root_run_id):
                self._left_id(run_id)
                return
            if expected is not None and loaded.seq > expected:
                self.loop_failures.pop(run_id, None)
                self._quarantine.add(run_id, owned_elsewhere(journal.name))
                self._left_id(run_id)
                return
            if words := crash_limit_failure(self._unrecorded_failures(run_id, loaded.seq)[:-1]):
                # It was to fail for these already, and not even that could be written.
                raise BadValue(f"run {run_id}", f"nothing of it can be written: {words}")
            lane = await self._reading.prepare(read)
        except Exception as error:
            self.loading.pop(run_id, None)
            self.leave_broken(run_id, error)
            return
        finally:
            held = self.loading.pop(run_id, [])
        if loaded.info.status == "ended" or self._phase.is_leaving:
            self._overdue.discard(run_id)
            self._left_id(run_id)
            return
        is_overdue = run_id in self._overdue
        was_lost = losses != self.losses  # Another process may have driven it meanwhile.
        if was_lost or (only_ends and not is_to_end(loaded, held, is_overdue=is_overdue)):
            self._enqueue(run_id)
            return
        try:
            # What came while all this was read is held; what is in both lists is noted once.
            waiting = (*loaded.waiting, *held)
            self.install(
                lane, loaded.events, waiting, is_loaded=True, thread=read.thread,
                before=read.before, is_overtaken=is_overtaken,
            )  # fmt: skip
        except Exception as error:
            self._live.by_id.pop(run_id, None)
            self.leave_broken(run_id, error)
        if self._trials.is_on:
            self._trials.seen(run_id)

    def leave_broken(self, run_id: str, error: Exception) -> None:
        """A run that cannot be read stops no other, and stays as it is."""
        self._overdue.discard(run_id)
        self.loop_failures.pop(run_id, None)
        self._broken.leave(run_id, error)

    def _drop(
        self,
        lane: OwnLane,
        pending: Sequence[InLane],
        after: Callable[[Commit], None] = lambda _: None,
    ) -> None:
        """What is not to be handled becomes letters."""

        def tell(commit: Commit) -> None:
            self._quarantine.report_dropped(dropped, commit)
            after(commit)

        if pending:
            dropped = e.SessionDropped(items=tuple(pending), reason=CONTEXT_ONLY)
            lane.append((dropped,), taken=[item.seq for item in pending], after=tell)

    # ── into memory ──────────────────────────────────────────────────────────────────────────

    def begin(self, lane: OwnLane, items: Sequence[InLane]) -> None:
        """Put a run into memory that was just opened: there is nothing to resume."""
        run_id = lane.run_id
        try:
            definition = self._definitions.agents.get(lane.agent)
            if definition is None or run_id in self._overdue:
                self.install(lane, (), items)
                return
            if definition.execute is not None:
                self._live.by_id[run_id] = code = CodeRun(self._shared, definition, lane, NEW)
                for item in items:
                    code.wake(item)
                code.begin()
                return
            run = ModelRun(self._shared, lane, EMPTY, self._callers.get(run_id))
            self._live.by_id[run_id] = run
            for item in items:
                run.mail.put(item)
            run.advance()
        except Exception as error:  # Once more, as its journal has it; if that fails, it is left.
            log.error("run.died", run_id=run_id, exc_info=error)
            self._live.by_id.pop(run_id, None)
            self.died(run_id, f"{class_name_of(error)}: {words_of(error)}"[:2000])

    def install(
        self,
        lane: OwnLane,
        events: Sequence[e.Event],
        waiting: Sequence[InLane],
        *,
        is_loaded: bool = False,
        thread: Thread | CodeThread | None = None,
        before: Thread | CodeThread | None = None,
        is_overtaken: bool = False,
    ) -> None:
        """Put a run into memory with what its journal holds, and resume it.

        ``events`` are all of its own; or the last ones, where its ``thread`` is known, and maybe
        that ``before`` them.  One that was overtaken takes its termination: it needs no restoring.
        """
        run_id, definitions = lane.run_id, self._definitions
        definition = definitions.find_agent(lane.agent)
        if definition is not None and definition.is_code:
            self._install_code(definition, lane, events, waiting, thread)
            return
        seq = lane.seq
        if thread is None or isinstance(thread, CodeThread):
            thread = fold_all(EMPTY, events)
        before = None if isinstance(before, CodeThread) else before
        gone = find_missing(thread, lane.agent, definitions)
        if gone is not None and seq:
            self._withhold(gone, lane, events, waiting)
            return
        causes = () if is_overtaken else self._causes(lane, thread, events, before)
        if causes and self._is_held(lane, causes, waiting):
            return
        self._families.came_back(run_id)
        pending = self.boot.pending(run_id, waiting)
        caller = self._callers.get(run_id)
        run = ModelRun(self._shared, lane, thread, caller, is_careful=is_loaded)
        self._live.by_id[run_id] = run
        for item in waiting:
            if item not in pending:
                run.mail.put(item)
        self.boot.used(run_id)
        if definition is None:
            run.fail_for_good(UnknownAgent(lane.agent, definitions.names))
        elif run_id in self._overdue:
            self._overdue.discard(run_id)
            run.pass_deadline()
        else:
            self._go_on(run, causes)
            if run.thread.phase != "ended":  # Else the end has disposed of them.
                self._drop(lane, pending, run.advance)

    def _causes(
        self, lane: OwnLane, thread: Thread, events: Sequence[e.Event], begun: Thread | None
    ) -> tuple[str, ...]:
        """Why a run is restored, as often as that counts, now included; empty where it is not."""
        cause = self.boot.cause(run_id := lane.run_id, lane.seq)
        if not (thread.is_at_work or (cause == CONTEXT_ONLY and thread.phase == "live")):
            return ()
        before = causes_of(events, begun or EMPTY)
        if failures := self._unrecorded_failures(run_id, lane.seq):
            return (*before, *failures)
        if not cause:
            is_waiting = waited(thread, events)
            cause = self._trials.cause(run_id, before, is_waiting=is_waiting)
        return (*before, cause)

    def _is_held(self, lane: OwnLane, causes: tuple[str, ...], waiting: Iterable[InLane]) -> bool:
        """Whether a run that is to be restored is left alone until its turn comes."""
        run_id = lane.run_id
        ends = any(isinstance(x, ENDINGS) for x in waiting)
        is_urgent = ends or run_id in self._overdue or run_id in self.loop_failures
        if is_urgent or causes[-1] in (CONTEXT_ONLY, FORKED):
            return False
        if self._trials.holds(run_id, causes, lane.root_run_id):
            self._left_id(run_id)
            return True
        return False

    def _go_on(self, run: ModelRun, causes: tuple[str, ...]) -> None:
        """Restore a run that was at work, before anything in its inbox is looked at."""
        run_id = run.lane.run_id
        if causes:
            most, control = self._shared.services.max_crashes, tuple(run.mail.control)
            run.restore(Restored(causes[-1], causes[:-1], most, control))
        elif failure := crash_limit_failure(self._unrecorded_failures(run_id, run.lane.seq)):
            run.fail_for_good(RunFailed(run_id, "failed", failure))
        else:
            run.restore()

    def _unrecorded_failures(self, run_id: str, seq: int) -> tuple[str, ...]:
        """What the run's loop died of the last time, and before it without a word in its lane."""
        since, failures = self.loop_failures.get(run_id, (seq, ()))
        if since != seq:
            failures = failures[-1:]
            self.loop_failures[run_id] = (seq, failures)
        return failures

    def _withhold(
        self,
        gone: ResumeProblem,
        lane: OwnLane,
        events: Sequence[e.Event],
        waiting: Iterable[InLane],
    ) -> None:
        """Leave a run as it is, unless it is to end, which needs no definition."""
        run_id = lane.run_id
        ends = [x for x in waiting if isinstance(x, ENDINGS)]
        if run_id in self.loop_failures or not (ends or run_id in self._overdue):
            self._quarantine.add(run_id, gone, lane)
            self._left_id(run_id)
            self._broken.lend_again(lane.parent_run_id, lane.root_run_id)
            return
        self._quarantine.release(run_id)
        missing = start_if_missing(fold_code_all(NEW, events))
        if missing and begun_at(events) is None:  # A code agent was to say itself that it starts.
            events = (*events, *lane.append(missing).events)
        run = ModelRun(self._shared, lane, fold_all(EMPTY, events), is_careful=True)
        self._live.by_id[run.lane.run_id] = run
        self.boot.used(run_id)
        for item in ends:
            run.mail.put(item)
        if ends:
            run.advance()
        else:
            self._overdue.discard(run_id)
            run.pass_deadline()

    def _install_code(
        self,
        definition: AgentDefinition,
        lane: OwnLane,
        events: Sequence[e.Event],
        waiting: Sequence[InLane],
        known: Thread | CodeThread | None,
    ) -> None:
        thread = known if isinstance(known, CodeThread) else fold_code_all(NEW, events)
        again = thread.opened is not None
        cause = self.boot.cause(lane.run_id, lane.seq)
        if again and definition.on_restart == "resume":
            if failures := self._unrecorded_failures(lane.run_id, lane.seq):
                cause = failures[-1]
            elif not cause:
                cause = self._trials.cause(
                    lane.run_id, thread.before, is_waiting=bool(questions(events))
                )
            if self._is_held(lane, (*thread.before, cause), waiting):
                return
        pending = self.boot.pending(lane.run_id, waiting)
        self._live.by_id[lane.run_id] = run = CodeRun(self._shared, definition, lane, thread)
        self.boot.used(lane.run_id)
        self._drop(lane, pending)
        # What is terminated does nothing else, whatever came before that.
        ends = [item for item in waiting if isinstance(item, e.SessionTerminate)] if again else []
        for item in ends[:1] or waiting:
            if item not in pending:
                run.wake(item)
        if lane.run_id in self._overdue:
            self._overdue.discard(lane.run_id)
            run.pass_deadline()
        if again and not run.is_over:
            run.resume(cause, None if thread is known else events)  # Which begins.
        else:
            run.begin()
