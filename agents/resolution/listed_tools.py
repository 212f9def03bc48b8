"""Tools that servers list while a runtime is open, made a part of its sides."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import structs

from hubbub.agents.built_in import BUILT_IN
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.resolution.sides import ActiveSide

__all__ = ["clashes_of", "with_listed"]

Listed = Mapping[str, Sequence[Tool[..., Any]]]


def with_listed(side: ActiveSide, listed: Listed) -> ActiveSide:
    """The side with the tools of its servers, in the order of the prompt, then of each list.

    Of two tools with one name the side has its own, or the earlier server's.
    """
    found: dict[str, Tool[..., Any]] = {}
    for _, tool in _of_servers(side, listed):
        if not _is_taken(tool.name, side):
            found.setdefault(tool.name, tool)
    if not found:
        return side
    return structs.replace(
        side, tools={**side.tools, **found}, offered=side.offered | found.keys(), has_given=True,
        may_ask=side.may_ask or any(each.asks for each in found.values()),
    )  # fmt: skip


def clashes_of(side: ActiveSide, listed: Listed) -> Iterator[str]:
    """What is left out because its name is taken, each in a sentence."""
    holders: dict[str, str] = {}
    for server, tool in _of_servers(side, listed):
        holder = side.agent if _is_taken(tool.name, side) else holders.setdefault(tool.name, server)
        if holder != server:
            yield f"{tool.name!r} of the server {server!r} is left out: {holder!r} has that name"


def _of_servers(side: ActiveSide, listed: Listed) -> Iterator[tuple[str, Tool[..., Any]]]:
    for server in side.servers:
        for tool in listed.get(server.name, ()):
            yield server.name, tool


def _is_taken(name: str, side: ActiveSide) -> bool:
    return name in side.offered or name in BUILT_IN
