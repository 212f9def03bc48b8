"""``WantedAnswer``: what a request asks for, whichever endpoint it came to.

entries ──► history (before) │ outputs (results of calls) │ text (what is said now)
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from hubbub.channels.http.openai.answers.refusals import Refused
from hubbub.channels.http.openai.requests.parameters import plain_parameters
from hubbub.channels.http.openai.requests.shown import SHOWN
from hubbub.channels.http.wire.parts import PartBody, parts_shown
from hubbub.hub.events import GivenTool, HistoryCall, HistoryMessage
from hubbub.hub.events.given_tools import MAX_GIVEN_TOOLS
from hubbub.hub.values import NULL, encode_value

__all__ = [
    "CONTINUE", "CalledFunction", "Entry", "WantedAnswer", "parts_of", "split", "text_field",
    "tools_of",
]  # fmt: skip

CONTINUE: Final = "(continue)"
"""What is said where a request ends with the words of the assistant."""

MAX_ITEMS: Final = 50_000
"""Messages, items, calls or parts in one list of a request.  A history has 10,000 messages and
calls at most, each call with its result; the rest is for what a client sends and is left out."""

MAX_NAME: Final = 512
MAX_STOPS: Final = 16


class CalledFunction(Struct, frozen=True, kw_only=True):
    """A call in a transcript, as its client tells it."""

    id: str
    name: str
    arguments: str = "{}"


class Entry(Struct, frozen=True, kw_only=True):
    """One message of a transcript; an ``output`` is the result of the call ``call_id``."""

    role: Literal["user", "assistant", "output"]
    text: str = ""
    calls: tuple[CalledFunction, ...] = ()
    call_id: str = ""
    parts: tuple[PartBody, ...] = ()
    """What a user shows beside the text."""


class WantedAnswer(Struct, frozen=True, kw_only=True):
    """What a request asks for."""

    model: str
    entries: tuple[Entry, ...]
    """What is said, and was before, in order; without what the system says."""
    instructions: str = ""
    """What the system says."""
    tools: tuple[GivenTool, ...] = ()
    session_key: str = ""
    previous: str = ""
    """The response that is continued from."""
    key: str = ""
    """Under which the request counts once."""
    is_retry: bool = False
    """Whether its client says that it has sent the request before."""
    digest: str = ""
    """Of all that was sent, as it was sent."""
    is_whole: bool = False
    """Whether the entries are the whole conversation, as its client has it."""
    stream: bool = False
    has_usage: bool = False
    """Whether a stream of chunks ends with the usage."""
    is_background: bool = False
    is_stored: bool = True
    notes: Mapping[str, Any] = {}
    """What is told of the request when its response is read again."""
    ignored: tuple[str, ...] = ()
    """What it asks for beside, and does not get."""


class Split(Struct, frozen=True, kw_only=True):
    """The entries by what is new in them."""

    history: tuple[HistoryMessage, ...]
    outputs: tuple[Entry, ...]
    text: str | None
    parts: tuple[PartBody, ...] = ()
    """What is shown beside the text."""


def split(entries: Sequence[Entry], where: str) -> Split:
    """What was said before, what is new, and what is said now.

    Raises ``Refused`` for calls without results, and results without calls.
    """
    at = len(entries)
    text: str | None = None
    parts: tuple[PartBody, ...] = ()
    if entries and entries[-1].role == "user":
        at -= 1
        text, parts = entries[at].text, entries[at].parts
    end = at
    while at and entries[at - 1].role == "output":
        at -= 1
    outputs = tuple(entries[at:end])
    if text is None and not outputs:
        text = CONTINUE
    history = _history(entries[:at], where)
    return Split(history=history, outputs=outputs, text=text, parts=parts)


def history_of(entries: Sequence[Entry], where: str) -> tuple[HistoryMessage, ...]:
    """A whole transcript as a history: every call has its result."""
    return _history(entries, where, is_whole=True)


def _history(
    entries: Sequence[Entry], where: str, *, is_whole: bool = False
) -> tuple[HistoryMessage, ...]:
    found: list[HistoryMessage] = []
    at = 0
    while at < len(entries):
        entry = entries[at]
        at += 1
        if entry.role == "output":
            raise Refused(
                400, f"No tool call found for the output with call_id {entry.call_id[:100]!r}.",
                param=where,
            )  # fmt: skip
        if not entry.calls:
            if entry.text.strip() or entry.parts:
                shown: Any = parts_shown(entry.parts)
                found.append(HistoryMessage(role=entry.role, content=entry.text, parts=shown))
            continue
        row = [entry]  # A question may be told behind a call, or between two.
        while at < len(entries) and entries[at].role == "assistant":
            row.append(entries[at])
            at += 1
        outputs: dict[str, str] = {}
        while at < len(entries) and entries[at].role == "output":
            outputs[entries[at].call_id] = entries[at].text
            at += 1
        is_open = at == len(entries) and not is_whole
        found.append(_with_calls(row, outputs, where, is_open=is_open))
    return tuple(found)


def _with_calls(
    row: Sequence[Entry], outputs: dict[str, str], where: str, *, is_open: bool
) -> HistoryMessage:
    """What the assistant said in a row, with calls, as one message."""
    calls = []
    for call in [call for entry in row for call in entry.calls]:
        output = outputs.pop(call.id, None)
        if output is None and not is_open:
            raise Refused(
                400, f"No tool output found for function call {call.id[:100]}.", param=where
            )
        calls.append(HistoryCall(name=call.name, arguments=call.arguments, output=output or ""))
    for call_id in outputs:
        raise Refused(
            400, f"No tool call found for the output with call_id {call_id[:100]!r}.", param=where
        )
    text = "\n\n".join(entry.text for entry in row if entry.text.strip())
    return HistoryMessage(role="assistant", content=text, calls=tuple(calls))


# ── fields of bodies ─────────────────────────────────────────────────────────────────────────


def text_field(body: Mapping[str, Any], name: str, *, most: int = MAX_NAME) -> str:
    """A text that may be left out or null; empty then."""
    found = body.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise _wrong_type(name, "a string", found)
    if len(found) > most:
        raise Refused(400, f"'{name}' is longer than {most} characters", param=name)
    return found


def flag_field(body: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    """A boolean that may be left out or null."""
    found = body.get(name)
    if found is None:
        return default
    if not isinstance(found, bool):
        raise _wrong_type(name, "a boolean", found)
    return found


def count_field(body: Mapping[str, Any], name: str) -> int | None:
    """A number of at least 1 that may be left out or null."""
    found = body.get(name)
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool):
        raise _wrong_type(name, "an integer", found)
    if found < 1:
        raise Refused(400, f"Invalid '{name}': it is at least 1.", param=name)
    return found


def stops_of(body: Mapping[str, Any]) -> list[str]:
    """The texts at which an answer is to stop."""
    found = body.get("stop")
    stops = [found] if isinstance(found, str) else list_field(body, "stop")
    if len(stops) > MAX_STOPS:
        raise Refused(400, f"'stop' has more than {MAX_STOPS} texts", param="stop")
    return [x for x in (text_at(f"stop[{at}]", x) for at, x in enumerate(stops)) if x]


def format_of(where: str, value: object) -> str:
    """What is said to the model about the form of its answer; empty where any text will do."""
    if value is None:
        return ""
    found = object_at(where, value)
    kind = found.get("type")
    if kind == "json_object":
        return "Answer with a JSON object, and nothing else."
    if kind != "json_schema":
        return ""
    schema = object_at(where, found.get("json_schema", found)).get("schema")
    text = msgspec.json.encode(object_at(f"{where}.schema", schema)).decode()
    return f"Answer with JSON that fits this schema, and nothing else:\n{text}"


def list_field(body: Mapping[str, Any], name: str, *, most: int = MAX_ITEMS) -> list[Any]:
    """A list that may be left out or null."""
    found = body.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise _wrong_type(name, "an array", found)
    check_length(name, found, most)
    return found


def check_length(where: str, given: Sequence[object], most: int = MAX_ITEMS) -> None:
    """Raise ``Refused`` for a list that is too long, in the words of OpenAI's API."""
    if len(given) > most:
        raise Refused(
            400, f"Invalid '{where}': array too long. Expected an array with maximum length {most},"
            f" but got an array with length {len(given)} instead.", param=where,
            code="array_above_max_length",
        )  # fmt: skip


