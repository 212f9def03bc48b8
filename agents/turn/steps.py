"""Model steps and their calls: what a reply or a result means, and what follows at once.

    reply ─► thinking, text, step ─► the calls that run first
    result ─► the next calls ─► the step is over ─► the stop ladder ─► a turn, or the end

Rules
-----
* A model step is one commit: thinking, text, step, and the start of the calls that run first, so
  that what has an effect is on record before it happens.
* Every call gets exactly one result: its tool's, its child's, or an error that says what
  went wrong.
* Where a prompt has several models, the next one is asked when one fails for good, and when one
  refuses to answer; which one, the record of the retry says, so a restart asks the same one.
* A summary stands for what it was made of: what has begun anew meanwhile keeps nothing of it.
* A limit of a turn, a run or a tree ends the turn; ``seconds`` cut short what is under way, and
  each call without a result gets an error.  Where one turn's limit is reached in an agent of two
  sides, the other one gets the next.  Those of a run and of a tree end the session: no further turn
  could do anything, and one that begins nevertheless ends at once in the same way.
* What a step stops is asked of the ladder (agents/turn/stop.py) as soon as its last call is
  answered.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.agents.retry import SETUP, Failure, retry_delay
from hubbub.agents.state.area import attachment_note
from hubbub.agents.state.compactions import is_own
from hubbub.agents.state.context_limit import view_of
from hubbub.agents.state.fold import fold_all
from hubbub.agents.state.steps import MISFIT, misfits_of_turn
from hubbub.agents.state.thread import OpenCall, Thread
from hubbub.agents.state.transcript import NO_MESSAGE, other_side
from hubbub.agents.turn.calls import (
    answer,
    begin_calls,
    misfit_words,
    notes_of_approval,
    refuse_open_calls,
)
from hubbub.agents.turn.child_calls import activation
from hubbub.agents.turn.decide import Kind
from hubbub.agents.turn.endings import (
    end_session,
    interrupted_children,
    of_refusal,
    session_end,
)
from hubbub.agents.turn.signals import (
    Decision,
    Held,
    LimitReached,
    ModelReplied,
    Summarized,
    ToolFinished,
)
from hubbub.agents.turn.stop import EndSession, EndTurn, Stop, TellAgain, message_of, stop_of
from hubbub.hub import events as e
from hubbub.hub.events import Event
from hubbub.hub.events.event import ending_words
from hubbub.hub.store.journal import RunStatus

__all__ = ["failed", "finished", "go_on", "has_another", "limited", "replied", "summarized"]


def replied(
    thread: Thread,
    signal: ModelReplied,
    side: ActiveSide,
    waiting: frozenset[Kind],
    definitions: Definitions,
) -> Decision:
    """The model has answered."""
    reply, models = signal.reply, signal.models
    is_said = bool(reply.text.strip())  # Blank space beside calls is nothing said.
    if not (is_said or reply.calls or reply.stop_reason in ("refusal", "length")):
        failure = Failure(kind="empty", error="the model answered with nothing", retryable=True)
        return failed(thread, failure, waiting, definitions, models)
    if models and reply.stop_reason == "refusal" and has_another(thread, models):
        failure = Failure(kind="refusal", error="the model refused to answer", retryable=False)
        return failed(thread, failure, waiting, definitions, models)
    step, turn, which, label = thread.step + 1, thread.turn, side.name, side.config.label
    events: list[Event] = []
    for block, thought in enumerate(reply.thinking):
        events.append(
            e.AgentThinking(
                step=step, block=block, text=thought.text, signature=thought.signature,
                redacted=thought.redacted, turn=turn, side=which, label=label,
            )
        )  # fmt: skip
    if is_said:
        events.append(e.AgentText(step=step, text=reply.text, turn=turn, side=which, label=label))
    parallel = side.prompt.parallel_tool_calls and len(reply.calls) > 1
    if parallel and any(call.name in side.in_order for call in reply.calls):
        parallel = False
    events.append(
        e.AgentStep(
            step=step, attempt=thread.attempt, calls=reply.calls, usage=reply.usage,
            stop_reason=reply.stop_reason, model=reply.model, turn=turn, side=which,
            label=label, parallel=parallel, choice=thread.models.of(thread.side) if models else 0,
            cached_apart=signal.cached_apart, cost_nanos=signal.cost_nanos,
        )
    )  # fmt: skip
    return go_on(fold_all(thread, events), events, side, waiting, definitions, signal.held)


def finished(
    thread: Thread,
    signal: ToolFinished,
    side: ActiveSide,
    waiting: frozenset[Kind],
    definitions: Definitions,
) -> Decision:
    """A tool has returned."""
    step = thread.open
    if step is None or step.number != signal.step or step.calls[signal.index].status != "started":
        return Decision()  # Too late: the call was answered when it was interrupted.
    call = step.calls[signal.index]
    events: list[Event] = [
        answer(
            thread, step, call, signal.output, is_error=signal.is_error, ran=signal.ran,
            label=side.config.label,
            attachments=signal.attachments,
            notes=_notes(call, signal) if signal.attachments or call.given else (),
            parts=signal.parts,
        )
    ]  # fmt: skip
    binding = side.bindings.get(call.name)
    if binding is not None and binding[0] == "session_status" and not signal.is_error:
        text = message_of(binding[1], call.runs_with, signal.output)
        events.append(
            e.AgentStatus(
                status=text, turn=thread.turn, side=side.name, label=side.config.label,
                call_id=f"{step.number}.{call.index}",
            )
        )  # fmt: skip
    decision = go_on(fold_all(thread, events), events, side, waiting, definitions)
    if signal.is_late and thread.family.awaited:
        abort, key = e.SessionAbort(reason=signal.output), f"{step.number}.{call.index}"
        mail = tuple((child, abort) for by, child in thread.family.awaited if by == key)
        decision = replace(decision, mail=(*decision.mail, *mail))
    return decision


def _notes(call: OpenCall, signal: ToolFinished) -> tuple[str, ...]:
    """What the model reads beside a result."""
    attached = attachment_note(signal.attachments) if signal.attachments else ()
    return (*notes_of_approval(call), *attached)


def failed(
    thread: Thread,
    failure: Failure,
    waiting: frozenset[Kind],
    definitions: Definitions,
    models: tuple[str, ...] = (),
) -> Decision:
    """The model call has failed: try again, ask another of ``models``, or end the session."""
    delay = retry_delay(failure, thread.attempt - thread.models.attempts)
    choice, another = thread.models.of(thread.side) if models else 0, ""
    if delay is None and failure.kind != SETUP and has_another(thread, models):
        choice, delay = (choice + 1) % len(models), 0.0
        another = models[choice]
    if delay is not None:
        retry = e.AgentRetry(
            step=thread.step + 1,
            attempt=thread.attempt,
            kind=failure.kind,
            error=failure.error,
            delay=delay,
            turn=thread.turn,
            choice=choice,
            model=another,
        )
        return Decision((retry,), status="active")
    end = session_end(thread, "failed", failure.error)
    if thread.side in thread.unseen:  # That was in the request: no further turn is due for it.
        end = replace(end, side=thread.side)
    decision = end_session(thread, [], end, waiting, pops=True)
    if not failure.refused or decision.status == "ended":
        return decision
    side = definitions.find_side(thread.agent, thread.acts_as)
    end = of_refusal(thread, end, failure, side)
    return end_session(thread, [], end, waiting, pops=True)


def has_another(thread: Thread, models: tuple[str, ...]) -> bool:
    """Whether one of the models has not been asked for this step."""
    return thread.models.failed + 1 < len(models)


def go_on(
    after: Thread,
    events: list[Event],
    side: ActiveSide,
    waiting: frozenset[Kind],
    definitions: Definitions,
    held: Sequence[Held] = (),
) -> Decision:
    """Add to ``events``, which are folded into ``after``, what follows from them at once."""
    agent = after.agent
    if after.open is not None:
        begun = begin_calls(after, side, held)
        if begun:
            events += begun
            after = fold_all(after, begun)
    renamed = after.agent if after.agent != agent else ""
    if after.open is not None or not after.in_session:
        status: RunStatus = "active"
        if after.prompts:
            status = "waiting" if after.waits else "active"
        return Decision(tuple(events), status=status, after=after, agent=renamed)
    stop = stop_of(after, side)
    if renamed:
        stop = _after_handoff(after, stop, definitions)
    if isinstance(stop, TellAgain):
        return _told_again(after, events, stop)
    if isinstance(stop, EndTurn) and side.two_sided:
        return _next_turn(after, events, stop, definitions)
    if stop is not None:
        return _end(after, events, stop, waiting, renamed)
    fresh = activation(after, definitions) if renamed else ()
    if fresh:
        events += fresh
        after = fold_all(after, fresh)
    return Decision(tuple(events), status="active", after=after, agent=renamed)


def _told_again(after: Thread, events: list[Event], stop: TellAgain) -> Decision:
    """The model reads why its answer does not fit, before its next step."""
    retry = e.AgentRetry(
        step=after.step + 1, attempt=misfits_of_turn(after) + 1, kind=MISFIT,
        error=misfit_words(stop.problem), turn=after.turn, choice=after.models.of(after.side),
        side=after.side, call_id=stop.call_id,
    )  # fmt: skip
    events.append(retry)
    return Decision(tuple(events), status="active", after=fold_all(after, (retry,)))


def _after_handoff(after: Thread, stop: Stop | None, definitions: Definitions) -> Stop | None:
    """The steps of a turn count on; whether they are too many, the new agent's limit says."""
    new = definitions.sides.get((after.agent, after.acts_as))
    if new is None or (stop is not None and getattr(stop, "reason", "") != "limit"):
        return stop
    return EndTurn("limit") if after.turn_steps >= new.max_steps else None


