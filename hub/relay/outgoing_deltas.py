"""``OutgoingDeltas``: pieces that wait to be sent to other processes together.

A piece that continues the last one of its run becomes one with it.  There is room for so much: what
is more is dropped, and the next piece that there is room for has an offset that shows it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct, structs

from hubbub.hub.delivery.answers import KINDS
from hubbub.hub.events import Event

__all__ = ["OutgoingDeltas"]

ROOM: Final = 128_000
"""Code points that may wait."""

HEAD: Final = 160
"""As many of them a piece takes beside its text."""


class _Waiting(Struct, eq=False):
    """An event, with the texts of those that have continued it."""

    event: Event
    texts: list[str]
    end: int
    """The offset of a text that would continue it; -1 where none can."""


class OutgoingDeltas:
    """In the order of each run."""

    __slots__ = ("_last", "_taken", "_waiting", "dropped")

    def __init__(self) -> None:
        self._waiting: list[_Waiting] = []
        self._last: dict[str, _Waiting] = {}
        """The last one of each run."""
        self._taken = 0
        self.dropped = 0
        """Since it was taken from last."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, event: Event) -> None:
        """Let one more wait, or drop it."""
        last = self._last.get(event.run_id)
        text = event.text if isinstance(event, KINDS) else ""
        size = len(text) if isinstance(event, KINDS) else len(repr(event))
        if last is not None and _continues(last, event):
            if self._has_room(size):
                last.texts.append(text)
                last.end += size
        elif self._has_room(size + HEAD):
            end = event.offset + size if isinstance(event, KINDS) else -1
            self._last[event.run_id] = last = _Waiting(event, [text] if text else [], end)
            self._waiting.append(last)

    def _has_room(self, size: int) -> bool:
        if self._taken + size > ROOM:
            self.dropped += 1
            return False
        self._taken += size
        return True

    def take(self, is_void: Callable[[Event], bool]) -> Sequence[Event]:
        """All that waits, without what a record has overtaken; nothing waits any more."""
        waiting, self._waiting, self._taken = self._waiting, [], 0
        self.dropped = 0
        self._last.clear()
        return [
            structs.replace(each.event, text="".join(each.texts)) if each.texts else each.event
            for each in waiting
            if not is_void(each.event)
        ]


def _continues(last: _Waiting, event: Event) -> bool:
    before = last.event
    return (
        isinstance(event, KINDS)
        and isinstance(before, type(event))
        and last.end == event.offset
        and (before.after_seq, before.step, before.attempt, before.block)
        == (event.after_seq, event.step, event.attempt, event.block)
        and (before.side, before.label, before.turn, before.call_id)
        == (event.side, event.label, event.turn, event.call_id)
    )
