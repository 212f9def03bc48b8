"""What agents reach by ``as_tool``: definitions that are known because another one holds them.

Rules
-----
* An agent's definition, its prompts' subagents, theirs in turn: all are known under their names.
* One name means one agent: two definitions of it that differ are a problem, equal ones are one.
"""

from collections.abc import Iterable, Iterator, Mapping

from hubbub.agents.definitions.agent import AgentDefinition, AgentTool
from hubbub.agents.definitions.prompt import PromptDefinition

__all__ = ["held_agents", "with_reached"]


def with_reached(
    agents: Mapping[str, AgentDefinition],
    prompts: Mapping[str, PromptDefinition],
    problems: list[str],
) -> dict[str, AgentDefinition]:
    """The agents, and after them those that they reach, in the order in which they are found."""
    found = dict(agents)
    left = list(found.values())
    for agent in left:
        for side in (agent.side_a, agent.side_b):
            prompt = side.prompt if side is not None else ""
            read = prompts.get(prompt) if isinstance(prompt, str) else prompt
            for held in held_agents(read):
                known = found.get(held.name)
                if known is None:
                    found[held.name] = held
                    left.append(held)
                elif known is not held and known != held:
                    problem = f"{agent.name!r} has another agent of this name as a tool; rename one"
                    problems.append(f"agents.{held.name}: {problem}")
    return found


def held_agents(prompt: PromptDefinition | None) -> Iterator[AgentDefinition]:
    """The agents whose definitions a prompt's tools hold."""
    tools: Iterable[object] = prompt.tools if prompt is not None else ()
    for tool in tools:
        if isinstance(tool, AgentTool):
            yield tool.agent
