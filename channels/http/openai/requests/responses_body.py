"""The body of a request to ``/v1/responses``, read."""

from collections.abc import Mapping
from typing import Any, Final

from hubbub.channels.http.openai.answers.refusals import Refused
from hubbub.channels.http.openai.requests.shown import shown_in
from hubbub.channels.http.openai.requests.wanted import (
    CalledFunction,
    Entry,
    WantedAnswer,
    check_length,
    count_field,
    flag_field,
    format_of,
    object_at,
    parts_of,
    text_at,
    text_field,
    tools_of,
)

__all__ = ["read_responses"]

MAX_INSTRUCTIONS: Final = 1_000_000
MAX_NUMBER: Final = 1_000_000_000
MAX_TEXT: Final = 512

_HEARD: Final = frozenset((
    "model", "input", "tools", "stream", "stream_options", "background", "conversation",
    "previous_response_id", "instructions", "store", "metadata", "user", "include",
    "max_output_tokens", "text",
))  # fmt: skip
"""What has an effect, or needs none."""

_TOLD: Final = {
    "temperature": (int, float), "top_p": (int, float), "presence_penalty": (int, float),
    "frequency_penalty": (int, float), "max_output_tokens": (int,), "max_tool_calls": (int,),
    "parallel_tool_calls": (bool,), "prompt_cache_key": (str,), "safety_identifier": (str,),
    "user": (str,),
}  # fmt: skip
"""What a response repeats of its request, and of which types."""


def read_responses(body: Mapping[str, Any], *, session_key: str, key: str) -> WantedAnswer:
    """What such a request asks for; ``session_key`` is that of its headers.  Raises ``Refused``."""
    model = text_field(body, "model")
    if not model:
        raise Refused(400, "Missing required parameter: 'model'.", param="model")
    previous = text_field(body, "previous_response_id")
    conversation = _conversation(body.get("conversation"))
    if previous and conversation:
        raise Refused(
            400, "Mutually exclusive parameters: 'previous_response_id' and 'conversation'.",
            param="previous_response_id", code="mutually_exclusive_parameters",
        )  # fmt: skip
    reader = _Reader()
    reader.read_all(body.get("input"))
    instructions = text_field(body, "instructions", most=MAX_INSTRUCTIONS)
    tools, ignored = tools_of(body, is_nested=False)
    text = body.get("text")
    form = "" if text is None else format_of("text.format", object_at("text", text).get("format"))
    if form:
        reader.system.append(form)
    system = [instructions, *reader.system] if instructions.strip() else reader.system
    return WantedAnswer(
        model=model, entries=reader.entries, instructions="\n\n".join(system),
        tools=tools, session_key=conversation or ("" if previous else session_key),
        previous=previous, key=key, stream=flag_field(body, "stream"),
        is_background=flag_field(body, "background"),
        is_stored=flag_field(body, "store", default=True),
        notes=_notes(body, model, previous, instructions),
        ignored=(*(x for x in body if x not in _HEARD), *ignored),
    )  # fmt: skip


