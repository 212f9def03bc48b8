"""``interpret``: what an outcome means.

    Thread × signal × definitions → Decision

A signal is something that happened outside: items were taken, a model answered or failed, a tool
finished or ran out of time, the run came back after a crash.  A decision is one commit: the events
to write, the items taken, and whether the run goes on, parks or ends.  Nothing here has an
effect; the shell performs what the decision says, and ``decide`` then asks what is due.

Rules
-----
* A model step is one commit: thinking, text, step, and the start of the calls that run first, so
  that what has an effect is on record before it happens.
* Every call gets exactly one result (S-07): its tool's, or an error that says what went wrong.
* A signal that comes too late, for a turn, a step or a run that is over, means nothing.
* A session of an ``ai_human`` run ends with the AI's finished reply, a failure, a limit or an
  interruption; the run then idles, or ends if it was started for one session (decision 12).
"""

from typing import Final, TypeAlias

from msgspec import Struct

from hubbub.agents.calls import begin_calls, lost_calls, refuse_open_calls
from hubbub.agents.decide import Kind
from hubbub.agents.definitions import ActiveSide, Definitions
from hubbub.agents.fold import fold, fold_all
from hubbub.agents.model import ModelReply
from hubbub.agents.retry import Failure, retry_delay
from hubbub.agents.thread import Thread
from hubbub.hub import events as e
from hubbub.hub.events import Event, InLane, OutcomeName
from hubbub.hub.journal import RunStatus
from hubbub.hub.values import NULL, encode_value

__all__ = [
    "Concluded",
    "DeadlinePassed",
    "Decision",
    "LoopFailed",
    "ModelFailed",
    "ModelReplied",
    "Parked",
    "Restored",
    "Signal",
    "Taken",
    "ToolFinished",
    "interpret",
]

MAX_CALLS: Final = 128
"""Calls of one step that are run; the model is told that the others were not."""

MAX_RESTARTS: Final = 3
"""Restarts in a row, without a finished step between them, after which a run fails (T-12)."""


class Taken(Struct, frozen=True, gc=False):
    """These items were taken out of the inbox."""

    items: tuple[InLane, ...]


class ModelReplied(Struct, frozen=True, gc=False):
    """The model call of the next step succeeded, in turn ``turn``."""

    reply: ModelReply
    turn: int


class ModelFailed(Struct, frozen=True, gc=False):
    """The model call of the next step failed, in turn ``turn``."""

    failure: Failure
    turn: int


class ToolFinished(Struct, frozen=True, gc=False):
    """The tool of call ``index`` of step ``step`` returned, raised, or ran out of time."""

    step: int
    index: int
    output: str
    is_error: bool = False
    attachments: tuple[str, ...] = ()


class Restored(Struct, frozen=True, gc=False):
    """The run is back in memory after a crash, or after its loop died of ``error``."""

    error: str = ""


class DeadlinePassed(Struct, frozen=True, gc=False):
    """The time the run was given is over."""


class LoopFailed(Struct, frozen=True, gc=False):
    """The run cannot go on at all."""

    error: str
    error_type: str


class Concluded(Struct, frozen=True, gc=False):
    """Nothing waits, and the run was to end then."""


class Parked(Struct, frozen=True, gc=False):
    """Nothing is due."""


Signal: TypeAlias = (
    Taken
    | ModelReplied
    | ModelFailed
    | ToolFinished
    | Restored
    | DeadlinePassed
    | LoopFailed
    | Concluded
    | Parked
)


class Decision(Struct, frozen=True, gc=False):
    """One commit."""

    events: tuple[Event, ...] = ()
    taken: tuple[int, ...] = ()
    status: RunStatus | None = None
    after: Thread | None = None
    """The thread with ``events`` folded in, where it is known already."""


