"""An agent and all it can reach as one JSON file, for distribution (SA 1.2, D-08).

    Definitions ── pack(definitions, "lead") ──► JSON ── unpack(JSON, tools=…, hooks=…) ──► Package

Rules
-----
* Packed are the agent, the agents that its prompts name, theirs in turn, and their prompts: data
  only.  Tools and hooks are code; of them the file has the names.
* Loading runs no code and imports nothing: names are looked up among the tools and hooks that the
  caller hands over, and those that are not there are listed.
* Whatever the file contains, ``unpack`` raises ``DefinitionError`` and nothing else, with every
  part that is malformed.  Unknown fields are refused.
* The same definitions make the same bytes, and a package that is loaded and packed again is the
  same file.  What cannot be loaded again is not packed.
* ``package`` is the packed agent's metadata; nothing but a reader of packages looks at it.
* Fields, their defaults and the format's number are for ever; a reader refuses newer numbers.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from hubbub.agents.definitions import (
    BINDINGS,
    AgentDefinition,
    Immediate,
    PromptDefinition,
    Resumable,
    SessionToolBinding,
    SideConfig,
    SubagentToolConfig,
)
from hubbub.agents.hooks import Hook
from hubbub.agents.resolution import ActiveSide, Definitions
from hubbub.agents.schema import _plain as plain_json
from hubbub.agents.schema import read_schema
from hubbub.agents.tools import Tool
from hubbub.agents.variables import VariableDefinition
from hubbub.hub.errors import DefinitionError

__all__ = ["FORMAT", "MAX_PACKAGE_CHARS", "MAX_PARTS", "Package", "pack", "unpack"]

FORMAT: Final = 1
"""The number of the format that ``pack`` writes."""

MAX_PACKAGE_CHARS: Final = 8 << 20
"""Longer packages are refused unread."""

MAX_PARTS: Final = 256
"""More agents, prompts, tools or hooks in one list are refused."""

_MAX_PROBLEM_CHARS: Final = 500
T = TypeVar("T")
P = TypeVar("P", bound="_Part")


class Package(Struct, frozen=True, eq=False, kw_only=True):
    """A loaded package, ready for ``Runtime(agents=p.agents, prompts=p.prompts, …)``.

    ``agent`` is the name of the one that was packed; ``tools`` and ``hooks`` are those of the
    caller's that it needs.
    """

    agent: str
    agents: tuple[AgentDefinition, ...]
    prompts: tuple[PromptDefinition, ...]
    tools: tuple[Tool[..., Any], ...]
    hooks: tuple[Hook, ...]
    package_name: str = ""
    version: str = ""
    author: str = ""
    license: str = ""


def pack(definitions: Definitions, agent: str) -> bytes:
    """Write an agent with its prompts and everything reachable into one JSON text.

    A prompt given inline is packed under its own name, a ``Tool`` under its, and a
    ``required_schema`` that is a type as the JSON schema of that type.

    Raises ``DefinitionError`` with everything that cannot be packed: a code agent, a model that
    is not given by name, two prompts or tools of one name; ``UnknownAgent`` (D-08).
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
    data: bytes | str, *, tools: Iterable[Tool[..., Any]], hooks: Iterable[Hook] = ()
) -> Package:
    """Read a package; its names stand for those of ``tools`` and ``hooks``, which may be more.

    Raises ``DefinitionError`` with every malformed part and every missing tool and hook, or, if
    there are none, with everything that does not fit together (D-08).
    """
    reader = _Reader(data)
    found_tools: tuple[Tool[..., Any], ...] = reader.look_up("tools", Tool, tools)
    found_hooks: tuple[Hook, ...] = reader.look_up("hooks", Hook, hooks)
    if reader.problems:
        raise DefinitionError("package", reader.problems)
    package = Package(
        agent=reader.agent,
        agents=tuple(reader.agents),
        prompts=tuple(reader.prompts),
        tools=found_tools,
        hooks=found_hooks,
        **reader.metadata,
    )
    try:
        Definitions(package.agents, package.prompts, package.tools, package.hooks)
    except DefinitionError as problem:
        raise DefinitionError("package", problem.problems) from None
    return package


