"""``ServerListing``: the tools that a server lists, as prompts get them.

A list is another one's word: names that providers would refuse, schemas that are none, ten
thousand tools, the same name twice.  What cannot be used is left out, and said; the rest is sorted
by name, so that the same tools always make the same list.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from hubbub.agents.definitions.approval import Approval
from hubbub.agents.definitions.run_state import RunState
from hubbub.agents.definitions.schema import plain_json
from hubbub.agents.definitions.tools import Tool, ToolResult
from hubbub.agents.mcp_server import McpServer
from hubbub.agents.model import ToolSpec
from hubbub.hub.near_misses import shown
from hubbub.hub.texts import text_problem
from hubbub.runtime.mcp.schema_check import ServerArguments
from hubbub.runtime.mcp.schemas.trial import part_at

__all__ = ["Call", "ListedTool", "ServerListing", "listing_of"]

MAX_SCHEMA_BYTES: Final = 64 << 10
MAX_DESCRIPTION: Final = 10_000
MAX_TOOL_NAME: Final = 64
"""What providers allow."""

Call = Callable[[str, Mapping[str, Any], RunState], Awaitable[ToolResult]]
"""Calls the tool that the server calls so."""


class ListedTool(Struct, frozen=True):
    """A tool as a server lists it; nothing of it has been checked."""

    name: str
    description: str
    schema: Any
    repeatable: bool
    """Whether the server says that a call may be made again."""
    promise: Any = None
    """The schema that its structured results fit, as the server says."""


class ServerListing(Struct, frozen=True, eq=False):
    """What prompts get of a server's tools, and what was left out."""

    tools: tuple[Tool[..., Any], ...] = ()
    source: tuple[ListedTool, ...] = ()
    """What the tools are made of."""
    problems: tuple[str, ...] = ()
    promises: Mapping[str, Any] = {}
    """The schemas of structured results, by the server's names of the tools."""


def listing_of(
    server: McpServer, listed: Iterable[ListedTool], call: Call, left_out: Iterable[str] = ()
) -> ServerListing:
    """The tools of a list.  Two lists of the same tools have the same ``source``.

    ``left_out``: what was not usable as it was read.
    """
    problems = list(left_out)
    chosen: dict[str, ListedTool] = {}
    promises: dict[str, Any] = {}

    def order(tool: ListedTool) -> tuple[bool, str]:
        # A name that is used as it is has precedence over one that was changed to be it.
        return _shown_name(server, tool.name) != server.prefix + tool.name, tool.name

    for each in sorted(listed, key=order):
        if not server.admits(each.name):
            continue
        name = _shown_name(server, each.name)
        if name in chosen:
            problems.append(f"{shown(each.name)}: {name!r} is another tool's name already")
        elif problem := next(_tool_problems(each), ""):
            problems.append(f"{shown(each.name)}: {problem}")
        else:
            chosen[name] = each
            if problem := _promise_problem(each):
                problems.append(f"{shown(each.name)}: {problem}")
            elif each.promise is not None:
                promises[each.name] = each.promise
    names = sorted(chosen)
    if len(names) > server.max_tools:
        problems.append(
            f"{len(names):,} tools are too many: those after the first {server.max_tools} by name "
            "are left out; choose by allow=…, or give max_tools=…"
        )
        del names[server.max_tools :]
    return ServerListing(
        tools=tuple(_tool(server, name, chosen[name], call) for name in names),
        source=tuple(chosen[name] for name in names),
        problems=tuple(problems),
        promises=promises,
    )


def _shown_name(server: McpServer, name: str) -> str:
    """A tool's name as models see it."""
    return (server.prefix + re.sub(r"[^a-zA-Z0-9_-]", "_", name))[:MAX_TOOL_NAME]


def _tool_problems(tool: ListedTool) -> Iterator[str]:
    if not tool.name:
        yield "it has no name"
    if problem := text_problem(tool.description):
        yield f"its description: {problem}"
    schema = tool.schema
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        yield "its schema is not one of an object"
        return
    if not isinstance(schema.get("properties", {}), dict):
        yield "the properties of its schema are no mapping"
    if problem := _size_problem(schema):
        yield f"its schema{problem}"
        return
    settled: dict[str, str] = {}
    for reference in _references(schema):
        if why := _reference_problem(schema, reference, settled):
            yield f"its schema refers to {shown(reference)}, which {why}"
            return


def _promise_problem(tool: ListedTool) -> str:
    """Why the structured results of a tool are not checked; empty where they are."""
    problem = "" if tool.promise is None else _size_problem(tool.promise)
    return problem and f"its results are not checked: their schema{problem}"


def _size_problem(schema: Any) -> str:
    """Why a schema cannot be used at all; empty where it can."""
    try:
        # Before it is read: what is too long is not gone through part by part.
        if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
            return f" is longer than {MAX_SCHEMA_BYTES:,} bytes"
        plain_json(schema, "")
    except Exception as problem:
        return f": {problem}"
    return ""


def _references(part: Any) -> Iterator[str]:
    """Everything that a schema refers to."""
    if isinstance(part, dict) and isinstance(reference := part.get("$ref"), str):
        yield reference
    for each in part.values() if isinstance(part, dict) else part:
        if isinstance(each, dict | list):
            yield from _references(each)


def _reference_problem(schema: Any, reference: str, settled: dict[str, str]) -> str:
    """Why no provider of a model could follow a reference of a schema; empty where it can.

    ``settled`` has what was found of others: each is followed once, however many lead to it.
    """
    followed: dict[str, None] = {}
    problem: str | None = None
    while problem is None:
        if reference in followed:
            problem = "refers to nothing but itself"
        elif reference in settled:
            problem = settled[reference]
        else:
            followed[reference] = None
            reference, problem = _step_along(schema, reference)
    settled.update(dict.fromkeys(followed, problem))
    return problem


def _step_along(schema: Any, reference: str) -> tuple[str, str | None]:
    """The reference that a reference leads to, or why it is none, or empty for the end."""
    if not reference.startswith("#"):
        return "", "is elsewhere"
    if not reference.startswith("#/"):  # All of it, or a name given somewhere in it.
        return "", ""
    try:
        part = part_at(schema, reference)
    except LookupError:
        return "", "is not there"
    if isinstance(part, dict) and isinstance(part.get("$ref"), str):
        return part["$ref"], None
    return "", ""


def _approval(server: McpServer, tool: str) -> Approval | None:
    asks = server.asks_about(tool)
    if isinstance(asks, bool):
        return Approval(None, server.approval_timeout) if asks else None
    return Approval(asks, server.approval_timeout)


def _tool(server: McpServer, name: str, tool: ListedTool, call: Call) -> Tool[..., Any]:
    given = plain_json(tool.schema, "")
    schema = {**given, "type": "object", "properties": given.get("properties", {})}
    description = tool.description[:MAX_DESCRIPTION]

    async def at_the_server(arguments: Mapping[str, Any], state: RunState) -> ToolResult:
        return await call(tool.name, arguments, state)

    return Tool(
        name=name,
        description=description,
        schema=schema,
        timeout=server.timeout,
        idempotent=tool.repeatable,
        fn=at_the_server,
        is_async=True,
        state_parameter="state",
        spec=ToolSpec(name=name, description=description, schema=schema),
        _arguments=ServerArguments(name, schema),
        approval=_approval(server, tool.name),
    )
