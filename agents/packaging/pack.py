"""An agent and all it can reach as one JSON file, for distribution.

    Definitions ── pack(definitions, "lead") ──► JSON ── unpack(JSON, tools=…, hooks=…) ──► Package

Rules
-----
* Packed are the agent, the agents that its prompts and their skills name, theirs in turn, and
  their prompts and skills: data only.  Tools and hooks are code; of them the file has the names.
* A list of tools or agents that a skill leaves out stays left out: where the package is loaded, it
  may use what there is.
* Loading runs no code and imports nothing: names are looked up among the tools and hooks that the
  caller hands over, and those that are not there are listed.
* Whatever the file contains, ``unpack`` raises ``DefinitionError`` and nothing else, with every
  part that is malformed.  Unknown fields are refused.
* The same definitions make the same bytes, and a package that is loaded and packed again is the
  same file.  What cannot be loaded again is not packed.
* ``package`` is the packed agent's metadata; nothing but a reader of packages looks at it.
* Fields, their defaults and the format's number are permanent; a reader refuses newer numbers.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from hubbub.agents.built_in import USE_AGENT
from hubbub.agents.compaction import Compaction
from hubbub.agents.definitions.agent import (
    BINDINGS,
    AgentDefinition,
    SessionToolBinding,
    SideConfig,
)
from hubbub.agents.definitions.hooks import Hook
from hubbub.agents.definitions.prompt import (
    Immediate,
    PromptDefinition,
    Resumable,
    SubagentToolConfig,
)
from hubbub.agents.definitions.schema import plain_json
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.definitions.variables import VariableDefinition
from hubbub.agents.mcp_server import McpServer
from hubbub.agents.packaging.format import (
    FORMAT,
    MAX_PARTS,
    AgentPart,
    BindingPart,
    CompactionPart,
    ImmediatePart,
    MetadataPart,
    PackageReader,
    PromptPart,
    ResumablePart,
    SidePart,
    SkillPart,
    SubagentPart,
    VariablePart,
    fields_of,
    written,
)
from hubbub.agents.packaging.models import (
    BY_NAME,
    read_limits,
    read_model,
    written_limits,
    written_model,
)  # fmt: skip
from hubbub.agents.packaging.schemas import schema_of_type
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.reached import held_agents
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.hub.errors import DefinitionError

__all__ = ["Package", "pack", "unpack"]

T = TypeVar("T")


class Package(Struct, frozen=True, eq=False, kw_only=True):
    """A loaded package, ready for ``Runtime(p.agents, p.prompts, p.tools, skills=p.skills, …)``.

    ``agent`` is the name of the one that was packed; ``tools`` and ``hooks`` are those of the
    caller's that it needs.
    """

    agent: str
    agents: tuple[AgentDefinition, ...]
    prompts: tuple[PromptDefinition, ...]
    skills: tuple[Skill, ...] = ()
    tools: tuple[Tool[..., Any] | McpServer, ...]
    hooks: tuple[Hook, ...]
    package_name: str = ""
    version: str = ""
    author: str = ""
    license: str = ""


def pack(definitions: Definitions, agent: str) -> bytes:
    """Write an agent with its prompts and everything reachable into one JSON text.

    A prompt given inline is packed under its own name, a ``Tool`` under its, and a
    ``required_schema`` or ``output`` that is a type as the JSON schema of that type.

    Raises ``DefinitionError`` with everything that cannot be packed: a code agent, a model that
    is not given by name, two prompts or tools of one name; ``UnknownAgent``.
    """
    packer = _Packer(definitions, agent)
    if packer.problems:
        raise DefinitionError(f"package of {agent!r}", packer.problems)
    try:
        data = msgspec.json.format(msgspec.json.encode(packer.file()), indent=2) + b"\n"
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise DefinitionError(f"package of {agent!r}", [f"this is no JSON: {problem}"]) from problem
    unpack(data, tools=packer.tools.values(), hooks=packer.hooks.values())
    return data


def unpack(
    data: bytes | str, *, tools: Iterable[Tool[..., Any] | McpServer], hooks: Iterable[Hook] = ()
) -> Package:
    """Read a package; its names refer to ``tools`` and ``hooks``, which may hold more.

    Raises ``DefinitionError`` with every malformed part and every missing tool and hook, or, if
    there are none, with everything that does not fit together.
    """
    reader = PackageReader(data)
    made = _Unpacker(reader)
    found_tools: tuple[Tool[..., Any] | McpServer, ...] = reader.look_up(
        "tools", (Tool, McpServer), tools
    )
    found_hooks: tuple[Hook, ...] = reader.look_up("hooks", (Hook,), hooks)
    if reader.problems:
        raise DefinitionError("package", reader.problems)
    package = Package(
        agent=made.agent,
        agents=tuple(made.agents),
        prompts=tuple(made.prompts),
        skills=tuple(made.skills),
        tools=found_tools,
        hooks=found_hooks,
        **made.metadata,
    )
    try:
        Definitions(
            package.agents, package.prompts, package.tools, package.hooks, package.skills
        )  # fmt: skip
    except DefinitionError as problem:
        raise DefinitionError("package", problem.problems) from None
    return package


# ── writing ──────────────────────────────────────────────────────────────────────────────────


class _Packer:
    """Collects what is reachable; what cannot be packed is in ``problems``."""

    def __init__(self, definitions: Definitions, agent: str) -> None:
        self.problems: list[str] = []
        self.tools: dict[str, Tool[..., Any] | McpServer] = {}
        self.hooks: dict[str, Hook] = {}
        self._definitions = definitions
        self._root = definitions.agent(agent)
        self._agents: dict[str, dict[str, Any]] = {}
        self._prompts: dict[str, dict[str, Any]] = {}
        self._skills: dict[str, dict[str, Any]] = {}
        left = [agent]
        while left:
            name = left.pop(0)
            if name not in self._agents:
                left += self._add(definitions.agent(name))
        # In a file a prompt has its subagents by name only, and what is named is exposed.
        for side in (side for name in self._agents for side in definitions.sides_of(name)):
            for held in held_agents(side.prompt):
                self._agents[held.name]["expose_as_tool"] = True
        self._check_secrets()

    def _check_secrets(self) -> None:
        """A package is for others: no value of a secret variable goes with it."""
        sides = [side for name in self._agents for side in self._definitions.sides_of(name)]
        secret = {v.name for side in sides for v in side.variables if v.type == "secret"}
        envs = {f"prompts.{side.prompt.name}": side.prompt.env for side in sides}
        envs |= {f"agents.{name}": self._definitions.agent(name).env for name in self._agents}
        for name in self._skills:
            skill = self._definitions.skills[name]
            secret.update(v.name for v in skill.variables if v.type == "secret")
            envs[f"skills.{name}"] = skill.env
        for path, env in envs.items():
            for name in sorted(secret.intersection(env)):
                self._say(f"{path}.env.{name}", "the variable is secret; give it at run time")

    def file(self) -> dict[str, Any]:
        skills = {"skills": list(self._skills.values())} if self._skills else {}
        return {
            "hubbub_package": FORMAT,
            "agent": self._root.name,
            "package": written(MetadataPart, self._root),
            "agents": [
                written(AgentPart, self._definitions.agent(name), **parts)
                for name, parts in self._agents.items()
            ],
            "prompts": list(self._prompts.values()),
            **skills,
            "tools": sorted(self.tools),
            "hooks": sorted(self.hooks),
        }

    def _add(self, agent: AgentDefinition) -> list[str]:
        """Add an agent; returns the names of those that it can reach."""
        sides = self._definitions.sides_of(agent.name)
        if agent.is_code:
            self._say(f"agents.{agent.name}.execute", "code cannot be packed; pack a model agent")
        self._name_hooks(agent.hooks)
        parts: dict[str, Any] = {side.name: self._side(side) for side in sides}
        if agent is self._root:
            parts |= dict.fromkeys(MetadataPart.__struct_fields__, "")
        self._agents[agent.name] = parts | {"run_limits": written_limits(agent.run_limits)}
        skills = [skill for side in sides for skill in side.skills.values()]
        for skill in skills:
            self._add_skill(skill)
        return [
            *(name for side in sides for name in (*side.handoffs, *side.children, *side.agents)),
            *(name for skill in skills for name in skill.agents or ()),
        ]

    def _add_skill(self, skill: Skill) -> None:
        """Add a skill by value; what its tools and its passthrough are called stands for them."""
        listed = [each for each in skill.tools or () if each != USE_AGENT]
        for each in (*listed, *([skill.passthrough] if skill.is_passthrough else ())):
            tool = self._tool_of(skill, each)
            if tool is not None:
                self._name_tool(tool)
        path = f"skills.{skill.name}"
        if not isinstance(skill.model, str):
            self._say(f"{path}.model", BY_NAME)
        names = None if skill.tools is None else tuple(map(_name_of, skill.tools))
        self._skills[skill.name] = written(
            SkillPart,
            skill,
            tools=names,
            model=skill.model if isinstance(skill.model, str) else "",
            variables=tuple(written(VariablePart, each) for each in skill.variables),
            env=dict(skill.env),
            passthrough=_name_of(skill.passthrough),
        )

    def _tool_of(
        self, skill: Skill, item: Tool[..., Any] | str
    ) -> Tool[..., Any] | McpServer | None:
        """What a name in a skill refers to, as its agent has it."""
        if isinstance(item, Tool):
            return item
        side = self._definitions.find_side(skill.agent_name, "side_a")
        if side is None:
            return self._definitions.tools.get(item)
        servers = {each.name: each for each in side.servers}
        return side.tools.get(item) or servers.get(item)

    def _name_tool(self, tool: Tool[..., Any] | McpServer) -> None:
        if self.tools.setdefault(tool.name, tool) is not tool:
            self._say(f"tools.{tool.name}", "two tools have this name; rename one")

    def _side(self, side: ActiveSide) -> dict[str, Any]:
        for tool in side.tools.values():
            self._name_tool(tool)
        for server in side.servers:
            self._name_tool(server)
        prompt = side.prompt
        self._name_hooks(prompt.hooks or ())
        shown = self._prompt(prompt)
        if self._prompts.setdefault(prompt.name, shown) != shown:
            self._say(f"prompts.{prompt.name}", "two prompts have this name; rename one")
        bindings = {
            which: written(BindingPart, binding)
            for which in BINDINGS
            if isinstance(binding := getattr(side.config, which), SessionToolBinding)
        }
        return written(SidePart, side.config, prompt=prompt.name, **bindings)

    def _prompt(self, prompt: PromptDefinition) -> dict[str, Any]:
        path = f"prompts.{prompt.name}"
        return written(
            PromptPart,
            prompt,
            tools=tuple(map(_tool, prompt.tools)),
            skills=tuple(map(_name_of, prompt.skills)),
            **written_model(prompt, self._say, self._json),
            variables=tuple(written(VariablePart, each) for each in prompt.variables),
            env=dict(prompt.env),
            required_schema=self._schema(f"{path}.required_schema", prompt.required_schema),
            output=self._schema(f"{path}.output", prompt.output),
            provider_options=self._json(f"{path}.provider_options", prompt.provider_options),
            compaction=written(CompactionPart, prompt.compaction)
            if isinstance(prompt.compaction, Compaction)
            else prompt.compaction,
        )

    def _schema(self, path: str, schema: Mapping[str, Any] | type | None) -> Any:
        if schema is None or not isinstance(schema, type):
            return self._json(path, schema)
        found, problems = schema_of_type(schema)
        for each in problems:
            self._say(path, f"{schema.__name__}: {each}; give a JSON schema instead")
        return found

    def _json(self, path: str, value: Any) -> Any:
        try:
            return plain_json(value, path)
        except (TypeError, ValueError) as problem:
            self.problems.append(str(problem))
            return None

    def _name_hooks(self, ids: Iterable[str]) -> None:
        self.hooks |= {each: self._definitions.hooks[each] for each in ids}

    def _say(self, path: str, problem: str) -> None:
        text = f"{path}: {problem}"
        if text not in self.problems:
            self.problems.append(text)


def _name_of(item: Tool[..., Any] | Skill | str) -> str:
    return item if isinstance(item, str) else item.name


def _tool(item: Tool[..., Any] | McpServer | SubagentToolConfig | str) -> str | dict[str, Any]:
    if isinstance(item, str):
        return item
    if isinstance(item, Tool | McpServer):
        return item.name
    parts: dict[str, Any] = {}
    if isinstance(item.immediate, Immediate):
        parts["immediate"] = written(ImmediatePart, item.immediate)
    if isinstance(item.resumable, Resumable):
        parts["resumable"] = written(ResumablePart, item.resumable)
    return written(SubagentPart, item, **parts)


# ── reading ──────────────────────────────────────────────────────────────────────────────────


class _Unpacker:
    """Makes the definitions of the parts; their problems go to the reader."""

    def __init__(self, reader: PackageReader) -> None:
        self.agents: list[AgentDefinition] = []
        self.prompts: list[PromptDefinition] = []
        self.skills: list[Skill] = []
        self._reader = reader
        metadata = reader.part("package", MetadataPart)
        self.metadata: dict[str, str] = msgspec.structs.asdict(metadata or MetadataPart())
        self.agent: str = reader.part("agent", str) or ""
        if self.agent:
            reader.refer("agent", "agents", self.agent)
        for path, prompt in reader.parts("prompts", PromptPart):
            self._add_prompt(path, prompt)
        for path, skill in reader.parts("skills", SkillPart):
            self._add_skill(path, skill)
        for path, agent in reader.parts("agents", AgentPart):
            self._add_agent(path, agent)

    def _add_prompt(self, path: str, part: PromptPart) -> None:
        tools: list[Any] = []
        for index, item in enumerate(part.tools):
            where = f"{path}.tools[{index}]"
            if isinstance(item, str):
                known = "tools" if self._reader.knows("tools", item) else "agents"
                self._reader.refer(where, known, item, what="tool or agent")
            else:
                self._reader.refer(where, "agents", item.name)
            tools.append(item if isinstance(item, str) else self._subagent(where, item))
        self._reader.refer(f"{path}.agents", "agents", *part.agents)
        self._reader.refer(f"{path}.skills", "skills", *part.skills)
        self._reader.refer(f"{path}.hooks", "hooks", *(part.hooks or ()))
        fields = fields_of(
            part, tools=[each for each in tools if each], variables=_variables(part)
        )  # fmt: skip
        fields |= read_model(path, part, self._make)
        if isinstance(part.compaction, CompactionPart):
            compaction = fields_of(part.compaction)
            fields["compaction"] = self._make(f"{path}.compaction", Compaction, compaction) or True
        if (made := self._make(path, PromptDefinition, fields)) is not None:
            self.prompts.append(made)

    def _add_skill(self, path: str, part: SkillPart) -> None:
        listed = [each for each in part.tools or () if each != USE_AGENT]
        self._reader.refer(f"{path}.tools", "tools", *listed)
        self._reader.refer(f"{path}.agents", "agents", *(part.agents or ()))
        if part.passthrough:
            self._reader.refer(f"{path}.passthrough", "tools", part.passthrough)
        made = self._make(path, Skill, fields_of(part, variables=_variables(part)))
        if made is not None:
            self.skills.append(made)

    def _subagent(self, path: str, part: SubagentPart) -> SubagentToolConfig | None:
        fields = fields_of(part)
        if isinstance(part.immediate, ImmediatePart):
            fields["immediate"] = Immediate(**fields_of(part.immediate))
        if isinstance(part.resumable, ResumablePart):
            fields["resumable"] = Resumable(**fields_of(part.resumable))
        return self._make(path, SubagentToolConfig, fields)

    def _add_agent(self, path: str, part: AgentPart) -> None:
        fields = fields_of(part)
        for which in ("side_a", "side_b"):
            side: SidePart | None = fields[which]
            if side is not None:
                self._reader.refer(f"{path}.{which}.prompt", "prompts", side.prompt)
                fields[which] = SideConfig(**fields_of(side, **_bindings(side)))
        self._reader.refer(f"{path}.hooks", "hooks", *part.hooks)
        fields["run_limits"] = read_limits(f"{path}.run_limits", part.run_limits, self._make)
        if part.name == self.agent:
            for name, value in self.metadata.items():
                if fields[name]:
                    self._reader.say(f"{path}.{name}", "stands in `package` for the packed agent")
                fields[name] = value
        if (made := self._make(path, AgentDefinition, fields)) is not None:
            self.agents.append(made)

    def _make(self, path: str, kind: type[T], fields: dict[str, Any]) -> T | None:
        try:
            return kind(**fields)
        except DefinitionError as problem:
            for each in problem.problems[:MAX_PARTS]:
                self._reader.say(path, each, ".")
            return None


def _variables(part: PromptPart | SkillPart) -> list[VariableDefinition]:
    return [VariableDefinition(**fields_of(each)) for each in part.variables]


def _bindings(side: SidePart) -> dict[str, SessionToolBinding]:
    return {
        which: SessionToolBinding(**fields_of(binding))
        for which in BINDINGS
        if isinstance(binding := getattr(side, which), BindingPart)
    }
