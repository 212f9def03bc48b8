"""``Runtime``: makes runs happen.  The one place where everything is put together.

It owns a hub (or shares one), and is told of every item that enters an inbox.  A run with
something to do is *activated*: read from the journal into memory, driven until nothing is due,
and let go again.  At most ``max_live`` are in memory at once; ready runs beyond wait their turn.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import anyio
import anyio.lowlevel
import msgspec
from msgspec import structs

from hubbub.agents.definitions import (
    AgentDefinition,
    Definitions,
    PromptDefinition,
)
from hubbub.agents.fold import fold_all
from hubbub.agents.interpret import Restored
from hubbub.agents.lifecycle import CodeThread, fold_code
from hubbub.agents.model import Model
from hubbub.agents.thread import EMPTY
from hubbub.agents.tools import Tool
from hubbub.hub import events as e
from hubbub.hub.errors import (
    BadValue,
    Closed,
    HubbubError,
    LimitExceeded,
    OperatorError,
    RunEnded,
    RunFailed,
    UnknownRun,
)
from hubbub.hub.events import Ending, InLane
from hubbub.hub.hub import Hub
from hubbub.hub.journal import Journal, LoadedRun, RunInfo, Selection
from hubbub.hub.logs import log
from hubbub.hub.memory_journal import MemoryJournal
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.ports import Ports
from hubbub.hub.receipt import Receipt
from hubbub.hub.values import NULL, Json, encode_value
from hubbub.runtime.activation import Activation
from hubbub.runtime.caller import Caller
from hubbub.runtime.code_run import CodeRun
from hubbub.runtime.resolved import Resolved
from hubbub.runtime.run_handle import Run, RunOutcome
from hubbub.runtime.timers import Timers

if TYPE_CHECKING:
    from anyio import TaskHandle

__all__ = ["ExecutableAgent", "Runtime"]

AnyRun: TypeAlias = Activation | CodeRun

MAX_DEATHS: Final = 3
"""Times in a row a run's loop may die before the run fails (T-12)."""

MAX_HELD: Final = 16
"""Items of a new run that are kept for its activation; with more it is read from the journal."""

BREATH: Final = 50
"""Runs that are activated in a row before others get their turn."""


class ExecutableAgent:
    """An agent as workflow code sees it: a name and ``execute(input)`` (AP, R-06)."""

    __slots__ = ("_runtime", "name")

    def __init__(self, runtime: "Runtime", name: str) -> None:
        self._runtime = runtime
        self.name = name

    async def execute(self, input: Any = None) -> Any:
        """Run the agent to its end and return its output.

        Raises what a code agent raised, ``RunFailed`` for every other ending than success.
        """
        outcome, error = await self._runtime._run_once(self.name, input)
        if error is not None:
            raise error
        if not outcome.success:
            raise RunFailed(outcome.run_id, outcome.outcome, outcome.reason)
        return outcome.output


