"""By what an item of an inbox is known, so that it is accepted once."""

from typing import Final

from hubbub.hub.events import (
    Event,
    InLane,
    SessionMessage,
    SessionOpen,
    SessionReply,
    SessionReset,
    SessionResult,
    SessionVariables,
)

__all__ = ["SCHEDULES", "can_be_known_by", "has_tick", "identity_of"]

SCHEDULES: Final = "schedule"
"""The source of what a schedule sends, and begins."""


def identity_of(event: InLane) -> tuple[str, str]:
    """Under which source and key an item is accepted once; no key where it always is."""
    match event:
        case SessionMessage():
            return event.source, event.key
        case SessionReply():
            return "reply", event.prompt_id
        case SessionResult():
            return "result", f"{event.child_run_id}#{event.session or 'end'}"
        case SessionVariables():
            return "variables", event.request_id
        case SessionOpen() if event.message is not None:
            return event.message.source, event.message.key
        case _:
            return "", ""


def can_be_known_by(event: Event, source: str, key: str) -> bool:
    """Whether an event can be what a run's inbox has accepted by a source and key.

    Whatever comes by itself is known by its identity.  What a schedule opens or resets has none:
    its tick is the key, which an opening repeats as its correlation id.
    """
    if isinstance(event, InLane) and identity_of(event) == (source, key):
        return key != ""
    if isinstance(event, SessionOpen):
        return (source, key) == (SCHEDULES, event.correlation_id)
    return has_tick(event) and source == SCHEDULES


def has_tick(event: Event) -> bool:
    """Whether an event may be known by the tick of a schedule, which it does not say itself."""
    return isinstance(event, SessionReset | SessionOpen)
