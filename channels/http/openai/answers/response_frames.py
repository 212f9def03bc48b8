"""``ResponseFrames``: an answer as the events of a response's stream, each with its number.

    response.created, response.in_progress
        output_item.added, content_part.added, output_text.delta …, output_text.done,
        content_part.done, output_item.done                         for each part
    response.completed, response.incomplete or response.failed

Numbers follow from the record: each event counts one, a delta as many as it has code points, and
its number is that of its last.  So ``starting_after`` may name any place of the stream, however
the text was cut into deltas the first time.  A model call that is repeated skips ``RESTART``
numbers, which what was previewed of it may have used; items that it had begun are withdrawn: they
end as ``incomplete``, and their place is taken by others.
"""

from typing import Any, Final

import msgspec

from hubbub.channels.http.openai.answers.answer import AgentAnswer
from hubbub.channels.http.openai.answers.identifiers import item_id
from hubbub.channels.http.openai.answers.parts import (
    AnswerMove,
    AnswerPart,
    AnswerRestarted,
    PartClosed,
    PartGrew,
    PartOpened,
    PartRecorded,
    PartsVoided,
)
from hubbub.channels.http.openai.answers.question import ClientQuestion
from hubbub.channels.http.openai.answers.refusals import Refused
from hubbub.channels.http.openai.answers.response_object import item_of, response_object
from hubbub.channels.http.openai.answers.turn import AgentTurn
from hubbub.hub.events import Event

__all__ = ["RESTART", "ResponseFrames"]

RESTART: Final = 1_000_000

_PREFIXES: Final = {"reasoning": "rs", "text": "msg", "call": "fc"}


