"""``build_request``: what the model is shown for the next step.

The transcript goes in as it is: its shape already guarantees that every call has its result.
The system prompt is read from the definition at each step and never stored (P-14).
"""

from hubbub.agents.definitions import ActiveSide
from hubbub.agents.model import AssistantMessage, ModelRequest, ToolSpec, UserMessage
from hubbub.agents.thread import Thread
from hubbub.hub.errors import InternalError

__all__ = ["CONTINUE", "build_request"]

CONTINUE = UserMessage(content="(continue)")
"""Closes a request whose last words are the model's own; never stored (S-04)."""


def build_request(thread: Thread, side: ActiveSide, specs: tuple[ToolSpec, ...]) -> ModelRequest:
    """The request for the thread's next step; raises ``InternalError`` while calls are open."""
    if thread.open is not None:
        raise InternalError("a model was asked while calls are open", [thread.step])
    messages = thread.transcript
    if not messages or (isinstance(messages[-1], AssistantMessage) and not messages[-1].calls):
        messages = (*messages, CONTINUE)
    prompt = side.prompt
    return ModelRequest(
        system=prompt.prompt,
        messages=messages,
        tools=specs,
        tool_choice=prompt.tool_choice,
        parallel_tool_calls=prompt.parallel_tool_calls,
        options=prompt.provider_options,
        attempt=thread.attempt,
    )
