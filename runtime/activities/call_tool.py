"""One tool call, from the text a model wrote to the text it reads."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from hubbub.agents.definitions.arguments import BadArguments
from hubbub.agents.definitions.run_state import RunState
from hubbub.agents.definitions.tools import Tool, ToolResult, render_failure, render_result
from hubbub.agents.frames.activation import activated_in
from hubbub.hub.home_loop import ending_forks
from hubbub.hub.ports import Offload
from hubbub.hub.tasks.raised import is_contained

__all__ = ["call_tool", "invoke"]


async def call_tool(
    tool: Tool[..., Any], arguments: str, state: RunState, offload: Offload
) -> ToolResult:
    """Call ``tool`` and return its one result, whose content is a str.

    An async function is awaited here, a sync one run through ``offload`` and, should it return
    an awaitable, that awaited here.  ``state`` is passed to a tool that declares a ``RunState``.
    Bad arguments and whatever the tool raises become error results, except for ``ChildActivated``,
    the cancellation of the current task and what ends the process.  No timeout and no retry: both
    are the caller's.
    """
    try:
        kwargs = tool.parse(arguments)
    except BadArguments as problem:
        return render_failure(problem)
    return await invoke(tool, kwargs, state, offload)


async def invoke(
    tool: Tool[..., Any],
    kwargs: dict[str, Any],
    state: RunState | None,
    offload: Offload,
    failed: Callable[[BaseException], ToolResult] = render_failure,
) -> ToolResult:
    """As ``call_tool``, with arguments that have been read; ``failed`` gets what was raised.

    ``state`` may be left out for a tool that declares none.
    """
    try:
        if tool.state_parameter is not None:
            kwargs[tool.state_parameter] = state
        if tool.is_async:
            value = await tool.fn(**kwargs)
        else:
            value = await offload.run(ending_forks(functools.partial(tool.fn, **kwargs)))
            if inspect.isawaitable(value):
                value = await value
    except BaseException as problem:
        if activated_in(problem) is not None or not is_contained(problem):
            raise
        return failed(problem)
    return render_result(value)
