"""What a run needs of its definition and no longer finds there.

    gone      what is missing                               for
    ────────  ────────────────────────────────────────────  ────────────────────────────────────
    agent     no agent of that name                         every run of it that has begun
    prompt    the side that is at work, or is spoken to     a run at work, or woken
    tool      a tool that the run had called when it was    a run with that call open
              last at work

Such a run stays as it is and continues when the definition is back.  One that never began fails
instead: there is nothing to lose.  What is merely different holds from the next step.
"""

from msgspec import Struct

from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import FRAME
from hubbub.agents.state.thread import Thread

__all__ = ["ResumeProblem", "find_missing"]


class ResumeProblem(Struct, frozen=True):
    """Why a run cannot be resumed: a few words for programs, and a sentence with the remedy."""

    reason: str
    remedy: str


_BACK = "open the runtime with it again and the run goes on, or terminate the run"


def find_missing(thread: Thread, agent: str, definitions: Definitions) -> ResumeProblem | None:
    """What a run of ``agent`` needs to continue and does not find."""
    definition = definitions.find_agent(agent)
    if definition is None:
        return ResumeProblem("agent gone", f"there is no agent {agent!r} any more; {_BACK}")
    if definition.is_code or thread.phase != "live":
        return None
    for which in _sides_needed(thread):
        if definitions.find_side(agent, which) is None:
            problem = f"agent {agent!r} has no {which} any more"
            return ResumeProblem("prompt gone", f"{problem}; {_BACK}")
    side = definitions.find_side(agent, thread.acts_as)
    for call in thread.open.calls if thread.open is not None and side is not None else ():
        known = side is not None and (
            call.name in side.tools
            or call.name in side.offered
            or side.server_of(call.name) is not None  # Which is told to the model.
        )
        is_due = call.status == "started" or call.is_approved or call.asks == "approval"
        if is_due and call.status != "done" and not known:
            problem = f"agent {agent!r} was running {call.name!r}, a tool it no longer has"
            return ResumeProblem("tool gone", f"{problem}; {_BACK}")
    return None


def _sides_needed(thread: Thread) -> tuple[str, ...]:
    """The sides whose turn it is, or will be next."""
    if thread.origin.frame:
        return (FRAME,)
    if not thread.in_session:
        return (thread.origin.receives,)
    return ("side_a", "side_b") if thread.two_sided else (thread.side,)
