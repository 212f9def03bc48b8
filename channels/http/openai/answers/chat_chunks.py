"""``ChatChunks``: an answer as the chunks of a chat completion, or as a whole one.

    role ──► reasoning_content … content … tool_calls ──► finish_reason ──► usage ──► [DONE]

What several model calls of one answer say is one content, with blank lines between.  What was
begun and withdrawn cannot be taken back; a line says that the answer begins again.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hubbub.channels.http.openai.answers.answer import AgentAnswer
from hubbub.channels.http.openai.answers.identifiers import chat_id
from hubbub.channels.http.openai.answers.parts import (
    AnswerMove,
    AnswerPart,
    PartClosed,
    PartGrew,
    PartOpened,
    PartsVoided,
)
from hubbub.channels.http.openai.answers.question import ClientQuestion
from hubbub.channels.http.openai.answers.refusals import Refused, error_body
from hubbub.channels.http.openai.answers.response_object import input_tokens_of, model_of
from hubbub.channels.http.openai.answers.turn import AgentTurn
from hubbub.hub.events import Event, Usage

__all__ = ["ChatChunks"]

AGAIN: Final = "\n\n(the answer broke off, and begins again)\n\n"


class ChatChunks:
    """The chunks of one completion.  ``see`` events; each returns the chunks that it makes."""

    __slots__ = (
        "_calls", "_gap", "_has_usage", "_is_finished", "_open", "_question", "answer", "turn",
    )  # fmt: skip

    def __init__(self, question: ClientQuestion, *, has_usage: bool = False) -> None:
        self._question = question
        self._has_usage = has_usage
        self.turn = AgentTurn(question)
        self.answer = AgentAnswer(question, self.turn)
        self._is_finished = False
        self._open: AnswerPart | None = None
        self._gap = ""
        """What stands between what was said and what comes."""
        self._calls = 0

    @property
    def is_over(self) -> bool:
        """Whether the last chunk was made."""
        return self._is_finished

    def begin(self) -> list[bytes]:
        """The chunk before any event."""
        return [self._chunk({"role": "assistant", "content": ""})]

    def see(self, event: Event) -> list[bytes]:
        """The chunks that an event makes."""
        if self._is_finished:
            return []
        self.turn.see(event)
        return self._finish() if self.turn.is_over else self._tell(self.answer.see(event))

    def settle(self) -> list[bytes]:
        """Nothing more is there for now."""
        self.turn.settle()
        return self._finish() if self.turn.is_over and not self._is_finished else []

    def rested(self) -> list[bytes]:
        """A code agent has been quiet for a while."""
        self.turn.rested()
        return self._finish() if self.turn.is_over and not self._is_finished else []

    def completion(self) -> dict[str, Any]:
        """The whole completion.  Raises ``Refused`` where the agent failed."""
        if self.turn.status == "failed":
            raise Refused(502, self.turn.why or "the agent failed")
        parts = self.answer.parts
        texts = [part.text for part in parts if part.kind == "text"]
        if value := self.answer.value:
            texts = [value]
        reasoning = [part.text for part in parts if part.kind == "reasoning"]
        calls = [_call(part) for part in parts if part.kind == "call"]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "\n\n".join(texts) if texts or not calls else None,
            "refusal": None,
        }
        if reasoning:
            message["reasoning_content"] = "\n\n".join(reasoning)
        if calls:
            message["tool_calls"] = calls
        choice = {
            "index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason,
        }  # fmt: skip
        return {
            **self._head("chat.completion"), "choices": [choice],
            "usage": _usage(self.answer.usage),
        }  # fmt: skip

    def trouble(self, refused: Refused) -> bytes:
        """What says that nothing more comes, though the answer is not whole."""
        return b"data: %s\n\n" % error_body(refused.status, refused.message)

    # ── moves ────────────────────────────────────────────────────────────────────────────────

    def _tell(self, moves: list[AnswerMove]) -> list[bytes]:
        chunks: list[bytes] = []
        for move in moves:
            match move:
                case PartOpened(part):
                    self._open = part
                    if part.kind == "call":
                        chunks.append(self._call_chunk({**_call(part), "index": self._calls}))
                case PartGrew(text) if self._open is not None:
                    chunks.append(self._more(self._open, text))
                case PartClosed(part):
                    self._open = None
                    self._gap = "\n\n" if part.kind == "text" else self._gap
                    self._calls += part.kind == "call"
                case PartsVoided(parts, _) if any(part.kind == "text" for part in parts):
                    self._gap = AGAIN
                case _:
                    pass
        return chunks

    def _more(self, part: AnswerPart, text: str) -> bytes:
        if part.kind == "call":
            call = {"index": self._calls, "function": {"arguments": text}}
            return self._call_chunk(call)
        if part.kind == "reasoning":
            return self._chunk({"reasoning_content": text})
        text, self._gap = self._gap + text, ""
        return self._chunk({"content": text})

    def _call_chunk(self, call: Mapping[str, Any]) -> bytes:
        return self._chunk({"tool_calls": [call]})

    def _finish(self) -> list[bytes]:
        chunks = self._tell(self.answer.finish())
        self._is_finished = True
        if self.turn.status == "failed":
            body = error_body(502, self.turn.why or "the agent failed")
            return [*chunks, b"data: %s\n\n" % body]
        chunks.append(self._chunk({}, self._finish_reason))
        if self._has_usage:
            usage = {
                **self._head("chat.completion.chunk"), "choices": [],
                "usage": _usage(self.answer.usage),
            }  # fmt: skip
            chunks.append(_encoded(usage))
        return chunks

    @property
    def _finish_reason(self) -> str:
        end = self.turn.ending
        if any(part.kind == "call" for part in self.answer.parts) and end is None:
            return "tool_calls"
        is_limited = end is not None and end.outcome == "limit"
        if self.answer.is_cut or is_limited or self.answer.stop_reason == "length":
            return "length"
        return "content_filter" if self.answer.stop_reason == "refusal" else "stop"

    # ── chunks ───────────────────────────────────────────────────────────────────────────────

    def _head(self, kind: str) -> dict[str, Any]:
        question = self._question
        return {
            "id": chat_id(question.run_id, question.seq),
            "object": kind,
            "created": question.item.at // 1_000_000,
            "model": model_of(question),
            "service_tier": None,
            "system_fingerprint": None,
        }

    def _chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = {**self._head("chat.completion.chunk"), "choices": [choice]}
        return _encoded({**chunk, "usage": None} if self._has_usage else chunk)


def _call(part: AnswerPart) -> dict[str, Any]:
    return {
        "id": part.call_id, "type": "function",
        "function": {"name": part.name, "arguments": part.text},
    }  # fmt: skip


def _usage(usage: Usage) -> dict[str, Any]:
    given = input_tokens_of(usage)
    return {
        "prompt_tokens": given,
        "completion_tokens": usage.output_tokens,
        "total_tokens": given + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _encoded(chunk: Mapping[str, Any]) -> bytes:
    return b"data: %s\n\n" % msgspec.json.encode(chunk)
