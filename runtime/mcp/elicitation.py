"""What a server asks of a user, as a question of the run whose call it works on, and back.

one property of a form    the answer is its value
several                   the answer is a JSON object
none, or an address       ``accept`` or ``decline``
"""

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from msgspec import Struct

from hubbub.agents.definitions.answers import AnswerReader
from hubbub.agents.definitions.run_state import RunState
from hubbub.hub.errors import BadValue, PromptClosed, PromptTimeout
from hubbub.hub.near_misses import shown
from hubbub.hub.texts import readable

__all__ = ["CANCELLED", "Elicitation", "answer_of", "answered", "elicitation_of", "why_not_asked"]

ACCEPT: Final = "accept"
DECLINE: Final = "decline"
CANCELLED: Final = types.ElicitResult(action="cancel")
MAX_QUESTION: Final = 4_000
MAX_CHOICES: Final = 1_000
"""The fields of a form and the values to choose from, all together."""

_KEPT: Final = (
    "type", "title", "description", "default", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "format",
)  # fmt: skip

_PLAIN: Final = ("string", "number", "integer", "boolean")
"""What a field may be that does not say what it is."""

_CHOICES: Final = ("enum", "oneOf", "anyOf")


class Elicitation(Struct, frozen=True):
    """A question for ``RunState.ask``."""

    text: str
    options: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    name: str = ""
    """The one property that is asked for, if it is one."""
    is_form: bool = False


async def answered(
    server: str, state: RunState, params: types.ElicitRequestParams
) -> types.ElicitResult:
    """What the user of a call says to what a server asks."""
    asked = elicitation_of(server, params)
    try:
        try:
            answer = await state.ask(asked.text, options=asked.options, schema=asked.schema)
        except BadValue:  # A schema of a kind that no answer can be checked by.
            answer = await state.ask(asked.text, options=asked.options)
    except (PromptClosed, PromptTimeout) as error:
        return refused(error)
    return answer_of(asked, answer)


def why_not_asked(asked: types.ElicitRequestParams) -> str:
    """Why nobody is asked what a server wants to ask; empty where somebody is."""
    if isinstance(asked, types.ElicitRequestURLParams):
        return ""
    given = asked.requested_schema.get("properties")
    fields = given if isinstance(given, dict) else {}
    count = 0
    for name, field in fields.items():
        if isinstance(field, dict) and (problem := _field_problem(name, field)):
            return problem
        parts = [field, field.get("items")] if isinstance(field, dict) else []
        choices = [part.get(key) for part in parts if isinstance(part, dict) for key in _CHOICES]
        count += 1 + sum(len(each) for each in choices if isinstance(each, list))
        if count > MAX_CHOICES:
            return f"nobody is asked for more than {MAX_CHOICES} fields and choices; ask for less"
    made = elicitation_of("", asked)
    if made.schema is not None and not made.name:
        try:
            AnswerReader(made.schema)
        except BadValue as error:
            return f"nobody is asked for a form of which no answer can be read: {error}"
    return ""


def _field_problem(name: str, field: Mapping[str, Any]) -> str:
    """Why no answer to a field could be told to the server; empty where one can."""
    kind = field.get("type")
    if not name:
        return "nobody is asked for a field without a name; give it one"
    if "object" in (kind if isinstance(kind, list) else [kind]):
        return f"nobody is asked for an object, as {shown(name)} is; ask for its fields one by one"
    return ""


def elicitation_of(server: str, asked: types.ElicitRequestParams) -> Elicitation:
    """The question that a server's request is."""
    text = f"{server} asks: {readable(asked.message[:MAX_QUESTION])}"
    if isinstance(asked, types.ElicitRequestURLParams):
        url = readable(asked.url[:MAX_QUESTION])
        return Elicitation(f"{text}\nIt wants you to visit {url}", (ACCEPT, DECLINE))
    given = asked.requested_schema.get("properties")
    given = given if isinstance(given, dict) else {}
    fields = {str(name): _field(each) for name, each in given.items() if isinstance(each, dict)}
    if not fields:
        return Elicitation(text, (ACCEPT, DECLINE), is_form=True)
    if len(fields) == 1:
        ((name, schema),) = fields.items()
        options = tuple(str(each) for each in schema.get("enum", ()))
        if schema.get("type") == "boolean":
            options = ("true", "false")
        label = schema.get("description") or schema.get("title") or name
        asks = f"{text}\n{readable(str(label)[:MAX_QUESTION])}"
        return Elicitation(asks, options, schema, name, is_form=True)
    listed = asked.requested_schema.get("required")
    required = [x for x in listed if isinstance(x, str)] if isinstance(listed, list) else []
    whole = {
        "type": "object",
        "properties": fields,
        "required": [name for name in required if name in fields],
    }
    names = readable(", ".join(fields)[:MAX_QUESTION])
    return Elicitation(f"{text}\nAnswer by a JSON object of: {names}", (), whole, is_form=True)


def _field(schema: dict[str, Any]) -> dict[str, Any]:
    """A property in the words that a question's schema may use."""
    made: dict[str, Any] = {key: schema[key] for key in _KEPT if key in schema}
    if choices := _choices(schema):
        made["enum"] = choices
    items = schema.get("items")
    if "type" not in made and "enum" not in made:
        made["type"] = list(_PLAIN) if items is None else "array"
        made.pop("default", None)  # Of that type it may not be.
    kind = made.get("type")
    if "array" in (kind if isinstance(kind, list) else [kind]):  # Of texts: there are no others.
        made["items"] = {"type": "string"}
        if isinstance(items, dict) and (choices := _choices(items)):
            made["items"]["enum"] = choices
    return made


def _choices(schema: dict[str, Any]) -> list[str]:
    """What may be chosen, however it is written."""
    listed = schema.get("enum")
    if not isinstance(listed, list):
        parts = schema.get("oneOf") or schema.get("anyOf")
        parts = parts if isinstance(parts, list) else []
        listed = [each.get("const") for each in parts if isinstance(each, dict)]
    return [each for each in listed if isinstance(each, str)]


def answer_of(asked: Elicitation, answer: Any) -> types.ElicitResult:
    """What the server is told of a user's answer."""
    if not asked.is_form or asked.schema is None:
        if str(answer).strip().lower() != ACCEPT:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={} if asked.is_form else None)
    content = {asked.name: answer} if asked.name else answer
    return types.ElicitResult(action="accept", content=content)


def refused(error: PromptClosed | PromptTimeout) -> types.ElicitResult:
    """What it is told where there was no answer."""
    if isinstance(error, PromptClosed) and error.reason.startswith("denied"):
        return types.ElicitResult(action="decline")
    return CANCELLED
