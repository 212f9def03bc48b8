"""``AnthropicAnswer``: one answer of the Messages interface, event by event, into a reply.

The events, and what each adds (anything else is skipped, as Anthropic asks of its clients):

    message_start         the model's full name, usage so far
    content_block_start   a block: text, thinking, redacted_thinking, tool_use
    content_block_delta   text_delta, thinking_delta, signature_delta, input_json_delta
    message_delta         the stop reason, usage so far
    message_stop          the end; without it the stream was cut
    error                 raised as if it were an HTTP status

Text is the concatenation of all text blocks.  Usage is counted as Anthropic does, so
``input_tokens`` leaves out what was read from or written to the cache.  Blocks of server-side
tools are skipped: nobody here has to answer them.
"""

from operator import itemgetter
from typing import Any, Final, NoReturn

import msgspec
from msgspec import Raw, Struct

from hubbub.agents.model import (
    CallDelta,
    Delta,
    ModelReply,
    OnDelta,
    TextDelta,
    Thinking,
    ThinkingDelta,
    ToolCall,
    Usage,
)
from hubbub.runtime.models.http.counts import counted
from hubbub.runtime.models.http.errors import ProviderOrigin
from hubbub.runtime.models.http.halves import AnswerDecoder
from hubbub.runtime.models.http.members import counted_in, is_given, object_in, said

__all__ = ["AnthropicAnswer"]

_STOP_REASONS: Final = {
    "end_turn": "end",
    "tool_use": "tools",
    "max_tokens": "length",
}
_COUNTS: Final = (
    "input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"
)  # fmt: skip
_NO_INPUT: Final = ("", "[]", '""', "0", "false")
_THINKING: Final = ("thinking", "redacted_thinking")
_STATUS_OF_ERROR: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class _Block(Struct, gc=False):
    """A content block: of a whole message, opening in a stream, or as far as it has come."""

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = Raw()


class _Delta(Struct, gc=False):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    stop_reason: str | None = None


class _Error(Struct, gc=False):
    type: str = ""
    message: str = ""


class _Message(Struct, gc=False):
    model: str = ""
    usage: Raw = Raw()


class _Event(Struct, gc=False):
    type: str
    index: int = -1
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: Raw = Raw()
    error: _Error | None = None


class _WholeMessage(_Message, gc=False):
    type: str = ""
    content: list[_Block] = []
    stop_reason: str | None = None
    error: _Error | None = None


_decode_event: Final = AnswerDecoder(_Event)
_decode_message: Final = AnswerDecoder(_WholeMessage)


class _OpenBlock:
    """A block with the pieces of its text or arguments."""

    __slots__ = ("begun", "call_index", "pieces", "signature", "thought_index")

    def __init__(self, begun: _Block, call_index: int, thought_index: int) -> None:
        self.begun = begun
        self.call_index = call_index
        self.thought_index = thought_index
        self.signature = [begun.signature or ""]
        self.pieces: list[str] = [begun.text or begun.thinking or ""]

    def arguments(self) -> str:
        # Some servers put the whole input into the opening event and send no deltas.
        if pieces := "".join(self.pieces):
            return pieces
        given = object_in(self.begun.input) if is_given(self.begun.input) else ""
        return "{}" if given in _NO_INPUT else given


