"""What is said to runs, and how they are stopped."""

from typing import Any, Final

from msgspec import Struct

from hubbub.channels.http.wire.host import SOURCE
from hubbub.channels.http.wire.parts import PartBody, parts_shown
from hubbub.channels.http.wire.receipts import RECEIPTS, REJECTIONS, answer_of
from hubbub.channels.http.wire.route import HttpAnswer, HttpCall, Route
from hubbub.hub.message import Message

__all__ = ["ROUTES", "MessageBody", "keyed"]


class MessageBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message.

    ``key`` makes sending idempotent: sent again it is a duplicate.  The header ``Idempotency-Key``
    is the same.  ``attachments`` are names of files of the run, which it must have; ``silent``
    hides the message from people, the model sees it.  ``parts`` are shown to the model beside the
    text.
    """

    content: str
    role: str = "user"
    attachments: tuple[str, ...] = ()
    silent: bool = False
    metadata: dict[str, Any] = {}
    key: str | None = None
    parts: tuple[PartBody, ...] = ()


class ResetBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the conversation begins with, if anything."""

    message: str = ""


class ReasonBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why."""

    reason: str = ""


def keyed(call: HttpCall, body: MessageBody) -> Message:
    """The message that a request brings, with its key."""
    return Message(
        content=body.content, role=body.role, attachments=body.attachments, silent=body.silent,
        metadata=body.metadata, key=body.key or call.key or None, parts=parts_shown(body.parts),
    )  # fmt: skip


async def send_to_run(call: HttpCall) -> HttpAnswer:
    """Send a message to a run."""
    message = keyed(call, call.body)
    return await answer_of(call.hub.send_to_run(call.path["run_id"], message, source=SOURCE))


async def interrupt(call: HttpCall) -> HttpAnswer:
    """Interrupt the turn at work."""
    return await answer_of(call.hub.interrupt(call.path["run_id"], call.body.reason))


async def close(call: HttpCall) -> HttpAnswer:
    """Accept no more messages, handle what waits, then end the run."""
    return await answer_of(call.hub.close_run(call.path["run_id"], call.body.reason))


async def terminate(call: HttpCall) -> HttpAnswer:
    """End a run and what is below it, now and permanently."""
    hub, run_id = call.hub, call.path["run_id"]
    # Read before the run can act on it: what ends with it is live now.
    below = await hub.journal.find(run_id, "below")
    receipt = hub.terminate(run_id, call.body.reason)
    await receipt
    if receipt.accepted:
        receipt.run_ids = (run_id, *below)
    return await answer_of(receipt)


async def reset(call: HttpCall) -> HttpAnswer:
    """Begin a run's conversation anew."""
    run_id = call.path["run_id"]
    receipt = call.hub.reset(run_id, call.body.message, request=call.request("reset", run_id))
    return await answer_of(receipt)


async def compact(call: HttpCall) -> HttpAnswer:
    """Have a summary take the place of a run's older messages."""
    return await answer_of(call.hub.compact(call.path["run_id"]))


ROUTES: Final = (
    Route(
        method="POST", path="/api/runs/{run_id}/messages", summary="Send a message to a run",
        handler=send_to_run, body=MessageBody, is_keyed=True, answers=RECEIPTS,
        problems=("unknown-file", *REJECTIONS),
    ),
    Route(
        method="POST", path="/api/runs/{run_id}/interrupt", summary="Interrupt the turn at work",
        handler=interrupt, body=ReasonBody, answers=RECEIPTS, problems=REJECTIONS,
    ),
    Route(
        method="POST", path="/api/runs/{run_id}/close",
        summary="Handle what waits, then end the run",
        handler=close, body=ReasonBody, answers=RECEIPTS, problems=REJECTIONS,
    ),
    Route(
        method="POST", path="/api/runs/{run_id}/terminate", summary="End the run now",
        handler=terminate, body=ReasonBody, answers=RECEIPTS, problems=REJECTIONS,
    ),
    Route(
        method="POST", path="/api/runs/{run_id}/reset", summary="Begin its conversation anew",
        handler=reset, body=ResetBody, is_keyed=True, answers=RECEIPTS, problems=REJECTIONS,
    ),
    Route(
        method="POST", path="/api/runs/{run_id}/compact",
        summary="Have a summary take the place of its older messages",
        handler=compact, answers=RECEIPTS, problems=REJECTIONS,
    ),
)  # fmt: skip
