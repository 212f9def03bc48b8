"""Schemas that somebody else has written, of which nothing needs to be understood here.

Such a schema is shown to the model as it is.  What the library has no type for (``oneOf``, sets,
schemas that hold themselves, …) is not checked: the arguments are any JSON object then, and whoever
carries out the call judges them.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hubbub.agents.definitions.arguments import MAX_ARGUMENTS_CHARS, BadArguments
from hubbub.agents.definitions.schema import path_inside, plain_json
from hubbub.agents.model import parse_arguments

__all__ = ["ObjectArguments", "read_foreign"]

_TYPES: Final = frozenset(("string", "integer", "boolean", "null", "object", "array", "number"))
_ONE: Final = frozenset((
    "additionalProperties", "contains", "else", "if", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
))  # fmt: skip
_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_BY_NAME: Final = frozenset(
    ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
)


class ObjectArguments:
    """Reads any JSON object as the arguments of a call (``ArgumentsReader``)."""

    __slots__ = ("_tool",)

    def __init__(self, tool: str) -> None:
        self._tool = tool

    def parse(self, text: str) -> dict[str, Any]:
        """The object's members; raises ``BadArguments``."""
        if len(text) > MAX_ARGUMENTS_CHARS:
            raise BadArguments(
                self._tool,
                [f"{len(text):,} characters are too many; send at most {MAX_ARGUMENTS_CHARS:,}"],
            )
        try:
            return parse_arguments(text or "{}")
        except RecursionError:
            problem = "the JSON is nested too deeply"
        except (msgspec.DecodeError, UnicodeError) as error:
            problem = f"not one complete JSON object: {error}"
        raise BadArguments(self._tool, [problem])


def read_foreign(schema: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
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
