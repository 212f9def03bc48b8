"""``external_tool``: a tool without a function, whose result comes from outside.

    the model calls it ──► a prompt of kind ``external`` ──► hub.reply(prompt_id, result)

What carries it out, a browser, a person, another system, listens to ``session:prompt``.

A schema that somebody else has written is shown to the model as it is.  What the library has no
type for in it (``oneOf``, sets, schemas that hold themselves, …) is not checked: the arguments are
any JSON object then, and whoever carries out the call judges them.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hubbub.agents.definitions.arguments import (
    MAX_ARGUMENTS_CHARS,
    Arguments,
    ArgumentsReader,
    BadArguments,
    too_long,
)
from hubbub.agents.definitions.schema import path_inside, plain_json, read_schema
from hubbub.agents.definitions.tools import Tool, ToolError, name_problems
from hubbub.agents.model import ToolSpec, parse_arguments
from hubbub.hub.errors import DefinitionError
from hubbub.hub.near_misses import shown
from hubbub.hub.texts import text_problem
from hubbub.hub.values import LIMIT_OF_TIME, is_time_limit

__all__ = ["external_tool", "given_tool"]

_NOTHING: Final = {"type": "object", "properties": {}}
_VALUES: Final = frozenset(("const", "default", "enum", "examples", "required"))
"""What holds values in a schema, and no further schemas."""


def external_tool(
    name: str,
    schema: Mapping[str, Any] | type | None = None,
    *,
    description: str = "",
    timeout: float | None = None,
) -> Tool[..., str]:
    """Make a tool that is carried out elsewhere.

    ``schema`` is a JSON schema of an object, or a Struct, dataclass or TypedDict type; without one
    the tool takes nothing.  The model's arguments are validated by it: a call that does not fit
    gets an error result and is shown to nobody.

    A call opens a durable ``session:prompt`` with ``kind="external"``, the tool's name and the
    arguments, in the commit of its step.  The run then waits in no task, over restarts, until
    ``hub.reply(prompt_id, result)`` (``is_error=True`` for a failure), ``hub.deny`` or, if one is
    given, until ``timeout`` seconds have passed; a user's next message ends the wait, too.  The
    first reply counts.  An interruption and the end of the run end it.

    Raises ``DefinitionError`` with everything that is wrong.
    """
    return _made(name, schema, description, timeout)


def given_tool(
    name: str,
    schema: Mapping[str, Any] | None,
    *,
    description: str,
    timeout: float | None,
    is_read: bool = True,
) -> Tool[..., Any]:
    """An external tool whose schema somebody else has written, such as a client's.

    Its patterns are shown to the model and never tried: to match one may take without end.  A
    schema with what there is no type for, or that is not to be read, is only shown, and any object
    is taken.
    """
    if schema is not None and not is_read:
        return _shown_only(name, schema, description, timeout)
    return _made(name, schema, description, timeout, is_foreign=True)


def _without_patterns(schema: Any) -> Any:
    if isinstance(schema, list | tuple):
        return [_without_patterns(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: value if key in _VALUES else _without_patterns(value)
        for key, value in schema.items()
        # A property may be called so; its value is a schema.
        if not (key == "pattern" and isinstance(value, str))
    }


def _made(
    name: str,
    schema: Mapping[str, Any] | type | None,
    description: str,
    timeout: float | None,
    *,
    is_foreign: bool = False,
) -> Tool[..., Any]:
    problems = _problems(name, description, timeout)
    given = _NOTHING if schema is None else schema
    parameters, closed, wrong = read_schema(given, tries_patterns=not is_foreign)
    if wrong and is_foreign and isinstance(schema, Mapping):
        return _shown_only(name, schema, description, timeout)
    problems += [f"schema: {each}" for each in wrong]
    if is_foreign and not wrong and (checked := _without_patterns(given)) != given:
        parameters, _, _ = read_schema(checked)
    return _tool(name, description, timeout, closed, Arguments(name, parameters), problems)


def _shown_only(
    name: str, schema: Mapping[str, Any], description: str, timeout: float | None
) -> Tool[..., Any]:
    problems = _problems(name, description, timeout)
    as_it_is, problem = _read_foreign(schema)
    problems += [f"schema: {problem}"] if problem else []
    return _tool(name, description, timeout, as_it_is, _ObjectArguments(name), problems)


def _problems(name: str, description: str, timeout: float | None) -> list[str]:
    problems = list(name_problems(name))
    if problem := text_problem(description):
        problems.append(f"description: {problem}")
    if timeout is not None and not is_time_limit(timeout):
        problems.append(f"timeout {shown(timeout)}: use {LIMIT_OF_TIME}, or None for no limit")
    return problems


def _tool(
    name: str,
    description: str,
    timeout: float | None,
    schema: dict[str, Any],
    arguments: ArgumentsReader,
    problems: list[str],
) -> Tool[..., Any]:
    if problems:
        raise DefinitionError(f"external tool {shown(name)}", problems)

    def elsewhere(**_: Any) -> str:
        raise ToolError(f"{name} is an external tool: it is carried out elsewhere")

    return Tool(
        name=name, description=description, schema=schema, timeout=timeout, idempotent=False,
        fn=elsewhere, is_async=False, state_parameter=None,
        spec=ToolSpec(name=name, description=description, schema=schema),
        _arguments=arguments, is_external=True,
    )  # fmt: skip


# ── schemas of others ────────────────────────────────────────────────────────────────────────

_TYPES: Final = frozenset(("string", "integer", "boolean", "null", "object", "array", "number"))
_ONE: Final = frozenset((
    "additionalProperties", "contains", "else", "if", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
))  # fmt: skip
_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_BY_NAME: Final = frozenset(
    ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
)


class _ObjectArguments:
    """Reads any JSON object as the arguments of a call (``ArgumentsReader``)."""

    __slots__ = ("_tool",)

    def __init__(self, tool: str) -> None:
        self._tool = tool

    def parse(self, text: str) -> dict[str, Any]:
        """The object's members; raises ``BadArguments``."""
        if len(text) > MAX_ARGUMENTS_CHARS:
            raise too_long(self._tool, text)
        try:
            return parse_arguments(text or "{}")
        except RecursionError:
            problem = "the JSON is nested too deeply"
        except (msgspec.DecodeError, UnicodeError) as error:
            problem = f"not one complete JSON object: {error}"
        raise BadArguments(self._tool, [problem])


