"""What a run has come to, by its own lane alone."""

from collections.abc import Iterable

from hubbub.agents.code.lifecycle import CodeThread
from hubbub.agents.code.run_states import RunStates
from hubbub.agents.state.thread import Thread
from hubbub.hub.events import Event

__all__ = ["state_after"]


def state_after(events: Iterable[Event]) -> Thread | CodeThread:
    """What ``events``, a beginning of an own lane, come to: the state that the run itself has."""
    states = RunStates()
    for event in events:
        states.take(event)
    return states.code if states.kind == "code" else states.thread
