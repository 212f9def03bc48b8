"""``Activations``: which runs are in memory, and how they come and go.

    an item enters an inbox ──► in memory: it is told.  Else: ready ──► activated ──► leaves

Rules
-----
* A run that was just opened is activated from its inbox alone; every other one, and one that
  more came for than is held here, is read from the journal.
* At most ``max_live`` runs are in memory; ready runs beyond wait their turn, in order.  Where many
  become ready together they are activated in a task, a few at a time, so that whoever opens them
  or sends to them goes on meanwhile.
* A run whose loop dies begins again from the journal, a bounded number of times (T-12).
* A deadline ends its run wherever it is: in memory, parked, or waiting for its turn.
* A run that only waits for its children stays in memory while there is room, and leaves it for
  one that is ready (C-17).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
import anyio.lowlevel

from hubbub.agents.definitions import AgentDefinition
from hubbub.agents.fold import fold_all
from hubbub.agents.lifecycle import CodeThread, fold_code
from hubbub.agents.recorded import NOTHING, recall
from hubbub.agents.signals import Restored
from hubbub.agents.thread import EMPTY, Thread
from hubbub.hub import events as e
from hubbub.hub.errors import HubbubError, RunFailed
from hubbub.hub.events import InLane
from hubbub.hub.journal import LoadedRun
from hubbub.hub.logs import log
from hubbub.hub.own_lane import OwnLane
from hubbub.runtime.activation import Activation
from hubbub.runtime.caller import Caller
from hubbub.runtime.code_run import CodeRun
from hubbub.runtime.run_handle import RunOutcome

if TYPE_CHECKING:
    from anyio import TaskHandle

    from hubbub.runtime.runtime import Runtime

__all__ = ["Activations", "AnyRun"]

AnyRun: TypeAlias = Activation | CodeRun

MAX_DEATHS: Final = 3
"""Times in a row a run's loop may die before the run fails (T-12)."""

MAX_HELD: Final = 16
"""Items of a new run that are kept for its activation; with more it is read from the journal."""

BREATH: Final = 50
"""Runs that are activated in a row before others get their turn."""


