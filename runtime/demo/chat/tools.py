"""What the agents of ``hubbub chat`` can do: tell the time, and read the files of one folder.

``list_files`` and ``read_file`` see the folder that the user named and nothing else: no name leads
out of it, not by ``..``, not by a link, and hidden files (where keys tend to lie) are not shown.
They read through ``Offload``, and the time comes from ``Clock``.
"""

import os
from functools import partial
from pathlib import Path
from typing import Any, Final

from hubbub.agents.definitions.tools import Tool, ToolError, tool
from hubbub.hub.events.moments import date_of, shown_moment
from hubbub.hub.ports import Ports
from hubbub.runtime.demo.documents import list_documents, read_text

__all__ = ["clock_tool", "file_tools"]

MAX_LISTED: Final = 200
MAX_READ: Final = 64 * 1024
"""Bytes of a file that ``read_file`` shows."""


def clock_tool(ports: Ports) -> Tool[..., Any]:
    """``current_time``."""

    @tool
    async def current_time() -> str:
        """The current date and time, in UTC."""
        at = ports.clock.now()
        now = date_of(at)
        return shown_moment(at) if now is None else now.strftime("%A, %Y-%m-%d %H:%M:%S UTC")

    return current_time


def file_tools(ports: Ports, folder: Path | None) -> tuple[Tool[..., Any], ...]:
    """``list_files`` and ``read_file`` for ``folder``; none without one."""
    if folder is None:
        return ()
    root = os.path.realpath(folder)

    @tool(idempotent=True)
    async def list_files() -> list[str]:
        """The names of the text files in the user's folder and below it."""
        listing = await ports.offload.run(partial(list_documents, Path(root)))
        names = [document.path for document in listing.documents[:MAX_LISTED]]
        more = len(listing.documents) - len(names)
        return [*names, f"(and {more} more)"] if more else names

    @tool(idempotent=True)
    async def read_file(name: str) -> str:
        """Read a text file of the user's folder; name is one of those that list_files gives."""
        return await ports.offload.run(partial(_read_below, root, name))

    return list_files, read_file


def _read_below(root: str, name: str) -> str:
    """The text of a file below ``root``; raises ``ToolError`` for every other name."""
    if "\0" in name:
        raise ToolError("a name cannot hold a NUL character")
    path = os.path.realpath(os.path.join(root, name))
    below = os.path.relpath(path, root)
    if below == os.pardir or below.startswith(os.pardir + os.sep) or os.path.isabs(below):
        raise ToolError(f"{name!r} lies outside of the folder; use a name that list_files gives")
    if any(part.startswith(".") and part != "." for part in below.split(os.sep)):
        raise ToolError(f"{name!r} is hidden; hidden files are not shown")
    try:
        text, is_whole = read_text(path, MAX_READ)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise ToolError(f"{name!r} cannot be read: {problem}; use list_files") from None
    return text if is_whole else f"{text}\n[cut: only the first {MAX_READ:,} bytes are shown]"
