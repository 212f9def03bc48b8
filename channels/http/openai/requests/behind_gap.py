"""``is_behind_gap``: where a run's record goes on behind turns that have gone."""

from hubbub.hub.events import AgentBase, Event
from hubbub.hub.hub import Hub

__all__ = ["is_behind_gap"]


async def is_behind_gap(hub: Hub, event: Event) -> bool:
    """Whether it is the base of a run whose turns before it have gone."""
    if not isinstance(event, AgentBase):
        return False
    return await hub.journal.position(event.run_id, event.lane, event.seq - 1) is None
