"""``Supervisor``: which runs are in memory, and how they come and go.

    an item enters an inbox ──► in memory: it gets it.  Else: ready ──► activated ──► leaves

Rules
-----
* A run that was just opened is activated from its inbox alone; every other one, one of a tree that
  is being taken up, and one that more came for than is held for it, is read from the journal.
* At most ``max_live`` runs are in memory (but see ``capacity``); ready runs beyond wait their
  turn, in order, unless they are to end (``ready``).
* A run whose loop dies begins again from the journal, a bounded number of times.
* A deadline ends its run wherever it is: in memory, parked, or waiting for its turn.
* A run that only waits for its children leaves memory where there is no room for a ready one.
* One that cannot be resumed, or read, stops no other: it is left as it is (``quarantine``).
* One that may have killed its process is resumed in its turn (``trials``).
"""

from collections.abc import Callable, Mapping, Sequence

from hubbub.agents.state.thread import Thread
from hubbub.hub import events as e
from hubbub.hub.errors import BadValue, StoreFailed
from hubbub.hub.events import InLane
from hubbub.hub.logs import log
from hubbub.hub.masking import class_name_of, words_of
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.store.journal import OVERTAKEN, Commit
from hubbub.hub.values import NULL
from hubbub.runtime.kernel.families import Families
from hubbub.runtime.kernel.inline import InlineCaller
from hubbub.runtime.kernel.live import (
    ConversationKeeper,
    LiveModelRun,
    LiveRun,
    LiveRuns,
    RunKeeper,
)
from hubbub.runtime.kernel.masks import FailureMasks
from hubbub.runtime.kernel.outcome import outcome_of
from hubbub.runtime.kernel.outcomes import Outcomes
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.remembered.snapshots import RECORDS, load_run, offer_snapshot
from hubbub.runtime.runs.dependencies import RunDependencies
from hubbub.runtime.runs.model_run import ModelRun
from hubbub.runtime.supervision.broken_runs import BrokenRuns
from hubbub.runtime.supervision.capacity import Capacity
from hubbub.runtime.supervision.deadlines import Deadlines
from hubbub.runtime.supervision.ended import EndedRuns
from hubbub.runtime.supervision.lending import Lending
from hubbub.runtime.supervision.loader import Loader
from hubbub.runtime.supervision.owned_trees import OwnedTrees
from hubbub.runtime.supervision.quarantine import Quarantine
from hubbub.runtime.supervision.ready import ENDINGS, ReadyRuns, is_to_end, stops
from hubbub.runtime.supervision.restore import RestorePolicy
from hubbub.runtime.supervision.trials import Trials

__all__ = ["Supervisor"]


