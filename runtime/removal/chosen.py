"""Which passes a runtime makes."""

from typing import TYPE_CHECKING

from hubbub.hub.errors import BadValue
from hubbub.hub.near_misses import kind_of
from hubbub.hub.store.store import cuts_lanes, removals_of
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.stores.retention.retention import Retention

if TYPE_CHECKING:
    from hubbub.runtime.removal.passes import RetentionPasses

__all__ = ["kept_turns", "retention_passes"]


def kept_turns(retention: Retention | None) -> int:
    """How many turns of a run at work are kept at least; 0 for all."""
    return (retention.keep_turns or 0) if isinstance(retention, Retention) else 0


def retention_passes(
    services: Services, retention: Retention | None, *, is_worker: bool
) -> "RetentionPasses | None":
    """The passes of a runtime with a retention; ``None`` where everything is kept.

    Raises ``BadValue`` for what is no ``Retention``, for a process that only carries channels, and
    for a store from which nothing goes while runtimes are at work on it.
    """
    if retention is None:
        return None
    if not isinstance(retention, Retention):
        raise BadValue("retention", f"expected a Retention, not {kind_of(retention)}")
    if not is_worker:
        raise BadValue("retention", 'a process with role="channel" removes nothing; tell a worker')
    store = removals_of(services.hub.journal)
    if store is None:
        raise BadValue(
            "retention", "nothing goes from this store beside a runtime; use hubbub prune at rest"
        )
    if retention.keep_turns is not None and not cuts_lanes(services.hub.journal):
        raise BadValue(
            "keep_turns", "old turns of runs at work do not go from this store; leave it out"
        )
    from hubbub.runtime.removal.passes import RetentionPasses

    return RetentionPasses(services, retention, store)
