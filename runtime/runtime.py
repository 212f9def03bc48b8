"""``Runtime``: makes runs happen.  The one place where everything is put together.

It owns a hub (or shares one), and is told of every item that enters an inbox.  A run with
something to do is *activated*: read from the journal into memory, driven until nothing is due,
and let go again.  At most ``max_live`` are in memory at once; ready runs beyond wait their turn.
"""

import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import anyio
import anyio.lowlevel
import msgspec
from msgspec import structs

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.definitions.variables import env_problems
from hubbub.agents.model import Model
from hubbub.agents.resolution.definitions import Definitions
from hubbub.hub import events as e
from hubbub.hub.errors import (
    BadValue,
    CallerError,
    Closed,
    DefinitionError,
    LimitExceeded,
    OperatorError,
    RunEnded,
    RunFailed,
    UnknownRun,
    WaitCycle,
)
from hubbub.hub.events import Ending, InLane
from hubbub.hub.hub import Hub
from hubbub.hub.logs import log
from hubbub.hub.message import Message, opening_message
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.ports import Ports
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.journal import Delivery, RunInfo
from hubbub.hub.store.store import Store
from hubbub.hub.tasks.cancelling import defer_interrupts
from hubbub.hub.texts import check_label, check_labels, check_text
from hubbub.hub.values import NULL, Json, encode_value
from hubbub.runtime.activities.agent_messages import agent_for
from hubbub.runtime.activities.interrupts import Pauses
from hubbub.runtime.activities.variable_requests import PendingVariables, pending, provide
from hubbub.runtime.kernel.budgets import Trees
from hubbub.runtime.kernel.catalog import Resolved
from hubbub.runtime.kernel.current_run import CURRENT_RUN
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.kernel.inline import Caller
from hubbub.runtime.kernel.outcome import RunOutcome
from hubbub.runtime.kernel.timers import Timers
from hubbub.runtime.runs.code_run import CodeRun
from hubbub.runtime.schedules.scheduler import Scheduler
from hubbub.runtime.schedules.schedules import Cron, Heartbeat
from hubbub.runtime.schedules.status import ScheduleStatus
from hubbub.runtime.stores.open import DEFAULT_STORE, open_store
from hubbub.runtime.supervision.restore import RestorePolicy
from hubbub.runtime.supervision.supervisor import Activations

if TYPE_CHECKING:
    from anyio import TaskHandle

__all__ = ["ExecutableAgent", "Runtime"]

Met: TypeAlias = Callable[[RunInfo], Awaitable[RunInfo | None]]
"""Whose outcome is returned, once a run is as it is waited for."""


