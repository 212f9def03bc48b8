"""Running hooks: one after the other, each fed what the one before returned."""

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import structs

from hubbub.agents.definitions.hooks import HOOK_TIMEOUT, Hook, mismatch
from hubbub.agents.definitions.tools import ToolResult
from hubbub.agents.frames.activation import activated_in
from hubbub.agents.model import AssistantMessage, ModelReply, UserMessage
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.state.family import failure_of, succeeded
from hubbub.agents.state.open_calls import awaited
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.hook_events import HookEvent
from hubbub.hub.events import InLane, SessionMessage, SessionOpen, SessionResult
from hubbub.hub.logs import log
from hubbub.hub.masking import class_name_of
from hubbub.hub.tasks.raised import is_contained
from hubbub.hub.values import NULL, encode_value

if TYPE_CHECKING:
    from hubbub.runtime.activities.thread_state import ThreadState

__all__ = [
    "filtered_items", "filtered_reply", "filtered_result", "filtered_results", "run_hooks",
]  # fmt: skip


async def run_hooks(
    side: ActiveSide, point: str, state: "ThreadState", value: Any, run_id: str
) -> Any:
    """What the hooks of a point make of ``value``; only cancellation is raised."""
    hooks = side.hooks.get(point, ())
    if isinstance(value, HookEvent):  # Of the side that was at work, which may be another by now.
        hooks, value = value.hooks, value.value
    for hook in hooks:
        value = await _run(hook, state, value, run_id)
    return value


async def _run(hook: Hook, state: "ThreadState", value: Any, run_id: str) -> Any:
    problem = ""
    returned: Any = None
    try:
        with anyio.move_on_after(HOOK_TIMEOUT) as scope:
            returned = await _called(hook, state, value)
            if hook.point == "filter_messages" and isinstance(returned, Iterator):
                returned = tuple(returned)  # It can be gone through only once.
        if scope.cancelled_caught:
            problem, returned = f"it took longer than {HOOK_TIMEOUT:g} s", None
        elif returned is not None:
            problem = mismatch(hook.point, value, returned)
    except BaseException as error:
        # A hook gives no conversation away; what it raises for that leaves the runtime no more
        # than any other error.
        if activated_in(error) is None and not is_contained(error):
            raise
        mask = state.masker()
        problem = mask(f"it raised {class_name_of(error)}")
        log.error(
            "hook.failed", hook=hook.id, point=hook.point, run_id=run_id, exc_info=mask.error(error)
        )
    if problem:
        log.warning("hook.ignored", hook=hook.id, point=hook.point, run_id=run_id, why=problem)
        return value
    if returned is None:
        return value
    return tuple(returned) if hook.point == "filter_messages" else returned


async def _called(hook: Hook, state: "ThreadState", value: Any) -> Any:
    """What a hook returns, which goes on in no child that was forked off."""
    state.end_forked()
    try:
        returned = hook.fn(state, value)
        if inspect.isawaitable(returned):
            returned = await returned
    except BaseException as error:
        state.end_forked(error)
        raise
    state.end_forked()
    return returned


async def filtered_reply(
    side: ActiveSide, state: "ThreadState", reply: ModelReply, run_id: str
) -> ModelReply:
    """A model's reply, its words as the hooks leave them."""
    if "before_create_message" not in side.hooks:
        return reply
    given = AssistantMessage(text=reply.text, thinking=reply.thinking)
    made = await run_hooks(side, "before_create_message", state, given, run_id)
    return structs.replace(reply, text=made.text, thinking=made.thinking)


async def filtered_result(
    side: ActiveSide, state: "ThreadState", result: ToolResult, run_id: str
) -> ToolResult:
    """A tool's result as the hooks leave it."""
    point = "after_tool_call_failure" if result.is_error else "after_tool_call_success"
    result = await run_hooks(side, point, state, result, run_id)
    return await run_hooks(side, "before_store_tool_result", state, result, run_id)  # type: ignore[no-any-return]


async def filtered_results(
    side: ActiveSide, state: "ThreadState", thread: Thread, items: Sequence[InLane], run_id: str
) -> tuple[InLane, ...]:
    """Results of children, those that calls wait for as the hooks leave them."""
    made = []
    for item in items:
        if isinstance(item, SessionResult) and awaited(thread, item):
            well = succeeded(item)
            given = ToolResult(item.content if well else failure_of(item), is_error=not well)
            found = await filtered_result(side, state, given, run_id)
            if found != given:
                item = structs.replace(
                    item, content=found.content, reason=found.content if found.is_error else "",
                    outcome="failed" if found.is_error else "completed",
                )  # fmt: skip
        made.append(item)
    return tuple(made)


async def filtered_items(
    side: ActiveSide, state: "ThreadState", items: Sequence[InLane], run_id: str
) -> tuple[InLane, ...]:
    """Messages of an inbox, their words as the hooks leave them."""
    made = []
    for item in items:
        if isinstance(item, SessionMessage):
            given = UserMessage(content=item.content, role=item.role)
            heard = await run_hooks(side, "before_create_message", state, given, run_id)
            item = structs.replace(item, content=heard.content, role=heard.role)
        elif isinstance(item, SessionOpen) and item.input_json is not NULL:
            said = item.input
            text = said if isinstance(said, str) else bytes(item.input_json).decode()
            given = UserMessage(content=text)
            heard = await run_hooks(side, "before_create_message", state, given, run_id)
            if heard.content != text:
                item = structs.replace(item, input_json=encode_value("input", heard.content))
        made.append(item)
    return tuple(made)
