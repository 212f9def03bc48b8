"""Receipts over HTTP: what became of something that was sent."""

from typing import Any, Final, Literal

from msgspec import Struct

from hubbub.channels.http.wire.problems import Refusal
from hubbub.channels.http.wire.route import HttpAnswer
from hubbub.hub.receipt import Receipt

__all__ = ["RECEIPTS", "REJECTIONS", "ReceiptView", "answer_of", "refusal_of_receipt"]


class ReceiptView(Struct, frozen=True, kw_only=True):
    """What became of something that was sent.

    ``status`` is ``accepted`` (it is durable) or ``duplicate`` (it was, before; nothing was added).
    ``run_id`` is the run it is for, ``run_ids`` every run that it reaches, ``cursor`` the position
    behind it, also of a duplicate: the stream after that is what comes of it.  ``created``: the
    opening has begun a new run; one that was found is ``agent``'s, whichever was asked for.
    """

    status: Literal["accepted", "duplicate"]
    run_id: str = ""
    run_ids: tuple[str, ...] = ()
    cursor: str = ""
    created: bool = False
    agent: str = ""


RECEIPTS: Final = {202: ReceiptView, 200: ReceiptView}
"""The answers of what is answered by a receipt."""

_KINDS: Final = {
    "unknown": "unknown-run",
    "ended": "run-ended",
    "terminated": "run-ended",
    "inbox full": "inbox-full",
    "key reused": "key-reused",
    "ambiguous": "ambiguous",
    "answered": "prompt-over",
    "expired": "prompt-over",
    "hub closed": "closed",
    "agent gone": "refused",
    "prompt gone": "refused",
    "tool gone": "refused",
    "unreadable": "store-failed",
}

_REMEDIES: Final = {
    "unknown": "nothing is found by this address; GET /api/runs?ended=true, /api/conversations and "
    "/api/prompts list what there is",
    "inbox full": "as many messages wait as may; send again when the run has taken some",
    "ambiguous": "several runs are found by this address; send to one of run_ids",
    "hub closed": "the server ends; send again with the same key when it is back",
    "agent gone": "the server has no agent of the run's name any more",
    "unreadable": "the records of the run are damaged",
}
"""What a client over HTTP can do, where what a program or a shell can do is something else."""

REJECTIONS: Final = (
    "unknown-run", "run-ended", "inbox-full", "key-reused", "ambiguous", "refused", "closed",
    "store-failed",
)  # fmt: skip
"""The kinds of problem that a rejected receipt may be."""


async def answer_of(receipt: Receipt, *, unknown: str = "unknown-run") -> HttpAnswer:
    """The answer that says what became of it, once that is durable.

    Raises ``Refusal`` for a rejection; ``unknown`` is what was not found.
    """
    await receipt
    if receipt.rejected:
        raise refusal_of_receipt(receipt, unknown=unknown)
    view = ReceiptView(
        status="accepted" if receipt.accepted else "duplicate", run_id=receipt.run_id,
        run_ids=receipt.run_ids, cursor=receipt.cursor, created=receipt.created,
        agent=receipt.agent,
    )  # fmt: skip
    return HttpAnswer(status=202 if receipt.accepted else 200, content=view)


def refusal_of_receipt(receipt: Receipt, *, unknown: str = "unknown-run") -> Refusal:
    """What a rejected receipt is as a problem."""
    if receipt.failed_store:
        return Refusal("store-failed", receipt.reason)
    if receipt.reason.startswith("no agent named"):
        return Refusal("unknown-agent", receipt.reason)
    if receipt.reason.startswith("the run has no file"):
        return Refusal("unknown-file", receipt.reason)
    kind = _KINDS.get(receipt.reason, "refused")
    more: dict[str, Any] = {}
    if kind == "unknown-run":
        kind = unknown
    if kind == "inbox-full":
        more["headers"] = {"retry-after": "1"}
    if len(receipt.run_ids) > 1:
        more["run_ids"] = receipt.run_ids
    remedy = _REMEDIES.get(receipt.reason)
    detail = f"{receipt.reason}: {remedy}" if remedy else receipt.explanation
    return Refusal(kind, f"rejected: {detail}", **more)
