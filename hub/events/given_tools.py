"""Tools that a run is opened with: external ones, which only this run has."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from hubbub.hub.errors import BadValue
from hubbub.hub.events.sessions import GivenTool
from hubbub.hub.near_misses import kind_of
from hubbub.hub.texts import text_problem
from hubbub.hub.values import LIMIT_OF_TIME, NULL, encode_value, is_time_limit

__all__ = [
    "MAX_GIVEN_BYTES", "MAX_GIVEN_TOOLS", "ExternalTool", "given_tools_problem",
    "read_given_tools",
]  # fmt: skip

MAX_GIVEN_TOOLS: Final = 128
MAX_GIVEN_BYTES: Final = 1_000_000
"""What the names, descriptions and schemas of one run's tools take."""

_is_name: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch


@runtime_checkable
class ExternalTool(Protocol):
    """A tool without a function, as ``external_tool`` makes it."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def schema(self) -> Mapping[str, Any]:
        """A JSON schema of an object."""
        ...

    @property
    def timeout(self) -> float | None:
        """Seconds."""
        ...

    @property
    def is_external(self) -> bool: ...


def read_given_tools(tools: object) -> tuple[GivenTool, ...]:
    """The tools as an opening keeps them.  Raises ``BadValue`` for what is no external tool."""
    if isinstance(tools, str | bytes) or not isinstance(tools, Sequence):
        raise BadValue("tools", f"expected a list of tools, not {kind_of(tools)}")
    if len(tools) > MAX_GIVEN_TOOLS:
        raise BadValue("tools", f"more than {MAX_GIVEN_TOOLS}")
    found = []
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        if isinstance(tool, type):
            raise BadValue(where, f"expected external_tool(…) or a GivenTool, not {kind_of(tool)}")
        if isinstance(tool, ExternalTool) and tool.is_external is True:
            tool = GivenTool(
                name=tool.name, description=tool.description, timeout=tool.timeout,
                schema_json=encode_value(where, dict(tool.schema)),
            )  # fmt: skip
        if not isinstance(tool, GivenTool):
            what = "another tool" if hasattr(tool, "is_external") else type(tool).__name__
            raise BadValue(where, f"expected external_tool(…) or a GivenTool, not {what}")
        if tool.timeout is not None and not is_time_limit(tool.timeout):
            raise BadValue(f"{where}.timeout", f"use {LIMIT_OF_TIME}, or None for no limit")
        try:
            found.append(_decoder.decode(msgspec.json.encode(tool)))
        except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
            raise BadValue(where, f"it cannot be kept ({error})") from None
    return tuple(found)


def given_tools_problem(tools: Sequence[GivenTool]) -> str:
    """Why no run may be opened with these tools, as far as that is known without their schemas."""
    if len(tools) > MAX_GIVEN_TOOLS:
        return f"more than {MAX_GIVEN_TOOLS}"
    size, names = 0, set()
    for index, tool in enumerate(tools):
        if not _is_name(tool.name):
            return f"tools[{index}]: a name is 1 to 64 letters, digits, '_' and '-'"
        if tool.name in names:
            return f"tools[{index}]: two tools are named {tool.name!r}"
        names.add(tool.name)
        if problem := text_problem(tool.description):
            return f"tools[{index}].description: {problem}"
        if tool.timeout is not None and not is_time_limit(tool.timeout):
            return f"tools[{index}].timeout: {LIMIT_OF_TIME}, or none for no limit"
        schema = b"" if tool.schema_json is NULL else bytes(tool.schema_json)
        size += len(tool.name) + len(tool.description.encode()) + len(schema)
    return f"more than {MAX_GIVEN_BYTES:,} bytes" if size > MAX_GIVEN_BYTES else ""


_decoder: Final = msgspec.json.Decoder(GivenTool)
