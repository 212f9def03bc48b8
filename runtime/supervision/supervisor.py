"""``Activations``: which runs are in memory, and how they come and go.

    an item enters an inbox ──► in memory: it is told.  Else: ready ──► activated ──► leaves

Rules
-----
* A run that was just opened is activated from its inbox alone; every other one, and one that
  more came for than is held here, is read from the journal.
* At most ``max_live`` runs are in memory (but see ``room``); ready runs beyond wait their turn, in
  order.  Where many
  become ready together they are activated in a task, a few at a time, so that whoever opens them
  or sends to them goes on meanwhile.
* A run whose loop dies begins again from the journal, a bounded number of times.
* A deadline ends its run wherever it is: in memory, parked, or waiting for its turn.
* A run that only waits for its children stays in memory while there is room, and leaves it for
  one that is ready.
* One that cannot be gone on with, or read, stops no other: it is left as it is (``withheld``).
* One of whom its process may have died is gone on with in its turn (``trials``).
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import anyio.lowlevel

from hubbub.hub import events as e
from hubbub.hub.errors import BadValue
from hubbub.hub.events import InLane
from hubbub.hub.logs import log
from hubbub.hub.masking import LONG, Masker, words_of
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.store.journal import Commit
from hubbub.hub.values import NULL
from hubbub.runtime.activities.environment import Environment
from hubbub.runtime.kernel.family import Relatives
from hubbub.runtime.kernel.inline import Caller
from hubbub.runtime.kernel.mailbox import Mailbox
from hubbub.runtime.kernel.outcome import RunOutcome
from hubbub.runtime.runs.code_run import CodeRun
from hubbub.runtime.runs.model_run import Activation
from hubbub.runtime.supervision.capacity import Room
from hubbub.runtime.supervision.loader import Arrivals
from hubbub.runtime.supervision.restore import RestorePolicy
from hubbub.runtime.supervision.trials import Trials

if TYPE_CHECKING:
    from anyio import TaskHandle

    from hubbub.runtime.runtime import Runtime

__all__ = ["Activations", "AnyRun"]

AnyRun: TypeAlias = Activation | CodeRun

MAX_HELD: Final = 16
"""Items of a new run that are kept for its activation; with more it is read from the journal."""

BREATH: Final = 50
"""Runs that are activated in a row before others get their turn."""


class Activations:
    """The runs of one runtime that are in memory, and those about to be."""

    def __init__(self, runtime: "Runtime", max_live: int, restore: RestorePolicy) -> None:
        self._runtime = runtime
        self._room = Room(max_live, self._look_for_room)
        self.waiting = self._room.waiting
        self._active: dict[str, AnyRun] = {}
        self._ready: OrderedDict[str, list[InLane]] = OrderedDict()
        self._became_ready: anyio.Event | None = None
        self._breath = BREATH
        self._activating: TaskHandle[Any, None] | None = None
        self._waiting: OrderedDict[str, Activation] = OrderedDict()
        """Runs that may have nothing to do but to wait for their children."""
        self.callers: dict[str, Caller] = {}
        """Tasks that wait for a run and lend themselves to it."""
        relatives = self._relatives = Relatives(runtime)
        self.trials = Trials(runtime, lambda run_id: self.enqueue(run_id, None))
        self._arrivals = Arrivals(runtime, self, relatives, restore)
        self.withheld = self._arrivals.withheld
        self.refusal_of = self.withheld.reason
        self.met_damage = self.withheld.met_damage
        self.forget_unstarted = relatives.forget_unstarted
        self.interrupted_with = relatives.interrupted_with
        self.look_at = relatives.look_at
        self.set_status = relatives.set_status
        self.statuses_of = relatives.statuses_of
        self.waiting_for = relatives.waiting_for
        self.frame_on_record = relatives.frame_on_record
        self.waits_for = relatives.waits_for

    @property
    def in_memory(self) -> tuple[AnyRun, ...]:
        return tuple(self._active.values())

    def is_busy(self, run_id: str) -> bool:
        """Whether the run is in memory or on its way there."""
        return (
            run_id in self._active or self._arrivals.is_loading(run_id) or run_id in self._ready
            or self.trials.is_held(run_id)
        )  # fmt: skip

    async def begin(self) -> None:
        """Go on with what the journal has: runs at work, runs with mail, deadlines."""
        journal = self._runtime.hub.journal
        for run_id, wake_at in await journal.timed():
            self.watch_deadline(run_id, wake_at)
        for run_id in await self._arrivals.unfinished():
            self.enqueue(run_id, None)
        self._activating = self._runtime.hub.tasks.start(
            self._activate_ready(), name="hubbub activation"
        )

    def stop(self) -> None:
        """Activate nothing more; what is in memory stays."""
        self._ready.clear()
        if self._activating is not None:
            self._activating.cancel()

    def close(self) -> None:
        """Let go of every run, unrecorded but for a note of what was at work."""
        hub = self._runtime.hub
        if not hub.is_closed:
            self._arrivals.note_left(dict(self._at_work()))
        for run in self.in_memory:
            run.close()
        self._active.clear()
        for caller in self.callers.values():
            caller.dismiss()

    def _at_work(self) -> Iterable[tuple[str, int]]:
        """The runs in the middle of something, and the number of each one's last event."""
        for run_id, run in self._active.items():
            if isinstance(run, Activation):
                if run.thread.phase == "live" and not run.thread.parked:
                    yield run_id, run.lane.seq
            elif run.thread.opened is not None and not run.is_over:
                yield run_id, run.lane.seq

    def serve_now(self, run_id: str) -> None:
        """Activate a ready run for the caller that waits for it."""
        if run_id in self._ready and self._has_room:
            self._activate(run_id)

    def expect(self, opening: e.SessionOpen) -> None:
        """A new run is being opened: a model run begins while the store writes that down.

        What it records is written behind its opening, and nobody hears of it before.  Code agents
        wait: what they do has effects outside.
        """
        definition = self._runtime.definitions.find_agent(opening.agent)
        if definition is None or definition.is_code or self._runtime.is_leaving:
            return
        if not self._breath:
            self.look_for_ready()
        if self._ready or not self._breath or not self._has_room:
            return
        self._breath -= 1
        if opening.timeout is not None:
            self.watch_deadline(opening.run_id, opening.at + int(opening.timeout * 1_000_000))
        self._activate_new((opening,))

    def wake(self, item: InLane) -> None:
        """An item entered an inbox."""
        run_id = item.run_id
        run = self._active.get(run_id)
        if run is not None:
            try:
                run.wake(item)
            except Exception as error:  # The sender, and the runs whose mail is next, go on.
                self.died(run, error)
        elif isinstance(item, e.SessionOpen) and run_id not in self._arrivals.loading:
            if item.frame:
                log.info(
                    "frame.pushed", run_id=run_id, agent=item.agent, depth=item.frame,
                    root_run_id=item.root_run_id,
                )  # fmt: skip
            if item.parent_run_id is not None and item.descriptor_json is not NULL:
                self._started_outside(item, item.parent_run_id)
            if not self._runtime.is_leaving:
                if item.timeout is not None:
                    self.watch_deadline(run_id, item.at + int(item.timeout * 1_000_000))
                self.enqueue(run_id, item)
        elif not (
            self._arrivals.takes(item) or self._runtime.is_leaving or self.withheld.ignores(item)
        ):
            if isinstance(item, e.SessionTerminate | e.SessionCancel):
                self.trials.release(run_id)  # It ends, and does nothing before that.
            self.withheld.let_go(run_id)
            self.enqueue(run_id, item)

    def _started_outside(self, opening: e.SessionOpen, parent_run_id: str) -> None:
        """A child that its parent did not start counts in its tree."""
        trees = self._runtime.trees
        # Else the tree is counted when the first of it is read.
        if trees.has_children(opening.root_run_id) or parent_run_id in self._active:
            trees.started(opening.root_run_id)

    def enqueue(self, run_id: str, item: InLane | None) -> None:
        """Have a run activated: at once, or, where many come together, in a task, so that whoever
        opens them or sends to them goes on meanwhile."""
        held = self._ready.get(run_id)
        if held is None:
            # A run that was just opened needs no reading: its inbox is what is held here.
            is_new = isinstance(item, e.SessionOpen) and item.seq == 1
            self._ready[run_id] = [item] if is_new and item is not None else []
            if is_new and run_id in self.callers:
                return  # A caller activates its run itself.
            if self._breath and len(self._ready) == 1 and self._has_room:
                self._breath -= 1
                self._activate(run_id)
            if self._ready or not self._breath:
                self.look_for_ready()
        elif item is None or len(held) >= MAX_HELD:
            held.clear()
        elif held:
            held.append(item)

    def look_for_ready(self) -> None:
        if self._became_ready is not None:
            self._became_ready.set()
            self._became_ready = None

    async def _activate_ready(self) -> None:
        """Activate ready runs, in order, while there is room."""
        while True:
            self._breath = activated = 0
            while self._ready and self._has_room:
                self._activate(next(iter(self._ready)))
                activated += 1
                if not activated % BREATH:
                    await anyio.lowlevel.checkpoint()
            self._breath = BREATH
            self._became_ready = anyio.Event()
            await self._became_ready.wait()

    @property
    def _has_room(self) -> bool:
        there = len(self._active) + len(self._arrivals.loading)
        return there < self._room.most or self._make_room() or self._is_stuck

    @property
    def _is_stuck(self) -> bool:
        """Whether whoever is in memory waits for others, so that nothing goes on (``room``)."""
        waits = self._room.waits
        return not self._arrivals.loading and all(
            run_id in waits or (isinstance(run, Activation) and run.only_lends)
            for run_id, run in self._active.items()
        )

    def waiting_in(self, run_id: str) -> int:
        """In how many of its tasks the code of a run waits for others."""
        return self._room.waits.get(run_id, 0)

    def _look_for_room(self, run_id: str) -> None:
        """The code of one more run waits."""
        run = self._active.get(run_id)
        if run is not None and run.thread.restarts:
            run.outlived_restart()
        if self._ready:
            self.look_for_ready()

    def waits(self, run: Activation) -> None:
        """A run has nothing to do until one of its children is heard of."""
        self._waiting[run.lane.run_id] = run
        self.got_on(run.lane.run_id)
        if run.thread.origin.frame:
            self._root_may_wait(run)
        if self._ready:
            self.look_for_ready()
        self._runtime.progressed()

    def got_on(self, run_id: str) -> None:
        """A run that was restored has got on, or waits: it is not what its process died of."""
        if self.trials.is_on:
            self.trials.over(run_id)

    def lent_to(self, run: Activation) -> Mailbox | None:
        """The mailbox of the conversation that a frame has, if anybody has spoken there."""
        root = self._active.get(run.lane.root_run_id)
        if not isinstance(root, Activation) or not root.mail.said or not run.thread.converses:
            return None
        return root.mail if self._relatives.has_conversation(run.lane) else None

    def has_only_its_own(self, run_id: str) -> bool:
        """Whether a run that waits for a frame has mail, but none that anybody takes meanwhile."""
        run = self.find_model_run(run_id)
        return run is not None and run.is_idle and not run.mail.said

    def lend(self, frame_run_id: str, below: tuple[str, ...] = ()) -> str:
        """Have a frame look at what was said to its conversation, wherever the frame is.

        ``below`` are frames that wait for it.  Returns why it cannot; empty where it can, or where
        that is about to turn out.
        """
        if why := self.withheld.why(frame_run_id):
            return why
        run = self._active.get(frame_run_id)
        if isinstance(run, Activation):
            run.advance()
            return ""
        above = self._relatives.frame_of(frame_run_id)
        if above and above not in below and not self.lend(above, (*below, frame_run_id)):
            return ""
        if not (self._arrivals.is_loading(frame_run_id) or self._runtime.is_leaving):
            # Room or not: what it is lent stays in memory until the frame has looked at it.
            self._ready.setdefault(frame_run_id, [])
            self._activate(frame_run_id)
        return ""

    def lend_again(self, lane: OwnLane) -> None:
        """A frame turned out to be gone: whoever speaks to it is to hear of that."""
        for run_id in (lane.parent_run_id, lane.root_run_id):
            if (run := self.find_model_run(run_id or "")) is not None:
                run.advance()

    def _root_may_wait(self, frame: Activation) -> None:
        """A frame has taken what it was lent: its conversation may have nothing to do now."""
        root = self.find_model_run(frame.lane.root_run_id)
        if root is not None and root.thread.waits:
            self._waiting[root.lane.run_id] = root

    def _make_room(self) -> bool:
        """Let a run that only waits leave memory, unrecorded: its journal says all of it."""
        while self._waiting:
            run_id, run = self._waiting.popitem(last=False)
            if self._active.get(run_id) is run and run.is_idle:
                self._relatives.evicted(run_id, run.thread)
                self._arrivals.recent.put(run_id, run.thread, run.lane.seq)
                run.close()
                del self._active[run_id]
                self._runtime.changed(run_id)
                return True
        return False

    def _activate(self, run_id: str) -> None:
        """Take a ready run into memory."""
        held = self._ready.pop(run_id)
        if held:
            self._activate_new(held)
        else:
            self._arrivals.load(run_id)

    def _activate_new(self, items: Sequence[InLane]) -> None:
        item = items[0]
        ancestors: tuple[tuple[str, str], ...] = ()
        if item.parent_run_id is not None:
            parent = self._active.get(item.parent_run_id)
            if parent is None:
                self._arrivals.load(item.run_id)
                return
            ancestors = ((parent.lane.run_id, parent.lane.agent), *parent.lane.ancestors)
        lane = OwnLane(
            self._runtime.hub.pipeline,
            run_id=item.run_id,
            root_run_id=item.root_run_id,
            parent_run_id=item.parent_run_id,
            agent=item.agent,
            ancestors=ancestors,
        )
        self._arrivals.begin(lane, items)

    def get(self, run_id: str) -> AnyRun | None:
        """The run, if it is in memory."""
        return self._active.get(run_id)

    def put(self, run: AnyRun) -> None:
        """A run is in memory from now on."""
        self._active[run.lane.run_id] = run

    def take_out(self, run_id: str) -> None:
        """A run could not be gone on with."""
        self._active.pop(run_id, None)

    def find_model_run(self, run_id: str) -> Activation | None:
        """The run, if it is in memory and a model's."""
        run = self._active.get(run_id)
        return run if isinstance(run, Activation) else None

    def left(self, run: AnyRun) -> None:
        """A run has left memory: parked, or over."""
        run_id = run.lane.run_id
        if self._active.get(run_id) is run:
            del self._active[run_id]
            if self._room.waits:
                self._room.left(run_id)
            self._arrivals.deaths.pop(run_id, None)
            self._waiting.pop(run_id, None)
            if run.thread.phase == "ended":
                self._relatives.ended(run_id)
                self._runtime.run_ended(run.lane)
            elif isinstance(run, Activation):
                self._arrivals.recent.put(run_id, run.thread, run.lane.seq)
            if isinstance(run, Activation) and run.thread.origin.frame:
                self._frame_left(run)
            if self.callers and (caller := self.callers.pop(run_id, None)) is not None:
                caller.dismiss(_outcome_of(run))
            self.left_id(run_id)

    def _frame_left(self, run: Activation) -> None:
        """A frame waits for the user, or is over: so does its conversation, as far as it goes."""
        if run.thread.phase == "ended":
            log.info(
                "frame.popped", run_id=run.lane.run_id, agent=run.lane.agent,
                depth=run.thread.origin.frame - 1, root_run_id=run.lane.root_run_id,
            )  # fmt: skip
        self._root_may_wait(run)
        self._runtime.changed(run.lane.root_run_id)

    def left_id(self, run_id: str) -> None:
        if self.callers and (caller := self.callers.pop(run_id, None)) is not None:
            caller.dismiss()
        self._runtime.changed(run_id)
        if self.trials.is_on and not self.trials.is_held(run_id):
            self.trials.over(run_id)
        if self._ready:
            self.look_for_ready()

    def refused(self, run: AnyRun, commit: Commit) -> None:
        """The store has refused a commit of the run's owner.

        A record that does not fit what is there (``conflict``), or cannot be written for its own
        contents, counts as a death; where another owner has written, the run is left to it.  If
        the store has failed, the run is let go of, unrecorded: its callers learn that from the
        store.
        """
        run_id = run.lane.run_id
        if self._active.get(run_id) is not run:
            return  # Of a loop that is dead or over already.
        if not self._runtime.hub.journal.failure:
            self._arrivals.expected[run_id] = commit.expect
            self.died(run, BadValue("commit", commit.error))
            return
        log.warning("run.lost", run_id=run_id, error=commit.error)
        self._drop(run)
        self._arrivals.deaths.pop(run_id, None)
        self.left_id(run_id)

    def died(self, run: AnyRun, error: Exception) -> None:
        """A run's loop raised: begin again from the journal, or fail the run."""
        run_id = run.lane.run_id
        mask = self.masker(run_id)
        log.error("run.died", run_id=run_id, exc_info=mask.error(error))
        if self._active.get(run_id) is run:
            self._drop(run)
            self._arrivals.died(run_id, mask(f"{type(error).__name__}: {words_of(error)}", 2000))

    def _drop(self, run: AnyRun) -> None:
        """Take a run out of memory, unrecorded."""
        run.close()
        run_id = run.lane.run_id
        del self._active[run_id]
        self._room.left(run_id)
        self._waiting.pop(run_id, None)

    def masker(self, *run_ids: str) -> Masker:
        """What takes the values of these runs' secrets out of what is said of failures."""
        values = {*self._runtime.resolved.keys}
        for run_id in run_ids:
            if (run := self._active.get(run_id)) is not None:
                side = run.side if isinstance(run, Activation) else None
                values |= Environment.of(self._runtime, run.lane, side).secrets(side)
                continue
            # It has left memory, while somebody was still busy with what it said.
            given = self._runtime.hub.addressing.values(run_id)
            values |= {value for value in given if len(value) >= LONG}
        return Masker(values)

    def watch_deadline(self, run_id: str, deadline: int) -> None:
        seconds = max(0.0, (deadline - self._runtime.ports.clock.now()) / 1_000_000)
        self._runtime.timers.after(seconds, lambda: self._deadline(run_id))

    def _deadline(self, run_id: str) -> None:
        run = self._active.get(run_id)
        if run is not None:
            run.pass_deadline()
        elif not self._runtime.hub.is_closed and not self._runtime.is_leaving:
            # Parked, queued or on its way into memory: ended as soon as it is there.
            self._arrivals.is_overdue(run_id)
            self.trials.release(run_id)
            if not self._arrivals.is_loading(run_id):
                self.enqueue(run_id, None)


def _outcome_of(run: AnyRun) -> RunOutcome | None:
    """How a run that leaves memory has ended, if it has and its state says how."""
    last = run.thread.outcome if isinstance(run, Activation) else run.thread.ending
    if last is None or run.thread.phase != "ended":
        return None
    return RunOutcome(
        run_id=run.lane.run_id, session=0, success=last.success, outcome=last.outcome,
        reason=last.reason, output_json=last.output_json, usage=last.usage,
    )  # fmt: skip
