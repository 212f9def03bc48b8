"""Which runs an interruption has reached: the run that it was sent to, and those that it waits for.

Who drives the run knows.  Of one that another process drives the store says it, as it was at the
item in the inbox: the receipt is settled when that is read.
"""

from collections.abc import Mapping

from hubbub.hub.delivery.dispatch import Owner
from hubbub.hub.errors import HubbubError
from hubbub.hub.receipt import Receipt
from hubbub.hub.store.journal import Commit, Journal
from hubbub.hub.store.sharing import sharing_of
from hubbub.hub.task_host import TaskHost

__all__ = ["settle_interruption"]


def settle_interruption(
    receipt: Receipt, commit: Commit, owner: Owner, journal: Journal, tasks: TaskHost
) -> None:
    """Settle the receipt of an interruption that is committed, with the runs that it reaches."""
    sharing = sharing_of(journal)
    elsewhere: dict[str, int] = {}
    if sharing is not None:
        items = (event for event in commit.written if event.lane == "in")
        elsewhere = {x.run_id: x.seq for x in items if not sharing.owns(x.root_run_id)}
    if elsewhere and tasks.is_open:
        tasks.start(
            _settle_later(receipt, commit, owner, elsewhere),
            name="hubbub interruption",
            steady=True,
        )
        return
    delivery = commit.deliveries[0]
    reached = [each for run in delivery.run_ids for each in owner.interrupted_with(run)]
    receipt.run_ids = tuple(dict.fromkeys(reached))
    receipt.settle(delivery.outcome or "rejected", delivery.reason)


async def _settle_later(
    receipt: Receipt, commit: Commit, owner: Owner, elsewhere: Mapping[str, int]
) -> None:
    delivery = commit.deliveries[0]
    reached: list[str] = []
    try:
        for run_id in delivery.run_ids:
            reached.append(run_id)
            try:
                if run_id in elsewhere:
                    reached += await owner.interrupted_elsewhere(run_id, elsewhere[run_id])
                else:
                    reached += owner.interrupted_with(run_id)
            except HubbubError:  # What cannot be read was interrupted all the same.
                continue
        receipt.run_ids = tuple(dict.fromkeys(reached))
    finally:
        receipt.settle(delivery.outcome or "rejected", delivery.reason)
