"""The lines of ``history.jsonl``: what was said in a run, one JSON object each.

    Record × events of both lanes → Record, lines         (``follow``)

    start, reset       markers; history is read from the latest one on
    user_message       what a person said, and what the run was opened with
    system_message     what came from others: a child's result or failure, another run, a silent
                       message, the end of the other side's turn
    assistant_message  a model's step, or what the agent said outside of one
    tool_result        a call's one result; ``toolCallId`` is that of its step's ``toolCalls``
    record             a step of a code agent that is on record (not in AT)
    compaction         a summary that stands for the oldest messages from here on, or why there is
                       none (not in AT)

Rules
-----
* Each line has ``at`` (µs since the epoch) and ``seq``, the place in the run's own lane of the
  event that it comes from.  Keys of AT's are always there, others while they say something.
* The texts are those that the model reads.  Its thinking is not in the history.
* How events were divided into commits changes nothing.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from hubbub.agents.folders.history_lines import (
    AssistantLine,
    CallPart,
    CompactionLine,
    File,
    Line,
    OfResult,
    RecordLine,
    ResetLine,
    StartLine,
    SystemLine,
    ToolResultLine,
    UserLine,
    Waited,
    call_id,
)
from hubbub.agents.folders.state_file import Record
from hubbub.agents.folders.trimmed import trimmed
from hubbub.agents.state.area import place_files
from hubbub.agents.state.commands import is_not_for_model
from hubbub.agents.state.family import FAILURE, describe, reports_to_side
from hubbub.agents.state.fold import fold
from hubbub.agents.state.open_calls import awaited
from hubbub.agents.state.steps import is_said
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.agents.state.transcript import GIVEN_STEP
from hubbub.hub import events as e
from hubbub.hub.addressing import is_from_user
from hubbub.hub.events import Event, FileRef, InLane
from hubbub.hub.values import NULL

__all__ = ["follow"]


# ── events → record and lines ────────────────────────────────────────────────────────────────


def follow(record: Record, events: Iterable[Event]) -> tuple[Record, tuple[Line, ...]]:
    """The record after events of both lanes, in order, and the lines that they add."""
    lines: list[Line] = []
    for event in events:
        if event.lane == "own":
            record = _own(record, event, lines)
        elif event.lane == "in" and isinstance(event, InLane) and event.seq > record.in_seq:
            record = replace(
                record, in_seq=event.seq, updated_at=event.at, pending=(*record.pending, event)
            )
    return replace(record, thread=trimmed(record.thread)), tuple(lines)


def _own(record: Record, event: Event, lines: list[Line]) -> Record:
    changes: dict[str, Any] = {"seq": event.seq, "updated_at": event.at}
    thread = record.thread
    match event:
        case e.SessionTaken():
            changes |= _taken(record, event, lines)
        case e.SessionDropped():
            seqs = {item.seq for item in event.items}
            changes["pending"] = tuple([x for x in record.pending if x.seq not in seqs])
        case e.AgentText() | e.AgentRetry() if event.step:
            drafts = dict(record.drafts)
            drafts.pop(event.step, None)
            if isinstance(event, e.AgentText):
                drafts[event.step] = record.drafts.get(event.step, "") + event.text
            elif is_said(event):
                lines.append(_misfit_line(record, event))
            changes |= {"drafts": drafts, "thread": fold(thread, event)}
        case e.AgentStep():
            lines.append(_step_line(record, event))
            drafts = {step: text for step, text in record.drafts.items() if step != event.step}
            changes |= {"drafts": drafts, "thread": fold(thread, event)}
        case e.AgentChild() if event.child_run_id and not event.error:
            changes["thread"] = fold(thread, event)
            if event.index and not event.step and not event.immediate:
                changes["spawned"] = {**record.spawned, event.child_run_id: event.index}
        case e.AgentMessage() if event.to in record.idle:
            changes["thread"] = fold(thread, event)
            changes["idle"] = tuple(x for x in record.idle if x != event.to)
        case e.AgentComplete():
            changes |= {"thread": fold(thread, event), "drafts": {}, "pending": ()}
        case e.AgentBase() if event.seq > record.seq + 1:  # What was before it has gone.
            thread = fold(EMPTY, event)
            changes |= {
                "thread": thread, "pending": (), "in_seq": event.inbox, "idle": (), "drafts": {},
                "took_over": thread.family.has_lent,
            }  # fmt: skip
        case e.SessionEnd() | e.AgentRestore():
            changes |= {"thread": fold(thread, event), "drafts": {}}
        case _:
            thread = changes["thread"] = fold(thread, event)
            write = _WRITERS.get(event.__class__)
            line = None if write is None else write(record, event)
            if line is not None:
                lines.append(line)
            if isinstance(event, e.AgentStart):
                changes["tags"] = event.tags
            elif isinstance(event, e.SessionPush):
                changes["took_over"] = True
    return replace(record, **changes)


def _place(thread: Thread, event: Event) -> dict[str, Any]:
    """The place of a line."""
    side = thread.side if thread.two_sided else ""
    return {
        "at": event.at, "seq": event.seq, "session": thread.session, "turn": thread.turn,
        "side": side,
    }  # fmt: skip


def _start_line(record: Record, event: e.AgentStart) -> Line:
    opening = next((x for x in record.pending if isinstance(x, e.SessionOpen)), None)
    same = opening is not None and bytes(opening.input_json) == bytes(event.input_json)
    return StartLine(
        at=event.at, seq=event.seq, agent=event.agent, name=event.name, tags=event.tags,
        input=NULL if same else event.input_json, two_sided=event.two_sided, once=event.once,
        session_key=event.session_key, correlation_id=event.correlation_id,
    )  # fmt: skip


def _said_line(record: Record, event: e.AgentText) -> Line:
    return AssistantLine(
        **_place(record.thread, event), text=event.text, files=(), tool_calls=(),
        label=event.label, call=event.call_id,
    )  # fmt: skip


def _step_line(record: Record, event: e.AgentStep) -> Line:
    calls = tuple(
        [
            CallPart(id=call_id(event.step, at), name=call.name, arguments=call.arguments)
            for at, call in enumerate(event.calls)
        ]
    )
    return AssistantLine(
        **_place(record.thread, event), text=record.drafts.get(event.step, ""), files=(),
        tool_calls=calls, step=event.step, label=event.label, parallel=event.parallel,
        stop_reason=event.stop_reason, model=event.model, usage=event.usage,
        cached_apart=event.cached_apart, cost_nanos=event.cost_nanos, worked=event.worked,
    )  # fmt: skip


def _result_line(record: Record, event: e.AgentToolComplete) -> Line:
    step, waited = record.thread.open, None
    if step is not None and step.number == event.step and event.index < len(step.calls):
        call = step.calls[event.index]
        if call.status == "waiting" and call.child:
            waited = Waited(call.child, call.key)
    return ToolResultLine(
        **_place(record.thread, event), tool_call_id=call_id(event.step, event.index),
        output=event.output, is_error=event.is_error, name=event.name, step=event.step,
        index=event.index, ran=event.ran, notes=event.notes, attachments=event.attachments,
        waited=waited,
    )  # fmt: skip


def _turn_line(record: Record, event: e.SessionTurn) -> Line | None:
    """What one side hands over as its turn ends; ``turn`` and ``side`` are the new ones."""
    if not event.content:
        return None
    thread = record.thread
    return SystemLine(
        at=event.at, seq=event.seq, session=thread.session, turn=thread.turn + 1,
        side=event.side, text=event.content, origin=thread.side, silent=True, to=event.side,
        is_turn=True, reason=event.reason,
    )  # fmt: skip


def _misfit_line(record: Record, event: e.AgentRetry) -> Line:
    return SystemLine(
        **_place(record.thread, event), text=event.error, origin=event.kind, silent=True,
        to=record.thread.side, role="system",
    )  # fmt: skip


def _failed_start_line(record: Record, event: e.AgentChild) -> Line | None:
    if not event.error:
        return None
    reference = event.child_run_id or event.child_agent
    return SystemLine(
        **_place(record.thread, event), text=FAILURE.format(reference, event.error),
        origin=reference, silent=False, to=event.side, failed_start=event.child_agent,
        reason=event.error,
    )  # fmt: skip


def _record_line(record: Record, event: e.AgentRecord) -> Line:
    return RecordLine(
        at=event.at, seq=event.seq, name=event.name, index=event.index, value=event.value_json
    )


def _compaction_line(record: Record, event: e.SessionCompaction) -> Line:
    place = _place(record.thread, event)
    return CompactionLine(
        **{**place, "side": event.side if place["side"] else ""}, text=event.summary,
        covers=event.covers, error=event.error, model=event.model, usage=event.usage,
        cached_apart=event.cached_apart, cost_nanos=event.cost_nanos,
    )  # fmt: skip


_WRITERS: Final[dict[type, Callable[[Record, Any], Line | None]]] = {
    e.AgentStart: _start_line,
    e.AgentText: _said_line,
    e.AgentToolComplete: _result_line,
    e.SessionTurn: _turn_line,
    e.AgentChild: _failed_start_line,
    e.AgentRecord: _record_line,
    e.SessionCompaction: _compaction_line,
}


# ── what is taken ────────────────────────────────────────────────────────────────────────────


def _taken(record: Record, event: e.SessionTaken, lines: list[Line]) -> dict[str, Any]:
    thread, idle, drafts = record.thread, record.idle, record.drafts
    for item in event.items:
        if isinstance(item, e.SessionOpen) and item.history:
            lines += _given_lines(thread, event, item)
        line = _item_line(thread, event, item)
        if line is not None:
            lines.append(line)
        if isinstance(item, e.SessionResult):
            idle = tuple([x for x in idle if x != item.child_run_id])
            if not item.final:
                idle = (*idle, item.child_run_id)
        elif isinstance(item, e.SessionReset):
            drafts = {}
        thread = fold(thread, replace(event, items=(item,)))
    # A takeover frame takes what was sent to its conversation's root: that is in another inbox.
    seqs = {item.seq for item in event.items if item.run_id == record.run_id}
    pending = tuple([item for item in record.pending if item.seq not in seqs])
    return {"thread": thread, "idle": idle, "drafts": drafts, "pending": pending}


def _item_line(thread: Thread, event: e.SessionTaken, item: InLane) -> Line | None:
    match item:
        case e.SessionOpen():
            return _opening_line(thread, event, item)
        case e.SessionMessage():
            if (thread.origin.frame or thread.open is not None) and is_not_for_model(thread, item):
                return None
            return _message_line(thread, event, item)
        case e.SessionResult():
            return _told_line(thread, event, item)
        case e.SessionReset():
            return ResetLine(**_place(thread, event), message=item.message)
        case _:
            return None


def _given_lines(thread: Thread, event: Event, item: e.SessionOpen) -> Iterable[Line]:
    """What was said before the run began, with the ids that its model sees."""
    place = _place(thread, event)
    number = 0
    for said in item.history:
        if said.role != "assistant":
            yield UserLine(**place, text=said.content, files=(), given=True)
            continue
        ids = [call_id(GIVEN_STEP, at) for at in range(number, number + len(said.calls))]
        number += len(said.calls)
        parts = tuple(
            [
                CallPart(id=id_, name=call.name, arguments=call.arguments)
                for id_, call in zip(ids, said.calls, strict=True)
            ]
        )
        yield AssistantLine(**place, text=said.content, files=(), tool_calls=parts, given=True)
        for id_, call in zip(ids, said.calls, strict=True):
            yield ToolResultLine(
                **place, tool_call_id=id_, output=call.output, is_error=call.is_error,
                name=call.name,
            )  # fmt: skip


def _opening_line(thread: Thread, event: Event, item: e.SessionOpen) -> Line | None:
    said = item.input
    if said is None:
        return None
    is_text = isinstance(said, str)
    return UserLine(
        **_place(thread, event), text=said if is_text else bytes(item.input_json).decode(),
        files=_placed(thread, item.files), opening=True, input=NULL if is_text else item.input_json,
        source=item.parent_run_id or "",
    )  # fmt: skip


def _message_line(thread: Thread, event: Event, item: e.SessionMessage) -> Line:
    named = tuple([File(path=path) for path in item.attachments])
    fields = {
        **_place(thread, event), "text": item.content, "key": item.key,
        "files": (*named, *_placed(thread, item.files)), "triggers": item.triggers,
        "prompt_id": item.prompt_id, "redelivered": item.redelivered,
        "metadata": item.metadata_json,
    }  # fmt: skip
    if is_from_user(item):
        return UserLine(**fields, source=item.source)
    return SystemLine(**fields, origin=item.source, silent=item.silent, role=item.role)


def _told_line(thread: Thread, event: Event, item: e.SessionResult) -> Line | None:
    """A result that no call waits for, as the side that started the child reads it."""
    child = None if awaited(thread, item) else reports_to_side(thread.family, item)
    if child is None:
        return None
    files = _placed(thread, item.files)
    text = describe(item, ()).content
    return SystemLine(
        **_place(thread, event), text=text, origin=item.child_run_id, silent=False, files=files,
        to=child.side, result=OfResult(
            agent=item.child_agent, name=item.name, session=item.session, success=item.success,
            outcome=item.outcome, reason=item.reason, answers=item.answers, final=item.final,
            content=None if text.endswith(f"\n\n{item.content}") else item.content,
        ),
    )  # fmt: skip


def _placed(thread: Thread, files: tuple[FileRef, ...]) -> tuple[File, ...]:
    placed = place_files(thread.area, files) if files else ()
    return tuple([File(path=ref.path, digest=ref.digest, size=ref.size) for ref in placed])
