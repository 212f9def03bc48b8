"""``SseDecoder``: the data of server-sent events out of chunks of bytes.  Pure.

Rules, from the WHATWG definition of ``text/event-stream``:

* a line ends in LF, CRLF or CR; an empty line ends an event;
* a line that begins with a colon is a comment; fields other than ``data`` are skipped here,
  since both providers repeat an event's name inside its data;
* several ``data`` lines of one event are joined with LF; an event without data is nothing;
* lines are taken apart as bytes, so a character split over two chunks comes out whole.

Beyond the definition: what stands after the last empty line counts as an event too (``flush``),
because some servers leave the final empty line out.
"""

from typing import Final

from hubbub.hub.errors.copied import CopiedWhole

__all__ = ["MAX_EVENT_BYTES", "EventTooLarge", "SseDecoder"]

MAX_EVENT_BYTES: Final = 8 * 1024 * 1024
"""The most that one event, or one line, may hold."""

_BOM: Final = b"\xef\xbb\xbf"


class EventTooLarge(CopiedWhole, Exception):
    """One event holds more than the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"one event of the stream is larger than {limit} bytes")


class SseDecoder:
    """Takes chunks, returns the data of the events they complete, in order."""

    __slots__ = ("_after_cr", "_begun", "_data", "_limit", "_line", "_size")

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._begun = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of every event that ``chunk`` completes; raises ``EventTooLarge``."""
        if self._after_cr and chunk.startswith(b"\n"):
            # The second half of a CRLF whose CR ended the chunk before.
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        events: list[bytes] = []
        for piece in chunk.splitlines(keepends=True):
            line = piece.rstrip(b"\r\n")
            if self._size + len(self._line) + len(line) > self._limit:
                raise EventTooLarge(self._limit)
            if len(line) == len(piece):
                self._line += piece
            elif self._line:
                self._line += line
                line, self._line = bytes(self._line), bytearray()
                self._take(line, events)
            else:
                self._take(line, events)
        return events

    def flush(self) -> list[bytes]:
        """What the end of the stream completes: the last line and the last event."""
        events: list[bytes] = []
        if self._line:
            line, self._line = bytes(self._line), bytearray()
            self._take(line, events)
        self._take(b"", events)
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
                self._size = 0
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._size += len(value) + 1
