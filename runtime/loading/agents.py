"""``load_agents``: from ``MODULE:AGENT``, as typed on a command line, to definitions.

The module is imported as Python would, the current folder first.  ``AGENT`` names one of its
attributes: an ``AgentDefinition``, or a list of definitions whose first agent is meant.  Without
``:AGENT`` the module must have exactly one agent.  The prompts, tools, skills and further agents
that the module itself has come along, so that definitions may refer to each other by name.
"""

import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from msgspec import Struct, structs

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.rewriting import Rewriting
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool, error_text
from hubbub.agents.mcp_server import McpServer
from hubbub.hub.errors import OperatorError

__all__ = ["CannotLoad", "LoadedAgents", "load_agents", "load_named", "with_model"]

T = TypeVar("T")


class CannotLoad(OperatorError):
    """``MODULE:AGENT`` leads to no agent."""

    def __init__(self, spec: str, problem: str) -> None:
        self.spec = spec
        super().__init__(f"{spec}: {problem}")


class LoadedAgents(Struct, frozen=True):
    """What ``Runtime`` is given, and the agent that was meant."""

    agent: AgentDefinition
    agents: tuple[AgentDefinition, ...]
    prompts: tuple[PromptDefinition, ...]
    tools: tuple[Tool[..., Any] | McpServer, ...]
    skills: tuple[Skill, ...] = ()


def load_agents(spec: str) -> LoadedAgents:
    """Import what ``spec`` names.  Raises ``CannotLoad`` with the remedy, whatever is wrong."""
    name, attribute, found, meant = _found(spec, example="AGENT", is_needed=True)
    if not attribute:
        meant = _only_agent(spec, name, found)
    return _loaded(spec, name, found, meant)


def load_named(spec: str, kind: type[T]) -> "T | LoadedAgents":
    """The ``kind`` that ``MODULE[:NAME]`` names, or agents: one, a list, or all of the module.

    Without a name the module's only ``kind`` counts, and before its agents.  Raises ``CannotLoad``.
    """
    name, attribute, found, meant = _found(spec, example="NAME", is_needed=False)
    if not attribute:
        candidates = _of_kind(kind, found.values())
        if len(candidates) > 1:
            names = [key for key, value in found.items() if isinstance(value, kind)]
            raise CannotLoad(spec, "write " + " or ".join(f"{name}:{each}" for each in names))
        meant = candidates[0] if candidates else [*_of_kind(AgentDefinition, found.values())]
    if isinstance(meant, kind):
        return meant
    if isinstance(meant, list) and not meant:
        raise CannotLoad(spec, f"{name} has no agents and no {kind.__name__}; define one")
    return _loaded(spec, name, found, meant)


def _found(spec: str, example: str, *, is_needed: bool) -> tuple[str, str, dict[str, Any], Any]:
    """The module's name, the attribute's, all that the module has, and the attribute if named."""
    name, colon, attribute = spec.partition(":")
    if name.endswith(".py") or "/" in name:
        stem = name.removeprefix("./").removesuffix(".py").replace("/", ".").strip(".")
        written = f"{stem}:{attribute or example}" if attribute or is_needed else stem
        raise CannotLoad(spec, f"expected a module, not a file; write {written}")
    if not name or (colon and not attribute):
        raise CannotLoad(spec, f"write MODULE:{example}, for example my_agents:assistant")
    module = _import(spec, name)
    meant = _attribute(spec, module, name, attribute) if attribute else None
    return name, attribute, vars(module), meant


def _loaded(spec: str, name: str, found: dict[str, Any], meant: Any) -> LoadedAgents:
    extra = meant if isinstance(meant, list | tuple) else [meant]
    agent = next((each for each in extra if isinstance(each, AgentDefinition)), None)
    if agent is None:
        kind = type(meant).__name__
        raise CannotLoad(spec, f"a {kind} is not an agent; {_known(name, found)}")
    everything = (*extra, *found.values())
    return LoadedAgents(
        agent,
        _of_kind(AgentDefinition, everything),
        _of_kind(PromptDefinition, everything),
        _of_kind(Tool | McpServer, everything),
        # ``load_skills`` gives a tuple, and that is how a module has it.
        _of_kind(Skill, _opened(everything)),
    )


def with_model(loaded: LoadedAgents, model: str) -> LoadedAgents:
    """The same, with another model for the agent that was meant; raises ``CannotLoad``."""
    agent = loaded.agent
    if agent.side_a is None:
        raise CannotLoad(agent.name, "a code agent has no model of its own; leave --model out")
    prompt = agent.side_a.prompt
    if isinstance(prompt, str):
        named = [each for each in loaded.prompts if each.name == prompt]
        if not named:
            raise CannotLoad(agent.name, f"its module has no prompt named {prompt!r}")
        prompt = named[0]
    # Under a name of its own: others may read the prompt as it was.
    own = structs.replace(prompt, model=model, name=f"{prompt.name}:{agent.name}"[:128])
    side = structs.replace(agent.side_a, prompt=own)
    others = _OtherAgent(agent, structs.replace(agent, side_a=side))
    return structs.replace(
        loaded,
        agent=others.agent(agent),
        agents=others.agents(loaded.agents, loaded.prompts),
        prompts=tuple(map(others.prompt, loaded.prompts)),
    )


class _OtherAgent(Rewriting):
    """One agent in the place of another, also where others hold it (``as_tool``)."""

    def __init__(self, agent: AgentDefinition, instead: AgentDefinition) -> None:
        super().__init__()
        self._agent_meant = agent
        self._instead = instead

    def new_agent(self, agent: AgentDefinition) -> AgentDefinition:
        return self._instead if agent == self._agent_meant else agent


def _import(spec: str, name: str) -> Any:
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise CannotLoad(
                spec, f"there is no module {error.name!r} in {folder} or installed"
            ) from error
        raise CannotLoad(spec, f"importing {name} failed: {error_text(error)}") from error
    except (Exception, SystemExit) as error:
        where = _place(error)
        raise CannotLoad(spec, f"importing {name} failed: {error_text(error)}{where}") from error


def _place(error: BaseException) -> str:
    """The line that raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or isinstance(error, SyntaxError):
        return ""
    return f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}, line {trace.tb_lineno})"


def _attribute(spec: str, module: Any, name: str, path: str) -> Any:
    value = module
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            known = _known(name, vars(module))
            raise CannotLoad(spec, f"{name} has no {part!r}; {known}") from None
    return value


def _only_agent(spec: str, name: str, found: dict[str, Any]) -> AgentDefinition:
    agents = _of_kind(AgentDefinition, found.values())
    if len(agents) != 1:
        raise CannotLoad(spec, _known(name, found))
    agent: AgentDefinition = agents[0]
    return agent


def _known(name: str, found: dict[str, Any]) -> str:
    names = [key for key, value in found.items() if isinstance(value, AgentDefinition)]
    if not names:
        return f"{name} has no agents; define one with @agent or AgentDefinition"
    return "write " + " or ".join(f"{name}:{each}" for each in names)


def _opened(values: Iterable[Any]) -> Iterator[Any]:
    """The values, and what is in the lists and tuples among them."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from value
        else:
            yield value


def _of_kind(kind: Any, values: Iterable[Any]) -> tuple[Any, ...]:
    """The different objects of a kind, each once."""
    return tuple({id(each): each for each in values if isinstance(each, kind)}.values())