class Supervisor:
    """The runs of one runtime that are in memory, and those about to be."""

    _ready: ReadyRuns

    def __init__(
        self,
        services: Services,
        live: LiveRuns,
        families: Families,
        outcomes: Outcomes,
        compose: Callable[[RunKeeper, ConversationKeeper], RunDependencies],
        *,
        max_live: int,
        keep: int,
        restore: RestorePolicy,
    ) -> None:
        self._services, self._hub, self._phase = services, services.hub, services.phase
        self._live, self._by_id = live, live.by_id
        self._families, self._outcomes = families, outcomes
        outcomes.supervised_by(self)
        self._deadlines = Deadlines(services, live, self._wake_overdue)
        self._ended = EndedRuns(services, keep)
        self.callers: dict[str, InlineCaller] = {}
        """Tasks that wait for a run and lend themselves to it."""
        self.trials = Trials(services, lambda run_id: self._resume((run_id,)))
        self.quarantine = Quarantine(self._hub)
        self.refusal_of, self.refusal_to_go_on = self.quarantine.reason, self.quarantine.error
        self.mark_trial, self.report_dropped = self.trials.mark, self.quarantine.report_dropped
        self.interrupted_with, self.look_at = families.interrupted_with, families.look_at
        self.interrupted_elsewhere = families.interrupted_elsewhere
        self._sharing = services.hub.share.sharing
        self.masker = FailureMasks(services, live).masker
        self.waits_for, self.waiter_of = families.waits_for, outcomes.waiter_of
        self.read_waits, self.asking = outcomes.read_waits, outcomes.asking
        lending = Lending(live, families, self.quarantine, self._bring)
        broken = BrokenRuns(
            services, live, families, outcomes, lending, self.quarantine, self.left_id
        )
        self.found_damage, self.is_reported = broken.found_damage, broken.is_reported
        shared = compose(self, lending)
        self._prompts = shared.prompts
        self.refusal_of_reply = shared.prompts.misfit
        self._loader = Loader(
            shared, live, self.trials, self.quarantine, broken, restore,
            callers=self.callers, left_id=self.left_id,
            enqueue=lambda run_id: self._ready.enqueue(run_id, None),
        )  # fmt: skip
        self._capacity = Capacity(
            max_live, live, self._loader.loading, self._let_go, self._look_for_capacity,
            outcomes.waiting,
        )  # fmt: skip
        self.waiting = self._capacity.waiting
        self._ready = ReadyRuns(self._hub, self._capacity, self.callers, self._activate)
        self.enqueue, self.look_for_ready = self._ready.enqueue, self._ready.look
        self.trees = OwnedTrees(
            services, live, families, outcomes, shared.prompts, self._loader, self._ready,
            self.quarantine, deadlines=self._deadlines, take_out=self._lose, left_id=self.left_id,
            resume=self._resume, wake=self.wake,
        )  # fmt: skip
        self.claimed, self.lost = self.trees.claimed, self.trees.lost
        self.crowded, self.came_in = self.trees.crowded, self.trees.came_in
        self.heard_elsewhere = self.trees.heard_elsewhere

    @property
    def in_memory(self) -> tuple[LiveRun, ...]:
        return tuple(self._by_id.values())

    def is_busy(self, run_id: str) -> bool:
        """Whether the run is in memory or on its way there."""
        return (
            run_id in self._by_id or self._loader.is_loading(run_id) or run_id in self._ready.held
            or self.trials.is_held(run_id)
        )  # fmt: skip

    async def begin(self, unread: Sequence[str]) -> None:
        """Go on with what the journal has (runs at work or with mail, deadlines) and ``unread``."""
        journal = self._hub.journal
        for run_id, wake_at in await journal.timed():
            self._deadlines.watch(run_id, wake_at)
        found = await self._loader.unfinished()
        self._ready.open()
        self._resume(tuple(dict.fromkeys((*found, *unread))))
        self._ready.begin()
        if early := self._hub.share.take_early():
            self.claimed(early)

    def _resume(self, run_ids: Sequence[str]) -> None:
        """Have runs that the journal has activated: first those that are to end something."""
        for run_id in run_ids:
            self.enqueue(run_id, None)
        if self._ready.held and self._capacity.is_full:
            self._hub.tasks.start(self._end_first(run_ids), name="hubbub endings", steady=True)

    async def _end_first(self, run_ids: Sequence[str]) -> None:
        journal = self._hub.journal
        for run_id in run_ids:
            if run_id not in self._ready.held:
                continue
            try:
                if (info := await journal.info(run_id)) is None or not info.waiting:
                    continue
                loaded, _ = await load_run(journal, run_id)
            except (BadValue, StoreFailed):  # One run's trouble, which is reported when it is read.
                continue
            if loaded is not None and is_to_end(loaded):
                self._ready.end(run_id)

    def stop(self) -> None:
        """Activate nothing more; what is in memory stays."""
        self._ready.stop()

    def close(self) -> None:
        """Release every run, unrecorded except for a note of what was at work."""
        hub = self._hub
        if not hub.is_closed:
            self._loader.note_left(self._at_work())
        for run in self.in_memory:
            run.close()
        self._by_id.clear()
        for caller in self.callers.values():
            caller.dismiss()

    def _at_work(self) -> Mapping[str, tuple[str, int]]:
        """The runs in the middle of something: root and number of the last event of each."""
        at_work = ((run_id, run.lane) for run_id, run in self._by_id.items() if run.is_at_work)
        return {run_id: (lane.root_run_id, lane.seq) for run_id, lane in at_work}

    def serve_now(self, run_id: str) -> None:
        """Activate a ready run for the caller that waits for it."""
        if run_id in self._ready.held and self._capacity.has_room():
            self._activate(run_id)

    def expect(self, opening: e.SessionOpen) -> None:
        """A new run is being opened: a model run begins while the store writes that down.

        What it records is written behind its opening, and is dispatched only then.  Code agents
        wait: what they do has effects outside.
        """
        definition = self._services.definitions.find_agent(opening.agent)
        if definition is None or definition.is_code or self._phase.is_leaving:
            return
        if self._sharing is not None and not self._sharing.owns(opening.root_run_id):
            return
        ready = self._ready
        if not ready.breath:
            ready.look()
        if ready.held or not ready.breath or not self._capacity.has_room():
            return
        ready.breath -= 1
        if opening.timeout is not None:
            self._deadlines.watch(opening.run_id, opening.at + int(opening.timeout * 1_000_000))
        self._activate_new((opening,))

    def wake(self, item: InLane) -> None:
        """An item entered an inbox."""
        if self._sharing is not None and not self.trees.takes(item):
            return
        run_id = item.run_id
        if item.root_run_id in self._prompts.by_root:
            self._prompts.heard(item)
        run = self._by_id.get(run_id)
        if run is not None:
            try:
                run.wake(item)
            except Exception as error:  # The sender, and the runs whose mail is next, continue.
                self.died(run, error)
        elif isinstance(item, e.SessionOpen) and run_id not in self._loader.loading:
            if item.frame:
                log.info(
                    "frame.pushed", run_id=run_id, agent=item.agent, depth=item.frame,
                    root_run_id=item.root_run_id,
                )  # fmt: skip
            if item.parent_run_id is not None and item.descriptor_json is not NULL:
                is_read = item.parent_run_id in self._by_id
                self._services.budgets.started_elsewhere(item.root_run_id, is_read)
            if not self._phase.is_leaving:
                if item.timeout is not None:
                    self._deadlines.watch(run_id, item.at + int(item.timeout * 1_000_000))
                # Of a tree that was another's until now, whoever had it may have begun the run.
                is_new = item.root_run_id not in self._loader.arriving
                self.enqueue(run_id, item if is_new else None)
        elif not (
            self._loader.takes(item) or self._phase.is_leaving or self.quarantine.ignores(item)
        ):
            if isinstance(item, ENDINGS):
                self.trials.release(run_id)  # It ends, and does nothing before that.
            self.quarantine.release(run_id)
            self.enqueue(run_id, item)
            if run_id in self._ready.held and stops(item):
                self._ready.end(run_id)

    def waiting_in(self, run_id: str) -> int:
        """In how many of its tasks the code of a run waits for others."""
        return self._capacity.waits.get(run_id, 0)

    def _look_for_capacity(self, run_id: str) -> None:
        """The code of one more run waits."""
        run = self._by_id.get(run_id)
        if run is not None and run.thread.restarts:
            run.outlived_restart()
        if self._ready.held:
            self.look_for_ready()

    def waits(self, run_id: str) -> None:
        """A run has nothing to do until one of its children reports."""
        run = self._by_id.get(run_id)
        if isinstance(run, ModelRun):
            self._capacity.idle[run_id] = run
            if run.thread.origin.frame or run.thread.family.has_lent:
                self._conversation_may_rest(run)
        self.progressed(run_id)
        if self._ready.held:
            self.look_for_ready()
        self._phase.progressed()

    def progressed(self, run_id: str) -> None:
        """A run that was restored has made progress, or waits: its process did not die of it."""
        if self.trials.is_on:
            self.trials.over(run_id)

    def _bring(self, run_id: str) -> None:
        """Have a run in memory, whether there is room or not: what it is lent stays there until
        it has looked at it."""
        if not (self._loader.is_loading(run_id) or self._phase.is_leaving):
            self._ready.held.setdefault(run_id, [])
            self._ready.ending.discard(run_id)
            self._activate(run_id)

    def _conversation_may_rest(self, run: ModelRun) -> None:
        """A frame waits, or has left; or its caller waits for one that has spoken before."""
        root = self._by_id.get(run.lane.root_run_id)
        if isinstance(root, ModelRun) and root.thread.waits:
            self._capacity.idle[root.lane.run_id] = root
        if not (isinstance(root, ModelRun) and root.mail.said):  # What was said is lent first.
            self._outcomes.changed(run.lane.root_run_id)

    def _let_go(self, run_id: str, run: LiveModelRun) -> None:
        """A run that only waits leaves memory, unrecorded."""
        self._families.evicted(run_id, run.thread)
        self._remember(run.lane, run.thread)
        run.close()
        del self._by_id[run_id]
        self._outcomes.changed(run_id)

    def _remember(self, lane: OwnLane, thread: Thread) -> None:
        """A run leaves memory that will come back."""
        self._loader.recent.put(lane.run_id, thread, lane.seq)
        if lane.seq >= RECORDS:
            offer_snapshot(self._hub.journal, lane, thread)

    def _activate(self, run_id: str) -> None:
        """Take a ready run into memory."""
        held = self._ready.held.pop(run_id)
        if self._ready.ending and run_id in self._ready.ending:
            self._ready.ending.discard(run_id)
            if not held:
                self._loader.load(run_id, only_ends=True)
                return
        if held:
            self._activate_new(held)
        else:
            self._loader.load(run_id)

    def _activate_new(self, items: Sequence[InLane]) -> None:
        item = items[0]
        ancestors: tuple[tuple[str, str], ...] = ()
        if item.parent_run_id is not None:
            parent = self._by_id.get(item.parent_run_id)
            if parent is None:
                self._loader.load(item.run_id)
                return
            ancestors = ((parent.lane.run_id, parent.lane.agent), *parent.lane.ancestors)
        lane = OwnLane(
            self._hub.pipeline,
            run_id=item.run_id,
            root_run_id=item.root_run_id,
            parent_run_id=item.parent_run_id,
            agent=item.agent,
            ancestors=ancestors,
        )
        self._loader.begin(lane, items)

    def get(self, run_id: str) -> LiveRun | None:
        """The run, if it is in memory."""
        return self._by_id.get(run_id)

    def left(self, run: LiveRun) -> None:
        """A run has left memory: parked, or over."""
        run_id = run.lane.run_id
        if self._by_id.get(run_id) is not run:
            return
        self._take_out(run_id)
        self._loader.loop_failures.pop(run_id, None)
        thread, outcome = run.thread, None
        if thread.phase == "ended":
            last = thread.outcome if isinstance(thread, Thread) else thread.ending
            tree = self._services.budgets.spent_by(run_id, run.lane.root_run_id, thread.spent)
            if last and tree is not None:  # Else the journal says it.
                outcome = outcome_of(run_id, last, tree=tree)
            self._families.ended(run_id)
            self._ended.add(run.lane, thread.spent)
        elif isinstance(thread, Thread):
            self._remember(run.lane, thread)
        if isinstance(run, ModelRun) and run.thread.origin.frame:
            self._frame_left(run)
        if self.callers and (caller := self.callers.pop(run_id, None)) is not None:
            caller.dismiss(outcome)
        self.left_id(run_id)

    def _take_out(self, run_id: str) -> None:
        del self._by_id[run_id]
        if self._capacity.waits or self._capacity.idle:
            self._capacity.left(run_id)

    def _frame_left(self, run: ModelRun) -> None:
        """A frame waits for the user, or is over: so does its conversation, as far as it goes."""
        if run.thread.phase == "ended":
            log.info(
                "frame.popped", run_id=run.lane.run_id, agent=run.lane.agent,
                depth=run.thread.origin.frame - 1, root_run_id=run.lane.root_run_id,
            )  # fmt: skip
        self._conversation_may_rest(run)

    def left_id(self, run_id: str) -> None:
        if self.callers and (caller := self.callers.pop(run_id, None)) is not None:
            caller.dismiss()
        self._outcomes.changed(run_id)
        if self.trials.is_on and not self.trials.is_held(run_id):
            self.trials.over(run_id)
        if self._ready.held:
            self.look_for_ready()

    def refused(self, run: LiveRun, commit: Commit) -> None:
        """The store has refused a commit of the run's owner.

        A record that does not fit what is there (``conflict``), or cannot be written for its own
        contents, counts as a death; where another owner has written, the run is left to it.  An
        end that comes after a termination does not count: the run ends by that.  If the store
        has failed, the run is released, unrecorded: its callers learn that from the store.
        """
        run_id = run.lane.run_id
        if self._by_id.get(run_id) is not run:
            return  # Of a loop that is dead or over already.
        if commit.error == OVERTAKEN:
            self._drop(run)
            self._loader.overtaken(run_id)
            return
        if not self._hub.journal.failure:
            self._loader.expected[run_id] = commit.expect
            self.died(run, BadValue("commit", commit.error))
            return
        log.warning("run.lost", run_id=run_id, error=commit.error)
        self._drop(run)
        self._loader.loop_failures.pop(run_id, None)
        self.left_id(run_id)

    def died(self, run: LiveRun, error: BaseException) -> None:
        """A run's loop raised: begin again from the journal, or fail the run."""
        run_id = run.lane.run_id
        mask = self.masker(run_id)
        log.error("run.died", run_id=run_id, exc_info=mask.error(error))
        if self._by_id.get(run_id) is run:
            self._drop(run)
            self._loader.died(run_id, mask(f"{class_name_of(error)}: {words_of(error)}", 2000))

    def unreadable(self, run: LiveRun, error: Exception) -> None:
        """What a run needs of its record cannot be read: it is left as it is."""
        if self._by_id.get(run.lane.run_id) is run:
            self._drop(run)
            self._loader.leave_broken(run.lane.run_id, error)

    def _lose(self, run: LiveRun) -> None:
        """A run is another process's to drive."""
        self._drop(run)
        self.left_id(run.lane.run_id)

    def _drop(self, run: LiveRun) -> None:
        """Take a run out of memory, unrecorded."""
        run.close()
        self._take_out(run.lane.run_id)

    def _wake_overdue(self, run_id: str) -> None:
        """A run is parked, queued or on its way into memory: it ends as soon as it is there."""
        self._loader.is_overdue(run_id)
        self.trials.release(run_id)
        if not self._loader.is_loading(run_id):
            is_new = bool(self._ready.held.get(run_id))
            self.enqueue(run_id, None)
            if not is_new:
                self._ready.end(run_id)
