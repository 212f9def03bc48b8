"""``ClientTranscript``: what was said in a run, as another's history and as its client saw it."""

from collections.abc import Sequence
from typing import Final

from msgspec import field

from hubbub.channels.http.openai.answers.answer import words_of
from hubbub.channels.http.openai.answers.question import ClientQuestion, notes_of
from hubbub.channels.http.openai.answers.text_limit import TextLimit
from hubbub.channels.http.openai.answers.turn import AgentTurn
from hubbub.channels.http.openai.requests.extending import SeenMessage
from hubbub.hub.events import (
    AgentBase,
    AgentStep,
    AgentText,
    AgentToolComplete,
    ContentPart,
    Event,
    HistoryCall,
    HistoryMessage,
    SessionEnd,
    SessionMessage,
    SessionOpen,
    SessionPrompt,
    SessionPromptEnd,
    SessionPush,
    SessionReply,
    SessionReset,
    SessionTaken,
)
from hubbub.hub.hub import Hub
from hubbub.hub.values import NULL

__all__ = ["ClientTranscript", "read_transcript"]

_TYPES: Final = (
    "agent:base", "agent:text", "agent:step", "agent:tool:start", "agent:tool:complete",
    "agent:child", "agent:park", "agent:complete", "session:open", "session:message",
    "session:reply", "session:start", "session:taken", "session:dropped", "session:end",
    "session:push", "session:pop", "session:prompt", "session:prompt:end",
)  # fmt: skip


class _Heard(SeenMessage):
    """A message that may still grow."""

    parts: tuple[ContentPart, ...] = ()
    calls: dict[tuple[int, int], HistoryCall] = field(default_factory=dict)
    is_shown_only: bool = False
    """Whether no agent has heard or said it so."""


class ClientTranscript:
    """What was said in a conversation.  ``see`` the events of its tree, from the first."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._speakers = {run_id}
        self._said: list[_Heard] = []
        self._calls: dict[tuple[int, int], _Heard] = {}
        self._asked: dict[str, SessionPrompt] = {}
        """What people are asked, by prompt."""
        self._limit = TextLimit({})
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
                told = self._limit.take(event.text)
                self._said.append(_Heard("assistant", event.text, told=told))
            case SessionEnd() if event.run_id == self._run_id and event.output_json is not NULL:
                self._end(event)
            case AgentStep() if event.run_id == self._run_id and event.calls:
                self._call(event)
            case AgentToolComplete() if event.run_id == self._run_id:
                self._answer(event)
            case SessionPrompt() if event.to == "user" and event.kind != "external":
                self._said.append(_Heard("assistant", words_of(event), is_shown_only=True))
                self._asked[event.prompt_id] = event
            case SessionPromptEnd():
                self._asked.pop(event.prompt_id, None)
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
    def said(self) -> Sequence[SeenMessage]:
        """What was said, as its clients may have seen it."""
        return self._said

    def _take(self, item: object) -> None:
        if isinstance(item, SessionReset):
            self._said.clear()
            if item.message:
                self._said.append(_Heard("user", item.message))
        elif isinstance(item, SessionMessage):
            if item.role == "user":
                self._said.append(_Heard("user", item.content, parts=item.parts))
                self._limit = TextLimit(notes_of(item))
        elif isinstance(item, SessionReply):
            self._reply(item)
        elif isinstance(item, SessionOpen) and item.run_id == self._run_id:
            for message in item.history:
                before = _Heard(message.role, message.content, parts=message.parts)
                before.calls = {(0, at): call for at, call in enumerate(message.calls)}
                self._said.append(before)
            if item.input is not None:
                text = item.input
                if not isinstance(text, str):
                    text = bytes(item.input_json).decode()
                parts = () if item.message is None else item.message.parts
                self._said.append(_Heard("user", text, parts=parts))
                self._limit = TextLimit(notes_of(item.message))

    def _reply(self, item: SessionReply) -> None:
        """What the client of a question said; who denies says it in a message."""
        prompt = self._asked.pop(item.prompt_id, None)
        if prompt is None or prompt.run_id != self._run_id or item.decision == "deny":
            return
        if prompt.kind == "approval":
            text = "approve"
        elif not prompt.call_id:
            text = item.content
        else:
            return
        self._said.append(_Heard("user", text, is_reply=True, is_shown_only=True))
        self._limit = TextLimit({})
        self._said += [
            _Heard("assistant", words_of(each), is_again=True, is_shown_only=True)
            for each in self._asked.values()
        ]

    def _end(self, end: SessionEnd) -> None:
        """A turn that came to a value: that may be all that its client was told."""
        said = end.output
        value = said if isinstance(said, str) else bytes(end.output_json).decode()
        last = self._said[-1] if self._said else None
        if last is None or last.role != "assistant":
            last = _Heard("assistant", "", is_shown_only=True)
            self._said.append(last)
        last.value = value

    def _call(self, event: AgentStep) -> None:
        last = self._said[-1] if self._said else None
        if last is None or last.role != "assistant" or last.calls or last.is_shown_only:
            last = _Heard("assistant", "")
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
