"""``RunAccess``: how a runtime's runs are found, awaited and ended.

Nothing here starts one but a child that has waited for values of its variables, and a fork of
another run.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.variables import env_problems
from hubbub.hub.errors import BadValue, CallerError
from hubbub.hub.events import Limits, SessionLimits
from hubbub.hub.events.descriptors import Descriptor
from hubbub.hub.message import Sayable, check_limits
from hubbub.hub.receipt import Receipt
from hubbub.hub.texts import check_labels
from hubbub.runtime.activities.agent_messages import agent_for
from hubbub.runtime.activities.other_runs import LookAt
from hubbub.runtime.activities.variable_requests import (
    PendingVariables,
    pending,
    provide,
)
from hubbub.runtime.finding.conversations import Conversations
from hubbub.runtime.finding.finder import Finder
from hubbub.runtime.kernel.handle import Run
from hubbub.runtime.kernel.outcome import RunOutcome
from hubbub.runtime.kernel.outcomes import Outcomes
from hubbub.runtime.kernel.rewritten import check_rewritten
from hubbub.runtime.kernel.services import Services, definition_of
from hubbub.runtime.spending.accounts import TreeAccounts

if TYPE_CHECKING:
    from hubbub.runtime.inspection.replay import Replayed

__all__ = ["RunAccess", "check_env"]


class RunAccess:
    """What ``Runtime`` says of runs that there are, in its store or at work."""

    def __init__(
        self, services: Services, outcomes: Outcomes, look_at: LookAt, accounts: TreeAccounts
    ) -> None:
        self.services = services
        self.hub = services.hub
        self.phase = services.phase
        self.outcomes = outcomes
        self._look_at = look_at
        self._accounts = accounts
        self._finder = Finder(self.hub)

    # ── finding, without starting anything ───────────────────────────────────────────────────

    async def conversations(
        self, *, agent: str = "", status: str = "", before: str = "", after: str = "",
        limit: int = 50,
    ) -> Conversations:  # fmt: skip
        """A page of the conversations in the store, the one that was spoken to last first.

        Roots that people or programs speak to, ended ones included: no children, no schedules'
        runs, nothing asked by ``run``.  Of one ``agent`` (by name), of one ``status`` (``active``,
        ``waiting``, ``parked``, ``ended``), ``before`` a cursor (``page.next`` goes on) or
        ``after`` one.  See ``Conversation``.  The work for a page is bounded.  Raises ``BadValue``.
        """
        self.phase.check_open()
        return await self._finder.conversations(
            agent=agent, status=status, before=before, after=after, limit=limit
        )

    async def find(self, key: str | Descriptor) -> Run | None:
        """The open conversation of a session key or a descriptor; ``None`` if there is none.

        Starts nothing.  Raises ``BadValue`` for what is neither.
        """
        self.phase.check_open()
        info = await self._finder.find(key)
        return None if info is None else Run.of(self.outcomes, info)

    async def handle(self, run_id: str) -> Run:
        """The handle of a run, ended or not.  Starts nothing; raises ``UnknownRun``."""
        self.phase.check_open()
        return Run.of(self.outcomes, await self._finder.run(run_id))

    async def state_at(self, run_id: str, seq: int | None = None) -> "Replayed":
        """A run as it was after record ``seq`` of its own lane, or as it is.

        Folded from its records, as by a runtime that goes on with it; nothing is started, changed
        or asked.  Of runs at work, parked and ended ones, whoever drives them; of one at work what
        is committed.  0 is before the first record.  ``replay`` (``hubbub.runtime.inspection``)
        says the same of a store without a runtime.  Raises ``UnknownRun``, ``NoSuchRecord``, which
        names the range, ``BadValue``, and ``StoreFailed`` for a record that cannot be read.
        """
        self.phase.check_open()
        return await self._finder.state_at(run_id, seq)

    async def fork(
        self,
        run_id: str,
        seq: int | None = None,
        *,
        message: Sayable | None = None,
        agent: str | AgentDefinition | None = None,
        model: str = "",
        prompt: str = "",
        env: Mapping[str, str] | None = None,
        session_key: str = "",
        new_run_id: str = "",
    ) -> Run:
        """A new run that goes on from record ``seq`` of an old one, with all below it at that
        moment; the old one stays as it is.  Returns its handle; it is durable then, all of it.

        Without ``seq`` it goes on from the last record, of a run that has ended from the last one
        before its end.  ``message`` is the first thing that it is told; ``agent`` goes on instead,
        with its own prompt, models and tools.  ``model``, by name, and ``prompt``, a text, are on
        record in the place of its agent's.  Calls that were under way are lost calls, as after a
        crash; what people were asked has ended.  Values of variables are those that the old runs
        have now, and ``env``.  See docs/time-travel.md.

        Raises ``UnknownRun``, ``NoSuchRecord``, ``NoFork`` (a run below another, a code agent at
        work, a run at its end), ``UnknownAgent``, ``BadValue``, ``CallerError`` for a
        ``new_run_id`` or a ``session_key`` that another run has, and ``StoreFailed``.
        """
        from hubbub.runtime.timelines.forking import ForkWanted, fork_run

        self.phase.check_open()
        check_env(env)
        wanted = ForkWanted(
            run_id=run_id, seq=seq, message=message, agent=self._model_agent(agent),
            model=model, prompt=prompt, env=dict(env or {}), session_key=session_key,
            new_run_id=new_run_id,
        )  # fmt: skip
        check = partial(check_rewritten, self.services, model, prompt)
        made = await fork_run(self.hub, wanted, check if model or prompt else None)
        return await self.handle(made.run_id)

    def _model_agent(self, agent: str | AgentDefinition | None) -> str:
        if agent is None:
            return ""
        found = definition_of(self.services, agent, None, check_input=False)
        if found.is_code:
            what = f"{found.name!r} is a code agent, which cannot go on with a conversation"
            raise BadValue("agent", what)
        return found.name

    async def agent_for(self, strategy: str) -> str:
        """The run id of ``"most-recent-foreground"``, the agent that a user spoke to last, or of
        ``"heartbeat"``.  Raises ``NoAgentFound``, and ``BadValue`` for other strategies."""
        self.phase.check_open()
        return await agent_for(self.hub.journal, strategy)

    # ── ending and asking ────────────────────────────────────────────────────────────────────

    def terminate(self, run_id: str, reason: str = "") -> Receipt:
        """End a run and its live descendants now and permanently; the receipt lists them.

        It acts at the call, awaited or not.
        """
        self.phase.check_entered()
        return self.hub.terminate(run_id, reason)

    async def limit(self, run_id: str, limits: Limits | None) -> Receipt:
        """Say what a root and all below it may use from now on, what they have used included.

        ``None``: what the runtime's own ``limits`` say.  On record when the receipt is accepted.
        What is used up already ends the turn at work before its next call of a model; what was
        refused for less goes on with the next message.
        Raises ``UnknownRun``, ``CallerError`` for a run below another one, ``BadValue`` for what
        are no limits, or a cost without prices.
        """
        self.phase.check_open()
        check_limits(limits)
        info = await self._finder.run(run_id)
        refuse = None if limits is None else self.hub.addressing.refusal_of_limits
        if limits is not None and refuse is not None and (problem := refuse(limits)):
            raise BadValue("limits", problem)
        if info.parent_run_id is not None:
            raise CallerError(
                f"run {run_id}: limits are those of a tree; give them to its root, "
                f"{info.root_run_id}"
            )
        if limits is not None and self.hub.share.sharing is None:
            await self._accounts.learn(info.root_run_id, limits, self.hub.journal)
        receipt = self.hub.pipeline.deliver(SessionLimits(limits=limits), to=run_id)
        await receipt
        return receipt

    async def result(self, run_id: str) -> RunOutcome:
        """See ``Run.result``."""
        self.phase.check_entered()
        return await self.outcomes.result(run_id)

    async def finished(self, run_id: str) -> RunOutcome:
        """See ``Run.finished``."""
        self.phase.check_entered()
        return await self.outcomes.finished(run_id)

    # ── variables for a child that waits ─────────────────────────────────────────────────────

    async def pending_variables(self, parent_run_id: str, request_id: str) -> PendingVariables:
        """Which variables a creation of a run waits for: names, never values.

        Raises ``VariablesRefused``: unknown or foreign request, booted before, expired, ended.
        """
        self.phase.check_entered()
        check_labels(parent_run_id=parent_run_id, request_id=request_id)
        return await pending(self.services, self._look_at, parent_run_id, request_id)

    async def provide_variables(
        self, parent_run_id: str, request_id: str, values: Mapping[str, str]
    ) -> Run:
        """Give a deferred child its variables and start it, once; returns its handle.

        Its result comes to the parent as a message.  Raises ``VariablesRefused``, and has then
        stored nothing: unknown or foreign request, booted before, expired, parent ended, cap
        reached, incomplete, unwanted names, values that are no texts.
        """
        self.phase.check_open()
        check_labels(parent_run_id=parent_run_id, request_id=request_id)
        child_run_id, agent = await provide(
            self.services, self._look_at, parent_run_id, request_id, values
        )
        return Run(self.outcomes, child_run_id, agent, is_root=False)


def check_env(env: Mapping[str, str] | None) -> None:
    """Raise ``BadValue`` for what are no values of variables."""
    if any(True for _ in env_problems("env", env or {})):  # Which one may be a secret itself.
        raise BadValue("env", "expected names of letters, digits and '_' with texts")
