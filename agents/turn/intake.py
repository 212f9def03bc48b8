"""What the items of an inbox mean when they are taken.

    control   open       the run starts, and its first session with it if something was said
              abort      the session at work ends, and with it the children it waits for
              cancel     a frame is popped; to a main agent with a frame above it an abort
              close      nothing more will come; the frames above get it, too
              reset      the same, and the context begins again
              terminate  the run ends; nothing after it is looked at
    result    a child's  a waiting call's result, or something told to the side that asked
              reply      the answer to a prompt that is open, else it is dropped; so is one that
                         came when the prompt's time was over, which ends it as its timer does:
                         nobody has answered
              variables  a creation that waited for them is carried out, once
    message              said to the receiving side; opens a session if none is at work; words
                         are acted upon instead (agents/turn/commands.py)

What is taken is in one record, ``session:taken``, with its contents, behind the start of the
session that it opens.
"""

from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.state.family import Deferred, notes_of, reports_to_side
from hubbub.agents.state.fold import fold, fold_all
from hubbub.agents.state.open_calls import awaited
from hubbub.agents.state.thread import Thread
from hubbub.agents.state.transcript import placed_files
from hubbub.agents.turn.calls import answer, popped
from hubbub.agents.turn.child_calls import (
    Budget,
    ChildRequest,
    activation,
    opening_of,
    refusal_of_creation,
    start_of,
)
from hubbub.agents.turn.commands import answers_by_closing, answers_by_reply, apply_command
from hubbub.agents.turn.decide import Kind
from hubbub.agents.turn.endings import end_run, interrupted_children, interruption
from hubbub.agents.turn.signals import Decision
from hubbub.agents.turn.steps import go_on
from hubbub.agents.turn.takeover import result_of
from hubbub.hub import events as e
from hubbub.hub.delivery.pending_prompt import EXPIRED
from hubbub.hub.events import Event, InLane, OutcomeName
from hubbub.hub.values import NULL

__all__ = ["PROMPT_ENDED", "is_stopped_by", "take"]

_seq: Final = attrgetter("seq")

PROMPT_ENDED: Final = "the prompt has ended"
"""The reason of the dead letter for a reply that nobody waited for any more."""


def take(
    thread: Thread,
    items: tuple[InLane, ...],
    definitions: Definitions,
    waiting: frozenset[Kind],
    budget: Budget,
    unasked: frozenset[str] = frozenset(),
) -> Decision:
    """Take items of one kind, up to one that ends the run; all of them as the run's own.

    ``unasked``: the prompts that were not open yet when the first item was said.
    """
    seqs = tuple(map(_seq, items))
    last = None
    for at, item in enumerate(items):
        kind = item.__class__
        if kind is e.SessionTerminate:  # Also behind what pops the frame: all below it ends.
            last = at
            break
        if kind is e.SessionCancel and last is None and _is_frame(thread, items):
            last = at
    if last is not None:
        return _ended(thread, items[: last + 1], items, definitions, seqs)
    if items[0].__class__ is e.SessionMessage and (thread.open or thread.origin.frame):
        messages: tuple[e.SessionMessage, ...] = items  # type: ignore[assignment]
        heeded = apply_command(thread, messages, definitions, waiting, unasked)
        if heeded is not None:
            return replace(heeded, taken=seqs)
    events = _before(thread, items, definitions)
    is_opening = thread.phase == "new" and not isinstance(items[0], e.SessionReply | e.SessionTimer)
    brings_results = items[0].__class__ is not e.SessionMessage and not is_opening
    late, expired = _late_replies(thread, items) if brings_results else ((), ())
    if late:
        events.append(e.SessionDropped(items=late, reason=PROMPT_ENDED))
        if len(late) == len(items):
            return Decision(tuple(events), seqs, "parked" if thread.parked else "active")
        items = tuple([item for item in items if item not in late])
    taken = items
    if expired:
        events.append(e.SessionDropped(items=expired, reason=EXPIRED))
        taken = tuple([item for item in items if item not in expired])
    if taken:
        events.append(e.SessionTaken(items=taken))
    if not brings_results:
        after = fold_all(thread, events)
        fresh = activation(after, definitions) if after.in_session else ()
        if fresh:
            events += fresh
            after = fold_all(after, fresh)
        return Decision(tuple(events), seqs, "active", after)
    decision = _with_results(thread, items, events, definitions, waiting, budget)
    return replace(decision, taken=seqs) if late or expired else decision


