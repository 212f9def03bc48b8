"""``Definitions``: everything a runtime knows by name, resolved and checked as a whole.

    agents, prompts, tools, hooks ──► Definitions ──► side(agent, "side_a") ──► ActiveSide

Rules
-----
* Names are looked up once, here; what a name stands for decides what a call of it is:

      a ``Tool``                                a function call
      an exposed ``ai_human`` agent             a handoff of the conversation (D-10)
      an exposed ``dual_ai`` agent              a child (C-01), with ``SubagentToolConfig`` or plain
      ... that is ``resumable``                 through ``subagent_create`` and ``subagent_message``

* Every problem is told at once, with its path (D-01, D-05, D-11).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct, structs

from hubbub.agents.arguments import Arguments
from hubbub.agents.definitions import (
    BINDINGS,
    AgentDefinition,
    Immediate,
    PromptDefinition,
    SessionToolBinding,
    SideConfig,
    SubagentToolConfig,
)
from hubbub.agents.hooks import Hook, by_point
from hubbub.agents.model import ToolSpec
from hubbub.agents.schema import read_schema
from hubbub.agents.tools import Tool
from hubbub.agents.variables import VariableDefinition
from hubbub.hub.errors import DefinitionError, UnknownAgent

__all__ = [
    "BUILT_IN",
    "DEFAULT_MAX_STEPS",
    "DEFAULT_MAX_TURNS",
    "ActiveSide",
    "ChildTool",
    "Definitions",
]

_MAPPINGS: Final = (
    "init_user_message_property", "init_attachments_property", "init_agent_name_property",
)  # fmt: skip

DEFAULT_MAX_STEPS: Final = 250
DEFAULT_MAX_TURNS: Final = 250

BUILT_IN: Final = (
    "complete", "interrupt", "use_agent", "use_skill", "subagent_create", "subagent_message",
    "send_agent_message",
)  # fmt: skip


class ChildTool(Struct, frozen=True, eq=False):
    """A ``dual_ai`` agent as a tool of one prompt, with its arguments (C-19)."""

    config: SubagentToolConfig
    agent: AgentDefinition
    key: str
    """Names the tool that configured a child, across agents that share a prompt."""
    arguments: Arguments
    spec: ToolSpec
    message_property: str
    has_schema: bool


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
    """Calls of these names make their whole step run in order (S-07)."""
    bindings: Mapping[str, tuple[str, SessionToolBinding]]
    """By tool: what the tool does to the session."""

    offered: frozenset[str]
    """The names a model may call."""
    is_plain: bool
    """Whether a request needs nothing but the transcript: no agents, variables or hooks."""

    may_hook: bool
    """Whether this side, or the other one, has any hooks."""

    @property
    def resumable(self) -> tuple[ChildTool, ...]:
        return tuple(child for child in self.children.values() if child.config.stays)

    @property
    def immediate(self) -> tuple[str, ...]:
        """The subagents that start with this prompt (C-04)."""
        return tuple(name for name, each in self.children.items() if each.config.is_immediate)


class Definitions:
    """Immutable; raises ``DefinitionError`` when made."""

    __slots__ = (
        "_agents",
        "_hooks",
        "_made",
        "_named",
        "_prompts",
        "_scoping",
        "_sides",
        "_tools",
        "agents", "sides",
    )  # fmt: skip

    def __init__(
        self,
        agents: Iterable[AgentDefinition] = (),
        prompts: Iterable[PromptDefinition] = (),
        tools: Iterable[Tool[..., Any]] = (),
        hooks: Iterable[Hook] = (),
    ) -> None:
        problems: list[str] = []
        self._agents: dict[str, AgentDefinition] = _by_name(
            "agents", agents, AgentDefinition, problems
        )
        self.agents: Mapping[str, AgentDefinition] = self._agents
        self._prompts: dict[str, PromptDefinition] = _by_name(
            "prompts", prompts, PromptDefinition, problems
        )
        self._named: dict[str, PromptDefinition] = dict(self._prompts)
        self._tools: dict[str, Tool[..., Any]] = _by_name("tools", tools, Tool, problems)
        self._hooks: dict[str, Hook] = _by_name("hooks", hooks, Hook, problems)
        self._sides: dict[tuple[str, str], ActiveSide] = {}
        self.sides: Mapping[tuple[str, str], ActiveSide] = self._sides
        self._made: dict[tuple[str, SubagentToolConfig], ChildTool | None] = {}
        problems.extend(
            f"tools.{name}: the name is built in; rename the tool"
            for name in self._tools
            if name in BUILT_IN
        )
        for definition in self._agents.values():
            path = f"agents.{definition.name}.hooks"
            problems.extend(self._unknown_hooks(path, definition.hooks))
            for which in ("side_a", "side_b"):
                config = getattr(definition, which)
                if config is not None:
                    side = _SideReader(self, definition, which, config, problems).read()
                    if side is not None:
                        self._sides[definition.name, which] = side
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

    def _unknown_hooks(self, path: str, ids: Iterable[str]) -> Iterable[str]:
        known = ", ".join(sorted(self._hooks)) or "none"
        for each in ids:
            if each not in self._hooks:
                yield f"{path}: no hook with the id {each!r}; known: {known}"

    # ── looking up ───────────────────────────────────────────────────────────────────────────

    def agent(self, name: str) -> AgentDefinition:
        """The agent of that name; raises ``UnknownAgent``, which lists the known ones."""
        found = self._agents.get(name)
        if found is None:
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
    def tools(self) -> Mapping[str, Tool[..., Any]]:
        return self._tools

    @property
    def hooks(self) -> Mapping[str, Hook]:
        return self._hooks

    def sides_of(self, agent: str) -> tuple[ActiveSide, ...]:
        """The sides of a model agent, side A first."""
        found = (self._sides.get((agent, which)) for which in ("side_a", "side_b"))
        return tuple(side for side in found if side is not None)

    # ── scoped variables (V-01) ──────────────────────────────────────────────────────────────

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

    # ── immediate subagents (C-04) ───────────────────────────────────────────────────────────

    def _cycles(self) -> Iterable[str]:
        """Agents that would start themselves for ever."""
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


class _SideReader:
    """Resolves one side; what is wrong is added to ``problems``."""

    def __init__(
        self,
        known: Definitions,
        agent: AgentDefinition,
        which: str,
        config: SideConfig,
        problems: list[str],
    ) -> None:
        self._known = known
        self._agent = agent
        self._which = which
        self._config = config
        self._path = f"agents.{agent.name}.{which}"
        self._problems = problems
        self._tools: dict[str, Tool[..., Any]] = {}
        self._children: dict[str, ChildTool] = {}
        self._handoffs: dict[str, AgentDefinition] = {}

    def read(self) -> ActiveSide | None:
        config = self._config
        prompt = self._prompt(config.prompt, self._path)
        if prompt is None:
            return None
        for item in prompt.tools:
            self._add(item, prompt)
        self._check_names(prompt)
        path = f"{self._path}.prompt.hooks"
        self._problems.extend(self._known._unknown_hooks(path, prompt.hooks or ()))
        bindings = dict(self._bindings())
        names = prompt.hooks if prompt.hooks is not None else self._agent.hooks
        known = self._known._hooks
        in_order = {*bindings, *self._handoffs, *([config.stop_tool] if config.stop_tool else ())}
        variables = [*prompt.variables]
        for tool in self._tools.values():
            variables += tool.variables
        return ActiveSide(
            name=self._which,
            agent=self._agent.name,
            config=config,
            prompt=prompt,
            tools=self._tools,
            children=self._children,
            handoffs=self._handoffs,
            hooks=by_point(known[each] for each in names if each in known),
            variables=tuple(variables),
            max_steps=config.max_steps or DEFAULT_MAX_STEPS,
            max_turns=self._agent.max_session_turns or DEFAULT_MAX_TURNS,
            two_sided=self._agent.is_two_sided,
            in_order=frozenset(in_order),
            bindings=bindings,
            offered=frozenset(self._offered()),
            may_hook=bool(names) or self._agent.is_two_sided,
            is_plain=not (self._children or self._handoffs or variables or names),
        )

    def _offered(self) -> Iterable[str]:
        yield from self._tools
        yield from self._handoffs
        yield from (name for name, child in self._children.items() if not child.config.stays)
        if any(child.config.stays for child in self._children.values()):
            yield from BUILT_IN[4:6]

    def _say(self, path: str, problem: str) -> None:
        self._problems.append(f"{self._path}{path}: {problem}")

    def _prompt(self, prompt: str | PromptDefinition, path: str) -> PromptDefinition | None:
        if isinstance(prompt, PromptDefinition):
            if self._known._named.setdefault(prompt.name, prompt) != prompt:
                problem = f"another prompt is named {prompt.name!r}, too"
                self._problems.append(f"{path}.prompt: {problem}")
            return prompt
        found = self._known._prompts.get(prompt)
        if found is None:
            known = ", ".join(sorted(self._known._prompts)) or "none"
            self._problems.append(f"{path}.prompt: no prompt named {prompt!r}; known: {known}")
        return found

    # ── tools ────────────────────────────────────────────────────────────────────────────────

    def _add(self, item: Any, prompt: PromptDefinition) -> None:
        known = self._known
        if isinstance(item, SubagentToolConfig):
            self._add_agent(item.name, item, prompt)
        elif isinstance(item, Tool):
            self._add_tool(item)
        elif (tool := known._tools.get(item)) is not None:
            if item in known._agents:
                self._say(".prompt.tools", f"{item!r} names a tool and an agent; rename one")
            self._add_tool(tool)
        elif item in known._agents:
            self._add_agent(item, None, prompt)
        else:
            tools = ", ".join(sorted(known._tools)) or "none"
            agents = ", ".join(sorted(n for n, a in known._agents.items() if a.expose_as_tool))
            problem = f"no tool named {item!r}; known: {tools}"
            self._say(".prompt.tools", f"{problem}; exposed agents: {agents or 'none'}")

    def _add_tool(self, tool: Tool[..., Any]) -> None:
        if self._is_free(tool.name):
            self._tools[tool.name] = tool

    def _is_free(self, name: str) -> bool:
        if name in BUILT_IN:
            self._say(".prompt.tools", f"the name {name!r} is built in; rename it")
            return False
        if name in self._tools or name in self._children or name in self._handoffs:
            self._say(".prompt.tools", f"two tools are named {name!r}")
            return False
        return True

    def _add_agent(
        self, name: str, config: SubagentToolConfig | None, prompt: PromptDefinition
    ) -> None:
        path = ".prompt.tools"
        target = self._known._agents.get(name)
        if target is None:
            known = ", ".join(sorted(self._known._agents))
            self._say(path, f"no agent named {name!r}; known: {known}")
            return
        if not target.expose_as_tool:
            self._say(path, f"agent {name!r} is not exposed; give it expose_as_tool=True")
            return
        if not _is_tool_name(name):
            self._say(path, f"agent {name!r}: as a tool its name may have 1 to 64 letters, "
                            "digits, '_' and '-'")  # fmt: skip
            return
        if not self._is_free(name):
            return
        if not target.is_two_sided:
            if config is not None:
                self._say(path, f"{name!r} is {target.type}; a subagent must be dual_ai")
            elif self._agent.is_two_sided:
                self._say(path, f"a side of dual_ai cannot hand over to {name!r} (ai_human)")
            else:
                self._handoffs[name] = target
            return
        child = self._child(target, config or SubagentToolConfig(name=name), prompt)
        if child is not None:
            self._children[name] = child

    def _child(
        self, target: AgentDefinition, config: SubagentToolConfig, prompt: PromptDefinition
    ) -> ChildTool | None:
        # Building one takes milliseconds, and many sides may share a prompt.
        made, at = self._known._made, (target.name, config)
        if at not in made:
            made[at] = self._make_child(target, config)
        child = made[at]
        if child is None:
            return None  # The prompt itself has said so.
        for field in _MAPPINGS:
            name = getattr(config, field)
            has = name is None or name in child.spec.schema["properties"]
            if not has and not _is_left_out(field, config):
                self._say(
                    f".prompt.tools.{config.name}.{field}",
                    f"the required_schema of its side A has no {name!r}",
                )
        self._check_scoped(target, config)
        return structs.replace(child, key=f"{prompt.name}/{target.name}")

    def _check_scoped(self, target: AgentDefinition, config: SubagentToolConfig) -> None:
        """What is only for tools and hooks must not enter the child's prompts as text (C-05)."""
        hints = config.immediate
        if not isinstance(hints, Immediate):
            return
        shown = {hints.name_env, hints.description_env}
        for side in (target.side_a, target.side_b):
            inner = self._read(side) if side is not None else None
            for each in inner.variables if inner is not None else ():
                if each.type == "text" and each.name in hints.scoped_env and each.name not in shown:
                    self._say(
                        f".prompt.tools.{config.name}.immediate.scoped_env",
                        f"{each.name!r} is a text variable of {target.name!r}, whose prompt would "
                        "show it; make it secret there, or one of the hints here",
                    )

    def _read(self, side: SideConfig) -> PromptDefinition | None:
        """The prompt that another agent's side reads."""
        prompt = side.prompt
        return prompt if isinstance(prompt, PromptDefinition) else self._known._prompts.get(prompt)

    def _make_child(self, target: AgentDefinition, config: SubagentToolConfig) -> ChildTool | None:
        assert target.side_a is not None
        inner = self._read(target.side_a)
        schema_given = inner.required_schema if inner is not None else None
        message = config.init_user_message_property or "message"
        default = _default_schema(config, message)
        parameters, shown, wrong = read_schema(default if schema_given is None else schema_given)
        if wrong:
            return None
        return ChildTool(
            config=config,
            agent=target,
            key="",
            arguments=Arguments("subagent_create" if config.stays else target.name, parameters),
            spec=ToolSpec(name=target.name, description=target.tool_text, schema=shown),
            message_property=message,
            has_schema=schema_given is not None,
        )

    def _check_names(self, prompt: PromptDefinition) -> None:
        choice = prompt.tool_choice
        stays = {name for name, child in self._children.items() if child.config.stays}
        offered = {*self._tools, *self._handoffs, *self._children} - stays
        if stays:
            offered.update(BUILT_IN[4:6])
        if choice not in ("auto", "none", "any") and choice not in offered:
            self._say(".prompt.tool_choice", f"no tool named {choice!r}")
        stop = self._config.stop_tool
        if stop is not None and stop not in offered:
            self._say(".stop_tool", f"the side has no tool named {stop!r}")

    # ── bindings ─────────────────────────────────────────────────────────────────────────────

    def _bindings(self) -> Iterable[tuple[str, tuple[str, SessionToolBinding]]]:
        for which in BINDINGS:
            binding = self._config.binding(which)
            if binding is None:
                continue
            tool = self._tools.get(binding.name)
            if tool is None:
                known = ", ".join(sorted(self._tools)) or "none"
                self._say(
                    f".{which}", f"the side has no tool named {binding.name!r}; it has: {known}"
                )
                continue
            for field in ("message_property", "attachments_property"):
                name = getattr(binding, field)
                if name is not None and name not in tool.schema["properties"]:
                    self._say(f".{which}.{field}", f"the tool {tool.name!r} has no {name!r}")
            yield binding.name, (which, binding)


