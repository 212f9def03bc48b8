"""``ClientQuestion``: the item of a run's inbox that a response is about, read from the journal."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from hubbub.channels.http.openai.answers.pending_calls import PENDING_TYPES, PendingCalls
from hubbub.hub.errors import BadValue
from hubbub.hub.events import (
    Event,
    GivenTool,
    InLane,
    SessionEnd,
    SessionMessage,
    SessionOpen,
    SessionPrompt,
    SessionReply,
    SessionStart,
    SessionTaken,
)
from hubbub.hub.hub import Hub

__all__ = [
    "NOTES", "ClientQuestion", "find_question", "is_latest", "last_said", "notes_of",
    "said_after", "state_of",
]  # fmt: skip

NOTES: Final = "openai"
"""The name, among the metadata of a message or reply, of what its request said beside the text."""

_SAID: Final = ("session:message", "session:reply")

PAGE: Final = 200
"""Events that are read at once."""


class ClientQuestion:
    """One item of a run's inbox, and what has to be known of the time before it."""

    __slots__ = ("_start", "item", "opening", "pending", "run_id", "seq")

    def __init__(self, opening: SessionOpen, seq: int) -> None:
        self.opening = opening
        """What the run was opened with."""
        self.run_id = opening.run_id
        self.seq = seq
        self.item: SessionOpen | SessionMessage | SessionReply = opening
        self.pending = PendingCalls(partial(_is_for_people, opening))
        """What the tree was at, and waited for people to answer, when the item came."""
        self._start: SessionStart | None = None

    @property
    def is_opening(self) -> bool:
        """Whether it is the run's first."""
        return self.seq == 1

    @property
    def is_message(self) -> bool:
        """Whether it was said to a run that there was; else it opened one, or is a reply."""
        return isinstance(self.item, SessionMessage)

    @property
    def is_code(self) -> bool:
        """Whether the run is a code agent's, as far as is known: its sessions have no sides."""
        return self._start is not None and not self._start.side

    @property
    def tools(self) -> tuple[GivenTool, ...]:
        """The tools that the client carries out."""
        return self.opening.tools

    @property
    def asked(self) -> tuple[SessionPrompt, ...]:
        """What people were asked when the item came, but for calls of the client's."""
        return tuple(x for x in self.pending.prompts.values() if not self.is_call(x))

    @property
    def notes(self) -> Mapping[str, Any]:
        """What the request said beside its text."""
        return self._notes_of(self.item)

    def _notes_of(self, item: Event) -> Mapping[str, Any]:
        return notes_of(item.message if isinstance(item, SessionOpen) else item)

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
        return _is_call(self.opening, prompt)

    def is_for_people(self, prompt: SessionPrompt) -> bool:
        """Whether the client, or its user, can answer a prompt."""
        return _is_for_people(self.opening, prompt)

    def began(self, start: SessionStart) -> None:
        """The run's first session has begun."""
        self._start = self._start or start


def _is_call(opening: SessionOpen, prompt: SessionPrompt) -> bool:
    return (
        prompt.kind == "external"
        and prompt.run_id == opening.run_id
        and any(prompt.tool == tool.name for tool in opening.tools)
    )


def _is_for_people(opening: SessionOpen, prompt: SessionPrompt) -> bool:
    return prompt.kind != "external" or _is_call(opening, prompt)


def notes_of(said: object) -> Mapping[str, Any]:
    """What the request said beside a message or a reply; nothing of what others have said."""
    if not isinstance(said, SessionMessage | SessionReply):
        return {}
    found = said.metadata.get(NOTES)
    return found if isinstance(found, dict) else {}


async def find_question(hub: Hub, run_id: str, seq: int) -> ClientQuestion | None:
    """The item of that number in a root's inbox, if somebody has said something with it.

    As much of the time before it is read as the session has that it came into, if any.
    """
    question = await _begun(hub, run_id, seq)
    if question is None or question.is_opening:
        return question
    back = 2
    while True:
        first = max(1, seq - back)
        if await hub.journal.position(run_id, "in", first) is None:
            first = 1  # It has gone with old turns: all that is left came behind it.
        pending = PendingCalls(partial(_is_for_people, question.opening))
        found = await _read_up_to(hub, question, first, pending)
        if found is None:
            return None
        item, is_whole = found
        if is_whole or first == 1 or question.is_code:
            question.item, question.pending = item, pending
            return question
        back *= 8


