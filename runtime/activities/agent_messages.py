"""Agents that speak to agents.

    agent_for("most-recent-foreground")   the agent that a user spoke to last
    agent_for("heartbeat")                the heartbeat's agent

``send_agent_message`` goes to the agent that is named, else to the sender's parent, else to the
most recent foreground agent, unless that is the sender itself.  It is silent: people do not see it,
the model it is for does.
"""

from dataclasses import replace
from typing import Final

from msgspec import structs

from hubbub.agents.definitions.run_state import RunState
from hubbub.agents.definitions.tools import ToolError, tool
from hubbub.hub.errors import BadValue, CallerError, NoAgentFound
from hubbub.hub.hub import Hub
from hubbub.hub.message import Message, session_message
from hubbub.hub.near_misses import kind_of, shown
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.journal import Journal
from hubbub.hub.texts import check_labels, check_text

__all__ = ["FOREGROUND", "agent_for", "send_agent_message", "tell_agent"]

FOREGROUND: Final = "most-recent-foreground"

_KINDS: Final = {FOREGROUND: "user", "heartbeat": "heartbeat"}


async def agent_for(journal: Journal, strategy: str) -> str:
    """The run that a strategy means.

    Recency is the last message that a user got accepted, else the creation; parked agents count,
    those that have ended or are being ended do not.  Raises ``BadValue`` for another strategy,
    ``NoAgentFound`` when there is no such agent.
    """
    check_labels(strategy=strategy)
    kind = _KINDS.get(strategy)
    if kind is None:
        raise BadValue(
            "strategy", f"expected {' or '.join(map(repr, _KINDS))}, not {shown(strategy)}"
        )
    await journal.flush()
    found = await journal.find(kind, "newest")
    if not found:
        raise NoAgentFound(strategy)
    return found[0]


async def tell_agent(hub: Hub, lane: OwnLane, text: str, agent_id: str | None = None) -> Receipt:
    """Queue a silent message, of the run that ``lane`` belongs to, for another agent."""
    if not isinstance(text, str):
        raise CallerError(f"send_agent_message: expected a text, not {type(text).__name__}")
    check_text("text", text)
    check_labels(agent_id=agent_id)
    target = agent_id or lane.parent_run_id
    if not target:
        target = await agent_for(hub.journal, FOREGROUND)
        if target == lane.run_id:  # It would wake itself with it, again and again.
            raise NoAgentFound(FOREGROUND, "but the sender itself")
    message = Message(text, silent=True, metadata={"origin": lane.run_id})
    event = session_message(message, source=lane.run_id)
    return await hub.pipeline.deliver(structs.replace(event, from_run=True), to=target)


@tool(name="send_agent_message")
async def _send_agent_message(text: str, state: RunState, agent_id: str | None = None) -> str:
    """Send a message to another agent.

    Without agent_id it goes to the agent that started you, or else to the one that a user spoke
    to last.
    """
    if not hasattr(state, "send_agent_message"):
        raise BadValue("state", f"expected the state of a run, not {kind_of(state)}")
    try:
        receipt = await state.send_agent_message(text, agent_id)
    except CallerError as error:
        raise ToolError(str(error)) from None
    if not receipt.accepted:
        raise ToolError(f"the message was not delivered: {receipt.reason or receipt.status}")
    return f"sent to {receipt.run_id}"


send_agent_message: Final = replace(_send_agent_message, is_built_in=True)
"""The tool, for a prompt's ``tools``; no other tool may have its name."""
