"""Which passes a runtime makes."""

from typing import TYPE_CHECKING

from hubbub.hub.errors import BadValue
from hubbub.hub.near_misses import kind_of
from hubbub.hub.store.store import removals_of
from hubbub.runtime.kernel.services import Services
from hubbub.runtime.stores.retention.retention import Retention

if TYPE_CHECKING:
    from hubbub.runtime.removal.passes import RetentionPasses

__all__ = ["retention_passes"]


def retention_passes(services: Services, retention: Retention | None) -> "RetentionPasses | None":
    """The passes of a runtime with a retention; ``None`` where everything is kept.

    Raises ``BadValue`` for what is no ``Retention``, and for a store from which nothing goes while
    runtimes are at work on it.
    """
    if retention is None:
        return None
    if not isinstance(retention, Retention):
        raise BadValue("retention", f"expected a Retention, not {kind_of(retention)}")
    store = removals_of(services.hub.journal)
    if store is None:
        raise BadValue(
            "retention", "nothing goes from this store beside a runtime; use hubbub prune at rest"
        )
    from hubbub.runtime.removal.passes import RetentionPasses

    return RetentionPasses(services, retention, store)
