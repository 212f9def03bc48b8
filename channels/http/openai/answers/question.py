"""``ClientQuestion``: the item of a run's inbox that a response is about, read from the journal."""

from collections.abc import Mapping
from typing import Any, Final

from hubbub.hub.events import (
    Event,
    GivenTool,
    InLane,
    SessionMessage,
    SessionOpen,
    SessionPrompt,
    SessionPromptEnd,
    SessionReply,
    SessionStart,
)
from hubbub.hub.hub import Hub

__all__ = ["NOTES", "ClientQuestion", "find_question", "state_of"]

NOTES: Final = "openai"
"""The name, among a message's metadata, of what its request said beside the text."""

_BEFORE: Final = (
    "session:open", "session:start", "session:message", "session:reply", "session:prompt",
    "session:prompt:end",
)  # fmt: skip


class ClientQuestion:
    """One item of a run's inbox, and what has to be known of the time before it."""

    __slots__ = ("_start", "item", "latest", "open_prompts", "opening", "run_id", "seq")

    def __init__(self, opening: SessionOpen, seq: int) -> None:
        self.opening = opening
        """What the run was opened with."""
        self.run_id = opening.run_id
        self.seq = seq
        self.item: SessionOpen | SessionMessage | SessionReply = opening
        self.open_prompts: dict[str, SessionPrompt] = {}
        """What the tree was waiting for people to answer when the item came."""
        self.latest = 1
        """The number of the last item of this kind in the inbox."""
        self._start: SessionStart | None = None

    @property
    def is_opening(self) -> bool:
        """Whether it is the run's first."""
        return self.seq == 1

    @property
    def is_code(self) -> bool:
        """Whether the run is a code agent's, as far as is known: its sessions have no sides."""
        return self._start is not None and not self._start.side

    @property
    def tools(self) -> tuple[GivenTool, ...]:
        """The tools that the client carries out."""
        return self.opening.tools

    @property
    def notes(self) -> Mapping[str, Any]:
        """What the request said beside its text."""
        return self._notes_of(self.item)

    def _notes_of(self, item: Event) -> Mapping[str, Any]:
        said = item.message if isinstance(item, SessionOpen) else item
        found = said.metadata.get(NOTES) if isinstance(said, SessionMessage) else None
        return found if isinstance(found, dict) else {}

    @property
    def is_thrown_away(self) -> bool:
        """Whether the run was opened for one request, and this is it, or has its results."""
        is_its_own = self.is_opening or isinstance(self.item, SessionReply)
        return is_its_own and bool(self._notes_of(self.opening).get("thrown_away"))

    def is_item(self, item: InLane) -> bool:
        """Whether this is the item."""
        return item.run_id == self.run_id and item.lane == "in" and item.seq == self.seq

    def is_call(self, prompt: SessionPrompt) -> bool:
        """Whether a prompt is a call that the client carries out."""
        return (
            prompt.kind == "external"
            and prompt.run_id == self.run_id
            and any(prompt.tool == tool.name for tool in self.tools)
        )

    def is_for_people(self, prompt: SessionPrompt) -> bool:
        """Whether the client, or its user, can answer a prompt."""
        return prompt.kind != "external" or self.is_call(prompt)

    def began(self, start: SessionStart) -> None:
        """The run's first session has begun."""
        self._start = self._start or start

    def see(self, event: Event) -> None:
        """Take note of what is on record, in order."""
        if event.run_id == self.run_id:
            if isinstance(event, SessionStart):
                self.began(event)
            elif isinstance(event, SessionMessage | SessionReply):
                self.latest = max(self.latest, event.seq)
                if event.seq == self.seq:
                    self.item = event
        if isinstance(event, SessionPrompt):
            if self._is_before and event.to == "user" and self.is_for_people(event):
                self.open_prompts[event.prompt_id] = event
        elif isinstance(event, SessionPromptEnd) and self._is_before:
            self.open_prompts.pop(event.prompt_id, None)

    @property
    def _is_before(self) -> bool:
        """Whether the item has not come yet."""
        return self.item.seq != self.seq


async def find_question(hub: Hub, run_id: str, seq: int) -> ClientQuestion | None:
    """The item of that number in a root's inbox, if somebody has said something with it."""
    question = await _read(hub, run_id, seq)
    return question if question is not None and question.item.seq == seq else None


async def state_of(hub: Hub, run_id: str) -> ClientQuestion | None:
    """A root as it is now: the question that has yet to come."""
    return await _read(hub, run_id, 0)


async def _read(hub: Hub, run_id: str, seq: int) -> ClientQuestion | None:
    events = await hub.read(root_run_id=run_id, types=_BEFORE)
    opening = next((x for x in events if isinstance(x, SessionOpen) and x.run_id == run_id), None)
    if opening is None or opening.parent_run_id is not None:
        return None
    question = ClientQuestion(opening, seq)
    for event in events:
        question.see(event)
    return question