def _next_turn(
    after: Thread, events: list[Event], stop: EndTurn, definitions: Definitions
) -> Decision:
    """The other side's turn."""
    content = stop.content
    if not content and not after.has_spoken:
        content = NO_MESSAGE
    which = other_side(after.side)
    next_side = definitions.find_side(after.agent, which)
    turn = e.SessionTurn(
        content=content, reason=stop.reason, side=which, turn=after.turn + 1,
        label=next_side.config.label if next_side is not None else "",
    )  # fmt: skip
    events.append(turn)
    after = fold_all(after, (turn,))
    fresh = activation(after, definitions)
    if fresh:
        events += fresh
        after = fold_all(after, fresh)
    return Decision(tuple(events), status="active", after=after)


def _end(
    after: Thread,
    events: list[Event],
    stop: EndTurn | EndSession,
    waiting: frozenset[Kind],
    renamed: str,
) -> Decision:
    """The end of the session; with one side, that of the turn is."""
    pops = isinstance(stop, EndSession) or stop.reason == "limit"
    if isinstance(stop, EndSession):
        end = session_end(after, stop.outcome, stop.reason, content=stop.content, files=stop.files)
    elif stop.reason == "limit":
        end = session_end(after, "limit", "limit")
    elif stop.reason == "stop_tool":
        if stop.content:  # What the other side would get is said to the user.
            events.append(e.AgentText(text=stop.content, turn=after.turn, side=after.side))
        # A user who is sent nothing gets the reason.
        reason = "" if stop.content or after.has_spoken else "stop_tool"
        end = session_end(after, "completed", reason, content=stop.content or None)
    else:
        if stop.content:  # A value that was given by a call is said to the user as well.
            events.append(e.AgentText(text=stop.content, turn=after.turn, side=after.side))
        reason = "" if after.has_spoken or stop.content else "the model said nothing"
        end = session_end(after, "completed", reason, value=stop.value)
    return end_session(after, events, end, waiting, renamed, pops=pops)


