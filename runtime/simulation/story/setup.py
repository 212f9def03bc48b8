"""``Setup``: what a simulated world runs, as one gives it to ``Runtime``."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct, structs

from hubbub.agents.definitions.agent import AgentDefinition, SideConfig
from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.model import Model
from hubbub.agents.resolution.definitions import Definitions
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
    tools: Sequence[AnyTool] = ()
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
        """What ``Runtime`` is given."""
        others = ("options", "code")
        own = {name: getattr(self, name) for name in self.__struct_fields__ if name not in others}
        return {**own, **self.options}

    def wrapped(
        self, wrap_model: Callable[[Model], Model], wrap_tool: Callable[[AnyTool], AnyTool]
    ) -> "Setup":
        """The same with other models and tools in their places, wherever they stand.

        The same object is wrapped once: where two prompts share a tool, they still do.
        """
        return _Wrapping(wrap_model, wrap_tool).setup(self)


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


class _Wrapping:
    """Goes through definitions and replaces models and tools."""

    def __init__(
        self, wrap_model: Callable[[Model], Model], wrap_tool: Callable[[AnyTool], AnyTool]
    ) -> None:
        self._wrap_model = wrap_model
        self._wrap_tool = wrap_tool
        self._done: dict[int, Any] = {}

    def setup(self, setup: Setup) -> Setup:
        return structs.replace(
            setup,
            agents=tuple(map(self._agent, setup.agents)),
            prompts=tuple(map(self._prompt, setup.prompts)),
            tools=tuple(map(self._tool, setup.tools)),
            skills=tuple(map(self._skill, setup.skills)),
            models={name: self._model(model) for name, model in setup.models.items()},
            schedules=tuple(map(self._schedule, setup.schedules)),
        )

    def _once(self, thing: Any, make: Callable[[Any], Any]) -> Any:
        if id(thing) not in self._done:
            self._done[id(thing)] = make(thing)
        return self._done[id(thing)]

    def _model(self, model: Any) -> Any:
        return model if isinstance(model, str) else self._once(model, self._wrap_model)

    def _tool(self, tool: Any) -> Any:
        return self._once(tool, self._wrap_tool) if isinstance(tool, Tool) else tool

    def _prompt(self, prompt: Any) -> Any:
        if not isinstance(prompt, PromptDefinition):
            return prompt
        return self._once(
            prompt,
            lambda it: structs.replace(
                it,
                model=self._model(it.model),
                tools=tuple(map(self._tool, it.tools)),
                skills=tuple(map(self._skill, it.skills)),
            ),
        )

    def _skill(self, skill: Any) -> Any:
        if not isinstance(skill, Skill):
            return skill
        return self._once(
            skill,
            lambda it: structs.replace(
                it,
                model=self._model(it.model),
                tools=None if it.tools is None else tuple(map(self._tool, it.tools)),
                passthrough=self._tool(it.passthrough),
            ),
        )

    def _side(self, side: SideConfig | None) -> SideConfig | None:
        return side and structs.replace(side, prompt=self._prompt(side.prompt))

    def _agent(self, agent: Any) -> Any:
        if not isinstance(agent, AgentDefinition):
            return agent
        return self._once(
            agent,
            lambda it: structs.replace(
                it, side_a=self._side(it.side_a), side_b=self._side(it.side_b)
            ),
        )

    def _schedule(self, schedule: Any) -> Any:
        if isinstance(schedule, Cron | Heartbeat):
            return structs.replace(schedule, agent=self._agent(schedule.agent))
        return schedule
