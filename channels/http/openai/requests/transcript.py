"""``ClientTranscript``: what was said in a run, as another's history and as its client saw it."""

from collections.abc import Iterable, Sequence
from typing import Final

from hubbub.channels.http.openai.answers.answer import words_of
from hubbub.channels.http.openai.answers.question import ClientQuestion
from hubbub.channels.http.openai.answers.turn import AgentTurn
from hubbub.channels.http.openai.requests.wanted import Entry
from hubbub.hub.events import (
    AgentBase,
    AgentStep,
    AgentText,
    AgentToolComplete,
    ContentPart,
    Event,
    HistoryCall,
    HistoryMessage,
    SessionMessage,
    SessionOpen,
    SessionPrompt,
    SessionPush,
    SessionReply,
    SessionReset,
    SessionTaken,
)
from hubbub.hub.hub import Hub

__all__ = ["INSTRUCTIONS", "ClientTranscript", "extends", "read_transcript", "seen_by"]

INSTRUCTIONS: Final = "Instructions of the caller:\n"
"""Begins the message of a history that holds what the system said."""

_TYPES: Final = (
    "agent:base", "agent:text", "agent:step", "agent:tool:start", "agent:tool:complete",
    "agent:child", "agent:park", "agent:complete", "session:open", "session:message",
    "session:reply", "session:start", "session:taken", "session:dropped", "session:end",
    "session:push", "session:pop", "session:prompt", "session:prompt:end",
)  # fmt: skip


class _Said:
    """A message that may still grow."""

    __slots__ = ("calls", "is_shown_only", "parts", "role", "text")

    def __init__(
        self,
        role: str,
        text: str,
        *,
        is_shown_only: bool = False,
        parts: tuple[ContentPart, ...] = (),
    ) -> None:
        self.parts = parts
        self.role = role
        self.text = text
        self.calls: dict[tuple[int, int], HistoryCall] = {}
        self.is_shown_only = is_shown_only


class ClientTranscript:
    """What was said in a conversation.  ``see`` the events of its tree, from the first."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._speakers = {run_id}
        self._said: list[_Said] = []
        self._calls: dict[tuple[int, int], _Said] = {}
        self._asked_by_code: set[str] = set()
        """The prompts of the run that no call has asked: a reply is what was said to them."""
        self.is_cut = False
        """Whether old turns have gone, so that only what was said since is known."""

    def begin_behind(self) -> None:
        """Nothing is left of what was said so far, but for what came first."""
        self.is_cut = True
        self._said.clear()
        self._calls.clear()

    def see(self, event: Event) -> None:
        """Take note of the next event."""
        match event:
            case SessionTaken():
                for item in event.items:
                    self._take(item)
            case SessionPush() if event.run_id in self._speakers:
                self._speakers.add(event.frame_run_id)
            case AgentText() if event.run_id in self._speakers:
                self._said.append(_Said("assistant", event.text))
            case AgentStep() if event.run_id == self._run_id and event.calls:
                self._call(event)
            case AgentToolComplete() if event.run_id == self._run_id:
                self._answer(event)
            case SessionPrompt() if event.to == "user" and event.kind != "external":
                self._said.append(_Said("assistant", words_of(event), is_shown_only=True))
                if event.run_id == self._run_id and not event.call_id:
                    self._asked_by_code.add(event.prompt_id)
            case _:
                pass

    @property
    def history(self) -> tuple[HistoryMessage, ...]:
        """It as the history of another run: each call with its result, if it has one."""
        return tuple(
            HistoryMessage(
                role=x.role, content=x.text, calls=tuple(x.calls.values()), parts=x.parts
            )
            for x in self._said
            if not x.is_shown_only and (x.text.strip() or x.calls or x.parts)
        )

    @property
    def seen(self) -> list[tuple[str, str]]:
        """It as its client has seen it: roles and texts."""
        return _merged((x.role, x.text) for x in self._said)

    def _take(self, item: object) -> None:
        if isinstance(item, SessionReset):
            self._said.clear()
            if item.message:
                self._said.append(_Said("user", item.message))
        elif isinstance(item, SessionMessage):
            if item.role == "user":
                self._said.append(_Said("user", item.content, parts=item.parts))
        elif isinstance(item, SessionReply):
            if item.prompt_id in self._asked_by_code:
                self._said.append(_Said("user", item.content, is_shown_only=True))
        elif isinstance(item, SessionOpen) and item.run_id == self._run_id:
            for message in item.history:
                before = _Said(message.role, message.content, parts=message.parts)
                before.calls = {(0, at): call for at, call in enumerate(message.calls)}
                self._said.append(before)
            if item.input is not None:
                text = item.input
                if not isinstance(text, str):
                    text = bytes(item.input_json).decode()
                parts = () if item.message is None else item.message.parts
                self._said.append(_Said("user", text, parts=parts))

    def _call(self, event: AgentStep) -> None:
        last = self._said[-1] if self._said else None
        if last is None or last.role != "assistant" or last.calls or last.is_shown_only:
            last = _Said("assistant", "")
            self._said.append(last)
        for index, call in enumerate(event.calls):
            place = event.step, index
            last.calls[place] = HistoryCall(
                name=call.name, arguments=call.arguments or "{}", output="(no result)",
                is_error=True,
            )  # fmt: skip
            self._calls[place] = last

    def _answer(self, event: AgentToolComplete) -> None:
        place = event.step, event.index
        said = self._calls.pop(place, None)
        if said is not None:
            call = said.calls[place]
            said.calls[place] = HistoryCall(
                name=call.name, arguments=call.arguments, output=event.output,
                is_error=event.is_error,
            )  # fmt: skip


async def read_transcript(
    hub: Hub, question: ClientQuestion | None, run_id: str
) -> ClientTranscript:
    """What was said in a run, up to the end of the response to ``question`` if one is given."""
    transcript = ClientTranscript(run_id)
    turn = None if question is None else AgentTurn(question)
    for event in await hub.read(root_run_id=run_id, types=_TYPES):
        if turn is not None:
            turn.see(event)
            if turn.is_over:
                break
        transcript.see(event)
        if event.run_id == run_id and await _is_behind_gap(hub, event):
            transcript.begin_behind()
    return transcript


async def _is_behind_gap(hub: Hub, event: Event) -> bool:
    """Whether it is the base of a run whose turns before it have gone."""
    if not isinstance(event, AgentBase):
        return False
    return await hub.journal.position(event.run_id, event.lane, event.seq - 1) is None


def seen_by(entries: Iterable[Entry]) -> list[tuple[str, str]]:
    """A client's transcript: roles and texts."""
    return _merged((x.role, x.text) for x in entries if x.role != "output")


def extends(entries: Sequence[Entry], transcript: ClientTranscript) -> bool:
    """Whether a client's transcript is what was said, and one message of the user's more; where old
    turns have gone, whether it ends as they do that are left."""
    if not entries or entries[-1].role != "user":
        return False
    said, seen = seen_by(entries[:-1]), transcript.seen
    return (said[len(said) - len(seen) :] if transcript.is_cut else said) == seen


def _merged(said: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """What the assistant said in a row is one message; blank space does not count."""
    found: list[tuple[str, list[str]]] = []
    for role, text in said:
        text = " ".join(text.split())
        if not text or text.startswith(INSTRUCTIONS.strip()):
            continue
        if role == "assistant" and found and found[-1][0] == role:
            found[-1][1].append(text)
        else:
            found.append((role, [text]))
    return [(role, " ".join(texts)) for role, texts in found]
