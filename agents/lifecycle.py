"""The life of a code agent's run: exactly one start, exactly one end (R-02 … R-05).

    CodeThread × event of the own lane → CodeThread          (``fold_code``)
    CodeThread × what the agent emits  → what is written     (``admit``)

Rules
-----
* ``agent:start`` is written once: by the runtime, or, with ``emits_start_complete``, when the
  agent emits it or, at the latest, before its first other ``agent:*`` event.  A second is dropped.
* ``agent:complete`` is terminal at once, whoever writes it; what follows is dropped.
* The session of a code agent begins with its start and ends with its end.
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from hubbub.agents.area import NO_AREA, Area, with_file, with_key
from hubbub.hub import events as e
from hubbub.hub.events import NO_USAGE, Event, OutcomeName, Usage
from hubbub.hub.values import NULL, Json

__all__ = ["CodeThread", "admit", "completion", "fold_code", "opening", "start_if_missing"]


class CodeThread(Struct, frozen=True, gc=False):
    """What a code run's life depends on."""

    phase: Literal["new", "live", "ended"] = "new"
    opened: e.SessionOpen | None = None
    attempt: int = 1
    usage: Usage = NO_USAGE
    """Of every model step that stands in the run's lane."""
    ending: e.AgentComplete | None = None
    area: Area = NO_AREA
    children: tuple[str, ...] = ()

    @property
    def depth(self) -> int:
        return self.opened.depth if self.opened is not None else 0


def fold_code(thread: CodeThread, event: Event) -> CodeThread:
    """The thread after ``event``."""
    match event:
        case e.AgentStart():
            return replace(thread, phase="live")
        case e.AgentRestore():
            return replace(thread, attempt=event.attempt)
        case e.AgentStep():
            return replace(thread, usage=thread.usage + event.usage)
        case e.AgentComplete():
            return replace(thread, phase="ended", ending=event)
        case e.AgentFile():
            return replace(thread, area=with_file(thread.area, event))
        case e.AgentKey():
            return replace(thread, area=with_key(thread.area, event))
        case e.AgentChild():
            return replace(thread, children=(*thread.children, event.child_run_id))
        case e.SessionTaken() if thread.opened is None:
            opened = next((i for i in event.items if isinstance(i, e.SessionOpen)), None)
            return replace(thread, opened=opened)
        case _:
            return thread


def opening(item: e.SessionOpen, *, emits_start: bool) -> tuple[Event, ...]:
    """What is written when the run begins."""
    taken = e.SessionTaken(items=(item,))
    return (taken,) if emits_start else (_start(item), e.SessionStart(session=1), taken)


def start_if_missing(thread: CodeThread) -> tuple[Event, ...]:
    """The start that the agent left out."""
    if thread.phase != "new" or thread.opened is None:
        return ()
    return (_start(thread.opened), e.SessionStart(session=1))


def admit(thread: CodeThread, event: Event) -> tuple[Event, ...]:
    """What is written when the agent emits ``event``; empty when it is dropped."""
    if thread.phase == "ended":
        return ()
    if isinstance(event, e.AgentStart):
        if thread.phase == "live" or thread.opened is None:
            return ()
        opened = thread.opened
        return (
            replace(
                event,
                input_json=opened.input_json if event.input_json is NULL else event.input_json,
                correlation_id=opened.correlation_id,
                session_key=opened.session_key,
                name=event.name or opened.name,
            ),
            e.SessionStart(session=1),
        )
    before = start_if_missing(thread) if event.type.startswith("agent:") else ()
    if isinstance(event, e.AgentComplete):
        if event.usage == NO_USAGE:
            event = replace(event, usage=thread.usage)
        return (*before, *_ending(event))
    return (*before, event)


def completion(
    thread: CodeThread,
    outcome: OutcomeName,
    *,
    reason: str = "",
    output: Json = NULL,
    failure: e.AgentFailed | None = None,
) -> tuple[Event, ...]:
    """What is written when the run ends; empty when it has ended already."""
    if thread.phase == "ended":
        return ()
    end = e.AgentComplete(
        success=outcome == "completed",
        outcome=outcome,
        reason=reason,
        output_json=output,
        usage=thread.usage,
    )
    failed = () if failure is None else (failure,)
    return (*start_if_missing(thread), *failed, *_ending(end))


def _start(item: e.SessionOpen) -> e.AgentStart:
    return e.AgentStart(
        input_json=item.input_json,
        correlation_id=item.correlation_id,
        session_key=item.session_key,
        name=item.name,
        tags=item.tags,
        once=True,
    )


def _ending(end: e.AgentComplete) -> tuple[Event, ...]:
    session = e.SessionEnd(
        session=1,
        success=end.success,
        outcome=end.outcome,
        reason=end.reason,
        output_json=end.output_json,
        usage=end.usage,
    )
    return (session, end)
