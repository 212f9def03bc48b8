"""Descriptors: what an agent's run represents, written once at its creation.

    user        a conversation: connector, user and channel; the only foreground kind
    cron        a scheduled task, by the task's uid
    heartbeat   the one agent of the heartbeat batch
    subagent    any child: its own id, its parent's, and its name

On disk and on the wire they have AT's spelling (``userId``, ``parentAgentId``).

The first three are identities: there is one live agent of each.  A session key spells a ``user``:

    telegram_123_456      connector, channel, user: the first two ``_`` part them
    my%5Fapp_50%25_a_b    connector ``my_app``, channel ``50%``, user ``a_b``
    daily                 of another form: a channel of its own, of connector and user ``local``
"""

import re
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from hubbub.hub.errors import BadValue
from hubbub.hub.texts import check_key_size, check_label
from hubbub.hub.values import NULL, Json

__all__ = [
    "KINDS",
    "LOCAL",
    "MAX_GIVEN_CHARS",
    "CronDescriptor",
    "Descriptor",
    "HeartbeatDescriptor",
    "SubagentDescriptor",
    "UserDescriptor",
    "check_descriptor_size",
    "check_part_sizes",
    "descriptor_of_key",
    "encode_descriptor",
    "is_addressed",
    "is_identity",
    "key_of_descriptor",
    "kind_of_descriptor",
    "read_descriptor",
    "recency_of",
]

LOCAL: Final = "local"
"""Connector and user of a conversation whose key names none."""

MAX_GIVEN_CHARS: Final = 65_536
"""Of a descriptor as a stranger sends it, with whatever else is in it; that of longer keys than
there may be is far from it."""

MAX_SIZE: Final = 2_500
"""Bytes of a descriptor's JSON text, which is indexed: those of any key but one that consists of
control characters, of which JSON makes six bytes each."""


class UserDescriptor(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="user", rename="camel"
):
    """A conversation of one user with an agent."""

    connector: str
    user_id: str
    channel_id: str


class CronDescriptor(Struct, frozen=True, kw_only=True, tag_field="type", tag="cron"):
    """A scheduled task; ``id`` is the task's uid."""

    id: str


class HeartbeatDescriptor(Struct, frozen=True, kw_only=True, tag_field="type", tag="heartbeat"):
    """The heartbeat's agent."""


class SubagentDescriptor(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="subagent", rename="camel"
):
    """A child; ``id`` is its run's."""

    id: str
    parent_agent_id: str
    name: str


Descriptor: TypeAlias = UserDescriptor | CronDescriptor | HeartbeatDescriptor | SubagentDescriptor

KINDS: Final[dict[type, str]] = {
    type(None): "",
    UserDescriptor: "user",
    CronDescriptor: "cron",
    HeartbeatDescriptor: "heartbeat",
    SubagentDescriptor: "subagent",
}

_decoder: Final = msgspec.json.Decoder(Descriptor)


def read_descriptor(data: bytes | str | Json) -> Descriptor:
    """The descriptor that a JSON text encodes; raises ``BadValue`` for what is none."""
    try:
        found: Descriptor = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise BadValue("descriptor", f"{error}; use the shapes of the agent types") from None
    for part in msgspec.structs.astuple(found):
        check_label("descriptor", part)
        if not part:
            raise BadValue("descriptor", "a part is empty; every part names something")
    return found


def check_part_sizes(given: Descriptor) -> None:
    """Raise ``BadValue`` for one that somebody gives, and that names something with too long a
    key."""
    if isinstance(given, UserDescriptor):
        check_key_size("descriptor", key_of_descriptor(given))
    else:
        for part in msgspec.structs.astuple(given):
            check_key_size("descriptor", part)


def check_descriptor_size(descriptor: Descriptor) -> None:
    """Raise ``BadValue`` for one that is too long as JSON, whose keys are not."""
    if (size := len(bytes(encode_descriptor(descriptor)))) > MAX_SIZE:
        raise BadValue(
            "session_key",
            f"with what JSON escapes it has {size:,} bytes, and {MAX_SIZE:,} at most; give its "
            "digest: hashlib.sha256(…).hexdigest()",
        )


def encode_descriptor(descriptor: Descriptor | None) -> Json:
    """``descriptor`` as JSON text, ``null`` for none."""
    return NULL if descriptor is None else msgspec.Raw(msgspec.json.encode(descriptor))


def kind_of_descriptor(descriptor: Descriptor | None) -> str:
    """``user``, ``cron``, ``heartbeat``, ``subagent``, or empty."""
    return KINDS[descriptor.__class__]


def is_identity(descriptor: Descriptor | None) -> bool:
    """Whether there is one live agent of the descriptor at the most."""
    return descriptor is not None and descriptor.__class__ is not SubagentDescriptor


def is_addressed(descriptor: Descriptor | None) -> bool:
    """Whether a run of the descriptor is found by its session key: a schedule's is only shown."""
    return not isinstance(descriptor, CronDescriptor | HeartbeatDescriptor)


def recency_of(run_id: str, descriptor: Descriptor | None) -> str:
    """Among which agents it counts how lately somebody spoke to this one: ``user``, ``heartbeat``.

    Empty for everybody else.  What a program began once had a descriptor of its own, by which
    nobody holds the conversation.
    """
    match descriptor:
        case UserDescriptor(connector=connector, channel_id=channel, user_id=user):
            return "" if connector == user == LOCAL and channel == run_id else "user"
        case HeartbeatDescriptor():
            return "heartbeat"
        case _:
            return ""


def descriptor_of_key(session_key: str) -> UserDescriptor:
    """Whom a conversation's key spells."""
    connector, _, rest = session_key.partition("_")
    channel, _, user = rest.partition("_")
    if not (connector and channel and user):
        return UserDescriptor(connector=LOCAL, channel_id=session_key, user_id=LOCAL)
    return UserDescriptor(
        connector=_unescaped(connector), channel_id=_unescaped(channel), user_id=user
    )


def key_of_descriptor(descriptor: Descriptor) -> str:
    """The session key that a run opened by this descriptor has; empty for a child."""
    match descriptor:
        case UserDescriptor(connector=connector, channel_id=channel, user_id=user):
            if connector == user == LOCAL and descriptor_of_key(channel) == descriptor:
                return channel
            return f"{_escaped(connector)}_{_escaped(channel)}_{user}"
        case CronDescriptor(id=uid):
            return f"schedule:{uid}"
        case HeartbeatDescriptor():
            return "schedule:heartbeat"
        case SubagentDescriptor():
            return ""


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace("_", "%5F")


def _unescaped(part: str) -> str:
    return _ESCAPE.sub(lambda found: "%" if found[1] == "25" else "_", part)


_ESCAPE: Final = re.compile("%(25|5F)")
