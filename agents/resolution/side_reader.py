"""Resolves one side of an agent: looks up what it names, and checks that all of it fits.

Rules
-----
* What a name among a prompt's tools refers to decides what a call of it is:

      a ``Tool``                                a function call
      an ``McpServer``                          calls of whatever tools it lists
      an exposed ``ai_human`` agent, plain      a handoff of the conversation
      any other exposed agent, plain            a child
      an exposed agent, ``SubagentToolConfig``  a child
      any agent, ``as_tool``                    a child
      ... that is ``resumable``                 through ``subagent_create`` and ``subagent_message``

* ``agents`` and ``skills`` of a prompt are whom ``use_agent`` and ``use_skill`` may call.
* Every problem is reported with its path; a side with problems is resolved as far as it goes.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct, structs

from hubbub.agents.built_in import (
    BUILT_IN,
    CREATE,
    FINAL_ANSWER,
    INTERRUPT,
    MESSAGE,
    USE_AGENT,
    USE_SKILL,
)
from hubbub.agents.definitions.agent import (
    BINDINGS,
    AgentDefinition,
    AgentTool,
    SessionToolBinding,
    SideConfig,
)
from hubbub.agents.definitions.arguments import Arguments
from hubbub.agents.definitions.hooks import Hook, by_point
from hubbub.agents.definitions.prompt import Immediate, PromptDefinition, SubagentToolConfig
from hubbub.agents.definitions.schema import read_schema
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.mcp_server import McpServer
from hubbub.agents.model import ToolSpec
from hubbub.agents.resolution.sides import (
    DEFAULT_MAX_STEPS,
    DEFAULT_MAX_TURNS,
    ActiveSide,
    ChildTool,
)
from hubbub.agents.resolution.typed_sides import form_of, typing_problems
from hubbub.hub.near_misses import did_you_mean

__all__ = ["Known", "SideReader"]

_MAPPINGS: Final = (
    "init_user_message_property", "init_attachments_property", "init_agent_name_property",
)  # fmt: skip


class Known(Struct, frozen=True, eq=False, kw_only=True):
    """What sides may name, and what those that were read before have made."""

    agents: Mapping[str, AgentDefinition]
    prompts: Mapping[str, PromptDefinition]
    tools: Mapping[str, Tool[..., Any]]
    servers: dict[str, McpServer]
    """Those of the runtime, and those given inline."""
    hooks: Mapping[str, Hook]
    skills: Mapping[str, Skill]
    named: dict[str, PromptDefinition]
    """The prompts, also those given inline."""
    made: dict[tuple[str, SubagentToolConfig], ChildTool | None]
    """By agent and configuration; ``None`` where the agent's schema is wrong."""

    def unknown_hooks(self, path: str, ids: Iterable[str]) -> Iterable[str]:
        """The problems of hooks that are named at ``path`` and are not there."""
        known = ", ".join(sorted(self.hooks)) or "none"
        for each in ids:
            if each not in self.hooks:
                hint = did_you_mean(each, self.hooks)
                yield f"{path}: no hook with the id {each!r}; known: {known}{hint}"


