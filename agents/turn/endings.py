"""How sessions and runs end, and what their parent learns of it.

                                       session:end, then …
    ─────────────────────────────────  ──────────────────────────────────────────────────────
    ``ai_human`` root, resumable child  idle, until closed or terminated
    ``dual_ai`` root, other children    the terminal event, in the same commit
    other runs for one session          the terminal event, when nothing waits
    takeover frame                      idle, while it only waits for the user; the terminal event,
                                        in the same commit, when it is popped: by a binding
                                        (``complete``), a limit or a failure

An end is reported to the parent in the commit that writes it: once for each session; of a frame
only once, when it is popped.  The end of an idle run is reported outside of any session.  That is
a result where the run has had none, else the word that it is over, which nobody is owed.
"""

from typing import Final

from msgspec.structs import replace

from hubbub.agents.compaction import Compaction
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.retry import Failure
from hubbub.agents.state.family import OPENING
from hubbub.agents.state.fold import fold, fold_all
from hubbub.agents.state.refusals import blamed_by, summary_helps
from hubbub.agents.state.thread import Thread
from hubbub.agents.turn.calls import refuse_open_calls
from hubbub.agents.turn.decide import Kind
from hubbub.agents.turn.signals import Decision
from hubbub.hub import events as e
from hubbub.hub.events import Event, FileRef, InLane, OutcomeName
from hubbub.hub.events.event import ending_words
from hubbub.hub.values import NULL, Json, decode_value, encode_value

__all__ = [
    "conclusion", "end_run", "end_session", "interrupted_children", "interruption",
    "of_refusal", "reported", "session_end", "what_follows",
]  # fmt: skip


def end_session(
    thread: Thread,
    events: list[Event],
    end: e.SessionEnd,
    waiting: frozenset[Kind],
    agent: str = "",
    *,
    pops: bool = False,
) -> Decision:
    """End the session; and the run, in the same commit, if it was started for one session.

    ``pops``: the session ended such that a frame is over with it.
    """
    events.append(end)
    after = fold(thread, end)
    if (pops and after.origin.frame) or (
        after.once and (not (waiting or after.unseen) or after.has_one_session)
    ):
        last = completion(after)
        events.append(last)
        return Decision(tuple(events), status="ended", after=fold(after, last), agent=agent)
    if after.unseen:  # What was said to a side and not answered yet is its next turn.
        again = e.SessionStart(session=after.session + 1, side=after.unseen[0])
        events.append(again)
        after = fold(after, again)
    return Decision(tuple(events), status="active", after=after, agent=agent)


def session_end(
    thread: Thread,
    outcome: OutcomeName,
    reason: str,
    *,
    content: str | None = None,
    value: Json = NULL,
    files: tuple[FileRef, ...] = (),
) -> e.SessionEnd:
    return e.SessionEnd(
        session=thread.session,
        success=outcome == "completed",
        outcome=outcome,
        reason=reason,
        output_json=_output(thread, content) if value is NULL else value,
        usage=thread.usage,
        turn=thread.turn,
        files=files,
    )


# ── what a provider has refused ──────────────────────────────────────────────────────────────


NOTHING_NEW: Final = "nothing in it is new since the model's last answer; begin anew by reset"
MAX_NAMED: Final = 5
"""How much of what is left out the reason names."""


def of_refusal(
    thread: Thread, end: e.SessionEnd, failure: Failure, side: ActiveSide | None
) -> e.SessionEnd:
    """The end of a session that goes on to others: with what is left out of their requests, or that
    a summary comes first, and this in its reason.

    With several models, one of which failed for another reason in this step, nobody is blamed: it
    may accept the same another time.
    """
    refused = failure.refused
    end = replace(end, refused=refused)
    if thread.models.may_accept:
        return end
    chosen = side.prompt.compaction if side is not None else False
    if refused == "length" and chosen:
        keep = (chosen if isinstance(chosen, Compaction) else Compaction()).keep
        if summary_helps(thread.view, thread.side, thread.step, thread.compactions, keep):
            return _said(replace(end, summarise=True))
    left_out = blamed_by(thread.view, refused)
    if left_out:
        return _said(replace(end, left_out=left_out))
    return replace(end, reason=f"{end.reason}; {NOTHING_NEW}")