def _read_foreign(schema: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """A schema of an object as it is, and why it is none; empty where it is one."""
    try:
        found: dict[str, Any] = plain_json(schema, "")
        msgspec.json.encode(found)  # Raises for lone surrogates and the like.
    except Exception as error:
        return {}, str(error) or type(error).__name__
    if found.get("type", "object") != "object":
        return {}, 'the top must be {"type": "object", …}'
    found.setdefault("type", "object")
    found.setdefault("properties", {})  # Some providers take no object without.
    return found, _mistake(found, "")


def _mistake(schema: Any, path: str) -> str:
    """What makes a schema none; empty where nothing does."""
    if isinstance(schema, bool):
        return ""
    if not isinstance(schema, dict):
        return f"{path}: expected a schema, an object"
    for key, value in schema.items():
        if problem := _mistake_in(key, value, path_inside(path, key)):
            return problem
    return ""


def _mistake_in(key: str, value: Any, place: str) -> str:
    parts: list[tuple[str, Any]] = []
    match key:
        case "type":
            given = value if isinstance(value, list) else [value]
            if not given or not all(isinstance(x, str) and x in _TYPES for x in given):
                return f"{place}: expected one of {', '.join(sorted(_TYPES))}, or a list of them"
        case "required":
            if not isinstance(value, list) or not all(isinstance(x, str) for x in value):
                return f"{place}: expected a list of names"
        case "enum":
            if not isinstance(value, list):
                return f"{place}: expected a list of values"
        case "$ref":
            if not isinstance(value, str):
                return f"{place}: expected a reference"
        case "items" if isinstance(value, list):
            parts = [(f"{place}[{at}]", each) for at, each in enumerate(value)]
        case "items":
            parts = [(place, value)]
        case _ if key in _ONE:
            parts = [(place, value)]
        case _ if key in _LISTS:
            if not isinstance(value, list):
                return f"{place}: expected a list of schemas"
            parts = [(f"{place}[{at}]", each) for at, each in enumerate(value)]
        case _ if key in _BY_NAME:
            if not isinstance(value, dict):
                return f"{place}: expected schemas by name"
            parts = [(path_inside(place, name), each) for name, each in value.items()]
        case _:
            pass
    return next((problem for where, part in parts if (problem := _mistake(part, where))), "")
