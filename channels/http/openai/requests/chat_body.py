"""The body of a chat completion request, read."""

from collections.abc import Mapping
from typing import Any, Final

from hubbub.channels.http.openai.answers.refusals import Refused
from hubbub.channels.http.openai.requests.shown import shown_in
from hubbub.channels.http.openai.requests.wanted import (
    CalledFunction,
    Entry,
    WantedAnswer,
    count_field,
    flag_field,
    format_of,
    list_field,
    object_at,
    parts_of,
    stops_of,
    text_at,
    text_field,
    tools_of,
)

__all__ = ["read_chat"]

_HEARD: Final = frozenset((
    "model", "messages", "tools", "stream", "stream_options", "n", "store", "metadata", "user",
    "max_tokens", "max_completion_tokens", "stop", "response_format", "logprobs",
))  # fmt: skip


def read_chat(body: Mapping[str, Any], *, session_key: str, key: str) -> WantedAnswer:
    """What a chat completion request asks for.  Raises ``Refused``."""
    model = text_field(body, "model")
    if not model:
        raise Refused(400, "you must provide a model parameter", param="model")
    messages = list_field(body, "messages")
    if not messages:
        raise Refused(400, "'messages' must hold at least one message.", param="messages")
    if body.get("n") not in (None, 1):
        raise Refused(400, "An agent gives one answer; leave out 'n'.", param="n")
    if flag_field(body, "logprobs"):
        raise Refused(
            400, "'logprobs' is not supported here; leave it out.", param="logprobs",
            code="unsupported_parameter",
        )  # fmt: skip
    reader = _Reader()
    for at, message in enumerate(messages):
        reader.read(f"messages[{at}]", object_at(f"messages[{at}]", message))
    notes: dict[str, Any] = {"model": model}
    for name in ("max_tokens", "max_completion_tokens"):
        if (most := count_field(body, name)) is not None:
            notes["max_output_tokens"] = most
    if stops := stops_of(body):
        notes["stop"] = stops
    if form := format_of("response_format", body.get("response_format")):
        reader.system.append(form)
    tools, ignored = tools_of(body, is_nested=True)
    options = body.get("stream_options")
    has_usage = options is not None and flag_field(
        object_at("stream_options", options), "include_usage"
    )
    return WantedAnswer(
        model=model, entries=tuple(reader.entries), instructions="\n\n".join(reader.system),
        tools=tools, session_key=session_key, key=key, is_whole=True,
        stream=flag_field(body, "stream"),
        has_usage=has_usage, ignored=(*(x for x in body if x not in _HEARD), *ignored),
        notes=notes,
    )  # fmt: skip


class _Reader:
    """Reads one message after the other."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.system: list[str] = []

    def read(self, where: str, message: dict[str, Any]) -> None:
        role = message.get("role")
        if role in ("system", "developer"):
            text = parts_of(f"{where}.content", message.get("content"))
            if text.strip():
                self.system.append(text)
        elif role == "user":
            content = message.get("content")
            text = parts_of(f"{where}.content", content, shows=True)
            parts = shown_in(f"{where}.content", content)
            self.entries.append(Entry(role="user", text=text, parts=parts))
        elif role == "assistant":
            text = parts_of(f"{where}.content", message.get("content"))
            calls = [
                _call(f"{where}.tool_calls[{at}]", call)
                for at, call in enumerate(list_field(message, "tool_calls"))
            ]
            self.entries.append(Entry(role="assistant", text=text, calls=tuple(calls)))
        elif role == "tool":
            call_id = text_at(f"{where}.tool_call_id", message.get("tool_call_id"))
            text = parts_of(f"{where}.content", message.get("content"))
            self.entries.append(Entry(role="output", text=text, call_id=call_id))
        else:
            raise Refused(
                400, f"Invalid value for '{where}.role': expected system, developer, user, "
                "assistant or tool.", param=f"{where}.role", code="invalid_value",
            )  # fmt: skip


def _call(where: str, call: object) -> CalledFunction:
    call = object_at(where, call)
    function = object_at(f"{where}.function", call.get("function"))
    return CalledFunction(
        id=text_at(f"{where}.id", call.get("id")),
        name=text_at(f"{where}.function.name", function.get("name")),
        arguments=text_at(f"{where}.function.arguments", function.get("arguments")) or "{}",
    )
