"""Frames: events as bytes for the wire, each encoded once for everybody who gets it.

    SSE         id: POSITION / event: TYPE / data: {…}
    WebSocket   {"position":"POSITION","event":{…}}

Durable events have a position: what a client sends back to continue behind them.  So has a
``hub:gap``, which says where the stream goes on, and a ``hub:live``, which says that everything
that was on record has been given.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from hubbub.channels.http.streams.positions import position_of
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event, HubGap
from hubbub.hub.events.codec import encode_event
from hubbub.hub.hub import Hub

__all__ = ["MAX_WRITE", "Frames", "StreamLive", "batches", "item_of", "sse_frame", "sse_of"]

MAX_WRITE: Final = 62 * 1024
"""Bytes of frames that are written at once; one frame may be longer.

Some clients of WebSockets take 64 KiB unless told otherwise: that with what is around the frames.
"""

MAX_KEPT: Final = 1024 * 1024
"""Bytes of frames that each of the two generations of a cache holds, and a last one."""

_BREAKS: Final = re.compile(r"[\r\n\0]")


class StreamLive(Event, tag="hub:live", home="none"):
    """Put into a stream behind what was on record, by whoever asked for it; ``cursor`` resumes
    there."""

    cursor: str = ""


Encoding: TypeAlias = Callable[[Hub, Event], bytes]


class Frames:
    """The frames of the latest events.

    An event that goes to many clients is one object, and so its frame is found by its identity.
    What was used lately is kept, in two generations: the older one is dropped when the younger is
    full.
    """

    __slots__ = ("_encode", "_hub", "_old", "_size", "_young")

    def __init__(self, hub: Hub, encode: Encoding) -> None:
        self._hub = hub
        self._encode = encode
        self._young: dict[int, tuple[bytes, Event]] = {}
        self._old: dict[int, tuple[bytes, Event]] = {}
        self._size = 0

    def of(self, event: Event) -> bytes:
        """The frame of an event."""
        found = self._young.get(id(event))
        return self._found(event) if found is None else found[0]

    def _found(self, event: Event) -> bytes:
        key = id(event)
        found = self._old.get(key)
        if found is None:
            # The event is kept with it: its identity is then nobody else's.
            found = self._encoded(event), event
        if self._size >= MAX_KEPT:
            self._old, self._young, self._size = self._young, {}, 0
        self._young[key] = found
        self._size += len(found[0])
        return found[0]

    def _encoded(self, event: Event) -> bytes:
        try:
            return self._encode(self._hub, event)
        except BadValue as error:
            # Somebody's own event that is not kept: it is missing here, and that is said.
            told = HubGap(
                dropped=1, reason=f"an event of type {event.type!r} cannot be encoded: {error}",
                at=event.at, run_id=event.run_id, root_run_id=event.root_run_id,
            )  # fmt: skip
            return self._encode(self._hub, told)


def batches(frames: Iterable[bytes], joint: bytes = b"") -> Iterator[bytes]:
    """Frames joined into pieces of at most ``MAX_WRITE`` bytes; a longer one is one alone."""
    batch: list[bytes] = []
    size = 0
    for frame in frames:
        if batch and size + len(frame) > MAX_WRITE:
            yield _joined(batch, joint)
            size = 0
        batch.append(frame)
        size += len(frame) + len(joint)
    if batch:
        yield _joined(batch, joint)


def _joined(batch: list[bytes], joint: bytes) -> bytes:
    """The frames in one piece, which are not kept beside it while it is written."""
    joined = joint.join(batch)
    batch.clear()
    return joined


def sse_of(hub: Hub, event: Event) -> bytes:
    """An event as server-sent events have it."""
    return sse_frame(event.type, _data(event), _position(hub, event))


def sse_frame(type_: str, data: bytes, position: str = "") -> bytes:
    """A frame of server-sent events; ``data`` is one line."""
    place = f"id: {position}\n" if position else ""
    return f"{place}event: {_BREAKS.sub(' ', type_)}\ndata: ".encode() + data + b"\n\n"


def item_of(hub: Hub, event: Event) -> bytes:
    """An event as an item of a WebSocket's frame."""
    position = _position(hub, event)
    if not position:
        return b'{"event":' + encode_event(event) + b"}"
    return b'{"position":' + msgspec.json.encode(position) + b',"event":' + _data(event) + b"}"


def _position(hub: Hub, event: Event) -> str:
    if event.lane:
        return position_of(hub.cursor(event))
    return position_of(event.cursor) if isinstance(event, HubGap | StreamLive) else ""


def _data(event: Event) -> bytes:
    """The event's JSON, in one line: between its tokens somebody's JSON may have line breaks."""
    data = encode_event(event)
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    return data
