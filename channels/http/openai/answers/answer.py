"""``AgentAnswer``: the parts of what a run says to its client, from its events.

    deltas            a preview of the parts that the next record will hold
    thinking, text    the parts; what the preview has told of them is not told again
    prompts           calls for the client, and questions, which are told as text
    retry, restore    what was previewed is void

So what is told follows from the record alone; only how a text is cut into pieces does not.  Of a
text that is longer than its client asked for only the beginning is told.
"""

from typing import Final

from msgspec.structs import replace

from hubbub.channels.http.openai.answers.identifiers import call_id_of
from hubbub.channels.http.openai.answers.parts import (
    AnswerMove,
    AnswerPart,
    AnswerRestarted,
    PartClosed,
    PartGrew,
    PartKind,
    PartOpened,
    PartRecorded,
    PartsVoided,
)
from hubbub.channels.http.openai.answers.question import ClientQuestion
from hubbub.channels.http.openai.answers.text_limit import TextLimit
from hubbub.channels.http.openai.answers.turn import AgentTurn
from hubbub.hub.events import (
    NO_USAGE,
    AgentRestore,
    AgentRetry,
    AgentStep,
    AgentText,
    AgentTextDelta,
    AgentThinking,
    AgentThinkingDelta,
    Event,
    SessionPrompt,
)
from hubbub.hub.values import NULL

__all__ = ["MAX_PREVIEW", "AgentAnswer", "approves", "words_of"]

MAX_PREVIEW: Final = 500_000
"""Code points of one model answer that are told before they are on record."""


HOW_TO_APPROVE: Final = 'Say "approve" to allow it, or why not.'
"""Ends what a person is told who is asked for an approval."""


class _Shown:
    """A part of the preview."""

    __slots__ = ("block", "is_closed", "is_open", "kind", "said", "size", "text")

    def __init__(self, kind: PartKind, block: int) -> None:
        self.kind = kind
        self.block = block
        self.said = ""
        self.text = ""
        """What is told of what was said."""
        self.is_open = False
        self.is_closed = False
        self.size = 0
        """What has come of it, in code points."""


