"""The file of a package: its parts, how they are written, and how they are read one by one.

    {"hubbub_package": 1, "agent": …, "package": {…}, "agents": […], "prompts": […],
     "skills": […], "tools": [names], "hooks": [names]}

``skills`` may be absent.  A part has the fields of the definition that it describes, except for
names in place of code; fields with the format's defaults are not written.  Fields, their defaults
and the format's number are permanent.  ``PackageReader`` takes anything, and reports everything
that is wrong with it; ``pack`` knows what the parts mean.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from hubbub.hub.masking.safe_repr import SafeRepr
from hubbub.hub.near_misses import kind_of

__all__ = [
    "FORMAT",
    "MAX_PACKAGE_CHARS",
    "MAX_PARTS",
    "AgentPart",
    "BindingPart",
    "ChoicePart",
    "CompactionPart",
    "ImmediatePart",
    "LimitsPart",
    "MetadataPart",
    "PackageReader",
    "Part",
    "PromptPart",
    "ResumablePart",
    "SettingsPart",
    "SidePart",
    "SkillPart",
    "SubagentPart",
    "VariablePart",
    "fields_of",
    "in_place",
    "written",
]

FORMAT: Final = 1
"""The number of the format that ``pack`` writes."""

MAX_PACKAGE_CHARS: Final = 8 << 20
"""Longer packages are refused unread."""

MAX_PARTS: Final = 256
"""More agents, prompts, skills, tools or hooks in one list are refused."""

_MAX_PROBLEM_CHARS: Final = 500
_FIELDS: Final = ("hubbub_package", "agent", "package", "agents", "prompts", "tools", "hooks")
_LATER: Final = ("skills",)
"""Fields that a file may be without: the format did not have them from the beginning."""
_FEW: Final = Meta(max_length=MAX_PARTS)
_Names: TypeAlias = Annotated[tuple[str, ...], _FEW]
T = TypeVar("T")


# ── the parts ────────────────────────────────────────────────────────────────────────────────


class Part(SafeRepr, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the file has the fields of what it describes, except for names in place of code."""


class ResumablePart(Part, frozen=True, kw_only=True):
    receives_messages: str
    max_instances: int | None = None
    parent_communication: str = "implicit"


class ImmediatePart(Part, frozen=True, kw_only=True):
    name_env: str | None = None
    description_env: str | None = None
    scoped_env: _Names = ()


class SubagentPart(Part, frozen=True, kw_only=True):
    name: str
    blocking: bool = True
    init_user_message_property: str | None = None
    init_attachments_property: str | None = None
    init_agent_name_property: str | None = None
    immediate: bool | ImmediatePart = False
    optional: str | None = None
    resumable: bool | ResumablePart | None = False


class VariablePart(Part, frozen=True, kw_only=True):
    name: str
    type: str = "secret"
    required: bool = False
    scoped: bool = False
    description: str = ""


class SettingsPart(Part, frozen=True, kw_only=True):
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: Annotated[tuple[str, ...], _FEW] = ()
    seed: int | None = None
    thinking: str | int | None = None
    timeout: float | None = None
    service_tier: str | None = None


class ChoicePart(Part, frozen=True, kw_only=True):
    model: str
    settings: SettingsPart | None = None
    provider_options: dict[str, Any] | None = None


class CompactionPart(Part, frozen=True, kw_only=True):
    at: float = 0.8
    keep: float = 0.25
    window: int | None = None
    instructions: str = ""


class LimitsPart(Part, frozen=True, kw_only=True):
    input_tokens: int | None = None
    output_tokens: int | None = None
    model_calls: int | None = None
    seconds: float | None = None
    cost: float | None = None


class PromptPart(Part, frozen=True, kw_only=True):
    name: str
    prompt: str
    model: str | Annotated[tuple[str | ChoicePart, ...], _FEW]
    tools: Annotated[tuple[str | SubagentPart, ...], _FEW] = ()
    agents: _Names = ()
    skills: _Names = ()
    variables: Annotated[tuple[VariablePart, ...], _FEW] = ()
    env: dict[str, str] = {}
    hooks: _Names | None = None
    required_schema: dict[str, Any] | None = None
    parallel_tool_calls: bool = False
    tool_choice: str = "auto"
    provider_options: dict[str, Any] = {}
    cache: bool | str = True
    settings: SettingsPart | None = None
    compaction: bool | CompactionPart = True
    output: dict[str, Any] | None = None
    limits: LimitsPart | None = None


class SkillPart(Part, frozen=True, kw_only=True):
    name: str
    description: str
    instructions: str = ""
    tools: _Names | None = None
    agents: _Names | None = None
    model: str = ""
    max_iterations: int = 25
    variables: Annotated[tuple[VariablePart, ...], _FEW] = ()
    env: dict[str, str] = {}
    passthrough: str = ""


class BindingPart(Part, frozen=True, kw_only=True):
    name: str
    message_property: str | None = None
    attachments_property: str | None = None


class SidePart(Part, frozen=True, kw_only=True):
    prompt: str
    label: str = ""
    stop_on_response: bool = True
    stop_tool: str | None = None
    stop_tool_response_property: str | None = None
    max_steps: int | None = None
    session_stop: str | BindingPart | None = None
    session_fail: str | BindingPart | None = None
    session_status: str | BindingPart | None = None


class MetadataPart(Part, frozen=True, kw_only=True):
    package_name: str = ""
    version: str = ""
    author: str = ""
    license: str = ""


class AgentPart(Part, frozen=True, kw_only=True):
    name: str
    side_a: SidePart
    side_b: SidePart | None = None
    type: str = "ai_human"
    max_session_turns: int | None = None
    title: str = ""
    description: str = ""
    icon: str = ""
    expose_as_tool: bool = False
    supports_checkpointing: bool = False
    tool_description: str = ""
    env: dict[str, str] = {}
    hooks: _Names = ()
    run_limits: LimitsPart | None = None
    package_name: str = ""
    version: str = ""
    author: str = ""
    license: str = ""


