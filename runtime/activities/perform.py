"""Performing activities: the one place where a model is called, a tool or a hook is run.

What happens here is not recorded by itself; it becomes a signal, and what that means is decided
in ``hubbub.agents.turn.interpret``.
"""

import inspect
from functools import partial
from types import CoroutineType
from typing import Any, assert_never

import anyio
from msgspec import structs

from hubbub.agents.built_in import USE_SKILL
from hubbub.agents.definitions.arguments import BadArguments
from hubbub.agents.definitions.tools import (
    Tool,
    ToolResult,
    error_text,
    render_failure,
)
from hubbub.agents.frames.activation import activated_in, first_message
from hubbub.agents.model import Model, ModelMessage, ModelRequest, garbled_words, reply_problem
from hubbub.agents.model_choice import ModelChoice
from hubbub.agents.retry import Failure
from hubbub.agents.state.area import find_files
from hubbub.agents.turn.decide import (
    Activity,
    CallHooks,
    CallModel,
    Receive,
    RunTool,
    StartChild,
    Summarize,
)
from hubbub.agents.turn.request import build_request
from hubbub.agents.turn.signals import (
    HooksCalled,
    ModelFailed,
    ModelReplied,
    Signal,
    Taken,
    ToolFinished,
    unsummarised,
)
from hubbub.agents.turn.stop import paths_of
from hubbub.agents.turn.takeover import request_of
from hubbub.hub.errors import (
    MissingVariable,
)
from hubbub.hub.logs import log
from hubbub.hub.tasks.cancelling import absorb_cancellation, is_on_asyncio
from hubbub.hub.tasks.raised import is_contained, is_of
from hubbub.runtime.activities.approvals import parsed, with_held_calls
from hubbub.runtime.activities.at_work import AtWork, failure_of
from hubbub.runtime.activities.call_tool import invoke
from hubbub.runtime.activities.child_lookup import (
    look_up_call,
    look_up_calls,
    look_up_frame,
    look_up_start,
)
from hubbub.runtime.activities.deltas import Deltas
from hubbub.runtime.activities.files import kept_parts, with_contents
from hubbub.runtime.activities.hooks import (
    filtered_items,
    filtered_reply,
    filtered_result,
    filtered_results,
    run_hooks,
)
from hubbub.runtime.activities.off_loop import OffLoop
from hubbub.runtime.activities.summaries import summarize
from hubbub.runtime.activities.thread_state import ThreadState
from hubbub.runtime.activities.timeouts import TIMED_OUT, chosen, names_of

__all__ = ["call_model", "perform"]


async def perform(activity: Activity, at_work: AtWork) -> Signal:
    """Do what ``activity`` says and return what came of it.

    Raises its cancellation, and ``CutOff``, of which nothing is to be recorded.
    """
    run, services, side = at_work.run, at_work.services, at_work.side
    try:
        match activity:
            case RunTool():
                return await _run_call(activity, at_work)
            case CallModel():
                return await call_model(activity, at_work)
            case Summarize():
                return await summarize(activity, at_work)
            case StartChild():
                return look_up_start(activity, at_work.thread, side, services, run.lane)
            case Receive(kind="result"):
                waiting = run.waiting_items("result")
                state = at_work.state()
                items = await filtered_results(side, state, run.thread, waiting, run.lane.run_id)
                return Taken(items, services.budgets.of(run.lane.root_run_id))
            case Receive(kind=kind):
                items = await filtered_items(
                    run.receiving_side(side), at_work.state(), run.waiting_items(kind),
                    run.lane.run_id,
                )  # fmt: skip
                return Taken(items, services.budgets.of(run.lane.root_run_id))
            case CallHooks():
                while run.hook_events:
                    point, value = run.hook_events[0]
                    await run_hooks(side, point, at_work.state(), value, run.lane.run_id)
                    run.hook_events.popleft()
                return HooksCalled()
            case _:
                assert_never(activity)
    except BaseException as error:
        if is_of(error, Exception) or not is_contained(error):
            raise
        shown = at_work.masker().error(error)
        log.error("activity.ended_from_within", run_id=run.lane.run_id, exc_info=shown)
        if is_on_asyncio():
            await absorb_cancellation()
        return _ended_from_within(activity, error_text(error, at_work.masker()))


