"""``ResponsesAnswer``: one answer of the Responses interface, event by event, into a reply.

The events, and what each adds (anything else is skipped):

    response.created                          the model's full name
    response.output_item.added                an item: message, function_call, reasoning
    response.output_text.delta, .refusal.delta, .reasoning_summary_text.delta,
    response.reasoning_text.delta, response.function_call_arguments.delta
    response.output_item.done                 the item as it came out, which holds
    response.completed, .incomplete           the end: usage, and why it stopped
    response.failed, error                    raised as if it were an HTTP status

A thought is kept as ``openai-responses:ID:ENCRYPTED`` in its signature, its text is the summary.
Usage is counted as OpenAI does: ``input_tokens`` includes what was read from the cache.
"""

from collections import Counter
from typing import Final, NoReturn

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
from hubbub.runtime.models.http.members import counted_in, first_of, said, text_in
from hubbub.runtime.models.http.thoughts import signed

__all__ = ["OWNER", "ResponsesAnswer"]

OWNER: Final = "openai-responses"

_STOP_REASONS: Final = {"max_output_tokens": "length", "content_filter": "refusal"}
_STATUS_OF_CODE: Final = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "server_error": 500,
    "vector_store_timeout": 504,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "invalid_api_key": 401,
}
_DETAILS: Final = "input_tokens_details"
_GAP: Final = "\n\n"
"""Between the parts of a summary."""


class _Part(Struct, gc=False):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class _Item(Struct, gc=False):
    type: str
    id: str | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None


class _Reason(Struct, gc=False):
    reason: str | None = None


class _Error(Struct, gc=False):
    code: str | int | None = None
    message: str | None = None


class _Response(Struct, gc=False):
    status: str | None = None
    model: str | None = None
    usage: Raw = Raw()
    incomplete_details: _Reason | None = None
    error: _Error | None = None


class _Event(Struct, gc=False):
    type: str
    output_index: int = -1
    summary_index: int = 0
    delta: Raw = Raw()
    item: _Item | None = None
    response: _Response | None = None
    code: str | int | None = None
    message: str | None = None


class _Whole(_Response, gc=False):
    object: str = ""
    output: list[_Item] | None = None


_decode_event: Final = AnswerDecoder(_Event)
_decode_whole: Final = AnswerDecoder(_Whole)


class _Output:
    """An item as far as it has come."""

    __slots__ = ("item", "number", "part", "pieces")

    def __init__(self, item: _Item, number: int) -> None:
        self.item = item
        self.number = number
        self.part = 0
        self.pieces: list[str] = []