def what_follows(end: e.SessionEnd) -> str:
    """The last words of the reason: what is done about a refusal; empty where that is nothing."""
    if end.summarise:
        return "; the older messages are summarised before it is asked again"
    if not end.left_out:
        return ""
    named = [each.what for each in end.left_out[:MAX_NAMED]]
    if len(end.left_out) > MAX_NAMED:
        named.append(f"{len(end.left_out) - MAX_NAMED} more")
    return f"; left out from now on, so that the next message goes on: {'; '.join(named)}"


def _said(end: e.SessionEnd) -> e.SessionEnd:
    return replace(end, reason=end.reason + what_follows(end))


# ── how a run ends ───────────────────────────────────────────────────────────────────────────


def completion(thread: Thread) -> e.AgentComplete:
    """The terminal event of a run that ends by itself: the last session's outcome, in total."""
    last = thread.outcome
    if last is None:
        return e.AgentComplete(reason="closed", usage=thread.total_usage)
    return e.AgentComplete(
        success=last.success,
        outcome=last.outcome,
        reason=last.reason,
        output_json=last.output_json,
        usage=thread.total_usage,
    )


def conclusion(thread: Thread) -> e.AgentComplete:
    """The terminal event of a run for which nothing waits any more.

    A frame in front of which nobody is left has not completed.
    """
    if not thread.origin.frame or thread.once:
        return completion(thread)
    return e.AgentComplete(
        success=False, outcome="interrupted", reason="the conversation was closed",
        usage=thread.total_usage,
    )  # fmt: skip


def end_run(
    thread: Thread, outcome: OutcomeName, reason: str, *also: Event, depth: int = 0
) -> Decision:
    """End the run from outside, answering every open call first.

    ``depth`` is how many frames are left, where the stack is unwound from further below.

    When it is terminated its children end with it, and every other run below it, which is
    what mail to the run itself means; else those it waits for are interrupted, whose results
    nobody can use any more.
    """
    left = depth or max(0, thread.origin.frame - 1)
    why = ending_words(outcome, reason)
    events: list[Event] = list(refuse_open_calls(thread, why, left))
    if thread.in_session:
        events.append(session_end(thread, outcome, reason))
    events.extend(also)
    events.append(
        e.AgentComplete(
            success=False,
            outcome=outcome,
            reason=reason,
            output_json=_output(thread, None),
            usage=thread.total_usage,
        )
    )
    mail = interrupted_children(thread, f"its parent {outcome}", left)
    if outcome == "terminated":
        origin = thread.origin
        why = f"run {origin.run_id} was terminated"
        children = (child.run_id for child in thread.family.children if not child.ended)
        mail = tuple((to, e.SessionTerminate(reason=why)) for to in (*children, origin.run_id))
    return Decision(tuple(events), status="ended", mail=mail)


def interruption(thread: Thread, reason: str) -> list[Event]:
    """What an interrupted session leaves: every open call answered, and its end."""
    return [
        e.AgentInterrupted(reason=reason, turn=thread.turn, side=thread.side),
        *refuse_open_calls(thread, ending_words("interrupted", reason)),
        session_end(thread, "interrupted", reason),
    ]


def interrupted_children(
    thread: Thread, reason: str, depth: int | None = None
) -> tuple[tuple[str, InLane], ...]:
    """An interruption reaches the children that are waited for, and no other: it ends each frame
    and, of other children, what they are at.

    ``depth`` is how many frames are left, where this run goes, too.
    """
    if not thread.in_session:
        return ()
    calls = thread.open.calls if thread.open is not None else ()
    waited = [call.child for call in calls if call.status == "waiting" and call.child]
    waited += [start.child for start in thread.family.starts if start.status == "waiting"]
    waited += [child for _, child in thread.family.awaited]
    left = (thread.origin.frame or 1) if depth is None else depth
    abort, cancel = e.SessionAbort(reason=reason), e.SessionCancel(reason=reason, depth=left)
    frames = thread.frames
    return tuple((child, cancel if child in frames else abort) for child in dict.fromkeys(waited))