# ── the file ─────────────────────────────────────────────────────────────────────────────────


_FEW: Final = Meta(max_length=MAX_PARTS)
_Names: TypeAlias = Annotated[tuple[str, ...], _FEW]


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the file has the fields of what it stands for, but for names in place of code."""


class _Resumable(_Part, frozen=True, kw_only=True):
    receives_messages: str
    max_instances: int | None = None
    parent_communication: str = "implicit"


class _Immediate(_Part, frozen=True, kw_only=True):
    name_env: str | None = None
    description_env: str | None = None
    scoped_env: _Names = ()


class _Subagent(_Part, frozen=True, kw_only=True):
    name: str
    blocking: bool = True
    init_user_message_property: str | None = None
    init_attachments_property: str | None = None
    init_agent_name_property: str | None = None
    immediate: bool | _Immediate = False
    optional: str | None = None
    resumable: bool | _Resumable | None = False


class _Variable(_Part, frozen=True, kw_only=True):
    name: str
    type: str = "secret"
    required: bool = False
    scoped: bool = False
    description: str = ""


class _Prompt(_Part, frozen=True, kw_only=True):
    name: str
    prompt: str
    model: str
    tools: Annotated[tuple[str | _Subagent, ...], _FEW] = ()
    agents: _Names = ()
    skills: _Names = ()
    variables: Annotated[tuple[_Variable, ...], _FEW] = ()
    env: dict[str, str] = {}
    hooks: _Names | None = None
    required_schema: dict[str, Any] | None = None
    parallel_tool_calls: bool = False
    tool_choice: str = "auto"
    provider_options: dict[str, Any] = {}


class _Binding(_Part, frozen=True, kw_only=True):
    name: str
    message_property: str | None = None
    attachments_property: str | None = None


class _Side(_Part, frozen=True, kw_only=True):
    prompt: str
    label: str = ""
    stop_on_response: bool = True
    stop_tool: str | None = None
    stop_tool_response_property: str | None = None
    max_steps: int | None = None
    session_stop: str | _Binding | None = None
    session_fail: str | _Binding | None = None
    session_status: str | _Binding | None = None


class _Metadata(_Part, frozen=True, kw_only=True):
    package_name: str = ""
    version: str = ""
    author: str = ""
    license: str = ""


class _Agent(_Part, frozen=True, kw_only=True):
    name: str
    side_a: _Side
    side_b: _Side | None = None
    type: str = "ai_human"
    max_session_turns: int | None = None
    title: str = ""
    description: str = ""
    icon: str = ""
    expose_as_tool: bool = False
    tool_description: str = ""
    env: dict[str, str] = {}
    hooks: _Names = ()
    package_name: str = ""
    version: str = ""
    author: str = ""
    license: str = ""


_FIELDS: Final = ("hubbub_package", "agent", "package", "agents", "prompts", "tools", "hooks")


# ── writing ──────────────────────────────────────────────────────────────────────────────────


class _Packer:
    """Collects what is reachable; what cannot be packed is in ``problems``."""

    def __init__(self, definitions: Definitions, agent: str) -> None:
        self.problems: list[str] = []
        self.tools: dict[str, Tool[..., Any]] = {}
        self.hooks: dict[str, Hook] = {}
        self._definitions = definitions
        self._root = definitions.agent(agent)
        self._agents: dict[str, dict[str, Any]] = {}
        self._prompts: dict[str, dict[str, Any]] = {}
        left = [agent]
        while left:
            name = left.pop(0)
            if name not in self._agents:
                left += self._add(definitions.agent(name))

    def file(self) -> dict[str, Any]:
        return {
            "hubbub_package": FORMAT,
            "agent": self._root.name,
            "package": _written(_Metadata, self._root),
            "agents": list(self._agents.values()),
            "prompts": list(self._prompts.values()),
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
            parts |= dict.fromkeys(_Metadata.__struct_fields__, "")
        self._agents[agent.name] = _written(_Agent, agent, **parts) if sides else {}
        return [
            name for side in sides for name in (*side.handoffs, *side.children, *side.prompt.agents)
        ]

    def _side(self, side: ActiveSide) -> dict[str, Any]:
        for tool in side.tools.values():
            if self.tools.setdefault(tool.name, tool) is not tool:
                self._say(f"tools.{tool.name}", "two tools have this name; rename one")
        prompt = side.prompt
        self._name_hooks(prompt.hooks or ())
        written = self._prompt(prompt)
        if self._prompts.setdefault(prompt.name, written) != written:
            self._say(f"prompts.{prompt.name}", "two prompts have this name; rename one")
        bindings = {
            which: _written(_Binding, binding)
            for which in BINDINGS
            if isinstance(binding := getattr(side.config, which), SessionToolBinding)
        }
        return _written(_Side, side.config, prompt=prompt.name, **bindings)

    def _prompt(self, prompt: PromptDefinition) -> dict[str, Any]:
        path = f"prompts.{prompt.name}"
        if not isinstance(prompt.model, str):
            self._say(
                f"{path}.model",
                "a Model object cannot be packed; give the model by name, "
                '"provider:name" or one of Runtime(models=…)',
            )
        return _written(
            _Prompt,
            prompt,
            tools=tuple(map(_tool, prompt.tools)),
            model=prompt.model if isinstance(prompt.model, str) else "",
            variables=tuple(_written(_Variable, each) for each in prompt.variables),
            env=dict(prompt.env),
            required_schema=self._schema(f"{path}.required_schema", prompt.required_schema),
            provider_options=self._json(f"{path}.provider_options", prompt.provider_options),
        )

    def _schema(self, path: str, schema: Mapping[str, Any] | type | None) -> Any:
        if schema is None or not isinstance(schema, type):
            return self._json(path, schema)
        shown = read_schema(schema)[1]
        try:
            found = _in_place(shown, shown.get("$defs", {}), ())
            wrong = read_schema(found)[2]
        except ValueError as problem:
            found, wrong = None, (str(problem),)
        for each in wrong:
            self._say(path, f"{schema.__name__}: {each}; give a JSON schema instead")
        return found

    def _json(self, path: str, value: Any) -> Any:
        try:
            return plain_json(value, path, 0)
        except (TypeError, ValueError) as problem:
            self.problems.append(str(problem))
            return None

    def _name_hooks(self, ids: Iterable[str]) -> None:
        self.hooks |= {each: self._definitions.hooks[each] for each in ids}

    def _say(self, path: str, problem: str) -> None:
        text = f"{path}: {problem}"
        if text not in self.problems:
            self.problems.append(text)


def _written(kind: type[_Part], holder: object, **instead: Any) -> dict[str, Any]:
    """The fields of a part, but for those with the format's defaults."""
    found = {}
    for field in msgspec.structs.fields(kind):
        value = instead[field.name] if field.name in instead else getattr(holder, field.name)
        made = field.default_factory
        default = field.default if made is msgspec.NODEFAULT else made()
        if type(value) is not type(default) or value != default:
            found[field.name] = value
    return found


