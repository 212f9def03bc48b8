"""Performing activities: the one place where a model is called and a tool is run.

What happens here is not recorded by itself; it becomes a signal, and what that means is decided
in ``hubbub.agents.interpret``.
"""

from typing import TYPE_CHECKING, Any

from hubbub.agents.decide import Activity, CallModel, RunTool
from hubbub.agents.definitions import ActiveSide
from hubbub.agents.interpret import ModelFailed, ModelReplied, Signal, ToolFinished
from hubbub.agents.model import Delta, OnDelta, TextDelta, ThinkingDelta
from hubbub.agents.request import build_request
from hubbub.agents.retry import Failure
from hubbub.agents.thread import Thread
from hubbub.hub.errors import HubbubError, ProviderError
from hubbub.hub.events import AgentTextDelta, AgentThinkingDelta
from hubbub.hub.logs import log
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.run_hub import RunHub, RunScope
from hubbub.hub.task_host import is_stray_cancellation
from hubbub.runtime.call_tool import call_tool

if TYPE_CHECKING:
    from hubbub.runtime.runtime import Runtime

__all__ = ["MODEL_TIMEOUT", "perform", "timed_out", "timeout_of"]

MODEL_TIMEOUT = 600.0
"""Seconds that one model call may take (S-10)."""


class ToolState:
    """What a tool sees of its run (``RunState``)."""

    __slots__ = ("_runtime", "agent", "call_id", "hub", "parent_run_id", "root_run_id", "run_id")

    def __init__(self, runtime: "Runtime", lane: OwnLane, hub: RunHub, call_id: str) -> None:
        self._runtime = runtime
        self.run_id = lane.run_id
        self.root_run_id = lane.root_run_id
        self.parent_run_id = lane.parent_run_id
        self.agent = lane.agent
        self.hub = hub
        self.call_id = call_id

    def spawn(self, agent: Any, input: Any = None, *, name: str | None = None) -> Any:
        """Start a child of this run (R-13)."""
        return self._runtime.spawn(self.run_id, agent, input, name=name)


async def perform(
    activity: Activity, thread: Thread, side: ActiveSide, runtime: "Runtime", work: RunScope
) -> Signal:
    """Do what ``activity`` says and return what came of it; only cancellation is raised.

    ``work`` is the scope the activity acts in; once that is no longer live, whatever the
    activity still emits is dropped (S-10).
    """
    try:
        if isinstance(activity, RunTool):
            return await _run_tool(activity, thread, side, runtime, work)
        return await _call_model(activity, thread, side, runtime, work)
    except BaseException as error:
        if not is_stray_cancellation(error):
            raise
        log.warning("activity.cancelled_from_within", run_id=work.lane.run_id, exc_info=error)
        return _cancelled_from_within(activity)


def _cancelled_from_within(activity: Activity) -> Signal:
    text = "it awaited something that was cancelled elsewhere"
    if isinstance(activity, RunTool):
        return ToolFinished(activity.step, activity.index, f"CancelledError: {text}", True)
    failure = Failure(kind="bug", error=f"the model was cancelled: {text}", retryable=False)
    return ModelFailed(failure, activity.turn)


async def _run_tool(
    activity: RunTool, thread: Thread, side: ActiveSide, runtime: "Runtime", work: RunScope
) -> Signal:
    tool = side.tools.get(activity.name)
    if tool is None:
        text = f"the tool {activity.name!r} is gone"
        return ToolFinished(activity.step, activity.index, text, True)
    call_id = f"{activity.step}.{activity.index}"
    hub = RunHub(runtime.hub, work, call_id=call_id, turn=thread.turn)
    state = ToolState(runtime, work.lane, hub, call_id)
    result = await call_tool(tool, activity.arguments, state, runtime.ports.offload)
    return ToolFinished(
        activity.step, activity.index, result.content, result.is_error, result.attachments
    )


async def _call_model(
    activity: CallModel, thread: Thread, side: ActiveSide, runtime: "Runtime", work: RunScope
) -> Signal:
    if activity.delay:
        await runtime.ports.clock.sleep(activity.delay)
    try:
        model = runtime.resolved.model(side.prompt.model)
        request = build_request(thread, side, runtime.resolved.specs_of(side))
        on_delta = _deltas(runtime, work, activity, thread, side)
        return ModelReplied(await model.call(request, on_delta), activity.turn)
    except ProviderError as error:
        failure = Failure(
            kind=error.kind,
            error=str(error),
            retryable=error.retryable,
            retry_after=error.retry_after,
            jitter=runtime.ports.ids.random(),
        )
    except HubbubError as error:
        runtime.remember_error(work.lane.run_id, error)
        failure = Failure(kind="setup", error=str(error), retryable=False)
    except Exception as error:
        log.error("model.raised", run_id=work.lane.run_id, exc_info=error)
        text = f"the model object raised {type(error).__name__}: {error}"
        failure = Failure(kind="bug", error=text[:2000], retryable=False)
    log.warning(
        "model.failed", run_id=work.lane.run_id, step=activity.step, attempt=activity.attempt,
        kind=failure.kind, error=failure.error,
    )  # fmt: skip
    return ModelFailed(failure, activity.turn)


def _deltas(
    runtime: "Runtime", work: RunScope, activity: CallModel, thread: Thread, side: ActiveSide
) -> OnDelta | None:
    """Turn a model's deltas into events, if anybody listens."""
    hub, lane = runtime.hub, work.lane
    run_id, root = lane.run_id, lane.root_run_id
    if not (
        hub.has(AgentTextDelta.type, run_id=run_id, root_run_id=root)
        or hub.has(AgentThinkingDelta.type, run_id=run_id, root_run_id=root)
    ):
        return None

    def on_delta(delta: Delta) -> None:
        kind: type[AgentTextDelta] | type[AgentThinkingDelta]
        if isinstance(delta, TextDelta):
            kind = AgentTextDelta
        elif isinstance(delta, ThinkingDelta):
            kind = AgentThinkingDelta
        else:
            return
        if hub._closed or not work.is_live:
            return
        hub._emit_ephemeral(
            kind(
                at=runtime.ports.clock.now(), run_id=run_id, root_run_id=root,
                parent_run_id=lane.parent_run_id, agent=lane.agent, step=activity.step,
                attempt=activity.attempt, after_seq=lane.seq, text=delta.text, turn=thread.turn,
                side="side_a", label=side.config.label,
            )
        )  # fmt: skip

    return on_delta


def timeout_of(activity: Activity, side: ActiveSide) -> float | None:
    """Seconds that an activity may take."""
    if isinstance(activity, CallModel):
        return MODEL_TIMEOUT + activity.delay
    tool = side.tools.get(activity.name)
    return tool.timeout if tool is not None else None


def timed_out(activity: Activity, seconds: float) -> Signal:
    """What it means that an activity took longer."""
    if isinstance(activity, CallModel):
        text = f"the model did not answer within {seconds - activity.delay:g} s"
        failure = Failure(kind="timeout", error=text, retryable=True)
        return ModelFailed(failure, activity.turn)
    text = f"timed out: the tool did not finish within {seconds:g} s"
    return ToolFinished(activity.step, activity.index, text, True)
