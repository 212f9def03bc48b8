"""``AtWork``: what an activity is given, and what the failures in it mean."""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, ClassVar, Protocol

import anyio

from hubbub.agents.definitions.tools import Tool, ToolError, ToolResult, alone, render_failure
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.retry import SETUP, Failure, failure_problem, refused_by
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.decide import Kind
from hubbub.agents.turn.steps import has_another
from hubbub.hub.errors import (
    Closed,
    HubbubError,
    MissingExtra,
    MissingKey,
    ProviderError,
    UnknownAgent,
    UnknownModel,
)
from hubbub.hub.events import Event, InLane
from hubbub.hub.logs import log
from hubbub.hub.masking import Masker, class_name_of, words_of
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.run_hub import RunHub, RunScope
from hubbub.hub.tasks.raised import is_of
from hubbub.runtime.activities.environment import Environment
from hubbub.runtime.activities.other_runs import OtherRuns
from hubbub.runtime.activities.questions import extended
from hubbub.runtime.activities.recorder import Recorder
from hubbub.runtime.activities.thread_state import ThreadState
from hubbub.runtime.kernel.services import Services

__all__ = ["AtWork", "CutOff", "Performer", "failure_of"]


class CutOff(Exception):
    """A tool was refused something since the runtime is left: the next one has its call."""


class Performer(Protocol):
    """The run that an activity is performed for."""

    @property
    def lane(self) -> OwnLane: ...

    @property
    def thread(self) -> Thread: ...

    @property
    def side(self) -> ActiveSide | None: ...

    @property
    def hook_events(self) -> deque[tuple[str, Any]]: ...

    def waiting_items(self, kind: Kind) -> tuple[InLane, ...]: ...

    def receiving_side(self, side: ActiveSide) -> ActiveSide: ...

    def listed_side(self) -> ActiveSide | None: ...

    def record(self, event: Event, done: Callable[[], None] | None) -> None: ...


class AtWork:
    """What an activity needs, and the scope it acts in.

    Once that is no longer live, whatever the activity still emits is dropped.
    """

    __slots__ = ("_work", "limit", "others", "run", "services", "side", "thread")

    keeps_answers: ClassVar[bool] = False
    """Whether what its tools ask is on record, for a call that is made again."""
    limit: anyio.CancelScope
    """Where hooks are called after a tool: what bounds the tool's time, while it is called."""

    def __init__(
        self, services: Services, others: OtherRuns, run: Performer, work: RunScope
    ) -> None:
        side = run.side
        self.thread = run.thread
        if side is None:
            raise UnknownAgent(self.thread.agent, services.definitions.names)
        self.services = services
        self.others = others
        self.run = run
        self.side = side
        self._work = work

    @property
    def work(self) -> RunScope:
        """The scope that it acts in."""
        return self._work

    def state(self, call_id: str = "") -> ThreadState:
        """What a tool or hook sees of the run."""
        run, work = self.run, self.work
        where: dict[str, Any] = {"turn": self.thread.turn}
        if self.thread.two_sided:
            where |= {"side": self.side.name, "label": self.side.config.label}
        hub = RunHub(self.services.hub, work, call_id=call_id, **where)
        return ThreadState(
            self.services, self.others, run.lane, lambda: run.thread,
            Recorder(run.record, lambda: work.is_live, self.services.hub.pipeline.home),
            hub=hub, side=self.side, call_id=call_id, asking=self if self.keeps_answers else None,
        )  # fmt: skip

    def standing_still(self) -> AbstractContextManager[None]:
        """Inside, the call's time does not pass."""
        return extended(getattr(self, "limit", None))

    def environment(self) -> Environment:
        return Environment.of(self.services, self.run.lane, self.side)

    def masker(self) -> Masker:
        """What is said of a failure goes through it."""
        return self.environment().masker(self.side)

    def tool_failed(self, tool: Tool[..., Any], call_id: str, problem: BaseException) -> ToolResult:
        """A tool raised: log it, once, and put it into words for the model."""
        self.services.hub.tasks.home.end_forked(problem)
        if is_of(problem, Closed) and self.services.phase.is_leaving:
            raise CutOff
        mask = self.masker()
        # What a tool says plainly is its answer; it is no failure.
        is_answer = is_of(alone(problem), ToolError)
        (log.info if is_answer else log.error)(
            "tool.raised", tool=tool.name, agent=self.run.lane.agent, run_id=self.run.lane.run_id,
            call_id=call_id, exc_info=mask.error(problem),
        )  # fmt: skip
        return render_failure(problem, mask)


def failure_of(error: BaseException, at: AtWork, models: tuple[str, ...]) -> Failure:
    """What a model's exception means; what its class says of it is asked once."""
    at.services.hub.tasks.home.end_forked(error)
    mask, jitter, problem = at.masker(), at.services.hub.ports.ids.random, ""
    raised: BaseException | None = error
    if is_of(error, ProviderError):
        with suppress(Exception):  # A class of a user's own, which cannot say what it is.
            words = words_of(error)
            failure = Failure(
                kind=error.kind, error=mask(words), retryable=error.retryable,
                retry_after=error.retry_after, jitter=jitter(),
                refused=refused_by(error.kind, error.status, words),
            )  # fmt: skip
            problem = failure_problem(failure)
            # What a function in the model raised, which is users' code.
            raised = error.__cause__ if error.kind == "script" else None
    elif is_of(error, HubbubError):
        # Another model may be there.
        kind = "model" if is_of(error, MissingKey, MissingExtra, UnknownModel) else SETUP
        if kind == SETUP or not has_another(at.thread, models):
            at.services.returns.keep_error(at.run.lane.run_id, error)
        return Failure(kind=kind, error=mask(words_of(error)), retryable=False)
    if raised is not None:
        log.error("model.raised", run_id=at.run.lane.run_id, exc_info=mask.error(raised))
    if raised is not error and not problem:
        return failure
    text = f"the model object raised {class_name_of(error)}: {problem or words_of(error)}"
    return Failure(kind="bug", error=mask(text, 2000), retryable=False)
