"""What hooks are called for after it is on record.

agent:start     after_thread_created     its opening text
a message       after_create_message     as the side at work sees it
agent:child     after_subagent_created   its registry entry
session:end     after_session            its outcome

Told are the hooks of the side that was at work, also where the same commit hands over to another.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.model import AssistantMessage, ModelMessage, UserMessage
from hubbub.agents.state.family import Child
from hubbub.agents.state.registry import entry_of
from hubbub.agents.state.thread import Thread
from hubbub.hub import events as e
from hubbub.hub.events import Event

__all__ = ["HookEvent", "hook_events_of"]


class HookEvent(Struct, frozen=True):
    """What is reported, and to whom."""

    value: Any
    hooks: tuple[Hook, ...]


def hook_events_of(
    before: Thread, after: Thread, events: Sequence[Event], hooks: Mapping[str, tuple[Hook, ...]]
) -> tuple[tuple[str, HookEvent], ...]:
    """What the hooks of a side are called with after a commit, by point, in order."""
    found: list[tuple[str, Any]] = []
    for event in events:
        if isinstance(event, e.AgentStart):
            said = event.input
            found.append(("after_thread_created", said if isinstance(said, str) else None))
        elif isinstance(event, e.AgentChild) and not event.error and event.child_run_id:
            child = after.family.find(event.child_run_id)
            found.append(("after_subagent_created", entry_of(child or _unlisted_child(event), {})))
    if "after_create_message" in hooks:
        new = _new_messages(before, after, events)
        found += [("after_create_message", message) for message in new]
    ended = after.outcome if after.outcome is not before.outcome else None
    if ended is not None and any(isinstance(event, e.SessionEnd) for event in events):
        found.append(("after_session", ended))
    return tuple(
        (point, HookEvent(value, hooks[point])) for point, value in found if point in hooks
    )


def _new_messages(
    before: Thread, after: Thread, events: Sequence[Event]
) -> tuple[ModelMessage, ...]:
    """What the side at work has said and received; each once, though both sides see it."""
    new = _new_in_view(before, after, events, before.side)
    if after.side == before.side:
        return new
    # What the next side received, except for what it received from this one.
    said = {message.text for message in new if isinstance(message, AssistantMessage)}
    others = _new_in_view(before, after, events, after.side)
    return (
        *new,
        *(each for each in others if not isinstance(each, UserMessage) or each.content not in said),
    )


def _new_in_view(
    before: Thread, after: Thread, events: Sequence[Event], side: str
) -> tuple[ModelMessage, ...]:
    had = before.transcript if side == "side_a" else before.transcript_b
    has = after.transcript if side == "side_a" else after.transcript_b
    if not any(_resets(event) for event in events):
        has = has[len(had) :]
    return tuple([each for each in has if not getattr(each, "is_given", False)])


def _resets(event: Event) -> bool:
    return isinstance(event, e.SessionTaken) and any(
        isinstance(item, e.SessionReset) for item in event.items
    )


def _unlisted_child(event: e.AgentChild) -> Child:
    return Child(run_id=event.child_run_id, agent=event.child_agent, name=event.name)