def _ended_from_within(activity: Activity, text: str) -> Signal:
    match activity:
        case RunTool():
            return ToolFinished(activity.step, activity.index, text, True)
        case CallModel():
            return ModelFailed(Failure(kind="bug", error=text, retryable=False), activity.turn)
        case Summarize():
            return unsummarised(activity, text)
        case _:
            return HooksCalled()


# ── calls ────────────────────────────────────────────────────────────────────────────────────


async def _run_call(activity: RunTool, at: AtWork) -> Signal:
    """Run a tool, or look up what a call of a child needs."""
    side = at.side
    tool = side.tool_of(activity.name, activity.arguments)
    if tool is None:
        if activity.name in side.offered:
            return look_up_call(activity, at.thread, side, at.services, at.run.lane)
        text = f"the tool {activity.name!r} is gone"
        return ToolFinished(activity.step, activity.index, text, True, ran=False)
    call_id, state = f"{activity.step}.{activity.index}", None
    if tool.state_parameter is not None or side.hooks:
        state = at.state(call_id)
    try:
        result, ran = await _run_tool(tool, activity, at, call_id, state)
    except BaseException as error:
        # A tool may give the conversation away; what it raises passes every ``except Exception``.
        if (frame := activated_in(error)) is None:
            raise
        request = request_of(frame.agent_name, first_message(frame))
        return look_up_frame(activity, request, side, at.services, at.run.lane)
    if result.parts:
        result = await kept_parts(at.services.hub, at.run.lane, result)
    if result.is_error:  # Clients quote what they were called with.
        result = structs.replace(result, content=at.masker()(result.content))
    if state is not None and side.hooks:
        result = await filtered_result(side, state, result, at.run.lane.run_id)
    return ToolFinished(
        activity.step, activity.index, result.content, result.is_error, result.attachments, ran,
        parts=result.parts,  # type: ignore[arg-type]
    )  # fmt: skip


async def _run_tool(
    tool: Tool[..., Any], activity: RunTool, at: AtWork, call_id: str, state: ThreadState | None
) -> tuple[ToolResult, bool]:
    """A tool's result, and whether it was called at all; ``state`` is for one that asks for it."""
    has_needs = bool(tool.variables or at.side.bindings)
    if has_needs and (problem := _not_ready(tool, activity, at)):
        return ToolResult(problem, is_error=True), False
    try:
        if activity.name == USE_SKILL:
            kwargs = parsed(tool, activity.name, activity.arguments)
        else:
            kwargs = tool.parse(activity.arguments)
    except BadArguments as error:
        return render_failure(error), False
    offload = at.services.hub.ports.offload
    failed = partial(at.tool_failed, tool, call_id)
    given = state if state is None or tool.is_async else OffLoop(state, at.services.hub)
    if not at.side.hooks:
        return await invoke(tool, kwargs, given, offload, failed), True
    home = at.services.hub.tasks.home
    # What hooks do afterwards is not the tool's time, and a timeout is a failure to them, too.
    with anyio.move_on_after(tool.timeout) as at.limit:
        try:
            result = await invoke(tool, kwargs, given, offload, failed)
        except BaseException as error:
            home.end_forked(error)
            raise
        home.end_forked()  # In a child the scope cannot be left.
        return result, True
    assert tool.timeout is not None
    return ToolResult(TIMED_OUT.format(tool.timeout), is_error=True), True


def _not_ready(tool: Tool[..., Any], activity: RunTool, at: AtWork) -> str:
    """Why a tool is not called: files or variables that are not there."""
    bound = at.side.bindings.get(tool.name)
    if bound is not None:
        paths = paths_of(bound[1], activity.arguments)
        if absent := find_files(at.thread.area, paths)[1]:
            names = ", ".join(map(repr, absent))
            return f"there is no file {names}; write it first, or name one that is there"
    return at.environment().lacking(tool) if tool.variables else ""


# ── models ───────────────────────────────────────────────────────────────────────────────────