def object_at(where: str, value: object) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise _wrong_type(where, "an object", value)
    return value


def text_at(where: str, value: object) -> str:
    """A text."""
    if not isinstance(value, str):
        raise _wrong_type(where, "a string", value)
    return value


def parts_of(where: str, content: object, *, shows: bool = False) -> str:
    """The text of a message's content: a text, or parts with texts.  ``shows``: others may stand
    between them, of which ``shown_in`` tells."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _wrong_type(where, "a string or an array of content parts", content)
    check_length(where, content)
    found: list[str] = []
    for at, part in enumerate(content):
        part = object_at(f"{where}[{at}]", part)
        kind = text_at(f"{where}[{at}].type", part.get("type"))
        if kind == "refusal":
            found.append(text_at(f"{where}[{at}].refusal", part.get("refusal")))
        elif kind in _TEXTS:
            found.append(text_at(f"{where}[{at}].text", part.get("text")))
        elif not (shows and kind in SHOWN):
            raise Refused(
                400, f"Content of type {kind[:50]!r} is not supported here; send text.",
                param=f"{where}[{at}].type", code="unsupported_value",
            )  # fmt: skip
    return "\n".join(found)


_TEXTS: Final = frozenset(("text", "input_text", "output_text", "summary_text", "reasoning_text"))


def tools_of(
    body: Mapping[str, Any], *, is_nested: bool
) -> tuple[tuple[GivenTool, ...], tuple[str, ...]]:
    """The function tools of a request, and the types of those that it does not get."""
    found, ignored = [], []
    for at, tool in enumerate(list_field(body, "tools", most=MAX_GIVEN_TOOLS)):
        where = f"tools[{at}]"
        tool = object_at(where, tool)
        kind = tool.get("type")
        if kind != "function":
            ignored.append(f"tools.{str(kind)[:50]}")
            continue
        if is_nested:
            where += ".function"
            tool = object_at(where, tool.get("function"))
        schema = tool.get("parameters")
        if schema is not None:
            schema = plain_parameters(object_at(f"{where}.parameters", schema))
        found.append(
            GivenTool(
                name=text_at(f"{where}.name", tool.get("name")),
                description=text_field(tool, "description", most=100_000),
                schema_json=NULL if schema is None else encode_value("parameters", schema),
            )
        )
    if body.get("tool_choice") == "none":
        found.clear()
    return tuple(found), tuple(dict.fromkeys(ignored))


def _wrong_type(where: str, wanted: str, value: object) -> Refused:
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    got = "null" if value is None else kinds.get(type(value), "a number")
    return Refused(
        400, f"Invalid type for '{where}': expected {wanted}, but got {got} instead.",
        param=where, code="invalid_type",
    )  # fmt: skip
