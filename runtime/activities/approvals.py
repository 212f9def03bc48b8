"""Which calls of a model's reply wait for a person, or for somebody elsewhere, before they run.

arguments do not fit       an error result; nobody is asked
the tool has no function   its result comes from outside
``approval=True``          a person is asked
a predicate                a person is asked if it says so, or raises
"""

import inspect
from typing import Any, Protocol

from msgspec import structs

from hubbub.agents.built_in import USE_SKILL
from hubbub.agents.definitions.arguments import BadArguments
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.frames.activation import activated_in
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.turn.signals import Held, ModelReplied
from hubbub.agents.turn.takeover import message_of_skill
from hubbub.hub.logs import log
from hubbub.hub.masking import Masker
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.tasks.raised import is_contained
from hubbub.runtime.kernel.services import Services

__all__ = ["parsed", "with_held_calls"]


class Caller(Protocol):
    """The run that has made the calls."""

    @property
    def lane(self) -> OwnLane: ...


class CallsAtWork(Protocol):
    """Its activity that has got them."""

    @property
    def services(self) -> Services: ...

    @property
    def side(self) -> ActiveSide: ...

    @property
    def run(self) -> Caller: ...

    def masker(self) -> Masker:
        """What is said of a failure goes through it."""
        ...


async def with_held_calls(replied: ModelReplied, at: CallsAtWork) -> ModelReplied:
    """The signal, with those of the reply's calls that do not simply run."""
    held = []
    for index, call in enumerate(replied.reply.calls):
        tool = at.side.tool_of(call.name, call.arguments)
        if tool is not None and tool.asks:
            held += await _held(index, tool, call.name, call.arguments, at)
    return structs.replace(replied, held=tuple(held))


async def _held(
    index: int, tool: Tool[..., Any], name: str, arguments: str, at: CallsAtWork
) -> list[Held]:
    try:
        given = parsed(tool, name, arguments)
    except BadArguments as problem:
        return [Held(index, "approval", at.masker()(problem.message))]
    if tool.is_external:
        return [Held(index, "external")]
    return [Held(index, "approval")] if await _is_needed(tool, given, at) else []


def parsed(tool: Tool[..., Any], name: str, arguments: str) -> dict[str, Any]:
    """The arguments of a call, as its tool takes them; raises ``BadArguments``."""
    if name == USE_SKILL:  # What carries the skill out takes the message alone.
        arguments = message_of_skill(arguments)
    return tool.parse(arguments)


async def _is_needed(tool: Tool[..., Any], given: dict[str, Any], at: CallsAtWork) -> bool:
    approval = tool.approval
    if approval is None or approval.predicate is None:
        return approval is not None
    home = at.services.hub.tasks.home
    try:
        answer = approval.predicate(**{**approval.defaults, **given})
        needed = bool(await answer if inspect.isawaitable(answer) else answer)
        home.end_forked()
        return needed
    except BaseException as error:
        home.end_forked(error)
        # Nothing runs unapproved because the function that was to say so could not.
        if activated_in(error) is None and not is_contained(error):
            raise
        log.error(
            "approval.raised", tool=tool.name, agent=at.run.lane.agent, run_id=at.run.lane.run_id,
            exc_info=at.masker().error(error),
        )  # fmt: skip
        return True
