"""A transcript that a run is opened with: read from what users write, and checked.

    user ──► assistant ──► user ──► assistant with calls, each with its result ──► …

Two spellings are read, also mixed: ``HistoryMessage``, where every call carries its result, and the
mappings of the chat completions form, where results are messages of their own (``role="tool"``)
behind the message with their calls.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import structs

from hubbub.hub.errors import BadValue
from hubbub.hub.events.parts import part_problem, read_parts
from hubbub.hub.events.sent_items import MAX_ARGUMENTS_CHARS
from hubbub.hub.events.sessions import HistoryCall, HistoryMessage
from hubbub.hub.near_misses import kind_of, shown
from hubbub.hub.texts import text_problem

__all__ = ["MAX_HISTORY", "MAX_HISTORY_BYTES", "history_problem", "read_history"]

MAX_HISTORY: Final = 10_000
"""Messages and calls of one history."""

MAX_HISTORY_BYTES: Final = 8_000_000
"""What the texts of one history take, as UTF-8."""

_KEYS: Final = {
    "user": frozenset(("role", "content", "parts")),
    "assistant": frozenset(("role", "content", "tool_calls")),
    "tool": frozenset(("role", "content", "tool_call_id")),
}
_is_name: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch


def read_history(history: object) -> tuple[HistoryMessage, ...]:
    """The messages of a history.  Raises ``BadValue``, which says which of them is wrong.

    They are of the right form; ``history_problem`` says what is wrong with their contents.
    """
    if history is None:
        return ()
    if isinstance(history, str | bytes) or not isinstance(history, Sequence):
        raise BadValue("history", f"expected a list of messages, not {kind_of(history)}")
    if len(history) > MAX_HISTORY:
        raise BadValue("history", f"more than {MAX_HISTORY:,} messages")
    reader = _Reader()
    for index, message in enumerate(history):
        reader.read(f"history[{index}]", message)
    reader.demand_results("history")
    return tuple(reader.found)


def history_problem(history: Sequence[HistoryMessage]) -> str:
    """Why no run may be opened with a history; empty if one may."""
    size = count = 0
    for index, message in enumerate(history):
        problem = _problem_of(message)
        if problem:
            return f"history[{index}]: {problem}"
        count += 1 + len(message.calls)
        size += len(message.content.encode())
        for call in message.calls:
            size += sum(len(text.encode()) for text in (call.name, call.arguments, call.output))
        if count > MAX_HISTORY:
            return f"more than {MAX_HISTORY:,} messages and calls"
        if size > MAX_HISTORY_BYTES:
            return f"more than {MAX_HISTORY_BYTES:,} bytes of text"
    return ""


def _problem_of(message: HistoryMessage) -> str:
    if message.role not in ("user", "assistant"):
        return f"the role is 'user' or 'assistant', not {shown(message.role)}"
    if problem := text_problem(message.content):
        return f"content: {problem}"
    if message.role == "user" and message.calls:
        return "only an assistant makes calls"
    if message.parts and message.role != "user":
        return "only a user's message has parts"
    if not message.content.strip() and not message.calls and not message.parts:
        return "it says nothing"
    if problem := next(filter(None, map(part_problem, message.parts)), ""):
        return f"parts: {problem}"
    for at, call in enumerate(message.calls):
        if problem := _call_problem(call):
            return f"calls[{at}]: {problem}"
    return ""


def _call_problem(call: HistoryCall) -> str:
    if not _is_name(call.name):
        return "the name of a tool is 1 to 64 letters, digits, '_' and '-'"
    for name, text in (("arguments", call.arguments), ("output", call.output)):
        if problem := text_problem(text):
            return f"{name}: {problem}"
    try:
        msgspec.json.decode(call.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return "arguments: expected the JSON text of an object"
    return ""


# ── how it is spelled ────────────────────────────────────────────────────────────────────────


class _Reader:
    """Reads one message after the other; those with calls are found when each has its result."""

    def __init__(self) -> None:
        self.found: list[HistoryMessage] = []
        self._content = ""
        self._calls: dict[str, tuple[str, str]] = {}
        """Name and arguments of the calls of the message before, by id."""
        self._outputs: dict[str, str] = {}

    def read(self, where: str, message: object) -> None:
        if isinstance(message, Mapping):
            _check_keys(where, message)
            if message["role"] == "tool":
                self._answer(where, message)
                return
            self.demand_results(where)
            self._speak(where, message)
        elif isinstance(message, HistoryMessage):
            self.demand_results(where)
            self.found.append(_sound(where, message))
        else:
            what = type(message).__name__
            raise BadValue(where, f"expected a HistoryMessage or a mapping, not {what}")

    def demand_results(self, where: str) -> None:
        """Refuse what comes where results are due."""
        if due := [id_ for id_ in self._calls if id_ not in self._outputs]:
            raise BadValue(where, f"before it, the calls {', '.join(map(repr, due))} need results")

    def _speak(self, where: str, message: Mapping[str, Any]) -> None:
        calls = message.get("tool_calls") or ()
        if isinstance(calls, str) or not isinstance(calls, Sequence):
            raise BadValue(f"{where}.tool_calls", "expected a list of calls")
        content = message.get("content")
        self._content = _text(f"{where}.content", "" if content is None and calls else content)
        for at, call in enumerate(calls):
            self._call(f"{where}.tool_calls[{at}]", call)
        if not calls:
            parts = read_parts(f"{where}.parts", message["parts"]) if "parts" in message else ()
            said = HistoryMessage(role=message["role"], content=self._content, parts=parts)
            self.found.append(_sound(where, said))

    def _call(self, where: str, call: object) -> None:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(call, Mapping) or not isinstance(function, Mapping):
            raise BadValue(where, "expected id, and function with name and arguments")
        id_ = _text(f"{where}.id", call.get("id"))
        if id_ in self._calls:
            raise BadValue(f"{where}.id", "each call of a message has an id of its own")
        name = _text(f"{where}.function.name", function.get("name"))
        arguments = _text(f"{where}.function.arguments", function.get("arguments", "{}"))
        self._calls[id_] = name, arguments or "{}"

    def _answer(self, where: str, message: Mapping[str, Any]) -> None:
        id_ = message.get("tool_call_id")
        if not isinstance(id_, str) or id_ not in self._calls or id_ in self._outputs:
            raise BadValue(where, "it is the result of no call of the message before it")
        self._outputs[id_] = _text(f"{where}.content", message.get("content"))
        if len(self._outputs) < len(self._calls):
            return
        calls = [
            HistoryCall(name=name, arguments=arguments, output=self._outputs[id_])
            for id_, (name, arguments) in self._calls.items()
        ]
        said = HistoryMessage(role="assistant", content=self._content, calls=tuple(calls))
        self.found.append(_sound(where, said))
        self._calls, self._outputs = {}, {}


def _check_keys(where: str, message: Mapping[Any, Any]) -> None:
    role = message.get("role")
    keys = _KEYS.get(role) if isinstance(role, str) else None
    if keys is None:
        raise BadValue(where, "the role is 'user', 'assistant' or 'tool'")
    if unknown := [key for key in message if key not in keys]:
        raise BadValue(where, f"{role} messages have no {unknown[0]!r}; leave it out")


def _text(where: str, text: object) -> str:
    if not isinstance(text, str):
        raise BadValue(where, f"expected a text, not {kind_of(text)}")
    return text


def _sound(where: str, message: HistoryMessage) -> HistoryMessage:
    """The message as it will be read back: structs hold whatever they are built with."""
    if message.parts:
        message = structs.replace(message, parts=read_parts(f"{where}.parts", message.parts))
    try:
        found: HistoryMessage = _decoder.decode(msgspec.json.encode(message))
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
        raise BadValue(where, f"it cannot be kept ({error})") from None
    for at, call in enumerate(found.calls):
        if (size := len(call.arguments)) > MAX_ARGUMENTS_CHARS:
            problem = f"{size:,} characters are too many; send at most {MAX_ARGUMENTS_CHARS:,}"
            raise BadValue(f"{where}.calls[{at}].arguments", problem)
    return found


_decoder: Final = msgspec.json.Decoder(HistoryMessage)
