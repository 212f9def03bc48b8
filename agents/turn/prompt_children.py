"""Subagents that start with their prompt (SA 7.6, SB 5.2).

Rules
-----
* They are due when a prompt becomes active: at the run's first session, at side B's first turn,
  at a handoff.  Not when sides alternate, and not after a restart.
* Each starts once per activation, without asking a model; its first message is the value of its
  ``description_env``, else what made the prompt active, its name that of ``name_env``.
* A blocking one holds the next model step back.  Every result is told to the side in the words
  for a child's result, a child that could not be started in those for a failure.
"""

from hubbub.agents.model import UserMessage
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.state.thread import Thread
from hubbub.hub.events import AgentImmediate, Event

__all__ = ["activation"]


def activation(thread: Thread, definitions: Definitions) -> list[Event]:
    """What is due now that a side is at work."""
    if thread.side in thread.family.activated:
        return []
    side = definitions.sides.get((thread.agent, thread.acts_as))
    if side is None or not side.children:
        return []
    names = side.immediate
    if not names:
        return []
    heard = (m.content for m in reversed(thread.view) if isinstance(m, UserMessage))
    return [AgentImmediate(names=names, message=next(heard, ""), side=side.name)]
