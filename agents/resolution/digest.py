"""``definition_digests``: tells apart what several programs mean by an agent of one name.

    AgentDefinition, its sides ──► what they say, as plain values ──► SHA-256

Rules
-----
* The same definition has the same digest in every process, on every machine and version of Python.
* Only what is said counts: a field that has its default is left out.  So a later version's new
  fields change no digest of what does not use them.
* What only people read does not count, nor what differs between machines: folders, and where a
  program lies.  Values of variables and headers, and what addresses say of who asks, do not either:
  of those nothing is to be known, not even a digest.
* Nothing is executed.  Of a code agent its function's name counts, and which names and texts it
  uses; of other functions nothing does, since their models see no more of them than schemas say.
* Agents below this one count by name: each has a digest of its own.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath
from types import CodeType
from typing import Any, Final

import msgspec
from msgspec import Struct

from hubbub.agents.definitions.agent import AgentDefinition
from hubbub.agents.definitions.prompt import PromptDefinition
from hubbub.agents.definitions.schema import read_schema
from hubbub.agents.definitions.signature import plain_function
from hubbub.agents.definitions.skills import Skill
from hubbub.agents.definitions.tools import Tool
from hubbub.agents.mcp_server import McpServer
from hubbub.agents.model import is_model
from hubbub.agents.model_choice import ModelChoice, named
from hubbub.agents.resolution.definitions import Definitions
from hubbub.agents.resolution.sides import ActiveSide
from hubbub.hub.masking.safe_repr import without_credentials

__all__ = ["definition_digest", "definition_digests"]

_FOR_PEOPLE: Final = (
    "title", "icon", "description", "tool_description", "package_name", "version", "author",
    "license",
)  # fmt: skip
_SECRET: Final = frozenset(("env", "headers"))
"""Fields of which only the names count."""


def definition_digests(definitions: Definitions) -> Mapping[str, str]:
    """The digest of each agent's definition, by name."""
    return {name: definition_digest(definitions, name) for name in definitions.names}


def definition_digest(definitions: Definitions, name: str) -> str:
    """The digest of an agent's definition.  Raises ``UnknownAgent``."""
    agent = definitions.agent(name)
    said = {
        **_fields(agent, but=(*_FOR_PEOPLE, "execute", "side_a", "side_b", "hooks")),
        "tool_text": " ".join(agent.tool_text.split()),
        "code": _code_of(agent),
        "sides": [_side(side) for side in definitions.sides_of(name)],
    }
    return hashlib.sha256(_text(said).encode()).hexdigest()[:32]


def _text(said: object) -> str:
    return json.dumps(said, sort_keys=True, separators=(",", ":"))


# ── parts ────────────────────────────────────────────────────────────────────────────────────


def _side(side: ActiveSide) -> dict[str, Any]:
    return {
        "name": side.name,
        "config": _fields(side.config, but=("prompt",)),
        "prompt": _prompt(side.prompt),
        "output": None if side.output is None else _plain(side.output.spec.schema),
        "tools": {name: _tool(each) for name, each in side.tools.items()},
        "servers": [_server(each) for each in side.servers],
        "children": [
            _fields(each.config, but=("agent",)) for _, each in sorted(side.children.items())
        ],
        "handoffs": sorted(side.handoffs),
        "agents": sorted(side.agents),
        "skills": {name: _read_by(each) for name, each in side.skills.items()},
        "hooks": {point: [each.id for each in hooks] for point, hooks in side.hooks.items()},
    }


def _prompt(prompt: PromptDefinition) -> dict[str, Any]:
    resolved = ("tools", "agents", "skills", "hooks", "model", "required_schema", "output")
    wanted = prompt.required_schema
    return {
        **_fields(prompt, but=resolved),
        "models": [_read_by(each) for each in prompt.choices],
        "required_schema": None if wanted is None else _plain(read_schema(wanted)[1]),
    }


def _read_by(part: ModelChoice | Skill) -> dict[str, Any]:
    """A part that names a model."""
    return {**_fields(part, but=("model",)), "model": named(part.model)}


def _tool(tool: Tool[..., Any]) -> dict[str, Any]:
    if tool.is_built_in:  # It changes with hubbub, whose versions work together.
        return {}
    asks = tool.approval
    return {
        "description": tool.description,
        "schema": _plain(tool.schema),
        "timeout": _plain(tool.timeout),
        "idempotent": tool.idempotent,
        "is_external": tool.is_external,
        "variables": _plain(tool.variables),
        "approval": None if asks is None else [asks.predicate is not None, _plain(asks.timeout)],
    }


def _server(server: McpServer) -> dict[str, Any]:
    target: Any = without_credentials(server.url)
    if not target:  # Where it lies is the machine's own.
        target = [PurePath(without_credentials(word)).name for word in server.command]
    return {**_fields(server, but=("target", "cwd")), "target": target}


def _code_of(agent: AgentDefinition) -> Any:
    """What is said of a code agent's function."""
    if agent.execute is None:
        return None
    function = plain_function(agent.execute)
    code = getattr(function, "__code__", None)
    words = set() if code is None else set(_words(code))
    return [getattr(function, "__qualname__", ""), sorted(words - {function.__doc__})]


def _words(code: CodeType) -> Iterator[str]:
    """The names and texts of a function and of those within; how they are compiled differs
    between versions of Python."""
    yield from code.co_names
    left = list(code.co_consts)
    while left:
        each = left.pop()
        if isinstance(each, CodeType):
            yield from _words(each)
        elif isinstance(each, str):
            yield each
        elif isinstance(each, tuple | frozenset):
            left.extend(each)


# ── plain values ─────────────────────────────────────────────────────────────────────────────


def _fields(value: Struct, *, but: Collection[str] = ()) -> dict[str, Any]:
    """What a struct says, by field."""
    defaults = _defaults(type(value))
    said = {}
    for name in value.__struct_fields__:
        each = getattr(value, name)
        if name in but or (name in defaults and each == defaults[name]):
            continue
        is_secret = name in _SECRET and isinstance(each, Mapping)
        said[name] = sorted(each) if is_secret else _plain(each)
    return said


def _defaults(kind: type[Struct]) -> dict[str, Any]:
    """The fields that need not be given, with what they are then."""
    names, values = kind.__struct_fields__, kind.__struct_defaults__
    found = {}
    for name, value in zip(names[len(names) - len(values) :], values, strict=True):
        if value is not msgspec.NODEFAULT:
            make = getattr(value, "factory", None)
            found[name] = value if make is None else make()
    return found


def _plain(value: Any) -> Any:
    """A value of a definition as JSON has it; of what no JSON can say, what kind it is."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Tool):
        return value.name
    if is_model(value):
        return named(value)
    if isinstance(value, Struct):
        return _fields(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(map(_plain, value), key=_text)
    return type(value).__name__
