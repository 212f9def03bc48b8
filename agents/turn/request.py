"""``build_request``: what the model is shown for the next step.

The transcript goes in as it is: its shape already guarantees that every call has its result.
System prompt and registry are made again at each step and never stored.

A transcript only grows at its end.  So, while the prompt's tools and variables have the same
values, the messages of one request begin those of the side's next one, unchanged: what a provider
has read it need not read again.  What changes at each step stands behind them: the registry, and
``CONTINUE``.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal

from msgspec.structs import replace

from hubbub.agents.built_in import FINAL_ANSWER
from hubbub.agents.definitions.variables import fill_prompt
from hubbub.agents.model import AssistantMessage, ModelMessage, ModelRequest, ToolSpec, UserMessage
from hubbub.agents.model_choice import ModelChoice
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.state.compactions import NO_COMPACTIONS
from hubbub.agents.state.registry import registry_note
from hubbub.agents.state.thread import Thread
from hubbub.hub.errors import InternalError

__all__ = ["CONTINUE", "build_request", "may_be_bound", "summary_request"]

CONTINUE = UserMessage(content="(continue)")
"""Closes a request whose last words are the model's own; never stored."""

INSTRUCTIONS: Final = (
    "Summarise the conversation above for yourself. Your summary will take the place of these "
    "messages, which you will not see again. Keep what was asked for, decisions, preferences and "
    "constraints; facts, names, numbers, identifiers, files and results that may be needed again; "
    "what is done, and what is still open. Leave out what no longer matters. Call no tool; answer "
    "with the summary alone."
)

_CACHE: Final[Mapping[bool | str, Literal["", "5m", "1h"]]] = {
    False: "", True: "5m", "5m": "5m", "1h": "1h",
}  # fmt: skip
"""For how long, by what a prompt says of its cache."""


def build_request(
    thread: Thread,
    side: ActiveSide,
    specs: tuple[ToolSpec, ...],
    *,
    messages: tuple[ModelMessage, ...] | None = None,
    statuses: Mapping[str, str] = {},
    value_of: Callable[[str], str | None] = lambda _: None,
    choice: ModelChoice | None = None,
    is_bound: bool = False,
) -> ModelRequest:
    """The request for the thread's next step; raises ``InternalError`` while calls are open.

    ``messages`` replace the transcript (hooks may have filtered it); ``statuses`` are those
    of the children, ``value_of`` gives the values of variables; ``choice`` is the one of the side's
    models that is asked, the first if there is none given; ``is_bound``: it can be bound to the
    schema of the side's output.  One that cannot gets a tool to answer by.
    """
    if thread.open is not None:
        raise InternalError("a model was asked while calls are open", [thread.step])
    if messages is None:
        messages = thread.transcript if thread.side == "side_a" else thread.transcript_b
    if not messages or (isinstance(messages[-1], AssistantMessage) and not messages[-1].calls):
        messages = (*messages, CONTINUE)
    prompt = side.prompt
    choice = choice or side.choices[0]
    system = prompt.prompt
    if prompt.variables:
        system = fill_prompt(system, prompt.variables, value_of)
    cache, run_id = _CACHE[prompt.cache], thread.origin.run_id
    compactions = thread.compactions
    tool_choice, form = prompt.tool_choice, side.output
    if form is not None and not (is_bound and may_be_bound(side)):
        specs = (*specs, form.tool)
        tool_choice, form = "any" if tool_choice != "none" else FINAL_ANSWER, None
    return ModelRequest(
        system=system,
        system_notes=registry_note(thread.family, statuses) if thread.family.children else (),
        messages=messages,
        tools=specs,
        tool_choice=tool_choice,
        parallel_tool_calls=prompt.parallel_tool_calls,
        options=choice.provider_options or {},
        attempt=thread.attempt - thread.models.attempts,
        summarised=compactions.of(thread.side).own if compactions is not NO_COMPACTIONS else 0,
        cache=cache,
        cache_key=f"{run_id}:{thread.side}" if cache and run_id else "",
        settings=choice.settings,
        output=None if form is None else form.spec,
    )


def may_be_bound(side: ActiveSide) -> bool:
    """Whether a model that can be bound to a schema may be: not one that has to call tools."""
    return side.prompt.tool_choice != "any"


def summary_request(
    request: ModelRequest, messages: tuple[ModelMessage, ...], instructions: str, attempt: int
) -> ModelRequest:
    """What the model is asked: the conversation as it was shown it, which its provider may have
    kept, and to summarise that.  ``request`` is the one of a step."""
    said = f"{INSTRUCTIONS}\n\n{instructions}" if instructions.strip() else INSTRUCTIONS
    choice = request.tool_choice if request.tool_choice == "auto" else "none"
    # A summary is words: of a model that is bound to a schema a part of the cache is given up.
    return replace(
        request, messages=(*messages, UserMessage(content=said)), system_notes=(), attempt=attempt,
        tool_choice=choice, purpose="summary", output=None,
    )  # fmt: skip
