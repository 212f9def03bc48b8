"""``Message``: what one says to a run."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from hubbub.hub.errors import BadValue
from hubbub.hub.events import Limits, SessionMessage, SessionOpen, Variable
from hubbub.hub.events.given_tools import read_given_tools
from hubbub.hub.events.history import read_history
from hubbub.hub.events.parts import (
    Audio,
    Document,
    GivenParts,
    Image,
    bytes_problem,
    contents_of,
    read_parts,
    split_said,
)
from hubbub.hub.events.sent_items import MAX_ATTACHMENTS, MAX_MESSAGE_CHARS, TOO_LONG
from hubbub.hub.near_misses import kind_of, shown, told_fields
from hubbub.hub.texts import (
    SHORT_KEY,
    check_key_size,
    check_label,
    check_names,
    check_text,
    text_problem,
)
from hubbub.hub.values import (
    NULL,
    Json,
    Secret,
    check_flag,
    check_seconds,
    encode_given,
    encode_mapping,
    encode_value,
)

__all__ = [
    "MAX_MESSAGE_CHARS", "MAX_VARIABLES", "Message", "Sayable", "contents_said", "opening_event",
    "opening_message", "session_message", "variables_of",
]  # fmt: skip


MAX_VARIABLES: Final = 1_000
"""Values of variables that one run is given; each is kept by itself."""


class Message(Struct, metaclass=told_fields, frozen=True):
    """A message with more than text.

    ``key`` makes sending idempotent: per run and source a key is accepted once.
    ``silent`` hides it from people; the model sees it and it triggers a turn all the same.
    ``attachments`` are names of files that the run it goes to has, at most 100: it is rejected
    where one is not there.
    ``parts`` are images, documents and recordings that the model is shown beside the text.
    """

    content: str
    role: str = "user"
    attachments: tuple[str, ...] = ()
    silent: bool = False
    metadata: Mapping[str, Any] = {}
    key: str | None = None
    parts: GivenParts = ()


Sayable: TypeAlias = str | Message | Sequence[str | Image | Document | Audio]
"""A text, a ``Message``, or texts and parts in a list: ``["What is on it?", Image(data)]``."""


def session_message(
    message: Sayable, *, source: str = "", triggers: bool = True, prompt_id: str = ""
) -> SessionMessage:
    """The event that carries ``message``; raises ``BadValue`` for what cannot be carried."""
    if source != "":
        check_label("source", source)
        if len(source) > SHORT_KEY:
            check_key_size("source", source)
    if isinstance(message, str):
        content = message
        if len(content) > MAX_MESSAGE_CHARS:
            raise BadValue("message", TOO_LONG)
        if content.__class__ is not str or not content.isascii():
            check_text("message", content)
        return SessionMessage(
            content=content, source=source, triggers=triggers, prompt_id=prompt_id
        )
    said = _as_message(message)
    if not isinstance(said, Message):
        if problem := bytes_problem(said):
            raise BadValue("message", problem)
        if isinstance(said, list | tuple):
            raise BadValue("message", "a list holds at least one part, such as Image(data), beside "
                           "texts; send a text alone as a str")  # fmt: skip
        raise BadValue("message", f"expected a str or Message, not {kind_of(said)}; use str(...)")
    message = said
    check_text("message.content", message.content)
    if len(message.content) > MAX_MESSAGE_CHARS:
        raise BadValue("message", TOO_LONG)
    _check_parts(message)
    return SessionMessage(
        content=message.content,
        role=message.role,
        source=source,
        key=message.key or "",
        attachments=tuple(message.attachments),
        silent=message.silent,
        triggers=triggers,
        prompt_id=prompt_id,
        metadata_json=encode_mapping("message.metadata", message.metadata)
        if message.metadata
        else NULL,
        parts=read_parts("message.parts", message.parts) if message.parts else (),
    )


def contents_said(said: object, history: object = None) -> Mapping[str, bytes]:
    """What the parts of a message hold, and those of a history, by digest; events have only the
    digests."""
    message = _as_message(said)
    contents = contents_of(message.parts) if isinstance(message, Message) else {}
    for each in history if isinstance(history, list | tuple) else ():
        parts = each.get("parts") if isinstance(each, Mapping) else getattr(each, "parts", ())
        contents |= contents_of(parts)
    return contents


def _as_message(said: object) -> object:
    """A message, for a list of texts and parts; what is something else stays as it is."""
    if isinstance(said, str | Message):
        return said
    split = split_said(said)
    return said if split is None else Message(split[0], parts=split[1])


def opening_event(
    agent: str, input: object, *, run_id: str, session_key: str, correlation_id: str, name: str,
    once: bool, timeout: float | None, descriptor: object, env: Mapping[str, str] | None,
    source: str, history: object = None, tools: object = None, limits: object = None,
) -> SessionOpen:  # fmt: skip
    """What ``Hub.open`` says; raises ``BadValue`` for what no store could keep."""
    input_json, message = opening_message(input, source)
    check_names(
        agent=agent, session_key=session_key, correlation_id=correlation_id, name=name,
        source=source,
    )  # fmt: skip
    if len(agent) + len(session_key) + len(name) + len(source) > SHORT_KEY:
        _check_key_sizes(agent=agent, session_key=session_key, name=name, source=source)
    if timeout is not None:
        check_seconds("timeout", timeout)
    check_limits(limits)
    if once.__class__ is not bool:
        check_flag("once", once)
    return SessionOpen(
        run_id=run_id,
        open_agent=agent,
        input_json=input_json,
        message=message,
        session_key=session_key,
        correlation_id=correlation_id,
        name=name,
        once=once,
        timeout=timeout,
        descriptor_json=NULL if descriptor is None else encode_value("descriptor", descriptor),
        variables=() if env is None else variables_of(env),
        history=() if history is None else read_history(history),
        tools=() if tools is None else read_given_tools(tools),
        limits=limits if isinstance(limits, Limits) else None,
    )


def _check_key_sizes(**keys: str) -> None:
    for what, key in keys.items():
        check_key_size(what, key)


def check_limits(limits: object) -> None:
    """Raise ``BadValue`` for what are no limits of a tree."""
    if not isinstance(limits, Limits | None):
        raise BadValue("limits", f"expected Limits(…), not {shown(limits)}")


def variables_of(env: Mapping[str, str]) -> tuple[Variable, ...]:
    """Values that a run is started with; raises ``BadValue`` for what no store could keep."""
    if not isinstance(env, Mapping):
        raise BadValue("env", f"expected a mapping, not {kind_of(env)}")
    if len(env) > MAX_VARIABLES:
        raise BadValue("env", f"{len(env):,} values; a run is given {MAX_VARIABLES:,} at most")
    for name, value in env.items():
        check_label("env", name)  # Which one of the two is wrong may be a secret itself.
        check_key_size("env", name)
        if text_problem(value):
            raise BadValue("env", "each value is a text that UTF-8 can hold")
    return tuple(Variable(name=name, value=Secret(value)) for name, value in env.items())


def opening_message(input: object, source: str = "") -> tuple[Json, SessionMessage | None]:
    """What a run is started with: the input, and the message that it comes from, if it is one."""
    said = _as_message(input)
    if not isinstance(said, Message):
        if problem := bytes_problem(said):
            raise BadValue("input", problem)
        if isinstance(said, str) and len(said) > MAX_MESSAGE_CHARS:
            raise BadValue("input", TOO_LONG)
        return encode_given("input", said), None
    return encode_given("input", said.content), session_message(said, source=source)


def _check_parts(message: Message) -> None:
    """Refuse what no store could read back."""
    check_label("message.role", message.role)
    if not message.role:
        raise BadValue("message.role", 'expected a text such as "user"')
    if message.key is not None:
        check_label("message.key", message.key)
        check_key_size("message.key", message.key)
    if not isinstance(message.silent, bool):
        raise BadValue("message.silent", "expected True or False")
    if not isinstance(message.attachments, tuple | list):
        raise BadValue("message.attachments", "expected a tuple of texts")
    if len(message.attachments) > MAX_ATTACHMENTS:
        raise BadValue("message.attachments", f"at most {MAX_ATTACHMENTS} files")
    for attachment in message.attachments:
        check_label("message.attachments", attachment)
    if not isinstance(message.metadata, Mapping):
        raise BadValue("message.metadata", "expected a mapping")
