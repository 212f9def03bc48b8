"""What an event may say that somebody sends to a run: as much as the methods of a hub take.

JSON can hold more than that: a path out of a run's area, a time without end, a place in a tree
that is the runtime's to give. It would be on record before anybody looked at it, and a record that
the store's own tools refuse is damage. So each value is looked at once, where it enters; what a
runtime writes itself never comes here.
"""

from typing import Any, Final, get_args, get_origin

from msgspec import Struct, structs

from hubbub.hub.errors import BadValue
from hubbub.hub.events.event import ContentPart, Event, FileRef, Variable
from hubbub.hub.events.files import file_problem
from hubbub.hub.events.limits import Limits
from hubbub.hub.events.parts import MAX_PARTS, credentials_problem, part_problem
from hubbub.hub.events.sessions import (
    GivenTool,
    HistoryMessage,
    InLane,
    SessionMessage,
    SessionOpen,
    SessionReset,
)
from hubbub.hub.near_misses import kind_of, shown
from hubbub.hub.texts import key_problem, label_problem, text_problem
from hubbub.hub.values import COUNTED, Form, Json, encode_value, is_count, is_seconds

__all__ = ["MAX_ARGUMENTS_CHARS", "MAX_ATTACHMENTS", "MAX_MESSAGE_CHARS", "TOO_LONG", "as_sent"]

MAX_MESSAGE_CHARS: Final = 4_000_000
"""A longer text is refused with ``BadValue``, as a message, as the input of a run, and as what a
conversation begins anew with: it could not be shown to any model."""

TOO_LONG: Final = f"longer than {MAX_MESSAGE_CHARS:,} characters; send a file"

MAX_ATTACHMENTS: Final = 100
"""Files that one message may name."""

MAX_ARGUMENTS_CHARS: Final = 1 << 20
"""Of the JSON text of a call's arguments.  A longer one is refused unread."""

_SAID: Final = frozenset(("content", "message", "reason"))
"""Fields with a text that is said; every other text names something."""

_KEYS: Final = frozenset(("key", "name", "open_agent", "session_key", "source"))
"""Fields by which a store finds something."""

_OF_THE_RUNTIME: Final = ("receives", "reports", "depth", "frame", "model", "prompt")
"""What an opening says of the place of its run in a tree, and of what a fork has in the place of
its agent's: they are the runtime's to give."""

_DEFAULTS: Final = {field.name: field.default for field in structs.fields(SessionOpen)}


def as_sent(event: Event) -> Event:
    """An item for an inbox as it is delivered, of one that is well-formed.

    A sender does not decide where a run is in its tree; and a message that opens a run is its
    input, too.  Raises ``BadValue`` for what ``Hub.open``, ``send`` and the others refuse.
    """
    _check(event.type, event)
    sent = structs.replace(event, root_run_id="", parent_run_id=None)
    if isinstance(sent, SessionOpen) and (message := sent.message) is not None:
        if sent.input not in (None, message.content):
            raise BadValue(f"{sent.type}.input", "it is what the message says; give one of them")
        sent = structs.replace(sent, input_json=encode_value("input", message.content))
    return sent


def _check(where: str, item: Event) -> None:
    """Raise ``BadValue`` for the first value that no method would take."""
    for name in item.__struct_fields__:
        value = getattr(item, name)
        is_wrong = isinstance(value, Struct) and value.__class__ is not _STRUCTS.get(name)
        if problem := _not_one(value) if is_wrong else _problem(name, value):
            raise BadValue(f"{where}.{name}", problem)
    if isinstance(item, SessionOpen):
        for name in _OF_THE_RUNTIME:
            if getattr(item, name) != _DEFAULTS[name]:
                raise BadValue(f"{where}.{name}", "the runtime alone says so; leave it")
        if item.message is not None:
            if item.message.files:
                raise BadValue(f"{where}.message.files", "give them as files of the opening")
            _check(f"{where}.message", item.message)
        elif len(bytes(item.input_json)) > MAX_MESSAGE_CHARS and _is_too_long(item.input):
            raise BadValue(f"{where}.input", TOO_LONG)
    elif isinstance(item, SessionReset) and _is_too_long(item.message):
        raise BadValue(f"{where}.message", TOO_LONG)
    elif isinstance(item, SessionMessage):
        _check_message(where, item)


def _is_too_long(said: object) -> bool:
    return isinstance(said, str) and len(said) > MAX_MESSAGE_CHARS


def _check_message(where: str, message: SessionMessage) -> None:
    if not message.role:
        raise BadValue(f"{where}.role", 'expected a text such as "user"')
    if len(message.content) > MAX_MESSAGE_CHARS:
        raise BadValue(f"{where}.content", TOO_LONG)
    for name, most in (("attachments", MAX_ATTACHMENTS), ("parts", MAX_PARTS)):
        if len(getattr(message, name)) > most:
            raise BadValue(f"{where}.{name}", f"at most {most}")


def _problem(name: str, value: Any) -> str:
    """Why a field cannot have this value; empty if it can.

    That it is written as JSON of the right form, is known; not that it is of the right type.
    """
    if isinstance(value, Json) or name.endswith("_json"):
        return _json_problem(name, value)
    if value is None or isinstance(value, bool | SessionMessage):
        return ""
    if isinstance(value, str):
        problem = text_problem(value) if name in _SAID else label_problem(value)
        return problem or (key_problem(value) if name in _KEYS else "")
    if name == "timeout":
        return "" if is_seconds(value) else f"expected seconds from 0 on, not {shown(value)}"
    if isinstance(value, int):
        return "" if is_count(value, 0) else f"expected 0, or {COUNTED}, not {shown(value)}"
    if isinstance(value, tuple):
        of = _ELEMENTS[name]
        problems = (_problem(name, x) if isinstance(x, of) else _not_one(x) for x in value)
        return next(filter(None, problems), "")
    if isinstance(value, Variable):
        return label_problem(value.name) or key_problem(value.name) or _secret_problem(value)
    form = _FORMS.get(value.__class__)
    if form is None:
        return _not_one(value)
    if problem := form.problem(value):
        return problem
    if isinstance(value, FileRef):
        return file_problem(value)
    if isinstance(value, ContentPart):
        return part_problem(value) or credentials_problem(value.url)
    return ""


def _json_problem(name: str, value: Any) -> str:
    if not (isinstance(value, Json) and name.endswith("_json")):
        return _not_one(value)
    if name in _OBJECTS and bytes(value).lstrip()[:1] not in (b"{", b"n"):
        return "expected a JSON object"
    return ""


def _not_one(value: Any) -> str:
    return f"it cannot be {kind_of(value)}"


def _secret_problem(variable: Variable) -> str:
    value = variable.value.reveal()
    if value is None or not text_problem(value):
        return ""
    return "each value is a text that UTF-8 can hold"  # Which one it is, may be a secret, too.


_OBJECTS: Final = frozenset(("metadata_json", "arguments_json"))

_FORMS: Final[dict[type, Form[Any]]] = {
    kind: Form(kind) for kind in (ContentPart, FileRef, GivenTool, HistoryMessage, Limits)
}

_STRUCTS: Final = {"limits": Limits, "message": SessionMessage}

_ELEMENTS: Final[dict[str, Any]] = {
    field.name: get_args(field.type)[0]
    for kind in get_args(InLane)
    for field in structs.fields(kind)
    if get_origin(field.type) is tuple
}
"""By the name of a field: what it has several of."""
