"""What is written when a child is called: a refusal, a child, a message, or a wait.

looked up (Delegated) ─► refused: an error result, or a failure text for one that starts with
                         its prompt
                      ─► variables are missing: the creation is kept, the error names them
                      ─► a frame is pushed (agents/turn/takeover.py)
                      ─► the child's start, or the message to it, in one commit with the
                         call's answer (not blocking) or its wait (blocking)
"""

from msgspec.structs import replace

from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import FRAME, ActiveSide, ChildTool
from hubbub.agents.state.area import find_files
from hubbub.agents.state.family import REQUEST_SECONDS
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.thread import OpenCall, OpenStep, Thread
from hubbub.agents.turn.calls import answer, popped
from hubbub.agents.turn.child_calls import (
    Budget,
    opening_of,
    refusal_of_creation,
    refusal_of_message,
    sent_text,
    start_of,
    started_text,
    wanted,
)
from hubbub.agents.turn.decide import Kind
from hubbub.agents.turn.signals import Decision, Delegated, FrameUnavailable, taken_items
from hubbub.agents.turn.steps import go_on
from hubbub.agents.turn.takeover import not_completed, push
from hubbub.hub import events as e
from hubbub.hub.events import Event, InLane

__all__ = ["also_delegated", "delegated", "given_back"]


def delegated(
    thread: Thread,
    signal: Delegated,
    side: ActiveSide,
    waiting: frozenset[Kind],
    definitions: Definitions,
) -> Decision:
    """A call of a child, or one that starts with its prompt, has been looked up."""
    if not signal.step:
        return _start_at_once(thread, signal, side)
    step = thread.open
    if step is None or step.number != signal.step or step.calls[signal.index].status != "started":
        return Decision()
    call = step.calls[signal.index]
    if signal.request.takeover:
        target = definitions.find_side(signal.request.agent, FRAME)
        events, mail = push(thread, signal, target, step, call)
    elif signal.request.reference or signal.request.agent not in side.children:
        events, mail = _message(thread, signal, step, call)
    else:
        events, mail = _create(thread, signal, side.children[signal.request.agent], step, call)
    decision = go_on(fold_all(thread, events), events, side, waiting, definitions)
    return replace(decision, mail=(*decision.mail, *mail))


def given_back(
    thread: Thread,
    signal: FrameUnavailable,
    side: ActiveSide,
    waiting: frozenset[Kind],
    definitions: Definitions,
) -> Decision:
    """A frame no longer exists: its caller gets the conversation, and an error."""
    step, call = thread.open, thread.frame
    if step is None or call is None or call.child != signal.frame_run_id:
        return Decision()
    child = thread.family.find(call.child)
    text = not_completed(child.agent if child is not None else "the frame", signal.why)
    words = signal.words
    events: list[Event] = [e.SessionTaken(items=words)] if words else []
    events.append(popped(thread, step, call, is_error=True))
    events.append(answer(thread, step, call, text, ran=True))
    cancel = e.SessionCancel(reason=signal.why, depth=thread.origin.frame or 1)
    decision = go_on(fold_all(thread, events), events, side, waiting, definitions)
    return replace(
        decision, mail=(*decision.mail, (call.child, cancel)),
        **taken_items(words, thread.origin.run_id),
    )  # fmt: skip


def also_delegated(
    decision: Decision,
    signal: Delegated,
    side: ActiveSide,
    waiting: frozenset[Kind],
    definitions: Definitions,
) -> Decision:
    """The decision with what a call in it comes to, as one commit."""
    if decision.after is None:
        return decision
    # What is started in the same commit counts already.
    started = 0
    for _, event in decision.mail:
        started += isinstance(event, e.SessionOpen)
    if started and signal.budget is not None:
        budget = signal.budget
        budget = replace(budget, live=budget.live + started, spawned=budget.spawned + started)
        signal = replace(signal, budget=budget)
    more = delegated(decision.after, signal, side, waiting, definitions)
    if not more.events:
        return decision
    return Decision(
        (*decision.events, *more.events), decision.taken, more.status, more.after,
        (*decision.mail, *more.mail), more.agent or decision.agent,
    )  # fmt: skip


Written = tuple[list[Event], tuple[tuple[str, InLane], ...]]


