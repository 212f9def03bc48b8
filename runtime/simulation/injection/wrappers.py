"""How faults come about: at the ports of a runtime, and nowhere inside it.

    Plan         counts what happens and says which faults are due (``plan``)
    wrap_model   a model whose calls go wrong when the plan says so
    wrap_tool    a tool, likewise
    listeners    subscribers that are slow, stuck, or raise
    Line         what brings the messages of users to the hub (``line``)

Where no fault is due, what is wrapped does exactly what the original does, with the same name,
schema and timing.
"""

import functools
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import anyio
from msgspec import structs

from hubbub.agents.definitions.tools import Tool
from hubbub.agents.model import CallDelta, Delta, Model, ModelReply, ModelRequest, OnDelta, ToolCall
from hubbub.hub.delivery.audience import Subscription
from hubbub.hub.events import Event
from hubbub.hub.hub import Hub
from hubbub.hub.tasks.lockstep_offload import in_loop
from hubbub.runtime.models.scripted import Fault as ScriptedFault
from hubbub.runtime.models.scripted import ScriptedModel
from hubbub.runtime.simulation.injection.line import Line, Send
from hubbub.runtime.simulation.injection.plan import JumpingClock, OnRequest, Plan
from hubbub.runtime.simulation.story.faults import (
    INJECTED,
    ListenerFault,
    ModelFault,
    ToolFault,
)

__all__ = [
    "UNKNOWN_TOOL", "JumpingClock", "Line", "OnRequest", "Plan", "Send", "listeners",
    "wrap_model", "wrap_tool",
]  # fmt: skip

UNKNOWN_TOOL: Final = "no_such_tool"
_AFTER: Final = ("late", "crash")
"""The faults that strike a tool when it has had its effect."""
_NEED_CALLS: Final = ("bad_arguments", "duplicate_id")
"""They wait for a reply with calls."""


# ── models ───────────────────────────────────────────────────────────────────────────────────


def wrap_model(model: Model, plan: Plan) -> Model:
    """``model``, whose calls meet the plan's faults."""
    return _FaultyModel(model, plan)


class _FaultyModel:
    """A model whose calls are looked at before they are passed on."""

    def __init__(self, model: Model, plan: Plan) -> None:
        self._model = model
        self._plan = plan

    @property
    def name(self) -> str:
        return self._model.name

    def __repr__(self) -> str:
        return repr(self._model)

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        agent, run_id = self._plan.caller()
        if self._plan.on_request is not None:
            self._plan.on_request(agent, run_id, request)
        model = _disturbed(self._model, agent, self._plan)
        return await model.call(request, on_delta)


def _disturbed(model: Model, agent: str, plan: Plan) -> Model:
    """``model`` for one call, with the one fault that strikes it."""
    due = plan.due_in_model(agent)
    for fault in due:
        if fault.kind not in _NEED_CALLS and plan.strike(fault, agent):
            if fault.kind == "unknown_tool":
                return _EditedCalls(model, fault, plan, agent)
            if fault.kind == "crash":
                return _LastAnswer(model, fault, plan)
            return _BrokenAnswer(model, fault, plan)
    return _EditedCalls(model, due[0], plan, agent) if due else model


class _LastAnswer:
    """A call that the process does not live to see answered."""

    def __init__(self, model: Model, fault: ModelFault, plan: Plan) -> None:
        self.name = model.name
        self._model = model
        self._fault = fault
        self._plan = plan

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        answer = await self._model.call(request, on_delta)
        await self._plan.kill_after(self._fault.seconds)
        return answer


class _BrokenAnswer:
    """A call in which the provider fails: a ``ScriptedModel`` can do that already."""

    def __init__(self, model: Model, fault: ModelFault, plan: Plan) -> None:
        self.name = model.name
        self._model = model
        self._fault = fault
        self._clock = plan.clock

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        fault, script = self._fault, list[ScriptedFault | ModelReply]()
        if fault.kind in ("cut", "empty", "slow"):
            answer = await self._model.call(request)
            script = [_scripted(fault, answer), answer]
        else:
            script = [_scripted(fault)]
        model = ScriptedModel(script, name=self.name, clock=self._clock, repeat=True)
        return await model.call(request, on_delta)


def _scripted(fault: ModelFault, answer: ModelReply | None = None) -> ScriptedFault:
    """The same fault as ``ScriptedModel`` knows it, in whatever attempt."""
    seconds = fault.seconds
    match fault.kind:
        case "rate_limit":
            return ScriptedFault(
                "rate_limit", None, status=429, retry_after=seconds or None, message=INJECTED
            )
        case "refused":
            return ScriptedFault("auth", None, seconds, status=401, message=INJECTED)
        case "error":
            return ScriptedFault("server", None, seconds, status=500, message=INJECTED)
        case "cut":
            half = (len(answer.text) + 1) // 2 if answer is not None else 0
            return ScriptedFault("cut", None, seconds, after=half, message=INJECTED)
        case "slow":
            return ScriptedFault("delay", None, seconds)
        case kind:
            return ScriptedFault(kind, None, seconds)


