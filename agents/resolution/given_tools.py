"""Tools that a run was opened with, made a part of its sides."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import structs

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.external import given_tool
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.hub.errors import DefinitionError
from hubbub.hub.events import GivenTool
from hubbub.hub.values import NULL, decode_value

__all__ = ["made_of", "refusal_of_seed", "with_given"]


def made(tool: GivenTool) -> Tool[..., Any]:
    """The tool itself.  Raises ``DefinitionError`` for a schema that is none."""
    schema = None if tool.schema_json is NULL else decode_value(tool.schema_json)
    return given_tool(tool.name, schema, description=tool.description, timeout=tool.timeout)


def made_of(tools: Iterable[GivenTool]) -> dict[str, Tool[..., Any]]:
    """The tools by name; a schema that nobody has checked (of an imported run) gives none."""
    found: dict[str, Tool[..., Any]] = {}
    for each in tools:
        try:
            found[each.name] = made(each)
        except DefinitionError:
            continue
    return found


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
    for each in tools:
        if each.name in side.offered:
            return f"{name} has a tool named {each.name!r} already; rename the one that is given"
        try:
            made(each)
        except DefinitionError as error:
            return str(error)
    return ""
