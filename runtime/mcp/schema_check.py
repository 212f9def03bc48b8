"""``ServerArguments``: the arguments of a call, checked by the schema that a server gave.

The schema is the server's, and so is the last word: what is checked here tells a model what to
correct before the server is asked.  Only what is sure not to fit is refused: what cannot be told
within the limits of a ``Trial`` is left to the server.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from hubbub.agents.definitions.arguments import MAX_ARGUMENTS_CHARS, BadArguments
from hubbub.agents.model import parse_arguments
from hubbub.runtime.mcp.schemas.trial import SchemaParts, SchemaPlace, Trial
from hubbub.runtime.mcp.schemas.vocabulary import KEYWORDS

__all__ = ["ServerArguments", "misfit"]

MAX_PROBLEMS: Final = 20


class ServerArguments:
    """Reads the arguments of one tool's calls (``ArgumentsReader``)."""

    __slots__ = ("_parts", "_tool")

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        self._tool = tool
        self._parts = SchemaParts(schema)

    def parse(self, text: str) -> dict[str, Any]:
        """The arguments, under ``arguments``; raises ``BadArguments``."""
        if len(text) > MAX_ARGUMENTS_CHARS:
            raise self._bad(f"{len(text):,} characters are too many")
        try:
            value = parse_arguments(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            raise self._bad(f"not one complete JSON object: {problem}") from problem
        if found := _misfits(self._parts, value, MAX_PROBLEMS):
            raise BadArguments(self._tool, found)
        return {"arguments": value}

    def _bad(self, problem: str) -> BadArguments:
        return BadArguments(self._tool, [problem])


def misfit(schema: Any, value: Any) -> str:
    """Why a value does not fit the schema that a server gave; empty where it fits, as well as can
    be told within the limits of this module."""
    return "" if schema is None else "".join(_misfits(SchemaParts(schema), value, 1))


def _misfits(parts: SchemaParts, value: Any, most: int) -> list[str]:
    """The first problems of a value; none where it cannot be told."""
    trial = Trial(parts, KEYWORDS)
    try:
        problems = trial.problems(parts.whole, value, SchemaPlace())
        return [str(each) for each in islice(filter(None, problems), most)]
    except Exception:  # It takes too long, or is no schema: the server says what is wrong.
        return []
