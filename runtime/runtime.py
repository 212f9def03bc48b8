"""``Runtime``: makes runs happen.  The one place where everything is put together.

It owns a hub (or shares one), and gets every item that enters an inbox.  A run with
something to do is *activated*: read from the journal into memory, driven until nothing is due,
and let go again.  At most ``max_live`` are in memory at once; ready runs beyond wait their turn.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import anyio
import anyio.lowlevel

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.definitions.output import Output
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.mcp_server import McpServer
from hubbub.agents.model import Model
from hubbub.agents.prices import Price
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.digest import definition_digests
from hubbub.agents.resolution.prompt_check import prompt_problems, used_models
from hubbub.agents.turn.crash_limit import MAX_CRASHES
from hubbub.hub.errors import CallerError, Closed, DefinitionError, WrongLoop
from hubbub.hub.events import GivenTool, HistoryMessage, Limits
from hubbub.hub.events.given_tools import ExternalTool
from hubbub.hub.hub import Hub
from hubbub.hub.logs import log
from hubbub.hub.message import check_limits
from hubbub.hub.ports import Ports
from hubbub.hub.store.store import Store
from hubbub.hub.tasks.cancelling import defer_interrupts
from hubbub.hub.texts import check_labels
from hubbub.hub.values import check_counts
from hubbub.runtime.activities.other_runs import OtherRuns
from hubbub.runtime.arguments import Role, check_arguments, check_role
from hubbub.runtime.asked import RuntimeAnswers
from hubbub.runtime.finding.published import publish, published
from hubbub.runtime.kernel.budgets import TreeBudgets
from hubbub.runtime.kernel.catalog import Catalog
from hubbub.runtime.kernel.current_run import CURRENT_RUN
from hubbub.runtime.kernel.families import Families
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.kernel.live import ConversationKeeper, LiveRuns, RunKeeper
from hubbub.runtime.kernel.outcome import RunOutcome
from hubbub.runtime.kernel.outcomes import Outcomes
from hubbub.runtime.kernel.phase import Phase
from hubbub.runtime.kernel.services import KeptTurns, NoToolServers, Services, definition_of
from hubbub.runtime.kernel.timers import Timers
from hubbub.runtime.mcp.servers import McpServers, McpStatus
from hubbub.runtime.removal.chosen import kept_turns, retention_passes
from hubbub.runtime.run_access import RunAccess, check_env
from hubbub.runtime.runs.dependencies import RunDependencies
from hubbub.runtime.runs.lasting_prompts import LastingPrompts
from hubbub.runtime.runs.spawn import Spawner
from hubbub.runtime.schedules.scheduler import Scheduler
from hubbub.runtime.schedules.schedules import Cron, Heartbeat
from hubbub.runtime.schedules.status import ScheduleStatus
from hubbub.runtime.spending.accounts import TreeAccounts
from hubbub.runtime.spending.prices import PriceList
from hubbub.runtime.stores.open import DEFAULT_STORE, open_store
from hubbub.runtime.stores.retention.retention import Retention
from hubbub.runtime.supervision.hub_ownership import HubOwnership
from hubbub.runtime.supervision.inline_calls import ExecutableAgent, InlineCalls
from hubbub.runtime.supervision.restore import RestorePolicy
from hubbub.runtime.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from anyio import TaskHandle

__all__ = ["Runtime"]


class Runtime(RunAccess):
    """Runs agents.  ``async with Runtime(agents=[…]) as rt:``

    Leaving it accepts nothing new, gives steps in flight ``grace`` seconds to reach their
    boundary and cancels the rest unrecorded; no run ends by it.

    * ``agents``, ``prompts``, ``tools``, ``hooks``, ``skills`` (see ``load_skills``): the
      definitions; ``models`` names ``Model`` objects.
    * ``env``: values of variables that nothing else gives.
    * ``store``: ``"sqlite:PATH"`` (default ``sqlite:.hubbub``, a folder where the program runs),
      ``"postgresql://…"`` (docs/postgresql.md), ``"memory"``, or a ``Store``.  ``keep`` bounds the
      ended runs that the memory store keeps readable, besides those whose tree has a run that
      lives.
    * ``default_agent``: whom an opening is for that names no agent.
    * ``environ``: where keys of providers come from (default: the process environment).
    * ``schedules``: what is to run by itself while this is open.
    * ``restore`` says what becomes of messages that an earlier runtime accepted and did not handle
      (see ``RestorePolicy``).
    * ``unattended``: what becomes of approvals, external calls and questions below a root that no
      person talks with (``rt.run``, ``once``, a schedule): they wait for their reply like others,
      or are denied at once, with a reason that says so.
    * ``max_live`` runs are in memory at once; one more is let in where all of them only wait for
      others, and what ends or interrupts a run waits for no room.  ``max_depth``,
      ``max_descendants`` (live at once) and ``max_spawns`` (in all) bound what grows from one root.
    * ``max_crashes``: after as many deaths of its process in a row, at work and without progress, a
      run fails (``crash_loop``).  From two on: before the last one, those that may be guilty are
      restored one after another.
    * ``limits``: what each tree of runs may use, together, unless its opening says otherwise.
    * ``role``, ``capacity``: where several processes share the store, a ``"worker"`` drives trees
      of runs, those whose root is one of its ``agents``, and at most ``capacity`` of them.  A
      ``"channel"`` drives none and fires no schedule: what it opens and sends others handle.  It
      needs no definitions; without any it opens whatever agent is named.
    * ``replace_agents``: that other workers on the store may have other definitions of its agents,
      as while a new version takes the place of the old one.  Without it, entering this raises
      ``OtherDefinition`` where one at work has.  A run goes on by those of whoever drives it.
    * ``retention``: what is kept of trees of runs that have ended, and of the turns of those that
      live, and when a silent one is ended (see ``Retention``, docs/retention.md); by default
      everything is kept.
    * ``prices``: what models cost, by the names that prompts give them; what has no price costs
      nobody knows how much (``None``).

    Raises ``DefinitionError`` at once for definitions that do not fit together.
    """

    def __init__(
        self,
        agents: Iterable[AgentDefinition] = (),
        prompts: Iterable[PromptDefinition] = (),
        tools: Iterable[Tool[..., Any] | McpServer] = (),
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
        unattended: Literal["wait", "deny"] = "wait",
        max_live: int = 20_000,
        keep: int = 10_000,
        grace: float = 5.0,
        max_inbox: int = 10_000,
        buffer: int = 1024,
        max_depth: int = 16,
        max_descendants: int = 1_000,
        max_spawns: int = 10_000,
        max_crashes: int = MAX_CRASHES,
        limits: Limits | None = None,
        prices: Mapping[str, Price] | None = None,
        role: Role = "worker",
        capacity: int | None = None,
        replace_agents: bool = False,
        retention: Retention | None = None,
    ) -> None:
        check_arguments(store, hub, ports, env, models, environ, restore, grace)
        check_labels(default_agent=default_agent)
        check_counts(1, max_live=max_live, keep=keep)
        check_counts(2, max_crashes=max_crashes)
        check_counts(0, max_depth=max_depth, max_descendants=max_descendants, max_spawns=max_spawns)
        budgets = TreeBudgets(max_depth=max_depth, max_live=max_descendants, max_spawns=max_spawns)
        self.definitions = Definitions(agents, prompts, tools, hooks, skills)
        catalog = Catalog(models or {}, os.environ if environ is None else environ)
        check_limits(limits)
        price_list = PriceList(prices)
        problems = list(prompt_problems(self.definitions, catalog))
        if problems := [*problems, *price_list.problems(self.definitions, limits)]:
            raise DefinitionError("definitions", problems)
        self.env = dict(env or {})
        self._owns_hub = hub is None
        if hub is None:
            ports = ports or Ports()
            journal = open_store(store, ports, keep=keep, is_worker=role == "worker")
            hub = Hub(journal=journal, ports=ports, max_inbox=max_inbox, buffer=buffer)
        self.hub = hub
        check_role(role, capacity, replace_agents, hub.share.sharing)
        self.ports = hub.ports
        self._is_worker, self._capacity = role == "worker", capacity
        has_servers = self._is_worker and self.definitions.servers
        self._servers = McpServers(self.definitions, hub) if has_servers else None
        live = LiveRuns()
        accounts = TreeAccounts(self.definitions, live.by_id, limits, hub.share.owns)
        services = self.services = Services(
            hub, self.definitions, catalog, self.env, budgets, accounts, Timers(hub.ports.clock),
            Phase(hub.tasks.home), self._servers or NoToolServers(self.definitions),
            prices=price_list, max_crashes=max_crashes, turns=KeptTurns(kept_turns(retention)),
        )  # fmt: skip
        families = Families(hub, budgets, accounts, live)
        self.outcomes = Outcomes(hub, self.definitions, services.phase, live, families, accounts)
        spawner = Spawner(services, live, self.outcomes)
        self.others = OtherRuns(families.statuses_of, families.look_at, spawner.spawn)
        self._scheduler = Scheduler(services, self.outcomes, schedules)
        self._prompts = LastingPrompts(services, families, unattended)

        def compose(keeper: RunKeeper, conversations: ConversationKeeper) -> RunDependencies:
            return RunDependencies(
                services, keeper, conversations, families, self.outcomes, self.others,
                self._prompts,
            )  # fmt: skip

        self.runs = Supervisor(
            services, live, families, self.outcomes, compose,
            max_live=max_live, keep=keep, restore=restore,
        )  # fmt: skip
        self._ownership = HubOwnership(
            hub, self.runs, self.definitions, price_list, default_agent, is_worker=self._is_worker
        )
        self._calls = InlineCalls(services, self.outcomes, self.runs)
        super().__init__(services, self.outcomes, families.look_at, accounts)
        self._grace, self._replaces = grace, replace_agents
        self._timing: TaskHandle[Any, None] | None = None
        self._passes = retention_passes(services, retention, is_worker=self._is_worker)
        self._stop_serving: Callable[[], None] | None = None

    # ── life ─────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        if self.phase.is_leaving:
            raise Closed("the runtime", "it can be entered only once; make a new one on its store")
        if self.phase.is_entered:
            raise CallerError("this runtime is open already; use the open one")
        self.phase.is_entered = True
        defer_interrupts(Runtime.__aenter__, Runtime.__aexit__)
        try:
            if not self._owns_hub:  # First of all: one that has a runtime stays as it is.
                self._ownership.begin()
            if self._is_worker:
                self.services.catalog.prepare(used_models(self.definitions))
            if self._servers is not None:
                self._servers.prepare()
            await self._offer()
            if self._owns_hub:
                await self.hub.__aenter__()
                self._ownership.begin()
            await self._begin()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        self.phase.is_open = True
        self.runs.quarantine.opened()
        return self

    async def _offer(self) -> None:
        """Say which agents there are, and drive them; of a hub that is not open yet, with that."""
        share = self.hub.share
        if self._is_worker:
            if share.sharing is not None:
                digests = definition_digests(self.definitions)
                await share.declare(digests, replaces=self._replaces)
            share.offer(self.definitions.names, self._capacity)
        publish(self.hub.journal, published(self.definitions, self.env))

    async def _begin(self) -> None:
        for name in self.definitions.names:
            for warning in self.definitions.agent(name).warnings:
                log.warning("definition.warned", agent=name, warning=warning)
        answers = RuntimeAnswers(self._finder, self.services, self.runs.look_at, self.limit)
        self._stop_serving = self.hub.serve("runtime", answers.answer)
        timing = self.services.timers.run()
        self._timing = self.hub.tasks.start(timing, name="hubbub timers", steady=True)
        if self._servers is not None:
            self._servers.begin(self.runs.quarantine.emit)
        await self.runs.begin(await self._prompts.begin())
        if self._is_worker:
            await self._scheduler.begin()
            if self._passes is not None:
                self._passes.begin()
        self.runs.quarantine.report_folders(self.hub.journal.problems)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.hub.tasks.home.end_forked(exc)
        self.hub.tasks.home.is_left("leaving the runtime")
        if self.runs.get(CURRENT_RUN.get()) is not None:
            raise CallerError(
                "a run cannot leave the runtime that it is a run of; leave it where it was entered"
            )
        self.hub.tasks.refuse_within("leaving the runtime")
        if self.hub.tasks.is_stranded:
            await self._abandon()
        self.phase.is_leaving = True
        self._scheduler.stop()
        if self._passes is not None:
            self._passes.stop()
        self.runs.stop()
        try:
            if exc_type is None and self._grace > 0:
                with anyio.move_on_after(self._grace):
                    await self.runs.trees.drain()
                    await self.phase.wait_until(self._is_at_rest)
        finally:
            self.phase.is_gone = True
            if self._timing is not None:  # Until now: what the grace waits for may time out.
                self._timing.cancel()
            self.runs.close()
            if not self._owns_hub and self._ownership.is_begun:
                self.runs.trees.withdraw()  # Its own hub leaves the store, which says the same.
            self._let_go_of_hub()
            self.outcomes.close()
            try:
                if self._servers is not None:
                    await self._servers.aclose()
            finally:
                try:
                    if self._owns_hub:
                        await self.hub.aclose()
                finally:
                    await self.services.catalog.aclose()

    async def _abandon(self) -> None:
        """Release what there is after a loop that was closed over runs at work, and say so."""
        self.phase.is_leaving = self.phase.is_gone = True
        self._let_go_of_hub()
        with suppress(RuntimeError):  # What belongs to the loop has ended with it.
            await self.services.catalog.aclose()
        if self._owns_hub:
            with suppress(WrongLoop):
                await self.hub.aclose()
        self.hub.tasks.refuse_stranded("leaving the runtime")

    def _let_go_of_hub(self) -> None:
        self._ownership.end()
        if self._stop_serving is not None:
            self._stop_serving()

    def _is_at_rest(self) -> bool:
        waits = self.outcomes.waits
        return all(run.is_at_rest(waits(run.lane.run_id)) for run in self.runs.in_memory)

    # ── starting ─────────────────────────────────────────────────────────────────────────────

    async def start(
        self,
        agent: str | AgentDefinition[Output],
        input: object = None,
        *,
        session_key: str = "",
        run_id: str | None = None,
        once: bool = False,
        timeout: float | None = None,
        name: str = "",
        correlation_id: str = "",
        env: Mapping[str, str] | None = None,
        source: str = "",
        history: Sequence[HistoryMessage | Mapping[str, Any]] | None = None,
        tools: Sequence[ExternalTool | GivenTool] | None = None,
        limits: Limits | None = None,
    ) -> Run[Output]:
        """Start a run and return its handle once the start is durable.

        With a ``session_key`` that has a live run, that run is found and ``input`` sent to it.
        ``input`` may be a ``Message``: a model agent takes it as one, a code agent gets its text
        as input.  With its ``key`` (and the same ``source``) it is taken once per run: delivered
        again with the ``session_key`` or ``run_id``, it is a duplicate, and the handle is the same
        run's.  A key that came with other content raises ``CallerError``, a new one ``RunEnded``
        if the run of that ``run_id`` has ended.  Without a key a ``run_id`` that exists is the same
        start again: the ``input`` is dropped, and the handle's ``duplicate`` says so; to be sure
        that it arrives, give a key, or ``send`` it.
        ``once`` ends a model run with its first session; ``timeout`` (seconds) bounds the whole
        run.  ``env`` gives the run values of variables, which appear nowhere.  ``history`` is what
        was said before, which a new run's model sees ahead of ``input``, and ``tools`` are external
        tools of this run alone (see ``Hub.open``); ``limits`` are what the run
        and all below it may use, in place of the runtime's; a run that is found, as the handle's
        ``created`` says, keeps its own.
        Raises ``UnknownAgent``, ``BadValue`` (an input that cannot be encoded or does not fit, a
        history that is not well-formed), ``CallerError`` (an agent that takes none), ``Closed``.
        """
        self.phase.check_open()
        if isinstance(agent, str) and self._ownership.opens_any:
            check_labels(agent=agent)
            opened = agent
        else:
            opened = definition_of(self.services, agent, input).name
        check_env(env)
        receipt = self.hub.open(
            opened, input, session_key=session_key, run_id=run_id, once=once,
            timeout=timeout, name=name, correlation_id=correlation_id, env=dict(env or {}),
            source=source, history=history, tools=tools, limits=limits,
        )  # fmt: skip
        await receipt
        receipt.raise_if_rejected()
        if session_key or run_id:  # The run that was found may be another agent's.
            info = await self.hub.journal.info(receipt.run_id)
            name = info.agent if info is not None else name
        run: Run[Output] = Run(self.outcomes, receipt.run_id, name, receipt.cursor)
        run.created, run.duplicate = receipt.created, receipt.duplicate
        return run

    async def run(
        self,
        agent: str | AgentDefinition[Output],
        input: object = None,
        *,
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
    ) -> RunOutcome[Output]:
        """One session, then the terminal event: one question, one answer.

        ``env`` and ``limits`` as for ``start``.  A cancelled caller terminates the run.  Failures
        are outcomes, not exceptions.  Raises ``BadValue`` for a model agent without an input.
        """
        self.phase.check_open()
        if isinstance(agent, str) and self._ownership.opens_any:
            check_labels(agent=agent)
            opened = agent
        else:
            opened = definition_of(self.services, agent, input).name
        if env is not None:
            check_env(env)
        if limits is not None:
            check_limits(limits)
        outcome, _ = await self._calls.run(opened, input, env, limits)
        return outcome

    def executable(self, agent: str | AgentDefinition[Output]) -> ExecutableAgent[Output]:
        """The agent as workflow code sees it."""
        name = definition_of(self.services, agent, None, check_input=False).name
        return ExecutableAgent(self.services, self._calls, name)

    async def schedules(self) -> tuple[ScheduleStatus, ...]:
        """Every schedule that this runtime has or its store remembers, with last and next fire.

        Without a runtime ``hubbub.runtime.schedules.status.schedule_statuses`` says it from the
        store's notes.
        """
        self.phase.check_open()
        return await self._scheduler.statuses()

    @property
    def mcp_servers(self) -> tuple[McpStatus, ...]:
        """The MCP servers that prompts of this runtime use, as they are just now."""
        return () if self._servers is None else self._servers.statuses
