"""``fold``: the only thing that changes a thread.

    Thread × event of the own lane → Thread

It reads no definitions, no clock and no ids, so that old journals always fold; an event it does
not know changes nothing.  One function per event type, found in a table.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from hubbub.agents.model import AssistantMessage, Thinking, UserMessage
from hubbub.agents.thread import OpenCall, OpenStep, Outcome, Thread
from hubbub.hub import events as e
from hubbub.hub.events import NO_USAGE, Event
from hubbub.hub.values import NULL

__all__ = ["fold", "fold_all"]


def fold(thread: Thread, event: Event) -> Thread:
    """The thread after ``event``."""
    change = _CHANGES.get(event.__class__)
    return thread if change is None else change(thread, event)


def fold_all(thread: Thread, events: Iterable[Event]) -> Thread:
    """The thread after several events, in order."""
    for event in events:
        change = _CHANGES.get(event.__class__)
        if change is not None:
            thread = change(thread, event)
    return thread


# ── the life of the run ──────────────────────────────────────────────────────────────────────


def _start(thread: Thread, event: e.AgentStart) -> Thread:
    return replace(thread, phase="live", agent=event.agent)


def _complete(thread: Thread, event: e.AgentComplete) -> Thread:
    return replace(
        thread,
        phase="ended",
        in_session=False,
        open=None,
        outcome=Outcome(
            thread.session, event.success, event.outcome, event.reason, event.output_json,
            event.usage,
        ),
    )  # fmt: skip


def _park(thread: Thread, event: e.AgentPark) -> Thread:
    return replace(thread, parked=True, restarts=0)


def _restore(thread: Thread, event: e.AgentRestore) -> Thread:
    return replace(
        thread, parked=False, restarts=thread.restarts + 1, draft_text="", draft_thinking=()
    )


# ── sessions and what is taken ───────────────────────────────────────────────────────────────


def _session_start(thread: Thread, event: e.SessionStart) -> Thread:
    return replace(
        thread,
        session=event.session,
        in_session=True,
        turn=thread.turn + 1,
        turn_steps=0,
        attempt=1,
        delay=0.0,
        usage=NO_USAGE,
        last_text="",
    )


def _session_end(thread: Thread, event: e.SessionEnd) -> Thread:
    return replace(
        thread,
        in_session=False,
        attempt=1,
        delay=0.0,
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
    deadline = None if item.timeout is None else item.at + int(item.timeout * 1_000_000)
    thread = replace(thread, once=item.once, deadline=deadline)
    if item.input_json is NULL or (said := item.input) is None:
        return thread
    text = said if isinstance(said, str) else bytes(item.input_json).decode()
    return _heard(thread, UserMessage(content=text))


def _take_message(thread: Thread, item: e.SessionMessage) -> Thread:
    return _heard(thread, UserMessage(content=item.content, role=item.role))


def _take_close(thread: Thread, item: e.SessionClose) -> Thread:
    return replace(thread, closing=True)


def _take_reset(thread: Thread, item: e.SessionReset) -> Thread:
    thread = replace(thread, transcript=(), open=None, draft_text="", draft_thinking=())
    return _heard(thread, UserMessage(content=item.message)) if item.message else thread


def _heard(thread: Thread, message: UserMessage) -> Thread:
    return replace(thread, transcript=(*thread.transcript, message))


# ── steps ────────────────────────────────────────────────────────────────────────────────────


def _text(thread: Thread, event: e.AgentText) -> Thread:
    if event.step != thread.step + 1:
        return thread  # Said by a tool on the way, not by the model in its step.
    return replace(thread, draft_text=thread.draft_text + event.text, last_text=event.text)


def _thinking(thread: Thread, event: e.AgentThinking) -> Thread:
    block = Thinking(text=event.text, signature=event.signature, redacted=event.redacted)
    return replace(thread, draft_thinking=(*thread.draft_thinking, block))


def _retry(thread: Thread, event: e.AgentRetry) -> Thread:
    return replace(
        thread,
        attempt=event.attempt + 1,
        delay=event.delay,
        draft_text="",
        draft_thinking=(),
    )


def _step(thread: Thread, event: e.AgentStep) -> Thread:
    transcript, step = thread.transcript, None
    if event.calls:
        step = OpenStep(
            event.step,
            thread.draft_text,
            thread.draft_thinking,
            tuple([OpenCall(at, call.name, call.arguments) for at, call in enumerate(event.calls)]),
            event.parallel,
        )
    else:
        said = AssistantMessage(text=thread.draft_text, thinking=thread.draft_thinking)
        transcript = (*transcript, said)
    return replace(
        thread,
        step=event.step,
        turn_steps=thread.turn_steps + 1,
        attempt=1,
        delay=0.0,
        transcript=transcript,
        draft_text="",
        draft_thinking=(),
        open=step,
        usage=event.usage if thread.usage is NO_USAGE else thread.usage + event.usage,
        total_usage=thread.total_usage + event.usage,
        restarts=0,
    )


def _tool_start(thread: Thread, event: e.AgentToolStart) -> Thread:
    return _change_call(thread, event.index, status="started")


def _tool_complete(thread: Thread, event: e.AgentToolComplete) -> Thread:
    thread = _change_call(
        thread, event.index, status="done", output=event.output, is_error=event.is_error
    )
    step = thread.open
    if step is None or not step.is_answered:
        return thread
    return replace(
        thread, open=None, transcript=(*thread.transcript, step.as_message()), restarts=0
    )


def _change_call(thread: Thread, index: int, **changes: Any) -> Thread:
    step = thread.open
    if step is None or index >= len(step.calls) or step.calls[index].status == "done":
        return thread
    calls = list(step.calls)
    calls[index] = replace(calls[index], **changes)
    return replace(thread, open=replace(step, calls=tuple(calls)))


_CHANGES: Final[dict[type, Callable[[Thread, Any], Thread]]] = {
    e.AgentStart: _start,
    e.AgentComplete: _complete,
    e.AgentPark: _park,
    e.AgentRestore: _restore,
    e.SessionStart: _session_start,
    e.SessionEnd: _session_end,
    e.SessionTaken: _taken,
    e.AgentText: _text,
    e.AgentThinking: _thinking,
    e.AgentRetry: _retry,
    e.AgentStep: _step,
    e.AgentToolStart: _tool_start,
    e.AgentToolComplete: _tool_complete,
}

_TAKEN: Final[dict[type, Callable[[Thread, Any], Thread]]] = {
    e.SessionOpen: _take_open,
    e.SessionMessage: _take_message,
    e.SessionClose: _take_close,
    e.SessionReset: _take_reset,
}