class _EditedCalls:
    """A call in which the model asks for what cannot be done; its words pass as they come."""

    def __init__(self, model: Model, fault: ModelFault, plan: Plan, agent: str) -> None:
        self.name = model.name
        self._model = model
        self._fault = fault
        self._plan = plan
        self._agent = agent

    async def call(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        def pass_words(delta: Delta) -> None:
            if on_delta is not None and not isinstance(delta, CallDelta):
                on_delta(delta)

        answer = await self._model.call(request, pass_words if on_delta is not None else None)
        answer = await self._edit(answer, request)
        if on_delta is not None:
            for index, call in enumerate(answer.calls):
                on_delta(CallDelta(index, call.name, call.arguments))
        return answer

    async def _edit(self, answer: ModelReply, request: ModelRequest) -> ModelReply:
        fault, plan = self._fault, self._plan
        edited = _edited(answer, fault, request)
        if edited is None or (fault.kind in _NEED_CALLS and not plan.strike(fault, self._agent)):
            return answer
        if fault.seconds:
            await plan.clock.sleep(fault.seconds)
        return edited


def _edited(answer: ModelReply, fault: ModelFault, request: ModelRequest) -> ModelReply | None:
    """The reply with the fault's calls, or ``None`` if it has none that could be so."""
    calls = answer.calls
    match fault.kind:
        case "unknown_tool":
            calls = calls or (ToolCall(name=UNKNOWN_TOOL),)
            calls = tuple(structs.replace(call, name=UNKNOWN_TOOL) for call in calls)
            return structs.replace(answer, calls=calls, stop_reason="tools")
        case "bad_arguments":
            return ScriptedFault("malformed").disturb(answer) if calls else None
    used = [call.id for m in request.messages for call in getattr(m, "calls", ())]
    if not calls or not (used or len(calls) > 1):
        return None
    again = used[-1] if used else "again"
    return structs.replace(answer, calls=tuple(structs.replace(call, id=again) for call in calls))


# ── tools ────────────────────────────────────────────────────────────────────────────────────


def wrap_tool(tool: Tool[..., Any], plan: Plan) -> Tool[..., Any]:
    """``tool``, whose calls meet the plan's faults."""
    return replace(tool, fn=_faulty(tool, plan))


def _faulty(tool: Tool[..., Any], plan: Plan) -> Callable[..., Any]:
    def struck() -> ToolFault | None:
        due = plan.due_in_tool(tool.name)
        return due[0] if due and plan.strike(due[0], tool.name) else None

    # A check for async, or a new tool made of it, sees the function itself.
    if tool.is_async:

        @functools.wraps(tool.fn)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            if (fault := struck()) is not None:
                return await _fail(fault, functools.partial(tool.fn, *args, **kwargs), tool, plan)
            return await tool.fn(*args, **kwargs)

        return call_async

    @functools.wraps(tool.fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if (fault := in_loop(struck)) is None:
            return tool.fn(*args, **kwargs)
        # What it does, it does here; what follows, in the loop.
        done = tool.fn(*args, **kwargs) if fault.kind in _AFTER else None
        return _fail(fault, lambda: done, tool, plan)

    return call


async def _fail(
    fault: ToolFault, fn: Callable[[], Any], tool: Tool[..., Any], plan: Plan
) -> object:
    if fault.kind in _AFTER:
        value = fn()
        if inspect.isawaitable(value):
            value = await value
        follows = plan.kill_after if fault.kind == "crash" else plan.wait_stubbornly
        await follows(fault.seconds)
        return value
    if fault.kind == "hang":
        if tool.timeout is not None:
            await anyio.sleep_forever()
        await plan.wait_over()
    elif fault.seconds:
        await plan.clock.sleep(fault.seconds)
    raise RuntimeError(INJECTED)


# ── listeners ────────────────────────────────────────────────────────────────────────────────


def listeners(hub: Hub, plan: Plan) -> tuple[Subscription, ...]:
    """Subscribe the plan's listeners to a hub that is open; they end with it."""
    return tuple(
        hub.subscribe(fault.pattern, _raising(fault, plan))
        if fault.kind == "raise"
        else hub.subscribe(fault.pattern, _slow(fault, plan))
        for fault in plan.listener_faults
    )


def _raising(fault: ListenerFault, plan: Plan) -> Callable[[Event], None]:
    def injected_raising_listener(event: Event) -> None:
        if not plan.is_over:
            plan.note("listener", fault.kind, event.type)
            raise RuntimeError(INJECTED)

    return injected_raising_listener


def _slow(fault: ListenerFault, plan: Plan) -> Callable[[Event], Awaitable[None]]:
    async def injected_slow_listener(event: Event) -> None:
        if not plan.is_over:
            plan.note("listener", fault.kind, event.type)
            await plan.wait_over(fault.seconds if fault.kind == "slow" else None)

    return injected_slow_listener