# ── writing ──────────────────────────────────────────────────────────────────────────────────


def written(kind: type[Part], holder: object, **instead: Any) -> dict[str, Any]:
    """The fields of a part, except for those with the format's defaults."""
    found = {}
    for field in msgspec.structs.fields(kind):
        value = instead[field.name] if field.name in instead else getattr(holder, field.name)
        made = field.default_factory
        default = field.default if made is msgspec.NODEFAULT else made()
        if type(value) is not type(default) or value != default:
            found[field.name] = value
    return found


def fields_of(part: Part, **instead: Any) -> dict[str, Any]:
    """The fields of a part, for the definition that it describes."""
    return {**msgspec.structs.asdict(part), **instead}


def in_place(schema: Any, shared: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    """A schema with what it refers to written in place."""
    if isinstance(schema, list):
        return [in_place(each, shared, inside) for each in schema]
    if not isinstance(schema, dict):
        return schema
    shown = {k: in_place(each, shared, inside) for k, each in schema.items() if k != "$defs"}
    name = shown.get("$ref")
    if not isinstance(name, str):
        return shown
    del shown["$ref"]
    name = name.rpartition("/")[2]
    if name in inside:
        raise ValueError(f"{name} contains itself")
    return {**in_place(shared[name], shared, (*inside, name)), **shown}


# ── reading ──────────────────────────────────────────────────────────────────────────────────


class PackageReader:
    """Reads the parts, and checks that what they name is there; ``problems`` has what is wrong.

    A file that cannot be read at all has no parts.
    """

    def __init__(self, data: bytes | str) -> None:
        self.problems: list[str] = []
        self._file = self._open(data)
        self._known: dict[str, Mapping[str, None]] = {}
        if not self._file:
            return
        for path in ("tools", "hooks"):
            self._known[path] = dict.fromkeys(self.part(path, _Names) or ())
        for path in ("agents", "prompts", "skills"):
            self._known[path] = self._names(path)

    def part(self, path: str, kind: Any) -> Any:
        """A field of the file as what it should be, or ``None``."""
        return self._convert(path, self._file[path], kind) if self._file else None

    def parts(self, path: str, kind: type[T]) -> Iterator[tuple[str, T]]:
        """The parts in a list of the file, each with its path; one is read when it is asked for."""
        for index, item in enumerate(self.part(path, Annotated[list[Any], _FEW]) or ()):
            part = self._convert(f"{path}[{index}]", item, kind)
            if part is not None:
                yield f"{path}[{index}]", part

    def look_up(
        self, path: str, kinds: tuple[type[Any], ...], given: Iterable[Any]
    ) -> tuple[Any, ...]:
        """Those of ``given`` that the package names, in its order."""
        found: dict[str, Any] = {}
        for each in given if isinstance(given, Iterable) else ():
            if not isinstance(each, kinds):
                self.say(path, f"expected {kinds[0].__name__}, not {kind_of(each)}")
            elif found.setdefault(each.name, each) is not each:
                self.say(path, f"two that were given are named {each.name!r}")
        names = self._known.get(path, {})
        for name in names:
            if name not in found:
                self.say(path, f"{name!r} is missing; hand it over in {path}=…")
        return tuple(found[name] for name in names if name in found)

    def knows(self, known: str, name: str) -> bool:
        """Whether the package has one of that name among its ``known``, say its ``"tools"``."""
        return name in self._known[known]

    def refer(self, path: str, known: str, *names: str, what: str = "") -> None:
        """Tell which of the names at ``path`` the package does not have."""
        for name in names:
            if not self.knows(known, name):
                self.say(path, f"the package has no {what or known[:-1]} named {name!r}")

    def say(self, path: str, problem: str, join: str = ": ") -> None:
        """Add a problem, cut off where it is too long to be read."""
        text = f"{path}{join}{problem}"
        if len(text) > _MAX_PROBLEM_CHARS:
            text = f"{text[:_MAX_PROBLEM_CHARS]}…"
        self.problems.append(text)

    def _open(self, data: bytes | str) -> dict[str, Any]:
        """The fields of the file; nothing if it is not one to be read."""
        if not isinstance(data, bytes | str):
            self.problems.append(f"expected bytes or a text, not {kind_of(data)}")
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
            self.say("hubbub_package", f"{newer}; update hubbub")
        else:
            unknown = [name for name in file if name not in (*_FIELDS, *_LATER)]
            if unknown:
                self.say(unknown[0], "unknown field")
            for name in _FIELDS:
                if name not in file:
                    self.say(name, "required")
        return {} if self.problems else {**{name: [] for name in _LATER}, **file}

    def _names(self, path: str) -> Mapping[str, None]:
        """The names of the agents, prompts or skills, also of those that are malformed."""
        items = self._file[path]
        if not isinstance(items, list):
            return {}
        found: dict[str, None] = {}
        for index, item in enumerate(items[:MAX_PARTS]):
            name = item.get("name") if isinstance(item, dict) else None
            if isinstance(name, str):
                if name in found:
                    self.say(f"{path}[{index}].name", f"{name!r} is taken")
                found[name] = None
        return found

    def _convert(self, path: str, value: Any, kind: Any) -> Any:
        """``value`` as what it should be, or ``None``."""
        try:
            return msgspec.convert(value, kind)
        except (msgspec.ValidationError, RecursionError) as problem:
            text, _, where = str(problem).partition(" - at `$")
            self.say(f"{path}{where.rstrip('`')}", text)
            return None
