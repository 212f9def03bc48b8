"""Conversations: found by their keys, spoken to by their keys."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from hubbub.channels.http.api.messages import MessageBody, keyed
from hubbub.channels.http.api.views import ConversationPage
from hubbub.channels.http.wire.host import SOURCE
from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.receipts import RECEIPTS, REJECTIONS, answer_of
from hubbub.channels.http.wire.route import HttpAnswer, HttpCall, Route
from hubbub.channels.http.wire.runtime_answers import ask_runtime
from hubbub.hub.store.journal import RunInfo

__all__ = ["ROUTES"]


class ConversationsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which conversations: of an agent, of a status (``active``, ``waiting``, ``parked``,
    ``ended``), ``before`` a cursor or ``after`` one."""

    agent: str = ""
    status: Literal["", "active", "waiting", "parked", "ended"] = ""
    before: str = ""
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50


async def list_conversations(call: HttpCall) -> HttpAnswer:
    """A page of conversations."""
    filters = msgspec.json.encode(call.query).decode()
    return HttpAnswer(content=await ask_runtime(call.hub, "conversations", filters))


async def show_conversation(call: HttpCall) -> HttpAnswer:
    """The open run of a session key, or of a descriptor's JSON."""
    found: Any = await ask_runtime(call.hub, "find", call.path["key"])
    if found is None:
        raise Refusal("unknown-conversation", "no open run has this key")
    return HttpAnswer(content=found)


async def send_to_conversation(call: HttpCall) -> HttpAnswer:
    """Send to the conversation of a key."""
    key = call.path["key"]
    message = keyed(call, call.body)
    request = call.request("conversations", key)
    receipt = call.hub.send(message, session_key=key, source=SOURCE, request=request)
    return await answer_of(receipt, unknown="unknown-conversation")


async def send_to_only(call: HttpCall) -> HttpAnswer:
    """Send to the only open conversation."""
    message = keyed(call, call.body)
    receipt = call.hub.send(message, source=SOURCE, request=call.request("messages"))
    return await answer_of(receipt, unknown="unknown-conversation")


ROUTES: Final = (
    Route(
        method="GET", path="/api/conversations", summary="Conversations, the latest first",
        handler=list_conversations, query=ConversationsQuery, answers={200: ConversationPage},
        problems=("no-runtime",),
    ),
    Route(
        method="GET", path="/api/conversations/{key}", summary="The open run of a key",
        handler=show_conversation, answers={200: RunInfo},
        problems=("unknown-conversation", "no-runtime"),
    ),
    Route(
        method="POST", path="/api/conversations/{key}/messages",
        summary="Send a message to the conversation of a key", handler=send_to_conversation,
        body=MessageBody, is_keyed=True, answers=RECEIPTS,
        problems=("unknown-conversation", "unknown-file", *REJECTIONS),
    ),
    Route(
        method="POST", path="/api/messages",
        summary="Send a message to the only open conversation", handler=send_to_only,
        body=MessageBody, is_keyed=True, answers=RECEIPTS,
        problems=("unknown-conversation", "unknown-file", *REJECTIONS),
    ),
)  # fmt: skip