def _before(thread: Thread, items: tuple[InLane, ...], definitions: Definitions) -> list[Event]:
    """What comes before the record of what was taken: starts, and the end of what was at work."""
    events: list[Event] = []
    stop = opens = None
    for item in items:
        if isinstance(item, e.SessionOpen):
            events.append(_start(item, definitions))
        elif stop is None and _stops(thread, item):
            stop = item
        if opens is None and _opens_session(thread, item):
            opens = item
    if stop is not None and thread.in_session:
        events += interruption(thread, getattr(stop, "reason", "") or "interrupted")
    if opens is not None and (stop is not None or not thread.in_session):
        side = "side_a" if opens.__class__ is e.SessionOpen else _side_for(thread, opens)
        events.append(e.SessionStart(session=thread.session + 1, side=side))
    return events


def is_stopped_by(thread: Thread, item: InLane) -> bool:
    """Whether an item ends what is at work: the session, or all of the run."""
    if isinstance(item, e.SessionCancel) and thread.origin.frame > 0:
        return True
    return isinstance(item, e.SessionTerminate) or _stops(thread, item)


def _stops(thread: Thread, item: InLane) -> bool:
    """Whether an item ends the session at work."""
    if isinstance(item, e.SessionCancel):
        return thread.frame is not None
    return isinstance(item, e.SessionAbort | e.SessionReset)


def _is_frame(thread: Thread, items: tuple[InLane, ...]) -> bool:
    return thread.origin.frame > 0 or any(isinstance(x, e.SessionOpen) and x.frame for x in items)


def _start(item: e.SessionOpen, definitions: Definitions) -> Event:
    definition = definitions.agents.get(item.agent or item.open_agent)
    two_sided = definition is not None and definition.type == "dual_ai"
    return e.AgentStart(
        agent=item.agent,
        input_json=item.input_json,
        correlation_id=item.correlation_id,
        session_key=item.session_key,
        name=item.name,
        tags=item.tags,
        two_sided=two_sided,
        once=item.once or (two_sided and item.parent_run_id is None),
    )


def _opens_session(thread: Thread, item: InLane) -> bool:
    match item:
        case e.SessionMessage():
            return item.triggers
        case e.SessionOpen():
            return item.input_json is not NULL and bytes(item.input_json) != b"null"
        case e.SessionReset():
            return bool(item.message)
        case e.SessionResult():
            return reports_to_side(thread.family, item) is not None
        case _:
            return False


def _side_for(thread: Thread, item: InLane) -> str:
    """The side that takes the first turn of the session that ``item`` opens."""
    if item.__class__ is e.SessionMessage:
        return thread.origin.receives
    if isinstance(item, e.SessionResult):
        child = reports_to_side(thread.family, item)
        return child.side if child is not None else "side_a"
    return "side_a"


def _ended(
    thread: Thread,
    until: tuple[InLane, ...],
    items: tuple[InLane, ...],
    definitions: Definitions,
    seqs: tuple[int, ...],
) -> Decision:
    """The run ends with the last of ``until``; what was taken with it has no further effect."""
    events: list[Event] = [
        _start(item, definitions) for item in until if isinstance(item, e.SessionOpen)
    ]
    events.append(e.SessionTaken(items=items))
    last = until[-1]
    outcome: OutcomeName = "interrupted" if isinstance(last, e.SessionCancel) else "terminated"
    end = end_run(
        fold_all(thread, events), outcome, getattr(last, "reason", ""),
        depth=getattr(last, "depth", 0),
    )  # fmt: skip
    return Decision((*events, *end.events), seqs, "ended", mail=end.mail)


def _told_children(thread: Thread, items: tuple[InLane, ...]) -> tuple[tuple[str, InLane], ...]:
    """What the items mean for the children the run waits for: an interruption, or its closing."""
    close = stop = None
    for item in items:
        if item.__class__ is e.SessionResult:  # As nearly always.
            continue
        if stop is None and _stops(thread, item):
            stop = item
        elif close is None and isinstance(item, e.SessionClose):
            close = item
    if stop is None:
        if close is None:
            return ()
        return tuple([(frame, e.SessionClose(reason=close.reason)) for frame in thread.frames])
    return interrupted_children(thread, getattr(stop, "reason", "") or "interrupted")


# ── results ──────────────────────────────────────────────────────────────────────────────────