def _is_left_out(field: str, config: SubagentToolConfig) -> bool:
    """A resumable child's name is an argument of ``subagent_create`` itself."""
    return field == "init_agent_name_property" and config.stays is not None


def _default_schema(config: SubagentToolConfig, message: str) -> dict[str, Any]:
    properties: dict[str, Any] = {
        message: {"type": "string", "description": "What the agent is to do, complete in itself."}
    }
    required = [message]
    name = config.init_agent_name_property
    if name is not None and config.stays is None:
        properties[name] = {"type": "string", "description": "A name for this agent."}
        required.append(name)
    if config.init_attachments_property is not None:
        properties[config.init_attachments_property] = {
            "type": "array",
            "items": {"type": "string"},
            "description": "Paths of files that it gets copies of.",
        }
    return {"type": "object", "properties": properties, "required": required}


def _is_tool_name(name: str) -> bool:
    return len(name) <= 64 and "." not in name and ":" not in name


def _by_name(path: str, items: Iterable[Any], kind: Any, problems: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if not isinstance(items, Iterable):
        problems.append(f"{path}: a list is wanted, not {type(items).__name__}")
        return found
    for index, item in enumerate(items):
        if not isinstance(item, kind):
            problems.append(f"{path}[{index}]: {kind.__name__} wanted, not {type(item).__name__}")
        elif item.name in found:
            problems.append(f"{path}[{index}]: the name {item.name!r} is taken")
        else:
            found[item.name] = item
    return found
