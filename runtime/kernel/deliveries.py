"""``deliveries_of``: what a run's commit sends to others."""

from collections.abc import Iterable

from hubbub.hub import events as e
from hubbub.hub.events import InLane
from hubbub.hub.own_lane import OwnLane
from hubbub.hub.store.journal import Delivery
from hubbub.runtime.kernel.services import Services

__all__ = ["deliveries_of"]


def deliveries_of(
    mail: Iterable[tuple[str, InLane]], lane: OwnLane, services: Services
) -> tuple[Delivery, ...]:
    """Results, messages and starts of children, addressed; starts count in the tree's budget."""
    hub, budgets = services.hub, services.budgets
    made = []
    ends = False
    for to, event in mail:
        if isinstance(event, e.SessionTerminate):
            # It ends terminated: so does every run left below, those of ended ones included.
            if not ends and budgets.has_children(lane.root_run_id):
                below = hub.delivery(event, to=lane.run_id)
                below.by = "below"
                made.append(below)
            ends = True
            continue
        delivery = hub.delivery(event, to=to)
        delivery.limit = 0  # Between members of a family nothing is refused for a full inbox.
        if isinstance(event, e.SessionOpen):
            budgets.started(lane.root_run_id)
        made.append(delivery)
    return tuple(made)
