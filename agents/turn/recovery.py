"""A run is back in memory: what that means.

* One that only waits goes on waiting; what its hooks have asked meanwhile is lost.
* One in the middle of something continues, or it has died too often and fails
  (agents/turn/crash_limit.py).  Why it came back is in its ``agent:restore``; "in a row" ends when
  the run makes progress: with a finished step, with a model's answer that is tried again, when it
  parks, or when it has come as far as to wait.
* Calls that were under way are lost, or made again (``calls``).  Where an end has been accepted
  meanwhile no other call begins.
* ``CONTEXT_ONLY``: the context is kept, the session at work ends, every open call is
  answered as lost, and nothing is asked of the model.
"""

from collections.abc import Iterable

from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.state.fold import fold, fold_all
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.agents.turn.calls import LOST, answer, given_up, lost_calls
from hubbub.agents.turn.crash_limit import CONTEXT_ONLY, CRASH_LOOP, crash_limit_failure
from hubbub.agents.turn.decide import Kind
from hubbub.agents.turn.endings import end_run, interrupted_children, session_end
from hubbub.agents.turn.intake import is_stopped_by
from hubbub.agents.turn.prompt_endings import without_lost_prompts
from hubbub.agents.turn.signals import CameBack, Decision, Restored
from hubbub.agents.turn.steps import go_on
from hubbub.hub import events as e
from hubbub.hub.events import Event

__all__ = ["causes_of", "restored"]


def causes_of(events: Iterable[Event], thread: Thread = EMPTY) -> tuple[str, ...]:
    """Why a run came back, each time since it last made progress: nothing where its process
    died.  ``thread``: what it had come to before these events, in the middle of no restarts."""
    causes: list[str] = []
    for event in events:
        thread = fold(thread, event)
        if isinstance(event, e.AgentRestore):
            causes.append(event.reason)
        elif causes and not thread.restarts:
            causes.clear()
    return tuple(causes)


def restored(thread: Thread, signal: Restored | CameBack, definitions: Definitions) -> Decision:
    """Go on with what was at work, or give up."""
    if isinstance(signal, CameBack):
        return without_lost_prompts(thread)
    cause = signal.cause
    # What is not retried kills nobody.
    causes = (*signal.before, cause)
    reason = "" if cause == CONTEXT_ONLY else crash_limit_failure(causes, signal.max_crashes)
    if reason:
        kind = CRASH_LOOP if not cause else "LoopDied"
        failure = e.AgentFailed(error=reason, error_type=kind)
        return end_run(thread, "failed", reason, failure)
    restore = e.AgentRestore(attempt=thread.restarts + 2, reason=cause)
    if cause == CONTEXT_ONLY:
        return _given_up(thread, restore)
    if thread.open is None:
        return Decision((restore,), status="active")
    side = definitions.side(thread.agent, thread.acts_as)
    events = [restore, *lost_calls(thread, side)]
    if any(is_stopped_by(thread, item) for item in signal.control):  # It is taken next.
        return Decision(tuple(events), status="active")
    only_control: frozenset[Kind] = frozenset(("control",))
    return go_on(fold_all(thread, events), events, side, only_control, definitions)


def _given_up(thread: Thread, restore: e.AgentRestore) -> Decision:
    """Keep the context, and nothing that was under way."""
    if not thread.in_session:
        return Decision((restore,), status="active")
    events: list[Event] = [
        restore,
        e.AgentInterrupted(reason=CONTEXT_ONLY, turn=thread.turn, side=thread.side),
    ]
    step = thread.open
    for call in step.calls if step is not None else ():
        if call.status != "done":
            assert step is not None
            began = call.status != "todo"
            events += given_up(thread, step, call, CONTEXT_ONLY)
            text = LOST if began else f"not run: {CONTEXT_ONLY}"
            events.append(answer(thread, step, call, text, ran=began))
    events.append(session_end(thread, "interrupted", CONTEXT_ONLY))
    mail = interrupted_children(fold(thread, restore), CONTEXT_ONLY)  # Handles are gone.
    return Decision(tuple(events), status="active", mail=mail)
