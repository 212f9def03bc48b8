"""``OpenAIAnswer``: one answer of Chat Completions, chunk by chunk, into a reply.

The servers that speak this interface differ; what is accepted:

* the end is ``[DONE]``, or the end of the body once a ``finish_reason`` came; deltas after the
  ``finish_reason`` still count; neither means the stream was cut;
* call deltas belong together by ``index``; without one, a new id or a name begins a call and the
  rest continues the last; an index used again with another id, or with a name after
  complete arguments, begins a new call too;
* a whole ``chat.completion`` body instead of a stream; arguments as an object instead of text;
  content as a list of parts; ``reasoning_content`` or ``reasoning`` as thinking;
* an ``error`` member in place of a chunk, raised as if it were an HTTP status;
* a ``refusal`` is text with the stop reason ``refusal``, as is ``content_filter``.

Usage is counted as OpenAI does: ``input_tokens`` includes what was read from the cache.
"""

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
from hubbub.runtime.models.http.errors import MAX_ERROR_BYTES, ProviderOrigin, error_message
from hubbub.runtime.models.http.halves import AnswerDecoder
from hubbub.runtime.models.http.members import (
    counted_in,
    first_of,
    is_given,
    object_in,
    said,
    text_in,
)
from hubbub.runtime.models.openai.arguments import GrowingArguments
from hubbub.runtime.models.openai.calls import signatures_of

__all__ = ["OpenAIAnswer"]

_STOP_REASONS: Final = {
    "stop": "end",
    "tool_calls": "tools",
    "function_call": "tools",
    "content_filter": "refusal",
}
_DETAILS: Final = "prompt_tokens_details"
_STATUS_OF_WORD: Final = (
    ("rate_limit", 429),
    ("quota", 429),
    ("overloaded", 529),
    ("api_key", 401),
    ("authentication", 401),
    ("permission", 403),
    ("not_found", 404),
    ("invalid_request", 400),
    ("context_length", 400),
)


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: Raw = Raw()


