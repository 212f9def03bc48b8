"""A side with its names resolved: what a step needs, and what it may call.

``Definitions`` makes them (``resolution``), one of each side of each model agent.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from hubbub.agents.built_in import COMPLETE, FINAL_ANSWER, INTERRUPT, USE_SKILL
from hubbub.agents.definitions.agent import AgentDefinition, SessionToolBinding, SideConfig
from hubbub.agents.definitions.arguments import Arguments
from hubbub.agents.definitions.hooks import RESULT_POINTS, Hook
from hubbub.agents.definitions.output import OutputForm
from hubbub.agents.definitions.prompt import PromptDefinition, SubagentToolConfig
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.agents.mcp_server import McpServer
from hubbub.agents.model import ToolSpec, parse_arguments
from hubbub.agents.model_choice import ModelChoice

__all__ = [
    "DEFAULT_MAX_ITERATIONS", "DEFAULT_MAX_STEPS", "DEFAULT_MAX_TURNS", "FRAME", "ActiveSide",
    "ChildTool", "passthrough",
]  # fmt: skip

DEFAULT_MAX_STEPS: Final = 250
DEFAULT_MAX_TURNS: Final = 250
DEFAULT_MAX_ITERATIONS: Final = 25
"""Model calls of a takeover frame from the push, or a user's message, to its next text."""

FRAME: Final = "frame"
"""How side A of an agent is known while it has taken a conversation over."""


def passthrough(skills: Mapping[str, Skill], arguments: str) -> Tool[..., Any] | None:
    """The tool that carries out the skill a call names, if that skill has one."""
    try:
        name = parse_arguments(arguments).get("name")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    skill = skills.get(name) if isinstance(name, str) else None
    return skill.passthrough if skill is not None and isinstance(skill.passthrough, Tool) else None


class ChildTool(Struct, frozen=True, eq=False):
    """An agent as a tool of one prompt whose calls start children, with its arguments."""

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
    """Calls of these names make their whole step run in order."""
    bindings: Mapping[str, tuple[str, SessionToolBinding]]
    """By tool: what the tool does to the session."""

    offered: frozenset[str]
    """The names a model may call."""
    is_plain: bool
    """Whether a request needs nothing but the transcript: no agents, variables or hooks."""

    may_hook: bool
    """Whether this side, or the other one, has any hooks."""

    acts_as: str
    """``name``, or ``frame`` for side A of a takeover frame."""
    agents: Mapping[str, AgentDefinition]
    """Whom ``use_agent`` may call."""
    skills: Mapping[str, Skill]
    """What ``use_skill`` may call."""
    choices: tuple[ModelChoice, ...]
    """The prompt's models in order, one or more."""
    has_given: bool = False
    """Whether some of the tools are no part of the definitions: one run's own, or a server's."""
    may_ask: bool = False
    """Whether calls of some tool need a person's approval, or are carried out elsewhere."""
    servers: tuple[McpServer, ...] = ()
    """The servers whose tools the model may call, as far as they are known (``with_listed``)."""
    output: OutputForm | None = None
    """What each answer is, where it is not words."""

    @property
    def is_frame(self) -> bool:
        return self.acts_as == FRAME

    @property
    def is_skill(self) -> bool:
        return self.agent.startswith("skill:")

    def delegates(self, name: str, arguments: str) -> bool:
        """Whether a call begins, or reaches, another run."""
        if name not in self.offered or name in self.tools or name in self.handoffs:
            return False
        own = (COMPLETE, FINAL_ANSWER, INTERRUPT)
        return name not in own and self.tool_of(name, arguments) is None

    def tool_of(self, name: str, arguments: str) -> Tool[..., Any] | None:
        """The function that a call is carried out by, if it is by one."""
        if name == USE_SKILL and self.skills:
            return passthrough(self.skills, arguments)
        return self.tools.get(name)

    def server_of(self, name: str) -> McpServer | None:
        """The server whose tool a name that is not offered would be."""
        if name in self.offered:
            return None
        return next((each for each in self.servers if each.claims(name)), None)

    @property
    def gates(self) -> frozenset[str]:
        """The variables that enable branches."""
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
        """The subagents that start with this prompt."""
        return tuple(name for name, each in self.children.items() if each.config.is_immediate)