async def state_of(hub: Hub, run_id: str) -> ClientQuestion | None:
    """A root as it is now: the question that has yet to come."""
    question = await _begun(hub, run_id, 0)
    start = await hub.journal.latest(run_id, (SessionStart.type,))
    if question is not None and start is not None:
        after = hub.cursor(start)
        for event in await hub.read(root_run_id=run_id, after=after, types=PENDING_TYPES):
            question.pending.see(event)
    return question


async def last_said(hub: Hub, question: ClientQuestion) -> tuple[int, str | None] | None:
    """What clients of these endpoints told a run last: the number of the item, and its words,
    ``None`` for the result of a call.  ``None`` where nothing of it is left."""
    run_id, back = question.run_id, 8
    taken = await hub.journal.latest(run_id, (SessionTaken.type,))
    items = taken.items if isinstance(taken, SessionTaken) else ()
    seq = max((x.seq for x in items if x.run_id == run_id and x.lane == "in"), default=1)
    while True:
        first = seq - back
        if first > 0 and await hub.journal.position(run_id, "in", first) is None:
            first = 0
        after = _cursor_at(hub, run_id, first) if first > 0 else None
        events = await hub.read(run_id, after=after, types=("session:open", *_SAID))
        found = [x for event in events if (x := _client_said(question, event)) is not None]
        if found or first <= 0:
            return found[-1] if found else None
        back *= 8


async def said_after(hub: Hub, question: ClientQuestion, seq: int) -> tuple[int, str | None] | None:
    """What clients of these endpoints told a run first behind an item, as ``last_said``."""
    after = _cursor_at(hub, question.run_id, seq)
    events = await hub.read(question.run_id, after=after, types=_SAID)
    return next((x for event in events if (x := _client_said(question, event)) is not None), None)


def _client_said(question: ClientQuestion, event: Event) -> tuple[int, str | None] | None:
    match event:
        case SessionOpen() if notes_of(event.message):
            return event.seq, event.message.content if event.message is not None else ""
        case SessionMessage() if notes_of(event):
            return event.seq, event.content
        case SessionReply() if notes_of(event):
            if event.decision == "approve":
                return event.seq, "approve"
            return event.seq, event.content if question.is_code else None
        case _:  # Also a reply that a run notes for a message.
            return None


async def is_latest(hub: Hub, question: ClientQuestion) -> bool:
    """Whether nobody has said anything to the run since: a message answers what was asked when it
    came, and these replies are its own."""
    answered = question.pending.prompts if question.is_message else {}
    said = await hub.read(
        question.run_id, after=_cursor_at(hub, question.run_id, question.seq), types=_SAID,
        limit=len(answered) + 1,
    )  # fmt: skip
    return all(isinstance(x, SessionReply) and x.prompt_id in answered for x in said)


async def _begun(hub: Hub, run_id: str, seq: int) -> ClientQuestion | None:
    """A question of which only its run's beginning is known; ``None`` for what is no root."""
    events = await hub.read(run_id, types=("session:open", "session:start"), limit=2)
    opening = events[0] if events else None
    if not isinstance(opening, SessionOpen) or opening.parent_run_id is not None:
        return None
    question = ClientQuestion(opening, seq)
    for event in events:
        if isinstance(event, SessionStart):
            question.began(event)
    return question


async def _read_up_to(
    hub: Hub, question: ClientQuestion, first: int, pending: PendingCalls
) -> tuple[SessionMessage | SessionReply, bool] | None:
    """The item, and whether a session began or ended behind the item ``first``, or before that."""
    run_id, is_whole = question.run_id, False
    after = _cursor_at(hub, run_id, first)
    try:
        while True:
            events = await hub.read(
                root_run_id=run_id, after=after, types=(*PENDING_TYPES, *_SAID), limit=PAGE
            )
            for event in events:
                if isinstance(event, SessionMessage | SessionReply) and event.run_id == run_id:
                    if event.seq == question.seq:
                        return event, is_whole
                    if event.seq > question.seq:
                        return None
                elif event.run_id == run_id and isinstance(event, SessionStart | SessionEnd):
                    is_whole = True
                pending.see(event)
            if len(events) < PAGE:
                return None
            after = hub.cursor(events[-1])
    except BadValue:
        return None  # There are not so many items.


def _cursor_at(hub: Hub, run_id: str, seq: int) -> str:
    """The place behind an item of a run's inbox."""
    return hub.cursor(SessionMessage(run_id=run_id, lane="in", seq=seq))
