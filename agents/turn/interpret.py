"""``interpret``: what an outcome means.

    Thread × signal × definitions → Decision

Nothing here has an effect; the shell performs what the decision says, and ``decide`` then asks
what is due.  The rules are in these files:

    what is taken          intake.py             a session's or a run's end   endings.py
    steps and their calls  steps.py, calls.py    children                     child_starts.py
    what a step stops      stop.py               who sees what                state/transcript.py
    coming back            recovery.py

* A signal that comes too late, for a turn, a step or a run that is over, means nothing.
* What a decision comes to is said with it only where it is what the journal will say: the fold of
  the same events in the same order, none of which depends on when it is recorded.
"""

from typing import Final, assert_never

from msgspec.structs import replace

from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.state.bases import base_of, is_due
from hubbub.agents.state.fold import STAMPED, fold_all
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.child_calls import Budget
from hubbub.agents.turn.child_starts import also_delegated, delegated, given_back
from hubbub.agents.turn.decide import Kind
from hubbub.agents.turn.endings import conclusion, end_run, reported
from hubbub.agents.turn.intake import take
from hubbub.agents.turn.prompt_endings import with_prompt_ends
from hubbub.agents.turn.recovery import restored
from hubbub.agents.turn.signals import (
    CameBack,
    Concluded,
    DeadlinePassed,
    Decision,
    Delegated,
    FrameUnavailable,
    HooksCalled,
    LimitReached,
    LoopFailed,
    ModelFailed,
    ModelReplied,
    Parked,
    Restored,
    Signal,
    Summarized,
    Taken,
    ToolFinished,
    taken_items,
)
from hubbub.agents.turn.steps import failed, finished, limited, replied, summarized
from hubbub.hub import events as e

__all__ = ["interpret"]

_BUDGET: Final = Budget()


def interpret(
    thread: Thread,
    signal: Signal,
    definitions: Definitions,
    waiting: frozenset[Kind] = frozenset(),
) -> Decision:
    """What ``signal`` means for ``thread``; ``waiting`` are the kinds of item not yet taken."""
    if thread.phase == "ended" or isinstance(signal, HooksCalled):
        return Decision()
    at_work = (thread.agent, thread.acts_as)
    match signal:
        case Taken(items=items, budget=budget, unasked=unasked):
            decision = take(thread, items, definitions, waiting, budget or _BUDGET, unasked)
            if thread.origin.frame:  # Some may be lent to it.
                decision = replace(decision, **taken_items(items, thread.origin.run_id))
            if signal.replies:
                decision = replace(decision, mail=(*decision.mail, *signal.replies))
        case ModelReplied(turn=turn):
            if not (thread.in_session and thread.open is None and thread.turn == turn):
                return Decision()
            side = definitions.sides.get(at_work) or _side(thread, definitions)
            decision = replied(thread, signal, side, waiting, definitions)
            for call in signal.looked_up:
                decision = also_delegated(decision, call, side, waiting, definitions)
        case ModelFailed(turn=turn):
            if not (thread.in_session and thread.open is None and thread.turn == turn):
                return Decision()
            decision = failed(thread, signal.failure, waiting, definitions, signal.models)
        case ToolFinished():
            side = definitions.sides.get(at_work) or _side(thread, definitions)
            decision = finished(thread, signal, side, waiting, definitions)
        case Summarized():
            decision = summarized(thread, signal, definitions)
        case Delegated():
            side = definitions.sides.get(at_work) or _side(thread, definitions)
            decision = delegated(thread, signal, side, waiting, definitions)
        case FrameUnavailable():
            side = definitions.side(thread.agent, thread.acts_as)
            decision = given_back(thread, signal, side, waiting, definitions)
        case Restored() | CameBack():
            decision = restored(thread, signal, definitions)
        case LimitReached():
            decision = limited(thread, signal, waiting, definitions)
        case DeadlinePassed():
            decision = end_run(thread, "timed_out", "the run's time is over")
        case LoopFailed(error=error, error_type=kind):
            decision = end_run(thread, "failed", error, e.AgentFailed(error=error, error_type=kind))
        case Concluded():
            decision = Decision((conclusion(thread),), status="ended")
        case Parked(keep_turns=keep_turns, worked=worked):
            if keep_turns and is_due(thread, keep_turns) and (base := base_of(thread, worked)):
                return Decision((base, e.AgentPark()), status="parked")
            return Decision((e.AgentPark(),), status="parked")
        case _:
            assert_never(signal)
    if thread.prompts:
        decision = with_prompt_ends(thread, decision, signal)
    if thread.origin.reports or (thread.phase == "new" and decision.status == "ended"):
        decision = reported(thread, decision)
    if decision.status == "active" and (decision.mail or thread.family.children):
        decision = _with_status(thread, decision)
    if decision.after is not None and not STAMPED.isdisjoint(map(type, decision.events)):
        decision = replace(decision, after=None)
    return decision


def _with_status(thread: Thread, decision: Decision) -> Decision:
    """The decision, and whether the run then only waits."""
    after = decision.after or fold_all(thread, decision.events)
    return replace(decision, after=after, status="waiting" if after.waits else "active")


def _side(thread: Thread, definitions: Definitions) -> ActiveSide:
    """The side at work; raises ``UnknownAgent``, which says whose definition is missing."""
    return definitions.side(thread.agent, thread.acts_as)