def limited(
    thread: Thread,
    signal: LimitReached,
    waiting: frozenset[Kind],
    definitions: Definitions,
) -> Decision:
    """A limit is used up: the turn ends, and with it what is under way."""
    if not thread.in_session or thread.turn != signal.turn:
        return Decision()
    name = signal.limit
    events: list[Event] = []
    mail = interrupted_children(thread, ending_words("limit", name))
    if thread.open is not None or mail:
        events.append(e.AgentInterrupted(reason=name, turn=thread.turn, side=thread.side))
        events += refuse_open_calls(thread, ending_words("limit", name))
    after = fold_all(thread, events)
    side = definitions.find_side(thread.agent, thread.acts_as)
    has_more_turns = side is not None and thread.session_turns < side.max_turns
    if thread.two_sided and name.startswith("turn.") and has_more_turns:
        decision = _next_turn(after, events, EndTurn("limit"), definitions)
    else:
        end = session_end(after, "limit", name)
        decision = end_session(after, events, end, waiting, pops=True)
    return replace(decision, mail=(*decision.mail, *mail))


def summarized(thread: Thread, signal: Summarized, definitions: Definitions) -> Decision:
    """The summary is there, or there will be none."""
    view = view_of(thread, signal.side)
    if signal.step != thread.step or signal.covers > len(view):
        return Decision()
    side = definitions.find_side(thread.agent, signal.side)
    label = side.config.label if side is not None else ""
    event = e.SessionCompaction(
        side=signal.side, label=label, turn=thread.turn, step=signal.step,
        covers=signal.covers, own=sum(map(is_own, view[: signal.covers])),
        summary=signal.summary, error=signal.error, usage=signal.usage, model=signal.model,
        cached_apart=signal.cached_apart, cost_nanos=signal.cost_nanos,
    )  # fmt: skip
    return Decision((event,), status="active")