def _output(thread: Thread, content: str | None) -> Json:
    text = content if content is not None else thread.last_text
    return encode_value("output", text) if text else NULL


# ── what the parent is told ──────────────────────────────────────────────────────────────────


def reported(before: Thread, decision: Decision) -> Decision:
    """The decision with what it means for the parent, as mail to it."""
    for event in decision.events:
        if isinstance(event, e.SessionEnd | e.AgentComplete):
            break
    else:
        return decision
    after = decision.after or fold_all(before, decision.events)
    origin = after.origin
    if not origin.reports or origin.parent_run_id is None:
        return decision
    is_final = decision.status == "ended"
    if origin.frame and not is_final:
        return decision
    mail = tuple(
        [(origin.parent_run_id, x) for x in _results(before, after, decision.events, is_final)]
    )
    return replace(
        decision, after=after, mail=(*decision.mail, *mail),
        leave_to=origin.parent_run_id if origin.frame else "",
    )  # fmt: skip


def _results(
    before: Thread, after: Thread, events: tuple[Event, ...], is_final: bool
) -> list[e.SessionResult]:
    ended = [event for event in events if isinstance(event, e.SessionEnd)]
    if after.origin.frame:
        return [_result(after, ended[-1], True) if ended else _last_word_of_frame(after)]
    if not ended:
        return [_last_word(after)] if is_final else []
    if not [event for event in events if isinstance(event, e.SessionStart)]:
        return [_result(after, ended[0], is_final)]
    # Where another session begins at once, each is reported with the state that it ended in.
    found = []
    for event in events:
        before = fold(before, event)
        if isinstance(event, e.SessionEnd):
            found.append(_result(before, event, is_final and event is ended[-1]))
    return found


def _last_word(thread: Thread) -> e.SessionResult:
    """The end of a run outside of any session; to the parent of one that is closed, terminated.

    It answers what the run was opened for where that has had no session.
    """
    return e.SessionResult(
        child_run_id=thread.origin.run_id, child_agent=thread.agent, name=thread.origin.name,
        session=0, success=False, outcome="terminated", reason=_why(thread), final=True,
        answers=() if thread.session else thread.answering,
    )  # fmt: skip


def _last_word_of_frame(thread: Thread) -> e.SessionResult:
    """The end of a frame outside of any session, as its run has ended.

    One for a single session that something else came for meanwhile has completed none the less.
    """
    last = thread.outcome
    assert last is not None
    return replace(
        _last_word(thread), success=last.success, outcome=last.outcome, reason=last.reason,
        content=_told(last.output_json) if last.success else "", answers=(OPENING,),
    )  # fmt: skip


def _result(thread: Thread, end: e.SessionEnd, is_final: bool) -> e.SessionResult:
    why = end.reason
    if end.outcome == "completed" and not thread.two_sided:
        why = "stop"  # By its stop rules, with no binding.
    return e.SessionResult(
        child_run_id=thread.origin.run_id,
        child_agent=thread.agent,
        name=thread.origin.name,
        session=end.session,
        success=end.success,
        outcome=end.outcome,
        reason=why,
        content=_told(end.output_json),
        files=end.files,
        answers=thread.answering,
        final=is_final,
    )


def _told(output: Json) -> str:
    """An output as a parent reads it: words as they are, a value as JSON."""
    said = decode_value(output)
    if isinstance(said, str):
        return said
    return "" if said is None else bytes(output).decode()


def _why(thread: Thread) -> str:
    last = thread.outcome
    if last is None:
        return "the run is over"
    if last.outcome == "terminated":
        return last.reason
    if last.reason:
        return ending_words(last.outcome, last.reason)
    return f"the run is over ({last.outcome})"
