"""Receipts: what became of something that was sent."""

from collections.abc import Callable, Generator
from typing import Any, Final, Literal, TypeAlias

import anyio

from hubbub.hub.errors import CallerError, Closed, RunEnded, StoreFailed, UnknownRun
from hubbub.hub.home_loop import HomeLoop

__all__ = ["REMEDIES", "Receipt", "ReceiptStatus"]

ReceiptStatus: TypeAlias = Literal["pending", "accepted", "duplicate", "rejected"]

REMEDIES: Final = {
    "unknown": "no run, conversation or prompt is found by this address; `hubbub runs --all` and "
    "`hubbub reply` list those that there are",
    "ended": "the run is over, or takes no more messages because it is being closed; open a new "
    "one",
    "terminated": "the run has been terminated; open a new one",
    "inbox full": "as many messages wait as may; send again when the run has taken some, or give "
    "Runtime(max_inbox=…)",
    "key reused": "the key was used before, by the same source, for something else; "
    "to repeat what was said send it unchanged, and give what is new a key of its own",
    "ambiguous": "several runs are found by this address; send_to_run one of receipt.run_ids",
    "answered": "the prompt has its answer; only the first reply counts",
    "expired": "the prompt was to be answered sooner; its timeout is set where it is asked",
    "hub closed": "open a new hub or runtime, and send again with the same key",
    "agent gone": "the runtime knows no agent of the run's name any more; add it to agents=[…]",
    "prompt gone": "the agent has no prompt any more that the run needs; give it back",
    "tool gone": "the agent has no tool any more that the run's open call needs; give it back",
    "unreadable": "the records of the run are damaged; `hubbub fsck` examines the store",
}
"""What to do about each reason of a rejection that is no sentence."""


_REMEDY: Final = "await it in the loop where it was sent; what was sent needs no awaiting"


class Receipt:
    """What became of a message, a reply, an opening or an interruption.

    The call that returned it has acted already; awaiting the receipt is optional and returns
    the receipt itself once the outcome is durable.

    * ``accepted``: it is in the run's inbox, durably, and will be handled or reported as one
      ``hub:dead_letter``.
    * ``duplicate``: the same source and key (or run id) was accepted before; nothing was added.
    * ``rejected``: nothing was added; ``reason`` is ``unknown``, ``ended``, ``terminated``,
      ``inbox full``, ``key reused``, ``ambiguous``, ``answered``, ``expired``, ``hub closed``,
      ``agent gone``, ``prompt gone``, ``tool gone``, ``unreadable`` or a sentence;
      ``explanation`` says what to do.
    """

    # What most never have is the class's until then: one is made for each thing that is sent.
    run_ids: tuple[str, ...] = ()
    agent: str = ""
    """Of what was accepted: whose run has it, whichever agent an opening has named."""
    created: bool = False
    """Whether an opening has begun the run; a run that is found keeps its history and tools."""
    cursor: str = ""
    key: str = ""
    """The key by which what was sent counts once, if any; of a reply its prompt's id."""
    failed_store: str = ""
    """The store that could not do it, if that is why it was rejected."""
    home: HomeLoop | None = None
    """Where it is settled, if that is still to come."""
    _waiter: anyio.Event | None = None
    _watcher: "Callable[[Receipt], None] | None" = None

    def __init__(
        self, status: ReceiptStatus = "pending", reason: str = "", run_id: str = ""
    ) -> None:
        self.status: ReceiptStatus = status
        self.reason = reason
        self.run_id = run_id
        if run_id:
            self.run_ids = (run_id,)

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

    @property
    def explanation(self) -> str:
        """Why it was rejected and what to do, as a sentence; empty unless it was."""
        remedy = REMEDIES.get(self.reason, "") if self.status == "rejected" else ""
        if not remedy:
            return self.reason
        about = f" ({self.key!r})" if self.key and self.reason == "key reused" else ""
        return f"{self.reason}{about}: {remedy}"

    def raise_if_rejected(self) -> "Receipt":
        """Raise ``UnknownRun``, ``RunEnded``, ``Closed``, ``StoreFailed`` or ``CallerError`` for
        a rejection."""
        if self.status != "rejected":
            return self
        if self.failed_store:
            raise StoreFailed(self.failed_store, self.reason)
        if self.reason == "unknown" and self.run_id:
            raise UnknownRun(self.run_id)
        if self.reason in ("ended", "terminated"):
            raise RunEnded(self.run_id, self.reason)
        if self.reason == "hub closed":
            raise Closed("the hub")
        raise CallerError(f"rejected: {self.explanation}")

    def __await__(self) -> Generator[Any, Any, "Receipt"]:
        if self.status == "pending":
            if self.home is not None:
                self.home.check("awaiting a receipt", _REMEDY)
            if self._waiter is None:
                self._waiter = (self.home.make_event if self.home else anyio.Event)()
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
        """Call ``watcher`` once the outcome is known, or now if it is; for the hub's own parts."""
        if self.status != "pending":
            watcher(self)
            return
        first = self._watcher
        if first is None:
            self._watcher = watcher
            return

        def both(receipt: Receipt) -> None:
            first(receipt)
            watcher(receipt)

        self._watcher = both

    def __repr__(self) -> str:
        detail = f" run_id={self.run_id}" if self.run_id else ""
        if self.key:
            detail += f" key={self.key!r}"
        why = f": {self.explanation}" if self.reason else ""
        return f"<Receipt {self.status}{detail}{why}>"
