"""``Setup``: what a simulated world runs, as one gives it to ``Runtime``."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, structs

from hubbub.agents.definitions import AgentDefinition, PromptDefinition, SideConfig
from hubbub.agents.hooks import Hook
from hubbub.agents.model import Model
from hubbub.agents.skills import Skill
from hubbub.agents.tools import Tool
from hubbub.hub.errors import BadValue
from hubbub.runtime.schedules import Cron, Heartbeat

__all__ = ["Setup"]

AnyTool: TypeAlias = Tool[..., Any]

_OWNED = ("hub", "ports", "store")
"""Arguments of ``Runtime`` that the world gives."""


class Setup(Struct, frozen=True, kw_only=True):
    """The arguments of ``Runtime`` in a simulated world; see there.

    ``options`` are further ones by name (``default_agent``, ``restore``, ``max_live``, …).  Raises
    ``BadValue`` for those that are the world's own to give: hub, ports and store.
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

    def __post_init__(self) -> None:
        if taken := sorted(set(_OWNED) & set(self.options)):
            raise BadValue("Setup.options", f"{', '.join(taken)}: the world has its own")

    @classmethod
    def of(cls, *agents: AgentDefinition, **arguments: Any) -> "Setup":
        """A setup of agents, and of what else ``Runtime`` takes by name."""
        if agents:
            arguments["agents"] = (*arguments.get("agents", ()), *agents)
        own = {name: arguments.pop(name) for name in cls.__struct_fields__ if name in arguments}
        if arguments:
            own["options"] = {**own.get("options", {}), **arguments}
        return cls(**own)

    def arguments(self) -> dict[str, Any]:
        """What ``Runtime`` is given."""
        own = {name: getattr(self, name) for name in self.__struct_fields__ if name != "options"}
        return {**own, **self.options}

    def wrapped(
        self, wrap_model: Callable[[Model], Model], wrap_tool: Callable[[AnyTool], AnyTool]
    ) -> "Setup":
        """The same with other models and tools in their places, wherever they stand.

        The same object is wrapped once: where two prompts share a tool, they still do.
        """
        return _Wrapping(wrap_model, wrap_tool).setup(self)


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
