"""Whether a folder's record has come as far as events that were committed."""

from collections.abc import Sequence

from hubbub.agents.folders.state_file import Record
from hubbub.hub.events import Event

__all__ = ["follows", "is_first", "unseen"]


def is_first(events: Sequence[Event]) -> bool:
    """Whether these are the first events of their run."""
    return _follows_at(0, 0, events)


def unseen(record: Record, events: Sequence[Event]) -> Sequence[Event]:
    """Without what the record knows: reading the store may have been ahead of its commits."""
    if events[0].seq > (record.seq if events[0].lane == "own" else record.in_seq):
        return events
    return [x for x in events if x.seq > (record.seq if x.lane == "own" else record.in_seq)]


def follows(record: Record, events: Sequence[Event]) -> bool:
    """Whether these are the next events behind those that the record knows."""
    return _follows_at(record.seq, record.in_seq, events)


def _follows_at(seq: int, in_seq: int, events: Sequence[Event]) -> bool:
    for event in events:
        if event.lane == "own":
            seq += 1
            if event.seq != seq:
                return False
        elif event.lane == "in":
            in_seq += 1
            if event.seq != in_seq:
                return False
    return True
