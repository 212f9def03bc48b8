"""``ClientExchanges``: what was said in a run, as its client was told it, request by request.

    an item of the inbox ──► the answer to it, as it was told then ──► what was said later

An item begins an exchange, or is a result of the client's calls, which one exchange has many of.
The answers are those that the client was sent, made again from the same events; so what is asked
once more, or later than it was recorded, stands here as it stands in the client's transcript.
"""

from collections.abc import Sequence
from typing import Final

from hubbub.channels.http.openai.answers.answer import AgentAnswer, approves, words_of
from hubbub.channels.http.openai.answers.following import QUIET
from hubbub.channels.http.openai.answers.pending_calls import PENDING_TYPES, PendingCalls
from hubbub.channels.http.openai.answers.question import ClientQuestion
from hubbub.channels.http.openai.answers.turn import AgentTurn
from hubbub.channels.http.openai.requests.behind_gap import is_behind_gap
from hubbub.channels.http.openai.requests.extending import Exchange, Telling
from hubbub.hub.events import (
    AgentText,
    Event,
    SessionEnd,
    SessionMessage,
    SessionOpen,
    SessionPrompt,
    SessionPromptEnd,
    SessionPush,
    SessionReply,
    SessionReset,
    SessionStart,
    SessionTaken,
)
from hubbub.hub.hub import Hub
from hubbub.hub.values import NULL

__all__ = ["ClientExchanges", "read_exchanges"]

_TYPES: Final = (
    *PENDING_TYPES, "agent:base", "agent:text", "agent:step", "session:open",
    "session:message", "session:reply", "session:taken", "session:dropped", "session:pop",
)  # fmt: skip


class _Answering:
    """An answer that is being told."""

    __slots__ = ("_answer", "_last_at", "_telling", "_turn")

    def __init__(self, question: ClientQuestion, pending: PendingCalls, telling: Telling) -> None:
        self._turn = AgentTurn(question, pending)
        self._answer = AgentAnswer(question, self._turn)
        self._telling = telling
        self._last_at = 0

    def see(self, event: Event) -> bool:
        """Whether the event is told of in the answer."""
        turn = self._turn
        if turn.is_over:
            return False
        if event.at - self._last_at >= QUIET * 1_000_000:
            turn.rested()
        self._last_at = event.at
        turn.see(event)
        if turn.is_over:
            self._answer.finish()
            return False
        self._answer.see(event)
        return True

    def settle(self) -> None:
        """Nothing more is there for now."""
        if not self._turn.is_over:
            self._turn.settle()
            if self._turn.is_over:
                self._answer.finish()
        self.note()

    def note(self) -> None:
        """Write down what was told so far."""
        answer, telling = self._answer, self._telling
        telling.told = [part.text for part in answer.parts if part.kind == "text"]
        telling.value = answer.value
        telling.has_calls = any(part.kind == "call" for part in answer.parts)


