"""``ChildActivated``: a tool gives the conversation to a frame, by raising.

make_frame ─► StackFrame ─► ChildActivated ─► activated_in, wherever it was raised
"""

from typing import Final, NoReturn

from hubbub.agents.definitions.arguments import BadArguments
from hubbub.agents.definitions.tools import ToolError
from hubbub.agents.frames.frame import AgentContext, SessionState, StackFrame
from hubbub.agents.model import UserMessage
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import FRAME, ActiveSide
from hubbub.agents.resolution.skill_agents import CALLERS_MODEL
from hubbub.agents.turn.takeover import model_name, read_takeover
from hubbub.hub.errors.copied import CopiedWhole
from hubbub.hub.tasks.raised import is_of, parts_of
from hubbub.hub.values import encode_value

__all__ = ["MAIN", "ChildActivated", "activated_in", "first_message", "give_away", "make_frame"]

MAIN: Final = "main"
"""The type of the frame that a conversation begins with."""


class ChildActivated(CopiedWhole):
    """Raised in a tool to give the conversation to ``child_frame``.

    No ``except Exception`` stops it.  It never leaves the runtime, which finds it in groups of
    exceptions, too; the tool's call then waits for the frame, and its result is the call's.
    """

    def __init__(self, child_frame: StackFrame) -> None:
        super().__init__(child_frame)
        self.child_frame = child_frame


def first_message(frame: StackFrame) -> str:
    """What a frame is begun with."""
    said = (each for each in frame.session.messages if isinstance(each, UserMessage))
    return next((each.content for each in said), "")


_MUST_PASS = (KeyboardInterrupt, SystemExit, GeneratorExit)


def activated_in(error: BaseException) -> StackFrame | None:
    """The frame that an exception, or one within a group, gives the conversation to.

    None where the group holds what must end the program.
    """
    if is_of(error, Exception):
        return None
    found = [each for each in parts_of(error) if is_of(each, ChildActivated, *_MUST_PASS)]
    if not found or any(is_of(each, *_MUST_PASS) for each in found):
        return None
    # Asked by way of what Python keeps: a class of a user's own may say anything.
    frames = (vars(BaseException)["__dict__"].__get__(each).get("child_frame") for each in found)
    return next((frame for frame in frames if issubclass(type(frame), StackFrame)), None)


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
