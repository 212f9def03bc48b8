"""A side with its names resolved: what a step needs, and what it may call.

``Definitions`` makes them (``resolution``), one of each side of each model agent.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from hubbub.agents.arguments import Arguments
from hubbub.agents.definitions import (
    AgentDefinition,
    PromptDefinition,
    SessionToolBinding,
    SideConfig,
    SubagentToolConfig,
)
from hubbub.agents.hooks import RESULT_POINTS, Hook
from hubbub.agents.model import ToolSpec
from hubbub.agents.tools import Tool
from hubbub.agents.variables import VariableDefinition

__all__ = ["BUILT_IN", "DEFAULT_MAX_STEPS", "DEFAULT_MAX_TURNS", "ActiveSide", "ChildTool"]

DEFAULT_MAX_STEPS: Final = 250
DEFAULT_MAX_TURNS: Final = 250

BUILT_IN: Final = (
    "complete", "interrupt", "use_agent", "use_skill", "subagent_create", "subagent_message",
    "send_agent_message",
)  # fmt: skip


class ChildTool(Struct, frozen=True, eq=False):
    """A ``dual_ai`` agent as a tool of one prompt, with its arguments (C-19)."""

    config: SubagentToolConfig
    agent: AgentDefinition
    key: str
    """Names the tool that configured a child, across agents that share a prompt."""
    arguments: Arguments
    spec: ToolSpec
    message_property: str


class ActiveSide(Struct, frozen=True, eq=False):
    """A side with its names resolved: what a step needs."""

    name: str
    agent: str
    config: SideConfig
    prompt: PromptDefinition
    tools: Mapping[str, Tool[..., Any]]
    children: Mapping[str, ChildTool]
    handoffs: Mapping[str, AgentDefinition]
    hooks: Mapping[str, tuple[Hook, ...]]
    variables: tuple[VariableDefinition, ...]
    max_steps: int
    max_turns: int
    two_sided: bool
    in_order: frozenset[str]
    """Calls of these names make their whole step run in order (S-07)."""
    bindings: Mapping[str, tuple[str, SessionToolBinding]]
    """By tool: what the tool does to the session."""

    offered: frozenset[str]
    """The names a model may call."""
    is_plain: bool
    """Whether a request needs nothing but the transcript: no agents, variables or hooks."""

    may_hook: bool
    """Whether this side, or the other one, has any hooks."""

    @property
    def gates(self) -> frozenset[str]:
        """The variables that enable branches (C-03)."""
        return frozenset(c.config.optional for c in self.children.values() if c.config.optional)

    @property
    def hooks_results(self) -> bool:
        """Whether hooks see what a call came to before it is journaled."""
        return not RESULT_POINTS.isdisjoint(self.hooks)

    @property
    def resumable(self) -> tuple[ChildTool, ...]:
        return tuple(child for child in self.children.values() if child.config.stays)

    @property
    def immediate(self) -> tuple[str, ...]:
        """The subagents that start with this prompt (C-04)."""
        return tuple(name for name, each in self.children.items() if each.config.is_immediate)
