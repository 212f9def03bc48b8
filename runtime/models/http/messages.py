"""``conversation``: a request's messages in the form every provider accepts.  Pure.

Rules, whatever the history holds:

1. Blank texts are left out, notes among them, and with them messages that hold nothing else, no
   parts either.  A note whose message has no other words is in their place.
2. Consecutive user messages are one ``UserTurn``.
3. The user speaks first: ``(begin)`` is said if nobody but the system said anything before the
   model did.
4. Two things the model said are never neighbours: the results of its calls stand between them,
   or ``(continue)``, which is what it was shown when it was asked to continue.  Words that
   it was given as its own are no exception.
5. The model's word is never the last: after it comes ``(continue)``.
6. Call ids are unique within the request, of at most 40 letters, digits, ``_`` and ``-``; tool
   names are of at most 64 of these.  What is in order stays as it is.
7. Arguments are the text of a JSON object: malformed ones become ``{"_malformed": text}``, so
   that the model still sees what it wrote, beside the result that says what was wrong with it.

What a message becomes depends on nothing after it, but for ``FILLERS`` at the end, which give way
to what is said next: so the wire form of one request begins that of the next, for a provider's
prompt cache.
"""

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from hubbub.agents.model import (
    AnsweredCall,
    AssistantMessage,
    ModelMessage,
    UserMessage,
    parse_arguments,
)

__all__ = ["BEGIN", "CONTINUE", "FILLERS", "Turn", "UserTurn", "conversation"]

BEGIN: Final = "(begin)"
CONTINUE: Final = "(continue)"
FILLERS: Final = (BEGIN, CONTINUE)
"""What is said where nobody said anything; at the end, the next message takes its place."""

MAX_ID: Final = 40
MAX_NAME: Final = 64

_fits_id: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}").fullmatch
_fits_name: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch
_misfits: Final = re.compile(r"[^a-zA-Z0-9_-]")


class UserTurn(Struct, frozen=True):
    """What the model is told between two of its own words.

    There is at least one message; no note is blank, and no content but beside parts.
    """

    messages: tuple[UserMessage, ...]


Turn: TypeAlias = UserTurn | AssistantMessage


def conversation(messages: Sequence[ModelMessage]) -> list[Turn]:
    """The turns of ``messages``, by the rules above."""
    turns: list[Turn] = []
    said: list[UserMessage] = []
    used: set[str] = set()
    for message in messages:
        if isinstance(message, UserMessage):
            said.extend(_acceptable_user(message))
        elif message.calls or message.text.strip():
            turns.extend(_user_turn(turns[-1] if turns else None, said))
            said = []
            turns.append(_acceptable(message, used))
    turns.extend(_user_turn(turns[-1] if turns else None, said))
    return turns


def _user_turn(last: Turn | None, said: list[UserMessage]) -> tuple[UserTurn, ...]:
    if last is None and all(message.role == "system" for message in said):
        return (UserTurn((*said, UserMessage(content=BEGIN))),)
    if said:
        return (UserTurn(tuple(said)),)
    if isinstance(last, AssistantMessage) and not last.calls:
        return (UserTurn((UserMessage(content=CONTINUE),)),)
    return ()


def _acceptable_user(message: UserMessage) -> tuple[UserMessage, ...]:
    if message.parts and not message.content.strip():
        message = msgspec.structs.replace(message, content="")
    if not message.notes:
        return (message,) if message.parts or message.content.strip() else ()
    texts = _without_blanks((message.content, *message.notes))
    if not texts:
        return (msgspec.structs.replace(message, notes=()),) if message.parts else ()
    return (msgspec.structs.replace(message, content=texts[0], notes=texts[1:]),)


def _without_blanks(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(text for text in texts if text.strip())


def _acceptable(message: AssistantMessage, used: set[str]) -> AssistantMessage:
    if not message.calls:
        return message
    text = message.text if message.text.strip() else ""
    calls = tuple(_acceptable_call(each, used) for each in message.calls)
    return msgspec.structs.replace(message, text=text, calls=calls)


def _acceptable_call(call: AnsweredCall, used: set[str]) -> AnsweredCall:
    id_ = call.id if _fits_id(call.id) else _misfits.sub("_", call.id)[:MAX_ID] or "call"
    name = call.name if _fits_name(call.name) else _misfits.sub("_", call.name)[:MAX_NAME]
    stem, number = id_, 1
    while id_ in used:
        number += 1
        id_ = f"{stem[: MAX_ID - len(str(number)) - 1]}_{number}"
    used.add(id_)
    return msgspec.structs.replace(
        call,
        id=id_,
        name=name or "unnamed",
        arguments=_acceptable_arguments(call.arguments),
        notes=_without_blanks(call.notes),
    )


SHORT: Final = 10_000
"""Characters of arguments that are parsed as strictly as those of a call that is run."""

_SKIPPED: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
"""Reads long arguments, and makes nothing of them: each request has those of all calls."""


def _acceptable_arguments(text: str) -> str:
    if not text.strip():
        return "{}"
    try:
        (parse_arguments if len(text) <= SHORT else _SKIPPED.decode)(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        whole = text.encode(errors="replace").decode()
        return msgspec.json.encode({"_malformed": whole}).decode()
    return text
