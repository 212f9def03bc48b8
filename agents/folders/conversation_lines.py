"""One entry of ``context.jsonl`` and its text (IA "Session Logging").

What entries say, and when they are written: see conversation.py.  All keys are always written,
but ``origin``; ``created_at`` is ISO 8601 in UTC, with microseconds and ``Z``.
"""

from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from hubbub.agents.folders.history_lines import decode_line, write_line
from hubbub.hub.events.moments import LAST_MOMENT, shown_moment
from hubbub.hub.values import Json

__all__ = [
    "AgentSessionCompleteEntry", "AgentSessionEntry", "AssistantEntry", "Entry", "ResetEntry",
    "ToolResultEntry", "ToolUseEntry", "UserEntry", "input_of", "read_entry", "same_entry",
    "timestamp", "write_entry",
]  # fmt: skip


class AgentSessionEntry(Struct, frozen=True, kw_only=True, tag_field="type", tag="agent_session"):
    """A frame takes the conversation over; ``id`` is its run's, and tags what it says."""

    id: str
    agent_name: str
    agent_type: Literal["skill", "agent"]
    parent_tool_use_id: str
    """The call that waits, by the id under which the model of the frame below knows it."""
    parent_agent_session_id: str
    model: str | None
    created_at: str


class UserEntry(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="user_message"
):
    """What was said to the speaker: by the user, or, with ``origin``, by a run or a program."""

    content: str
    agent_session_id: str
    created_at: str
    origin: str = ""


class AssistantEntry(Struct, frozen=True, kw_only=True, tag_field="type", tag="assistant_message"):
    """What the speaker said."""

    content: str
    agent_session_id: str
    created_at: str


class ToolUseEntry(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    """A call, with the id under which its model knows it; ``input`` is a text if it is no JSON."""

    id: str
    name: str
    input: Json
    agent_session_id: str
    created_at: str


class ToolResultEntry(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_result"):
    """A call's one result."""

    tool_use_id: str
    output: str
    is_error: bool
    agent_session_id: str
    created_at: str


class AgentSessionCompleteEntry(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="agent_session_complete"
):
    """A frame has given the conversation back; ``result`` is what the call got that began it.

    ``is_error``: it did not call ``complete``, but ran into a limit or an error, or was cancelled.
    """

    agent_session_id: str
    result: str
    is_error: bool
    created_at: str


class ResetEntry(Struct, frozen=True, kw_only=True, tag_field="type", tag="reset"):
    """The speaker has forgotten everything before this, except for ``message``."""

    message: str
    agent_session_id: str
    created_at: str


Entry: TypeAlias = (
    AgentSessionEntry
    | UserEntry
    | AssistantEntry
    | ToolUseEntry
    | ToolResultEntry
    | AgentSessionCompleteEntry
    | ResetEntry
)

_KINDS: Final = frozenset(str(kind.__struct_config__.tag) for kind in Entry.__args__)
_decoder: Final = msgspec.json.Decoder(Entry)


def write_entry(entry: Entry) -> bytes:
    """``entry`` with its newline; halves of surrogate pairs become ``�``."""
    return write_line(entry)


def read_entry(data: bytes) -> Entry | None:
    """The entry that ``data`` describes, ``None`` for one of an unknown kind.

    Raises ``BadValue`` for what is no entry.
    """
    entry: Entry | None = decode_line(_decoder, _KINDS, data, "context")
    return entry


def same_entry(one: Entry, two: Entry) -> bool:
    """Whether two entries say the same."""
    return write_entry(one) == write_entry(two)


def timestamp(at: int) -> str:
    """``at`` (µs since the epoch) in the form of ``created_at``, which has no other times."""
    return shown_moment(min(max(at, 0), LAST_MOMENT), "microseconds")


def input_of(arguments: str) -> Json:
    """What a model wrote as a call's arguments, on one line; a text where it is no JSON."""
    try:
        return msgspec.Raw(msgspec.json.encode(msgspec.json.decode(arguments)))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        printable = arguments.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return msgspec.Raw(msgspec.json.encode(printable))