async def call_model(activity: CallModel, at: AtWork) -> Signal:
    """``perform``, of the one activity that most runs wait in: without a further frame."""
    services, side, lane = at.services, at.side, at.run.lane
    run_id = lane.run_id
    if activity.delay:
        await services.hub.ports.clock.sleep(activity.delay)
    deltas = Deltas(services.hub, at.work, activity, at.thread.turn, side)
    models: tuple[str, ...] = ()
    try:
        if side.servers:
            await services.servers.settled(side.servers)
            side = at.side = at.run.listed_side() or side
        if side.is_plain:
            spec = side.choices[0].model
            model = services.catalog.model(spec)
            request = build_request(at.thread, side, services.catalog.specs_of(side))
        else:
            choice, choices = chosen(at.run, side, services)
            if len(choices) > 1:
                models = names_of(choices)
            spec = choice.model
            model = services.catalog.model(spec)
            request = await _request(at, choice)
        if at.thread.has_parts:
            request = await with_contents(services.hub, lane, request)
        answer = model.call(request, deltas)
        if answer.__class__ is not CoroutineType and not inspect.isawaitable(answer):
            return _no_reply(model, "its call is to be an async function", activity, run_id, models)
        reply = await answer
        if services.hub.tasks.home.is_forked:
            services.hub.tasks.home.end_forked()
        if not (problem := reply_problem(reply)):
            if side.hooks:
                reply = await filtered_reply(side, at.state(), reply, run_id)
            begun = () if side.is_plain else look_up_calls(reply, at.thread, side, services, lane)
            apart = getattr(model, "counts_cached_apart", False) is True
            prices, cost = services.prices, None
            if prices.is_known:
                cost = prices.nanos(spec, reply.usage, cached_apart=apart)
            replied = ModelReplied(
                reply, activity.turn, begun, models=models, cached_apart=apart, cost_nanos=cost
            )
            return await with_held_calls(replied, at) if side.may_ask else replied
        # What cannot be kept it has not said.
        if not (garbled := garbled_words(reply)):
            return _no_reply(model, problem, activity, run_id, models)
        jitter = services.hub.ports.ids.random()
        failure = Failure(kind="garbled", error=garbled, retryable=True, jitter=jitter)
    except BaseException as error:
        if not is_contained(error):
            raise
        failure = failure_of(error, at, models)
    finally:
        if deltas.answer is not None:
            deltas.answer.ended_at = lane.seq
    log.warning(
        "model.failed", run_id=run_id, step=activity.step, attempt=activity.attempt,
        kind=failure.kind, error=failure.error,
    )  # fmt: skip
    return ModelFailed(failure, activity.turn, models)


def _no_reply(
    model: Model, problem: str, activity: CallModel, run_id: str, models: tuple[str, ...]
) -> Signal:
    """A model of a user's own has returned something else."""
    text = f"the model {model.name!r} returned no reply: {problem}"
    log.warning(
        "model.failed", run_id=run_id, step=activity.step, attempt=activity.attempt, kind="bug",
        error=text,
    )  # fmt: skip
    return ModelFailed(Failure(kind="bug", error=text, retryable=False), activity.turn, models)


async def _request(at: AtWork, choice: ModelChoice) -> ModelRequest:
    """What the model is shown for this step."""
    side, thread, services = at.side, at.thread, at.services
    messages: tuple[ModelMessage, ...] | None = None
    if "filter_messages" in side.hooks:
        messages = await run_hooks(
            side, "filter_messages", at.state(), thread.view, at.run.lane.run_id
        )
    env = at.environment()
    if side.prompt.variables:
        required = [each.name for each in side.prompt.variables if each.required]
        if unset := [name for name in required if env.find(name) is None]:
            raise MissingVariable(side.prompt.name, unset)
    specs = services.catalog.specs_with_children(side, env.is_enabled)
    return build_request(
        thread, side, specs, messages=messages, statuses=at.others.statuses_of(at.run.lane.run_id),
        value_of=env.find, choice=choice, is_bound=services.catalog.is_bound(choice, side, specs),
    )  # fmt: skip
