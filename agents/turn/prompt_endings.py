"""Which prompts of a model run end with a decision, because nobody asks any more.

    what is decided                      prompts that end with it
    ───────────────────────────────────  ──────────────────────────────────────────────
    a call is answered                   those that its tool has opened
    the run ends, is interrupted         all
    it is back after its process died    those of code that is gone; also where the run only waits,
                                         as hooks may be called meanwhile
    the model has failed                 those of hooks

Their ends are in the same commit, ahead of what they follow from, so that no crash and no reply
comes between.
"""

from typing import Final

from msgspec.structs import replace

from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.prompts import LOST, OpenPrompt, ends_of
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.signals import Decision, ModelFailed, Restored, Signal, ToolFinished
from hubbub.hub import events as e
from hubbub.hub.events.event import ending_words
from hubbub.hub.store.journal import RunStatus

__all__ = ["with_prompt_ends", "without_lost_prompts"]

_FIRST: Final = (e.SessionTaken, e.SessionDropped, e.AgentRestore)
"""What stays ahead of the ends."""

_ASKING: Final = ("started", "waiting")
"""The statuses of calls that ask."""


def with_prompt_ends(thread: Thread, decision: Decision, signal: Signal) -> Decision:
    """The decision, and the ends of the prompts that it leaves without an asker."""
    events = decision.events
    if not events:
        return decision
    after = decision.after or fold_all(thread, events)
    reason = _stopped_by(decision, signal)
    if reason:
        gone = thread.prompts if after.phase == "ended" else after.prompts
        if isinstance(signal, Restored):
            gone = tuple([each for each in gone if not _outlives(after, each)])
    else:
        reason = _finished_by(signal)
        of_hooks = isinstance(signal, ModelFailed)
        gone = tuple([x for x in after.prompts if not _is_asked(after, x, of_hooks)])
    gone = tuple([each for each in gone if not _has_ended(decision, each)])
    if not gone:
        return decision
    ends = tuple(ends_of(gone, reason, thread.turn))
    at = 0
    while at < len(events) and isinstance(events[at], _FIRST):
        at += 1
    # What these come to, in this order, was not folded yet.
    return replace(decision, events=(*events[:at], *ends, *events[at:]), after=None)


def without_lost_prompts(thread: Thread) -> Decision:
    """The ends of what hooks have asked, in a process that is gone, while their run waited."""
    gone = tuple([each for each in thread.prompts if not each.is_lasting])
    if not gone:
        return Decision()
    resting: RunStatus = "parked" if thread.parked else "active"
    status: RunStatus = "waiting" if thread.waits else resting
    return Decision(tuple(ends_of(gone, LOST, thread.turn)), status=status)


def _stopped_by(decision: Decision, signal: Signal) -> str:
    """Why everybody in the run asks no longer; empty where they may."""
    for event in decision.events:
        if isinstance(event, e.AgentComplete):
            return ending_words(event.outcome, event.reason)
        if isinstance(event, e.AgentInterrupted):
            return ending_words("interrupted", event.reason)
    if isinstance(signal, Restored):
        return f"lost: {signal.cause}" if signal.cause else LOST
    return ""


def _finished_by(signal: Signal) -> str:
    if isinstance(signal, ToolFinished) and signal.is_late:
        return "timed out"
    return "closed"


def _is_asked(after: Thread, prompt: OpenPrompt, has_failed: bool) -> bool:
    """Whether somebody may still wait for the answer."""
    if not prompt.call_id:
        return not has_failed
    step = after.open
    number, _, index = prompt.call_id.partition(".")
    if step is None or str(step.number) != number:
        return False
    return any(str(x.index) == index and x.status in _ASKING for x in step.calls)


def _outlives(after: Thread, prompt: OpenPrompt) -> bool:
    """Whether it is asked still, or will be again, though its process has died."""
    return prompt.is_lasting and _is_asked(after, prompt, False)


def _has_ended(decision: Decision, prompt: OpenPrompt) -> bool:
    return any(
        isinstance(event, e.SessionPromptEnd) and event.prompt_id == prompt.prompt_id
        for event in decision.events
    )
