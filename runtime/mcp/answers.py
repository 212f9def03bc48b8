"""What a server answers, made into what the SDK can read.

The SDK checks an answer as a whole: one tool without a schema would take all tools away, one part
of an unknown type a whole result.  Here, before it reads them, what is unusable is taken out of a
list and named, and out of a result and told to the model.  What says nothing usable at all is
``Unusable``.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import mcp_types as types
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types.methods import validate_server_result

from hubbub.hub.near_misses import shown
from hubbub.hub.texts import readable

__all__ = [
    "Unusable", "finite", "first_problem", "is_flat", "left_out_of", "promises_of", "usable_answer",
    "with_flat_tools",
]  # fmt: skip

LEFT_OUT: Final = "hubbub/left_out"
"""In the ``_meta`` of a page: what was taken out of it, and why."""

PROMISES: Final = "hubbub/promises"
"""In the ``_meta`` of a page: the schema of its structured results, for each tool that has one."""

MAX_LEFT_OUT: Final = 1_000
MAX_PARTS: Final = 1_000
"""Parts of one result."""

MAX_LISTED: Final = 20_000
"""Tools that are looked at on one page."""

MAX_DEPTH: Final = 64
"""Lists and objects within one another in what a server says of one tool."""

_STRICTEST: Final = "2025-11-25"
"""The generation of the protocol that allows a tool the least."""

_COMPLETE: Final = (None, "complete")


class Unusable(Exception):
    """The answer is none to its request."""


def first_problem(error: Any, *, skipped: int = 0) -> str:
    """What is wrong first with an answer that the SDK refuses by pydantic, and where, without so
    many steps of the way there."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"][skipped:]))
    return f"{place}: {first['msg']}" if place else str(first["msg"])


def usable_answer(
    method: str, raw: dict[str, Any], *, is_modern: bool, admits: Callable[[str], bool]
) -> dict[str, Any]:
    """The answer to a request of this method, in a form that the SDK reads.

    ``is_modern``: by a protocol of 2026 or later.  ``admits``: whether a tool of that name is
    wanted; of others nothing is read.  Raises ``Unusable``.
    """
    match method:
        case "initialize":
            return _usable_opening(raw)
        case "server/discover" if isinstance(raw.get("supportedVersions"), list):
            return _usable_opening(raw)
        case "tools/list":
            return _usable_page(raw, is_modern=is_modern, admits=admits)
        case "tools/call":
            return _usable_result(raw, is_modern=is_modern)
        case _:
            return raw


def left_out_of(page: types.ListToolsResult) -> list[str]:
    """What was taken out of a page, and why."""
    return list((page.meta or {}).get(LEFT_OUT, ()))


def promises_of(page: types.ListToolsResult) -> dict[str, Any]:
    """The schemas of structured results, by tool."""
    promised = {each.name: each.output_schema for each in page.tools if each.output_schema}
    return promised | dict((page.meta or {}).get(PROMISES, {}))


# ── how a server opens ───────────────────────────────────────────────────────────────────────