def interpret(
    thread: Thread, signal: Signal, definitions: Definitions, waiting: frozenset[Kind] = frozenset()
) -> Decision:
    """What ``signal`` means for ``thread``; ``waiting`` are the kinds of item not yet taken."""
    if thread.phase == "ended":
        return Decision()
    match signal:
        case Taken(items=items):
            return _taken(thread, items)
        case ModelReplied(turn=turn) | ModelFailed(turn=turn) if not _is_due(thread, turn):
            return Decision()
        case ModelReplied(reply=reply):
            return _replied(thread, reply, definitions.side(thread.agent), waiting)
        case ModelFailed(failure=failure):
            return _failed(thread, failure, waiting)
        case ToolFinished():
            return _finished(thread, signal, definitions.side(thread.agent), waiting)
        case Restored(error=error):
            return _restored(thread, error, definitions)
        case DeadlinePassed():
            return _end_run(thread, "timed_out", "the run's time is over")
        case LoopFailed(error=error, error_type=error_type):
            failed = e.AgentFailed(error=error, error_type=error_type)
            return _end_run(thread, "failed", error, failed)
        case Concluded():
            return Decision((_completion(thread),), status="ended")
        case Parked():
            return Decision((e.AgentPark(),), status="parked")


# ── what is taken ────────────────────────────────────────────────────────────────────────────


def _taken(thread: Thread, items: tuple[InLane, ...]) -> Decision:
    """Take items of one kind, up to one that ends the run."""
    events: list[Event] = []
    seqs = tuple([item.seq for item in items])
    for item in items:
        if isinstance(item, e.SessionTerminate):
            end = _end_run(thread, "terminated", item.reason)
            return Decision((*events, e.SessionTaken(items=items), *end.events), seqs, "ended")
        if isinstance(item, e.SessionOpen):
            events.append(
                e.AgentStart(
                    agent=item.agent,
                    input_json=item.input_json,
                    correlation_id=item.correlation_id,
                    session_key=item.session_key,
                    name=item.name,
                )
            )
    aborts = [item for item in items if isinstance(item, e.SessionAbort | e.SessionReset)]
    in_session = thread.in_session and not aborts
    if not in_session and any(map(_begins_session, items)):
        events.append(e.SessionStart(session=thread.session + 1))
    events.append(e.SessionTaken(items=items))
    if aborts and thread.in_session:
        reason = getattr(aborts[0], "reason", "") or "interrupted"
        events = [*_interruption(thread, reason), *events]
    return Decision(tuple(events), seqs, "active")


def _begins_session(item: InLane) -> bool:
    match item:
        case e.SessionMessage():
            return item.triggers
        case e.SessionOpen():
            return item.input_json is not NULL and item.input is not None
        case e.SessionReset():
            return bool(item.message)
        case _:
            return False


def _interruption(thread: Thread, reason: str) -> list[Event]:
    return [
        e.AgentInterrupted(reason=reason, turn=thread.turn),
        *refuse_open_calls(thread, f"interrupted: {reason}"),
        _session_end(thread, "interrupted", reason),
    ]


def _is_due(thread: Thread, turn: int) -> bool:
    """Whether the model's answer for ``turn`` is still wanted."""
    return thread.in_session and thread.open is None and thread.turn == turn


# ── model steps ──────────────────────────────────────────────────────────────────────────────


def _replied(
    thread: Thread, reply: ModelReply, side: ActiveSide, waiting: frozenset[Kind]
) -> Decision:
    if reply.is_empty and reply.stop_reason not in ("refusal", "length"):
        failure = Failure(kind="empty", error="the model answered with nothing", retryable=True)
        return _failed(thread, failure, waiting)
    step, turn, label = thread.step + 1, thread.turn, side.config.label
    events: list[Event] = [
        e.AgentThinking(
            step=step, block=block, text=thought.text, signature=thought.signature,
            redacted=thought.redacted, turn=turn, side="side_a", label=label,
        )
        for block, thought in enumerate(reply.thinking)
    ]  # fmt: skip
    if reply.text:
        events.append(
            e.AgentText(step=step, text=reply.text, turn=turn, side="side_a", label=label)
        )
    events.append(
        e.AgentStep(
            step=step, attempt=thread.attempt, calls=reply.calls, usage=reply.usage,
            stop_reason=reply.stop_reason, model=reply.model, turn=turn, side="side_a",
            label=label, parallel=side.prompt.parallel_tool_calls and len(reply.calls) > 1,
        )
    )  # fmt: skip
    return _go_on(thread, events, side, waiting)


