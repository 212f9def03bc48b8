"""Descriptors: what an agent's run stands for, written once at its creation (AT, P-01, P-13).

    user        a conversation: connector, user and channel; the only foreground kind
    cron        a scheduled task, by the task's uid
    heartbeat   the one agent of the heartbeat batch
    subagent    any child: its own id, its parent's, and its name

On disk and on the wire they have AT's spelling (``userId``, ``parentAgentId``).
"""

from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from hubbub.hub.errors import BadValue
from hubbub.hub.values import NULL, Json

__all__ = [
    "KINDS",
    "LOCAL",
    "CronDescriptor",
    "Descriptor",
    "HeartbeatDescriptor",
    "SubagentDescriptor",
    "UserDescriptor",
    "descriptor_of_key",
    "encode_descriptor",
    "kind_of_descriptor",
    "read_descriptor",
]

LOCAL: Final = "local"
"""Connector and user of a conversation that a program began (P-13)."""


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
    """The descriptor that a JSON text stands for; raises ``BadValue`` for what is none."""
    try:
        found: Descriptor = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise BadValue("descriptor", f"{error}; use the shapes of the agent types") from None
    if any(not part for part in msgspec.structs.astuple(found)):
        raise BadValue("descriptor", "a part is empty; every part names something")
    return found


def encode_descriptor(descriptor: Descriptor | None) -> Json:
    """``descriptor`` as JSON text, ``null`` for none."""
    return NULL if descriptor is None else msgspec.Raw(msgspec.json.encode(descriptor))


def kind_of_descriptor(descriptor: Descriptor | None) -> str:
    """``user``, ``cron``, ``heartbeat``, ``subagent``, or empty."""
    return KINDS[descriptor.__class__]


def descriptor_of_key(session_key: str) -> UserDescriptor:
    """What a conversation's key says: ``telegram_123_456`` is connector, channel, user.

    A key of another form is a channel of its own, of connector and user ``local``.
    """
    connector, _, rest = session_key.partition("_")
    channel, _, user = rest.partition("_")
    if not (connector and channel and user):
        return UserDescriptor(connector=LOCAL, channel_id=session_key, user_id=LOCAL)
    return UserDescriptor(connector=connector, channel_id=channel, user_id=user)
