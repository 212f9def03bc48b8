"""What processes say to each other about pieces of answers: ``DeltaFrame`` and ``WantFrame``.

    DeltaWant       a pattern of types, of everything, one tree or one run
    WantFrame    all that a process wants to hear
    DeltaFrame   pieces that were made in a process, as of a position that it has dispatched

A field that is unknown here is left out of account, one that is missing has its default.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct, structs

from hubbub.hub.bus.bus import MAX_FRAME, Topic
from hubbub.hub.delivery.answers import KINDS, DeltaEvent
from hubbub.hub.errors import BadValue
from hubbub.hub.events import Event
from hubbub.hub.events.codec import decode_event, encode_event

__all__ = ["DeltaFrame", "DeltaWant", "WantFrame", "delta_frames", "read_frame", "want_frame"]

HEAD: Final = 200
"""Bytes of a frame beside its pieces, at most."""


class DeltaWant(Struct, frozen=True, omit_defaults=True):
    """What somebody listens to."""

    patterns: tuple[str, ...]
    run_id: str | None = None
    root_run_id: str | None = None


class WantFrame(Struct, frozen=True, omit_defaults=True):
    """What a process wants to hear, and nothing else."""

    process: int
    number: int
    """Grows with each frame of a process, of either kind."""
    wants: tuple[DeltaWant, ...] = ()
    asks: bool = False
    """Whether others are to say what they want: the process has just begun."""


class DeltaFrame(Struct, frozen=True, omit_defaults=True):
    """Pieces that no record has overtaken up to ``position``, in order of each run."""

    process: int
    number: int
    position: int
    at: int
    pieces: tuple[Raw, ...]

    def events(self) -> Iterator[Event]:
        """The pieces as events, without those that cannot be read."""
        for piece in self.pieces:
            try:
                yield _Piece.read(piece, self.at)
            except (msgspec.DecodeError, UnicodeDecodeError, BadValue, IndexError):
                continue


class _Piece(Struct, frozen=True, omit_defaults=True, rename={
    "run_id": "r", "root_run_id": "o", "parent_run_id": "p", "agent": "g", "kind": "k",
    "step": "s", "attempt": "a", "block": "b", "after_seq": "q", "offset": "f", "side": "d",
    "label": "l", "turn": "n", "call_id": "c", "ago": "t", "text": "x", "event": "e",
}):  # fmt: skip
    """A piece, in few bytes; of a class that is an agent's own, the whole event."""

    run_id: str = ""
    root_run_id: str = ""
    """Empty for the run itself."""
    parent_run_id: str | None = None
    agent: str = ""
    kind: int = 0
    step: int = 0
    attempt: int = 1
    block: int = 0
    after_seq: int = 0
    offset: int = 0
    side: str = ""
    label: str = ""
    turn: int = 0
    call_id: str = ""
    ago: int = 0
    """µs before the frame was made."""
    text: str = ""
    event: Raw = Raw()

    @classmethod
    def of(cls, event: Event, at: int) -> "_Piece":
        if not isinstance(event, KINDS):
            return cls(event=Raw(encode_event(event)))
        return cls(
            run_id=event.run_id,
            root_run_id=event.root_run_id if event.root_run_id != event.run_id else "",
            parent_run_id=event.parent_run_id, agent=event.agent, kind=KINDS.index(type(event)),
            step=event.step, attempt=event.attempt, block=event.block, after_seq=event.after_seq,
            offset=event.offset, side=event.side, label=event.label, turn=event.turn,
            call_id=event.call_id, ago=at - event.at, text=event.text,
        )  # fmt: skip

    @classmethod
    def read(cls, piece: Raw, at: int) -> Event:
        it = _pieces.decode(piece)
        if bytes(it.event):
            return decode_event(bytes(it.event))
        return KINDS[it.kind](
            run_id=it.run_id, root_run_id=it.root_run_id or it.run_id,
            parent_run_id=it.parent_run_id, agent=it.agent, step=it.step, attempt=it.attempt,
            block=it.block, after_seq=it.after_seq, offset=it.offset, side=it.side, label=it.label,
            turn=it.turn, call_id=it.call_id, at=at - it.ago, text=it.text,
        )  # fmt: skip


_encoder: Final = msgspec.json.Encoder()
_pieces: Final = msgspec.json.Decoder(_Piece)
_FRAMES: Final[dict[Topic, msgspec.json.Decoder[DeltaFrame | WantFrame]]] = {
    "deltas": msgspec.json.Decoder(DeltaFrame),
    "wants": msgspec.json.Decoder(WantFrame),
}


def read_frame(topic: Topic, frame: bytes) -> DeltaFrame | WantFrame | None:
    """What a frame says; ``None`` for one that cannot be read."""
    try:
        return _FRAMES[topic].decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def want_frame(
    process: int, number: int, wants: Sequence[DeltaWant], *, asks: bool = False
) -> bytes:
    """A frame that says what a process wants: everything, where that is too much for a frame."""
    frame = WantFrame(process, number, tuple(wants), asks)
    encoded = _encoder.encode(frame)
    for patterns in (tuple(sorted({x for each in wants for x in each.patterns})), ("*",)):
        if len(encoded) > MAX_FRAME:
            encoded = _encoder.encode(structs.replace(frame, wants=(DeltaWant(patterns),)))
    return encoded


def delta_frames(
    events: Sequence[Event], process: int, number: int, position: int, at: int
) -> list[bytes]:
    """As few frames as hold the events, in order; ``number`` is that of the first.

    A text that is too long for a frame becomes several pieces; an event of another class that is
    too large is left out.
    """
    frames: list[list[bytes]] = [[]]
    room = MAX_FRAME - HEAD
    for event in events:
        for piece in _encoded(event, at):
            if len(piece) + 1 > room:
                frames.append([])
                room = MAX_FRAME - HEAD
            frames[-1].append(piece)
            room -= len(piece) + 1
    return [
        _encoder.encode(
            DeltaFrame(process, number + place, position, at, tuple(map(Raw, pieces)))
        )
        for place, pieces in enumerate(frames)
        if pieces
    ]  # fmt: skip


def _encoded(event: Event, at: int) -> Iterator[bytes]:
    piece = _encoder.encode(_Piece.of(event, at))
    if len(piece) < MAX_FRAME - HEAD:
        yield piece
    elif isinstance(event, KINDS) and len(event.text) > 1:
        for half in _halves(event):
            yield from _encoded(half, at)


def _halves(event: DeltaEvent) -> tuple[DeltaEvent, DeltaEvent]:
    middle = len(event.text) // 2
    return (
        structs.replace(event, text=event.text[:middle]),
        structs.replace(event, text=event.text[middle:], offset=event.offset + middle),
    )
