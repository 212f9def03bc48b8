"""The calls of a thread's open step: whose results they wait for, and how they get on."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from hubbub.agents.state.area import find_files, parts_of_files
from hubbub.agents.state.family import with_results
from hubbub.agents.state.prompts import with_answer, with_prompt, without_prompt
from hubbub.agents.state.thread import OpenCall, Thread
from hubbub.agents.state.transcript import said
from hubbub.hub import events as e
from hubbub.hub.events import SessionResult
from hubbub.hub.values import NULL

__all__ = [
    "MAX_CALLS", "awaited", "begin_call", "change_call", "complete_call", "complete_calls",
    "end_prompt", "open_prompt", "waiting_for",
]  # fmt: skip

MAX_CALLS: Final = 128
"""The calls of one step that are run; the others get an error result, at once."""


def awaited(thread: Thread, item: SessionResult) -> list[int]:
    """The open calls that wait for a result, by index."""
    step = thread.open
    return [
        call.index
        for call in (step.calls if step is not None else ())
        if call.status == "waiting"
        and call.child == item.child_run_id
        and (item.final or call.key in item.answers)
    ]


def waiting_for(thread: Thread, prompt_id: str) -> OpenCall | None:
    """The open call that waits for the answer to a prompt."""
    for call in thread.open.calls if thread.open is not None else ():
        if call.status == "waiting" and not call.child and call.key == prompt_id:
            return call
    return None


def change_call(thread: Thread, index: int, **changes: Any) -> Thread:
    """The thread after a call has made progress; one that is done stays as it is."""
    step = thread.open
    if step is None or index >= len(step.calls) or step.calls[index].status == "done":
        return thread
    calls = list(step.calls)
    calls[index] = replace(calls[index], **changes)
    return replace(thread, open=replace(step, calls=tuple(calls)))


# ── what is recorded of them ────────────────────────────────────────────────────────────────


def begin_call(thread: Thread, event: e.AgentToolStart) -> Thread:
    """A call begins."""
    return change_call(thread, event.index, status="started")


def complete_call(thread: Thread, event: e.AgentToolComplete) -> Thread:
    """A call has its result; with the last one the step moves into the transcript."""
    step = thread.open
    if step is None or event.index >= len(step.calls):
        return thread
    call = step.calls[event.index]
    if call.status == "waiting" and call.child:  # Answered before the child's result came.
        given_up = (*thread.family.given_up, (call.child, call.key))
        thread = replace(thread, family=replace(thread.family, given_up=given_up))
    if thread.family.undecided or thread.family.awaited:
        left = "message" if event.is_error else "handle"
        decided = {"read": "handle", "left": left, "call": "message"}
        family = with_results(thread.family, decided, f"{event.step}.{event.index}")
        thread = replace(thread, family=family)
    if event.parts or event.attachments:
        thread = _with_parts(thread, event)
        step = thread.open or step
    calls = [*step.calls]
    if call.status != "done":
        calls[event.index] = replace(
            calls[event.index], status="done", output=event.output, is_error=event.is_error,
            ran=event.ran, notes=event.notes,
        )  # fmt: skip
    step = replace(step, calls=tuple(calls))
    for each in calls:
        if each.status != "done":
            return replace(thread, open=step)
    message = step.as_message()
    if not thread.two_sided:  # ``said`` in place: a thread has many fields to copy.
        return replace(
            thread, open=None, closed=step, restarts=0, answers=(),
            transcript=(*thread.transcript, message),
        )  # fmt: skip
    return said(replace(thread, open=None, closed=step, restarts=0, answers=()), message)


def complete_calls(thread: Thread, events: Sequence[e.AgentToolComplete]) -> Thread:
    """Several calls have their results: the same as one after the other, in the time of one.

    An answer may have very many calls, and all beyond ``MAX_CALLS`` are refused in one commit.
    """
    step, last = thread.open, events[-1]
    asked = thread.family.undecided or thread.family.awaited
    calls = [*step.calls] if step is not None else []
    for event in events:
        call = calls[event.index] if event.index < len(calls) else None
        if call is None:
            continue
        if call.status == "waiting" or event.parts or event.attachments or asked:
            for each in events:
                thread = complete_call(thread, each)
            return thread
        if call.status == "done":
            continue
        last = event
        calls[event.index] = replace(
            call, status="done", output=event.output, is_error=event.is_error, ran=event.ran,
            notes=event.notes,
        )  # fmt: skip
    if step is not None:
        thread = replace(thread, open=replace(step, calls=tuple(calls)))
    return complete_call(thread, last)


def _with_parts(thread: Thread, event: e.AgentToolComplete) -> Thread:
    """The thread with the parts of a result, and the files of its own that models can read."""
    files = find_files(thread.area, event.attachments)[0] if event.attachments else ()
    parts = (*event.parts, *parts_of_files(files))
    if not parts:
        return thread
    return change_call(replace(thread, has_parts=True), event.index, parts=parts)


def open_prompt(thread: Thread, event: e.SessionPrompt) -> Thread:
    """Somebody in the run asks; where a call does, it waits."""
    if event.pauses and thread.open is None:
        return thread
    thread = replace(thread, prompts=with_prompt(thread.prompts, event))
    if not event.pauses:
        return thread
    index = int(event.call_id.rpartition(".")[2])
    expires_at = thread.prompts[-1].expires_at
    return change_call(
        thread, index, status="waiting", key=event.prompt_id, asks=event.kind,
        expires_at=expires_at,
    )  # fmt: skip


def end_prompt(thread: Thread, event: e.SessionPromptEnd | e.SessionReply) -> Thread:
    """A prompt has its reply, or has ended without.  A call that was approved may begin."""
    if not thread.prompts:
        return thread
    if isinstance(event, e.SessionReply) and event.decision == "approve":
        thread = _approved(thread, event)
    return replace(
        thread, prompts=without_prompt(thread.prompts, event.prompt_id),
        answers=with_answer(thread.answers, thread.prompts, event),
    )  # fmt: skip


def _approved(thread: Thread, reply: e.SessionReply) -> Thread:
    call = waiting_for(thread, reply.prompt_id)
    if call is None or call.asks != "approval":
        return thread
    given = "" if reply.arguments_json is NULL else bytes(reply.arguments_json).decode()
    return change_call(thread, call.index, status="todo", key="", is_approved=True, given=given)
