"""``fold``: the only thing that changes a thread.

    Thread × event of the own lane → Thread

It reads no definitions, no clock and no ids, so that old journals always fold; an event it does
not know changes nothing.  One function per event type, found in a table.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from hubbub.agents.model import UserMessage
from hubbub.agents.rewritten import Rewritten
from hubbub.agents.state.area import (
    parts_of_files,
    with_file,
    with_files,
    with_key,
)
from hubbub.agents.state.bases import marked, thread_of
from hubbub.agents.state.commands import is_not_for_model
from hubbub.agents.state.compactions import NO_COMPACTIONS
from hubbub.agents.state.family import (
    FAILURE,
    OPENING,
    Start,
    describe,
    reports_to_side,
    with_booted,
    with_child,
    with_deferred,
    with_interruption,
    with_read,
    with_result,
    with_results,
    without_starts,
)
from hubbub.agents.state.models_in_use import FIRST, begun, given_up
from hubbub.agents.state.open_calls import (
    MAX_CALLS,
    awaited,
    begin_call,
    change_call,
    complete_call,
    complete_calls,
    end_prompt,
    open_prompt,
)
from hubbub.agents.state.refusals import with_refusal
from hubbub.agents.state.steps import (
    with_retry,
    with_step,
    with_summary,
    with_text,
    with_thinking,
    with_wish,
)
from hubbub.agents.state.thread import Outcome, Thread, origin_of
from hubbub.agents.state.transcript import (
    before_it_began,
    hear,
    placed_files,
    received,
    tell,
    with_unseen,
)
from hubbub.hub import events as e
from hubbub.hub.events import NO_USAGE, Event
from hubbub.hub.values import NULL, decode_value

__all__ = ["STAMPED", "fold", "fold_all"]


def fold(thread: Thread, event: Event) -> Thread:
    """The thread after ``event``."""
    change = _CHANGES.get(event.__class__)
    return thread if change is None else change(thread, event)


def fold_all(thread: Thread, events: Iterable[Event]) -> Thread:
    """The thread after several events, in order."""
    together: list[Any] = []
    for event in events:
        change = _CHANGES.get(event.__class__)
        if change is complete_call and event.index >= MAX_CALLS:  # type: ignore[attr-defined]
            together.append(event)
            continue
        if together:
            thread, together = complete_calls(thread, together), []
        if change is not None:
            thread = change(thread, event)
    return complete_calls(thread, together) if together else thread


# ── the life of the run ──────────────────────────────────────────────────────────────────────


def _start(thread: Thread, event: e.AgentStart) -> Thread:
    return replace(
        thread, phase="live", agent=event.agent, two_sided=event.two_sided, once=event.once
    )


def _handoff(thread: Thread, event: e.AgentHandoff) -> Thread:
    models = thread.models
    if models is not FIRST:
        models = given_up(models, thread.side)
    is_rewritten = event.model != "" or event.prompt != ""
    family = thread.family
    if not (is_rewritten and event.to == thread.agent):  # Else all that it begins with is begun.
        family = replace(family, activated=())
    thread = replace(thread, agent=event.to, family=family, models=models)
    return _rewritten(thread, event) if is_rewritten else thread


def _rewritten(thread: Thread, event: e.AgentHandoff | e.SessionOpen) -> Thread:
    """With another model or prompt, beside what was other before."""
    old = thread.rewritten
    if old is None or old.agent != thread.agent:
        old = Rewritten(thread.agent)
    model, prompt = event.model or old.model, event.prompt or old.prompt
    return replace(thread, rewritten=Rewritten(thread.agent, model, prompt))


def _complete(thread: Thread, event: e.AgentComplete) -> Thread:
    return replace(
        thread,
        phase="ended",
        in_session=False,
        open=None,
        status="terminated",
        outcome=Outcome(
            thread.session, event.success, event.outcome, event.reason, event.output_json,
            event.usage,
        ),
    )  # fmt: skip


def _interrupted(thread: Thread, event: e.AgentInterrupted) -> Thread:
    if not (thread.family.starts or thread.family.awaited):
        return thread
    return replace(thread, family=with_interruption(thread.family))


def _park(thread: Thread, event: e.AgentPark) -> Thread:
    return replace(thread, parked=thread.parked or not event.waits, restarts=0)


def _base(thread: Thread, event: e.AgentBase) -> Thread:
    # With the records before it, it says what they come to: nothing new.
    return marked(thread, event) if thread.session else thread_of(event)


def _restore(thread: Thread, event: e.AgentRestore) -> Thread:
    if thread.family.undecided or thread.family.awaited:  # Handles are gone with their process.
        lost = {"read": "call", "left": "call"}
        thread = replace(thread, family=with_results(thread.family, lost))
    # What was to be waited for before the model is asked again has passed meanwhile.
    return replace(
        thread, parked=False, restarts=thread.restarts + 1, delay=0.0, draft_text="",
        draft_thinking=(),
    )  # fmt: skip


# ── sessions and what is taken ───────────────────────────────────────────────────────────────


def _session_start(thread: Thread, event: e.SessionStart) -> Thread:
    side = event.side or "side_a"
    # It gets its turn now, whatever the outcome.
    unseen = thread.unseen and tuple([each for each in thread.unseen if each != side])
    return replace(
        thread,
        session=event.session,
        in_session=True,
        side=side,
        acts_as="frame" if thread.origin.frame else side,
        unseen=unseen,
        turn=thread.turn + 1,
        session_turns=1,
        has_spoken=False,
        answering=(),
        status="running",
        turn_steps=0,
        attempt=1,
        delay=0.0,
        models=thread.models if thread.models is FIRST else begun(thread.models),
        usage=NO_USAGE,
        spent_before=thread.spent,
        last_text="",
    )


def _session_turn(thread: Thread, event: e.SessionTurn) -> Thread:
    thread = replace(
        thread,
        side=event.side,
        acts_as=event.side,
        turn=thread.turn + 1,
        session_turns=thread.session_turns + 1,
        has_spoken=False,
        turn_steps=0,
        attempt=1,
        delay=0.0,
        models=thread.models if thread.models is FIRST else begun(thread.models),
        spent_before=thread.spent,
    )
    if not event.content:
        return thread
    return tell(thread, UserMessage(content=event.content), event.side)


def _session_end(thread: Thread, event: e.SessionEnd) -> Thread:
    unseen = thread.unseen
    if unseen and event.side:  # What its children reported was in the request that failed.
        unseen = tuple([side for side in unseen if side != event.side])
    models = thread.models
    if models.failed and event.outcome == "failed":
        models = given_up(models, thread.side)
    if event.left_out or event.summarise:
        thread = with_refusal(thread, event)
    return replace(
        thread,
        unseen=unseen,
        in_session=False,
        status="idle",
        attempt=1,
        delay=0.0,
        models=models,
        draft_text="",
        draft_thinking=(),
        outcome=Outcome(
            event.session, event.success, event.outcome, event.reason, event.output_json,
            event.usage,
        ),
    )  # fmt: skip


def _taken(thread: Thread, event: e.SessionTaken) -> Thread:
    for item in event.items:
        take = _TAKEN.get(item.__class__)
        if take is not None:
            thread = take(thread, item)
    return replace(thread, parked=False) if thread.parked else thread


def _take_open(thread: Thread, item: e.SessionOpen) -> Thread:
    thread = replace(
        thread,
        origin=origin_of(item),
        acts_as="frame" if item.frame else thread.acts_as,
        answering=(OPENING,) if item.reports else (),
    )
    if item.history or item.tools or item.limits is not None:
        thread = replace(
            thread,
            tools=item.tools,
            limits=item.limits,
            transcript=(*thread.transcript, *before_it_began(item.history)),
            has_parts=thread.has_parts or any(each.parts for each in item.history),
        )
    if item.model or item.prompt:
        thread = _rewritten(thread, item)
    notes: tuple[str, ...] = ()
    message = item.message
    attached, parts = ((), ()) if message is None else (message.attachments, message.parts)
    if item.files or attached or parts:
        thread, notes, parts = received(thread, item.files, attached, parts)
    if item.input_json is NULL or (said := decode_value(item.input_json)) is None:
        return thread
    text = said if isinstance(said, str) else bytes(item.input_json).decode()
    role = "user" if message is None else message.role
    return hear(thread, UserMessage(content=text, role=role, notes=notes, parts=parts))


def _take_message(thread: Thread, item: e.SessionMessage) -> Thread:
    origin = thread.origin
    if (origin.frame or thread.open is not None) and is_not_for_model(thread, item):
        return thread
    if item.key and origin.reports and item.source == origin.parent_run_id:
        thread = replace(thread, answering=(*thread.answering, item.key))
    notes: tuple[str, ...] = ()
    parts = item.parts
    if item.files or item.attachments or parts:
        thread, notes, parts = received(thread, item.files, item.attachments, parts)
    message = UserMessage(content=item.content, role=item.role, notes=notes, parts=parts)
    return hear(thread, message, origin.receives)


def _take_result(thread: Thread, item: e.SessionResult) -> Thread:
    placed = placed_files(thread, item)
    if placed:
        thread = replace(thread, area=with_files(thread.area, placed))
    waited = awaited(thread, item)
    child = None if waited else reports_to_side(thread.family, item)
    thread = replace(thread, family=with_result(thread.family, item))
    for index in waited:  # No longer given up by the answer that follows.
        thread = change_call(thread, index, status="started")
    if child is None:
        return thread
    message = describe(item, tuple(ref.path for ref in placed))
    if parts := parts_of_files(placed):
        thread, message = replace(thread, has_parts=True), replace(message, parts=parts)
    thread = tell(thread, message, child.side)
    return with_unseen(thread, child.side)


def _take_variables(thread: Thread, item: e.SessionVariables) -> Thread:
    return replace(thread, family=with_booted(thread.family, item.request_id))


def _take_terminate(thread: Thread, item: e.SessionTerminate) -> Thread:
    return thread if thread.terminated is not None else replace(thread, terminated=item.at)


def _take_limits(thread: Thread, item: e.SessionLimits) -> Thread:
    is_root = thread.origin.parent_run_id is None
    return replace(thread, limits=item.limits) if is_root else thread


def _take_close(thread: Thread, item: e.SessionClose) -> Thread:
    return replace(thread, closing=True)


def _take_reset(thread: Thread, item: e.SessionReset) -> Thread:
    thread = replace(
        thread, transcript=(), transcript_b=(), open=None, closed=None, draft_text="",
        draft_thinking=(), unseen=(), seen=NO_USAGE, seen_b=NO_USAGE,
        compactions=NO_COMPACTIONS,
    )  # fmt: skip
    return hear(thread, UserMessage(content=item.message)) if item.message else thread


# ── children, files, keys ────────────────────────────────────────────────────────────────────


def _child(thread: Thread, event: e.AgentChild) -> Thread:
    thread = replace(thread, family=with_child(thread.family, event))
    if event.error:
        reference = event.child_run_id or event.child_agent
        text = FAILURE.format(reference, event.error)
        return with_unseen(tell(thread, UserMessage(content=text), event.side), event.side)
    if event.waits and not event.immediate:
        return change_call(
            thread, event.index, status="waiting", child=event.child_run_id, key=OPENING,
            takeover=event.takeover,
        )  # fmt: skip
    return thread


def _read(thread: Thread, event: e.AgentRead) -> Thread:
    return replace(thread, family=with_read(thread.family, event))


def _message(thread: Thread, event: e.AgentMessage) -> Thread:
    if not event.waits:
        return thread
    return change_call(thread, event.index, status="waiting", child=event.to, key=event.key)


def _immediate(thread: Thread, event: e.AgentImmediate) -> Thread:
    if event.skipped:
        return replace(thread, family=without_starts(thread.family, event.skipped))
    starts = tuple(Start(name, event.message) for name in event.names)
    activated = (*thread.family.activated, event.side)
    return replace(thread, family=replace(thread.family, starts=starts, activated=activated))


def _variables(thread: Thread, event: e.SessionVariables) -> Thread:
    return replace(thread, family=with_deferred(thread.family, event))


def _status(thread: Thread, event: e.AgentStatus) -> Thread:
    return replace(thread, status=event.status)


def _file(thread: Thread, event: e.AgentFile) -> Thread:
    return replace(thread, area=with_file(thread.area, event))


def _key(thread: Thread, event: e.AgentKey) -> Thread:
    return replace(thread, area=with_key(thread.area, event))


_CHANGES: Final[dict[type, Callable[[Thread, Any], Thread]]] = {
    e.AgentStart: _start,
    e.AgentComplete: _complete,
    e.AgentHandoff: _handoff,
    e.AgentInterrupted: _interrupted,
    e.AgentPark: _park,
    e.AgentBase: _base,
    e.AgentRestore: _restore,
    e.SessionStart: _session_start,
    e.SessionTurn: _session_turn,
    e.SessionEnd: _session_end,
    e.SessionTaken: _taken,
    e.AgentText: with_text,
    e.AgentThinking: with_thinking,
    e.AgentRetry: with_retry,
    e.AgentStep: with_step,
    e.AgentToolStart: begin_call,
    e.AgentToolComplete: complete_call,
    e.AgentChild: _child,
    e.AgentRead: _read,
    e.AgentMessage: _message,
    e.AgentImmediate: _immediate,
    e.AgentStatus: _status,
    e.AgentFile: _file,
    e.AgentKey: _key,
    e.SessionVariables: _variables,
    e.SessionCompaction: with_summary,
    e.SessionPrompt: open_prompt,
    e.SessionPromptEnd: end_prompt,
}

STAMPED: Final = frozenset((e.SessionPrompt, e.SessionCompaction))
"""What comes of these depends on when they are recorded; before they are, it is not known."""

_TAKEN: Final[dict[type, Callable[[Thread, Any], Thread]]] = {
    e.SessionOpen: _take_open,
    e.SessionMessage: _take_message,
    e.SessionResult: _take_result,
    e.SessionReply: end_prompt,
    e.SessionVariables: _take_variables,
    e.SessionTerminate: _take_terminate,
    e.SessionClose: _take_close,
    e.SessionReset: _take_reset,
    e.SessionCompact: with_wish,
    e.SessionLimits: _take_limits,
}
