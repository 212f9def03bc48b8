"""Answers of people to questions: their text, made into what the asker wants.

AnswerReader     a type, or what a JSON schema says: the asker reads with it
answer_problem   the schema on record, while the asker is away: what msgspec writes for a type
                 has references, which are replaced by what they refer to
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hubbub.agents.definitions.arguments import Arguments, BadArguments
from hubbub.agents.definitions.schema import read_schema
from hubbub.agents.definitions.signature import Parameter, schema_of
from hubbub.hub.errors import BadValue
from hubbub.hub.events import SessionReply
from hubbub.hub.values import NULL, Json, encode_value

__all__ = ["AnswerReader", "answer_problem"]

_NAME: Final = "answer"
_SHARED: Final = "#/$defs/"
_MAX_DEPTH: Final = 64
_MAX_PARTS: Final = 10_000


class AnswerReader:
    """Reads the text of an answer as what the asker wants: a type, or what a JSON schema says."""

    __slots__ = ("_arguments", "_is_plain", "schema")

    def __init__(self, schema: Any) -> None:
        self._is_plain = isinstance(schema, Mapping)
        if self._is_plain:
            wrapped = {"type": "object", "properties": {_NAME: schema}, "required": [_NAME]}
            parameters, _, problems = read_schema(wrapped)
            if problems:
                raise BadValue("schema", "; ".join(problems))
            self.schema = encode_value("schema", schema)
        else:
            parameters = (Parameter(name=_NAME, type=schema),)
            try:
                shown = schema_of(list(parameters))
            except Exception as error:
                words = f"an answer cannot be read as {schema!r}: {error}"
                raise BadValue("schema", words) from error
            shared = {"$defs": shown["$defs"]} if "$defs" in shown else {}
            self.schema = encode_value("schema", {**shown["properties"][_NAME], **shared})
        self._arguments = Arguments(_NAME, parameters)

    def read(self, text: str) -> Any:
        """The answer; a text that is no JSON of the kind is read as a string.

        Raises ``BadArguments``.
        """
        as_string = msgspec.json.encode(text).decode()
        try:
            msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            value = self._parse(as_string)
        else:
            try:
                value = self._parse(text)
            except BadArguments as problem:
                try:
                    value = self._parse(as_string)
                except BadArguments:
                    raise problem from None
        return msgspec.to_builtins(value) if self._is_plain else value

    def _parse(self, json: str) -> Any:
        return self._arguments.parse(f'{{"{_NAME}":{json}}}')[_NAME]

    def problem(self, reply: SessionReply) -> str:
        """Why a reply does not fit; empty where it does."""
        try:
            self.read(reply.content)
        except BadArguments as problem:
            return "; ".join(problem.problems)
        return ""


def answer_problem(schema: Json, reply: SessionReply) -> str:
    """Why a reply does not fit the schema on record; empty where it does, where it is a decision,
    and where the schema says what only the asker's type can check."""
    if schema == NULL or reply.decision:
        return ""
    try:
        reader = AnswerReader(_References(msgspec.json.decode(schema)).replaced())
    except (BadValue, LookupError, msgspec.DecodeError, RecursionError):
        return ""
    return reader.problem(reply)


class _References:
    """A schema of references to its shared parts, to be written without them.

    One that refers to itself has no end, and raises ``LookupError``.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._shared: dict[str, Any] = {}
        if isinstance(schema, dict) and isinstance(schema.get("$defs"), dict):
            self._shared = schema["$defs"]
            self._schema = {key: part for key, part in schema.items() if key != "$defs"}
        self._parts = 0

    def replaced(self) -> Any:
        return self._replaced(self._schema, 0)

    def _replaced(self, part: Any, depth: int) -> Any:
        self._parts += 1
        if depth > _MAX_DEPTH or self._parts > _MAX_PARTS:
            raise LookupError("the schema refers to itself, or to too much")
        if isinstance(part, list):
            return [self._replaced(each, depth + 1) for each in part]
        if not isinstance(part, dict):
            return part
        if isinstance(name := part.get("$ref"), str):
            beside = {key: each for key, each in part.items() if key != "$ref"}
            meant = self._shared[name.removeprefix(_SHARED)]
            if not isinstance(meant, dict):
                raise LookupError(f"{name} refers to no schema")
            return self._replaced({**meant, **beside}, depth + 1)
        return {key: self._replaced(each, depth + 1) for key, each in part.items()}
