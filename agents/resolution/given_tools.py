"""Tools that a run was opened with, made a part of its sides."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import structs

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.external import given_tool
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.hub.errors import DefinitionError
from hubbub.hub.events import GivenTool
from hubbub.hub.values import NULL, decode_value

__all__ = ["made_of", "refusal_of_seed", "with_given"]


MAX_PARTS: Final = 3_000
"""Parts of the schemas of one run's tools that are read, so that arguments are checked by them: a
tenth of a second's work.  The tools behind these are only shown."""


MAX_KEPT: Final = 8 << 10
"""Bytes of the schema of a tool that is kept: a run asks for its tools when it is opened, begins
and comes back, and clients bring the same ones each time."""


def _made(
    name: str, schema_json: bytes, description: str, timeout: float | None, is_read: bool
) -> Tool[..., Any]:
    """The tool itself.  Raises ``DefinitionError`` for a schema that is none."""
    schema = decode_value(msgspec.Raw(schema_json)) if schema_json else None
    return given_tool(name, schema, description=description, timeout=timeout, is_read=is_read)


_kept = lru_cache(256)(_made)


def _each(tools: Iterable[GivenTool]) -> Iterator[tuple[str, Tool[..., Any] | DefinitionError]]:
    """The tools by name, or what is wrong with them."""
    left = MAX_PARTS
    for each in tools:
        given = b"" if each.schema_json is NULL else bytes(each.schema_json)
        # Each part but the first begins behind one of these.
        left -= 1 + given.count(b"{") + given.count(b"[") + given.count(b",")
        make = _kept if len(given) + len(each.description) <= MAX_KEPT else _made
        try:
            yield each.name, make(each.name, given, each.description, each.timeout, left >= 0)
        except DefinitionError as error:
            yield each.name, error


def made_of(tools: Iterable[GivenTool]) -> dict[str, Tool[..., Any]]:
    """The tools by name; a schema that nobody has checked (of an imported run) gives none."""
    return {name: each for name, each in _each(tools) if not isinstance(each, DefinitionError)}


def with_given(side: ActiveSide, tools: Mapping[str, Tool[..., Any]]) -> ActiveSide:
    """The side with these tools, too; what the agent has of the same name is the agent's."""
    given = {name: tool for name, tool in tools.items() if name not in side.offered}
    return structs.replace(
        side, tools={**side.tools, **given}, offered=side.offered | given.keys(), may_ask=True,
        has_given=True,
    )  # fmt: skip


def refusal_of_seed(
    definition: AgentDefinition, side: ActiveSide | None, tools: Iterable[GivenTool]
) -> str:
    """Why a run of an agent cannot begin with a history or with tools; empty if it can."""
    name = definition.name
    if definition.is_code or definition.type != "ai_human" or side is None:
        return f"{name} has no conversation that a history or tools could be given to"
    for given, made in _each(tools):
        if given in side.offered:
            return f"{name} has a tool named {given!r} already; rename the one that is given"
        if isinstance(made, DefinitionError):
            return str(made)
    return ""
