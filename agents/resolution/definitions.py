"""``Definitions``: everything a runtime knows by name, resolved and checked as a whole.

    agents, prompts, tools, hooks ──► Definitions ──► side(agent, "side_a") ──► ActiveSide

Rules
-----
* Names are looked up once, when this is made; what they refer to is read in ``side_reader``.
* Agents that others hold (``as_tool``) are known like those that were given (``reached``).
* All problems are reported at once, each with its path.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

from msgspec import structs

from hubbub.agents.built_in import BUILT_IN
from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.definitions.output import OutputForm
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.mcp_server import McpServer
from hubbub.agents.resolution.given_tools import made_of, refusal_of_seed, with_given
from hubbub.agents.resolution.listed_tools import with_listed
from hubbub.agents.resolution.reached import with_reached
from hubbub.agents.resolution.rewritten_side import with_rewritten
from hubbub.agents.resolution.side_reader import Known, SideReader
from hubbub.agents.resolution.sides import FRAME, ActiveSide
from hubbub.agents.resolution.skill_agents import (
    agent_of_skill,
    collect_skills,
    frame_of,
    tools_of_prompts,
)
from hubbub.agents.rewritten import Rewritten
from hubbub.hub.errors import DefinitionError, UnknownAgent
from hubbub.hub.events import GivenTool
from hubbub.hub.near_misses import kind_of
from hubbub.hub.texts import check_label

__all__ = ["Definitions"]


class Definitions:
    """Immutable; raises ``DefinitionError`` when made."""

    __slots__ = (
        "_agents",
        "_hooks",
        "_prompts",
        "_scoping",
        "_sides",
        "_skills",
        "_tools",
        "agents",
        "outputs",
        "servers",
        "sides",
    )  # fmt: skip

    def __init__(
        self,
        agents: Iterable[AgentDefinition] = (),
        prompts: Iterable[PromptDefinition] = (),
        tools: Iterable[Tool[..., Any] | McpServer] = (),
        hooks: Iterable[Hook] = (),
        skills: Iterable[Skill] = (),
    ) -> None:
        problems: list[str] = []
        given: dict[str, AgentDefinition] = _by_name("agents", agents, AgentDefinition, problems)
        self._prompts: dict[str, PromptDefinition] = _by_name(
            "prompts", prompts, PromptDefinition, problems
        )
        self._agents = with_reached(given, self._prompts, problems)
        self.agents: Mapping[str, AgentDefinition] = self._agents
        named: dict[str, Tool[..., Any] | McpServer] = _by_name(
            "tools", tools, (Tool, McpServer), problems
        )
        self._tools: dict[str, Tool[..., Any]] = {}
        servers: dict[str, McpServer] = {}
        for each in named.values():
            if isinstance(each, McpServer):
                servers[each.name] = each
            else:
                self._tools[each.name] = each
        self.servers: Mapping[str, McpServer] = servers
        """All that runs may need, also those given inline."""
        self._hooks: dict[str, Hook] = _by_name("hooks", hooks, Hook, problems)
        self._skills: dict[str, Skill] = _by_name("skills", skills, Skill, problems)
        self._add_skills(problems, servers)
        self._sides: dict[tuple[str, str], ActiveSide] = {}
        self.sides: Mapping[tuple[str, str], ActiveSide] = self._sides
        problems.extend(
            f"tools.{name}: the name is built in; rename the tool"
            for name, tool in self._tools.items()
            if name in BUILT_IN and not tool.is_built_in
        )
        self._read_sides(problems, servers)
        self.outputs: Mapping[str, OutputForm] = {
            name: side.output for (name, _), side in self._sides.items() if side.output is not None
        }
        """What agents answer with, of those whose answers are values."""
        problems.extend(self._cycles())
        if problems:
            raise DefinitionError("definitions", problems)
        # First taken to be so of all, if of any, so that every graph is looked at.
        declares = any(v.scoped for side in self._sides.values() for v in side.variables)
        self._scoping: dict[str, bool] = dict.fromkeys(self._agents, declares)
        self._scoping = {
            name: bool(self.scoped_of(name, lambda _: True, required=False))
            for name in self._agents
        }

    def _add_skills(self, problems: list[str], servers: Mapping[str, McpServer]) -> None:
        """Make an agent of each skill."""
        agents, prompts = tuple(self._agents.values()), self._prompts.values()
        tools = tools_of_prompts({**self._tools, **servers}, prompts, agents)
        held = (each for s in self._skills.values() for each in (*(s.tools or ()), s.passthrough))
        for each in held:
            if isinstance(each, Tool):
                tools.setdefault(each.name, each)
        self._skills = collect_skills(self._skills, prompts, agents, tools, problems)
        for skill in self._skills.values():
            if not skill.is_passthrough:
                agent = agent_of_skill(skill, tools, agents, problems)
                if self._agents.setdefault(agent.name, agent) is not agent:
                    problems.append(f"agents.{agent.name}: the name belongs to a skill; rename it")

    def _read_sides(self, problems: list[str], servers: dict[str, McpServer]) -> None:
        known = Known(
            agents=self._agents,
            prompts=self._prompts,
            tools=self._tools,
            servers=servers,
            hooks=self._hooks,
            skills=self._skills,
            named=dict(self._prompts),
            made={},
        )
        for definition in self._agents.values():
            path = f"agents.{definition.name}.hooks"
            problems.extend(known.unknown_hooks(path, definition.hooks))
            for which in ("side_a", "side_b"):
                config = getattr(definition, which)
                if config is not None:
                    side = SideReader(known, definition, which, config, problems).read()
                    if side is not None:
                        self._sides[definition.name, which] = side
            both = self.sides_of(definition.name)
            if any(side.may_hook for side in both):
                for side in both:
                    self._sides[definition.name, side.name] = structs.replace(side, may_hook=True)
            if both and not definition.is_two_sided:
                side = self._sides[definition.name, "side_a"]
                self._sides[definition.name, FRAME] = frame_of(side)

    # ── looking up ───────────────────────────────────────────────────────────────────────────

    def agent(self, name: str) -> AgentDefinition:
        """The agent of that name; raises ``UnknownAgent``, which lists the known ones."""
        found = self._agents.get(name)
        if found is None:
            check_label("agent", name)  # What is known is a name.
            raise UnknownAgent(name, self._agents)
        return found

    def find_agent(self, name: str) -> AgentDefinition | None:
        """As ``agent``, or ``None``."""
        return self._agents.get(name)

    def side(self, agent: str, side: str = "side_a") -> ActiveSide:
        """A side of a model agent; raises ``UnknownAgent``."""
        found = self._sides.get((agent, side))
        if found is None:
            raise UnknownAgent(agent, {name for name, _ in self._sides})
        return found

    def find_side(self, agent: str, side: str) -> ActiveSide | None:
        """As ``side``, or ``None``."""
        return self._sides.get((agent, side))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._agents)

    @property
    def prompts(self) -> Mapping[str, PromptDefinition]:
        return self._prompts

    @property
    def skills(self) -> Mapping[str, Skill]:
        return self._skills

    @property
    def tools(self) -> Mapping[str, Tool[..., Any]]:
        return self._tools

    @property
    def hooks(self) -> Mapping[str, Hook]:
        return self._hooks

    # ── what one run has ──────────────────────────────────────────────────────────────

    def of_run(self, tools: tuple[GivenTool, ...], rewritten: Rewritten | None) -> "Definitions":
        """The same, as one run has them: the tools that it was opened with are its sides', too,
        and what is other in a fork is so of its agent."""
        if not tools and rewritten is None:
            return self
        seen, sides = copy(self), self._sides
        if tools:
            given = made_of(tools)
            sides = {
                place: side if side.two_sided else with_given(side, given)
                for place, side in sides.items()
            }
        if rewritten is not None:
            place = (rewritten.agent, "side_a")
            side = sides.get(place)
            if side is not None and not side.two_sided:
                sides = {**sides, place: with_rewritten(side, rewritten)}
        seen._sides = seen.sides = sides
        return seen

    def with_listed(self, listed: Mapping[str, Sequence[Tool[..., Any]]]) -> "Definitions":
        """The same, with the tools that servers list, by the servers' names."""
        seen = copy(self)
        seen._sides = {
            place: with_listed(side, listed) if side.servers else side
            for place, side in self._sides.items()
        }
        seen.sides = seen._sides
        return seen

    def refusal_of_seed(self, agent: str, tools: Sequence[GivenTool]) -> str:
        """Why a run of an agent cannot begin with a history, or with these tools."""
        definition = self._agents.get(agent)
        if definition is None:
            return ""  # It is refused for that.
        return refusal_of_seed(definition, self._sides.get((agent, "side_a")), tools)

    def sides_of(self, agent: str) -> tuple[ActiveSide, ...]:
        """The sides of a model agent, side A first."""
        found = (self._sides.get((agent, which)) for which in ("side_a", "side_b"))
        return tuple(side for side in found if side is not None)

    # ── scoped variables ──────────────────────────────────────────────────────────────

    def declares_scoped(self, agent: str, name: str) -> bool:
        """Whether the agent's own prompts or their tools declare ``name`` as scoped."""
        return any(
            each.scoped and each.name == name
            for side in self.sides_of(agent)
            for each in side.variables
        )

    def scoped_of(
        self, agent: str, is_enabled: Callable[[str], bool], *, required: bool = True
    ) -> tuple[str, ...]:
        """The scoped variables of an agent and of every branch below it that is enabled."""
        if not self._scoping.get(agent):
            return ()
        names: dict[str, None] = {}
        left = [agent]
        seen = {agent}
        for current in left:
            for side in self.sides_of(current):
                for each in side.variables:
                    if each.scoped and (each.required or not required):
                        names[each.name] = None
                for child in side.children.values():
                    name, optional = child.agent.name, child.config.optional
                    if name not in seen and (optional is None or is_enabled(optional)):
                        seen.add(name)
                        left.append(name)
        return tuple(names)

    # ── immediate subagents ───────────────────────────────────────────────────────────

    def _cycles(self) -> Iterable[str]:
        """Agents that would start themselves without end."""
        starts = {
            agent: [name for side in self.sides_of(agent) for name in side.immediate]
            for agent in self._agents
        }
        told: set[frozenset[str]] = set()
        for agent in starts:
            path = _path_back(agent, starts)
            if path and frozenset(path) not in told:
                told.add(frozenset(path))
                yield f"agents.{agent}: immediate subagents start each other: {' → '.join(path)}"


def _path_back(start: str, starts: Mapping[str, list[str]]) -> list[str]:
    """The way from an agent to itself, if there is one."""
    paths = [[start]]
    seen: set[str] = set()
    while paths:
        path = paths.pop()
        for name in starts.get(path[-1], ()):
            if name == start:
                return [*path, start]
            if name not in seen:
                seen.add(name)
                paths.append([*path, name])
    return []


def _by_name(path: str, items: Iterable[Any], kind: Any, problems: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if not isinstance(items, Iterable):
        problems.append(f"{path}: expected a list, not {kind_of(items)}")
        return found
    for index, item in enumerate(items):
        if not isinstance(item, kind):
            wanted = (kind[0] if isinstance(kind, tuple) else kind).__name__
            problems.append(f"{path}[{index}]: expected {wanted}, not {kind_of(item)}")
        elif item.name in found:
            problems.append(f"{path}[{index}]: the name {item.name!r} is taken")
        else:
            found[item.name] = item
    return found