def _create(
    thread: Thread, signal: Delegated, child: ChildTool, step: OpenStep, call: OpenCall
) -> Written:
    request = signal.request
    refused = signal.problem or refusal_of_creation(
        thread, request, child, signal.is_enabled, signal.budget or Budget()
    )
    if refused:
        return [answer(thread, step, call, refused)], ()
    if signal.missing:
        text = wanted(thread, signal.request_id, request.agent, signal.required, signal.missing)
        return [_deferral(thread, signal, child), answer(thread, step, call, text)], ()
    waits = child.config.blocking
    start = start_of(
        child, run_id=signal.child_run_id, name=request.name, side=thread.side,
        group=f"{thread.origin.run_id}.{step.number}", now=signal.now, waits=waits,
        step=step.number, index=call.index, turn=thread.turn,
        call_id=f"{step.number}.{call.index}",
    )  # fmt: skip
    opening = _opening(thread, signal, child)
    events: list[Event] = [start]
    if not waits:
        text = started_text(start)
        events.append(answer(thread, step, call, text, is_error=False, ran=True))
    return events, ((signal.child_run_id, opening),)


def _opening(thread: Thread, signal: Delegated, child: ChildTool) -> e.SessionOpen:
    request = signal.request
    files = find_files(thread.area, request.attachments)[0] if request.attachments else ()
    return opening_of(
        thread, child, name=request.name, message=request.message, files=files,
        variables=signal.variables,
    )  # fmt: skip


def _deferral(thread: Thread, signal: Delegated, child: ChildTool) -> e.SessionVariables:
    """The creation is kept until its variables are provided."""
    files, _ = find_files(thread.area, signal.request.attachments)
    return e.SessionVariables(
        request_id=signal.request_id,
        names=signal.missing,
        required=signal.required,
        owner=thread.agent,
        child_agent=child.agent.name,
        name=signal.request.name,
        message=signal.request.message,
        files=files,
        expires_at=signal.now + REQUEST_SECONDS * 1_000_000,
        side=thread.side,
        turn=thread.turn,
    )


def _message(thread: Thread, signal: Delegated, step: OpenStep, call: OpenCall) -> Written:
    request = signal.request
    refused = signal.problem or refusal_of_message(thread, request, signal.is_enabled)
    child = thread.family.find(request.reference)
    if refused or child is None:
        return [answer(thread, step, call, refused)], ()
    key = f"{step.number}.{call.index}"
    files, _ = find_files(thread.area, request.attachments)
    sent = e.AgentMessage(
        to=child.run_id, content=request.message, key=key, step=step.number, index=call.index,
        waits=child.blocking, turn=thread.turn, call_id=key,
    )  # fmt: skip
    events: list[Event] = [sent]
    if not child.blocking:
        text = sent_text(child.run_id, explicit=child.explicit)
        events.append(answer(thread, step, call, text, is_error=False, ran=True))
    message = e.SessionMessage(
        content=request.message, source=thread.origin.run_id, key=key, files=files, from_run=True
    )
    return events, ((child.run_id, message),)


def _start_at_once(thread: Thread, signal: Delegated, side: ActiveSide) -> Decision:
    """One that starts with its prompt: no call to answer, so what goes wrong is reported."""
    starts = thread.family.starts
    if signal.index >= len(starts) or starts[signal.index].status != "todo":
        return Decision()
    request = signal.request
    child = side.children.get(request.agent)
    place = {"immediate": True, "index": signal.index}
    if child is None or not signal.is_enabled:
        skipped = e.AgentImmediate(skipped=(signal.index,), side=thread.side)
        return Decision((skipped,), status="active")
    events: list[Event] = []
    refused = signal.problem or refusal_of_creation(
        thread, request, child, signal.is_enabled, signal.budget or Budget()
    )
    if not refused and signal.missing:
        events.append(_deferral(thread, signal, child))
        refused = wanted(thread, signal.request_id, request.agent, signal.required, signal.missing)
    if refused:
        events.append(
            e.AgentChild(
                child_run_id=signal.child_run_id, child_agent=request.agent, name=request.name,
                side=thread.side, error=refused, **place,  # type: ignore[arg-type]
            )
        )  # fmt: skip
        return Decision(tuple(events), status="active")
    start = start_of(
        child, run_id=signal.child_run_id, name=request.name, side=thread.side,
        group=f"{thread.origin.run_id}.{thread.turn}", now=signal.now,
        waits=child.config.blocking, turn=thread.turn, **place,
    )  # fmt: skip
    opening = _opening(thread, signal, child)
    return Decision((start,), status="active", mail=((signal.child_run_id, opening),))
