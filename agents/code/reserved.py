"""What only the runtime writes of a code agent, and not the agent itself."""

from typing import Final

from hubbub.hub import events as e
from hubbub.hub.events import Event

__all__ = ["RESERVED"]

RESERVED: Final[frozenset[type[Event]]] = frozenset(
    event for event in e.CATALOGUE if event.home == "own" and event.type.startswith("session:")
) - {e.SessionPrompt, e.SessionPromptEnd} | {
    e.AgentPark, e.AgentRestore, e.AgentClaim, e.AgentChild, e.AgentFile, e.AgentKey,
    e.AgentImmediate, e.AgentRead, e.AgentRecord, e.AgentBase,
}  # fmt: skip