class AgentAnswer:
    """The parts of one answer.  ``see`` returns the moves that an event makes.

    It follows the ``turn``, which must have seen the event before.
    """

    __slots__ = (
        "_attempt", "_deferred", "_is_held", "_limit", "_question", "_shown", "_turn", "_units",
        "model", "parts", "stop_reason", "usage",
    )  # fmt: skip

    def __init__(self, question: ClientQuestion, turn: AgentTurn) -> None:
        self._question = question
        self._turn = turn
        self.parts: list[AnswerPart] = []
        """What is on record."""
        self.usage = NO_USAGE
        self.stop_reason = ""
        """Why the last model call ended, in the provider's word."""
        self.model = ""
        self._limit = TextLimit(question.notes)
        self._deferred: list[AnswerPart] = []
        """What somebody asks who does not have the conversation: told when the speaker is done."""
        self._shown: list[_Shown] = []
        self._attempt: tuple[str, int, int] | None = None
        """Which answer is previewed: run, step, attempt."""
        self._is_held = False
        """Whether nothing more is previewed of it."""
        self._units = 0

    @property
    def is_cut(self) -> bool:
        """Whether there was more text than the client asked for."""
        return self._limit.is_cut

    @property
    def value(self) -> str:
        """The value that a model's turn came to, as JSON; empty where it came to words."""
        end = self._turn.ending
        if end is None or not (end.success and self.stop_reason) or end.output_json is NULL:
            return ""
        return "" if isinstance(end.output, str) else bytes(end.output_json).decode()

    def see(self, event: Event) -> list[AnswerMove]:
        """Take note of the next event."""
        if isinstance(event, SessionPrompt):
            return self._asked(event) if self._turn.status != "queued" else []
        if self._turn.status == "queued" or event.run_id not in self._turn.speakers:
            return []
        match event:
            case AgentTextDelta() | AgentThinkingDelta():
                return self._preview(event)
            case AgentThinking():
                return self._record("reasoning", event.block, event.text)
            case AgentText():
                return self._record("text", event.block, event.text)
            case AgentStep():
                self.usage += event.usage
                self.stop_reason, self.model = event.stop_reason, event.model
                return [*self._drop_preview(), *self._tell_deferred()]
            case AgentRetry() | AgentRestore():
                return [*self._drop_preview(), AnswerRestarted()]
            case _:
                return []

    def finish(self) -> list[AnswerMove]:
        """The turn is over: what its end says beside."""
        moves = [*self._drop_preview(), *self._tell_deferred()]
        for prompt in self._turn.left_open:
            moves += self._tell(self._part_of(prompt))  # Once more: it is this that is waited for.
        end = self._turn.ending
        if end is None or end.output_json is NULL or any(x.kind == "text" for x in self.parts):
            return moves
        if self._limit.is_over:  # There was text, of which nothing may be told.
            return moves
        said = end.output
        text = said if isinstance(said, str) else bytes(end.output_json).decode()
        return [*moves, *self._tell(AnswerPart(kind="text", text=text))] if text.strip() else moves

    # ── the preview ──────────────────────────────────────────────────────────────────────────

    def _preview(self, event: AgentTextDelta | AgentThinkingDelta) -> list[AnswerMove]:
        moves: list[AnswerMove] = []
        about = event.run_id, event.step, event.attempt
        if about != self._attempt:
            moves += self._drop_preview()
            self._attempt = about
        if self._is_held:
            return moves
        kind: PartKind = "text" if isinstance(event, AgentTextDelta) else "reasoning"
        shown = self._shown[-1] if self._shown else None
        if shown is None or (shown.kind, shown.block) != (kind, event.block):
            if event.offset or (shown is not None and not _follows(shown, kind, event.block)):
                self._is_held = True
                return moves
            if shown is not None:
                moves += self._close_preview(shown)
            shown = _Shown(kind, event.block)
            self._shown.append(shown)
        new = event.text[max(0, shown.size - event.offset) :]
        self._units += len(new)
        if event.offset > shown.size or self._units > MAX_PREVIEW:
            self._is_held = True
            return moves
        shown.size += len(new)
        shown.said += new
        allowed = self._limit.allowed(shown.said) if kind == "text" else shown.said
        return [*moves, *_grow(shown, allowed)]

    def _close_preview(self, shown: _Shown) -> list[AnswerMove]:
        if not shown.is_open or shown.is_closed:
            return []
        shown.is_closed = True
        return [PartClosed(_part_of(shown))]

    def _drop_preview(self) -> list[AnswerMove]:
        """Nothing of the preview that is not on record counts any more."""
        opened = [shown for shown in self._shown if shown.is_open]
        self._shown, self._attempt, self._is_held, self._units = [], None, False, 0
        if not opened:
            return []
        return [PartsVoided(tuple(map(_part_of, opened)), not opened[-1].is_closed)]

    # ── the record ───────────────────────────────────────────────────────────────────────────

    def _record(self, kind: PartKind, block: int, text: str) -> list[AnswerMove]:
        if kind == "text":
            text = self._limit.take(text)
        if not text.strip():
            return []
        part = AnswerPart(kind=kind, text=text)
        while self._shown and not self._shown[0].is_open:
            del self._shown[0]
        if not self._shown:
            return self._tell(part)
        shown = self._shown[0]
        fits = (shown.kind, shown.block) == (kind, block) and text.startswith(shown.text)
        if not fits or (shown.is_closed and text != shown.text):
            return [*self._drop_preview(), *self._tell(part)]
        del self._shown[0]
        self.parts.append(part)
        if shown.is_closed:
            return [PartRecorded()]
        rest = text[len(shown.text) :]
        return [*([PartGrew(rest)] if rest else ()), PartClosed(part), PartRecorded()]

    def _tell(self, part: AnswerPart) -> list[AnswerMove]:
        self.parts.append(part)
        return [
            PartOpened(replace(part, text="")),
            PartGrew(part.text),
            PartClosed(part),
            PartRecorded(),
        ]

    # ── what people are asked ────────────────────────────────────────────────────────────────

    def _asked(self, prompt: SessionPrompt) -> list[AnswerMove]:
        if prompt.to != "user" or not self._question.is_for_people(prompt):
            return []
        part = self._part_of(prompt)
        if prompt.run_id not in self._turn.speakers:
            self._deferred.append(part)
            return []
        return [*self._drop_preview(), *self._tell(part)]

    def _part_of(self, prompt: SessionPrompt) -> AnswerPart:
        if self._question.is_call(prompt):
            return AnswerPart(
                kind="call", text=bytes(prompt.arguments_json).decode(), name=prompt.tool,
                call_id=call_id_of(prompt.prompt_id),
            )  # fmt: skip
        return AnswerPart(kind="text", text=words_of(prompt))

    def _tell_deferred(self) -> list[AnswerMove]:
        deferred, self._deferred = self._deferred, []
        return [move for part in deferred for move in self._tell(part)]


def _follows(shown: _Shown, kind: PartKind, block: int) -> bool:
    """Whether a part comes behind another on record, where reasoning comes first."""
    if shown.kind == kind:
        return block > shown.block
    return kind == "text"


def _grow(shown: _Shown, allowed: str) -> list[AnswerMove]:
    """Tell what is ``allowed``; nothing is opened for blank space alone."""
    new = allowed[len(shown.text) :]
    if not new or not (shown.is_open or allowed.strip()):
        return []
    moves: list[AnswerMove] = [] if shown.is_open else [PartOpened(AnswerPart(kind=shown.kind))]
    shown.is_open, shown.text = True, allowed
    return [*moves, PartGrew(new)]


def _part_of(shown: _Shown) -> AnswerPart:
    return AnswerPart(kind=shown.kind, text=shown.text)


def approves(text: str) -> bool:
    """Whether a person says so that a call is approved."""
    return text.strip().lower() == "approve"


def words_of(prompt: SessionPrompt) -> str:
    """A question to the user, as text."""
    if prompt.kind == "approval":
        arguments = bytes(prompt.arguments_json).decode()
        return f"{prompt.question}\n\n{arguments}\n\n{HOW_TO_APPROVE}"
    options = "".join(f"\n- {option}" for option in prompt.options)
    return prompt.question + (f"\n{options}" if options else "")