class AnthropicAnswer:
    """Takes the events of one answer, hands on the deltas, ends up as the reply."""

    def __init__(self, origin: ProviderOrigin, on_delta: OnDelta | None) -> None:
        self._origin = origin
        self._on_delta = on_delta
        self._blocks: list[tuple[int, _OpenBlock]] = []
        self._open_at: dict[int, _OpenBlock] = {}
        """The block that each index stands for; some servers use one for several, in turn."""
        self._calls = 0
        self._thoughts = 0
        self._usage: dict[str, Any] = {}
        self._stop_reason = ""
        self._model = ""

    def event(self, data: bytes) -> bool:
        event = _decode_event(data)
        match event.type:
            case "content_block_delta":
                self._grow(event.index, event.delta or _Delta())
            case "content_block_start" if event.content_block is not None:
                self._open(event.index, event.content_block)
            case "message_start" if event.message is not None:
                self._model = event.message.model
                self._count(event.message.usage)
            case "message_delta":
                self._count(event.usage)
                if event.delta is not None and event.delta.stop_reason:
                    self._stop_reason = event.delta.stop_reason
            case "message_stop":
                return True
            case "error":
                self._refuse(event.error)
            case _:
                # ping, content_block_stop, and whatever Anthropic adds later.
                pass
        return False

    def body(self, data: bytes) -> None:
        message = _decode_message(data)
        if message.error is not None or message.type != "message":
            self._refuse(message.error)
        self._model = message.model
        self._stop_reason = message.stop_reason or ""
        self._count(message.usage)
        for index, block in enumerate(counted_in(message.content, "blocks")):
            self._open(index, block)

    def may_end(self) -> bool:
        # Only ``message_stop`` ends a stream, and then nobody asks any more.
        return False

    def reply(self, name: str) -> ModelReply:
        # Of one index, in the order in which they came.
        blocks = [block for _, block in sorted(self._blocks, key=itemgetter(0))]
        stop_reason = _STOP_REASONS.get(self._stop_reason, self._stop_reason)
        return ModelReply(
            text="".join("".join(each.pieces) for each in blocks if each.begun.type == "text"),
            thinking=tuple(map(_thinking, (each for each in blocks if _is_thinking(each)))),
            calls=tuple(
                ToolCall(
                    id=each.begun.id or "",
                    name=each.begun.name or "",
                    arguments=each.arguments(),
                )
                for each in blocks
                if each.begun.type == "tool_use"
            ),
            usage=Usage(
                input_tokens=counted(self._usage, "input_tokens"),
                output_tokens=counted(self._usage, "output_tokens"),
                cache_read_tokens=counted(self._usage, "cache_read_input_tokens"),
                cache_write_tokens=counted(self._usage, "cache_creation_input_tokens"),
            ),
            stop_reason=stop_reason or ("tools" if self._calls else "end"),
            model=self._model or name,
        )

    def _open(self, index: int, block: _Block) -> None:
        opened = self._open_at[index] = _OpenBlock(block, self._calls, self._thoughts)
        self._blocks.append((index, opened))
        if block.type == "tool_use":
            self._calls += 1
            self._tell(CallDelta(self._calls - 1, block.name or "", ""))
        elif block.type == "text" and block.text:
            self._tell(TextDelta(block.text))
        elif block.type in _THINKING:
            self._thoughts += 1
            if block.thinking:
                self._tell(ThinkingDelta(block.thinking, self._thoughts - 1))

    def _grow(self, index: int, delta: _Delta) -> None:
        block = self._open_at.get(index)
        if block is None:
            raise msgspec.ValidationError(f"a delta of block {index}, which was never opened")
        match block.begun.type, delta.type:
            case "text", "text_delta":
                block.pieces.append(delta.text)
                self._tell(TextDelta(delta.text))
            case "thinking", "thinking_delta":
                block.pieces.append(delta.thinking)
                self._tell(ThinkingDelta(delta.thinking, block.thought_index))
            case "thinking", "signature_delta":
                block.signature.append(delta.signature)
            case "tool_use", "input_json_delta":
                block.pieces.append(delta.partial_json)
                name = block.begun.name or ""
                self._tell(CallDelta(block.call_index, name, delta.partial_json))

    def _tell(self, delta: Delta) -> None:
        if self._on_delta is not None:
            self._on_delta(delta)

    def _count(self, given: Raw) -> None:
        usage = said(given)
        # Totals, not increments: the last one given holds.
        for field in _COUNTS if isinstance(usage, dict) else ():
            if (tokens := usage.get(field)) is not None:
                self._usage[field] = tokens

    def _refuse(self, error: _Error | None) -> NoReturn:
        error = error or _Error(message="no message in the answer")
        status = _STATUS_OF_ERROR.get(error.type, 500)
        raise self._origin.refusal(status, f"{error.type} {error.message}")


def _is_thinking(block: _OpenBlock) -> bool:
    return block.begun.type in _THINKING


def _thinking(block: _OpenBlock) -> Thinking:
    if block.begun.type == "redacted_thinking":
        return Thinking(redacted=block.begun.data or "")
    return Thinking(text="".join(block.pieces), signature="".join(block.signature))