def _with_results(
    thread: Thread,
    items: tuple[InLane, ...],
    events: list[Event],
    definitions: Definitions,
    waiting: frozenset[Kind],
    budget: Budget,
) -> Decision:
    """Control and results: the calls they answer, the children they reach or start."""
    seqs = tuple(map(_seq, items))
    mail = _told_children(thread, items)
    after = fold_all(thread, events)
    answers: list[Event] = []
    sofar = thread
    for item in items:
        if isinstance(item, e.SessionResult):
            answers += _answers(sofar, item)
            if item is not items[-1]:  # For what comes behind it.
                sofar = fold(sofar, e.SessionTaken(items=(item,)))
        elif isinstance(item, e.SessionVariables):
            booted, started = _boot(after, item, thread.family.deferred, definitions, budget)
            events += booted
            after = fold_all(after, booted)
            mail = (*mail, *started)
        elif isinstance(item, e.SessionReply | e.SessionTimer):
            replied = answers_by_reply(sofar, item)
            answers += replied
            sofar = fold_all(sofar, replied)
        elif isinstance(item, e.SessionClose) and after.asks_user and not answers:
            answers += answers_by_closing(after)
    events += answers
    after = fold_all(after, answers)
    side = definitions.find_side(after.agent, after.acts_as)
    if after.in_session and not thread.in_session:
        fresh = activation(after, definitions)
        events += fresh
        after = fold_all(after, fresh)
    if thread.open is None or side is None or not answers:
        return Decision(tuple(events), seqs, "active", after, mail)
    # The calls continue, or the step is over and may stop something.
    decision = go_on(after, events, side, waiting, definitions)
    return replace(decision, taken=seqs, mail=(*decision.mail, *mail))


def _answers(thread: Thread, item: e.SessionResult) -> list[Event]:
    """The calls that a child's result answers; a frame's that none waits for is the user's."""
    step = thread.open
    answers: list[Event] = []
    for index in awaited(thread, item):
        assert step is not None
        call = step.calls[index]
        text, is_error = result_of(call, item)
        if call.takeover:
            answers.append(popped(thread, step, call, is_error=is_error))
        paths = tuple(ref.path for ref in placed_files(thread, item))
        answers.append(
            answer(
                thread, step, call, text, is_error=is_error, ran=True, attachments=paths,
                notes=() if call.takeover else notes_of(item, paths),
            )
        )  # fmt: skip
    child = thread.family.find(item.child_run_id)
    is_late = not answers and child is not None and child.takeover
    if is_late and item.outcome == "completed" and item.content.strip():
        answers.append(e.AgentText(text=item.content, turn=thread.turn, side=thread.side))
    return answers


def _late_replies(
    thread: Thread, items: tuple[InLane, ...]
) -> tuple[tuple[e.SessionReply, ...], tuple[e.SessionReply, ...]]:
    """The replies among the items whose prompts are open no more when it is their turn, and those
    that came when the time of theirs was over."""
    open_ = {each.prompt_id: each for each in thread.prompts} if thread.prompts else {}
    late, expired = [], []
    for item in items:
        if isinstance(item, e.SessionTimer):
            open_.pop(item.timer, None)
        elif isinstance(item, e.SessionReply):
            prompt = open_.pop(item.prompt_id, None)
            if prompt is None:
                late.append(item)
            elif prompt.is_too_late(item):
                expired.append(item)
    return tuple(late), tuple(expired)


def _boot(
    thread: Thread,
    item: e.SessionVariables,
    waiting: tuple[Deferred, ...],
    definitions: Definitions,
    budget: Budget,
) -> tuple[list[Event], tuple[tuple[str, InLane], ...]]:
    """Start the child whose creation waited for these variables.

    ``waiting`` are those of before they were taken: in ``thread`` it is carried out already.
    """
    found = [each for each in waiting if each.request_id == item.request_id]
    if not found:
        return [], ()
    deferred = found[0]
    side = definitions.find_side(deferred.owner, deferred.side)
    child = side.children.get(deferred.agent) if side is not None else None
    request = ChildRequest(agent=deferred.agent)
    refused = refusal_of_creation(thread, request, child, True, budget)
    if refused or child is None:
        failed = e.AgentChild(
            child_run_id=item.child_run_id, child_agent=deferred.agent, name=deferred.name,
            side=deferred.side, error=refused,
        )  # fmt: skip
        return [failed], ()
    start = start_of(
        child, run_id=item.child_run_id, name=deferred.name, side=deferred.side,
        group=deferred.request_id, now=item.provided_at, waits=False,
    )  # fmt: skip
    opening = opening_of(
        thread, child, name=deferred.name, message=deferred.message, files=deferred.files
    )
    return [start], ((item.child_run_id, opening),)
