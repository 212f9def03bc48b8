"""``Setup``: what a simulated world runs, as arguments of ``Runtime``."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct, structs

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.rewriting import Rewriting
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.mcp_server import McpServer
from hubbub.agents.model import Model
from hubbub.agents.model_choice import changed_models
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.reached import with_reached
from hubbub.hub.errors import BadValue
from hubbub.runtime.runtime import Runtime
from hubbub.runtime.schedules.schedules import Cron, Heartbeat
from hubbub.runtime.simulation.story.fields import shown

__all__ = ["Setup", "code_of"]

AnyTool: TypeAlias = Tool[..., Any]

_OWNED: Final = ("hub", "ports", "store")
"""Arguments of ``Runtime`` that the world gives."""
_LISTS: Final = ("agents", "prompts", "tools", "hooks", "skills", "schedules")
_MAPPINGS: Final = ("models", "env", "options")
_KNOWN: Final = tuple(inspect.signature(Runtime).parameters)


class Setup(Struct, frozen=True, kw_only=True):
    """The arguments of ``Runtime`` in a simulated world; see there.

    ``options`` are further ones by name (``default_agent``, ``restore``, ``max_live``, …).  Raises
    ``BadValue`` for those that are the world's own to give (hub, ports and store), for those that
    ``Runtime`` does not have, and for what is no list of agents.
    """

    agents: Sequence[AgentDefinition] = ()
    prompts: Sequence[PromptDefinition] = ()
    tools: Sequence[AnyTool | McpServer] = ()
    hooks: Sequence[Hook] = ()
    skills: Sequence[Skill] = ()
    models: Mapping[str, Model] = {}
    env: Mapping[str, str] = {}
    schedules: Sequence[Cron | Heartbeat] = ()
    options: Mapping[str, Any] = {}
    code: str = ""
    """What makes it, if that is known: shown in the line that plays a failure again."""

    def __post_init__(self) -> None:
        for name in _LISTS:
            _check_list(f"Setup.{name}", getattr(self, name))
        for name in _MAPPINGS:
            if not isinstance(value := getattr(self, name), Mapping):
                raise BadValue(f"Setup.{name}", f"expected a mapping, not {shown(value)}")
        for number, agent in enumerate(self.agents):
            if not isinstance(agent, AgentDefinition):
                problem = f"expected an AgentDefinition, not {shown(agent)}"
                raise BadValue(f"Setup.agents[{number}]", problem)
        if self.options:
            _check_options(self.options)

    @classmethod
    def of(cls, *agents: AgentDefinition, **arguments: Any) -> "Setup":
        """A setup of agents, and of what else ``Runtime`` takes by name.

        Raises ``BadValue`` where there is no agent at all.
        """
        if agents:
            arguments["agents"] = (*arguments.get("agents", ()), *agents)
        own = {name: arguments.pop(name) for name in cls.__struct_fields__ if name in arguments}
        if arguments:
            own["options"] = {**own.get("options", {}), **arguments}
        made = cls(**own)
        if not made.agents:
            raise BadValue("Setup.of", "there is no agent; write Setup.of(agent)")
        return made

    def definitions(self) -> Definitions:
        """The definitions, resolved as the runtime will resolve them.

        Raises ``DefinitionError`` for those that do not fit together.
        """
        return Definitions(self.agents, self.prompts, self.tools, self.hooks, self.skills)

    def arguments(self) -> dict[str, Any]:
        """The arguments for ``Runtime``."""
        others = ("options", "code")
        own = {name: getattr(self, name) for name in self.__struct_fields__ if name not in others}
        return {**own, **self.options}

    def wrapped(
        self,
        wrap_model: Callable[[Model], Model],
        wrap_tool: Callable[[AnyTool], AnyTool],
        wrap_code: Callable[[AgentDefinition], AgentDefinition] = lambda agent: agent,
        wrap_server: Callable[[McpServer], McpServer] = lambda server: server,
    ) -> "Setup":
        """The same with other models, tools, code agents and servers, wherever they stand.

        The same object is wrapped once: where two prompts share a tool, they still do, and an
        agent that is given and held by another one (``as_tool``) is still one agent.
        """
        return _Wrapping(wrap_model, wrap_tool, wrap_code, wrap_server).setup(self)

    def reached(self) -> tuple[AgentDefinition, ...]:
        """The agents, and after them those that they hold (``as_tool``)."""
        prompts = {x.name: x for x in self.prompts if isinstance(x, PromptDefinition)}
        return tuple(with_reached({x.name: x for x in self.agents}, prompts, []).values())


def code_of(thing: Any, otherwise: str) -> str:
    """The code that makes ``thing``, or its name, if it has any."""
    if code := getattr(thing, "code", ""):
        return str(code)
    name = getattr(thing, "__name__", "")
    return name if isinstance(name, str) and name.isidentifier() else otherwise


def _check_list(what: str, value: object) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise BadValue(what, f"expected a list, not {shown(value)}")


def _check_options(options: Mapping[str, Any]) -> None:
    if taken := sorted(set(_OWNED) & set(options)):
        raise BadValue("Setup.options", f"{', '.join(taken)}: the world has its own")
    own = (*_LISTS, *_MAPPINGS)
    if misplaced := sorted(set(own) & set(options)):
        raise BadValue("Setup.options", f"{misplaced[0]}: give it as {misplaced[0]}=…, beside them")
    if unknown := sorted(map(str, set(options) - set(_KNOWN))):
        known = ", ".join(name for name in _KNOWN if name not in (*_OWNED, *own))
        raise BadValue("Setup.options", f"Runtime has no {', '.join(unknown)}; it has {known}")


class _Wrapping(Rewriting):
    """Other models, tools and code agents in the places of a setup's own."""

    def __init__(
        self,
        wrap_model: Callable[[Model], Model],
        wrap_tool: Callable[[AnyTool], AnyTool],
        wrap_code: Callable[[AgentDefinition], AgentDefinition],
        wrap_server: Callable[[McpServer], McpServer],
    ) -> None:
        super().__init__()
        self._wrap_model = wrap_model
        self._wrap_tool = wrap_tool
        self._wrap_code = wrap_code
        self._wrap_server = wrap_server

    def setup(self, setup: Setup) -> Setup:
        return structs.replace(
            setup,
            agents=self.agents(setup.agents, setup.prompts),
            prompts=tuple(map(self.prompt, setup.prompts)),
            tools=tuple(map(self.tool, setup.tools)),
            skills=tuple(map(self.skill, setup.skills)),
            models={name: self._model(model) for name, model in setup.models.items()},
            schedules=tuple(map(self._schedule, setup.schedules)),
        )

    def new_model(self, reader: PromptDefinition | Skill) -> Any:
        return changed_models(reader.model, self._model)

    def new_tool(self, tool: AnyTool) -> AnyTool:
        return self._wrap_tool(tool)

    def new_server(self, server: McpServer) -> McpServer:
        return self._wrap_server(server)

    def new_agent(self, agent: AgentDefinition) -> AgentDefinition:
        return self._wrap_code(agent) if agent.is_code else agent

    def _model(self, model: Any) -> Any:
        return model if isinstance(model, str) else self.once(model, self._wrap_model)

    def _schedule(self, schedule: Any) -> Any:
        if isinstance(schedule, Cron | Heartbeat):
            return structs.replace(schedule, agent=self.agent(schedule.agent))
        return schedule
