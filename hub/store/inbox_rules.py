"""The rules of an inbox, which every store keeps.

asked in this order                             else
─────────────────────────────────────────────   ──────────────────────────────
accepted before under its source and key        duplicate, or ``key reused``
the inbox is closed for such an item            ``ended``, ``terminated``
a message, but the run's agent is gone          ``agent gone``
as many messages wait as may                    ``inbox full``

An opening is for the run that there is already (``NewRun``), unless it brings what that cannot
have (``NewRun.refusal_of_found``): by its id it is a duplicate, unless what it says has a key of
its own, which is judged like any other message's.  A child from outside needs an open parent.

The first of several endings counts, in the order of the store: after the end of a run a
termination is refused, and after a termination no end is written that does not take it.

Of an item that has gone, behind a base of its run, its key is known, and what it said by a number
(``Settled``): it is a duplicate as before.

What waits leaves an inbox as a whole or not at all: taken by its owner, lent to another run of
its tree (``Commit.lent``), or moved when its run ends (``Commit.leave_to``).  A message that is
taken for an answer comes back where another answer was first (``Commit.again``).  What is moved or
comes back is a new item: accepted already, so neither a limit nor a key is asked for again.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from msgspec import structs

from hubbub.hub.events import (
    AgentBase,
    Event,
    InLane,
    SessionMessage,
    SessionOpen,
    SessionReply,
    SessionReset,
    SessionResult,
    SessionTerminate,
    SessionVariables,
)
from hubbub.hub.events.codec import encode_event
from hubbub.hub.store.journal import Commit, Delivery, NewRun, RequestKey
from hubbub.hub.store.ledger_row import LedgerRow, Settled

__all__ = [
    "MAX_NUMBER", "can_be_left_over", "counted", "found_instead", "is_overtaken",
    "is_refused", "judge", "lenders", "moved", "noted", "number_of",
    "numbered", "placed", "read_noted", "successor_of", "take_out", "without_key",
]  # fmt: skip

E = TypeVar("E", bound=Event)
R = TypeVar("R", bound=LedgerRow)


def found_instead(row: LedgerRow, delivery: Delivery) -> bool:
    """Settle what an opening means for the run it came to; whether that is all there is to do.

    Another run than the one to be created was found: it gets what the opener wanted to say.
    """
    new = delivery.new
    if new is None:
        return False
    if not row.in_seq:
        return False
    if new.refusal_of_found is not None and (problem := new.refusal_of_found(row.run_id)):
        delivery.outcome, delivery.reason = "rejected", problem
        return True
    if row.run_id != new.run_id and new.found is not None:
        delivery.event = new.found
        return False
    opening = delivery.event
    if delivery.key and isinstance(opening, SessionOpen):
        assert opening.message is not None, "what else would the key be of"
        delivery.event = structs.replace(opening.message, at=opening.at)
        return False
    delivery.outcome, delivery.first = "duplicate", (row.run_id, "in", 1)
    return True


def placed(
    new: NewRun, delivery: Delivery, find: Callable[[str], LedgerRow | None]
) -> NewRun | None:
    """A child that names its parent alone, where it stands; ``None``, and refused, if it cannot."""
    parent = find(new.parent_run_id or "")
    if parent is not None and parent.inbox == "open" and parent.status != "ended":
        return structs.replace(new, root_run_id=parent.root_run_id)
    delivery.outcome = "rejected"
    delivery.reason = f"there is no open run {new.parent_run_id!r} to be its parent"
    return None


def without_key(new: NewRun, delivery: Delivery) -> NewRun:
    """An opening by a descriptor whose key is another run's (``NewRun.by_descriptor``)."""
    if isinstance(delivery.event, SessionOpen):  # What opened it says the same of it.
        delivery.event = structs.replace(delivery.event, session_key="")
    return structs.replace(new, session_key="")


def judge(row: LedgerRow, delivery: Delivery, known: Event | Settled | None) -> bool:
    """Whether the inbox takes the delivery; if not, its outcome and reason say why.

    ``known`` is what was accepted under the delivery's source and key.
    """
    event = delivery.event
    # First of all: a repeated item is reported as a duplicate, even if the run has since ended.
    if known is not None:
        if isinstance(known, Settled):
            delivery.first = (row.run_id, "in", 0)  # Nowhere any more.
            same = known.number in (ONCE, number_of(event))
        else:
            delivery.first = (known.run_id, known.lane, known.seq)
            said = _said(known)
            same = isinstance(said, _ONCE) or _same(said, event)
        delivery.outcome = "duplicate" if same else "rejected"
        delivery.reason = "" if same else "key reused"
        return False
    if row.inbox != "open" and _is_closed(row, delivery, event):
        reason = "ended" if row.inbox == "closing" else row.inbox
    elif (
        delivery.agents is not None
        and event.__class__ is SessionMessage
        and row.agent not in delivery.agents
    ):
        reason = "agent gone"
    elif delivery.limit and row.messages >= delivery.limit:
        reason = "inbox full"
    else:
        return True
    delivery.outcome, delivery.reason = "rejected", reason
    return False


def _is_closed(row: LedgerRow, delivery: Delivery, event: InLane) -> bool:
    if row.status == "ended":
        return True
    if row.inbox == "closing":
        return isinstance(event, SessionMessage) or (
            isinstance(event, SessionReset) and event.message != ""
        )
    return not (row.inbox == "terminated" and delivery.closes == "terminated")


