"""Dead letters: what nobody will handle, told once as ``hub:dead_letter``.

Only what somebody counts on becomes one: a message, that of a reset too, a child's result, a reply,
and an opening that is refused.  One that was accepted has an outcome with its run.
"""

from hubbub.hub.events import HubDeadLetter, InLane, SessionOpen
from hubbub.hub.logs import log
from hubbub.hub.store.inbox_rules import can_be_left_over
from hubbub.hub.store.journal import Commit

__all__ = ["dead_letter_of", "unhandled"]


def dead_letter_of(to: str, reason: str, event: InLane, *, at: int) -> HubDeadLetter | None:
    """The letter that says so of an item for run ``to``; ``None`` where nobody counts on it."""
    if not (can_be_left_over(event) or isinstance(event, SessionOpen)):
        return None
    log.info("message.undeliverable", to=to, reason=reason)
    return HubDeadLetter(
        to=to, reason=reason, message=event, at=at, run_id=to, root_run_id=event.root_run_id,
        agent=event.agent,
    )  # fmt: skip


def unhandled(commit: Commit) -> list[tuple[str, str, InLane]]:
    """What nobody will handle because of a commit: for whom it was, why, and what.

    Without a receipt nobody hears otherwise that a delivery was rejected, but for an opening: who
    opens a child has the reason with the commit.  And a run that ends leaves what its inbox still
    holds.
    """
    found: list[tuple[str, str, InLane]] = []
    if commit.receipt is None:
        for each in commit.deliveries:
            if each.outcome == "rejected" and not isinstance(each.event, SessionOpen):
                found += [(each.to, each.reason, each.event)]
    if commit.leftovers and commit.status == "ended":
        ending = commit.events[-1] if commit.events else None
        reason = "terminated" if getattr(ending, "outcome", "") == "terminated" else "ended"
        found += [(commit.run_id, reason, item) for item in commit.leftovers]
    return found
