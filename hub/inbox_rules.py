"""The rules of an inbox, which every store keeps (H-07, H-09, P-14).

asked in this order                             else
─────────────────────────────────────────────   ──────────────────────────────
accepted before under its source and key        duplicate, or ``key reused``
the inbox is closed for such an item            ``ended``, ``terminated``
a message, but the run's agent is gone          ``agent gone``
as many messages wait as may                    ``inbox full``
"""

from typing import Final, Protocol, TypeVar

from msgspec import structs

from hubbub.hub.events import (
    Event,
    InLane,
    SessionMessage,
    SessionReply,
    SessionResult,
    SessionVariables,
)
from hubbub.hub.journal import Delivery, RunStatus

__all__ = ["InboxRow", "can_be_left_over", "found_instead", "judge", "numbered"]

E = TypeVar("E", bound=Event)


class InboxRow(Protocol):
    """What a store has of an address, as far as its inbox goes."""

    run_id: str
    root_run_id: str
    parent_run_id: str | None
    agent: str
    status: RunStatus
    inbox: str
    messages: int
    in_seq: int


def found_instead(row: InboxRow, delivery: Delivery) -> bool:
    """Settle what an opening means for the run it came to; whether that is all there is to do.

    Another run than the one to be made was found: it is told what the opener wanted to say.
    """
    new = delivery.new
    if new is None:
        return False
    if row.run_id != new.run_id and new.found is not None:
        delivery.event = new.found
        return False
    if row.in_seq:
        delivery.outcome = "duplicate"
        return True
    return False


def judge(row: InboxRow, delivery: Delivery, known: Event | None) -> bool:
    """Whether the inbox takes the delivery; if not, its outcome and reason say why.

    ``known`` is what was accepted under the delivery's source and key.
    """
    event = delivery.event
    # First of all: who repeats what was accepted is told so, whatever came since.
    if known is not None:
        same = isinstance(known, _ONCE) or _same(known, event)
        delivery.outcome = "duplicate" if same else "rejected"
        delivery.reason = "" if same else "key reused"
        return False
    if row.inbox != "open" and _is_closed(row, delivery, event):
        reason = "ended" if row.inbox == "closing" else row.inbox
    elif (
        delivery.agents is not None
        and isinstance(event, SessionMessage)
        and row.agent not in delivery.agents
    ):
        reason = "agent gone"
    elif delivery.limit and row.messages >= delivery.limit:
        reason = "inbox full"
    else:
        return True
    delivery.outcome, delivery.reason = "rejected", reason
    return False


def _is_closed(row: InboxRow, delivery: Delivery, event: InLane) -> bool:
    if row.status == "ended":
        return True
    if row.inbox == "closing":
        return isinstance(event, SessionMessage)
    return not (row.inbox == "terminated" and delivery.closes == "terminated")


def numbered(row: InboxRow, event: E) -> E:
    """``event`` as the next item of the run's in lane, which has been counted already."""
    return structs.replace(
        event,
        run_id=row.run_id,
        root_run_id=row.root_run_id,
        parent_run_id=row.parent_run_id,
        agent=row.agent,
        lane="in",
        seq=row.in_seq,
    )


def can_be_left_over(item: InLane) -> bool:
    """Whether somebody wants to hear that nobody will handle the item (T-09)."""
    return isinstance(item, SessionMessage | SessionResult | SessionReply)


_ONCE: Final = (SessionReply, SessionResult, SessionVariables)
"""What counts once whatever a second one says."""

_UNSTAMPED: Final = {
    "run_id": "", "root_run_id": "", "parent_run_id": None, "agent": "", "lane": "", "seq": 0,
}  # fmt: skip


def _same(known: Event, event: Event) -> bool:
    """Whether two items say the same: everything but when they came and where they stand."""
    return structs.replace(known, at=0, **_UNSTAMPED) == structs.replace(event, at=0, **_UNSTAMPED)
