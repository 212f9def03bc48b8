"""``LedgerRow``: a run as its next commit finds it."""

from hubbub.hub.events import InLane
from hubbub.hub.events.descriptors import Descriptor
from hubbub.hub.store.journal import NewRun, RunInfo, RunStatus

__all__ = ["LedgerRow"]


class LedgerRow:
    """Who a run is, how far its lanes have come, and what waits for it.

    Changed by the ledger (``hub/store/ledger.py``); a store's own rows add what it needs.
    """

    __slots__ = (
        "agent", "created_at", "descriptor", "in_seq", "inbox", "messages", "name",
        "parent_run_id", "recent", "root_run_id", "run_id", "seq", "session_key", "status",
        "waiting", "wake_at",
    )  # fmt: skip

    def __init__(self, new: NewRun, at: int) -> None:
        self.run_id = new.run_id
        self.root_run_id = new.root_run_id
        self.parent_run_id = new.parent_run_id
        self.agent = new.agent
        self.name = new.name
        self.session_key = new.session_key
        self.descriptor: Descriptor | None = new.descriptor
        self.created_at = at
        self.wake_at = new.wake_at
        self.status: RunStatus = "active"
        self.inbox = "open"
        self.seq = 0
        self.in_seq = 0
        self.recent = 0
        """When a user spoke to it last (µs)."""
        self.waiting: dict[int, InLane] = {}
        self.messages = 0
        """Messages among ``waiting``: what ``Delivery.limit`` counts."""

    def info(self) -> RunInfo:
        return RunInfo(
            run_id=self.run_id, root_run_id=self.root_run_id, parent_run_id=self.parent_run_id,
            agent=self.agent, name=self.name, session_key=self.session_key, status=self.status,
            inbox=self.inbox,  # type: ignore[arg-type]
            waiting=len(self.waiting), created_at=self.created_at, wake_at=self.wake_at,
            descriptor=self.descriptor,
        )  # fmt: skip
