"""Reading a server's list of tools, which comes in pages, and may have no end."""

from collections.abc import Iterable
from typing import Final

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError

from hubbub.runtime.mcp.listing import ListedTool

__all__ = ["listed_tools"]

MAX_PAGES: Final = 100
MAX_LISTED: Final = 20_000


async def listed_tools(client: Client) -> tuple[ListedTool, ...]:
    """Everything that is listed, page by page, as far as it is read."""
    found: list[ListedTool] = []
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        try:
            page = await client.list_tools(cursor=cursor)
        except MCPError as error:
            if error.code == types.METHOD_NOT_FOUND and cursor is None:
                return ()  # It has none.
            raise
        found.extend(_listed(page.tools))
        cursor = page.next_cursor
        if cursor is None or cursor in seen or len(found) >= MAX_LISTED:
            break
        seen.add(cursor)
    return tuple(found[:MAX_LISTED])


def _listed(tools: Iterable[types.Tool]) -> Iterable[ListedTool]:
    for tool in tools:
        hints = tool.annotations
        yield ListedTool(
            name=tool.name,
            description=tool.description or tool.title or "",
            schema=tool.input_schema,
            repeatable=bool(hints and (hints.idempotent_hint or hints.read_only_hint)),
        )
