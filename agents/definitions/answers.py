"""Answers of people to questions: their text, made into what the asker wants.

AnswerReader     a type, or what a JSON schema says: the asker reads with it
answer_problem   the schema on record, while the asker is away
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hubbub.agents.definitions.arguments import Arguments, BadArguments
from hubbub.agents.definitions.schema import plain_json, read_schema
from hubbub.agents.definitions.signature import Parameter, demand_readable, schema_of
from hubbub.agents.shared_parts import in_place
from hubbub.hub.errors import BadValue
from hubbub.hub.events import SessionReply
from hubbub.hub.near_misses import shown
from hubbub.hub.values import NULL, Json, encode_value

__all__ = ["AnswerReader", "answer_problem"]

_NAME: Final = "answer"


class AnswerReader:
    """Reads the text of an answer as what the asker wants: a type, or what a JSON schema says."""

    __slots__ = ("_arguments", "_is_plain", "schema")

    def __init__(self, schema: Any) -> None:
        self._is_plain = isinstance(schema, Mapping)
        if self._is_plain:
            try:
                answer = in_place(plain_json(schema, ""))
            except (TypeError, ValueError) as error:
                raise BadValue("schema", str(error)) from None
            wrapped = {"type": "object", "properties": {_NAME: answer}, "required": [_NAME]}
            parameters, _, problems = read_schema(wrapped)
            if problems:
                raise BadValue("schema", "; ".join(problems))
            self.schema = encode_value("schema", schema)
        else:
            parameters = (Parameter(name=_NAME, type=schema),)
            try:
                demand_readable(schema)
                described = schema_of(list(parameters))
            except Exception as error:
                words = f"an answer cannot be read as {shown(schema)}: {error}"
                raise BadValue("schema", words) from error
            shared = {"$defs": described["$defs"]} if "$defs" in described else {}
            self.schema = encode_value("schema", {**described["properties"][_NAME], **shared})
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
        reader = AnswerReader(msgspec.json.decode(schema))
    except (BadValue, msgspec.DecodeError, RecursionError):
        return ""
    return reader.problem(reply)
