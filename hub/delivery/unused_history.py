"""``UnusedHistory``: a warning, once per hub, that an opening's history or tools were not used."""

from hubbub.hub.logs import log
from hubbub.hub.receipt import Receipt

__all__ = ["UnusedHistory"]


class UnusedHistory:
    """Watches openings with a history or tools: one that finds a run adds a message to that."""

    __slots__ = ("_has_warned",)

    def __init__(self) -> None:
        self._has_warned = False

    def watch(self, receipt: Receipt) -> None:
        """Look at what becomes of such an opening."""
        if not self._has_warned:
            receipt.watch(self._look)

    def _look(self, receipt: Receipt) -> None:
        if receipt.accepted and not receipt.created and not self._has_warned:
            self._has_warned = True
            log.warning(
                "history.unused", run_id=receipt.run_id,
                remedy="the run was there already (see receipt.created): it has its own history, "
                "tools and limits, and got the input as a message",
            )  # fmt: skip
