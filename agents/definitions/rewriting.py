"""``Rewriting``: copies of definitions with other parts, wherever these stand.

    agent ─► its sides' prompts ─► their tools, skills, and the agents held there (``as_tool``)

Rules
-----
* The same definition has one copy, however many others hold it; so have two that are equal: what
  fits together still does.
* Names stay as they are: what refers by name is not followed.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import structs

from hubbub.agents.definitions.agent import AgentDefinition, AgentTool, SideConfig
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.mcp_server import McpServer

__all__ = ["Rewriting"]


class Rewriting:
    """Copies definitions; a subclass says what is other in them.

    Whatever is no definition (a name, something wrong) is left as it is.
    """

    def __init__(self) -> None:
        self._done: dict[int, tuple[Any, Any]] = {}
        self._named: dict[tuple[type, str], list[tuple[Any, Any]]] = {}

    # ── what is other ────────────────────────────────────────────────────────────────────────

    def new_model(self, reader: PromptDefinition | Skill) -> Any:
        """What the copy of a prompt or skill says of its model, which may be several."""
        return reader.model

    def new_tool(self, tool: Tool[..., Any]) -> Tool[..., Any]:
        """The copy of a tool."""
        return tool

    def new_server(self, server: McpServer) -> McpServer:
        """The copy of a server."""
        return server

    def new_agent(self, agent: AgentDefinition) -> AgentDefinition:
        """The copy of an agent; called with sides that are copies already."""
        return agent

    # ── copies ───────────────────────────────────────────────────────────────────────────────

    def agents(self, given: Iterable[Any], prompts: Iterable[Any] = ()) -> tuple[Any, ...]:
        """The copies of these agents, which may hold each other as deep as they like."""
        given = tuple(given)
        for held in reversed(_reached(given, prompts)):
            self.agent(held)
        return tuple(map(self.agent, given))

    def agent(self, agent: Any) -> Any:
        """The copy of an agent."""
        return self._alike(agent, self._agent) if isinstance(agent, AgentDefinition) else agent

    def prompt(self, prompt: Any) -> Any:
        """The copy of a prompt."""
        return self._alike(prompt, self._prompt) if isinstance(prompt, PromptDefinition) else prompt

    def skill(self, skill: Any) -> Any:
        """The copy of a skill."""
        return self._alike(skill, self._skill) if isinstance(skill, Skill) else skill

    def tool(self, tool: Any) -> Any:
        """The copy of a tool, of a server of tools, or of an agent that is held as one."""
        if isinstance(tool, AgentTool):
            return structs.replace(tool, agent=self.agent(tool.agent))
        if isinstance(tool, McpServer):
            return self._alike(tool, self.new_server)
        return self.once(tool, self.new_tool) if isinstance(tool, Tool) else tool

    def once(self, thing: Any, make: Callable[[Any], Any]) -> Any:
        """What ``make`` makes of this object, made once."""
        if id(thing) not in self._done:
            # Kept with it: the id of what is gone may be another's.
            self._done[id(thing)] = (thing, make(thing))
        return self._done[id(thing)][1]

    def _alike(self, thing: Any, make: Callable[[Any], Any]) -> Any:
        """The same, for equal ones too."""
        return self.once(thing, lambda it: self._equal(it, make))

    def _equal(self, thing: Any, make: Callable[[Any], Any]) -> Any:
        named = self._named.setdefault((type(thing), thing.name), [])
        for other, copy in named:
            if other == thing:
                return copy
        named.append((thing, make(thing)))
        return named[-1][1]

    def _agent(self, agent: AgentDefinition) -> AgentDefinition:
        sides = {"side_a": self._side(agent.side_a), "side_b": self._side(agent.side_b)}
        return self.new_agent(structs.replace(agent, **sides))

    def _side(self, side: SideConfig | None) -> SideConfig | None:
        return side and structs.replace(side, prompt=self.prompt(side.prompt))

    def _prompt(self, prompt: PromptDefinition) -> PromptDefinition:
        return structs.replace(
            prompt,
            model=self.new_model(prompt),
            tools=tuple(map(self.tool, prompt.tools)),
            skills=tuple(map(self.skill, prompt.skills)),
        )

    def _skill(self, skill: Skill) -> Skill:
        return structs.replace(
            skill,
            model=self.new_model(skill),
            tools=None if skill.tools is None else tuple(map(self.tool, skill.tools)),
            passthrough=self.tool(skill.passthrough),
        )


def _reached(agents: Iterable[Any], prompts: Iterable[Any]) -> list[AgentDefinition]:
    """The agents, and what they and the prompts hold, each after its first holder."""
    first = (*agents, *_held(prompts))
    found = {id(x): x for x in first if isinstance(x, AgentDefinition)}
    left = list(found.values())
    for agent in left:
        sides = (side for side in (agent.side_a, agent.side_b) if side is not None)
        for held in _held(side.prompt for side in sides):
            if id(held) not in found:
                found[id(held)] = held
                left.append(held)
    return left


def _held(prompts: Iterable[Any]) -> Iterable[AgentDefinition]:
    for prompt in prompts:
        if isinstance(prompt, PromptDefinition):
            yield from (x.agent for x in prompt.tools if isinstance(x, AgentTool))
