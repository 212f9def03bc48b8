"""What hooks are told of after it is on record (D-06).

agent:start     after_thread_created     its opening text
a message       after_create_message     as the side at work sees it
agent:child     after_subagent_created   its registry entry
session:end     after_session            its outcome
"""

from collections.abc import Iterable, Mapping
from typing import Any

from hubbub.agents.children import Child
from hubbub.agents.hooks import Hook
from hubbub.agents.registry import entry_of
from hubbub.agents.thread import Thread
from hubbub.hub import events as e
from hubbub.hub.events import Event

__all__ = ["notices_of"]


def notices_of(
    before: Thread, after: Thread, events: Iterable[Event], hooks: Mapping[str, tuple[Hook, ...]]
) -> tuple[tuple[str, Any], ...]:
    """What the hooks of a side are to be told about a commit, in order."""
    found: list[tuple[str, Any]] = []
    for event in events:
        if isinstance(event, e.AgentStart):
            said = event.input
            found.append(("after_thread_created", said if isinstance(said, str) else None))
        elif isinstance(event, e.AgentChild) and not event.error:
            child = after.family.find(event.child_run_id)
            found.append(("after_subagent_created", entry_of(child or _gone(event), {})))
    if "after_create_message" in hooks:
        new = after.view[len(before.view) :] if after.side == before.side else ()
        found += [("after_create_message", message) for message in new]
    ended = after.outcome if after.outcome is not before.outcome else None
    if ended is not None and any(isinstance(event, e.SessionEnd) for event in events):
        found.append(("after_session", ended))
    return tuple((point, value) for point, value in found if point in hooks)


def _gone(event: e.AgentChild) -> Child:
    return Child(run_id=event.child_run_id, agent=event.child_agent, name=event.name)
