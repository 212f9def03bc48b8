"""``ServerArguments``: the arguments of a call, checked by the schema that a server gave.

The schema is the server's, and so is the last word: what is checked here tells a model what to
correct before the server is asked.  A schema that would keep the event loop busy is given up after
``MAX_STEPS``; what may take long in one step, patterns above all, is left to the server.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec
from jsonschema import Draft202012Validator, validators  # type: ignore[import-untyped]
from referencing import Registry

from hubbub.agents.definitions.arguments import MAX_ARGUMENTS_CHARS, BadArguments
from hubbub.agents.model import parse_arguments

__all__ = ["ServerArguments", "misfit"]

MAX_STEPS: Final = 20_000
MAX_PROBLEMS: Final = 20
MAX_CHARS: Final = 500
_NOT_CHECKED: Final = frozenset(("pattern", "format", "uniqueItems", "$dynamicRef"))
_OPEN: Final = frozenset(("patternProperties", "additionalProperties", "unevaluatedProperties"))

_Find = Callable[[Any], Iterator[Any]]


class _TooLong(Exception):
    """The schema takes too many steps."""


class ServerArguments:
    """Reads the arguments of one tool's calls (``ArgumentsReader``)."""

    __slots__ = ("_find", "_schema", "_tool")

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        self._tool = tool
        self._schema = schema
        self._find: _Find | None = None

    def parse(self, text: str) -> dict[str, Any]:
        """The arguments, under ``arguments``; raises ``BadArguments``."""
        if len(text) > MAX_ARGUMENTS_CHARS:
            raise self._bad(f"{len(text):,} characters are too many")
        try:
            value = parse_arguments(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            raise self._bad(f"not one complete JSON object: {problem}") from problem
        try:
            if self._find is None:
                self._find = _finder(_without_patterns(self._schema))
            found = list(islice(self._find(value), MAX_PROBLEMS))
        except Exception:  # It takes too long, or is no schema: the server says what is wrong.
            found = []
        if found:
            raise BadArguments(self._tool, map(_said, found))
        return {"arguments": value}

    def _bad(self, problem: str) -> BadArguments:
        return BadArguments(self._tool, [problem])


def misfit(schema: Any, value: Any) -> str:
    """Why a value does not fit the schema that a server gave; empty where it fits, as well as can
    be told within the limits of this module."""
    if schema is None:
        return ""
    try:
        return next((_said(each) for each in _finder(_without_patterns(schema))(value)), "")
    except Exception:  # It takes too long, or is no schema.
        return ""


def _said(error: Any) -> str:
    where = ".".join(str(each) for each in error.absolute_path)
    return f"`{where}`: {error.message[:MAX_CHARS]}" if where else str(error.message[:MAX_CHARS])


def _without_patterns(schema: Any) -> Any:
    """The schema, where it has patterns for names open for any name."""
    if isinstance(schema, list):
        return [_without_patterns(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = _OPEN if "patternProperties" in schema else ()
    return {key: _without_patterns(x) for key, x in schema.items() if key not in left_out}


def _finder(schema: Any) -> _Find:
    """What finds the problems of a value, within so many steps."""
    left = [0]

    def counted(check: Any) -> Any:
        def run(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            left[0] -= 1
            if left[0] < 0:
                raise _TooLong
            yield from check(validator, value, instance, schema) or ()

        return run

    known = Draft202012Validator.VALIDATORS.items()
    kept = {word: counted(check) for word, check in known if word not in _NOT_CHECKED}
    make = validators.create(Draft202012Validator.META_SCHEMA, validators=kept)
    # Its own registry, which is empty: no reference is ever fetched.
    checks = make(schema, registry=Registry())

    def find(value: Any) -> Iterator[Any]:
        left[0] = MAX_STEPS
        found: Iterator[Any] = checks.iter_errors(value)
        return found

    return find