def _finished(
    thread: Thread, signal: ToolFinished, side: ActiveSide, waiting: frozenset[Kind]
) -> Decision:
    step = thread.open
    if step is None or step.number != signal.step or step.calls[signal.index].status == "done":
        return Decision()  # Too late: the call was answered when it was interrupted.
    complete = e.AgentToolComplete(
        step=step.number,
        index=signal.index,
        name=step.calls[signal.index].name,
        output=signal.output,
        is_error=signal.is_error,
        attachments=signal.attachments,
        turn=thread.turn,
        call_id=f"{step.number}.{signal.index}",
    )
    return _go_on(thread, [complete], side, waiting)


def _go_on(
    thread: Thread, events: list[Event], side: ActiveSide, waiting: frozenset[Kind]
) -> Decision:
    """Add what follows at once: the next calls, or the end of the session."""
    after = fold_all(thread, events)
    if after.open is not None:
        begun = begin_calls(after, side.tools, MAX_CALLS)
        if begun:
            events += begun
            after = fold_all(after, begun)
    if after.open is None and after.in_session:
        end: e.SessionEnd | None = None
        if after.turn_steps >= side.max_steps and _ends_with_calls(after):
            end = _session_end(after, "limit", "limit")
        elif not _ends_with_calls(after):
            end = _session_end(after, "completed", "")
        if end is not None:
            return _end_session(after, events, end, waiting)
    return Decision(tuple(events), status="active", after=after)


def _ends_with_calls(thread: Thread) -> bool:
    return bool(getattr(thread.transcript[-1], "calls", ()))


def _failed(thread: Thread, failure: Failure, waiting: frozenset[Kind]) -> Decision:
    delay = retry_delay(failure, thread.attempt)
    if delay is not None:
        retry = e.AgentRetry(
            step=thread.step + 1,
            attempt=thread.attempt,
            kind=failure.kind,
            error=failure.error,
            delay=delay,
            turn=thread.turn,
        )
        return Decision((retry,), status="active")
    return _end_session(thread, [], _session_end(thread, "failed", failure.error), waiting)


# ── endings ──────────────────────────────────────────────────────────────────────────────────


def _end_session(
    thread: Thread, events: list[Event], end: e.SessionEnd, waiting: frozenset[Kind]
) -> Decision:
    """End the session; and the run, in the same commit, if it was started for one session."""
    events.append(end)
    after = fold(thread, end)
    if thread.once and not waiting:
        completion = _completion(after)
        events.append(completion)
        return Decision(tuple(events), status="ended", after=fold(after, completion))
    return Decision(tuple(events), status="active", after=after)


def _session_end(thread: Thread, outcome: OutcomeName, reason: str) -> e.SessionEnd:
    return e.SessionEnd(
        session=thread.session,
        success=outcome == "completed",
        outcome=outcome,
        reason=reason,
        output_json=encode_value("output", thread.last_text) if thread.last_text else NULL,
        usage=thread.usage,
        turn=thread.turn,
    )


def _completion(thread: Thread) -> e.AgentComplete:
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


def _end_run(thread: Thread, outcome: OutcomeName, reason: str, *also: Event) -> Decision:
    """End the run from outside, answering every open call first."""
    events: list[Event] = list(
        refuse_open_calls(thread, f"{outcome}: {reason}" if reason else outcome)
    )
    if thread.in_session:
        events.append(_session_end(thread, outcome, reason))
    events.extend(also)
    events.append(
        e.AgentComplete(
            success=False,
            outcome=outcome,
            reason=reason,
            output_json=encode_value("output", thread.last_text) if thread.last_text else NULL,
            usage=thread.total_usage,
        )
    )
    return Decision(tuple(events), status="ended")


# ── coming back ──────────────────────────────────────────────────────────────────────────────


def _restored(thread: Thread, error: str, definitions: Definitions) -> Decision:
    if thread.restarts >= MAX_RESTARTS:
        reason = f"the run died {MAX_RESTARTS + 1} times in a row without a finished step"
        failed = e.AgentFailed(error=f"{reason}: {error}" if error else reason, error_type="")
        return _end_run(thread, "failed", reason, failed)
    restore = e.AgentRestore(attempt=thread.restarts + 2, reason=error)
    if thread.open is None:
        return Decision((restore,), status="active")
    side = definitions.side(thread.agent)
    events = [restore, *lost_calls(thread, side.tools)]
    return _go_on(thread, events, side, frozenset(("control",)))
