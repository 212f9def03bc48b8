"""One line of ``history.jsonl`` and its text.  What they say: see history.py.

Keys of AT's are always written; others while they say something.
"""

from collections.abc import Container
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from hubbub.hub.errors import BadValue
from hubbub.hub.events import NO_USAGE, OutcomeName, Usage
from hubbub.hub.values import NULL, Json

__all__ = [
    "AssistantLine", "CallPart", "CompactionLine", "File", "Line", "OfResult", "RecordLine",
    "ResetLine", "StartLine", "SystemLine", "ToolResultLine", "UserLine", "Waited", "agrees",
    "call_id", "decode_line", "read_line", "write_line",
]  # fmt: skip


class File(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that came with a text, under its name in this run; by name alone without digest."""

    path: str
    digest: str = ""
    size: int = 0


class CallPart(Struct, frozen=True, kw_only=True):
    """A call that a model asked for; ``arguments`` as it wrote them."""

    id: str
    name: str
    arguments: str


class OfResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a child's result says beside its text."""

    agent: str
    name: str = ""
    session: int = 1
    success: bool = True
    outcome: OutcomeName = "completed"
    reason: str = ""
    content: str | None = None
    """Where the line's text does not end with it."""
    answers: tuple[str, ...] = ()
    final: bool = False


class _Line(
    Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", tag_field="type"
):
    at: int
    seq: int
    session: int = 0
    turn: int = 0
    side: str = ""
    """The side at work, in a two-sided agent."""


class StartLine(_Line, frozen=True, kw_only=True, tag="start"):
    agent: str
    input: Json = NULL
    """Where it differs from what the run was opened with."""
    name: str = ""
    tags: tuple[str, ...] = ()
    two_sided: bool = False
    once: bool = False
    session_key: str = ""
    correlation_id: str = ""


class ResetLine(_Line, frozen=True, kw_only=True, tag="reset"):
    message: str = ""


class UserLine(_Line, frozen=True, kw_only=True, tag="user_message"):
    text: str
    files: tuple[File, ...]
    opening: bool = False
    """Whether the run was opened with it; ``input`` is what it was opened with if no text."""
    input: Json = NULL
    source: str = ""
    key: str = ""
    triggers: bool = True
    prompt_id: str = ""
    redelivered: bool = False
    metadata: Json = NULL
    given: bool = False
    """Whether it was said before the run began."""


class SystemLine(_Line, frozen=True, kw_only=True, tag="system_message"):
    """``origin`` is a run's id, a sender's name, or the side whose turn has ended."""

    text: str
    origin: str
    silent: bool
    files: tuple[File, ...] = ()
    to: str = ""
    """The side that it is for."""
    result: OfResult | None = None
    failed_start: str = ""
    """The agent that could not be started."""
    is_turn: bool = False
    reason: str = ""
    role: str = "user"
    key: str = ""
    triggers: bool = True
    prompt_id: str = ""
    redelivered: bool = False
    metadata: Json = NULL


class AssistantLine(_Line, frozen=True, kw_only=True, tag="assistant_message"):
    """Without ``step`` it was said outside of a model's step."""

    text: str
    files: tuple[File, ...]
    tool_calls: tuple[CallPart, ...]
    step: int = 0
    label: str = ""
    parallel: bool = False
    stop_reason: str = "end"
    model: str = ""
    usage: Usage = NO_USAGE
    cached_apart: bool = False
    cost_nanos: int | None = None
    worked: int = 0
    call: str = ""
    """The call of whose tool said it."""
    given: bool = False
    """Whether it was said before the run began."""


class Waited(Struct, frozen=True):
    """The message to a child whose result the call waited for."""

    child: str
    key: str


class ToolResultLine(_Line, frozen=True, kw_only=True, tag="tool_result"):
    tool_call_id: str
    output: str
    is_error: bool
    name: str = ""
    step: int = 0
    index: int = 0
    ran: bool = True
    notes: tuple[str, ...] = ()
    attachments: tuple[str, ...] = ()
    waited: Waited | None = None
    """Where the call was answered before that result came."""


class RecordLine(_Line, frozen=True, kw_only=True, tag="record"):
    name: str
    index: int
    value: Json


class CompactionLine(_Line, frozen=True, kw_only=True, tag="compaction"):
    text: str
    covers: int = 0
    error: str = ""
    model: str = ""
    usage: Usage = NO_USAGE
    cached_apart: bool = False
    cost_nanos: int | None = None


Line: TypeAlias = (
    StartLine
    | ResetLine
    | UserLine
    | SystemLine
    | AssistantLine
    | ToolResultLine
    | RecordLine
    | CompactionLine
)

_KINDS: Final = frozenset(str(kind.__struct_config__.tag) for kind in Line.__args__)
_decoder: Final = msgspec.json.Decoder(Line)
_objects: Final = msgspec.json.Decoder(dict[str, Json])
_encoder: Final = msgspec.json.Encoder()


# ── as text ──────────────────────────────────────────────────────────────────────────────────


def write_line(line: Struct) -> bytes:
    """``line`` with its newline; halves of surrogate pairs become ``�``."""
    try:
        return _encoder.encode(line) + b"\n"
    except UnicodeEncodeError:
        return _encoder.encode(_printable(line)) + b"\n"


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, tuple):
        return tuple(_printable(each) for each in value)
    if isinstance(value, Struct):
        return replace(value, **{f: _printable(getattr(value, f)) for f in value.__struct_fields__})
    return value


def read_line(data: bytes) -> Line | None:
    """The line that ``data`` describes, ``None`` for one of an unknown kind.

    Raises ``BadValue`` for what is no line.
    """
    line: Line | None = decode_line(_decoder, _KINDS, data, "history")
    return line


def decode_line(
    decoder: msgspec.json.Decoder[Any], kinds: Container[str], data: bytes, file: str
) -> Any:
    """A line of ``file`` as ``decoder`` reads it, ``None`` for one that is of none of ``kinds``.

    Raises ``BadValue`` for what is no line.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = str(error)
    if _is_known(data, kinds):
        raise BadValue(file, problem)
    return None


def _is_known(data: bytes, kinds: Container[str]) -> bool:
    """Whether ``data`` is of one of these kinds, or no line at all."""
    try:
        kind = msgspec.json.decode(_objects.decode(data).get("type", NULL), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    return kind in kinds


def agrees(one: Line, two: Line) -> bool:
    """Whether two lines say the same, though another version may have written one of them."""
    if one.__class__ is not two.__class__ or (one.seq, one.at) != (two.seq, two.at):
        return False
    two = _decoder.decode(write_line(two))
    names = ("text", "output", "message", "tool_calls", "tool_call_id", "is_error", "origin")
    return all(getattr(one, name, None) == getattr(two, name, None) for name in names)


def call_id(step: int, index: int) -> str:
    """The id of a call as the model sees it, unique within the run."""
    return f"call_{step}_{index}"
