"""Receipts: what became of something that was sent."""

from collections.abc import Callable, Generator
from typing import Any, Literal, TypeAlias

import anyio

from hubbub.hub.errors import CallerError, Closed, RunEnded, StoreFailed, UnknownRun

__all__ = ["Receipt", "ReceiptStatus"]

ReceiptStatus: TypeAlias = Literal["pending", "accepted", "duplicate", "rejected"]


class Receipt:
    """What became of a message, a reply, an opening or an interruption.

    The call that returned it has acted already; awaiting the receipt is optional and returns
    the receipt itself once the outcome is durable.

    * ``accepted``: it is in the run's inbox, durably, and will be handled or reported as one
      ``hub:dead_letter``.
    * ``duplicate``: the same source and key (or run id) was accepted before; nothing was added.
    * ``rejected``: nothing was added; ``reason`` is ``unknown``, ``ended``, ``terminated``,
      ``inbox full``, ``key reused``, ``ambiguous``, ``answered``, ``expired``, ``hub closed``,
      ``agent gone``, ``prompt gone``, ``tool gone``, ``unreadable`` or a sentence.
    """

    __slots__ = (
        "_waiter", "_watcher", "cursor", "failed_store", "reason", "run_id", "run_ids", "status",
    )  # fmt: skip

    def __init__(
        self, status: ReceiptStatus = "pending", reason: str = "", run_id: str = ""
    ) -> None:
        self.status: ReceiptStatus = status
        self.reason = reason
        self.run_id = run_id
        self.run_ids: tuple[str, ...] = (run_id,) if run_id else ()
        self.cursor = ""
        self.failed_store = ""
        """The store that could not do it, if that is why it was rejected."""
        self._waiter: anyio.Event | None = None
        self._watcher: Callable[[Receipt], None] | None = None

    @property
    def accepted(self) -> bool:
        """Whether it is in the inbox, durably."""
        return self.status == "accepted"

    @property
    def rejected(self) -> bool:
        """Whether nothing was added, for ``reason``."""
        return self.status == "rejected"

    @property
    def duplicate(self) -> bool:
        """Whether it was accepted before."""
        return self.status == "duplicate"

    def raise_if_rejected(self) -> "Receipt":
        """Raise ``UnknownRun``, ``RunEnded``, ``Closed``, ``StoreFailed`` or ``CallerError`` for
        a rejection."""
        if self.status != "rejected":
            return self
        if self.failed_store:
            raise StoreFailed(self.failed_store, self.reason)
        if self.reason == "unknown":
            raise UnknownRun(self.run_id)
        if self.reason in ("ended", "terminated"):
            raise RunEnded(self.run_id, self.reason)
        if self.reason == "hub closed":
            raise Closed("the hub")
        raise CallerError(f"rejected: {self.reason}")

    def __await__(self) -> Generator[Any, Any, "Receipt"]:
        if self.status == "pending":
            if self._waiter is None:
                self._waiter = anyio.Event()
            yield from self._waiter.wait().__await__()
        return self

    def settle(self, status: ReceiptStatus, reason: str = "") -> None:
        """Record the outcome; the hub calls this once."""
        self.status = status
        self.reason = reason
        if self._waiter is not None:
            self._waiter.set()
        if self._watcher is not None:
            self._watcher(self)

    def watch(self, watcher: "Callable[[Receipt], None]") -> None:
        """Call ``watcher`` once the outcome is known; for the hub's own parts."""
        first = self._watcher
        if first is None:
            self._watcher = watcher
            return

        def both(receipt: Receipt) -> None:
            first(receipt)
            watcher(receipt)

        self._watcher = both

    def __repr__(self) -> str:
        detail = f" ({self.reason})" if self.reason else ""
        return f"<Receipt {self.status}{detail} run_id={self.run_id}>"