class ResponsesAnswer:
    """Takes the events of one answer, hands on the deltas, ends up as the reply."""

    def __init__(self, origin: ProviderOrigin, on_delta: OnDelta | None) -> None:
        self._origin = origin
        self._on_delta = on_delta
        self._outputs: dict[int, _Output] = {}
        self._opened: Counter[str] = Counter()
        """How many items there have been of each type."""
        self._response = _Response()
        self._model = ""

    def event(self, data: bytes) -> bool:
        event = _decode_event(data)
        kind = event.type.removeprefix("response.")
        match kind:
            case "output_text.delta" | "refusal.delta":
                self._grow(event, "message")
            case "reasoning_summary_text.delta" | "reasoning_text.delta":
                self._grow(event, "reasoning")
            case "function_call_arguments.delta":
                self._grow(event, "function_call")
            case "output_item.added" if event.item is not None:
                self._open(event.output_index, event.item)
            case "output_item.done" if event.item is not None:
                self._complete(event.output_index, event.item)
            case "completed" | "incomplete" | "failed" if event.response is not None:
                self._finish(event.response)
                return True
            case "error":
                self._refuse(_Error(event.code, event.message))
            case _:
                if event.response is not None:
                    self._model = event.response.model or self._model
        return False

    def body(self, data: bytes) -> None:
        whole = _decode_whole(data)
        if whole.error is None and whole.output is None:
            raise msgspec.ValidationError("an answer without output")
        for index, item in enumerate(counted_in(whole.output, "items")):
            self._complete(index, item)
        self._finish(whole)

    def may_end(self) -> bool:
        # Only an event ends a stream, and then nobody asks any more.
        return False

    def reply(self, name: str) -> ModelReply:
        items = [each.item for _, each in sorted(self._outputs.items())]
        usage = said(self._response.usage)
        calls = tuple(
            ToolCall(id=each.call_id or "", name=each.name or "", arguments=each.arguments or "{}")
            for each in items
            if each.type == "function_call"
        )
        return ModelReply(
            text="".join(_text_of(each) for each in items if each.type == "message"),
            thinking=tuple(_thought(each) for each in items if each.type == "reasoning"),
            calls=calls,
            usage=Usage(
                input_tokens=counted(usage, "input_tokens"),
                output_tokens=counted(usage, "output_tokens"),
                cache_read_tokens=counted(usage, _DETAILS, "cached_tokens"),
                cache_write_tokens=counted(usage, _DETAILS, "cache_write_tokens"),
            ),
            stop_reason=self._stopped(items, bool(calls)),
            model=self._model or name,
        )

    def _stopped(self, items: list[_Item], has_calls: bool) -> str:
        details = self._response.incomplete_details
        if self._response.status == "incomplete" and details is not None and details.reason:
            return _STOP_REASONS.get(details.reason, details.reason)
        if any(part.refusal for item in items for part in item.content or ()):
            return "refusal"
        return "tools" if has_calls else "end"

    def _open(self, index: int, item: _Item) -> _Output:
        number = self._opened[item.type]
        self._opened[item.type] += 1
        output = self._outputs[index] = _Output(item, number)
        if item.type == "function_call":
            self._tell(CallDelta(number, item.name or "", ""))
        return output

    def _complete(self, index: int, item: _Item) -> None:
        output = self._outputs.get(index) or self._open(index, item)
        output.item = item
        if not output.pieces:  # A server that sends an item whole.
            self._tell_of(output, _words_of(item))

    def _grow(self, event: _Event, kind: str) -> None:
        output = self._outputs.get(event.output_index)
        is_text = first_of(event.delta) == b'"'
        if output is None or output.item.type != kind or not is_text:
            raise msgspec.ValidationError(f"a delta of no {kind}: item {event.output_index}")
        text = text_in(event.delta)
        if kind == "reasoning" and event.summary_index != output.part:
            output.part, text = event.summary_index, _GAP + text
        output.pieces.append(text)
        self._tell_of(output, text)

    def _tell_of(self, output: _Output, text: str) -> None:
        if not text:
            return
        match output.item.type:
            case "message":
                self._tell(TextDelta(text))
            case "reasoning":
                self._tell(ThinkingDelta(text, output.number))
            case "function_call":
                self._tell(CallDelta(output.number, output.item.name or "", text))

    def _tell(self, delta: Delta) -> None:
        if self._on_delta is not None:
            self._on_delta(delta)

    def _finish(self, response: _Response) -> None:
        if response.error is not None or response.status == "failed":
            self._refuse(response.error or _Error(message="it failed and does not say why"))
        self._response = response
        self._model = response.model or self._model

    def _refuse(self, error: _Error) -> NoReturn:
        code = error.code
        status = code if isinstance(code, int) and 400 <= code < 600 else None
        status = status or _STATUS_OF_CODE.get(str(code), 500)
        raise self._origin.refusal(status, f"{code or ''} {error.message or ''}".strip())


def _words_of(item: _Item) -> str:
    """What an item says: text, summary or arguments."""
    if item.type == "function_call":
        return item.arguments or ""
    return _text_of(item) if item.type == "message" else _thought(item).text


def _text_of(item: _Item) -> str:
    return "".join(part.text or part.refusal or "" for part in item.content or ())


def _thought(item: _Item) -> Thinking:
    parts = item.summary or item.content or ()
    encrypted = item.encrypted_content
    return Thinking(
        text=_GAP.join(part.text or "" for part in parts),
        signature=signed(OWNER, f"{item.id or ''}:{encrypted}") if encrypted else "",
    )