class SideReader:
    """Resolves one side; what is wrong is added to ``problems``."""

    def __init__(
        self,
        known: Known,
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
        self._servers: dict[str, McpServer] = {}
        self._children: dict[str, ChildTool] = {}
        self._handoffs: dict[str, AgentDefinition] = {}
        self._agents: dict[str, AgentDefinition] = {}
        self._skills: dict[str, Skill] = {}

    def read(self) -> ActiveSide | None:
        """The side, as far as what it names is there; ``None`` without a prompt."""
        config = self._config
        prompt = self._prompt(config.prompt, self._path)
        if prompt is None:
            return None
        for item in prompt.tools:
            self._add(item, prompt)
        self._add_takeovers(prompt)
        self._check_names(prompt)
        self._check_output(prompt)
        path = f"{self._path}.prompt.hooks"
        self._problems.extend(self._known.unknown_hooks(path, prompt.hooks or ()))
        bindings = dict(self._bindings())
        names = prompt.hooks if prompt.hooks is not None else self._agent.hooks
        known = self._known.hooks
        in_order = {*bindings, *self._handoffs, *([config.stop_tool] if config.stop_tool else ())}
        own = set(self._own(prompt))
        variables = [*prompt.variables]
        choices = prompt.choices
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
            in_order=frozenset(in_order | own),
            bindings=bindings,
            offered=frozenset(self._offered()) | own,
            may_hook=bool(names),  # As far as this side goes.
            is_plain=len(choices) == 1
            and not (self._children or self._handoffs or variables or names or own),
            acts_as=self._which,
            agents=self._agents,
            skills=self._skills,
            choices=choices,
            may_ask=any(each.asks for each in self._called()),
            servers=tuple(self._servers.values()),
            output=form_of(prompt),
        )

    def _called(self) -> Iterable[Tool[..., Any]]:
        """The functions that calls are carried out by."""
        yield from self._tools.values()
        for skill in self._skills.values():
            if isinstance(skill.passthrough, Tool):
                yield skill.passthrough

    def _own(self, prompt: PromptDefinition) -> Iterable[str]:
        """The built-in tools by which the conversation changes hands, pauses, or is answered."""
        if self._agents:
            yield USE_AGENT
        if self._skills:
            yield USE_SKILL
        if self._agent.supports_checkpointing:
            yield INTERRUPT
        if prompt.output is not None:
            yield FINAL_ANSWER

    def _offered(self) -> Iterable[str]:
        yield from self._tools
        yield from self._handoffs
        yield from (name for name, child in self._children.items() if not child.config.stays)
        if any(child.config.stays for child in self._children.values()):
            yield from (CREATE, MESSAGE)

    def _say(self, path: str, problem: str) -> None:
        self._problems.append(f"{self._path}{path}: {problem}")

    def _prompt(self, prompt: str | PromptDefinition, path: str) -> PromptDefinition | None:
        if isinstance(prompt, PromptDefinition):
            if self._known.named.setdefault(prompt.name, prompt) != prompt:
                problem = f"another prompt is named {prompt.name!r}, too"
                self._problems.append(f"{path}.prompt: {problem}")
            return prompt
        found = self._known.prompts.get(prompt)
        if found is None:
            known = ", ".join(sorted(self._known.prompts)) or "none"
            hint = did_you_mean(prompt, self._known.prompts)
            problem = f"no prompt named {prompt!r}; known: {known}{hint}"
            self._problems.append(f"{path}.prompt: {problem}")
        return found

    # ── tools ────────────────────────────────────────────────────────────────────────────────

    def _add(self, item: Any, prompt: PromptDefinition) -> None:
        known = self._known
        if isinstance(item, SubagentToolConfig):
            self._add_agent(item.name, item, prompt)
        elif isinstance(item, Tool):
            self._add_tool(item)
        elif isinstance(item, McpServer):
            self._add_server(item)
        elif (tool := known.tools.get(item)) is not None:
            if item in known.agents:
                self._say(".prompt.tools", f"{item!r} names a tool and an agent; rename one")
            self._add_tool(tool)
        elif (server := known.servers.get(item)) is not None:
            self._add_server(server)
        elif item in known.agents:
            self._add_agent(item, None, prompt)
        else:
            tools = ", ".join(sorted((*known.tools, *known.servers))) or "none"
            agents = ", ".join(sorted(n for n, a in known.agents.items() if a.expose_as_tool))
            problem = f"no tool named {item!r}; known: {tools}; exposed agents: {agents or 'none'}"
            hint = did_you_mean(item, (*known.tools, *known.servers, *known.agents))
            self._say(".prompt.tools", problem + hint)

    def _add_tool(self, tool: Tool[..., Any]) -> None:
        if self._is_free(tool.name, is_built_in=tool.is_built_in):
            self._tools[tool.name] = tool

    def _add_server(self, server: McpServer) -> None:
        path = ".prompt.tools"
        if self._known.servers.setdefault(server.name, server) != server:
            self._say(path, f"another MCP server is named {server.name!r}, too; give name=…")
        for each in self._servers.values():
            if each.prefix == server.prefix:
                names = f"{each.name!r} and {server.name!r}"
                self._say(path, f"the MCP servers {names} have one prefix; give prefix=…")
        self._servers[server.name] = server

    def _is_free(self, name: str, *, is_built_in: bool = False) -> bool:
        if name in BUILT_IN and not is_built_in:
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
        target = self._known.agents.get(name)
        if target is None:
            known = ", ".join(sorted(self._known.agents))
            hint = did_you_mean(name, self._known.agents)
            self._say(path, f"no agent named {name!r}; known: {known}{hint}")
            return
        if isinstance(config, AgentTool):
            config = config.by_name
        elif not target.expose_as_tool:
            self._say(path, f"agent {name!r} is not exposed; give it expose_as_tool=True")
            return
        if not _is_tool_name(name):
            self._say(path, f"agent {name!r}: as a tool its name may have 1 to 64 letters, "
                            "digits, '_' and '-'")  # fmt: skip
            return
        if not self._is_free(name):
            return
        if config is None and not target.is_two_sided and not target.is_code:
            if self._agent.is_two_sided:
                problem = f"a side of dual_ai cannot hand over to {name!r} (ai_human)"
                self._say(path, f"{problem}; a SubagentToolConfig starts it as a child")
            else:
                self._handoffs[name] = target
            return
        child = self._child(target, config or SubagentToolConfig(name=name), prompt)
        if child is not None:
            self._children[name] = child

    def _add_takeovers(self, prompt: PromptDefinition) -> None:
        """Whom the prompt lets take the conversation over."""
        known = self._known
        for name in prompt.agents:
            target = known.agents.get(name)
            if target is None:
                names = ", ".join(sorted(known.agents))
                hint = did_you_mean(name, known.agents)
                self._say(".prompt.agents", f"no agent named {name!r}; known: {names}{hint}")
            elif target.is_code or target.is_two_sided:
                self._say(".prompt.agents", f"{name!r} must be an ai_human agent of a model")
            elif not target.expose_as_tool:
                problem = f"agent {name!r} is not exposed; give it expose_as_tool=True"
                self._say(".prompt.agents", problem)
            else:
                self._agents[name] = target
        for each in prompt.skills:
            name = each if isinstance(each, str) else each.name
            if name in known.skills:
                self._skills[name] = known.skills[name]
            else:
                names = ", ".join(sorted(known.skills)) or "none"
                hint = did_you_mean(name, known.skills)
                self._say(".prompt.skills", f"no skill named {name!r}; known: {names}{hint}")

    def _child(
        self, target: AgentDefinition, config: SubagentToolConfig, prompt: PromptDefinition
    ) -> ChildTool | None:
        # Building one takes milliseconds, and many sides may share a prompt.
        made, at = self._known.made, (target.name, config)
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
        if config.stays and config.stays.receives_messages == "side_b" and not target.is_two_sided:
            self._say(
                f".prompt.tools.{config.name}.resumable.receives_messages",
                f"{target.name!r} has one side only; give 'side_a'",
            )
        self._check_scoped(target, config)
        return structs.replace(child, key=f"{prompt.name}/{target.name}")

    def _check_scoped(self, target: AgentDefinition, config: SubagentToolConfig) -> None:
        """What is only for tools and hooks must not enter the child's prompts as text."""
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
        return prompt if isinstance(prompt, PromptDefinition) else self._known.prompts.get(prompt)

    def _make_child(self, target: AgentDefinition, config: SubagentToolConfig) -> ChildTool | None:
        inner = self._read(target.side_a) if target.side_a is not None else None
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
        )

    def _check_names(self, prompt: PromptDefinition) -> None:
        choice = prompt.tool_choice
        stays = {name for name, child in self._children.items() if child.config.stays}
        offered = {*self._tools, *self._handoffs, *self._children} - stays
        if stays:
            offered.update((CREATE, MESSAGE))
        offered.update(self._own(prompt))
        if choice not in ("auto", "none", "any") and not self._may_have(choice, offered):
            hint = did_you_mean(choice, (*offered, "auto", "none", "any"))
            self._say(".prompt.tool_choice", f"no tool named {choice!r}{hint}")
        stop = self._config.stop_tool
        if stop is not None and not self._may_have(stop, offered):
            hint = did_you_mean(stop, offered)
            self._say(".stop_tool", f"the side has no tool named {stop!r}{hint}")

    def _check_output(self, prompt: PromptDefinition) -> None:
        taking = {**self._handoffs, **self._agents}
        takers = [(x.name, self._read(x.side_a)) for x in taking.values() if x.side_a is not None]
        names = (*self._tools, *self._handoffs, *self._children)
        for problem in typing_problems(self._agent, self._config, prompt, names, takers):
            self._problems.append(f"{self._path}{problem}")

    def _may_have(self, name: str, offered: Iterable[str]) -> bool:
        return name in offered or any(each.claims(name) for each in self._servers.values())

    # ── bindings ─────────────────────────────────────────────────────────────────────────────

    def _bindings(self) -> Iterable[tuple[str, tuple[str, SessionToolBinding]]]:
        for which in BINDINGS:
            binding = self._config.binding(which)
            if binding is None:
                continue
            tool = self._tools.get(binding.name)
            if tool is None:
                known = ", ".join(sorted(self._tools)) or "none"
                problem = f"the side has no tool named {binding.name!r}; it has: {known}"
                self._say(f".{which}", problem + did_you_mean(binding.name, self._tools))
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
