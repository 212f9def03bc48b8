"""``RewrittenLane``: a run's own lane and inbox as they are made again, folded on the way."""

from typing import Any

from msgspec.structs import replace

from hubbub.agents.folders.state_file import Record
from hubbub.agents.state.fold import fold
from hubbub.agents.state.thread import EMPTY
from hubbub.hub import events as e
from hubbub.hub.events import Event, InLane

__all__ = ["RewrittenLane"]


class RewrittenLane:
    """Events are numbered from 1 and stamped with the run's ids, and ``at`` where they say none."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.at = record.created_at
        self.events: list[Event] = []
        self.items: list[InLane] = []
        """What was taken out of the inbox."""
        self.thread = EMPTY

    def put(self, event: Event) -> None:
        stamped = replace(event, lane="own", seq=len(self.events) + 1, **self._address())
        if not stamped.at:
            stamped = replace(stamped, at=self.at)
        self.events.append(stamped)
        self.thread = fold(self.thread, stamped)

    def take(self, item: InLane) -> None:
        if not item.at:
            item = replace(item, at=self.at)
        item = self.numbered(item, len(self.items) + 1)
        self.items.append(item)
        self.put(e.SessionTaken(items=(item,)))

    def numbered(self, item: InLane, seq: int) -> InLane:
        return replace(item, lane="in", seq=seq, **self._address())

    def _address(self) -> dict[str, Any]:
        record = self.record
        return {
            "run_id": record.run_id, "root_run_id": record.root_run_id,
            "parent_run_id": record.parent_run_id, "agent": self.thread.agent or record.agent,
        }  # fmt: skip
