"""Skills as agents, and agents as frames: what ``use_skill`` and ``use_agent`` begin.

    Skill  ─►  an ``ai_human`` agent ``skill:NAME`` whose prompt is the skill's instructions
    side A ─►  the same side as a frame: with ``complete``, and the limit of a frame

Rules
-----
* A skill's list of tools names what the runtime knows: its own tools and those of its prompts.
  Without a list a skill may use all of them, with an empty one none.
* Without a list of agents it may use every exposed ``ai_human`` agent, if its list of tools has
  ``use_agent`` or is absent.  Skills never use skills.
* A skill without a model is carried out by its caller's.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import structs

from hubbub.agents.built_in import COMPLETE, FINAL_ANSWER, USE_AGENT
from hubbub.agents.definitions.agent import AgentDefinition, SessionToolBinding, SideConfig
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.skills import Skill, passthrough_problems
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.mcp_server import McpServer
from hubbub.agents.resolution.sides import DEFAULT_MAX_ITERATIONS, FRAME, ActiveSide
from hubbub.hub.near_misses import did_you_mean

__all__ = ["CALLERS_MODEL", "agent_of_skill", "collect_skills", "frame_of", "tools_of_prompts"]

CALLERS_MODEL: Final = "(the caller's)"
"""Means, in a prompt, the model of the caller of the frame."""

Tools = Mapping[str, Tool[..., Any] | McpServer]


def tools_of_prompts(
    tools: Tools, prompts: Iterable[PromptDefinition], agents: Iterable[AgentDefinition]
) -> dict[str, Tool[..., Any] | McpServer]:
    """Every tool and server of tools that the runtime knows: those it was given, then those that
    prompts and skills hold."""
    sides = (side for agent in agents for side in (agent.side_a, agent.side_b) if side is not None)
    inline = (side.prompt for side in sides if isinstance(side.prompt, PromptDefinition))
    found = dict(tools)
    for prompt in (*prompts, *inline):
        held = [*prompt.tools, *(each for s in prompt.skills for each in _tools_of(s))]
        for each in held:
            if isinstance(each, Tool | McpServer):
                found.setdefault(each.name, each)
    return found


def _tools_of(skill: Skill | str) -> Iterable[object]:
    return () if isinstance(skill, str) else (*(skill.tools or ()), skill.passthrough)


def collect_skills(
    given: Mapping[str, Skill],
    prompts: Iterable[PromptDefinition],
    agents: Iterable[AgentDefinition],
    tools: Tools,
    problems: list[str],
) -> dict[str, Skill]:
    """The skills that there are, those given with a prompt included, their tools found."""
    sides = (side for agent in agents for side in (agent.side_a, agent.side_b) if side is not None)
    inline = (side.prompt for side in sides if isinstance(side.prompt, PromptDefinition))
    found = dict(given)
    problems.extend(
        f"skills.{skill.name}: two skills have this name; rename one"
        for prompt in (*prompts, *inline)
        for skill in prompt.skills
        if isinstance(skill, Skill) and found.setdefault(skill.name, skill) != skill
    )
    for name, skill in found.items():
        if not skill.is_passthrough:
            continue
        tool = skill.passthrough
        if isinstance(tool, str):
            known = ", ".join(sorted(tools)) or "none"
            if tool not in tools:
                hint = did_you_mean(tool, tools)
                problem = f"passthrough: no tool named {tool!r}; known: {known}{hint}"
                problems.append(f"skills.{name}.{problem}")
                continue
            named = tools[tool]
            if isinstance(named, McpServer):
                text = f"passthrough: {tool!r} is a server; name a tool of your own"
                problems.append(f"skills.{name}.{text}")
                continue
            tool = named
        problems.extend(f"skills.{name}.{each}" for each in passthrough_problems(tool))
        found[name] = structs.replace(skill, passthrough=tool)
    return found


def agent_of_skill(
    skill: Skill, tools: Tools, agents: Iterable[AgentDefinition], problems: list[str]
) -> AgentDefinition:
    """The agent that carries a skill out."""
    listed: Iterable[Any] = tools.values() if skill.tools is None else skill.tools
    chosen: dict[str, Tool[..., Any] | McpServer] = {}
    for each in listed:
        tool = tools.get(each) if isinstance(each, str) else each
        if tool is not None:
            chosen[tool.name] = tool
        elif each != USE_AGENT:
            known = ", ".join(sorted(tools)) or "none"
            problem = f"no tool named {each!r}; known: {known}{did_you_mean(each, tools)}"
            problems.append(f"skills.{skill.name}.tools: {problem}")
    targets = skill.agents
    if targets is None:
        may = skill.tools is None or USE_AGENT in skill.tools
        exposed = [a.name for a in agents if a.expose_as_tool and a.type == "ai_human"]
        targets = exposed if may else ()
    prompt = PromptDefinition(
        name=skill.agent_name,
        prompt=skill.instructions,
        model=skill.model or CALLERS_MODEL,
        tools=tuple(chosen.values()),
        agents=tuple(targets),
        variables=skill.variables,
    )
    return AgentDefinition(
        name=skill.agent_name,
        description=skill.description,
        side_a=SideConfig(prompt=prompt, max_steps=skill.max_iterations),
        env=skill.env,
    )


def frame_of(side: ActiveSide) -> ActiveSide:
    """A side as it is while its agent has taken a conversation over: it answers in words."""
    given = side.config.max_steps
    limit = (
        given
        if side.is_skill and given
        else min(given or DEFAULT_MAX_ITERATIONS, DEFAULT_MAX_ITERATIONS)
    )
    binding = ("session_stop", SessionToolBinding(COMPLETE, "result"))
    return structs.replace(
        side,
        acts_as=FRAME,
        bindings={**side.bindings, COMPLETE: binding},
        offered=(side.offered - {FINAL_ANSWER}) | {COMPLETE},
        output=None,
        in_order=side.in_order | {COMPLETE},
        max_steps=limit,
        is_plain=False,
    )