class Activations:
    """The runs of one runtime that are in memory, and those about to be."""

    def __init__(self, runtime: "Runtime", max_live: int) -> None:
        self._runtime = runtime
        self._max_live = max_live
        self._active: dict[str, AnyRun] = {}
        self._loading: dict[str, list[InLane]] = {}
        self._ready: OrderedDict[str, list[InLane]] = OrderedDict()
        self._became_ready: anyio.Event | None = None
        self._breath = BREATH
        self._activating: TaskHandle[Any, None] | None = None
        self._deaths: dict[str, tuple[str, ...]] = {}
        self._overdue: set[str] = set()
        self._waiting: OrderedDict[str, Activation] = OrderedDict()
        """Runs that may have nothing to do but to wait for their children."""
        self._evicted: dict[str, tuple[str, ...]] = {}
        """The children that runs wait for that have left memory meanwhile."""
        self._code_waits: dict[str, list[str]] = {}
        """The runs that the code of runs waits for just now."""
        self._statuses: dict[str, dict[str, str]] = {}
        """By parent: what its children that stay say of themselves (C-14)."""
        self.callers: dict[str, Caller] = {}
        """Tasks that wait for a run and lend themselves to it."""

    @property
    def in_memory(self) -> tuple[AnyRun, ...]:
        return tuple(self._active.values())

    def is_busy(self, run_id: str) -> bool:
        """Whether the run is in memory or on its way there."""
        return run_id in self._active or run_id in self._loading or run_id in self._ready

    async def begin(self) -> None:
        """Go on with what the journal has: runs at work, runs with mail, deadlines."""
        journal = self._runtime.hub.journal
        for info in await journal.runs():
            if info.wake_at is not None:
                self.watch_deadline(info.run_id, info.wake_at)
        for run_id in await journal.ready():
            self.enqueue(run_id, None)
        self._activating = self._runtime.hub.tasks.start(
            self._activate_ready(), name="hubbub activation"
        )
        await self._terminate_orphans()

    def stop(self) -> None:
        """Activate nothing more; what is in memory stays."""
        self._ready.clear()
        if self._activating is not None:
            self._activating.cancel()

    def close(self) -> None:
        """Let go of every run, unrecorded."""
        for run in self.in_memory:
            run.close()
        self._active.clear()
        for caller in self.callers.values():
            caller.dismiss()

    def serve_now(self, run_id: str) -> None:
        """Activate a ready run for the caller that waits for it."""
        if run_id in self._ready and self._has_room:
            self._activate(run_id)

    def wake(self, item: InLane) -> None:
        """An item entered an inbox."""
        run_id = item.run_id
        run = self._active.get(run_id)
        if run is not None:
            run.wake(item)
        elif (held := self._loading.get(run_id)) is not None:
            held.append(item)
        elif not self._runtime.is_leaving:
            if isinstance(item, e.SessionOpen) and item.timeout is not None:
                self.watch_deadline(run_id, item.at + int(item.timeout * 1_000_000))
            self.enqueue(run_id, item)

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
        return len(self._active) + len(self._loading) < self._max_live or self._make_room()

    def waits(self, run: Activation) -> None:
        """A run has nothing to do until one of its children is heard of."""
        self._waiting[run.lane.run_id] = run
        if self._ready:
            self.look_for_ready()
        self._runtime.progressed()

    def _make_room(self) -> bool:
        """Let a run that only waits leave memory, unrecorded: its journal says all of it."""
        while self._waiting:
            run_id, run = self._waiting.popitem(last=False)
            if self._active.get(run_id) is run and run.is_idle:
                self._evicted[run_id] = _waited_for(run.thread)
                run.close()
                del self._active[run_id]
                self._runtime.changed(run_id)
                return True
        return False

    def _activate(self, run_id: str) -> None:
        """Take a ready run into memory."""
        held = self._ready.pop(run_id)
        if held:
            try:
                self._activate_new(held)
            except Exception as error:
                log.error("run.unstartable", run_id=run_id, exc_info=error)
        else:
            self._begin_loading(run_id)

    def _activate_new(self, items: Sequence[InLane]) -> None:
        item = items[0]
        ancestors: tuple[tuple[str, str], ...] = ()
        if item.parent_run_id is not None:
            parent = self._active.get(item.parent_run_id)
            if parent is None:
                self._begin_loading(item.run_id)
                return
            ancestors = ((parent.lane.run_id, parent.lane.agent), *parent.lane.ancestors)
        lane = OwnLane(
            self._runtime.hub,
            run_id=item.run_id,
            root_run_id=item.root_run_id,
            parent_run_id=item.parent_run_id,
            agent=item.agent,
            ancestors=ancestors,
        )
        self._install(lane, (), items)

    def _begin_loading(self, run_id: str) -> None:
        self._loading[run_id] = []
        self._runtime.hub.tasks.start(self._load(run_id), name=run_id)

    async def _load(self, run_id: str) -> None:
        """Read a run from the journal and go on with it."""
        held: list[InLane] = []
        try:
            await self._runtime.hub.journal.flush()
            loaded = await self._runtime.hub.journal.load(run_id)
            ancestors = await self._ancestors(loaded)
            await self._load_relatives(loaded)
        except Exception as error:
            log.error("run.unreadable", run_id=run_id, exc_info=error)
            loaded = None
        finally:
            held = self._loading.pop(run_id, [])
        if loaded is None or loaded.info.status == "ended" or self._runtime.is_leaving:
            self._overdue.discard(run_id)
            self.left_id(run_id)
            return
        # What came while all this was read is held; what is in both lists is noted once.
        self._install(self._lane_of(loaded, ancestors), loaded.events, (*loaded.waiting, *held))

    async def _ancestors(self, loaded: LoadedRun | None) -> tuple[tuple[str, str], ...]:
        """The runs above, as the journal knows them."""
        found: list[tuple[str, str]] = []
        run_id = loaded.info.parent_run_id if loaded is not None else None
        while run_id is not None:
            info = await self._runtime.hub.journal.info(run_id)
            if info is None:
                break
            found.append((run_id, info.agent))
            run_id = info.parent_run_id
        return tuple(found)

    async def _load_relatives(self, loaded: LoadedRun | None) -> None:
        """What a run needs to know of its tree: the budget, and its children's statuses."""
        if loaded is None:
            return
        info, journal = loaded.info, self._runtime.hub.journal
        children = [event for event in loaded.events if isinstance(event, e.AgentChild)]
        if info.parent_run_id is not None or children:
            await self._runtime.trees.load(info.root_run_id, journal)
        known = self._statuses.get(info.run_id, {})
        for child in children:
            if child.resumable and child.child_run_id not in known:
                other = await journal.load(child.child_run_id)
                if other is not None:
                    thread = fold_all(EMPTY, other.events)
                    self._statuses.setdefault(info.run_id, {}).setdefault(
                        child.child_run_id, thread.status
                    )

    def _lane_of(self, loaded: LoadedRun, ancestors: tuple[tuple[str, str], ...]) -> OwnLane:
        info = loaded.info
        return OwnLane(
            self._runtime.hub,
            run_id=info.run_id,
            root_run_id=info.root_run_id,
            parent_run_id=info.parent_run_id,
            agent=info.agent,
            seq=len(loaded.events),
            ancestors=ancestors,
        )

    def _install(self, lane: OwnLane, events: Sequence[e.Event], waiting: Iterable[InLane]) -> None:
        """Put a run into memory with what its journal holds, and go on with it."""
        run_id = lane.run_id
        try:
            definition = self._runtime.definitions.agent(lane.agent)
            problem: Exception | None = None
        except HubbubError as error:
            definition, problem = None, error
        if definition is not None and definition.is_code:
            self._install_code(definition, lane, events, waiting)
            return
        self._evicted.pop(run_id, None)
        run = Activation(self._runtime, lane, fold_all(EMPTY, events), self.callers.get(run_id))
        self._active[run_id] = run
        for item in waiting:
            run.put(item)
        deaths = self._deaths.get(run_id, ())
        if problem is not None:
            run.doom(problem)
        elif run_id in self._overdue:
            self._overdue.discard(run_id)
            run.pass_deadline()
        elif run.thread.phase == "live" and not run.thread.parked and not run.thread.waits:
            run.restore(Restored("".join(deaths[-1:])))  # Which counts its restarts itself.
        elif len(deaths) > MAX_DEATHS:
            reason = f"it died {len(deaths)} times in a row: {deaths[-1]}"
            run.doom(RunFailed(run_id, "failed", reason))
        else:
            run.advance()

    def _install_code(
        self,
        definition: AgentDefinition,
        lane: OwnLane,
        events: Sequence[e.Event],
        waiting: Iterable[InLane],
    ) -> None:
        thread = CodeThread()
        for event in events:
            thread = fold_code(thread, event)
        recorded = recall(events) if events else NOTHING
        run = CodeRun(self._runtime, definition, lane, thread, recorded)
        self._active[lane.run_id] = run
        again = thread.opened is not None
        for item in waiting:
            run.put(item)
        if lane.run_id in self._overdue:
            self._overdue.discard(lane.run_id)
            run.pass_deadline()
        elif again and not run.is_over:
            run.resume()
        run.begin()

    def get(self, run_id: str) -> AnyRun | None:
        """The run, if it is in memory."""
        return self._active.get(run_id)

    def left(self, run: AnyRun) -> None:
        """A run has left memory: parked, or over."""
        run_id = run.lane.run_id
        if self._active.get(run_id) is run:
            del self._active[run_id]
            self._deaths.pop(run_id, None)
            self._waiting.pop(run_id, None)
            if run.thread.phase == "ended":
                self._statuses.pop(run_id, None)
                self._runtime.run_ended(run.lane)
                below = self._runtime.trees.has_children(run.lane.root_run_id)
                if below and _is_terminated(run) and not self._runtime.hub.is_closed:
                    self._runtime.hub.tasks.start(self._terminate_below(run_id), name=run_id)
            if self.callers and (caller := self.callers.pop(run_id, None)) is not None:
                caller.dismiss(_outcome_of(run))
            self.left_id(run_id)

    def left_id(self, run_id: str) -> None:
        if self.callers and (caller := self.callers.pop(run_id, None)) is not None:
            caller.dismiss()
        self._runtime.changed(run_id)
        if self._ready:
            self.look_for_ready()

    # ── relatives ────────────────────────────────────────────────────────────────────────────

    def statuses_of(self, run_id: str) -> Mapping[str, str]:
        """What a run's children that stay say of themselves, by run id."""
        return self._statuses.get(run_id, {})

    def set_status(self, lane: OwnLane, thread: Thread) -> None:
        """A child says what it is at; its parent's next step sees it."""
        if lane.parent_run_id is not None and not thread.once:
            self._statuses.setdefault(lane.parent_run_id, {})[lane.run_id] = thread.status

    def forget_unstarted(self, events: Iterable[e.Event]) -> None:
        """Let go of the values that were put away for children that were not started."""
        for event in events:
            if isinstance(event, e.AgentChild) and event.error and event.child_run_id:
                self._runtime.hub.addressing.drop_values(event.child_run_id)

    async def look_at(self, run_id: str) -> tuple[OwnLane, Callable[[], Thread]] | None:
        """A run's lane and state: live while it is in memory, else as the journal has it."""
        run = self._active.get(run_id)
        if isinstance(run, Activation):
            activation = run
            return run.lane, lambda: activation.thread
        await self._runtime.hub.journal.flush()
        loaded = await self._runtime.hub.journal.load(run_id)
        if loaded is None:
            return None
        thread = fold_all(EMPTY, loaded.events)
        lane = self._lane_of(loaded, await self._ancestors(loaded))
        await self._load_relatives(loaded)
        return lane, lambda: thread

    async def live_below(self, run_id: str) -> tuple[str, ...]:
        """The live descendants of a run, also of those in between that have ended."""
        journal = self._runtime.hub.journal
        info = await journal.info(run_id)
        if info is None:
            return ()
        below = {run_id: False}
        # By creation: a parent always stands before its children.
        for each in await journal.runs(live=False, root_run_id=info.root_run_id):
            if each.parent_run_id in below:
                below[each.run_id] = each.status != "ended"
        return tuple(each for each, is_live in below.items() if is_live)

    async def _terminate_below(self, run_id: str) -> None:
        """Whoever is left below a run that was terminated ends with it (T-05).

        Its own children were told in the commit that ended it; here are those whose parents had
        ended before, and those of code agents.
        """
        hub = self._runtime.hub
        for each in await self.live_below(run_id):
            if not hub.is_closed and not self._runtime.is_leaving:
                hub.terminate(each, f"run {run_id} was terminated")

    async def _terminate_orphans(self) -> None:
        """End what a crash has left alive below a run that was terminated."""
        journal = self._runtime.hub.journal
        for info in await journal.runs():
            above = info.parent_run_id
            while above is not None and (parent := await journal.info(above)) is not None:
                if parent.inbox == "terminated":
                    self._runtime.hub.terminate(info.run_id, f"run {above} was terminated")
                    break
                above = parent.parent_run_id

    def interrupted_with(self, run_id: str) -> tuple[str, ...]:
        """The runs that an interruption of ``run_id`` reaches: those that it waits for (T-10)."""
        found: list[str] = [run_id]
        for each in found:
            found += [child for child in self._waited_by(each) if child not in found]
        return tuple(found)

    def waits_for(self, run_id: str, other: str) -> bool:
        """Whether ``run_id`` waits, maybe through others, for ``other``: by a call, or in code."""
        reached = [run_id]
        for each in reached:
            below = (*self._waited_by(each), *self._code_waits.get(each, ()))
            reached += [run for run in below if run not in reached]
        return other in reached[1:]

    @contextmanager
    def waiting_for(self, run_id: str, other: str) -> Iterator[None]:
        """The code of ``run_id`` (if it is any run's) waits for ``other``, for the time being."""
        if not run_id:
            yield
            return
        waits = self._code_waits.setdefault(run_id, [])
        waits.append(other)
        try:
            yield
        finally:
            waits.remove(other)
            if not waits:
                self._code_waits.pop(run_id, None)

    def _waited_by(self, run_id: str) -> tuple[str, ...]:
        run = self._active.get(run_id)
        if isinstance(run, Activation):
            return _waited_for(run.thread)
        return self._evicted.get(run_id, ())

    def lost(self, run: AnyRun) -> None:
        """Another owner writes this run: let go of it, unrecorded."""
        run.close()
        self.left(run)

    def died(self, run: Activation, error: Exception) -> None:
        """A run's loop raised: begin again from the journal, or fail the run (T-12)."""
        run_id = run.lane.run_id
        log.error("run.died", run_id=run_id, exc_info=error)
        if self._active.get(run_id) is not run:
            return
        run.close()
        del self._active[run_id]
        text = f"{type(error).__name__}: {error}"[:2000]
        self._deaths[run_id] = (*self._deaths.get(run_id, ()), text)
        if not self._runtime.is_leaving:
            self._loading[run_id] = []
            self._runtime.hub.tasks.start(self._load(run_id), name=run_id)

    def watch_deadline(self, run_id: str, deadline: int) -> None:
        seconds = max(0.0, (deadline - self._runtime.ports.clock.now()) / 1_000_000)
        self._runtime.timers.after(seconds, lambda: self._deadline(run_id))

    def _deadline(self, run_id: str) -> None:
        run = self._active.get(run_id)
        if run is not None:
            run.pass_deadline()
        elif not self._runtime.hub.is_closed and not self._runtime.is_leaving:
            # Parked, queued or on its way into memory: ended as soon as it is there.
            self._overdue.add(run_id)
            if run_id not in self._loading:
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


def _is_terminated(run: AnyRun) -> bool:
    last = run.thread.outcome if isinstance(run, Activation) else run.thread.ending
    return last is not None and last.outcome == "terminated"


def _waited_for(thread: Thread) -> tuple[str, ...]:
    """The children that a run waits for."""
    calls = thread.open.calls if thread.open is not None else ()
    waited = [call.child for call in calls if call.status == "waiting"]
    waited += [start.child for start in thread.family.starts if start.status == "waiting"]
    return tuple(dict.fromkeys(waited))