class _CallPiece(Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: Raw = Raw()


class _ContentPart(Struct, gc=False):
    text: Raw = Raw()


class _Piece(Struct, gc=False):
    """A delta or a whole message: they have the same fields."""

    content: Raw = Raw()
    refusal: str | None = None
    reasoning_content: Raw = Raw()
    reasoning: Raw = Raw()
    tool_calls: list[_CallPiece] | None = None


class _Choice(Struct, gc=False):
    index: int | None = 0
    delta: _Piece | None = None
    message: _Piece | None = None
    finish_reason: str | None = None


class _Choices(Struct, array_like=True, gc=False):
    """A list of choices, of which nothing is read but the first."""

    first: _Choice | None = None


class _Chunk(Struct, gc=False):
    model: str | None = None
    choices: _Choices | None = None
    usage: Raw = Raw()
    error: Raw = Raw()


class _Error(Struct, gc=False):
    """What tells the kind of an error."""

    type: Raw = Raw()
    code: Raw = Raw()


_decode: Final = AnswerDecoder(_Chunk)
_decode_parts: Final = AnswerDecoder(list[_ContentPart])
_decode_error: Final = AnswerDecoder(_Error)


class _Call:
    """A call as far as it has come."""

    __slots__ = ("arguments", "extra", "id", "name", "number")

    def __init__(self, id_: str, number: int) -> None:
        self.id = id_
        self.number = number
        self.extra = Raw()
        self.name = ""
        self.arguments = GrowingArguments()


class OpenAIAnswer:
    """Takes the chunks of one answer, hands on the deltas, ends up as the reply."""

    def __init__(self, origin: ProviderOrigin, on_delta: OnDelta | None) -> None:
        self._origin = origin
        self._on_delta = on_delta
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        """The first call of each id."""
        self._refused = False
        self._stop_reason = ""
        self._usage: Any = None
        self._model = ""

    def event(self, data: bytes) -> bool:
        if data.strip() == b"[DONE]":
            return True
        self._take(_decode(data))
        return False

    def body(self, data: bytes) -> None:
        whole = _decode(data)
        if not is_given(whole.error) and (whole.choices is None or whole.choices.first is None):
            raise msgspec.ValidationError("an answer without choices")
        self._take(whole)

    def may_end(self) -> bool:
        return bool(self._stop_reason)

    def reply(self, name: str) -> ModelReply:
        usage = self._usage
        thinking = "".join(self._thinking)
        return ModelReply(
            text="".join(self._text),
            thinking=(
                *((Thinking(text=thinking),) if thinking else ()),
                *signatures_of(call.extra for call in self._calls),
            ),
            calls=tuple(
                ToolCall(id=call.id, name=call.name, arguments=call.arguments.text or "{}")
                for call in self._calls
            ),
            usage=Usage(
                input_tokens=counted(usage, "prompt_tokens"),
                output_tokens=counted(usage, "completion_tokens"),
                cache_read_tokens=counted(usage, _DETAILS, "cached_tokens"),
                cache_write_tokens=counted(usage, _DETAILS, "cache_write_tokens"),
            ),
            stop_reason=self._stopped(),
            model=self._model or name,
        )

    def _stopped(self) -> str:
        if self._refused:
            return "refusal"
        reason = _STOP_REASONS.get(self._stop_reason, self._stop_reason) or "end"
        if reason in ("end", "tools"):
            # Servers differ in what they call an end with calls.
            return "tools" if self._calls else "end"
        return reason

    def _take(self, chunk: _Chunk) -> None:
        if is_given(chunk.error):
            self._refuse(chunk.error)
        self._model = chunk.model or self._model
        self._usage = said(chunk.usage) or self._usage
        choice = None if chunk.choices is None else chunk.choices.first
        if choice is None or choice.index:
            # ``n`` above 1, which options may ask for: only the first choice is the reply.
            return
        self._stop_reason = choice.finish_reason or self._stop_reason
        if (piece := choice.delta or choice.message) is not None:
            self._grow(piece)

    def _grow(self, piece: _Piece) -> None:
        if thought := text_in(piece.reasoning_content) or text_in(piece.reasoning):
            self._thinking.append(thought)
            self._tell(ThinkingDelta(thought))
        if text := _text_of(piece.content):
            self._say(text)
        if piece.refusal:
            self._refused = True
            self._say(piece.refusal)
        for part in counted_in(piece.tool_calls, "calls"):
            self._grow_call(part)

    def _say(self, text: str) -> None:
        self._text.append(text)
        self._tell(TextDelta(text))

    def _grow_call(self, part: _CallPiece) -> None:
        function = part.function or _Function()
        call = self._call_of(part, function)
        if function.name and not call.name:
            call.name = function.name
        arguments = _arguments_of(function.arguments)
        call.arguments.add(arguments)
        if is_given(part.extra_content):
            call.extra = part.extra_content
        self._tell(CallDelta(call.number, call.name, arguments))

    def _call_of(self, part: _CallPiece, function: _Function) -> _Call:
        """The call that ``part`` belongs to, a new one if it belongs to none."""
        known = self._known(part)
        if known is None or _begins_another(known, part, function):
            known = _Call(part.id or "", len(self._calls))
            self._calls.append(known)
        if part.index is not None:
            self._by_index[part.index] = known
        known.id = known.id or part.id or ""
        self._by_id.setdefault(known.id, known)
        return known

    def _known(self, part: _CallPiece) -> _Call | None:
        if part.index is not None:
            return self._by_index.get(part.index)
        if part.id:
            return self._by_id.get(part.id)
        return self._calls[-1] if self._calls else None

    def _tell(self, delta: Delta) -> None:
        if self._on_delta is not None:
            self._on_delta(delta)

    def _refuse(self, error: Raw) -> NoReturn:
        message = error_message(bytes(memoryview(error)[:MAX_ERROR_BYTES]))
        fields = _decode_error(error) if first_of(error) == b"{" else _Error()
        code = said(fields.code)
        if isinstance(code, int) and 400 <= code < 600:
            raise self._origin.refusal(code, message)
        words = f"{said(fields.type)} {code}"
        status = next((number for word, number in _STATUS_OF_WORD if word in words), 500)
        raise self._origin.refusal(status, message)


def _begins_another(known: _Call, part: _CallPiece, function: _Function) -> bool:
    if part.id and known.id:
        return part.id != known.id
    if not function.name or not known.name:
        return False
    # A name again, with nothing to tell it apart: a further call if this one is whole, else a
    # server that repeats the name in every delta.
    return known.arguments.is_whole


def _arguments_of(given: Raw) -> str:
    match first_of(given):
        case b'"':
            return text_in(given)
        case b"{":
            return object_in(given)
        case _ if is_given(given):
            raise msgspec.ValidationError("arguments that are neither a text nor an object")
        case _:
            return ""


def _text_of(content: Raw) -> str:
    if first_of(content) != b"[":
        return text_in(content)
    try:
        parts = counted_in(_decode_parts(content), "parts of content")
    except msgspec.ValidationError:
        # Something else among them, which is passed over where it is not much.
        listed = said(content)
        if listed is None:
            raise
        return "".join(part["text"] for part in listed if _is_text(part))
    return "".join(text_in(part.text) for part in parts)


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)
