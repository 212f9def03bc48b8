"""``PendingCalls``: the calls at work in a tree of runs, and what people are asked.

agent:tool:start, agent:child, session:push ──► at work ──► agent:tool:complete
session:prompt ──► open ──► session:prompt:end
"""

from collections.abc import Callable
from typing import Final, Self

from hubbub.hub.events import (
    AgentChild,
    AgentComplete,
    AgentToolComplete,
    AgentToolStart,
    Event,
    SessionEnd,
    SessionPop,
    SessionPrompt,
    SessionPromptEnd,
    SessionPush,
    SessionStart,
)
from hubbub.hub.events.event import place_of_call

__all__ = ["PENDING_TYPES", "PendingCalls"]

PENDING_TYPES: Final = (
    "agent:tool:start", "agent:tool:complete", "agent:child", "agent:complete", "session:push",
    "session:pop", "session:start", "session:end", "session:prompt", "session:prompt:end",
)  # fmt: skip
"""What it must see, of the whole tree."""


class PendingCalls:
    """``see`` events in order, from the beginning of a session of the conversation's on."""

    __slots__ = ("_calls", "_children", "_frames", "_is_for_people", "_resting", "prompts")

    def __init__(self, is_for_people: Callable[[SessionPrompt], bool]) -> None:
        self._is_for_people = is_for_people
        self._calls: set[tuple[str, str]] = set()
        self._children: set[tuple[str, str]] = set()
        """By run and call id: the calls at work, and those that wait for a child."""
        self._frames: dict[tuple[str, str], str] = {}
        """The frames that calls wait for."""
        self._resting: set[str] = set()
        """Frames that wait for the user."""
        self.prompts: dict[str, SessionPrompt] = {}
        """What people are asked, by id, the oldest first."""

    def copy(self) -> Self:
        """Another one that goes on from here."""
        found = self.__class__(self._is_for_people)
        found._calls, found._children = set(self._calls), set(self._children)
        found._frames, found._resting = dict(self._frames), set(self._resting)
        found.prompts = dict(self.prompts)
        return found

    def see(self, event: Event) -> None:
        """Take note of the next event."""
        match event:
            case SessionPrompt():
                if event.to == "user" and self._is_for_people(event):
                    self.prompts[event.prompt_id] = event
            case SessionPromptEnd():
                self.prompts.pop(event.prompt_id, None)
            case AgentToolStart():
                self._calls.add((event.run_id, event.call_id))
            case AgentToolComplete():
                self._calls.discard((event.run_id, event.call_id))
                self._children.discard((event.run_id, event.call_id))
            case SessionPush():
                self._children.add((event.run_id, event.call_id))
                self._frames[event.run_id, event.call_id] = event.frame_run_id
            case SessionPop():
                self._resting.discard(self._frames.pop((event.run_id, event.call_id), ""))
            case AgentChild():
                if event.waits or event.blocking:
                    self._children.add((event.run_id, event.call_id))
            case SessionStart() | SessionEnd() | AgentComplete():
                self._calls = {x for x in self._calls if x[0] != event.run_id}
                self._children = {x for x in self._children if x[0] != event.run_id}
                self._frames = {x: y for x, y in self._frames.items() if x[0] != event.run_id}
                self._resting.discard(event.run_id)
                if isinstance(event, SessionEnd) and event.run_id in self._frames.values():
                    self._resting.add(event.run_id)
            case _:
                pass

    def holder_below(self, run_id: str) -> str:
        """Who has the conversation that a run may have given away: of frames that lie beside each
        other, the first call's; itself where it waits for none."""
        while found := [call_id for run, call_id in self._frames if run == run_id]:
            run_id = self._frames[run_id, min(found, key=place_of_call)]
        return run_id

    def is_resting(self, run_id: str) -> bool:
        """Whether a frame waits for the user."""
        return run_id in self._resting

    def has_calls(self, run_id: str) -> bool:
        """Whether a run has calls at work."""
        return any(run == run_id for run, _ in self._calls)

    def wait_for_people(self, run_id: str) -> bool:
        """Whether all that is at work in a run waits for people to answer."""
        if not self.prompts:
            return False
        asked = {x.call_id for x in self.prompts.values() if x.run_id == run_id}
        if "" in asked:  # Code asks, outside of any call.
            return True
        by_others = any(x.run_id != run_id for x in self.prompts.values())
        calls = {call_id for run, call_id in self._calls if run == run_id}
        children = {call_id for run, call_id in self._children if run == run_id}
        if by_others:
            asked |= children
        return bool(asked) and calls <= asked
