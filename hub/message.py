"""``Message``: what one says to a run."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from hubbub.hub.errors import BadValue
from hubbub.hub.events import SessionMessage
from hubbub.hub.texts import check_label, check_text
from hubbub.hub.values import NULL, Json, encode_value

__all__ = ["MAX_MESSAGE_CHARS", "Message", "Sayable", "opening_message", "session_message"]

MAX_MESSAGE_CHARS = 4_000_000
"""A longer message is refused with ``BadValue``: it could not be shown to any model."""


class Message(Struct, frozen=True):
    """A message with more than text.

    ``key`` makes sending idempotent: per run and source a key is accepted once.
    ``silent`` hides it from people; the model sees it and it triggers a turn all the same.
    """

    content: str
    role: str = "user"
    attachments: tuple[str, ...] = ()
    silent: bool = False
    metadata: Mapping[str, Any] = {}
    key: str | None = None


Sayable: TypeAlias = str | Message


def session_message(
    message: Sayable, *, source: str = "", triggers: bool = True, prompt_id: str = ""
) -> SessionMessage:
    """The event that carries ``message``; raises ``BadValue`` for what cannot be carried."""
    if source:
        check_label("source", source)
    if isinstance(message, str):
        content = message
        if len(content) > MAX_MESSAGE_CHARS:
            raise BadValue("message", f"longer than {MAX_MESSAGE_CHARS:,} characters; send a file")
        if not content.isascii():
            check_text("message", content)
        return SessionMessage(
            content=content, source=source, triggers=triggers, prompt_id=prompt_id
        )
    if not isinstance(message, Message):
        raise BadValue(
            "message", f"a str or Message is wanted, not {type(message).__name__}; use str(...)"
        )
    check_text("message.content", message.content)
    if len(message.content) > MAX_MESSAGE_CHARS:
        raise BadValue("message", f"longer than {MAX_MESSAGE_CHARS:,} characters; send a file")
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
        metadata_json=encode_value("message.metadata", dict(message.metadata))
        if message.metadata
        else NULL,
    )


def opening_message(input: object, source: str = "") -> tuple[Json, SessionMessage | None]:
    """What a run is started with: the input, and the message that it comes from, if it is one."""
    if not isinstance(input, Message):
        return encode_value("input", input), None
    return encode_value("input", input.content), session_message(input, source=source)


def _check_parts(message: Message) -> None:
    """Refuse what no store could read back."""
    check_label("message.role", message.role)
    if not message.role:
        raise BadValue("message.role", 'a text such as "user" is wanted')
    if message.key is not None:
        check_label("message.key", message.key)
    if not isinstance(message.silent, bool):
        raise BadValue("message.silent", "True or False is wanted")
    if isinstance(message.attachments, str) or not all(
        isinstance(attachment, str) for attachment in message.attachments
    ):
        raise BadValue("message.attachments", "a tuple of texts is wanted")
    for attachment in message.attachments:
        check_label("message.attachments", attachment)
    if not isinstance(message.metadata, Mapping):
        raise BadValue("message.metadata", "a mapping is wanted")