def is_refused(delivery: Delivery, problem: str) -> bool:
    """Reject what names contents, or files, that are not there."""
    if problem:
        delivery.outcome, delivery.reason = "rejected", problem
    return problem != ""


def is_overtaken(row: LedgerRow, commit: Commit) -> bool:
    """Whether a termination was accepted before a commit that ends the run in another way.

    What is terminated ends terminated, and all below it: the run has to take it.
    """
    found = [seq for seq, item in row.waiting.items() if item.__class__ is SessionTerminate]
    return bool(found) and not any(seq in commit.taken for seq in found)


def numbered(row: LedgerRow, event: E) -> E:
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


def counted(row: LedgerRow, events: Sequence[Event]) -> Sequence[Event]:
    """Records of which the first one is a base, which says how many items came before it."""
    base, *others = events
    assert isinstance(base, AgentBase)
    return (structs.replace(base, inbox=row.in_seq), *others)


def number_of(item: Event) -> int:
    """What an item says, as a number from 1 to 2**62; ``ONCE`` for what counts once whatever it
    says."""
    said = _said(item)
    if isinstance(said, _ONCE):
        return ONCE
    body = encode_event(structs.replace(said, at=0, **_UNSTAMPED))
    return ONCE + 1 + (int.from_bytes(hashlib.sha256(body).digest()[:8], "big") >> 3)


def _said(item: Event) -> Event:
    """What counts of an item: of an opening the message that it brings."""
    is_opening = isinstance(item, SessionOpen) and item.message is not None
    return item.message if is_opening else item  # type: ignore[attr-defined]


def noted(item: InLane, request: RequestKey) -> str:
    """What is noted of a request: where its item stands, and what it said."""
    return f"{item.run_id} {item.seq} {request.digest}"


def read_noted(note: str) -> tuple[str, int, str] | None:
    """The run, the number of the item, and the digest; ``None`` where none of our notes is."""
    run_id, seq, digest = (*note.split(" ", 2), "", "")[:3]
    if not (seq.isascii() and seq.isdecimal() and len(seq) < 19):
        return None
    return run_id, int(seq), digest


def can_be_left_over(item: InLane) -> bool:
    """Whether somebody wants to hear that nobody will handle the item."""
    if isinstance(item, SessionReset):
        return item.message != ""
    if isinstance(item, SessionResult):
        return not item.only_ends
    return isinstance(item, SessionMessage | SessionReply)


def lenders(
    commit: Commit, borrower: R, find: Callable[[str], R | None]
) -> list[tuple[R, int]] | None:
    """Where the items wait that a commit takes from other inboxes of its tree.

    ``None`` if one of them does not, or not any more: then the whole commit is a conflict.
    """
    if len(set(commit.lent)) < len(commit.lent):
        return None
    found = []
    for run_id, seq in commit.lent:
        row = find(run_id)
        if (
            row is None
            or row is borrower
            or row.root_run_id != borrower.root_run_id
            or row.status == "ended"
            or seq not in row.waiting
        ):
            return None
        found.append((row, seq))
    return found


def take_out(row: LedgerRow, seq: int) -> None:
    """An item does not wait any more."""
    if row.waiting.pop(seq).__class__ is SessionMessage:
        row.messages -= 1


def successor_of(commit: Commit, find: Callable[[str], R | None]) -> R | None:
    """Where a commit's leftovers go: to the run that it names, or, if that is over, the one below.

    A stack that is unwound ends from below.
    """
    row = find(commit.leave_to) if commit.leave_to != commit.run_id else None
    seen = {commit.run_id, commit.leave_to}
    while row is not None and row.status == "ended" and row.parent_run_id is not None:
        if row.parent_run_id in seen:  # Damage: nobody has what is left.
            return None
        seen.add(row.parent_run_id)
        row = find(row.parent_run_id)
    return row


def moved(commit: Commit, heir: LedgerRow | None) -> list[SessionMessage]:
    """The messages among a commit's leftovers as the next items of ``heir``, in order.

    They are leftovers no more.  An heir that takes no messages gets none.
    """
    if heir is None or heir.status == "ended" or heir.inbox != "open":
        return []
    found = [moved_to(heir, x) for x in commit.leftovers if isinstance(x, SessionMessage)]
    commit.leftovers = [x for x in commit.leftovers if not isinstance(x, SessionMessage)]
    return found


def moved_to(row: LedgerRow, said: SessionMessage) -> SessionMessage:
    """A message that was accepted before, as the next item of ``row``."""
    row.in_seq += 1
    # Judged under its key where it was sent to; here that key is free.
    return numbered(row, structs.replace(said, key=""))


ONCE: Final = 1
MAX_NUMBER: Final = 1 << 62

_ONCE: Final = (SessionReply, SessionResult, SessionVariables)
"""What counts once whatever a second one says."""

_UNSTAMPED: Final = {
    "run_id": "", "root_run_id": "", "parent_run_id": None, "agent": "", "lane": "", "seq": 0,
}  # fmt: skip


def _same(known: Event, event: Event) -> bool:
    """Whether two items say the same: everything but when they came and where they are."""
    return structs.replace(known, at=0, **_UNSTAMPED) == structs.replace(event, at=0, **_UNSTAMPED)