class ExecutableAgent:
    """An agent as workflow code sees it: a name and ``execute(input)``."""

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
    boundary and cancels the rest unrecorded; no run ends by it.

    * ``agents``, ``prompts``, ``tools``, ``hooks``, ``skills`` (see ``load_skills``): the
      definitions; ``models`` names ``Model`` objects.
    * ``env``: values of variables that nothing else gives.
    * ``store``: ``"sqlite:PATH"`` (default ``sqlite:.hubbub``, a folder where the program runs),
      ``"memory"``, or a ``Store``.  ``keep`` bounds the ended runs that the memory store keeps
      readable.
    * ``default_agent``: whom an opening is for that names no agent.
    * ``environ``: where keys of providers come from (default: the process environment).
    * ``schedules``: what is to run by itself while this is open.
    * ``restore`` says what becomes of messages that an earlier runtime accepted and did not handle
      (see ``RestorePolicy``).
    * ``max_live`` runs are in memory at once; one more is let in where all of them only wait for
      others.  ``max_depth``, ``max_descendants`` (live at once) and ``max_spawns`` (in all) bound
      what grows from one root.

    Raises ``DefinitionError`` at once for definitions that do not fit together.
    """

    def __init__(
        self,
        agents: Iterable[AgentDefinition] = (),
        prompts: Iterable[PromptDefinition] = (),
        tools: Iterable[Tool[..., Any]] = (),
        *,
        hooks: Iterable[Hook] = (),
        skills: Iterable[Skill] = (),
        env: Mapping[str, str] | None = None,
        models: Mapping[str, Model] | None = None,
        store: str | Store = DEFAULT_STORE,
        hub: Hub | None = None,
        default_agent: str = "",
        ports: Ports | None = None,
        environ: Mapping[str, str] | None = None,
        schedules: Iterable[Cron | Heartbeat] = (),
        restore: RestorePolicy = RestorePolicy.EVERYTHING,
        max_live: int = 20_000,
        keep: int = 10_000,
        grace: float = 5.0,
        max_inbox: int = 10_000,
        buffer: int = 1024,
        max_depth: int = 16,
        max_descendants: int = 1_000,
        max_spawns: int = 10_000,
    ) -> None:
        _check_numbers(
            max_live=max_live, keep=keep, max_depth=max_depth, max_descendants=max_descendants,
            max_spawns=max_spawns, grace=grace,
        )  # fmt: skip
        self.definitions = Definitions(agents, prompts, tools, hooks, skills)
        self.env = dict(env or {})
        if problems := list(env_problems("env", self.env)):
            raise DefinitionError("runtime", problems)
        self._owns_hub = hub is None
        if hub is None:
            ports = ports or Ports()
            journal = open_store(store, ports, keep=keep, default_agent=default_agent)
            hub = Hub(journal=journal, ports=ports, max_inbox=max_inbox, buffer=buffer)
        self.hub = hub
        self.ports = hub.ports
        self._default_agent = default_agent
        if default_agent:
            self.definitions.agent(default_agent)
        self.timers = Timers(self.ports.clock)
        self._is_open = False
        self.is_leaving = False
        self.is_gone = False
        check_labels(default_agent=default_agent)
        for each in models or {}:
            check_label("models", each)
        wrong = [n for n, each in (models or {}).items() if not isinstance(each, Model)]
        if wrong:
            problem = "give a Model object, or name the model in the prompt"
            raise DefinitionError("runtime", [f"models.{name}: {problem}" for name in wrong])
        self.resolved = Resolved(models or {}, os.environ if environ is None else environ)
        self._scheduler = Scheduler(self, schedules)
        if not isinstance(restore, RestorePolicy):
            raise BadValue("restore", f"a RestorePolicy is wanted, not {restore!r}")
        self.runs = Activations(self, max_live, restore)
        self.trees = Trees(max_depth=max_depth, max_live=max_descendants, max_spawns=max_spawns)
        self.pauses = Pauses(self)
        self._grace = grace
        self._keep = keep
        self._ended_roots: deque[str] = deque()
        self._timing: TaskHandle[Any, None] | None = None
        self._watchers: dict[str, list[anyio.Event]] = {}
        self._errors: dict[str, Exception | None] = {}
        self._returned: dict[str, Json] = {}
        self._lingering: dict[str, CodeRun] = {}
        self._progress: anyio.Event | None = None
        self._stop_serving: Callable[[], None] | None = None

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        if self.is_leaving:
            raise Closed("the runtime", "it is entered once; make a new one on its store")
        if self._is_open:
            raise CallerError("this runtime is open already; use the one that is there")
        defer_interrupts(Runtime.__aenter__, Runtime.__aexit__)
        try:
            if self._owns_hub:
                await self.hub.__aenter__()
            await self._begin()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        self._is_open = True
        self.runs.withheld.opened()
        return self

    async def _begin(self) -> None:
        for name in self.definitions.names:
            for warning in self.definitions.agent(name).warnings:
                log.warning("definition.warned", agent=name, warning=warning)
        self.hub.set_owner(self.runs)
        self.hub.addressing.agents = frozenset(self.definitions.names)
        self.hub.addressing.default_agent = self._default_agent
        self._stop_serving = self.hub.serve("runtime", self._answer)
        self._timing = self.hub.tasks.start(self.timers.run(), name="hubbub timers")
        await self.pauses.begin()
        await self.runs.begin()
        await self._scheduler.begin()
        for problem in self.hub.journal.problems:
            event = e.HubErrorEvent(
                error=problem, error_type="agent folder", during=e.AgentRestore.type
            )
            self.runs.withheld.tell(event)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.is_leaving = True
        self._scheduler.stop()
        self.runs.stop()
        try:
            if exc_type is None and self._grace > 0:
                with anyio.move_on_after(self._grace):
                    await self._wait_boundaries()
        finally:
            self.is_gone = True
            if self._timing is not None:  # Until now: what the grace waits for may time out.
                self._timing.cancel()
            self.runs.close()
            self._let_go_of_hub()
            for events in self._watchers.values():
                for event in events:
                    event.set()
            try:
                if self._owns_hub:
                    await self.hub.aclose()
            finally:
                await self.resolved.aclose()

    def _let_go_of_hub(self) -> None:
        if self.hub.dispatcher.owner is self.runs:
            self.hub.set_owner(None)
            self.hub.addressing.agents = None
        if self._stop_serving is not None:
            self._stop_serving()

    async def _wait_boundaries(self) -> None:
        while not all(run.is_at_boundary for run in self.runs.in_memory):
            self._progress = anyio.Event()
            await self._progress.wait()

    def changed(self, run_id: str) -> None:
        """A run has left memory: whoever waits for it looks again."""
        for event in self._watchers.get(run_id, ()):
            event.set()
        self.progressed()

    def run_ended(self, lane: OwnLane) -> None:
        """A run is over: what was kept for it goes, its files with the last ``keep`` roots."""
        for run_id in self.trees.ended(lane.run_id, lane.root_run_id):
            self.hub.addressing.run_ended(run_id)
        if lane.parent_run_id is None:
            self._ended_roots.append(lane.run_id)
            while len(self._ended_roots) > self._keep:
                self.ports.blobs.drop(self._ended_roots.popleft())

    def deliveries(self, mail: Iterable[tuple[str, InLane]], lane: OwnLane) -> tuple[Delivery, ...]:
        """What a run's commit sends to others: results, messages, starts of children."""
        made = []
        ends = False
        for to, event in mail:
            if isinstance(event, e.SessionTerminate):
                # It ends terminated: so does whoever is left below, those of ended ones included.
                if not ends and self.trees.has_children(lane.root_run_id):
                    below = self.hub.delivery(event, to=lane.run_id)
                    below.by = "below"
                    made.append(below)
                ends = True
                continue
            delivery = self.hub.delivery(event, to=to)
            delivery.limit = 0  # Between relatives nothing is refused for a full inbox.
            if isinstance(event, e.SessionOpen):
                self.trees.started(lane.root_run_id)
            made.append(delivery)
        return tuple(made)

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
        env: Mapping[str, str] | None = None,
        source: str = "",
    ) -> Run:
        """Start a run and return its handle once the start is durable.

        With a ``session_key`` that has a live run, that run is found and ``input`` sent to it.
        ``input`` may be a ``Message``: a model agent takes it as one, a code agent gets its text
        as input.  With its ``key`` (and the same ``source``) it is taken once per run: delivered
        again with the ``session_key`` or ``run_id``, it is a duplicate, and the handle is the same
        run's.  A key that came with other content raises ``CallerError``.
        ``once`` ends a model run with its first session; ``timeout`` (seconds) bounds the whole
        run.  ``env`` gives the run values of variables, which appear nowhere.  Raises
        ``UnknownAgent``, ``BadValue`` (an input that cannot be encoded or does not fit),
        ``Closed``.
        """
        self._check_open()
        definition = self._definition(agent, input)
        if any(True for _ in env_problems("env", env or {})):  # Which one may be a secret itself.
            raise BadValue("env", "names of letters, digits and '_' with texts are wanted")
        receipt = self.hub.open(
            definition.name, input, session_key=session_key, run_id=run_id, once=once,
            timeout=timeout, name=name, correlation_id=correlation_id, env=dict(env or {}),
            source=source,
        )  # fmt: skip
        await receipt
        receipt.raise_if_rejected()
        name = definition.name
        if session_key or run_id:  # The run that was found may be another agent's.
            info = await self.hub.journal.info(receipt.run_id)
            name = info.agent if info is not None else name
        return Run(self, receipt.run_id, name, receipt.cursor)

    async def run(self, agent: str | AgentDefinition, input: Any = None) -> RunOutcome:
        """One session, then the terminal event: one question, one answer.

        A caller that is cancelled terminates the run.  Failures are outcomes, not exceptions.
        """
        outcome, _ = await self._run_once(agent, input)
        return outcome

    def executable(self, agent: str | AgentDefinition) -> ExecutableAgent:
        """The agent as workflow code sees it."""
        return ExecutableAgent(self, self._definition(agent, None, check_input=False).name)

    async def _run_once(
        self, agent: str | AgentDefinition, input: Any
    ) -> tuple[RunOutcome, Exception | None]:
        self._check_open()
        definition = self._definition(agent, input)
        input_json, message = (
            opening_message(input)
            if isinstance(input, Message)
            else (encode_value("input", input), None)
        )
        run_id = self.ports.ids.run_id(self.ports.clock.now())
        self._errors[run_id] = None
        caller = self.runs.callers[run_id] = Caller()
        try:
            opening = e.SessionOpen(
                run_id=run_id,
                open_agent=definition.name,
                input_json=input_json,
                message=message,
                once=True,
            )
            receipt = self.hub.pipeline.open(opening, is_new=True)
            if receipt.status == "rejected" or (
                receipt.status == "pending" and self.runs.get(run_id) is None
            ):
                await receipt
                receipt.raise_if_rejected()
            # Others run too, however fast the model is; and a caller cancelled before ends here.
            await anyio.lowlevel.checkpoint()
            self.runs.serve_now(run_id)
            await caller.serve()
            if receipt.status != "accepted":
                await receipt
                receipt.raise_if_rejected()
            outcome = caller.outcome or await self.finished(run_id)
            if (run := self._lingering.get(run_id)) is not None:
                await run.wait_function()
            if outcome.output_json is NULL and run_id in self._returned:
                outcome = structs.replace(outcome, output_json=self._returned[run_id])
        except BaseException:
            caller.cancel()
            self.runs.look_for_ready()
            # A runtime that is left ends no run: the next one on this store goes on.
            if not self.is_gone and not self.hub.is_closed:
                self.hub.terminate(run_id, "its caller was cancelled")
            raise
        finally:
            self.runs.callers.pop(run_id, None)
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
        number: int = 0,
        result: str = "handle",
        call_id: str = "",
    ) -> Run:
        """Start a child of a live run; ``ctx.spawn`` and ``state.spawn`` end here.

        ``number`` counts the children that a code agent's own code starts, from 1.
        ``result``: what becomes of its result; ``call``: the end of the call ``call_id`` decides.
        """
        check_labels(parent_run_id=parent_run_id, name=name, call_id=call_id)
        definition = self._definition(agent, input)
        parent = self.runs.get(parent_run_id)
        if parent is None or self.is_leaving:
            raise UnknownRun(parent_run_id)
        if parent.thread.phase == "ended":
            raise RunEnded(parent_run_id, "ended")
        lane = parent.lane
        depth = 1 + parent.depth
        if refused := self.trees.room(lane.root_run_id).refusal(depth):
            raise LimitExceeded("children", self.trees.limit(depth), refused)
        input_json, message = opening_message(input, lane.run_id)
        opening = e.SessionOpen(
            open_agent=definition.name,
            input_json=input_json,
            message=message,
            name=name or "",
            once=True,
            root_run_id=lane.root_run_id,
            parent_run_id=lane.run_id,
            depth=depth,
            reports=result in ("call", "message"),
            tags=(f"name:{name}",) if name else (),
        )
        delivery = self.hub.delivery(opening, to="")
        self.trees.started(lane.root_run_id)
        child_id = delivery.to
        event = e.AgentChild(
            child_run_id=child_id, child_agent=definition.name, name=name or definition.name,
            created_at=self.ports.clock.now(), index=number, reports=opening.reports,
            result=result, call_id=call_id, side=parent.side_at_work,
        )  # fmt: skip
        parent.append_child(event, delivery)
        return Run(self, child_id, definition.name, is_root=False)

    async def schedules(self) -> tuple[ScheduleStatus, ...]:
        """Every schedule that this runtime has or its store remembers, with last and next fire.

        Without a runtime ``hubbub.runtime.schedules.status.schedule_statuses`` says it from the
        store's notes.
        """
        self._check_open()
        return await self._scheduler.statuses()

    async def agent_for(self, strategy: str) -> str:
        """The run id of ``"most-recent-foreground"``, the agent that a user spoke to last, or of
        ``"heartbeat"``.  Raises ``NoAgentFound``, and ``BadValue`` for other strategies."""
        self._check_open()
        return await agent_for(self.hub.journal, strategy)

    # ── variables for a child that waits ──────────────────────────────────────────────

    async def pending_variables(self, parent_run_id: str, request_id: str) -> PendingVariables:
        """Which variables a creation of a run waits for: names, never values.

        Raises ``VariablesRefused``: unknown or foreign request, booted before, expired, ended.
        """
        check_labels(parent_run_id=parent_run_id, request_id=request_id)
        return await pending(self, parent_run_id, request_id)

    async def provide_variables(
        self, parent_run_id: str, request_id: str, values: Mapping[str, str]
    ) -> Run:
        """Give a deferred child its variables and start it, once; returns its handle.

        Its result comes to the parent as a message.  Raises ``VariablesRefused``, and has then
        stored nothing: unknown or foreign request, booted before, expired, parent ended, cap
        reached, incomplete, unwanted names, values that are no texts.
        """
        self._check_open()
        check_labels(parent_run_id=parent_run_id, request_id=request_id)
        child_run_id, agent = await provide(self, parent_run_id, request_id, values)
        return Run(self, child_run_id, agent, is_root=False)

    # ── ending and asking ────────────────────────────────────────────────────────────────────

    async def terminate(self, run_id: str, reason: str = "") -> Receipt:
        """End a run and its live descendants now and for good; lists whom it touched."""
        check_label("run_id", run_id)
        check_text("reason", reason)
        # Read before the run can act on it: what ends with it is live now.
        below = () if self.hub.is_closed else await self.hub.journal.find(run_id, "below")
        receipt = self.hub.terminate(run_id, reason)
        await receipt
        if receipt.accepted:
            receipt.run_ids = (run_id, *below)
        return receipt

    async def result(self, run_id: str) -> RunOutcome:
        """See ``Run.result``."""
        check_label("run_id", run_id)
        return await self._wait_for(run_id, self._settled)

    async def finished(self, run_id: str) -> RunOutcome:
        """See ``Run.finished``."""
        check_label("run_id", run_id)
        return await self._wait_for(run_id, self._over)

    async def _wait_for(self, run_id: str, is_met: Met) -> RunOutcome:
        waiter = CURRENT_RUN.get()
        if waiter and (waiter == run_id or self.runs.waits_for(run_id, waiter)):
            raise WaitCycle(waiter, run_id)
        with self.runs.waiting(), self.runs.waiting_for(waiter, run_id):
            return await self._watch(run_id, is_met)

    async def _watch(self, run_id: str, is_met: Met) -> RunOutcome:
        await self.hub.journal.flush()
        while True:
            # Watched before it is looked at: what happens in between is not missed.
            changed = anyio.Event()
            self._watchers.setdefault(run_id, []).append(changed)
            try:
                info = await self.hub.journal.info(run_id)
                if info is None:
                    raise UnknownRun(run_id)
                if (met := await is_met(info)) is not None:
                    return await self._outcome(met)
                if (error := self.runs.withheld.error(run_id)) is not None:
                    raise error
                if self.is_gone or self.hub.is_closed:
                    remedy = "the run goes on when a runtime is opened on its store"
                    raise Closed("the runtime", remedy)
                self.hub.check_store()  # Nothing will change any more.
                await changed.wait()
            finally:
                watchers = self._watchers.get(run_id)
                if watchers is not None and changed in watchers:
                    watchers.remove(changed)
                    if not watchers:
                        del self._watchers[run_id]

    async def _over(self, info: RunInfo) -> RunInfo | None:
        return info if info.status == "ended" else None

    async def _settled(self, info: RunInfo) -> RunInfo | None:
        """The run whose outcome it is, once nothing more is to be expected.

        A conversation rests when the frame that has it waits for the user.
        """
        if info.status == "ended":
            return info
        has_mail = False
        seen = {info.run_id}
        while info.status == "waiting":
            frame = await self.runs.frame_on_record(info.run_id)
            if frame in seen:
                raise OperatorError(
                    f"run {info.run_id}: its takeover frames stand in a circle; run `hubbub fsck`, "
                    "and put the store back from a backup"
                )
            seen.add(frame)
            above = await self.hub.journal.info(frame) if frame else None
            if above is None:
                return None
            if (error := self.runs.withheld.error(above.run_id)) is not None:
                raise error
            has_mail = has_mail or (
                info.waiting > 0 and not self.runs.has_only_its_own(info.run_id)
            )
            info = above
        is_idle = info.status == "parked" and not (info.waiting or has_mail)
        return info if is_idle and not self.runs.is_busy(info.run_id) else None

    async def _outcome(self, info: RunInfo) -> RunOutcome:
        wanted = (e.SessionEnd.type, e.AgentComplete.type)
        last = await self.hub.journal.latest(info.run_id, wanted)
        if not isinstance(last, Ending):
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

    def _check_open(self) -> None:
        if self.is_leaving:
            raise Closed("the runtime")
        if not self._is_open:
            raise CallerError(
                "this runtime is not open; use it inside: async with Runtime(...) as rt"
            )

    def _definition(
        self, agent: str | AgentDefinition, input: Any, *, check_input: bool = True
    ) -> AgentDefinition:
        if not isinstance(agent, str | AgentDefinition):
            what = type(agent).__name__
            raise BadValue("agent", f"an agent's name or AgentDefinition is wanted, not {what}")
        name = agent if isinstance(agent, str) else agent.name
        definition = self.definitions.agent(name)
        if check_input and definition.is_code:
            self.resolved.input_of(definition)(opening_message(input)[0])
        return definition


def _check_numbers(**numbers: float) -> None:
    for name, number in numbers.items():
        least = 1 if name in ("max_live", "keep") else 0
        if isinstance(number, bool) or not isinstance(number, int | float) or number < least:
            raise BadValue(name, f"a number of at least {least} is wanted, not {number!r}")