class ResponseFrames:
    """The frames of one response behind number ``after``.

    ``see`` events; each returns the frames that it makes, encoded.
    """

    __slots__ = (
        "_after", "_base", "_closed", "_is_begun", "_is_finished", "_number", "_open", "_place",
        "_question", "_voids", "answer", "turn",
    )  # fmt: skip

    def __init__(self, question: ClientQuestion, after: int = -1) -> None:
        self._question = question
        self._after = after
        self.turn = AgentTurn(question)
        self.answer = AgentAnswer(question, self.turn)
        self._number = -1
        """The last number that was given."""
        self._base = -1
        """The last one of what is on record."""
        self._closed: list[int] = []
        """The last numbers of the parts that are closed and not on record."""
        self._open: AnswerPart | None = None
        self._place = 0
        """Where in the output the next part stands."""
        self._voids = 0
        self._is_begun = False
        self._is_finished = False

    @property
    def is_over(self) -> bool:
        """Whether the last frame was made."""
        return self._is_finished

    @property
    def last_number(self) -> int:
        """The number of the last frame."""
        return self._number

    def begin(self) -> list[bytes]:
        """The frames before any event."""
        response = self._response("queued" if self._is_background else "in_progress")
        frames = self._frame("response.created", response=response)
        if self._is_background:
            frames += self._frame("response.queued", response=response)
        frames += self._frame("response.in_progress", response=self._response("in_progress"))
        self._base = self._number
        return frames

    def see(self, event: Event) -> list[bytes]:
        """The frames that an event makes."""
        if self._is_finished:
            return []
        self.turn.see(event)
        if self.turn.is_over:
            return self._finish()
        return self._tell(self.answer.see(event))

    def settle(self) -> list[bytes]:
        """Nothing more is there for now."""
        self.turn.settle()
        return self._finish() if self.turn.is_over and not self._is_finished else []

    def rested(self) -> list[bytes]:
        """A code agent has been quiet for a while."""
        self.turn.rested()
        return self._finish() if self.turn.is_over and not self._is_finished else []

    def response(self) -> dict[str, Any]:
        """The response as far as it has come."""
        return self._response(self.turn.status)

    def trouble(self, refused: Refused) -> bytes:
        """The frame that says that nothing more comes, though the response is not over."""
        self._number += 1
        fields = {"code": refused.code or "server_error", "message": refused.message, "param": None}
        return _encoded(self._number, "error", fields)

    # ── moves ────────────────────────────────────────────────────────────────────────────────

    def _finish(self) -> list[bytes]:
        frames = self._tell(self.answer.finish())
        self._is_finished = True
        response = self.response()
        # There is no event for one that was cancelled: it ends as what it is, incomplete.
        kind = {"completed": "completed", "failed": "failed"}.get(response["status"], "incomplete")
        return frames + self._frame(f"response.{kind}", response=response)

    def _tell(self, moves: list[AnswerMove]) -> list[bytes]:
        frames: list[bytes] = []
        for move in moves:
            match move:
                case PartOpened(part):
                    frames += self._open_part(part)
                case PartGrew(text):
                    frames += self._delta(text)
                case PartClosed(part):
                    frames += self._close_part(part)
                case PartRecorded():
                    self._base = self._closed.pop(0)
                case PartsVoided():
                    frames += self._void(move)
                case AnswerRestarted():
                    self._number = self._base = self._base + RESTART
        return frames

    def _open_part(self, part: AnswerPart) -> list[bytes]:
        self._open = part
        frames = self._frame(
            "response.output_item.added", output_index=self._place,
            item=item_of(part, self._id(part), "in_progress"),
        )  # fmt: skip
        if part.kind == "text":
            frames += self._frame(
                "response.content_part.added", part=_text_part(""), **self._where(part)
            )
        elif part.kind == "reasoning":
            frames += self._frame(
                "response.reasoning_summary_part.added", part=_summary(""), **self._where(part)
            )
        return frames

    def _delta(self, text: str) -> list[bytes]:
        part = self._open
        assert part is not None
        kind, more = _DELTAS[part.kind]
        first = self._number + 1
        self._number += len(text)
        if self._number <= self._after:
            return []
        # Of what the client has had a part, it gets the rest.
        shown = text[max(0, self._after + 1 - first) :]
        return [_encoded(self._number, kind, {**self._where(part), "delta": shown, **more})]

    def _close_part(self, part: AnswerPart) -> list[bytes]:
        where, frames = self._where(part), []
        if part.kind == "text":
            frames += self._frame("response.output_text.done", text=part.text, logprobs=[], **where)
            frames += self._frame("response.content_part.done", part=_text_part(part.text), **where)
        elif part.kind == "reasoning":
            frames += self._frame("response.reasoning_summary_text.done", text=part.text, **where)
            frames += self._frame(
                "response.reasoning_summary_part.done", part=_summary(part.text), **where
            )
        else:
            frames += self._frame(
                "response.function_call_arguments.done", arguments=part.text, name=part.name,
                **where,
            )  # fmt: skip
        frames += self._frame(
            "response.output_item.done", output_index=self._place,
            item=item_of(part, self._id(part), "completed"),
        )  # fmt: skip
        self._open = None
        self._place += 1
        self._voids = 0
        self._closed.append(self._number)
        return frames

    def _void(self, move: PartsVoided) -> list[bytes]:
        """Withdraw what is not on record; its places and numbers are used again."""
        frames: list[bytes] = []
        if move.is_open:
            part = move.parts[-1]
            frames = self._frame(
                "response.output_item.done", output_index=self._place,
                item=item_of(part, self._id(part), "incomplete"),
            )  # fmt: skip
        self._open = None
        self._place -= len(self._closed)
        self._closed.clear()
        self._voids += 1
        self._number = self._base
        return frames

    # ── frames ───────────────────────────────────────────────────────────────────────────────

    @property
    def _is_background(self) -> bool:
        return bool(self._question.notes.get("background"))

    def _id(self, part: AnswerPart) -> str:
        question = self._question
        return item_id(
            _PREFIXES[part.kind], question.run_id, question.seq, self._place, self._voids
        )

    def _where(self, part: AnswerPart) -> dict[str, Any]:
        found: dict[str, Any] = {"item_id": self._id(part), "output_index": self._place}
        if part.kind == "text":
            found["content_index"] = 0
        elif part.kind == "reasoning":
            found["summary_index"] = 0
        return found

    def _frame(self, kind: str, **fields: Any) -> list[bytes]:
        self._number += 1
        if self._number <= self._after:
            return []
        return [_encoded(self._number, kind, fields)]

    def _response(self, status: str) -> dict[str, Any]:
        return response_object(self._question, self.turn, self.answer, status)


_DELTAS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "text": ("response.output_text.delta", {"logprobs": []}),
    "reasoning": ("response.reasoning_summary_text.delta", {}),
    "call": ("response.function_call_arguments.delta", {}),
}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _summary(text: str) -> dict[str, Any]:
    return {"type": "summary_text", "text": text}


def _encoded(number: int, kind: str, fields: dict[str, Any]) -> bytes:
    data = msgspec.json.encode({"type": kind, "sequence_number": number, **fields})
    return b"event: %s\nid: %d\ndata: %s\n\n" % (kind.encode(), number, data)