def _conversation(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return text_field(value, "id")
    return text_field({"conversation": value}, "conversation")


def _notes(body: Mapping[str, Any], model: str, previous: str, instructions: str) -> dict[str, Any]:
    notes: dict[str, Any] = {"model": model}
    for name, kinds in _TOLD.items():
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise Refused(400, f"Invalid type for '{name}'.", param=name, code="invalid_type")
        size, most = (len(value), MAX_TEXT) if isinstance(value, str) else (value, MAX_NUMBER)
        if abs(size) > most:
            raise Refused(400, f"'{name}' is out of range.", param=name, code="invalid_value")
        notes[name] = value
    count_field(body, "max_output_tokens")
    if flag_field(body, "background"):
        notes["background"] = True
    if not flag_field(body, "store", default=True):
        notes["store"] = False
    if previous:
        notes["previous_response_id"] = previous
    if instructions:
        notes["instructions"] = instructions
    metadata = body.get("metadata")
    if metadata is not None:
        notes["metadata"] = _metadata(object_at("metadata", metadata))
    return notes


def _metadata(metadata: dict[str, Any]) -> dict[str, str]:
    if len(metadata) > 16:
        raise Refused(400, "'metadata' has more than 16 pairs.", param="metadata")
    for name, value in metadata.items():
        text_at(f"metadata.{name[:64]}", value)
        if len(name) > 64 or len(value) > 512:
            raise Refused(
                400, "'metadata': a key has up to 64 characters, a value up to 512.",
                param="metadata",
            )  # fmt: skip
    return metadata


class _Reader:
    """Reads one item of the input after the other."""

    def __init__(self) -> None:
        self._read_so_far: list[Entry | _Speech] = []
        self.system: list[str] = []

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What is said, in order."""
        return tuple(x.entry() if isinstance(x, _Speech) else x for x in self._read_so_far)

    def read_all(self, given: object) -> None:
        if isinstance(given, str):
            self._read_so_far.append(Entry(role="user", text=given))
            return
        if not isinstance(given, list):
            raise Refused(
                400, "Missing or invalid parameter 'input': expected a string or an array.",
                param="input",
            )  # fmt: skip
        if not given:
            raise Refused(400, "'input' must hold at least one item.", param="input")
        check_length("input", given)
        for at, item in enumerate(given):
            self._read(f"input[{at}]", object_at(f"input[{at}]", item))

    def _read(self, where: str, item: dict[str, Any]) -> None:
        kind = item.get("type", "message")
        if kind == "message":
            self._read_message(where, item)
        elif kind == "function_call":
            call = CalledFunction(
                id=text_at(f"{where}.call_id", item.get("call_id")),
                name=text_at(f"{where}.name", item.get("name")),
                arguments=text_at(f"{where}.arguments", item.get("arguments")) or "{}",
            )
            self._add_call(call)
        elif kind == "function_call_output":
            call_id = text_at(f"{where}.call_id", item.get("call_id"))
            text = parts_of(f"{where}.output", item.get("output"))
            self._read_so_far.append(Entry(role="output", text=text, call_id=call_id))
        elif kind not in ("reasoning", "item_reference"):
            raise Refused(
                400, f"Items of type {str(kind)[:50]!r} are not supported here.",
                param=f"{where}.type", code="unsupported_value",
            )  # fmt: skip

    def _read_message(self, where: str, item: dict[str, Any]) -> None:
        role = item.get("role")
        content = item.get("content")
        text = parts_of(f"{where}.content", content, shows=role == "user")
        if role in ("system", "developer"):
            if text.strip():
                self.system.append(text)
        elif role == "user":
            parts = shown_in(f"{where}.content", content)
            self._read_so_far.append(Entry(role="user", text=text, parts=parts))
        elif role == "assistant":
            self._say(text)
        else:
            raise Refused(
                400, f"Invalid value for '{where}.role': expected system, developer, user or "
                "assistant.", param=f"{where}.role", code="invalid_value",
            )  # fmt: skip

    def _say(self, text: str) -> None:
        """Several messages in a row are what one answer said."""
        speech = self._speech()
        if speech is None or speech.calls:
            speech = self._begin_speech()
        speech.say(text)

    def _add_call(self, call: CalledFunction) -> None:
        """A call belongs to what was said before it."""
        speech = self._speech() or self._begin_speech()
        speech.calls.append(call)

    def _speech(self) -> "_Speech | None":
        """What the assistant is saying, where it spoke last."""
        last = self._read_so_far[-1] if self._read_so_far else None
        return last if isinstance(last, _Speech) else None

    def _begin_speech(self) -> "_Speech":
        speech = _Speech()
        self._read_so_far.append(speech)
        return speech


class _Speech:
    """What the assistant says in a row; it grows, as each of very many items may add to it."""

    __slots__ = ("_texts", "calls")

    def __init__(self) -> None:
        self._texts: list[str] = []
        self.calls: list[CalledFunction] = []

    def say(self, text: str) -> None:
        """Go on; what comes after nothing is a beginning."""
        if self._texts == [""]:
            self._texts.clear()
        self._texts.append(text)

    def entry(self) -> Entry:
        """It as one entry."""
        text = "\n\n".join(self._texts)
        return Entry(role="assistant", text=text, calls=tuple(self.calls))
