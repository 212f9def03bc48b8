"""``RunTranscript``: what was said in a run, as the history of another."""

from typing import Final

from msgspec import Struct, field

from hubbub.channels.http.openai.answers.question import ClientQuestion
from hubbub.channels.http.openai.answers.turn import AgentTurn
from hubbub.channels.http.openai.requests.behind_gap import is_behind_gap
from hubbub.hub.events import (
    AgentStep,
    AgentText,
    AgentToolComplete,
    ContentPart,
    Event,
    HistoryCall,
    HistoryMessage,
    SessionMessage,
    SessionOpen,
    SessionPush,
    SessionReset,
    SessionTaken,
)
from hubbub.hub.hub import Hub

__all__ = ["RunTranscript", "read_history"]

_TYPES: Final = (
    "agent:base", "agent:text", "agent:step", "agent:tool:start", "agent:tool:complete",
    "agent:child", "agent:park", "agent:complete", "session:open", "session:message",
    "session:reply", "session:start", "session:taken", "session:dropped", "session:end",
    "session:push", "session:pop", "session:prompt", "session:prompt:end",
)  # fmt: skip


class _Heard(Struct):
    """A message that may still grow."""

    role: str
    text: str
    parts: tuple[ContentPart, ...] = ()
    calls: dict[tuple[int, int], HistoryCall] = field(default_factory=dict)


class RunTranscript:
    """What was said in a conversation.  ``see`` the events of its tree, from the first."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._speakers = {run_id}
        self._said: list[_Heard] = []
        self._calls: dict[tuple[int, int], _Heard] = {}

    def begin_behind(self) -> None:
        """Nothing is left of what was said so far, but for what came first."""
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
                self._said.append(_Heard("assistant", event.text))
            case AgentStep() if event.run_id == self._run_id and event.calls:
                self._call(event)
            case AgentToolComplete() if event.run_id == self._run_id:
                self._answer(event)
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
            if x.text.strip() or x.calls or x.parts
        )

    def _take(self, item: object) -> None:
        if isinstance(item, SessionReset):
            self._said.clear()
            if item.message:
                self._said.append(_Heard("user", item.message))
        elif isinstance(item, SessionMessage):
            if item.role == "user":
                self._said.append(_Heard("user", item.content, parts=item.parts))
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

    def _call(self, event: AgentStep) -> None:
        last = self._said[-1] if self._said else None
        if last is None or last.role != "assistant" or last.calls:
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


async def read_history(
    hub: Hub, question: ClientQuestion | None, run_id: str
) -> tuple[HistoryMessage, ...]:
    """What was said in a run, up to the end of the response to ``question`` if one is given."""
    transcript = RunTranscript(run_id)
    turn = None if question is None else AgentTurn(question)
    for event in await hub.read(root_run_id=run_id, types=_TYPES):
        if turn is not None:
            turn.see(event)
            if turn.is_over:
                break
        transcript.see(event)
        if event.run_id == run_id and await is_behind_gap(hub, event):
            transcript.begin_behind()
    return transcript.history