def _usable_opening(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The versions that a server speaks, and whether it tells of changes: no more is read of it."""
    capabilities = raw.get("capabilities")
    tools = capabilities.get("tools") if isinstance(capabilities, dict) else None
    tells = isinstance(tools, dict) and tools.get("listChanged") is True
    versions = {key: raw[key] for key in ("protocolVersion", "supportedVersions") if key in raw}
    return {
        **versions,
        "capabilities": {"tools": {"listChanged": tells}},
        "serverInfo": {"name": "", "version": ""},
        "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
    }  # fmt: skip


# ── a page of tools ──────────────────────────────────────────────────────────────────────────


def _usable_page(
    raw: dict[str, Any], *, is_modern: bool, admits: Callable[[str], bool]
) -> dict[str, Any]:
    listed = raw.get("tools")
    if not isinstance(listed, list):
        raise Unusable(f"tools: expected a list, not {shown(listed)}")
    problems: list[str] = []
    kept: list[dict[str, Any]] = []
    promises: dict[str, Any] = {}
    if len(listed) > MAX_LISTED:
        problems.append(f"{len(listed):,} tools on one page: none is read after {MAX_LISTED:,}")
    for place, each in enumerate(listed[:MAX_LISTED]):
        if _is_unwanted(each, admits):
            continue  # Before anything costly: of thousands of tools, few may be wanted.
        if problem := next(_tool_problems(each, is_modern=is_modern), ""):
            name = each.get("name") if isinstance(each, dict) else None
            called = shown(name) if isinstance(name, str) else f"tool {place + 1}"
            problems.append(f"{called}: {problem}")
            continue
        kept.append(_plain_tool(each))
        if isinstance(each.get("outputSchema"), dict):
            promises.setdefault(each["name"], each["outputSchema"])
    cursor = raw.get("nextCursor")
    if cursor is not None and not isinstance(cursor, str):
        problems.append(f"the cursor {shown(cursor)} is no text: the tools after it are not read")
        cursor = None
    if len(problems) > MAX_LEFT_OUT:
        problems[MAX_LEFT_OUT:] = [f"{len(problems) - MAX_LEFT_OUT:,} more are not listed here"]
    return {
        "tools": kept, "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
        "_meta": {LEFT_OUT: problems, PROMISES: promises},
        **({} if cursor is None else {"nextCursor": cursor}),
    }  # fmt: skip


def _is_unwanted(tool: Any, admits: Callable[[str], bool]) -> bool:
    name = tool.get("name") if isinstance(tool, dict) else None
    return isinstance(name, str) and not admits(name)


def _tool_problems(tool: Any, *, is_modern: bool) -> Iterator[str]:
    if not isinstance(tool, dict):
        yield f"it is no object, but {shown(tool)}"
        return
    if not isinstance(tool.get("name"), str):
        yield f"its name is no text, but {shown(tool.get('name'))}"
        return
    if not is_flat(tool):
        yield _TOO_DEEP
        return
    if "inputSchema" not in tool:
        yield "it has no inputSchema"
        return
    if not isinstance(tool["inputSchema"], dict):
        yield f"its schema is not one of an object, but {shown(tool['inputSchema'])}"
        return
    if tool["inputSchema"].get("type", "object") != "object":
        yield f"its schema is not one of an object, but of {shown(tool['inputSchema']['type'])}"
        return
    for field in ("description", "title"):
        if not isinstance(tool.get(field), str | None):
            yield f"its {field} is no text, but {shown(tool[field])}"
    try:
        validate_server_result("tools/list", _STRICTEST, {"tools": [_plain_tool(tool)]})
    except ValueError as error:
        yield first_problem(error, skipped=2)
    # By the newer protocol such a tool must not be called, and the SDK would drop it silently.
    if is_modern and (problem := find_invalid_x_mcp_header(tool["inputSchema"])) is not None:
        yield f"its x-mcp-header is invalid: {problem}"


_TOO_DEEP: Final = f"its schema is nested deeper than {MAX_DEPTH} levels"


def with_flat_tools(answer: Any) -> Any:
    """An answer in which each tool that is nested too deeply has only its name, and a list in the
    place of its schema that is as deep as is needed to be left out for it."""
    match answer:
        case {"result": {"tools": [*tools]} as result}:
            return {**answer, "result": {**result, "tools": [*map(_flat, tools)]}}
        case _:
            return answer


def _flat(tool: Any) -> Any:
    if isinstance(tool, dict) and not is_flat(tool):
        return {"name": tool.get("name"), "inputSchema": _DEEP}
    return tool


def _deep() -> Any:
    found: list[Any] = []
    for _ in range(MAX_DEPTH):
        found = [found]
    return found


_DEEP: Final = _deep()


def is_flat(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Whether lists and objects in it are not too many within one another."""
    level = [value]
    for _ in range(levels):
        level = [
            each
            for part in level
            for each in (part.values() if isinstance(part, dict) else part)
            if isinstance(each, dict | list)
        ]
        if not level:
            return True
    return False


def _plain_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool without what nobody here reads, whatever that holds."""
    hints = tool.get("annotations")
    given = hints if isinstance(hints, dict) else {}
    # The SDK does without outputSchema: it would check results by it without any limit of time.
    return {
        "name": tool["name"],
        "inputSchema": {"type": "object", **tool["inputSchema"]},
        **{key: tool[key] for key in ("description", "title") if tool.get(key) is not None},
        "annotations": {
            key: True for key in ("readOnlyHint", "idempotentHint") if given.get(key) is True
        },
    }


# ── a result ─────────────────────────────────────────────────────────────────────────────────


def _usable_result(raw: dict[str, Any], *, is_modern: bool) -> dict[str, Any]:
    if raw.get("resultType") not in _COMPLETE or "task" in raw:
        return raw
    structured = finite(raw.get("structuredContent"))
    content = raw.get("content")
    if content is None and structured is not None:
        content = []
    if not isinstance(content, list):
        raise Unusable(f"content: expected a list, not {shown(content)}")
    if len(content) > MAX_PARTS:
        raise Unusable(
            f"content: {len(content):,} parts are too many, at most {MAX_PARTS:,} are read"
        )
    blocks = [_usable_block(each) for each in content]
    if not is_modern and structured is not None and not isinstance(structured, dict):
        if not blocks:  # It is all there is.
            blocks.append(_text(json.dumps(structured, ensure_ascii=False)))
        structured = None
    return {
        "content": blocks,
        "isError": raw.get("isError") not in (None, False),
        "resultType": "complete",
        **({} if structured is None else {"structuredContent": structured}),
    }


def _usable_block(block: Any) -> dict[str, Any]:
    """A part of a result; what is none, as a text that says so."""
    match block:
        case {"type": "text", "text": str(text)}:
            return _text(readable(text))
        case {"type": "image" | "audio" as kind, "data": str(data)}:
            return {"type": kind, "data": data, "mimeType": _text_in(block, "mimeType")}
        case {"type": "resource_link", "uri": str(uri)}:
            return _text(f"[{readable(_text_in(block, 'name') or 'a resource')}: {readable(uri)}]")
        case {"type": "resource", "resource": {"text": str(text)} as resource}:
            uri = readable(_text_in(resource, "uri") or "a resource")
            return _text(f"[{uri}]\n{readable(text)}")
        case {"type": "resource", "resource": {"blob": str(blob)} as resource}:
            uri, kind = _text_in(resource, "uri"), _text_in(resource, "mimeType")
            made = {"uri": readable(uri or "a resource"), "blob": blob, "mimeType": kind}
            return {"type": "resource", "resource": made}
        case {"type": "text" | "image" | "audio" | "resource_link" | "resource" as kind}:
            return _text(f"[a part of the type {kind!r} was left out: it lacks what belongs to it]")
        case {"type": str(kind)}:
            return _text(f"[a part of the type {shown(readable(kind))} was left out]")
        case _:
            return _text("[a part of no type was left out]")


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _text_in(block: Mapping[str, Any], key: str) -> str:
    found = block.get(key)
    return found if isinstance(found, str) else ""


def finite(value: Any) -> Any:
    """Plain data with None for each number that JSON has not, and readable texts."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case str():
            return readable(value)
        case list():
            return [finite(each) for each in value]
        case dict():
            return {readable(key): finite(each) for key, each in value.items()}
        case _:
            return value
