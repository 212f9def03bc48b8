"""What the items of an inbox mean when they are taken (H-14, T-02, T-10, T-11).

    control   open       the run starts, and its first session with it if something was said
              abort      the session at work ends, and with it the children it waits for
              reset      the same, and the context begins anew
              terminate  the run ends; nothing after it is looked at
    result    a child's  a waiting call's result, or something told to the side that asked (C-11)
              variables  a creation that waited for them is made up for, once (V-02)
    message              said to the receiving side; opens a session if none is at work

What is taken stands in one record, ``session:taken``, with its contents, behind the start of the
session that it opens.
"""

from msgspec.structs import replace

from hubbub.agents.calls import answer
from hubbub.agents.children import Deferred, failure_of, is_told, notes_of, succeeded
from hubbub.agents.decide import Kind
from hubbub.agents.delegation import (
    ChildRequest,
    Room,
    opening_of,
    refusal_of_creation,
    start_of,
)
from hubbub.agents.endings import end_run, interrupted_children, interruption
from hubbub.agents.fold import awaited, fold, fold_all, placed_files
from hubbub.agents.immediate import activation
from hubbub.agents.resolution import Definitions
from hubbub.agents.signals import Decision
from hubbub.agents.steps import go_on
from hubbub.agents.thread import OpenCall, OpenStep, Thread
from hubbub.hub import events as e
from hubbub.hub.events import Event, InLane
from hubbub.hub.values import NULL

__all__ = ["take"]


def take(
    thread: Thread,
    items: tuple[InLane, ...],
    definitions: Definitions,
    waiting: frozenset[Kind],
    room: Room,
) -> Decision:
    """Take items of one kind, up to one that ends the run."""
    seqs = tuple([item.seq for item in items])
    for at, item in enumerate(items):
        if item.__class__ is e.SessionTerminate:
            return _terminated(thread, items[: at + 1], items, definitions, seqs)
    events = _before(thread, items, definitions)
    events.append(e.SessionTaken(items=items))
    if items[0].__class__ is e.SessionMessage or thread.phase == "new":
        after = fold_all(thread, events)
        fresh = activation(after, definitions) if after.in_session else ()
        if fresh:
            events += fresh
            after = fold_all(after, fresh)
        return Decision(tuple(events), seqs, "active", after)
    return _with_results(thread, items, events, definitions, waiting, room)


def _before(thread: Thread, items: tuple[InLane, ...], definitions: Definitions) -> list[Event]:
    """What stands before the record of what was taken: starts, and the end of what was at work."""
    events: list[Event] = []
    stop = opens = None
    for item in items:
        if isinstance(item, e.SessionOpen):
            events.append(_start(item, definitions))
        elif stop is None and isinstance(item, e.SessionAbort | e.SessionReset):
            stop = item
        if opens is None and _opens_session(thread, item):
            opens = item
    if stop is not None and thread.in_session:
        events += interruption(thread, getattr(stop, "reason", "") or "interrupted")
    if opens is not None and (stop is not None or not thread.in_session):
        side = "side_a" if opens.__class__ is e.SessionOpen else _side_for(thread, opens)
        events.append(e.SessionStart(session=thread.session + 1, side=side))
    return events


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
            return is_told(thread.family, item) is not None
        case _:
            return False


def _side_for(thread: Thread, item: InLane) -> str:
    """The side that takes the first turn of the session that ``item`` opens."""
    if item.__class__ is e.SessionMessage:
        return thread.origin.receives
    if isinstance(item, e.SessionResult):
        child = is_told(thread.family, item)
        return child.side if child is not None else "side_a"
    return "side_a"


def _terminated(
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
    end = end_run(fold_all(thread, events), "terminated", getattr(until[-1], "reason", ""))
    return Decision((*events, *end.events), seqs, "ended", mail=end.mail)


def _interrupted_children(
    thread: Thread, items: tuple[InLane, ...]
) -> tuple[tuple[str, InLane], ...]:
    """What the items that interrupt the run mean for the children it waits for."""
    stops = (item for item in items if isinstance(item, e.SessionAbort | e.SessionReset))
    stop = next(stops, None)
    if stop is None:
        return ()
    return interrupted_children(thread, getattr(stop, "reason", "") or "interrupted")


# ── results ──────────────────────────────────────────────────────────────────────────────────


def _with_results(
    thread: Thread,
    items: tuple[InLane, ...],
    events: list[Event],
    definitions: Definitions,
    waiting: frozenset[Kind],
    room: Room,
) -> Decision:
    """Control and results: the calls they answer, the children they reach or start."""
    seqs = tuple([item.seq for item in items])
    mail = _interrupted_children(thread, items)
    after = fold_all(thread, events)
    answers: list[Event] = []
    sofar = thread
    for item in items:
        if isinstance(item, e.SessionResult):
            step = sofar.open  # As the item finds it: an earlier one may have answered a call.
            for index in awaited(sofar, item):
                paths = tuple(ref.path for ref in placed_files(sofar, item))
                assert step is not None
                answers.append(_answer(thread, step, step.calls[index], item, paths))
            sofar = fold(sofar, e.SessionTaken(items=(item,)))
        elif isinstance(item, e.SessionVariables):
            booted, started = _boot(after, item, thread.family.deferred, definitions, room)
            events += booted
            after = fold_all(after, booted)
            mail = (*mail, *started)
    events += answers
    after = fold_all(after, answers)
    side = definitions.find_side(after.agent, after.side)
    if after.in_session and not thread.in_session:
        fresh = activation(after, definitions)
        events += fresh
        after = fold_all(after, fresh)
    if thread.open is None or side is None or not answers:
        return Decision(tuple(events), seqs, "active", after, mail)
    # The calls go on, or the step is over and may stop something.
    decision = go_on(after, events, side, waiting, definitions)
    return replace(decision, taken=seqs, mail=(*decision.mail, *mail))


def _answer(
    thread: Thread, step: OpenStep, call: OpenCall, item: e.SessionResult, paths: tuple[str, ...]
) -> Event:
    well = succeeded(item)
    text = item.content if well else failure_of(item)
    return answer(
        thread, step, call, text, is_error=not well, ran=True, attachments=paths,
        notes=notes_of(item, paths),
    )  # fmt: skip


def _boot(
    thread: Thread,
    item: e.SessionVariables,
    waiting: tuple[Deferred, ...],
    definitions: Definitions,
    room: Room,
) -> tuple[list[Event], tuple[tuple[str, InLane], ...]]:
    """Start the child whose creation waited for these variables.

    ``waiting`` are those of before they were taken: in ``thread`` it is made up for already.
    """
    found = [each for each in waiting if each.request_id == item.request_id]
    if not found:
        return [], ()
    deferred = found[0]
    side = definitions.find_side(deferred.owner, deferred.side)
    child = side.children.get(deferred.agent) if side is not None else None
    request = ChildRequest(agent=deferred.agent)
    refused = refusal_of_creation(thread, request, child, True, room)
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
