"""Prompts: what people are asked, and their answers.

The first answer counts.  The same one sent again with the header ``Idempotency-Key`` is found on
record and is a duplicate; anything else is told that the prompt is over.
"""

from typing import Final

from msgspec import UNSET, Struct

from hubbub.channels.http.api.views import PromptView
from hubbub.channels.http.wire.host import SOURCE
from hubbub.channels.http.wire.objects import JsonObject, object_in
from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.receipts import (
    RECEIPTS,
    REJECTIONS,
    ReceiptView,
    answer_of,
    refusal_of_receipt,
)
from hubbub.channels.http.wire.route import HttpAnswer, HttpCall, Route
from hubbub.channels.http.wire.runtime_answers import ask_runtime
from hubbub.hub.delivery.ended_prompts import asker_of
from hubbub.hub.events import SessionReply
from hubbub.hub.events.sent_items import MAX_ARGUMENTS_CHARS
from hubbub.hub.receipt import Receipt
from hubbub.hub.values import encode_value

__all__ = ["ROUTES", "ApproveBody", "DenyBody", "ReplyBody"]


class PromptList(Struct, frozen=True):
    """What people are asked, the oldest first."""

    prompts: tuple[PromptView, ...]


class ReplyBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer, or the result of an external tool; with ``is_error`` its failure."""

    content: str
    is_error: bool = False


class ApproveBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments to run the call with instead of the model's."""

    arguments: JsonObject = UNSET


class DenyBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why; the model reads it."""

    reason: str = ""


async def list_prompts(call: HttpCall) -> HttpAnswer:
    """What people are asked."""
    return HttpAnswer(content={"prompts": await ask_runtime(call.hub, "prompts")})


async def reply(call: HttpCall) -> HttpAnswer:
    """Answer a prompt."""
    body, prompt_id = call.body, call.path["prompt_id"]
    receipt = call.hub.reply(prompt_id, body.content, is_error=body.is_error, source=SOURCE)
    return await _answer(call, receipt, SessionReply(content=body.content, is_error=body.is_error))


async def approve(call: HttpCall) -> HttpAnswer:
    """Approve the call that a prompt is about."""
    arguments = object_in("arguments", call.body.arguments, MAX_ARGUMENTS_CHARS)
    receipt = call.hub.approve(call.path["prompt_id"], arguments, source=SOURCE)
    said = SessionReply(decision="approve", arguments_json=encode_value("arguments", arguments))
    return await _answer(call, receipt, said)


async def deny(call: HttpCall) -> HttpAnswer:
    """Refuse what a prompt asks for."""
    receipt = call.hub.deny(call.path["prompt_id"], call.body.reason, source=SOURCE)
    said = SessionReply(decision="deny", content=call.body.reason)
    return await _answer(call, receipt, said)


async def _answer(call: HttpCall, receipt: Receipt, said: SessionReply) -> HttpAnswer:
    await receipt
    if not receipt.rejected:
        return await answer_of(receipt)
    refusal = refusal_of_receipt(receipt, unknown="unknown-prompt")
    if refusal.kind not in ("refused", "prompt-over"):
        raise refusal
    found = await _recorded(call)
    if found is None:
        raise refusal
    if call.key and found.source == SOURCE and _form(found) == _form(said):
        return HttpAnswer(content=ReceiptView(status="duplicate", run_id=found.run_id))
    raise Refusal("prompt-over", refusal.detail)


def _form(reply: SessionReply) -> tuple[object, ...]:
    """What makes two answers the same."""
    return reply.decision, reply.content, reply.is_error, bytes(reply.arguments_json)


async def _recorded(call: HttpCall) -> SessionReply | None:
    """The answer that a prompt has had, if its run has it on record."""
    prompt_id = call.path["prompt_id"]
    for event in await call.hub.read(asker_of(prompt_id), types=SessionReply.type):
        if isinstance(event, SessionReply) and event.prompt_id == prompt_id:
            return event
    return None


_PROBLEMS: Final = ("unknown-prompt", "prompt-over", *REJECTIONS)

ROUTES: Final = (
    Route(
        method="GET", path="/api/prompts", summary="What people are asked", handler=list_prompts,
        answers={200: PromptList}, problems=("no-runtime",),
    ),
    Route(
        method="POST", path="/api/prompts/{prompt_id}/reply", summary="Answer a prompt",
        handler=reply, body=ReplyBody, is_keyed=True, answers=RECEIPTS, problems=_PROBLEMS,
    ),
    Route(
        method="POST", path="/api/prompts/{prompt_id}/approve", summary="Approve a call",
        handler=approve, body=ApproveBody, is_keyed=True, answers=RECEIPTS, problems=_PROBLEMS,
    ),
    Route(
        method="POST", path="/api/prompts/{prompt_id}/deny", summary="Refuse a call or a question",
        handler=deny, body=DenyBody, is_keyed=True, answers=RECEIPTS, problems=_PROBLEMS,
    ),
)  # fmt: skip