class Runtime:
    """Runs agents.  ``async with Runtime(agents=[…]) as rt:``

    Leaving it accepts nothing new, gives steps in flight ``grace`` seconds to reach their
    boundary and cancels the rest unrecorded; no run ends by it (R-16).

    * ``agents``, ``prompts``, ``tools``: the definitions; ``models`` names ``Model`` objects.
    * ``store``: ``"memory"``, or a ``Journal``.  ``keep`` bounds the ended runs that the memory
      store keeps readable.
    * ``environ``: where keys of providers come from (default: the process environment).
    * ``max_live`` runs are in memory at once; ``max_children`` and ``max_depth`` bound a tree.

    Raises ``DefinitionError`` at once for definitions that do not fit together.
    """

    def __init__(
        self,
        agents: Iterable[AgentDefinition] = (),
        prompts: Iterable[PromptDefinition] = (),
        tools: Iterable[Tool[..., Any]] = (),
        *,
        models: Mapping[str, Model] | None = None,
        store: str | Journal = "memory",
        hub: Hub | None = None,
        ports: Ports | None = None,
        environ: Mapping[str, str] | None = None,
        max_live: int = 20_000,
        keep: int = 10_000,
        grace: float = 5.0,
        max_inbox: int = 10_000,
        buffer: int = 1024,
        max_depth: int = 16,
        max_spawns: int = 10_000,
    ) -> None:
        self.definitions = Definitions(agents, prompts, tools)
        self.ports = hub.ports if hub is not None else ports or Ports()
        self._owns_hub = hub is None
        self.hub = hub or Hub(
            journal=_store(store, keep), ports=self.ports, max_inbox=max_inbox, buffer=buffer
        )
        self.timers = Timers(self.ports.clock)
        self.is_leaving = False
        self.is_gone = False
        self.resolved = Resolved(models or {}, os.environ if environ is None else environ)
        self._max_live = max_live
        self._grace = grace
        self._max_depth = max_depth
        self._max_spawns = max_spawns
        self._active: dict[str, AnyRun] = {}
        self._loading: dict[str, list[InLane]] = {}
        self._ready: OrderedDict[str, list[InLane]] = OrderedDict()
        self._became_ready: anyio.Event | None = None
        self._breath = BREATH
        self._activating: TaskHandle[Any, None] | None = None
        self._timing: TaskHandle[Any, None] | None = None
        self._deaths: dict[str, tuple[str, ...]] = {}
        self._trees: dict[str, list[int]] = {}
        self._depths: dict[str, int] = {}
        self._callers: dict[str, Caller] = {}
        self._watchers: dict[str, list[anyio.Event]] = {}
        self._errors: dict[str, Exception | None] = {}
        self._returned: dict[str, Json] = {}
        self._lingering: dict[str, CodeRun] = {}
        self._overdue: set[str] = set()
        self._progress: anyio.Event | None = None
        self._stop_serving: Callable[[], None] | None = None

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        if self._owns_hub:
            await self.hub.__aenter__()
        self.hub.set_owner(self)
        self._stop_serving = self.hub.serve("runtime", self._answer)
        self._timing = self.hub.tasks.start(self.timers.run(), name="hubbub timers")
        for info in await self.hub.journal.runs():
            if info.wake_at is not None:
                self._watch_deadline(info.run_id, info.wake_at)
        for run_id in await self.hub.journal.ready():
            self._enqueue(run_id, None)
        self._activating = self.hub.tasks.start(self._activate_ready(), name="hubbub activation")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.is_leaving = True
        self._ready.clear()
        if self._activating is not None:
            self._activating.cancel()
        try:
            if exc_type is None and self._grace > 0:
                with anyio.move_on_after(self._grace):
                    await self._wait_boundaries()
        finally:
            self.is_gone = True
            if self._timing is not None:  # Until now: what the grace waits for may time out.
                self._timing.cancel()
            for run in tuple(self._active.values()):
                run.close()
            self._active.clear()
            self.hub.set_owner(None)
            if self._stop_serving is not None:
                self._stop_serving()
            for events in self._watchers.values():
                for event in events:
                    event.set()
            for caller in self._callers.values():
                caller.dismiss()
            if self._owns_hub:
                await self.hub.aclose()
            await self.resolved.aclose()

    async def _wait_boundaries(self) -> None:
        while not all(run.is_at_boundary for run in self._active.values()):
            self._progress = anyio.Event()
            await self._progress.wait()

    def progressed(self) -> None:
        """Something reached a boundary: whoever waits to leave looks again."""
        if self._progress is not None:
            self._progress.set()
            self._progress = None

    # ── starting ─────────────────────────────────────────────────────────────────────────────

    async def start(
        self,
        agent: str | AgentDefinition,
        input: Any = None,
        *,
        session_key: str = "",
        run_id: str | None = None,
        once: bool = False,
        timeout: float | None = None,
        name: str = "",
        correlation_id: str = "",
    ) -> Run:
        """Start a run and return its handle once the start is durable.

        With a ``session_key`` that has a live run, that run is found and ``input`` sent to it.
        ``once`` ends a model run with its first session; ``timeout`` (seconds) bounds the whole
        run.  Raises ``UnknownAgent``, ``BadValue`` (an input that cannot be encoded or does not
        fit), ``Closed``.
        """
        if self.is_leaving:
            raise Closed("the runtime")
        definition = self._definition(agent, input)
        receipt = self.hub.open(
            definition.name, input, session_key=session_key, run_id=run_id, once=once,
            timeout=timeout, name=name, correlation_id=correlation_id,
        )  # fmt: skip
        await receipt
        receipt.raise_if_rejected()
        return Run(self, receipt.run_id, definition.name, receipt.cursor)

    async def run(self, agent: str | AgentDefinition, input: Any = None) -> RunOutcome:
        """One session, then the terminal event (R-18): one question, one answer.

        A caller that is cancelled terminates the run.  Failures are outcomes, not exceptions.
        """
        outcome, _ = await self._run_once(agent, input)
        return outcome

    def executable(self, agent: str | AgentDefinition) -> ExecutableAgent:
        """The agent as workflow code sees it (R-06)."""
        return ExecutableAgent(self, self._definition(agent, None, check_input=False).name)

    async def _run_once(
        self, agent: str | AgentDefinition, input: Any
    ) -> tuple[RunOutcome, Exception | None]:
        if self.is_leaving:
            raise Closed("the runtime")
        definition = self._definition(agent, input)
        run_id = self.ports.ids.run_id(self.ports.clock.now())
        self._errors[run_id] = None
        caller = self._callers[run_id] = Caller()
        try:
            receipt = self.hub.open(definition.name, input, run_id=run_id, once=True)
            await receipt
            receipt.raise_if_rejected()
            # Others run too, however fast the model is; and a caller cancelled before ends here.
            await anyio.lowlevel.checkpoint()
            if run_id in self._ready and self._has_room:
                self._activate(run_id)
            await caller.serve()
            outcome = caller.outcome or await self.finished(run_id)
            if (run := self._lingering.get(run_id)) is not None:
                await run.wait_function()
            if outcome.output_json is NULL and run_id in self._returned:
                outcome = structs.replace(outcome, output_json=self._returned[run_id])
        except BaseException:
            caller.cancel()
            self._look_for_ready()
            # A runtime that is left ends no run: the next one on this store goes on.
            if not self.is_gone and not self.hub.is_closed:
                self.hub.terminate(run_id, "its caller was cancelled")
            raise
        finally:
            self._callers.pop(run_id, None)
            self._returned.pop(run_id, None)
            error = self._errors.pop(run_id, None)
        return outcome, error

    def spawn(
        self,
        parent_run_id: str,
        agent: str | AgentDefinition,
        input: Any = None,
        *,
        name: str | None = None,
    ) -> Run:
        """Start a child of a live run (R-13); ``ctx.spawn`` and ``state.spawn`` end here."""
        definition = self._definition(agent, input)
        parent = self._active.get(parent_run_id)
        if parent is None or self.is_leaving:
            raise UnknownRun(parent_run_id)
        if parent.thread.phase == "ended":
            raise RunEnded(parent_run_id, "ended")
        lane = parent.lane
        depth = self._draw(lane)
        opening = e.SessionOpen(
            open_agent=definition.name,
            input_json=encode_value("input", input),
            name=name or "",
            once=True,
            root_run_id=lane.root_run_id,
            parent_run_id=lane.run_id,
        )
        delivery = self.hub.delivery(opening, to="")
        child_id = delivery.to
        self._depths[child_id] = depth
        event = e.AgentChild(
            child_run_id=child_id, child_agent=definition.name, name=name or definition.name
        )
        parent.append_child(event, delivery)
        return Run(self, child_id, definition.name, is_root=False)

    def _draw(self, lane: OwnLane) -> int:
        """Count one more descendant of a root; refuse it when a budget is used up (C-15)."""
        depth = self._depths.get(lane.run_id, 0) + 1
        if depth > self._max_depth:
            raise LimitExceeded("depth of children", self._max_depth, "do the work in this run")
        spawned = self._trees.setdefault(lane.root_run_id, [0])
        if spawned[0] >= self._max_spawns:
            raise LimitExceeded("children of one root", self._max_spawns, "do the work in this run")
        spawned[0] += 1
        return depth

    # ── ending and asking ────────────────────────────────────────────────────────────────────

    async def terminate(self, run_id: str, reason: str = "") -> Receipt:
        """End a run and its live descendants now and for good (T-05); lists whom it touched."""
        receipt = self.hub.terminate(run_id, reason)
        await receipt
        if receipt.accepted:
            touched = [run_id]
            infos = await self.hub.journal.runs()
            for info in infos:  # By creation: a parent always stands before its children.
                if info.parent_run_id in touched and info.run_id not in touched:
                    touched.append(info.run_id)
                    await self.hub.terminate(info.run_id, reason or f"run {run_id} was terminated")
            receipt.run_ids = tuple(touched)
        return receipt

    async def result(self, run_id: str) -> RunOutcome:
        """See ``Run.result``."""
        return await self._wait_for(run_id, lambda info: self._is_settled(info))

    async def finished(self, run_id: str) -> RunOutcome:
        """See ``Run.finished``."""
        return await self._wait_for(run_id, lambda info: info.status == "ended")

    async def _wait_for(self, run_id: str, is_met: Callable[[RunInfo], bool]) -> RunOutcome:
        await self.hub.journal.flush()
        while True:
            # Watched before it is looked at: what happens in between is not missed.
            changed = anyio.Event()
            self._watchers.setdefault(run_id, []).append(changed)
            try:
                info = await self.hub.journal.info(run_id)
                if info is None:
                    raise UnknownRun(run_id)
                if is_met(info) and not self._is_busy(run_id):
                    return await self._outcome(info)
                if self.is_gone or self.hub.is_closed:
                    remedy = "the run goes on when a runtime is opened on its store"
                    raise Closed("the runtime", remedy)
                await changed.wait()
            finally:
                watchers = self._watchers.get(run_id)
                if watchers is not None and changed in watchers:
                    watchers.remove(changed)
                    if not watchers:
                        del self._watchers[run_id]

    def _is_settled(self, info: RunInfo) -> bool:
        return info.status == "ended" or (info.status == "parked" and not info.waiting)

    def _is_busy(self, run_id: str) -> bool:
        return run_id in self._active or run_id in self._loading or run_id in self._ready

    async def _outcome(self, info: RunInfo) -> RunOutcome:
        wanted = (e.SessionEnd.type, e.AgentComplete.type)
        selection = Selection(run_id=info.run_id, match=lambda type_: type_ in wanted)
        last: Ending | None = None
        position = 0
        while True:
            events, position = await self.hub.journal.read(selection, after=position)
            if not events:
                break
            last = next(
                (x for x in reversed(events) if isinstance(x, Ending) and x.lane == "own"), last
            )
        if last is None:
            last = e.SessionEnd(session=0)
        session = last.session if isinstance(last, e.SessionEnd) else 0
        return RunOutcome(
            run_id=info.run_id, session=session, success=last.success, outcome=last.outcome,
            reason=last.reason, output_json=last.output_json, usage=last.usage,
        )  # fmt: skip

    async def _answer(self, question: str) -> Any:
        """What channels may ask at the address ``runtime``."""
        verb, _, argument = question.partition(" ")
        match verb:
            case "runs":
                return [msgspec.to_builtins(info) for info in await self.hub.journal.runs()]
            case "run":
                info = await self.hub.journal.info(argument)
                return None if info is None else msgspec.to_builtins(info)
            case "statistics":
                return msgspec.to_builtins(self.hub.statistics())
            case "agents":
                return list(self.definitions.names)
            case _:
                raise BadValue("runtime", 'ask "runs", "run RUN_ID", "agents" or "statistics"')

    # ── activating (Owner) ───────────────────────────────────────────────────────────────────

    def wake(self, item: InLane) -> None:
        """An item entered an inbox."""
        run_id = item.run_id
        run = self._active.get(run_id)
        if run is not None:
            run.wake(item)
        elif (held := self._loading.get(run_id)) is not None:
            held.append(item)
        elif not self.is_leaving:
            if isinstance(item, e.SessionOpen) and item.timeout is not None:
                self._watch_deadline(run_id, item.at + int(item.timeout * 1_000_000))
            self._enqueue(run_id, item)

    def _enqueue(self, run_id: str, item: InLane | None) -> None:
        """Have a run activated: at once, or, where many come together, in a task, so that whoever
        opens them or sends to them goes on meanwhile."""
        held = self._ready.get(run_id)
        if held is None:
            # A run that was just opened needs no reading: its inbox is what is held here.
            is_new = isinstance(item, e.SessionOpen) and item.seq == 1
            self._ready[run_id] = [item] if is_new and item is not None else []
            if run_id in self._callers:
                return  # A caller activates its run itself.
            if self._breath and len(self._ready) == 1 and self._has_room:
                self._breath -= 1
                self._activate(run_id)
            if self._ready or not self._breath:
                self._look_for_ready()
        elif item is None or len(held) >= MAX_HELD:
            held.clear()
        elif held:
            held.append(item)

    def _look_for_ready(self) -> None:
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
        return len(self._active) + len(self._loading) < self._max_live

    def _activate(self, run_id: str) -> None:
        """Take a ready run into memory."""
        held = self._ready.pop(run_id)
        if held:
            try:
                self._activate_new(held)
            except Exception as error:
                log.error("run.unstartable", run_id=run_id, exc_info=error)
        else:
            self._loading[run_id] = []
            self.hub.tasks.start(self._load(run_id), name=run_id)

    def _activate_new(self, items: Sequence[InLane]) -> None:
        item = items[0]
        lane = OwnLane(
            self.hub,
            run_id=item.run_id,
            root_run_id=item.root_run_id,
            parent_run_id=item.parent_run_id,
            agent=item.agent,
        )
        self._install(lane, (), items)

    async def _load(self, run_id: str) -> None:
        """Read a run from the journal and go on with it."""
        held: list[InLane] = []
        try:
            await self.hub.journal.flush()
            loaded = await self.hub.journal.load(run_id)
        except Exception as error:
            log.error("run.unreadable", run_id=run_id, exc_info=error)
            loaded = None
        finally:
            held = self._loading.pop(run_id, [])
        if loaded is None or loaded.info.status == "ended" or self.is_leaving:
            self._overdue.discard(run_id)
            self.left_id(run_id)
            return
        self._install(self._lane_of(loaded), loaded.events, (*loaded.waiting, *held))

    def _lane_of(self, loaded: LoadedRun) -> OwnLane:
        info = loaded.info
        return OwnLane(
            self.hub,
            run_id=info.run_id,
            root_run_id=info.root_run_id,
            parent_run_id=info.parent_run_id,
            agent=info.agent,
            seq=len(loaded.events),
        )

    def _install(self, lane: OwnLane, events: Iterable[e.Event], waiting: Iterable[InLane]) -> None:
        """Put a run into memory with what its journal holds, and go on with it."""
        run_id = lane.run_id
        try:
            definition = self.definitions.agent(lane.agent)
            problem: Exception | None = None
        except HubbubError as error:
            definition, problem = None, error
        if definition is not None and definition.is_code:
            self._install_code(definition, lane, events, waiting)
            return
        run = Activation(self, lane, fold_all(EMPTY, events), self._callers.get(run_id))
        self._active[run_id] = run
        for item in waiting:
            run.put(item)
        deaths = self._deaths.get(run_id, ())
        if problem is not None:
            run.doom(problem)
        elif run_id in self._overdue:
            self._overdue.discard(run_id)
            run.pass_deadline()
        elif run.thread.phase == "live" and not run.thread.parked:
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
        events: Iterable[e.Event],
        waiting: Iterable[InLane],
    ) -> None:
        thread = CodeThread()
        for event in events:
            thread = fold_code(thread, event)
        run = CodeRun(self, definition, lane, thread)
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

    def activation(self, run_id: str) -> AnyRun | None:
        """The run, if it is in memory."""
        return self._active.get(run_id)

    def left(self, run: AnyRun) -> None:
        """A run has left memory: parked, or over."""
        run_id = run.lane.run_id
        if self._active.get(run_id) is run:
            del self._active[run_id]
            self._deaths.pop(run_id, None)
            if run.thread.phase == "ended":
                self._trees.pop(run_id, None)
                self._depths.pop(run_id, None)
            if self._callers and (caller := self._callers.pop(run_id, None)) is not None:
                caller.dismiss(_outcome_of(run))
            self.left_id(run_id)

    def left_id(self, run_id: str) -> None:
        if self._callers and (caller := self._callers.pop(run_id, None)) is not None:
            caller.dismiss()
        for event in self._watchers.get(run_id, ()):
            event.set()
        self.progressed()
        if self._ready:
            self._look_for_ready()

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
        if not self.is_leaving:
            self._loading[run_id] = []
            self.hub.tasks.start(self._load(run_id), name=run_id)

    def linger(self, run: CodeRun, lingers: bool) -> None:
        """A code run has said that it is over, but its function is still at work."""
        if lingers:
            self._lingering[run.lane.run_id] = run
        else:
            self._lingering.pop(run.lane.run_id, None)

    def remember_return(self, run_id: str, output: Json) -> None:
        """Keep what a function returned for the caller who waits for it in this process."""
        if run_id in self._errors:
            self._returned[run_id] = output

    def remember_error(self, run_id: str, error: Exception) -> None:
        """Keep the exception of a run for the caller who waits for it in this process."""
        if run_id in self._errors:
            self._errors[run_id] = error

    def _watch_deadline(self, run_id: str, deadline: int) -> None:
        seconds = max(0.0, (deadline - self.ports.clock.now()) / 1_000_000)
        self.timers.after(seconds, lambda: self._deadline(run_id))

    def _deadline(self, run_id: str) -> None:
        run = self._active.get(run_id)
        if run is not None:
            run.pass_deadline()
        elif not self.hub.is_closed and not self.is_leaving:
            # Parked, queued or on its way into memory: ended as soon as it is there.
            self._overdue.add(run_id)
            if run_id not in self._loading:
                self._enqueue(run_id, None)

    def _definition(
        self, agent: str | AgentDefinition, input: Any, *, check_input: bool = True
    ) -> AgentDefinition:
        name = agent if isinstance(agent, str) else agent.name
        definition = self.definitions.agent(name)
        if check_input and definition.is_code:
            self.resolved.input_of(definition)(encode_value("input", input))
        return definition


def _store(store: str | Journal, keep: int) -> Journal:
    if not isinstance(store, str):
        return store
    if store == "memory":
        return MemoryJournal(keep=keep)
    raise OperatorError(f'store {store!r}: this version has "memory"; or give a Journal object')


def _outcome_of(run: AnyRun) -> RunOutcome | None:
    """How a run that leaves memory has ended, if it has and its state says how."""
    last = run.thread.outcome if isinstance(run, Activation) else run.thread.ending
    if last is None or run.thread.phase != "ended":
        return None
    return RunOutcome(
        run_id=run.lane.run_id, session=0, success=last.success, outcome=last.outcome,
        reason=last.reason, output_json=last.output_json, usage=last.usage,
    )  # fmt: skip