def _tool(item: Tool[..., Any] | SubagentToolConfig | str) -> str | dict[str, Any]:
    if isinstance(item, str):
        return item
    if isinstance(item, Tool):
        return item.name
    parts: dict[str, Any] = {}
    if isinstance(item.immediate, Immediate):
        parts["immediate"] = _written(_Immediate, item.immediate)
    if isinstance(item.resumable, Resumable):
        parts["resumable"] = _written(_Resumable, item.resumable)
    return _written(_Subagent, item, **parts)


def _in_place(schema: Any, shared: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    """A schema with what it refers to written in place."""
    if isinstance(schema, list):
        return [_in_place(each, shared, inside) for each in schema]
    if not isinstance(schema, dict):
        return schema
    shown = {k: _in_place(each, shared, inside) for k, each in schema.items() if k != "$defs"}
    name = shown.get("$ref")
    if not isinstance(name, str):
        return shown
    del shown["$ref"]
    name = name.rpartition("/")[2]
    if name in inside:
        raise ValueError(f"{name} contains itself")
    return {**_in_place(shared[name], shared, (*inside, name)), **shown}


# ── reading ──────────────────────────────────────────────────────────────────────────────────


class _Reader:
    """Reads the parts, and checks that what they name is there; ``problems`` has what is wrong."""

    def __init__(self, data: bytes | str) -> None:
        self.problems: list[str] = []
        self.agent = ""
        self.metadata: dict[str, str] = {}
        self.agents: list[AgentDefinition] = []
        self.prompts: list[PromptDefinition] = []
        self._file = self._open(data)
        self._known: dict[str, Mapping[str, None]] = {}
        if not self._file:
            return
        for path in ("tools", "hooks"):
            names = self._part(path, self._file[path], _Names)
            self._known[path] = dict.fromkeys(names or ())
        for path in ("agents", "prompts"):
            self._known[path] = self._names(path)
        metadata = self._part("package", self._file["package"], _Metadata)
        self.metadata = msgspec.structs.asdict(metadata or _Metadata())
        self.agent = self._part("agent", self._file["agent"], str) or ""
        if self.agent:
            self._refer("agent", "agents", self.agent)
        self._read("prompts", _Prompt, self._read_prompt)
        self._read("agents", _Agent, self._read_agent)

    def look_up(self, path: str, kind: type[Any], given: Iterable[Any]) -> tuple[Any, ...]:
        """Those of ``given`` that the package names, in its order."""
        found: dict[str, Any] = {}
        for each in given if isinstance(given, Iterable) else ():
            if not isinstance(each, kind):
                self._say(path, f"{kind.__name__} wanted, not {type(each).__name__}")
            elif found.setdefault(each.name, each) is not each:
                self._say(path, f"two that were given are named {each.name!r}")
        names = self._known.get(path, {})
        for name in names:
            if name not in found:
                self._say(path, f"{name!r} is missing; hand it over in {path}=…")
        return tuple(found[name] for name in names if name in found)

    def _open(self, data: bytes | str) -> dict[str, Any]:
        """The fields of the file; nothing if it is not one to be read."""
        if not isinstance(data, bytes | str):
            self.problems.append(f"bytes or a text are wanted, not {type(data).__name__}")
            return {}
        if len(data) > MAX_PACKAGE_CHARS:
            most = f"at most {MAX_PACKAGE_CHARS:,} are read"
            self.problems.append(f"{len(data):,} characters are too many; {most}")
            return {}
        try:
            file = msgspec.json.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
            self.problems.append(f"this is no JSON: {problem}")
            return {}
        number = file.get("hubbub_package") if isinstance(file, dict) else None
        if type(number) is not int or number < 1:
            self.problems.append("hubbub_package: there is no format's number; this is no package")
        elif number > FORMAT:
            newer = f"format {number} is newer than {FORMAT}, which this hubbub reads"
            self._say("hubbub_package", f"{newer}; update hubbub")
        else:
            unknown = [name for name in file if name not in _FIELDS]
            if unknown:
                self._say(unknown[0], "unknown field")
            for name in _FIELDS:
                if name not in file:
                    self._say(name, "required")
        return {} if self.problems else file

    def _names(self, path: str) -> Mapping[str, None]:
        """The names of the agents or prompts, also of those that are malformed."""
        items = self._file[path]
        if not isinstance(items, list):
            return {}
        found: dict[str, None] = {}
        for index, item in enumerate(items[:MAX_PARTS]):
            name = item.get("name") if isinstance(item, dict) else None
            if isinstance(name, str):
                if name in found:
                    self._say(f"{path}[{index}].name", f"{name!r} is taken")
                found[name] = None
        return found

    def _read(self, path: str, kind: type[P], read: Callable[[str, P], None]) -> None:
        items = self._part(path, self._file[path], Annotated[list[Any], _FEW])
        for index, item in enumerate(items or ()):
            part = self._part(f"{path}[{index}]", item, kind)
            if part is not None:
                read(f"{path}[{index}]", part)

    def _read_prompt(self, path: str, part: _Prompt) -> None:
        tools: list[Any] = []
        for index, item in enumerate(part.tools):
            where = f"{path}.tools[{index}]"
            if isinstance(item, str):
                known = "tools" if item in self._known["tools"] else "agents"
                self._refer(where, known, item, what="tool or agent")
            else:
                self._refer(where, "agents", item.name)
            tools.append(item if isinstance(item, str) else self._subagent(where, item))
        self._refer(f"{path}.agents", "agents", *part.agents)
        self._refer(f"{path}.hooks", "hooks", *(part.hooks or ()))
        variables = [VariableDefinition(**_fields(each)) for each in part.variables]
        fields = _fields(part, tools=[each for each in tools if each], variables=variables)
        if (made := self._make(path, PromptDefinition, fields)) is not None:
            self.prompts.append(made)

    def _subagent(self, path: str, part: _Subagent) -> SubagentToolConfig | None:
        fields = _fields(part)
        if isinstance(part.immediate, _Immediate):
            fields["immediate"] = Immediate(**_fields(part.immediate))
        if isinstance(part.resumable, _Resumable):
            fields["resumable"] = Resumable(**_fields(part.resumable))
        return self._make(path, SubagentToolConfig, fields)

    def _read_agent(self, path: str, part: _Agent) -> None:
        fields = _fields(part)
        for which in ("side_a", "side_b"):
            side: _Side | None = fields[which]
            if side is not None:
                self._refer(f"{path}.{which}.prompt", "prompts", side.prompt)
                fields[which] = SideConfig(**_fields(side, **_bindings(side)))
        self._refer(f"{path}.hooks", "hooks", *part.hooks)
        if part.name == self.agent:
            for name, value in self.metadata.items():
                if fields[name]:
                    self._say(f"{path}.{name}", "stands in `package` for the packed agent")
                fields[name] = value
        if (made := self._make(path, AgentDefinition, fields)) is not None:
            self.agents.append(made)

    def _make(self, path: str, kind: type[T], fields: dict[str, Any]) -> T | None:
        try:
            return kind(**fields)
        except DefinitionError as problem:
            for each in problem.problems[:MAX_PARTS]:
                self._say(path, each, ".")
            return None

    def _part(self, path: str, value: Any, kind: Any) -> Any:
        """``value`` as what it should be, or ``None``."""
        try:
            return msgspec.convert(value, kind)
        except (msgspec.ValidationError, RecursionError) as problem:
            text, _, where = str(problem).partition(" - at `$")
            self._say(f"{path}{where.rstrip('`')}", text)
            return None

    def _refer(self, path: str, known: str, *names: str, what: str = "") -> None:
        for name in names:
            if name not in self._known[known]:
                self._say(path, f"the package has no {what or known[:-1]} named {name!r}")

    def _say(self, path: str, problem: str, join: str = ": ") -> None:
        text = f"{path}{join}{problem}"
        if len(text) > _MAX_PROBLEM_CHARS:
            text = f"{text[:_MAX_PROBLEM_CHARS]}…"
        self.problems.append(text)


def _fields(part: _Part, **instead: Any) -> dict[str, Any]:
    return {**msgspec.structs.asdict(part), **instead}


def _bindings(side: _Side) -> dict[str, SessionToolBinding]:
    return {
        which: SessionToolBinding(**_fields(binding))
        for which in BINDINGS
        if isinstance(binding := getattr(side, which), _Binding)
    }
