"""``LedgerRow``: a run as its next commit finds it; ``Rows``: how a ledger asks for them."""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from hubbub.hub.events import Event, InLane
from hubbub.hub.events.descriptors import Descriptor
from hubbub.hub.store.journal import Addressing, NewRun, RunInfo, RunStatus

__all__ = ["LedgerRow", "Rows", "Settled"]

R = TypeVar("R", bound="LedgerRow")


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


class Settled(Struct, frozen=True):
    """What is known of an item that has gone: what it said, as a number (``number_of``)."""

    number: int


class Rows(Protocol[R]):
    """The rows of a store, as they are with everything that its ledger has decided.

    ``find`` and ``known`` raise ``BadValue`` for what is damaged: that fails the commit, or the
    one delivery, that needs it.
    """

    def find(self, run_id: str, /) -> R | None:
        """The row of a run; the same object each time until the store has kept its changes."""
        ...

    def create(self, new: NewRun, at: int) -> R:
        """The row of a run that there is from now on."""
        ...

    def candidates(self, to: str, by: Addressing) -> Sequence[str]:
        """The runs that an address is meant for."""
        ...

    def opened(self, new: NewRun) -> str | None:
        """The open run that an opening is for, by its key or its descriptor."""
        ...

    def is_key_free(self, session_key: str) -> bool:
        """Whether no open run is found by the key."""
        ...

    def known(self, row: R, source: str, key: str) -> InLane | Settled | None:
        """What the run's inbox has accepted under a source and key, for as long as the run is
        kept; asked of ended runs, too."""
        ...

    def requested(self, name: str) -> str:
        """What was noted of a request (``RequestKey``); empty where nothing was."""
        ...

    def own_lane(self, row: R) -> Iterable[Event]:
        """What the run's own lane holds, as far as the store has it."""
        ...

    def noted(self, key: str) -> str:
        """What commits have noted under a key; empty where nothing was."""
        ...

    def forget(self, run_id: str, /) -> object:
        """There is no such run from now on."""
        ...

    def readdress(self, row: R) -> None:
        """Its agent, status, inbox, or how recently a user spoke to it has changed."""
        ...