class ClientExchanges:
    """What was said in a conversation.  ``see`` the events of its tree, from the first."""

    def __init__(self, opening: SessionOpen) -> None:
        self._opening = opening
        self._start: SessionStart | None = None
        self._speakers = {opening.run_id}
        self._said: list[Exchange] = []
        self._pending = ClientQuestion(opening, 1).pending
        self._prompts: dict[str, SessionPrompt] = {}
        """What people were asked, by prompt, until it is answered."""
        self._shown_in: dict[str, Telling] = {}
        """Where each of it was told first."""
        self._arrived: dict[int, tuple[ClientQuestion, SessionPrompt | None]] = {}
        """What has yet to be taken, by number; of a reply what it replies to."""
        self._answering: _Answering | None = None
        self._telling: Telling | None = None
        """What is told now: in an answer, or to nobody behind it."""
        self.is_cut = False
        """Whether old turns have gone, so that only what was said since is known."""

    def begin_behind(self) -> None:
        """Nothing is left of what was said so far, but for what came first."""
        self.is_cut = True
        self._forget()

    def see(self, event: Event) -> None:
        """Take note of the next event."""
        was_telling = self._answering is not None
        if self._answering is not None and not self._answering.see(event):
            self._stop_telling()
        self._pending.see(event)
        is_own = event.run_id == self._opening.run_id
        match event:
            case SessionStart() if is_own:
                self._start = self._start or event
            case SessionMessage() | SessionReply() if is_own:
                self._arrive(event)
            case SessionTaken():
                self._take(event)
            case SessionPush() if event.run_id in self._speakers:
                self._speakers.add(event.frame_run_id)
            case AgentText() if event.run_id in self._speakers:
                self._now().whole.append(event.text)
            case SessionPrompt() if event.to == "user":
                self._ask(event)
            case SessionPromptEnd():
                self._prompts.pop(event.prompt_id, None)
                if (shown := self._shown_in.pop(event.prompt_id, None)) is not None:
                    del shown.questions[event.prompt_id]
            case SessionEnd() if is_own and not was_telling and event.output_json is not NULL:
                said = event.output
                text = said if isinstance(said, str) else bytes(event.output_json).decode()
                self._now().value = text
            case _:
                pass

    @property
    def said(self) -> Sequence[Exchange]:
        """What was said, as its clients may have seen it."""
        if self._answering is not None:
            self._answering.settle()
        return self._said

    @property
    def waiting(self) -> list[Exchange]:
        """What was said, and is not taken yet."""
        found = [_begun_with(*x) for x in self._arrived.values() if not _has_result(*x)]
        return [x for x in found if x is not None]

    # ── what is said to the run ──────────────────────────────────────────────────────────────

    def _arrive(self, item: SessionMessage | SessionReply) -> None:
        """A code agent's answer begins with an item's coming; another's, when it is taken."""
        question = self._question_of(item)
        asked = self._prompts.pop(item.prompt_id, None) if isinstance(item, SessionReply) else None
        if asked is not None and question.is_call(asked) and self._waits_for_results(question):
            asked = None  # More come with it, and the last of them is answered.
        if question.is_code:
            self._begin_with(question, asked)
        else:
            self._arrived[item.seq] = question, asked

    def _waits_for_results(self, question: ClientQuestion) -> bool:
        return any(map(question.is_call, self._prompts.values()))

    def _question_of(self, item: SessionOpen | SessionMessage | SessionReply) -> ClientQuestion:
        question = ClientQuestion(self._opening, item.seq)
        question.item, question.pending = item, self._pending.copy()
        if self._start is not None:
            question.began(self._start)
        return question

    def _take(self, event: SessionTaken) -> None:
        for item in event.items:
            if item.run_id != self._opening.run_id:
                continue
            if isinstance(item, SessionReset):
                self._forget()
                self._said.append(Exchange(item.message))
            elif isinstance(item, SessionOpen):
                self._hear_history(item)
                self._begin_with(self._question_of(item), None)
            elif (arrived := self._arrived.pop(item.seq, None)) is not None:
                self._begin_with(*arrived)
        if self._answering is not None:
            self._answering.see(event)

    def _begin_with(self, question: ClientQuestion, asked: SessionPrompt | None) -> None:
        """Begin an exchange with an item, or go on in the last one, if it is one that clients
        send."""
        if _has_result(question, asked):
            self._tell(question, Telling(is_of_results=True))
            return
        begun = _begun_with(question, asked)
        if begun is None:
            return
        if not isinstance(question.item, SessionOpen) or question.item.input is not None:
            self._said.append(begun)
        self._tell(question, Telling())

    def _hear_history(self, item: SessionOpen) -> None:
        """What was said before, elsewhere."""
        for message in item.history:
            if message.role == "user":
                self._said.append(Exchange(message.content))
            else:
                telling = Telling(has_calls=bool(message.calls))
                telling.told.append(message.content)
                self._last().tellings.append(telling)

    # ── what is told ─────────────────────────────────────────────────────────────────────────

    def _tell(self, question: ClientQuestion, telling: Telling) -> None:
        self._stop_telling()
        self._last().tellings.append(telling)
        self._telling = telling
        self._answering = _Answering(question, self._pending, telling)

    def _stop_telling(self) -> None:
        if self._answering is not None:
            self._answering.note()
        self._answering = self._telling = None

    def _now(self) -> Telling:
        """Where it stands what is said now; behind the end of an answer its client is told of
        nothing."""
        if self._telling is None:
            self._telling = telling = Telling(is_unheard=bool(self._said))
            if not self._said:  # The beginning has gone, of which the client was told.
                telling.told = telling.whole
            self._last().tellings.append(telling)
        return self._telling

    def _last(self) -> Exchange:
        if not self._said:
            self._said.append(Exchange())
        return self._said[-1]

    def _ask(self, prompt: SessionPrompt) -> None:
        self._prompts[prompt.prompt_id] = prompt
        if prompt.kind != "external":
            telling = self._now()
            words = words_of(prompt)
            telling.whole.append(words)
            telling.questions[prompt.prompt_id] = words
            self._shown_in[prompt.prompt_id] = telling

    def _forget(self) -> None:
        self._said.clear()
        self._shown_in.clear()
        self._stop_telling()


def _has_result(question: ClientQuestion, asked: SessionPrompt | None) -> bool:
    """Whether an item is the result of a call of the client's."""
    item = question.item
    if asked is None or asked.run_id != item.run_id:
        return False
    is_reply = isinstance(item, SessionReply) and item.decision != "deny"
    return is_reply and question.is_call(asked)


def _begun_with(question: ClientQuestion, asked: SessionPrompt | None) -> Exchange | None:
    """What an item says, if clients send such."""
    item = question.item
    if isinstance(item, SessionReply):
        if asked is None or asked.run_id != item.run_id or item.decision == "deny":
            return None  # Who denies says it in a message, and so does who answers a child.
        if asked.kind != "approval" and asked.call_id:
            return None
        text = "approve" if asked.kind == "approval" else item.content
        return Exchange(text, is_reply=True, seq=item.seq, is_answer=bool(question.notes))
    if isinstance(item, SessionMessage):
        if item.role != "user":
            return None
        is_answer = bool(question.notes) and (bool(question.asked) or approves(item.content))
        return Exchange(item.content, seq=item.seq, is_answer=is_answer)
    text = item.input
    if not isinstance(text, str):
        text = bytes(item.input_json).decode()
    return Exchange(text, seq=item.seq)


async def read_exchanges(hub: Hub, opening: SessionOpen) -> ClientExchanges:
    """What was said in a run so far."""
    exchanges = ClientExchanges(opening)
    for event in await hub.read(root_run_id=opening.run_id, types=_TYPES):
        exchanges.see(event)
        if event.run_id == opening.run_id and await is_behind_gap(hub, event):
            exchanges.begin_behind()
    return exchanges
