"""Reading a server's list of tools, which comes in pages, and may have no end."""

from collections.abc import Iterator
from typing import Final

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError

from hubbub.runtime.mcp.answers import left_out_of, promises_of
from hubbub.runtime.mcp.listing import ListedTool

__all__ = ["listed_tools"]

MAX_PAGES: Final = 100
MAX_LISTED: Final = 20_000


async def listed_tools(client: Client) -> tuple[tuple[ListedTool, ...], tuple[str, ...]]:
    """Everything that is listed, page by page, as far as it is read, and what is not used of it."""
    found: list[ListedTool] = []
    problems: list[str] = []
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        try:
            page = await client.list_tools(cursor=cursor)
        except MCPError as error:
            if error.code == types.METHOD_NOT_FOUND and cursor is None:
                return (), ()  # It has none.
            raise
        found.extend(_listed(page))
        problems.extend(left_out_of(page))
        cursor = page.next_cursor
        if cursor is None:
            break
        if cursor in seen:
            problems.append("the pages of the list repeat themselves: no more of them are read")
            break
        seen.add(cursor)
        if len(seen) >= MAX_PAGES or len(found) >= MAX_LISTED:
            read = f"after {len(seen):,} pages and {len(found):,} tools"
            problems.append(f"{read} the list still goes on: no more of it is read")
            break
    return tuple(found[:MAX_LISTED]), tuple(problems)


def _listed(page: types.ListToolsResult) -> Iterator[ListedTool]:
    promises = promises_of(page)
    for tool in page.tools:
        hints = tool.annotations
        yield ListedTool(
            name=tool.name,
            description=tool.description or tool.title or "",
            schema=tool.input_schema,
            repeatable=bool(hints and (hints.idempotent_hint or hints.read_only_hint)),
            promise=promises.get(tool.name),
        )
