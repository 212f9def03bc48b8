"""``RunStates``: a run's state from its own lane alone, whatever its agent is."""

from typing import Literal

from hubbub.agents.code.lifecycle import CodeThread, fold_code
from hubbub.agents.state.fold import fold
from hubbub.agents.state.thread import EMPTY, Thread
from hubbub.hub.events import AgentBase, Event, SessionStart

__all__ = ["RunStates"]


class RunStates:
    """Both folds of a lane side by side: which of them holds is known once a session begins."""

    __slots__ = ("at", "code", "kind", "seq", "thread")

    def __init__(self) -> None:
        self.thread: Thread = EMPTY
        self.code = CodeThread()
        self.kind: Literal["", "model", "code"] = ""
        self.seq = 0
        self.at = 0

    def take(self, event: Event) -> None:
        """Fold the next event of the lane; at a base before which others have gone, begin anew."""
        has_gap = isinstance(event, AgentBase) and event.seq > self.seq + 1
        self.thread = fold(EMPTY if has_gap else self.thread, event)
        self.code = fold_code(self.code, event)
        self.seq, self.at = event.seq, event.at
        if not self.kind and isinstance(event, SessionStart | AgentBase):
            # A model's session begins with one of its sides; a function has none, and no base.
            self.kind = "model" if isinstance(event, AgentBase) or event.side else "code"
