"""Frames out of the core's decisions, and the core's endings as IA's ``TurnResult``.

    SessionPush, SessionOpen ─► StackFrame     a call has begun a frame
    Thread, at rest          ─► TurnResult     what its turn has come to

What a turn is, the core says; here it only gets IA's names.
"""

from collections.abc import Sequence
from typing import Any, Final, NoReturn

from msgspec import structs

from hubbub.agents.definitions.arguments import BadArguments
from hubbub.agents.definitions.built_in import INTERRUPT
from hubbub.agents.definitions.tools import ToolError
from hubbub.agents.model import parse_arguments
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import FRAME, ActiveSide
from hubbub.agents.resolution.skill_agents import CALLERS_MODEL
from hubbub.agents.standalone.stack import (
    AgentContext,
    ChildActivated,
    SessionState,
    StackFrame,
    TurnAction,
    TurnResult,
)
from hubbub.agents.state.thread import OpenCall, Thread
from hubbub.agents.turn.takeover import model_name, read_takeover, result_of
from hubbub.hub import events as e
from hubbub.hub.values import decode_value, encode_value

__all__ = ["MAIN", "give_away", "make_frame", "turn_result", "with_limit"]

MAIN: Final = "main"
"""The type of the frame that a conversation begins with."""


def make_frame(
    side: ActiveSide, frame_id: str, context: AgentContext, caller: StackFrame | None = None
) -> StackFrame:
    """A frame of a side, its session still to be begun.

    ``caller`` began it; its model is that of a skill that has none.
    """
    model: str | None = model_name(side)
    if model == CALLERS_MODEL:
        model = caller.model if caller is not None else None
    return StackFrame(
        frame_id=frame_id,
        agent_name=side.agent,
        agent_type=_type_of(side),
        session=SessionState(),
        system_prompt=side.prompt.prompt,
        context=context,
        model=model,
        max_iterations=side.max_steps,
        effective_tools=sorted(side.offered),
        is_skill_agent=side.is_skill,
        agent_session_id=frame_id,
    )


def _type_of(side: ActiveSide) -> str:
    if not side.is_frame:
        return MAIN
    return "skill" if side.is_skill else "agent"


def give_away(
    definitions: Definitions, side: ActiveSide, tool: str, name: str, message: str, frame_id: str
) -> NoReturn:
    """Have a tool of ``side`` call ``use_agent`` or ``use_skill`` in the place of its model.

    Raises ``ChildActivated``; ``ToolError``, in the words that the model would read, where the
    side may call nobody of that name.
    """
    arguments = bytes(encode_value(tool, {"name": name, "message": message})).decode()
    try:
        request = read_takeover(side, side.agent, tool, arguments)
    except BadArguments as error:
        raise ToolError(error.message) from None
    target = definitions.find_side(request.agent, FRAME)
    if target is None:
        raise ToolError(f"{tool}: {name!r} is carried out by a tool of its own; call that")
    frame = make_frame(target, frame_id, AgentContext(agent_name=side.agent))
    frame.session.add_user_message(request.message)
    raise ChildActivated(frame)


def with_limit(definitions: Definitions, thread: Thread, frame: StackFrame) -> Definitions:
    """The definitions, where the side at work may make no more model calls than its frame."""
    side = definitions.find_side(thread.agent, thread.acts_as)
    if side is None or side.max_steps <= frame.max_iterations:
        return definitions
    return _Limited(definitions, structs.replace(side, max_steps=frame.max_iterations))


class _Limited(Definitions):
    """Other definitions, but for one side; they have been checked."""

    __slots__ = ()

    def __init__(self, given: Definitions, side: ActiveSide) -> None:
        for name in Definitions.__slots__:
            setattr(self, name, getattr(given, name))
        self._sides = {**given.sides, (side.agent, side.acts_as): side}
        self.sides = self._sides


def turn_result(thread: Thread, session: SessionState, said: Sequence[str]) -> TurnResult:
    """What a turn has come to, of a thread for which nothing is due.

    ``said`` is what the user was not told yet: of a turn that is over only the last words count,
    as in IA; before a child is activated nothing is lost.
    """
    call = thread.frame
    if call is not None and thread.in_session:
        child = session.children[call.child]
        return TurnResult(TurnAction.CHILD_ACTIVATED, "\n\n".join(said), child)
    if thread.pause is not None and thread.in_session:
        return TurnResult(TurnAction.INTERRUPT, _question(thread.pause))
    last = thread.outcome
    if last is None or (last.outcome == "completed" and thread.phase != "ended"):
        return TurnResult(TurnAction.SEND_TEXT, said[-1] if said else "")
    content = decode_value(last.output_json)
    item = e.SessionResult(
        child_run_id=thread.origin.run_id, child_agent=thread.agent, success=last.success,
        outcome=last.outcome, reason=last.reason,
        content=content if isinstance(content, str) else "", final=True,
    )  # fmt: skip
    text, _ = result_of(_TAKEOVER, item)
    return TurnResult(_ENDINGS.get(last.outcome, TurnAction.ERROR), text)


_TAKEOVER: Final = OpenCall(0, "", "", takeover=True)
_ENDINGS: Final = {
    "completed": TurnAction.COMPLETE,
    "limit": TurnAction.MAX_ITERATIONS,
}


def _question(call: OpenCall) -> str:
    """What the user is asked, with what there is to choose from."""
    assert call.name == INTERRUPT
    given: dict[str, Any] = parse_arguments(call.arguments)
    return "\n".join([given["prompt"], *(f"- {each}" for each in given.get("options") or ())])
