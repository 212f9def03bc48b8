"""The core's endings as IA's ``TurnResult``.

    Thread, at rest ─► TurnResult: what a turn has come to

What a turn is, the core says; here it only gets IA's names.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from hubbub.agents.frames.frame import SessionState, StackFrame, TurnAction, TurnResult
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.state.prompts import OpenPrompt, open_prompts_of
from hubbub.agents.state.thread import OpenCall, Thread
from hubbub.agents.turn.takeover import result_of
from hubbub.hub import events as e
from hubbub.hub.values import decode_value

__all__ = ["turn_result", "with_limit"]


def with_limit(definitions: Definitions, thread: Thread, frame: StackFrame) -> Definitions:
    """The definitions, where the side at work may make no more model calls than its frame."""
    side = definitions.find_side(thread.agent, thread.acts_as)
    if side is None or side.max_steps <= frame.max_iterations:
        return definitions
    return _Limited(definitions, structs.replace(side, max_steps=frame.max_iterations))


class _Limited(Definitions):
    """Other definitions, except for one side; they have been checked."""

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
    if thread.asks_user and thread.in_session:
        asked = map(_question, open_prompts_of(thread))
        return TurnResult(TurnAction.INTERRUPT, "\n".join(asked))
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


def _question(prompt: OpenPrompt) -> str:
    """What the user is asked, with what there is to choose from."""
    asked = prompt.question
    if prompt.tool:
        asked += f" {bytes(prompt.arguments_json).decode()}"
    return "\n".join([asked, *(f"- {each}" for each in prompt.options)])
