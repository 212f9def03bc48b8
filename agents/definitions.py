"""What an agent is: definitions, validated as a whole when they are made (SA 1–4, AP).

One ``AgentDefinition`` has exactly one of two bodies (decision 14): ``execute``, a function that
is the agent (AP's code agent), or ``side_a``, a model with a prompt (SA's agent).
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from hubbub.agents.model import Model
from hubbub.agents.tools import Tool
from hubbub.hub.errors import DefinitionError, UnknownAgent

__all__ = [
    "ActiveSide",
    "AgentDefinition",
    "Definitions",
    "Execute",
    "PromptDefinition",
    "SideConfig",
    "agent",
]

DEFAULT_MAX_STEPS: Final = 250

Execute: TypeAlias = Callable[[Any, Any], Awaitable[Any]]

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


class PromptDefinition(Struct, frozen=True, kw_only=True):
    """A system prompt with the model that reads it and the tools it may use (SA 6).

    ``model`` is ``"provider:name"``, the name of one of ``Runtime(models=…)``, or a ``Model``.
    ``tools`` are ``Tool`` objects or names of ``Runtime(tools=…)``.  ``provider_options`` go into
    the provider's request as they are.  Raises ``DefinitionError`` listing every problem.
    """

    name: str
    prompt: str
    model: str | Model
    tools: tuple[Tool[..., Any] | str, ...] = ()
    parallel_tool_calls: bool = False
    tool_choice: str = "auto"
    provider_options: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        problems = list(_name_problems(self.name))
        if not isinstance(self.prompt, str):
            problems.append("prompt: a text is wanted")
        if isinstance(self.model, str):
            if not self.model:
                problems.append('model: give "provider:name", a registered name, or a Model')
        elif not isinstance(self.model, Model):
            problems.append(f"model: {type(self.model).__name__} has no `call`; give a Model")
        if isinstance(self.tools, str) or not isinstance(self.tools, Iterable):
            problems.append("tools: give a list of tools or of their names")
        else:
            problems.extend(_tool_problems(tuple(self.tools)))
        if problems:
            raise DefinitionError(f"prompt {self.name!r}", problems)


class SideConfig(Struct, frozen=True, kw_only=True):
    """One side of an agent (SA 3).

    ``prompt`` is a ``PromptDefinition`` or the name of one of ``Runtime(prompts=…)``.
    ``max_steps`` bounds the model calls of one turn (default 250); reaching it ends the session
    with the outcome ``limit`` (S-06).
    """

    prompt: str | PromptDefinition
    label: str = ""
    max_steps: int | None = None


class AgentDefinition(Struct, frozen=True, kw_only=True):
    """An agent, by name (SA 1, AP).

    * ``execute(input, ctx)``: a code agent.  With ``emits_start_complete`` it emits
      ``agent:start`` and ``agent:complete`` itself.  ``on_restart`` says what becomes of a run
      that a crash cut off: ``"fail"`` (default) ends it, ``"resume"`` executes it again with
      the same input, as a further attempt of the same run.
    * ``side_a``: a model agent of type ``ai_human``; the user is its other side.

    Raises ``DefinitionError`` with every problem and its path.
    """

    name: str
    execute: Execute | None = None
    side_a: SideConfig | None = None
    type: Literal["ai_human"] = "ai_human"
    emits_start_complete: bool = False
    on_restart: Literal["fail", "resume"] = "fail"
    title: str = ""
    description: str = ""

    def __post_init__(self) -> None:
        problems = list(_name_problems(self.name))
        if self.execute is None and self.side_a is None:
            problems.append("execute, side_a: give one of them")
        elif self.execute is not None and self.side_a is not None:
            problems.append("execute, side_a: give one of them, not both")
        if self.execute is not None and not callable(self.execute):
            problems.append("execute: an async function (input, ctx) is wanted")
        if self.side_a is not None:
            problems.extend(_side_problems("side_a", self.side_a))
            if self.emits_start_complete:
                problems.append("emits_start_complete: belongs to a code agent")
            if self.on_restart != "fail":
                problems.append("on_restart: belongs to a code agent; model agents always resume")
        if self.on_restart not in ("fail", "resume"):
            problems.append(f'on_restart: "fail" or "resume", not {self.on_restart!r}')
        if self.type != "ai_human":
            problems.append(f"type: only 'ai_human' exists so far, not {self.type!r}")
        if problems:
            raise DefinitionError(f"agent {self.name!r}", problems)

    @property
    def is_code(self) -> bool:
        return self.execute is not None


def agent(
    name: str,
    *,
    emits_start_complete: bool = False,
    on_restart: Literal["fail", "resume"] = "fail",
    description: str = "",
) -> Callable[[Execute], AgentDefinition]:
    """Make a code agent of ``async def f(input, ctx)`` (AP, R-01).

    @agent("echo")
    async def echo(input: str, ctx) -> str:
        return input
    """

    def decorate(execute: Execute) -> AgentDefinition:
        return AgentDefinition(
            name=name,
            execute=execute,
            emits_start_complete=emits_start_complete,
            on_restart=on_restart,
            description=description or (execute.__doc__ or "").strip(),
        )

    return decorate


class ActiveSide(Struct, frozen=True):
    """A side with its names resolved: what a step needs."""

    config: SideConfig
    prompt: PromptDefinition
    tools: Mapping[str, Tool[..., Any]]
    max_steps: int


class Definitions:
    """Everything a runtime knows by name.  Immutable; raises ``DefinitionError`` when made."""

    __slots__ = ("_agents", "_prompts", "_sides", "_tools")

    def __init__(
        self,
        agents: Iterable[AgentDefinition] = (),
        prompts: Iterable[PromptDefinition] = (),
        tools: Iterable[Tool[..., Any]] = (),
    ) -> None:
        problems: list[str] = []
        self._agents: dict[str, AgentDefinition] = _by_name(
            "agents", agents, AgentDefinition, problems
        )
        self._prompts: dict[str, PromptDefinition] = _by_name(
            "prompts", prompts, PromptDefinition, problems
        )
        self._tools: dict[str, Tool[..., Any]] = _by_name("tools", tools, Tool, problems)
        self._sides: dict[str, ActiveSide] = {}
        for name, definition in self._agents.items():
            if definition.side_a is not None:
                side = self._resolve(f"agents.{name}.side_a", definition.side_a, problems)
                if side is not None:
                    self._sides[name] = side
        if problems:
            raise DefinitionError("definitions", problems)

    def agent(self, name: str) -> AgentDefinition:
        """The agent of that name; raises ``UnknownAgent``, which lists the known ones."""
        found = self._agents.get(name)
        if found is None:
            raise UnknownAgent(name, self._agents)
        return found

    def side(self, name: str) -> ActiveSide:
        """The active side of a model agent; raises ``UnknownAgent``."""
        found = self._sides.get(name)
        if found is None:
            raise UnknownAgent(name, self._sides)
        return found

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._agents)

    def _resolve(self, path: str, side: SideConfig, problems: list[str]) -> ActiveSide | None:
        prompt = side.prompt if isinstance(side.prompt, PromptDefinition) else None
        if prompt is None:
            prompt = self._prompts.get(str(side.prompt))
        if prompt is None:
            known = ", ".join(sorted(self._prompts)) or "none"
            problems.append(f"{path}.prompt: no prompt named {side.prompt!r}; known: {known}")
            return None
        tools: dict[str, Tool[..., Any]] = {}
        for tool in prompt.tools:
            found = self._tools.get(tool) if isinstance(tool, str) else tool
            if found is None:
                known = ", ".join(sorted(self._tools)) or "none"
                problems.append(f"{path}.prompt.tools: no tool named {tool!r}; known: {known}")
            elif found.name in tools:
                problems.append(f"{path}.prompt.tools: two tools are named {found.name!r}")
            else:
                tools[found.name] = found
        choice = prompt.tool_choice
        if choice not in ("auto", "none", "any") and choice not in tools:
            problems.append(f"{path}.prompt.tool_choice: no tool named {choice!r}")
        return ActiveSide(side, prompt, tools, side.max_steps or DEFAULT_MAX_STEPS)


def _by_name(path: str, items: Iterable[Any], kind: Any, problems: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for index, item in enumerate(items):
        if not isinstance(item, kind):
            problems.append(f"{path}[{index}]: {kind.__name__} wanted, not {type(item).__name__}")
        elif item.name in found:
            problems.append(f"{path}[{index}]: the name {item.name!r} is taken")
        else:
            found[item.name] = item
    return found


def _name_problems(name: object) -> Iterable[str]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        yield "name: 1 to 128 letters, digits, '_', '-', '.' or ':' are wanted"


def _side_problems(path: str, side: object) -> Iterable[str]:
    if not isinstance(side, SideConfig):
        yield f"{path}: a SideConfig is wanted, not {type(side).__name__}"
        return
    if not isinstance(side.prompt, str | PromptDefinition) or not side.prompt:
        yield f"{path}.prompt: a PromptDefinition or its name is wanted"
    if side.max_steps is not None and side.max_steps < 1:
        yield f"{path}.max_steps: at least 1"


def _tool_problems(tools: tuple[object, ...]) -> Iterable[str]:
    for index, tool in enumerate(tools):
        if not isinstance(tool, Tool | str):
            what = getattr(tool, "__name__", type(tool).__name__)
            yield f"tools[{index}]: {what} is no tool; decorate the function with @tool"
